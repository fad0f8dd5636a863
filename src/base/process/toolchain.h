// Finds the compilers that build host ops, their flags, and an identity for each.
#pragma once

#include <string>
#include <vector>

namespace anyaccel {

// The command of the C++ compiler and its first arguments ("ccache g++"). `asked`, unless it is empty; else CXX; else
// the first of c++, g++, clang++ in PATH. Throws UnavailableError if `asked` or CXX does not name a program, or if none
// was found.
std::vector<std::string> cxx_command(const std::string& asked = {});

// Identifies the compiler and its version, without starting it: name, file, size, modification time.
std::string compiler_identity(const std::string& program);

// Returns the path of a program's file without links; empty if there is none.
std::string compiler_file(const std::string& program);

// Returns the first line of its --version output; starts it.
std::string compiler_version(const std::string& program);

// Returns the flags for an instruction set of abi/host_code.h; none for an unknown name.
std::vector<std::string> target_flags(const std::string& target);

// Returns the number of threads that builds may use: MAX_JOBS, else the number of processors.
int max_jobs();

}  // namespace anyaccel
