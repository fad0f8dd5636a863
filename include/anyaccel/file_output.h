// Functions that write files so that a full disk, a quota or a file size limit gives an error with a reason: never a
// signal, and never a partial file.
//
// The kernel kills a process that writes past its limit (`ulimit -f`) with SIGXFSZ. These functions block the signal on
// the calling thread while they write, so that a program need not ignore it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace anyaccel {

// Writes all bytes to an open file. Returns an empty string, or the reason for a failure: see write_problem().
std::string write_all(int file, const void* data, size_t bytes);

// Explains the error number of a failed write, with the information that the user needs: "File too large: ..." names
// the process's limit (ulimit -f), "No space left on device" and "Disk quota exceeded" say what to do.
std::string write_problem(int error);

// Writes a file that a user named, completely, or leaves it unchanged. An existing file that is not a regular one (a
// pipe, /dev/stdout) is written to directly; a symbolic link is followed. Does not create folders. Returns an empty
// string, or the reason for a failure.
std::string write_output_file(const std::filesystem::path& path, std::string_view text);

// Returns the reason why write_output_file() could not write there now; empty if it could. Creates nothing.
std::string output_file_problem(const std::filesystem::path& path);

}  // namespace anyaccel
