// Implements cache_entry.h: writes, reads and checks the description of a cached op.
#include "ops/build/cache_entry.h"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <locale>
#include <map>
#include <set>
#include <sstream>
#include <unordered_map>
#include <utility>

#include "base/hash.h"
#include "base/process/shell.h"
#include "base/process/toolchain.h"

namespace anyaccel::ops {
namespace {

namespace fs = std::filesystem;

// The description of an entry is read in microseconds, because every load() waits for it. Each line of the file is a
// key and its value:
//
//   anyaccel op 3
//   library NAME        hash HEX            compiler FILE SIZE TIME   (and other facts for a person to read)
//   folder PATH                             only if an input was found, or searched for, relative to it
//   input SIZE TIME HEX PATH                size in bytes, time of change in nanoseconds, hash of the contents
//   absent TIME PATH                        a folder, and its time of change
//   no NAME                                 which is not in the folder above
constexpr const char* entry_magic = "anyaccel op 3";

int64_t change_time(const struct stat& info) {
  return int64_t{info.st_ctim.tv_sec} * 1000000000 + info.st_ctim.tv_nsec;
}

int64_t nanoseconds(std::chrono::system_clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

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

bool is_same(const InputFile& input, bool may_be_missing) {
  struct stat info {};
  if (stat(input.path.c_str(), &info) != 0) return may_be_missing;
  if (info.st_size != input.size) return false;
  if (change_time(info) == input.changed) return true;
  return file_hash(input.path) == input.hash;
}

// Returns whether a header comes with the system's compiler, whose identity stands for it.
bool comes_with_compiler(const std::string& header) {
  return header.starts_with("/usr/") &&
         (header.find("/lib/gcc/") != std::string::npos || header.find("/lib/clang/") != std::string::npos ||
          header.find("/include/c++/") != std::string::npos);
}

// Returns whether only packages of the system change a folder's headers, and with them the files that are inputs.
bool is_of_the_system(const std::string& path) { return path.starts_with("/usr/") && !path.starts_with("/usr/local/"); }

void add_list(std::vector<std::string>& folders, const char* variable) {
  const char* value = std::getenv(variable);
  if (!value || !*value) return;
  std::istringstream parts(value);
  for (std::string part; std::getline(parts, part, ':');) folders.push_back(part.empty() ? "." : part);
}

// Returns the folders in which the compiler of a plan looks for headers, but for those of the system.
std::vector<std::string> header_folders(const BuildPlan& plan, const std::vector<std::string>& inputs) {
  std::vector<std::string> folders = plan.include_paths;
  std::vector<std::string> words = cxx_command(plan.compiler);
  for (const auto* list : {&plan.cxx_args, &plan.nvcc_args}) words.insert(words.end(), list->begin(), list->end());
  for (size_t i = 0; i < words.size(); ++i) {
    for (const std::string_view flag : {"-I", "-iquote", "-isystem", "-idirafter"}) {
      if (!words[i].starts_with(flag)) continue;
      const std::string value = words[i].substr(flag.size());
      folders.push_back(!value.empty() || i + 1 == words.size() ? value : words[i + 1]);
    }
  }
  for (const char* variable : {"CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"}) add_list(folders, variable);
  folders.push_back("/usr/local/include");
  // A name in quotes is looked for beside the file that includes it.
  for (const auto* list : {&plan.sources, &inputs}) {
    for (const std::string& path : *list) {
      if (!is_of_the_system(path)) folders.push_back(fs::path(path).parent_path().string());
    }
  }
  for (std::string& folder : folders) {
    if (folder.empty()) folder = ".";
  }
  std::ranges::sort(folders);
  folders.erase(std::unique(folders.begin(), folders.end()), folders.end());
  return folders;
}

// Returns the folders in which the linker looks for libraries, and the names of the libraries, from a plan's flags.
struct LinkerNames {
  std::vector<std::string> files;  // named by their path
  std::vector<std::string> folders;
  std::vector<std::string> libraries;  // file names
};
LinkerNames linker_names(const BuildPlan& plan) {
  std::vector<std::string> words;
  for (const auto* list : {&plan.cxx_args, &plan.ldflags}) {
    for (const std::string& flag : *list) {
      if (!flag.starts_with("-Wl,")) {
        words.push_back(flag);
        continue;
      }
      std::istringstream parts(flag.substr(4));
      for (std::string part; std::getline(parts, part, ',');) words.push_back(part);
    }
  }
  LinkerNames found;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (!word.starts_with("-L") && !word.starts_with("-l")) {
      if (!word.starts_with('-')) found.files.push_back(word);
      continue;
    }
    const std::string value = word.size() > 2 ? word.substr(2) : i + 1 < words.size() ? words[++i] : std::string();
    if (word[1] == 'L') {
      found.folders.push_back(value);
    } else if (value.starts_with(':')) {
      found.libraries.push_back(value.substr(1));
    } else {
      found.libraries.push_back("lib" + value + ".so");
      found.libraries.push_back("lib" + value + ".a");
    }
  }
  add_list(found.folders, "LIBRARY_PATH");
  return found;
}

// Returns for each path that does not exist its first folder or file that does not, by the folder that would have it.
std::map<std::string, std::set<std::string>> absent_names(const std::vector<std::string>& paths) {
  std::map<std::string, std::set<std::string>> absent;
  std::unordered_map<std::string, bool> known;
  for (const std::string& path : paths) {
    const std::string full = fs::absolute(path).string();
    for (size_t slash = 0; slash != std::string::npos;) {
      const size_t next = full.find('/', slash + 1);
      const std::string part = full.substr(0, next);
      const auto [at, is_new] = known.try_emplace(part, false);
      struct stat info {};
      if (is_new) at->second = stat(part.c_str(), &info) == 0;
      if (!at->second) {
        absent[full.substr(0, std::max<size_t>(slash, 1))].insert(part.substr(slash + 1));
        break;
      }
      slash = next;
    }
  }
  return absent;
}

std::string current_folder() {
  std::error_code error;
  return fs::current_path(error).string();
}

}  // namespace

std::string describe_entry(const BuildPlan& plan, const std::vector<std::string>& inputs, const std::string& library,
                           const std::string& library_hash) {
  const std::string compiler = cxx_command(plan.compiler)[0];
  std::ostringstream text;
  text.imbue(std::locale::classic());  // what from_chars() reads
  text << entry_magic << "\nlibrary " << library << "\nhash " << library_hash << "\nop " << plan.op_name << "\ntarget "
       << plan.target << "\ncompiler " << compiler_identity(compiler) << "\nversion " << compiler_version(compiler)
       << "\narguments " << quote_words(plan.cxx_args) << "\n";
  for (const std::string& source : plan.sources) text << "source " << source << "\n";
  const std::vector<std::string> searched = searched_files(plan, inputs);
  const auto is_absolute = [](const std::string& path) { return path.starts_with('/'); };
  if (!std::ranges::all_of(inputs, is_absolute) || !std::ranges::all_of(searched, is_absolute)) {
    text << "folder " << current_folder() << "\n";
  }
  for (const std::string& path : inputs) {
    struct stat info {};
    if (comes_with_compiler(path) || stat(path.c_str(), &info) != 0) continue;
    text << "input " << info.st_size << ' ' << change_time(info) << ' ' << file_hash(path).value_or("-") << ' '
         << fs::absolute(path).string() << "\n";
  }
  const int64_t now = nanoseconds(std::chrono::system_clock::now());
  for (const auto& [folder, names] : absent_names(searched)) {
    struct stat info {};
    const bool is_there = stat(folder.c_str(), &info) == 0;
    // A clock with coarse steps gives a name that is added in the same step the same time.
    const bool is_old = is_there && now - change_time(info) > 1'000'000'000;
    text << "absent " << (is_old ? change_time(info) : 0) << ' ' << folder << "\n";
    for (const std::string& name : names) text << "no " << name << "\n";
  }
  text << "end\n";
  return text.str();
}

// An entry ends with the line "end", so a truncated one is detected.
std::optional<CacheEntry> parse_entry(std::string_view text) {
  CacheEntry entry;
  const auto take_line = [&text] {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return line;
  };
  if (take_line() != entry_magic) return {};
  while (!text.empty()) {
    std::string_view line = take_line();
    const std::string_view key = take_word(line);
    if (key == "library") {
      entry.library = line;
    } else if (key == "hash") {
      entry.library_hash = line;
    } else if (key == "folder") {
      entry.folder = line;
    } else if (key == "input") {
      InputFile input;
      if (!take_number(line, input.size) || !take_number(line, input.changed)) return {};
      input.hash = take_word(line);
      input.path = line;
      entry.inputs.push_back(std::move(input));
    } else if (key == "absent") {
      AbsentNames absent;
      if (!take_number(line, absent.changed)) return {};
      absent.folder = line;
      entry.absent.push_back(std::move(absent));
    } else if (key == "no") {
      if (entry.absent.empty()) return {};
      entry.absent.back().names.push_back(line);
    } else if (key == "end") {
      if (entry.library.empty() || entry.library.find('/') != std::string_view::npos) return {};
      return entry;
    }
  }
  return {};
}

bool is_current(const CacheEntry& entry, bool inputs_may_be_missing, std::string& reason) {
  if (!entry.folder.empty() && entry.folder != current_folder()) {
    reason = "it was built with files relative to the folder " + entry.folder;
    return false;
  }
  for (const InputFile& input : entry.inputs) {
    if (is_same(input, inputs_may_be_missing)) continue;
    reason = input.path + " has changed";
    return false;
  }
  if (inputs_may_be_missing) return true;  // there is no compiler that would take a new file instead
  for (const AbsentNames& absent : entry.absent) {
    struct stat info {};
    if (stat(absent.folder.c_str(), &info) != 0 || change_time(info) == absent.changed) continue;
    for (const std::string_view name : absent.names) {
      const std::string path = absent.folder + "/" + std::string(name);
      if (stat(path.c_str(), &info) != 0) continue;
      reason = path + " was not there when it was built, and may come before a file that it was built from";
      return false;
    }
  }
  return true;
}

std::string changed_since(std::chrono::system_clock::time_point begin, const BuildPlan& plan,
                          const std::vector<std::string>& inputs) {
  const int64_t from = nanoseconds(begin);
  // A time in the future is that of a clock which was set back since.
  const int64_t to = nanoseconds(std::chrono::system_clock::now());
  for (const auto* list : {&plan.sources, &inputs}) {
    for (const std::string& path : *list) {
      struct stat info {};
      if (stat(path.c_str(), &info) != 0) return path;
      if (change_time(info) > from && change_time(info) <= to) return path;
    }
  }
  for (const std::string& path : searched_files(plan, inputs)) {
    struct stat info {};
    if (stat(path.c_str(), &info) == 0 && change_time(info) > from && change_time(info) <= to) return path;
  }
  return {};
}

std::vector<std::string> linked_files(const BuildPlan& plan) {
  const LinkerNames names = linker_names(plan);
  std::vector<std::string> found;
  const auto add_file = [&](const std::string& path) {
    std::error_code error;
    if (fs::is_regular_file(path, error)) found.push_back(path);
  };
  for (const std::string& file : names.files) add_file(file);
  for (const std::string& library : names.libraries) {
    for (const std::string& folder : names.folders) add_file(folder + "/" + library);
  }
  return found;
}

std::vector<std::string> searched_files(const BuildPlan& plan, const std::vector<std::string>& inputs) {
  const std::set<std::string_view> read(inputs.begin(), inputs.end());
  std::set<std::string> found;
  const auto add = [&](std::string path) {
    if (!read.contains(path)) found.insert(std::move(path));
  };
  // Compilers do not say by which name a header was included: each end of its path may be it. A name too many costs one
  // build, if it is ever added.
  std::set<std::string_view> names;
  for (const std::string_view path : read) {
    for (size_t slash = path.rfind('/'); slash != std::string_view::npos && slash > 0;
         slash = path.rfind('/', slash - 1)) {
      names.insert(path.substr(slash + 1));
    }
    if (!path.starts_with('/')) names.insert(path);
  }
  for (const std::string& folder : header_folders(plan, inputs)) {
    for (const std::string_view name : names) add(folder + "/" + std::string(name));
  }
  const LinkerNames linked = linker_names(plan);
  for (const std::string& library : linked.libraries) {
    for (const std::string& folder : linked.folders) add(folder + "/" + library);
  }
  return {found.begin(), found.end()};
}

}  // namespace anyaccel::ops
