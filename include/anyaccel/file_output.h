// Writing files so that a full disk, a quota or a limit on the size of files is an error with a reason: never a signal,
// and never a file that is half there.
//
// The kernel ends a process with SIGXFSZ that writes past its limit (`ulimit -f`). These functions keep the signal from
// the calling thread while they write, so that a program need not ignore it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace anyaccel {

// Writes all bytes to an open file. Empty, or why it was not possible: see write_problem().
std::string write_all(int file, const void* data, size_t bytes);

// Explains the error number of a failed write, with the figure that a person needs: "File too large: ..." names the
// process's limit (ulimit -f), "No space left on device" and "Disk quota exceeded" what to do.
std::string write_problem(int error);

// Writes a file that a user named: as a whole, or it stays unchanged. An existing file that is not a regular one (a
// pipe, /dev/stdout) is written to directly; a symbolic link is followed. No folder is made. Empty, or why it was not
// possible.
std::string write_output_file(const std::filesystem::path& path, std::string_view text);

// Gives the reason why write_output_file() could not write there now; empty when it could. Creates nothing.
std::string output_file_problem(const std::filesystem::path& path);

}  // namespace anyaccel
