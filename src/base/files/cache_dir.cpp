// Finds and opens the cache folder, and reads and writes its files.
#include "base/files/cache_dir.h"

#include <atomic>
#include <cstdlib>

#include "anyaccel/log.h"
#include "base/files/files.h"

namespace anyaccel {
namespace {

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value && *value ? value : nullptr;
}

// All folders of the cache have the same cause; further warnings would repeat it.
void warn_once(const TrustedPath& refused) {
  static std::atomic<bool> said{false};
  if (refused.state != TrustedPath::State::refused || said.exchange(true)) return;
  log_warning("nothing is loaded from or kept in the cache folder " + cache_directory().string() + ", because " +
              refused.reason +
              ", so that another user could put code there. What is compiled serves this process alone. Cure: " +
              refused.cure + "; or set ANYACCEL_CACHE_DIR to a folder that only you can write");
}

}  // namespace

std::filesystem::path cache_directory() {
  if (const char* own = variable("ANYACCEL_CACHE_DIR")) return own;
  if (const char* xdg = variable("XDG_CACHE_HOME")) return std::filesystem::path(xdg) / "anyaccel";
  if (const char* home = variable("HOME")) return std::filesystem::path(home) / ".cache" / "anyaccel";
  return {};
}

void warn_that_nothing_is_kept() {
  static std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  log_warning(
      "there is no cache folder, because none of ANYACCEL_CACHE_DIR, XDG_CACHE_HOME and HOME is set. What is compiled "
      "serves this process alone. Cure: set ANYACCEL_CACHE_DIR to a folder that only you can write");
}

TrustedPath make_cache_folder(const std::filesystem::path& folder) {
  TrustedPath made = make_trusted_folder(folder);
  warn_once(made);
  return made;
}

TrustedPath open_cache_folder(const std::filesystem::path& folder) {
  TrustedPath opened = open_trusted_folder(folder, Trust::user);
  warn_once(opened);
  return opened;
}

std::optional<std::string> read_cache_file(const std::filesystem::path& file, size_t most_bytes) {
  const TrustedPath opened = open_trusted_file(file, Trust::user);
  std::string reason = opened.reason;
  if (opened.ok()) {
    if (auto text = read_descriptor(opened.descriptor.get(), most_bytes, reason)) return text;
  } else if (opened.culprit.filename() != file.filename()) {
    warn_once(opened);
  }
  if (opened.state != TrustedPath::State::missing) log_debug(file.string() + " is not used: " + reason);
  return {};
}

std::string write_cache_file(const std::filesystem::path& file, std::string_view text) {
  const TrustedPath folder = make_cache_folder(file.parent_path());
  if (folder.state == TrustedPath::State::refused) return {};
  if (!folder.ok()) return folder.reason;
  return replace_file(folder.path / file.filename(), text, 0644);
}

}  // namespace anyaccel
