// Declares the cache of compiled host ops on disk. An op is found by what it was built from, and is built once, however
// many processes request it.
//
// Layout: <cache folder>/ops/<op>/<recipe>-<compiler>.entry names a library next to it and what it was built from.
// <recipe> stands for the sources' contents, every flag, the target and the interface's version, <compiler> for the
// compiler's file, the variables that it reads (CPATH) and, with -march=native, the processor. An entry is valid if the
// headers that the compiler read and the libraries that the flags name have not changed, none was added where it would
// be found earlier, and the library's hash is right (cache_entry.h); anything else (a truncated file, another machine's
// file that does not load, another user's file) is built again. What is built while one of its sources or headers
// changes is not kept. A library is put in place by renaming, so that nobody sees half of one. Builders of one entry take
// turns with a file lock, which the kernel releases when its owner ends; if locks do not work, or their owner makes no
// progress, work is done twice instead of waiting. If the folder is not writable, or could be written by another user
// (base/files/trusted_path.h), a process builds only for itself. The library that is loaded is a copy in memory of the
// one that was checked (library_image.h).
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "anyaccel/op_builder.h"
#include "base/files/library_image.h"

namespace anyaccel::ops {

struct BuiltLibrary {
  std::string file;    // where it is stored; for a private one, its name in messages
  LibraryImage image;  // to be loaded
  bool built_now = false;
  bool is_private = false;   // built for this process, and not stored
  bool is_outdated = false;  // not stored because a source or header changed while it was compiled
};

class BuildCache {
 public:
  // `root` is cache_directory()/ops; it is empty if there is none, and then every process builds for itself.
  explicit BuildCache(std::filesystem::path root) : root_(std::move(root)) {}

  // Returns the library of a plan if it exists and is intact. Starts no program. Throws UnavailableError if a source
  // cannot be read.
  std::optional<BuiltLibrary> find(const BuildPlan& plan) const;

  // Does the same, or else compiles the library. `rebuild` ignores an entry that turned out not to load. Throws
  // BuildError with the compiler's output, and UnavailableError if there is no compiler.
  BuiltLibrary find_or_build(const BuildPlan& plan, bool rebuild = false) const;

  // This process waits so long for another process's build before it builds for itself.
  std::chrono::milliseconds patience{std::chrono::minutes(5)};

 private:
  std::filesystem::path root_;
};

// Compiles a plan's sources to the shared library `output`, using the existing folder `work` for intermediate files.
// Returns the headers that the compiler read, the linked_files(), and the compiler's own file. Throws BuildError or
// UnavailableError.
std::vector<std::string> compile_library(const BuildPlan& plan, const std::filesystem::path& work,
                                         const std::filesystem::path& output);

// Returns 32 hexadecimal digits that identify the plan without its compiler and headers.
std::string recipe_hash(const BuildPlan& plan);

}  // namespace anyaccel::ops
