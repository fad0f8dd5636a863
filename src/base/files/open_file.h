// Reads a regular file, and checks that it has not changed since it was opened.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace anyaccel {

// Returns whether there is something of that name; a link that leads to nothing too, so that opening it is an error and it
// does not count as absent.
bool has_name(const std::filesystem::path& path);

class OpenFile {
 public:
  // CheckpointError for a path that cannot be opened or is not a regular file. Does not wait for a pipe's writer.
  explicit OpenFile(const std::filesystem::path& path);
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  int descriptor() const noexcept { return fd_; }
  // The size when it was opened.
  uint64_t bytes() const noexcept { return static_cast<uint64_t>(opened_.st_size); }
  // Fills `out` from `offset` on. CheckpointError, also if the file ends too early.
  void read(uint64_t offset, std::span<std::byte> out) const;
  // Describes evidence that the file was written to since it was opened ("it had 10 bytes and has 4"); empty if there
  // is none. Replacing the file under its name, and new permissions or links, do not change the open file.
  std::string change() const;
  // CheckpointError that names the file and the change.
  void check_unchanged() const;
  // True if `path` leads to this very file and it has not changed. Two system calls.
  bool is_unchanged_at(const std::filesystem::path& path) const;

 private:
  std::string path_;
  int fd_ = -1;
  struct stat opened_ = {};
};

}  // namespace anyaccel
