// Finds the files of this installation relative to the running program, so that an installed tree can be moved.
#include "base/files/install_paths.h"

#include <sys/auxv.h>

#include <filesystem>

// Defined by anyaccel/package_path.h in programs that include the package's headers.
extern "C" __attribute__((weak)) const char* anyaccel_header_path();

namespace anyaccel {

std::filesystem::path own_program() {
  std::error_code error;
  std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) return program;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the kernel gives the address as a number
  const auto* const name = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
  if (name != nullptr) program = std::filesystem::canonical(name, error);
  return error ? std::filesystem::path() : program;
}

namespace {

bool is_installed(const std::filesystem::path& prefix) {
  std::error_code error;
  return std::filesystem::exists(prefix / "share/anyaccel/kernels", error);
}

// <prefix> of <prefix>/bin/anyaccel, or of the build tree; empty if unknown.
std::filesystem::path program_prefix() { return own_program().parent_path().parent_path(); }

// <prefix> of <prefix>/include/anyaccel/package_path.h; empty if unknown.
std::filesystem::path package_prefix() {
  const std::filesystem::path header = anyaccel_header_path ? anyaccel_header_path() : "";
  if (!header.is_absolute()) return {};  // the current folder is not that of the compiler
  return header.lexically_normal().parent_path().parent_path().parent_path();
}

}  // namespace

std::string install_prefix() {
  const std::filesystem::path own = program_prefix();
  if (is_installed(own)) return own.string();
  const std::filesystem::path package = package_prefix();
  return !package.empty() && is_installed(package) ? package.string() : std::string();
}

std::string missing_package() {
  std::error_code error;
  if (std::filesystem::is_directory(install_kernels_dir(), error)) return {};
  const std::string header = anyaccel_header_path ? anyaccel_header_path() : "";
  std::string text = "the files of anyaccel's package, share/anyaccel/kernels, were looked for in " +
                     program_prefix().string() + ", where the program is";
  if (header.empty()) {
    text += ", and are not there; ";
  } else if (header[0] != '/') {
    text += ", and are not there; the program was compiled with the relative path " + header +
            ", which cannot be resolved where it runs: compile it with the absolute path of the package's headers, or ";
  } else {
    text += ", and in " + package_prefix().string() +
            ", with whose headers it was compiled, and are not there; compile it with the headers of the package's "
            "present folder, or ";
  }
  return text + "install it in the package's folder bin";
}

std::string install_include_dir() {
  const std::string prefix = install_prefix();
  return prefix.empty() ? ANYACCEL_SOURCE_DIR "/include" : prefix + "/include";
}

std::string install_kernels_dir() {
  const std::string prefix = install_prefix();
  return prefix.empty() ? ANYACCEL_SOURCE_DIR "/kernels" : prefix + "/share/anyaccel/kernels";
}

std::string install_library_dir() {
  const std::string prefix = install_prefix();
  return (prefix.empty() ? program_prefix().string() : prefix) + "/lib/anyaccel";
}

std::string install_plugin_dir() { return install_library_dir() + "/plugins"; }

std::string install_prebuilt_dir() {
  const std::string prefix = install_prefix();
  return prefix.empty() ? std::string() : prefix + "/lib/anyaccel/ops";
}

}  // namespace anyaccel
