// Writes a file completely or not at all: its bytes go to a temporary file in the same folder, which is renamed at the
// end. A signal that ends the process removes the temporary file (base/files/unfinished_files.h).
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>

#include "base/files/unfinished_files.h"

namespace anyaccel {

class NewFile {
 public:
  // Creates the temporary file. A symbolic link stays, and its target is replaced. Error, with the reason, if that is not
  // possible.
  explicit NewFile(const std::filesystem::path& path);
  // Removes the temporary file unless finish() was called.
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  // Error if the bytes cannot be written. Blocks.
  void append(std::span<const std::byte> bytes);
  // Flushes the file to disk and renames it; what was at the path is replaced. Error, and then the path is as it was.
  void finish();
  bool is_finished() const noexcept { return fd_ < 0; }

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  std::optional<UnfinishedFile> unfinished_;
  int fd_ = -1;
};

}  // namespace anyaccel
