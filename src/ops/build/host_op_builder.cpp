// Loads host ops: prebuilt ones, those in the cache, or ones that are compiled now. See anyaccel/op_builder.h.
#include <dlfcn.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "anyaccel/op_builder.h"
#include "base/files/cache_dir.h"
#include "base/files/trusted_path.h"
#include "base/process/toolchain.h"
#include "ops/build/build_cache.h"
#include "ops/build/prebuilt.h"
#include "ops/build/source_languages.h"
#include "ops/host/host_accelerator.h"

namespace anyaccel {
namespace {

namespace fs = std::filesystem;

ops::BuildCache the_cache() {
  const fs::path root = cache_directory();
  return ops::BuildCache(root.empty() ? root : root / "ops");
}

// The libraries that this process has loaded. Libraries stay loaded; wrappers live as long as they are used.
struct LoadedLibraries {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<HostOpLibrary>> by_file;
  std::map<std::string, std::shared_ptr<HostOpLibrary>> by_recipe;  // those that no cache keeps
  std::map<std::tuple<std::string, const HostOpLibrary*, const void*>, std::weak_ptr<OpLibrary>> wrappers;
};
LoadedLibraries& loaded_libraries() {
  static auto& libraries = *new LoadedLibraries;
  return libraries;
}

// Returns null and sets `error` if the library does not load. `open` calls dlopen() for it.
template <class Open>
std::shared_ptr<HostOpLibrary> open_library(const std::string& file, std::string& error, Open&& open) {
  LoadedLibraries& loaded = loaded_libraries();
  std::lock_guard lock(loaded.mutex);
  if (auto& known = loaded.by_file[file]) return known;
  void* handle = open();
  if (!handle) return nullptr;
  // A library without this function uses none of the services.
  if (auto open_interface = reinterpret_cast<aa_op_library_open_fn>(dlsym(handle, AA_OP_LIBRARY_OPEN))) {
    const uint32_t version = open_interface(ops::op_services());
    if (version != AA_OP_LIBRARY_VERSION) {
      error = "it was compiled for version " + std::to_string(version) + " of the op interface, this is version " +
              std::to_string(AA_OP_LIBRARY_VERSION);
      return nullptr;
    }
  }
  return loaded.by_file[file] = std::make_shared<HostOpLibrary>(handle, file);
}

std::shared_ptr<HostOpLibrary> build_and_open(const BuildPlan& plan) {
  LoadedLibraries& loaded = loaded_libraries();
  const std::string recipe = ops::recipe_hash(plan);
  {
    std::lock_guard lock(loaded.mutex);
    if (const auto known = loaded.by_recipe.find(recipe); known != loaded.by_recipe.end()) return known->second;
  }
  // The cache is asked each time, because a header may have changed since the last one.
  const ops::BuildCache cache = the_cache();
  std::string error;
  for (const bool rebuild : {false, true}) {
    const ops::BuiltLibrary library = cache.find_or_build(plan, rebuild);
    auto code = open_library(library.file, error, [&] { return library.image.open(error); });
    if (code) {
      if (!library.is_private || library.is_outdated) return code;
      std::lock_guard lock(loaded.mutex);
      return loaded.by_recipe.try_emplace(recipe, code).first->second;
    }
    if (library.built_now) break;
    log_warning("op \"" + plan.op_name + "\": " + library.file + " does not load here (" + error +
                "); it is built anew");
  }
  throw BuildError("op \"" + plan.op_name + "\" was built, but its library does not load: " + error);
}

// Returns a library that was compiled beforehand; nothing if it does not exist. Throws UnavailableError for one that
// others can change.
std::optional<std::string> ready_file(const OpBuilder& builder, const std::string& file) {
  if (file.empty()) return {};
  const TrustedPath found = open_trusted_file(file, Trust::program);
  if (found.state == TrustedPath::State::missing) return {};
  if (!found.ok()) {
    throw UnavailableError(builder.name() + ": its library is not loaded, because " + found.reason +
                           (found.cure.empty() ? "" : ". Cure: " + found.cure));
  }
  return found.path.string();
}

[[noreturn]] void throw_not_ready(const OpBuilder& builder, const std::string& library) {
  throw UnavailableError(builder.name() + ": " +
                         (library.empty()
                              ? "it names no sources"
                              : "its library " + library + " is not there, and it has no sources to compile"));
}

}  // namespace

std::vector<std::string> HostOpBuilder::cxx_args() const {
  // Results must not depend on which multiplications a compiler chooses to fuse, so kernels call fma explicitly.
  return {"-std=c++20", "-O3", "-g0", "-fno-math-errno", "-ffp-contract=off"};
}

bool HostOpBuilder::is_built() const {
  try {
    if (ready_file(*this, ready_library())) return true;
    const BuildPlan plan = builder();
    return ops::find_prebuilt(plan) || the_cache().find(plan);
  } catch (const Error&) {
    return false;
  }
}

bool HostOpBuilder::is_compatible(std::string* reason) const {
  try {
    if (ready_file(*this, ready_library())) return true;
    const BuildPlan plan = builder();
    if (plan.sources.empty()) throw_not_ready(*this, ready_library());
    if (ops::find_prebuilt(plan) || the_cache().find(plan)) return true;
    cxx_command(plan.compiler);
    for (const std::string& source : plan.sources) {
      if (const ops::SourceLanguage* language = ops::language_of(source)) language->compiler();
    }
    return true;
  } catch (const Error& error) {
    if (reason) *reason = error.what();
    return false;
  }
}

std::shared_ptr<OpLibrary> HostOpBuilder::wrapper_of(std::shared_ptr<HostOpLibrary> code) {
  LoadedLibraries& loaded = loaded_libraries();
  const std::tuple key(name(), code.get(), wrapper_context());
  {
    std::lock_guard lock(loaded.mutex);
    if (auto wrapper = loaded.wrappers[key].lock()) return wrapper;
  }
  auto wrapper = make_library(std::move(code));
  std::lock_guard lock(loaded.mutex);
  std::weak_ptr<OpLibrary>& kept = loaded.wrappers[key];
  if (auto earlier = kept.lock()) return earlier;
  kept = wrapper;
  return wrapper;
}

std::shared_ptr<OpLibrary> HostOpBuilder::load() {
  std::string error;
  // Only whoever installed the program can change these files, so they are loaded by their own names, and ranks share
  // their pages.
  const auto open_installed = [&](const std::string& file) {
    return open_library(file, error, [&] {
      void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (!handle) error = dlerror();
      return handle;
    });
  };
  if (const auto ready = ready_file(*this, ready_library())) {
    if (auto code = open_installed(*ready)) return wrapper_of(std::move(code));
    if (sources().empty()) throw UnavailableError(name() + ": the library " + *ready + " does not load here: " + error);
    log_warning(name() + ": the library " + *ready + " does not load here (" + error +
                "); compiling its sources instead");
  }
  const BuildPlan plan = builder();
  if (plan.sources.empty()) throw_not_ready(*this, ready_library());
  if (const auto prebuilt = ops::find_prebuilt(plan)) {
    if (auto code = open_installed(*prebuilt)) return wrapper_of(std::move(code));
    log_warning(name() + ": the prebuilt library " + *prebuilt + " does not load here (" + error +
                "); compiling it instead");
  }
  return wrapper_of(build_and_open(plan));
}

std::shared_ptr<OpLibrary> HostOpBuilder::jit_load() {
  const auto begin = std::chrono::steady_clock::now();
  const BuildPlan plan = builder();
  if (plan.sources.empty()) {
    throw UnavailableError(name() + " has no sources to compile; it comes as the library " + ready_library());
  }
  auto library = wrapper_of(build_and_open(plan));
  if (log_enabled(LogLevel::info)) {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    log_info("Time to load " + op_name() + " op: " + std::to_string(seconds.count()) + " seconds");
  }
  return library;
}

}  // namespace anyaccel
