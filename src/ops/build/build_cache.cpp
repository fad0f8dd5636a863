// Implements build_cache.h, the cache of compiled host ops on disk.
#include "ops/build/build_cache.h"

#include <fcntl.h>
#include <gnu/libc-version.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <string_view>
#include <vector>

#include "anyaccel/abi/op_library.h"
#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "base/files/cache_dir.h"
#include "base/files/file_lock.h"
#include "base/files/files.h"
#include "base/hash.h"
#include "base/process/toolchain.h"
#include "ops/build/cache_entry.h"
#include "ops/build/source_languages.h"

namespace anyaccel::ops {
namespace {

namespace fs = std::filesystem;

// This is far more than thousands of headers need.
constexpr size_t most_entry_bytes = 16 << 20;

// Returns the library that a manifest names if all checks pass; else sets `reason`. The folder is one that nobody else
// can change.
std::optional<BuiltLibrary> check_entry(const fs::path& manifest, bool inputs_may_be_missing, std::string& reason) {
  const TrustedPath description = open_trusted_file(manifest, Trust::user);
  const auto text = description.ok() ? read_descriptor(description.descriptor.get(), most_entry_bytes, reason)
                                     : std::optional<std::string>();
  if (!text) {
    reason = description.ok() ? "its description cannot be read: " + reason : description.reason;
    return {};
  }
  const auto entry = parse_entry(*text);
  if (!entry) {
    reason = "its description is damaged, or of another version";
    return {};
  }
  if (!is_current(*entry, inputs_may_be_missing, reason)) return {};
  const fs::path file = manifest.parent_path() / entry->library;
  const TrustedPath library = open_trusted_file(file, Trust::user);
  if (!library.ok()) {
    reason = library.reason;
    return {};
  }
  auto image = LibraryImage::copy(library.descriptor.get(), file.filename().string(), reason);
  if (!image) {
    reason = "the library " + file.string() + " cannot be read: " + reason;
    return {};
  }
  if (image->hash() != entry->library_hash) {
    reason = "the library " + file.string() + " is damaged";
    return {};
  }
  return BuiltLibrary{file.string(), std::move(*image)};
}

std::string last_error() { return std::strerror(errno); }

// The folder of one build, which only this user can access; it is removed with this object.
class WorkFolder {
 public:
  explicit WorkFolder(fs::path folder) : folder_(std::move(folder)) {
    if (mkdir(folder_.c_str(), 0700) != 0)
      throw fs::filesystem_error("mkdir", folder_, std::error_code(errno, std::generic_category()));
  }
  ~WorkFolder() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  const fs::path& path() const { return folder_; }

 private:
  fs::path folder_;
};

std::string unique_suffix() {
  static std::atomic<int> count{0};
  std::string identity = process_identity();
  for (char& c : identity) {
    if (c == ' ' || c == '/') c = '_';
  }
  return identity + "." + std::to_string(count++);
}

// Removes what killed builds left behind.
void sweep(const fs::path& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("build-") && !name.starts_with("probe-")) continue;
    std::string identity = name.substr(6, name.rfind('.') - 6);
    // Host names contain no underscore, and process and start time are numbers.
    for (char& c : identity) {
      if (c == '_') c = ' ';
    }
    const auto age = fs::file_time_type::clock::now() - fs::last_write_time(entry.path(), error);
    if (is_gone(identity) || (!error && age > std::chrono::hours(24))) fs::remove_all(entry.path(), error);
  }
}

// Returns true if a build failed because of the folder, where nothing can be written (any more).
bool cannot_write(const fs::path& folder, std::string& reason) {
  const fs::path probe = folder / ("probe-" + unique_suffix());
  bool written = false;
  {
    std::ofstream stream(probe, std::ios::binary);
    const std::string block(1 << 16, '\0');
    for (int i = 0; i < 16 && stream; ++i) stream.write(block.data(), static_cast<std::streamsize>(block.size()));
    stream.flush();
    written = static_cast<bool>(stream);
    if (!written) reason = last_error();
  }
  std::error_code ignored;
  fs::remove(probe, ignored);
  return !written;
}

