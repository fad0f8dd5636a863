// Declares the description of a cached op: its library, and the files from which that was built.
//
// A change of an input is recognized by its size and the time at which its inode last changed, which no program can set
// (the modification time is set by copies and archives), and then by its contents. An entry also has the names that were
// not there when it was built, and would come before an input if they were: a header in a folder that is searched
// earlier.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "anyaccel/op_builder.h"

namespace anyaccel::ops {

struct InputFile {
  int64_t size = 0;
  int64_t changed = 0;    // nanoseconds
  std::string_view hash;  // of the contents
  std::string path;
};

// Names of files or folders that were not in a folder.
struct AbsentNames {
  int64_t changed = 0;  // the folder's, in nanoseconds: if it is the same, no name was added; 0: it says nothing
  std::string folder;
  std::vector<std::string_view> names;
};

struct CacheEntry {
  std::string_view library;  // a name without a folder
  std::string_view library_hash;
  std::string folder;  // the current folder of the build if an input was found relative to it; else empty
  std::vector<InputFile> inputs;
  std::vector<AbsentNames> absent;
};

// Returns the text of an entry. `inputs` is what compile_library() returned for the plan.
std::string describe_entry(const BuildPlan& plan, const std::vector<std::string>& inputs, const std::string& library,
                           const std::string& library_hash);

// Reads such a text, into which the result points; nothing if it is damaged or of another version.
std::optional<CacheEntry> parse_entry(std::string_view text);

// Returns whether a build would read the same inputs again; if not, sets `reason`.
bool is_current(const CacheEntry& entry, bool inputs_may_be_missing, std::string& reason);

// Returns the first source, input or file of searched_files() that has changed since `begin`; empty if none has.
std::string changed_since(std::chrono::system_clock::time_point begin, const BuildPlan& plan,
                          const std::vector<std::string>& inputs);

// Returns the files that the flags of a plan give to the linker: those named by their path, and libraries (-l) in the
// folders of -L and LIBRARY_PATH.
std::vector<std::string> linked_files(const BuildPlan& plan);

// Returns the paths beside the inputs that a build reads instead of an input, or may read, if they exist.
std::vector<std::string> searched_files(const BuildPlan& plan, const std::vector<std::string>& inputs);

}  // namespace anyaccel::ops
