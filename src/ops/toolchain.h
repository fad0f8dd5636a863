// The compilers that build host ops: which one, with which flags, and what tells it from another.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "anyaccel/op_builder.h"

namespace anyaccel::ops {

// A compiler of another language whose objects go into the same library, chosen by the suffix of a source. The list is in
// src/accelerators/builtins.cpp.
struct SourceLanguage {
  const char* suffix;  // ".cu"
  // The compiler's file. Throws UnavailableError that says what was looked for, and where.
  std::string (*compiler)();
  // Flags that the environment asks for; they become part of BuildPlan::nvcc_args.
  std::vector<std::string> (*flags)();
  // Turns one source into one object, and writes a make rule of the headers it reached to `depfile`.
  std::vector<std::string> (*command)(const BuildPlan& plan, const std::string& source, const std::string& object,
                                      const std::string& depfile);
  // What the library must be linked with.
  std::vector<std::string> (*link_flags)();
};
std::span<const SourceLanguage> source_languages();
// The language of a source; null for C and C++.
const SourceLanguage* language_of(const std::string& source);

// CXX as a command and its first arguments ("ccache g++"), else the first of c++, g++, clang++ in PATH. Throws
// UnavailableError when CXX names nothing, or nothing was found.
std::vector<std::string> cxx_command();

// What distinguishes the compiler from another one or another version, without starting it: file, size, time of change.
std::string compiler_identity(const std::string& program);

// The first line that it says of itself; starts it.
std::string compiler_version(const std::string& program);

// Flags that make code for an instruction set of abi/host_code.h; none for a name that is not known.
std::vector<std::string> target_flags(const std::string& target);

// Threads that builds may use: MAX_JOBS, else the processors.
int max_jobs();

}  // namespace anyaccel::ops
