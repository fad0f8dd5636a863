// Loads a shared library from a sealed copy in memory and hashes that copy, so that exactly the checked contents are
// loaded.
//
// A file that belongs to this user may still be changed after it was checked, by a process that opened it at a time
// when others could write it. A copy in a memory file that is sealed against writing cannot. Most of the cost is
// reading the file for its hash, which is needed in any case.
#pragma once

#include <optional>
#include <string>

#include "base/files/file_descriptor.h"

namespace anyaccel {

class LibraryImage {
 public:
  // Holds nothing.
  LibraryImage() = default;
  // Copies a file that is open for reading. Debuggers show `name` from /proc/PID/maps. Returns nothing if it cannot be
  // read or stored, and sets `reason`.
  static std::optional<LibraryImage> copy(int file, const std::string& name, std::string& reason);

  // The hash of the contents, as file_hash().
  const std::string& hash() const noexcept { return hash_; }
  // dlopen() of the contents with RTLD_NOW and RTLD_LOCAL; null, and `error`, when that fails. Where /proc is not
  // mounted, or memory files may not be executed, through a file in a private folder of this process, which is removed
  // again.
  void* open(std::string& error) const;

 private:
  FileDescriptor file_;
  std::string hash_;
};

}  // namespace anyaccel
