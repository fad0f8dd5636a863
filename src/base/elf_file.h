// What dlopen() takes on trust about a file: that it is as long as its headers say, and that a function is code. Where it is
// not, the process ends with SIGBUS or SIGSEGV instead of an error.
#pragma once

#include <string>

namespace anyaccel {

// Why a regular file that is open for reading cannot be a whole shared library; empty when nothing speaks against it. Looks at
// the header, the program headers, and what lies where they say; not at the code.
std::string damage_of_library(int file);

// Whether an address that dlsym() gave is a function's: in a part of a loaded library that may be executed, and not the name of
// data.
bool is_function(const void* address);

}  // namespace anyaccel
