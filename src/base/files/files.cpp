// Creates files and folders that must not be left behind incomplete.
#include "base/files/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <system_error>

#include "anyaccel/error.h"
#include "anyaccel/file_output.h"
#include "anyaccel/log.h"
#include "base/files/trusted_path.h"
#include "base/files/unfinished_files.h"

namespace anyaccel {

namespace fs = std::filesystem;

fs::path temporary_place() {
  const fs::path common = "/tmp";
  std::error_code missing;
  fs::path asked = fs::temp_directory_path(missing);
  if (missing) asked = common;
  const TrustedPath place = open_trusted_folder(asked, Trust::user);
  if (place.state != TrustedPath::State::refused) return asked;
  const std::string why = place.reason + ", so that another user could replace what is compiled there";
  if (asked == common || open_trusted_folder(common, Trust::user).state == TrustedPath::State::refused) {
    throw UnavailableError("there is no place for temporary files: " + why +
                           "; set TMPDIR to a folder of your own, or " + place.cure);
  }
  static std::atomic<bool> said{false};
  if (!said.exchange(true)) {
    log_warning("TMPDIR=" + asked.string() + " is not used: " + why + "; using /tmp. Cure: " + place.cure);
  }
  return common;
}

TemporaryFolder::TemporaryFolder(const std::string& purpose) {
  const fs::path base = temporary_place();
  std::string name = (base / ("anyaccel-" + purpose + "-XXXXXX")).string();
  if (!mkdtemp(name.data())) {
    throw UnavailableError("no folder can be made in " + base.string() + ": " + std::strerror(errno) +
                           "; set TMPDIR to a folder that can be written");
  }
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string replace_file(const fs::path& path, std::string_view text, unsigned mode) {
  std::error_code error;
  // A file of the current folder has no parent path, and an empty one is an error.
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  if (error) return error.message();
  const fs::path fresh = unfinished_path(path);
  std::optional<UnfinishedFile> unfinished;
  const int file = create_unfinished_file(fresh, mode, unfinished);
  if (file < 0) return std::strerror(errno);
  std::string reason = write_all(file, text.data(), text.size());
  if (::close(file) != 0 && reason.empty()) reason = std::strerror(errno);
  if (reason.empty() && std::rename(fresh.c_str(), path.c_str()) == 0) return "";
  if (reason.empty()) reason = std::strerror(errno);
  ::unlink(fresh.c_str());
  return reason;
}

}  // namespace anyaccel