void write_file(const fs::path& file, const std::string& text) {
  std::ofstream stream(file, std::ios::binary);
  stream << text;
  stream.flush();
  if (!stream) throw BuildError(file.string() + " could not be written: " + last_error());
}

// Removes the permission of others to write a file, whatever the umask was. Nobody else has opened the file yet.
void keep_from_others(const fs::path& file) {
  fs::permissions(file, fs::perms::group_write | fs::perms::others_write, fs::perm_options::remove);
}

LibraryImage image_of(const fs::path& file) {
  const FileDescriptor descriptor(open(file.c_str(), O_RDONLY | O_CLOEXEC));
  std::string reason = last_error();
  auto image = descriptor ? LibraryImage::copy(descriptor.get(), file.filename().string(), reason) : std::nullopt;
  if (!image) throw BuildError(file.string() + " could not be read after it was built: " + reason);
  return std::move(*image);
}

// The variables that change what compilers read or do, besides those that are part of the recipe.
constexpr const char* compiler_variables[] = {
    "CPATH",         "C_INCLUDE_PATH",  "CPLUS_INCLUDE_PATH", "LIBRARY_PATH",
    "COMPILER_PATH", "GCC_EXEC_PREFIX", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"};

// Returns the lines about the first processor that tell which instructions it has: x86, then ARM, then RISC-V.
std::string processor_text() {
  std::ifstream file("/proc/cpuinfo");
  std::string text;
  for (std::string line; std::getline(file, line) && !line.empty();) {
    for (const char* key :
         {"vendor_id", "model\t", "flags", "CPU implementer", "CPU architecture", "CPU part", "Features", "isa"}) {
      if (line.starts_with(key)) text += line + "\n";
    }
  }
  return text;
}

// Returns the "-<compiler>" of an entry's name; empty if there is no compiler.
std::string compiler_suffix(const BuildPlan& plan) {
  try {
    Hash hash;
    for (const char* variable : compiler_variables) {
      if (const char* value = std::getenv(variable)) hash.add(variable).add(value);
    }
    // -march=native means another processor where a cache folder is shared by machines.
    const std::vector<std::string> command = cxx_command(plan.compiler);
    const auto names_native = [](const std::vector<std::string>& flags) {
      return std::ranges::any_of(flags, [](const std::string& flag) { return flag.ends_with("=native"); });
    };
    if (names_native(plan.cxx_args) || names_native(plan.nvcc_args) || names_native(command))
      hash.add(processor_text());
    for (const std::string& part : command) hash.add(compiler_identity(part));
    for (const std::string& source : plan.sources) {
      if (const SourceLanguage* language = language_of(source)) hash.add(compiler_identity(language->compiler()));
    }
    return "-" + hash.text().substr(0, 16);
  } catch (const UnavailableError&) {
    return {};
  }
}

std::optional<BuiltLibrary> find_in(const fs::path& folder, const BuildPlan& plan, std::string& reason) {
  const std::string recipe = recipe_hash(plan);
  const std::string compiler = compiler_suffix(plan);
  if (!compiler.empty()) return check_entry(folder / (recipe + compiler + ".entry"), false, reason);
  // There is no compiler here, so the work of any compiler will do.
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(recipe) || !name.ends_with(".entry")) continue;
    if (auto found = check_entry(entry.path(), true, reason)) return found;
  }
  return {};
}

// Builds outside the cache and leaves nothing on disk.
BuiltLibrary build_privately(const BuildPlan& plan) {
  std::optional<TemporaryFolder> work;
  try {
    work.emplace("op");
  } catch (const UnavailableError& error) {
    throw BuildError("op \"" + plan.op_name + "\" could not be built: " + error.what() +
                     ", or ANYACCEL_CACHE_DIR to one where compiled ops are kept");
  }
  const fs::path library = work->path() / (plan.op_name + ".so");
  compile_library(plan, work->path(), library);
  return {library.string(), image_of(library), true, true};
}

fs::path entry_path(const fs::path& folder, const BuildPlan& plan) {
  return folder / (recipe_hash(plan) + compiler_suffix(plan) + ".entry");
}

