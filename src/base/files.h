// Files and folders that must not be left behind half-made.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace anyaccel {

// TMPDIR, or /tmp where that is not set or no folder, or where other users could replace what lies in it (said once).
// UnavailableError where they could in /tmp as well.
std::filesystem::path temporary_place();

// A folder of this process's own, removed with what is in it when the object is destroyed.
class TemporaryFolder {
 public:
  // "anyaccel-PURPOSE-" and letters, in temporary_place(). UnavailableError that says what to set when it cannot be made.
  explicit TemporaryFolder(const std::string& purpose);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }
  std::string file(std::string_view name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

// Gives `path` the contents `text` as a whole or leaves it as it was, whatever other processes do at the same time; makes
// the folders above. `mode` as of open(), of which the umask takes away. Empty, or why it was not possible.
std::string replace_file(const std::filesystem::path& path, std::string_view text, unsigned mode = 0666);

}  // namespace anyaccel
