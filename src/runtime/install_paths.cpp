// See install_paths.h.
#include "runtime/install_paths.h"

#include <filesystem>

namespace anyaccel {

std::string install_prefix() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return {};
  return program.parent_path().parent_path().string();
}

std::string install_include_dir() {
  const std::string installed = install_prefix() + "/include";
  std::error_code error;
  if (std::filesystem::exists(installed + "/anyaccel/accelerator.h", error)) return installed;
  return ANYACCEL_SOURCE_INCLUDE_DIR;
}

std::string install_share_dir() { return install_prefix() + "/share/anyaccel"; }
std::string install_plugin_dir() { return install_prefix() + "/lib/anyaccel/plugins"; }

}  // namespace anyaccel
