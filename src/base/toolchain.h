// The compilers that build host ops: which one, with which flags, and what tells it from another.
#pragma once

#include <string>
#include <vector>

namespace anyaccel {

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

}  // namespace anyaccel
