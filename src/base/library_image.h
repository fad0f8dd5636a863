// The contents of a shared library in memory that nobody can write to, and the hash of exactly these: what is checked is what is
// loaded.
//
// A file that belongs to this user may still be changed after it was checked, by a process that opened it when others could
// write it. A copy in a memory file that is sealed against writing cannot. Reading the file for its hash is the most of the
// work, and that is needed in any case.
#pragma once

#include <optional>
#include <string>

#include "base/file_descriptor.h"

namespace anyaccel {

class LibraryImage {
 public:
  // Holds nothing.
  LibraryImage() = default;
  // Copies a file that is open for reading. `name` is what debuggers show in /proc/PID/maps. Nothing when it cannot be read
  // or kept, and `reason` why.
  static std::optional<LibraryImage> copy(int file, const std::string& name, std::string& reason);

  // Of the contents, as file_hash().
  const std::string& hash() const noexcept { return hash_; }
  // dlopen() of the contents with RTLD_NOW and RTLD_LOCAL; null, and `error`, when that fails. Where /proc is not mounted, or
  // memory files may not be executed, by way of a file in a folder of this process's own, which is removed again.
  void* open(std::string& error) const;

 private:
  FileDescriptor file_;
  std::string hash_;
};

}  // namespace anyaccel
