// Compiled anew by each build: see this_build.h.
#include "tests/this_build.h"

namespace anyaccel::test {

Sanitizer sanitizer() {
#if defined(__SANITIZE_ADDRESS__)
  return Sanitizer::address;
#elif defined(__SANITIZE_THREAD__)
  return Sanitizer::thread;
#else
  return Sanitizer::none;
#endif
}

std::string built(const std::string& path) { return ANYACCEL_BINARY_DIR "/" + path; }

}  // namespace anyaccel::test
