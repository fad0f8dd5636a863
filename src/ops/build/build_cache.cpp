// Implements build_cache.h, the cache of compiled host ops on disk.
#include "ops/build/build_cache.h"

#include <fcntl.h>
#include <gnu/libc-version.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

#include "anyaccel/abi/op_library.h"
#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "base/files/cache_dir.h"
#include "base/files/file_lock.h"
#include "base/files/files.h"
#include "base/hash.h"
#include "base/process/shell.h"
#include "base/process/subprocess.h"
#include "base/process/toolchain.h"
#include "ops/build/source_languages.h"

namespace anyaccel::ops {
namespace {

namespace fs = std::filesystem;

int64_t nanoseconds(const timespec& time) { return int64_t{time.tv_sec} * 1000000000 + time.tv_nsec; }

// The description of an entry is read in microseconds, because every load() waits for it. Each line of the file is a
// key and its value:
//
//   anyaccel op 1
//   library NAME        hash HEX            compiler FILE SIZE TIME   (and other facts for a person to read)
//   header SIZE TIME HEX PATH               size in bytes, time of change in nanoseconds, hash of the contents
constexpr const char* entry_magic = "anyaccel op 1";
// This is far more than thousands of headers need.
constexpr size_t most_entry_bytes = 16 << 20;

struct Header {
  int64_t size = 0;
  int64_t time = 0;
  std::string_view hash;
  std::string path;
};

struct Entry {
  std::string text;  // the views point into it
  std::string_view library;
  std::string_view library_hash;
  std::vector<Header> headers;
};

std::string_view take_word(std::string_view& rest) {
  const size_t end = std::min(rest.find(' '), rest.size());
  const std::string_view word = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return word;
}

bool take_number(std::string_view& rest, int64_t& number) {
  const std::string_view word = take_word(rest);
  const auto result = std::from_chars(word.data(), word.data() + word.size(), number);
  return result.ec == std::errc() && result.ptr == word.data() + word.size() && !word.empty();
}

// Returns false if the text is damaged. An entry ends with the line "end", so a truncated one is detected.
bool parse_entry(Entry& entry) {
  std::string_view rest = entry.text;
  const auto take_line = [&rest] {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    return line;
  };
  if (take_line() != entry_magic) return false;
  while (!rest.empty()) {
    std::string_view line = take_line();
    const std::string_view key = take_word(line);
    if (key == "library") {
      entry.library = line;
    } else if (key == "hash") {
      entry.library_hash = line;
    } else if (key == "header") {
      Header header;
      if (!take_number(line, header.size) || !take_number(line, header.time)) return false;
      header.hash = take_word(line);
      header.path = line;
      entry.headers.push_back(std::move(header));
    } else if (key == "end") {
      return !entry.library.empty() && entry.library.find('/') == std::string_view::npos;
    }
  }
  return false;
}

bool is_same_header(const Header& header, bool may_be_missing) {
  struct stat info {};
  if (stat(header.path.c_str(), &info) != 0) return may_be_missing;
  if (info.st_size != header.size) return false;
  if (nanoseconds(info.st_mtim) == header.time) return true;
  return file_hash(header.path) == header.hash;
}

// Returns the library that a manifest names if all checks pass; else sets `reason`. The folder is one that nobody else
// can change.
std::optional<BuiltLibrary> check_entry(const fs::path& manifest, bool headers_may_be_missing, std::string& reason) {
  const TrustedPath description = open_trusted_file(manifest, Trust::user);
  Entry entry;
  if (auto text = description.ok() ? read_descriptor(description.descriptor.get(), most_entry_bytes, reason)
                                   : std::optional<std::string>()) {
    entry.text = std::move(*text);
  } else {
    reason = description.ok() ? "its description cannot be read: " + reason : description.reason;
    return {};
  }
  if (!parse_entry(entry)) {
    reason = "its description is damaged, or of another version";
    return {};
  }
  const fs::path file = manifest.parent_path() / entry.library;
  for (const Header& header : entry.headers) {
    if (!is_same_header(header, headers_may_be_missing)) {
      reason = "the header " + header.path + " has changed";
      return {};
    }
  }
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
  if (image->hash() != entry.library_hash) {
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

// Removes the folders that killed builds left behind.
void sweep(const fs::path& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("build-")) continue;
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

// Returns whether a header comes with the compiler; the compiler's identity covers those already.
bool comes_with_compiler(const std::string& header) {
  return header.find("/lib/gcc/") != std::string::npos || header.find("/lib/clang/") != std::string::npos ||
         header.find("/include/c++/") != std::string::npos;
}

std::string describe(const BuildPlan& plan, const std::vector<std::string>& headers, const std::string& library,
                     const std::string& library_hash) {
  const std::string compiler = cxx_command(plan.compiler)[0];
  std::ostringstream text;
  text << entry_magic << "\nlibrary " << library << "\nhash " << library_hash << "\nop " << plan.op_name << "\ntarget "
       << plan.target << "\ncompiler " << compiler_identity(compiler) << "\nversion " << compiler_version(compiler)
       << "\narguments " << quote_words(plan.cxx_args) << "\n";
  for (const std::string& source : plan.sources) text << "source " << source << "\n";
  for (const std::string& header : headers) {
    struct stat info {};
    if (comes_with_compiler(header) || stat(header.c_str(), &info) != 0) continue;
    text << "header " << info.st_size << ' ' << nanoseconds(info.st_mtim) << ' ' << file_hash(header).value_or("-")
         << ' ' << fs::absolute(header).string() << "\n";
  }
  text << "end\n";
  return text.str();
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

// Returns the "-<compiler>" of an entry's name; empty if there is no compiler.
std::string compiler_suffix(const BuildPlan& plan) {
  try {
    Hash hash;
    for (const std::string& part : cxx_command(plan.compiler)) hash.add(compiler_identity(part));
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

BuiltLibrary build_in(const fs::path& folder, const BuildPlan& plan) {
  WorkFolder work{folder / ("build-" + unique_suffix())};
  const fs::path fresh = work.path() / "library.so";
  const std::vector<std::string> headers = compile_library(plan, work.path(), fresh);
  LibraryImage image = image_of(fresh);
  const std::string library = plan.op_name + "-" + plan.target + "-" + image.hash().substr(0, 16) + ".so";
  const fs::path manifest = work.path() / "entry";
  write_file(manifest, describe(plan, headers, library, image.hash()));
  keep_from_others(fresh);
  keep_from_others(manifest);
  fs::rename(fresh, folder / library);
  fs::rename(manifest, folder / (recipe_hash(plan) + compiler_suffix(plan) + ".entry"));
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
  if (root_.empty()) return build_privately(plan);
  const TrustedPath made = make_cache_folder(root_ / plan.op_name);
  if (made.state == TrustedPath::State::refused) return build_privately(plan);
  std::string trouble = made.reason;
  if (made.ok()) {
    const fs::path& folder = made.path;
    std::string reason;
    if (!rebuild) {
      if (auto found = find_in(folder, plan, reason)) return std::move(*found);
    }
    const fs::path entry = folder / (recipe_hash(plan) + compiler_suffix(plan) + ".entry");
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
