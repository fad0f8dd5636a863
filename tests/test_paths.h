// Finds the tests' data: in this source tree, or below ANYACCEL_TEST_SOURCE_DIR for test programs that were copied to
// another machine.
#pragma once

#include <cstdlib>
#include <string>

namespace anyaccel::testing {

inline std::string source_directory() {
  const char* carried = std::getenv("ANYACCEL_TEST_SOURCE_DIR");
  return carried ? carried : ANYACCEL_SOURCE_DIR;
}
inline std::string test_data() { return source_directory() + "/tests/data"; }

}  // namespace anyaccel::testing
