// Files and folders that nobody else can change: what is loaded as code, or decides which code runs, is opened through here.
//
// The rule is that of ssh's StrictModes, for the file and every folder from it up to the root: it belongs to this user or to
// root, and neither its group nor others can write it. A folder with the sticky bit (/tmp) may be writable, since what lies in
// it is renamed and removed by its owner alone. A symbolic link on the way must belong to this user or root too. A group of
// which the user is the only member does not count as the user, because nothing says who else it will get. An access list
// that lets somebody write shows in the group's bits, which are its mask, so it is refused as well (lists of NFS version 4 do
// not show in the mode and are not looked at).
//
// The path is walked from the root folder by folder, each opened inside the one before without following links, so that what
// is checked is what is used. Nobody but the trusted users can change what `path` of the result means afterwards, for which
// reason it may be handed to a compiler or to dlopen().
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/file_descriptor.h"

namespace anyaccel {

enum class Trust {
  user,     // the process's effective user, and root
  program,  // and those who own the running program or a folder on the way to it: they could replace it
};

struct TrustedPath {
  enum class State {
    ok,
    missing,  // there is no such file or folder
    refused,  // there is, and others could change it
    failed,   // it cannot be opened, or is neither a file nor a folder as was asked for
  };
  State state = State::failed;
  FileDescriptor descriptor;      // of a file: to read from; of a folder: O_PATH; empty unless `ok`
  std::filesystem::path path;     // absolute and without symbolic links, as far as the walk came
  std::filesystem::path culprit;  // what breaks the rule or cannot be opened; empty when `ok`
  std::string reason;             // whole words that begin with the culprit
  std::string cure;               // of `refused`: what to do about it

  bool ok() const noexcept { return state == State::ok; }
};

// Opens a regular file for reading. A pipe, device or folder is `failed`, without being opened.
TrustedPath open_trusted_file(const std::filesystem::path& file, Trust trust);
// Opens a folder.
TrustedPath open_trusted_folder(const std::filesystem::path& folder, Trust trust);
// The same with Trust::user, making what is missing: folders that only their owner can write, whatever the umask.
TrustedPath make_trusted_folder(const std::filesystem::path& folder);

// All that can be read from a descriptor, if that is at most `most_bytes`; else nothing, and why.
std::optional<std::string> read_descriptor(int descriptor, size_t most_bytes, std::string& reason);

}  // namespace anyaccel
