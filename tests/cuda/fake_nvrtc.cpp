// An NVRTC that knows its version and its architectures, FAKE_ARCHITECTURES, and compiles nothing: for tests of which one is
// chosen.
#include <cstddef>

namespace {
constexpr int architectures[] = {FAKE_ARCHITECTURES};
constexpr int invalid_program = 4;
}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int nvrtcVersion(int* major, int* minor) {
  *major = FAKE_MAJOR;
  *minor = 4;
  return 0;
}
EXPORT int nvrtcGetNumSupportedArchs(int* count) {
  *count = static_cast<int>(sizeof(architectures) / sizeof(architectures[0]));
  return 0;
}
EXPORT int nvrtcGetSupportedArchs(int* list) {
  for (const int architecture : architectures) *list++ = architecture;
  return 0;
}
EXPORT const char* nvrtcGetErrorString(int) { return "NVRTC_ERROR_INVALID_PROGRAM"; }

#define ANYACCEL_FAKE(name) \
  EXPORT int name() { return invalid_program; }
ANYACCEL_FAKE(nvrtcCreateProgram)
ANYACCEL_FAKE(nvrtcDestroyProgram)
ANYACCEL_FAKE(nvrtcCompileProgram)
ANYACCEL_FAKE(nvrtcGetProgramLogSize)
ANYACCEL_FAKE(nvrtcGetProgramLog)
ANYACCEL_FAKE(nvrtcGetCUBINSize)
ANYACCEL_FAKE(nvrtcGetCUBIN)
ANYACCEL_FAKE(nvrtcGetPTXSize)
ANYACCEL_FAKE(nvrtcGetPTX)
