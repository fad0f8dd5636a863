// Implements prebuilt.h: finds and writes host ops that are compiled ahead of time for the installed package.
#include "ops/build/prebuilt.h"

#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include "anyaccel/abi/op_library.h"
#include "anyaccel/error.h"
#include "anyaccel/file_output.h"
#include "anyaccel/log.h"
#include "base/files/install_paths.h"
#include "base/files/trusted_path.h"
#include "base/hash.h"
#include "ops/build/build_cache.h"

namespace anyaccel::ops {
namespace {

namespace fs = std::filesystem;

constexpr fs::perms others_write = fs::perms::group_write | fs::perms::others_write;

// Like recipe_hash(), but without anything that differs between machines or folders.
std::string contents_hash(const BuildPlan& plan) {
  Hash hash;
  hash.add(std::to_string(AA_OP_LIBRARY_VERSION)).add(plan.op_name).add(plan.target);
  for (const std::string& argument : plan.cxx_args) hash.add(argument);
  for (const std::string& argument : plan.ldflags) hash.add(argument);
  for (const std::string& source : plan.sources) {
    hash.add(fs::path(source).filename().string()).add(file_hash(source).value_or(""));
  }
  return hash.text();
}

// The warning appears only once, because the whole folder was installed in the same way.
bool is_refused(const TrustedPath& path) {
  static std::atomic<bool> said{false};
  if (path.state != TrustedPath::State::refused) return false;
  if (!said.exchange(true)) {
    log_warning("prebuilt ops are not used, because " + path.reason +
                ", so that another user could put code there; they are compiled instead. Cure: " + path.cure);
  }
  return true;
}

std::string base_name(const BuildPlan& plan) { return plan.op_name + "-" + plan.target; }

}  // namespace

std::optional<std::string> find_prebuilt(const BuildPlan& plan) {
  const std::string folder = install_prebuilt_dir();
  if (folder.empty()) return {};
  const fs::path file = fs::path(folder) / (base_name(plan) + ".so");
  const TrustedPath description = open_trusted_file(fs::path(file).replace_extension(".txt"), Trust::program);
  const TrustedPath library = open_trusted_file(file, Trust::program);
  if (is_refused(description) || is_refused(library) || !description.ok() || !library.ok()) return {};
  std::string reason;
  const auto contents = read_descriptor(description.descriptor.get(), 4096, reason);
  if (!contents || *contents != contents_hash(plan) + "\n") return {};
  return library.path.string();
}

std::string write_prebuilt(const BuildPlan& plan, const std::string& folder) {
  std::error_code error;
  const fs::path work = fs::path(folder) / ("build-" + base_name(plan));
  fs::create_directories(folder, error);
  if (!error && mkdir(work.c_str(), 0700) != 0 && errno != EEXIST) error.assign(errno, std::generic_category());
  if (error) throw BuildError("the folder " + work.string() + " cannot be made: " + error.message());
  const fs::path library = fs::path(folder) / (base_name(plan) + ".so");
  try {
    compile_library(plan, work, work / "library.so");
    fs::remove(fs::path(library).replace_extension(".txt"), error);
    fs::permissions(work / "library.so", others_write, fs::perm_options::remove);
    fs::rename(work / "library.so", library);
    const fs::path description = fs::path(library).replace_extension(".txt");
    const std::string reason = write_output_file(description, contents_hash(plan) + "\n");
    if (!reason.empty()) {
      fs::remove(library, error);
      throw BuildError(description.string() + " cannot be written: " + reason);
    }
    fs::permissions(description, others_write, fs::perm_options::remove);
  } catch (...) {
    fs::remove_all(work, error);
    throw;
  }
  fs::remove_all(work, error);
  return library.string();
}

}  // namespace anyaccel::ops
