// Compiled host ops on disk: found again by what they are made of, built once by however many processes ask.
//
// Layout: <cache folder>/ops/<op>/<recipe>-<compiler>.entry names a library beside it and what it was made of. <recipe>
// stands for the sources' contents, every flag, the target and the interface's version, <compiler> for the compiler's
// file. An entry holds when the headers that the compiler reached are still the same and the library's hash is right;
// everything else (half a file, another machine's file that does not load, somebody else's file) is built anew. A
// library appears by renaming, so that nobody sees half of one. Builders of one entry take turns by a file lock, which
// the kernel drops with its owner; where locks do not work, or their owner does not move, work is done twice rather
// than waited for. Where the folder cannot be written, or could be written by another user (base/files/trusted_path.h), a
// process builds for itself alone. What is loaded is a copy in memory of what was checked (library_image.h).
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "anyaccel/op_builder.h"
#include "base/files/library_image.h"

namespace anyaccel::ops {

struct BuiltLibrary {
  std::string file;    // where it is kept; for a private one, what messages call it
  LibraryImage image;  // to be loaded
  bool built_now = false;
  bool is_private = false;  // built for this process, and kept nowhere
};

class BuildCache {
 public:
  // `root` is cache_directory()/ops; empty when there is none (every process builds for itself).
  explicit BuildCache(std::filesystem::path root) : root_(std::move(root)) {}

  // The library of a plan, when it is there and whole. Starts no program. Throws UnavailableError when a source cannot
  // be read.
  std::optional<BuiltLibrary> find(const BuildPlan& plan) const;

  // The same, or else compiles it. `rebuild` passes over an entry that turned out not to load. Throws BuildError with
  // the compiler's output, UnavailableError when there is no compiler.
  BuiltLibrary find_or_build(const BuildPlan& plan, bool rebuild = false) const;

  // The time that another process's build is waited for before this process builds for itself.
  std::chrono::milliseconds patience{std::chrono::minutes(5)};

 private:
  std::filesystem::path root_;
};

// Compiles a plan's sources to the shared library `output`, using the existing folder `work` for what comes between.
// Returns the headers that were reached. Throws BuildError, UnavailableError.
std::vector<std::string> compile_library(const BuildPlan& plan, const std::filesystem::path& work,
                                         const std::filesystem::path& output);

// 32 hexadecimal digits that stand for the plan without its compiler and headers.
std::string recipe_hash(const BuildPlan& plan);

}  // namespace anyaccel::ops
