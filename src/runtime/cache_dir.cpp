// See cache_dir.h.
#include "runtime/cache_dir.h"

#include <cstdlib>

namespace anyaccel {
namespace {

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value && *value ? value : nullptr;
}

}  // namespace

std::filesystem::path cache_directory() {
  if (const char* own = variable("ANYACCEL_CACHE_DIR")) return own;
  if (const char* xdg = variable("XDG_CACHE_HOME")) return std::filesystem::path(xdg) / "anyaccel";
  if (const char* home = variable("HOME")) return std::filesystem::path(home) / ".cache" / "anyaccel";
  return {};
}

}  // namespace anyaccel
