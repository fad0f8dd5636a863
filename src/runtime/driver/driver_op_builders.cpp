// Reads the op builders and the compiler that a driver brings.
#include "runtime/driver/driver_op_builders.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "anyaccel/abi/op_builders.h"
#include "anyaccel/log.h"
#include "base/files/install_paths.h"

namespace anyaccel {
namespace {

namespace fs = std::filesystem;

// A driver's list without a terminating entry must not crash the process.
constexpr size_t most_entries = 1024;

std::string text_of(const char* text) { return text ? text : ""; }

std::vector<std::string> list_of(const char* const* list) {
  std::vector<std::string> items;
  for (size_t i = 0; list && list[i] && i < most_entries; ++i) items.emplace_back(list[i]);
  return items;
}

std::string absolute(const fs::path& folder, const std::string& path) {
  return (folder / path).lexically_normal().string();
}

std::vector<std::string> absolute(const fs::path& folder, std::vector<std::string> paths) {
  for (std::string& path : paths) path = absolute(folder, path);
  return paths;
}

// Returns what is wrong with an entry; "" if it can be used.
std::string fault_of(const aa_op_builder& entry, const DriverBuilds& earlier) {
  constexpr size_t first_version = offsetof(aa_op_builder, link_flags) + sizeof(entry.link_flags);
  if (entry.struct_size < first_version) return "its struct_size is " + std::to_string(entry.struct_size);
  const std::string name = text_of(entry.name);
  const bool spelled = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  });
  if (!spelled || name.size() < 8 || !name.ends_with("Builder")) {
    return "its name \"" + name + "\" does not consist of letters and digits that end in \"Builder\"";
  }
  if (earlier.find(name)) return "the name stands twice";
  if (entry.flags != 0) return "its flags are " + std::to_string(entry.flags) + "; this version knows none";
  const size_t sources = list_of(entry.sources).size();
  const bool is_device_code = !text_of(entry.language).empty();
  if (is_device_code && (sources != 1 || !text_of(entry.library).empty())) {
    return "device code is one source, and no library; it has " + std::to_string(sources) + " sources";
  }
  if (!is_device_code && sources == 0 && text_of(entry.library).empty()) {
    return "it has neither sources nor a library";
  }
  return "";
}

}  // namespace

const DriverOpBuilder* DriverBuilds::find(std::string_view builder_name) const noexcept {
  const auto found = std::find_if(builders.begin(), builders.end(),
                                  [&](const DriverOpBuilder& builder) { return builder.name == builder_name; });
  return found == builders.end() ? nullptr : &*found;
}

DriverBuilds read_driver_builds(const abi::DriverCalls& driver, const std::string& origin) {
  DriverBuilds builds;
  if (!driver.op_builders && !driver.toolchain) return builds;
  fs::path home = install_kernels_dir();
  if (origin != "built in") {
    std::error_code error;
    const fs::path file = fs::canonical(origin, error);
    home = (error ? fs::absolute(origin) : file).parent_path();
  }
  for (size_t i = 0; driver.op_builders && driver.op_builders[i] && i < most_entries; ++i) {
    const aa_op_builder& entry = *driver.op_builders[i];
    if (const std::string fault = fault_of(entry, builds); !fault.empty()) {
      log_warning(std::string(driver.name) + ": the op builder " + std::to_string(i) + " of " + origin +
                  " is not used: " + fault);
      continue;
    }
    DriverOpBuilder builder;
    builder.name = entry.name;
    builder.driver = driver.name;
    const fs::path folder = absolute(home, text_of(entry.folder));
    builder.folder = folder.string();
    builder.language = text_of(entry.language);
    const std::string library = text_of(entry.library);
    if (!library.empty()) builder.library = absolute(folder, library);
    builder.sources = absolute(folder, list_of(entry.sources));
    builder.include_dirs = absolute(folder, list_of(entry.include_dirs));
    builder.compile_flags = list_of(entry.compile_flags);
    builder.link_flags = list_of(entry.link_flags);
    builds.builders.push_back(std::move(builder));
  }
  const aa_toolchain* toolchain = driver.toolchain;
  if (!toolchain) return builds;
  constexpr size_t first_version = offsetof(aa_toolchain, link_flags) + sizeof(toolchain->link_flags);
  if (toolchain->struct_size < first_version || toolchain->flags != 0) {
    log_warning(std::string(driver.name) + ": the toolchain of " + origin + " is not used: its struct_size is " +
                std::to_string(toolchain->struct_size) + ", its flags " + std::to_string(toolchain->flags));
    return builds;
  }
  BuildExtension extension = host_build_extension();
  if (const std::string compiler = text_of(toolchain->compiler); !compiler.empty()) extension.compiler = compiler;
  for (std::string& flag : list_of(toolchain->compile_flags)) extension.flags.push_back(std::move(flag));
  const std::vector<std::string> include_dirs = absolute(home, list_of(toolchain->include_dirs));
  extension.include_dirs.insert(extension.include_dirs.begin(), include_dirs.begin(), include_dirs.end());
  extension.link_flags = list_of(toolchain->link_flags);
  builds.toolchain = std::move(extension);
  if (const std::string ops_dir = text_of(toolchain->ops_dir); !ops_dir.empty()) {
    builds.ops_dir = absolute(home, ops_dir);
  }
  return builds;
}

BuildExtension host_build_extension() {
  const char* cxx = std::getenv("CXX");
  return {cxx && *cxx ? cxx : "c++", {"-std=c++20", "-O3", "-fPIC", "-shared"}, {install_include_dir()}, {}};
}

}  // namespace anyaccel
