// A regular file that is open for reading, and whether it is still as it was when it was opened.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace anyaccel {

class OpenFile {
 public:
  // CheckpointError for a path that cannot be opened or is no regular file. Does not wait for a pipe's writer.
  explicit OpenFile(const std::filesystem::path& path);
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  int descriptor() const noexcept { return fd_; }
  // When it was opened.
  uint64_t bytes() const noexcept { return static_cast<uint64_t>(opened_.st_size); }
  // Fills `out` from `offset` on. CheckpointError, also when the file ends before.
  void read(uint64_t offset, std::span<std::byte> out) const;
  // What says that somebody wrote to the file since it was opened ("it had 10 bytes and has 4"); empty: nothing does.
  // A file that was replaced under its name, and new rights or links, leave what is open here as it was.
  std::string change() const;
  // CheckpointError that names the file and the change.
  void check_unchanged() const;

 private:
  std::string path_;
  int fd_ = -1;
  struct stat opened_ = {};
};

}  // namespace anyaccel
