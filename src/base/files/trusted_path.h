// Opens files and folders that no other user can change. All files that are loaded as code, or decide which code runs,
// are opened through here.
//
// The rule is that of ssh's StrictModes, for the file and every folder from it up to the root: it belongs to this user
// or to root, and neither its group nor others can write it. A folder with the sticky bit (/tmp) may be writable, since
// only a file's owner can rename or remove it there. A symbolic link on the way must belong to this user or root too. A
// group of which the user is the only member does not count as the user, because other members may be added later. An
// access list that grants write access shows in the group's bits, which are its mask, so it is rejected as well (NFS
// version 4 lists do not show in the mode and are not checked).
//
// The path is walked from the root folder by folder, each opened inside the one before without following links, so that
// what is checked is what is used. Only the trusted users can change the file that `path` of the result refers to
// afterwards, so it may be passed to a compiler or to dlopen().
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/files/file_descriptor.h"

namespace anyaccel {

enum class Trust {
  user,     // the process's effective user, and root
  program,  // and the owners of the running program and the folders in its path: they could replace it
};

struct TrustedPath {
  enum class State {
    ok,
    missing,  // there is no such file or folder
    refused,  // it exists, and others could change it
    failed,   // it cannot be opened, or is not of the requested kind (file or folder)
  };
  State state = State::failed;
  FileDescriptor descriptor;      // of a file: to read from; of a folder: O_PATH; empty unless `ok`
  std::filesystem::path path;     // absolute and without symbolic links, as far as the walk got
  std::filesystem::path culprit;  // the file or folder that breaks the rule or cannot be opened; empty if `ok`
  std::string reason;             // a clause that begins with `culprit`
  std::string cure;               // of `refused`: what to do about it

  bool ok() const noexcept { return state == State::ok; }
};

// Opens a regular file for reading. A pipe, device or folder is `failed`, without being opened.
TrustedPath open_trusted_file(const std::filesystem::path& file, Trust trust);
// Opens a folder.
TrustedPath open_trusted_folder(const std::filesystem::path& folder, Trust trust);
// The same with Trust::user, creating missing folders, which only their owner can write, whatever the umask.
TrustedPath make_trusted_folder(const std::filesystem::path& folder);

// Returns all data of a descriptor, if that is at most `most_bytes`; else nothing, and the reason.
std::optional<std::string> read_descriptor(int descriptor, size_t most_bytes, std::string& reason);

}  // namespace anyaccel
