// Implements cache_entry.h: writes, reads and checks the description of a cached op.
#include "ops/build/cache_entry.h"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "base/hash.h"
#include "base/process/shell.h"
#include "base/process/toolchain.h"

namespace anyaccel::ops {
namespace {

namespace fs = std::filesystem;

// The description of an entry is read in microseconds, because every load() waits for it. Each line of the file is a
// key and its value:
//
//   anyaccel op 2
//   library NAME        hash HEX            compiler FILE SIZE TIME   (and other facts for a person to read)
//   folder PATH                             only if an input was found relative to it
//   input SIZE TIME HEX PATH                size in bytes, time of change in nanoseconds, hash of the contents
constexpr const char* entry_magic = "anyaccel op 2";

int64_t change_time(const struct stat& info) {
  return int64_t{info.st_ctim.tv_sec} * 1000000000 + info.st_ctim.tv_nsec;
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

std::string current_folder() {
  std::error_code error;
  return fs::current_path(error).string();
}

}  // namespace

std::string describe_entry(const BuildPlan& plan, const std::vector<std::string>& inputs, const std::string& library,
                           const std::string& library_hash) {
  const std::string compiler = cxx_command(plan.compiler)[0];
  std::ostringstream text;
  text << entry_magic << "\nlibrary " << library << "\nhash " << library_hash << "\nop " << plan.op_name << "\ntarget "
       << plan.target << "\ncompiler " << compiler_identity(compiler) << "\nversion " << compiler_version(compiler)
       << "\narguments " << quote_words(plan.cxx_args) << "\n";
  for (const std::string& source : plan.sources) text << "source " << source << "\n";
  if (!std::ranges::all_of(inputs, [](const std::string& path) { return path.starts_with('/'); })) {
    text << "folder " << current_folder() << "\n";
  }
  for (const std::string& path : inputs) {
    struct stat info {};
    if (comes_with_compiler(path) || stat(path.c_str(), &info) != 0) continue;
    text << "input " << info.st_size << ' ' << change_time(info) << ' ' << file_hash(path).value_or("-") << ' '
         << fs::absolute(path).string() << "\n";
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
  return true;
}

std::string changed_since(std::chrono::system_clock::time_point begin, const BuildPlan& plan,
                          const std::vector<std::string>& inputs) {
  const auto nanoseconds = [](std::chrono::system_clock::time_point time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
  };
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
  return {};
}

std::vector<std::string> linked_files(const BuildPlan& plan) {
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
  std::vector<std::string> folders;
  std::vector<std::string> names;
  std::vector<std::string> found;
  const auto add_file = [&](const std::string& path) {
    std::error_code error;
    if (fs::is_regular_file(path, error)) found.push_back(path);
  };
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (!word.starts_with("-L") && !word.starts_with("-l")) {
      if (!word.starts_with('-')) add_file(word);
      continue;
    }
    const std::string value = word.size() > 2 ? word.substr(2) : i + 1 < words.size() ? words[++i] : std::string();
    (word[1] == 'L' ? folders : names).push_back(value);
  }
  if (const char* variable = std::getenv("LIBRARY_PATH")) {
    std::istringstream parts(variable);
    for (std::string part; std::getline(parts, part, ':');) folders.push_back(part.empty() ? "." : part);
  }
  for (const std::string& name : names) {
    for (const std::string& folder : folders) {
      if (name.starts_with(':')) {
        add_file(folder + "/" + name.substr(1));
      } else {
        add_file(folder + "/lib" + name + ".so");
        add_file(folder + "/lib" + name + ".a");
      }
    }
  }
  return found;
}

}  // namespace anyaccel::ops
