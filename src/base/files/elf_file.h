// Checks the properties of a file that dlopen() assumes: that it is as long as its headers say, and that a function is
// code. Otherwise the process would end with SIGBUS or SIGSEGV instead of an error.
#pragma once

#include <string>

namespace anyaccel {

// Returns why a regular file that is open for reading cannot be a complete shared library; empty if no problem is
// found. Checks the header, the program headers, and the parts that they refer to; not the code.
std::string damage_of_library(int file);

// Returns whether an address from dlsym() is a function's: in an executable part of a loaded library, and not a data
// symbol.
bool is_function(const void* address);

}  // namespace anyaccel
