// Declares the languages other than C and C++ whose sources may be part of a host op, such as CUDA.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "anyaccel/op_builder.h"

namespace anyaccel::ops {

// A compiler of another language whose objects go into the same library, chosen by the suffix of a source. The list is
// in src/accelerators/builtins.cpp.
struct SourceLanguage {
  const char* suffix;  // ".cu"
  // Returns the compiler's file. Throws UnavailableError that says what was searched for, and where.
  std::string (*compiler)();
  // Returns the flags that the environment requests; they become part of BuildPlan::nvcc_args.
  std::vector<std::string> (*flags)();
  // Returns the command that compiles one source to one object, and writes a make rule with the headers that it read to
  // `depfile`.
  std::vector<std::string> (*command)(const BuildPlan& plan, const std::string& source, const std::string& object,
                                      const std::string& depfile);
  // Returns the flags for the libraries that the op must be linked with.
  std::vector<std::string> (*link_flags)();
};
std::span<const SourceLanguage> source_languages();
// Returns the language of a source; null for C and C++.
const SourceLanguage* language_of(const std::string& source);

}  // namespace anyaccel::ops
