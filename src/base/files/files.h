// Creates files and folders that must not be left behind incomplete.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace anyaccel {

// Returns TMPDIR, or /tmp if that is not set, is not a folder, or is one where other users could replace files (one
// warning). UnavailableError if they could in /tmp as well.
std::filesystem::path temporary_place();

// A private folder of this process, removed with its contents when the object is destroyed.
class TemporaryFolder {
 public:
  // "anyaccel-PURPOSE-" and letters, in temporary_place(). If it cannot be created, UnavailableError says what to set.
  explicit TemporaryFolder(const std::string& purpose);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }
  std::string file(std::string_view name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

// Replaces the contents of `path` by `text` atomically, whatever other processes do at the same time; creates the
// folders above it. `mode` as for open(), subject to the umask. Returns an empty text, or the reason for failure.
std::string replace_file(const std::filesystem::path& path, std::string_view text, unsigned mode = 0666);

}  // namespace anyaccel