BuiltLibrary build_in(const fs::path& folder, const BuildPlan& plan) {
  const auto begin = std::chrono::system_clock::now();
  const fs::path entry = entry_path(folder, plan);
  WorkFolder work{folder / ("build-" + unique_suffix())};
  const fs::path fresh = work.path() / "library.so";
  const std::vector<std::string> inputs = compile_library(plan, work.path(), fresh);
  LibraryImage image = image_of(fresh);
  const std::string library = plan.op_name + "-" + plan.target + "-" + image.hash().substr(0, 16) + ".so";
  const fs::path manifest = work.path() / "entry";
  write_file(manifest, describe_entry(plan, inputs, library, image.hash()));
  if (const std::string changed = changed_since(begin, plan, inputs); !changed.empty()) {
    // The compiler may have read it before the change, and the description has what it contains now.
    log_info("op \"" + plan.op_name + "\" is not kept, because " + changed + " changed while it was compiled");
    return {fresh.string(), std::move(image), true, true, true};
  }
  keep_from_others(fresh);
  keep_from_others(manifest);
  fs::rename(fresh, folder / library);
  fs::rename(manifest, entry);
  return {(folder / library).string(), std::move(image), true, false};
}

}  // namespace

std::string recipe_hash(const BuildPlan& plan) {
  Hash hash;
  utsname machine{};
  uname(&machine);
  hash.add("anyaccel op").add(std::to_string(AA_OP_LIBRARY_VERSION)).add(machine.machine).add(gnu_get_libc_version());
  hash.add(plan.op_name).add(plan.target);
  for (const auto* list : {&plan.sources, &plan.include_paths, &plan.cxx_args, &plan.nvcc_args, &plan.ldflags}) {
    hash.add(std::to_string(list->size()));
    for (const std::string& item : *list) hash.add(item);
  }
  for (const std::string& source : plan.sources) {
    const auto contents = file_hash(source);
    if (!contents) {
      throw UnavailableError("op \"" + plan.op_name + "\": its source " + source + " cannot be read: " + last_error());
    }
    hash.add(*contents);
  }
  return hash.text();
}

std::optional<BuiltLibrary> BuildCache::find(const BuildPlan& plan) const {
  if (root_.empty()) return {};
  const TrustedPath folder = open_cache_folder(root_ / plan.op_name);
  std::string reason;
  return folder.ok() ? find_in(folder.path, plan, reason) : std::nullopt;
}

BuiltLibrary BuildCache::find_or_build(const BuildPlan& plan, bool rebuild) const {
  if (root_.empty()) {
    warn_that_nothing_is_kept();
    return build_privately(plan);
  }
  const TrustedPath made = make_cache_folder(root_ / plan.op_name);
  if (made.state == TrustedPath::State::refused) return build_privately(plan);
  std::string trouble = made.reason;
  if (made.ok()) {
    const fs::path& folder = made.path;
    std::string reason;
    if (!rebuild) {
      if (auto found = find_in(folder, plan, reason)) return std::move(*found);
    }
    const fs::path entry = entry_path(folder, plan);
    std::error_code error;
    if (fs::exists(entry, error)) log_info("op \"" + plan.op_name + "\" is built anew: " + reason);

    const FileLock lock(fs::path(entry).replace_extension(".lock"), patience, "op \"" + plan.op_name + "\"");
    // Another process may have built it while this one waited.
    if (!rebuild) {
      if (auto found = find_in(folder, plan, reason)) return std::move(*found);
    }
    sweep(folder);
    try {
      return build_in(folder, plan);
    } catch (const fs::filesystem_error& failure) {
      trouble = failure.code().message();
    } catch (const BuildError&) {
      if (!cannot_write(folder, trouble)) throw;
    }
  }
  log_warning("op \"" + plan.op_name + "\" cannot be kept in " + (root_ / plan.op_name).string() + " (" + trouble +
              ") and is built for this process only; set ANYACCEL_CACHE_DIR to a folder that can be written");
  return build_privately(plan);
}

}  // namespace anyaccel::ops
