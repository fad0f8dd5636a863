// See prebuilt.h.
#include "ops/prebuilt.h"

#include <filesystem>
#include <fstream>

#include "anyaccel/abi/op_library.h"
#include "anyaccel/error.h"
#include "ops/build_cache.h"
#include "ops/hash.h"
#include "runtime/install_paths.h"

namespace anyaccel::ops {
namespace {

namespace fs = std::filesystem;

// As recipe_hash(), without what differs from one machine or folder to another.
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

std::string base_name(const BuildPlan& plan) { return plan.op_name + "-" + plan.target; }

}  // namespace

std::optional<std::string> find_prebuilt(const BuildPlan& plan) {
  const std::string folder = install_prebuilt_dir();
  if (folder.empty()) return {};
  const fs::path library = fs::path(folder) / (base_name(plan) + ".so");
  std::ifstream description(fs::path(library).replace_extension(".txt"));
  std::string contents;
  if (!(description >> contents) || contents != contents_hash(plan)) return {};
  return library.string();
}

std::string write_prebuilt(const BuildPlan& plan, const std::string& folder) {
  std::error_code error;
  const fs::path work = fs::path(folder) / ("build-" + base_name(plan));
  fs::create_directories(work, error);
  if (error) throw BuildError("the folder " + work.string() + " cannot be made: " + error.message());
  const fs::path library = fs::path(folder) / (base_name(plan) + ".so");
  try {
    compile_library(plan, work, work / "library.so");
    fs::remove(fs::path(library).replace_extension(".txt"), error);
    fs::rename(work / "library.so", library);
    std::ofstream description(fs::path(library).replace_extension(".txt"));
    description << contents_hash(plan) << "\n";
    description.close();
    if (!description) throw BuildError(folder + " cannot be written");
  } catch (...) {
    fs::remove_all(work, error);
    throw;
  }
  fs::remove_all(work, error);
  return library.string();
}

}  // namespace anyaccel::ops
