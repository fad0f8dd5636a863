// What builds of the same tests differ in, asked where a test runs: the address sanitizer's build links tests that the release
// build has compiled, so that a macro of the compiler would say what that one was.
#pragma once

#include <string>

namespace anyaccel::test {

enum class Sanitizer { none, address, thread };
Sanitizer sanitizer();

// Returns the path of a file in the build folder, tests/plugins/minimal.so for example.
std::string built(const std::string& path);

}  // namespace anyaccel::test
