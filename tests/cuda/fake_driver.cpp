// A libcuda.so.1 that can be found, queried for functions, started and asked for its devices, and does nothing else.
// Built three times: FAKE_FORMS is 2 for a driver of CUDA 12 or newer, 1 for one of 11.3 (cuGetProcAddress in its first
// form), 0 for an older one, which has no cuGetProcAddress. FAKE_CUDA: version=13000 count=2 init=0 stub hide=cuName
// crash hang.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

#include "fake_words.h"

namespace {

constexpr const char* words = "FAKE_CUDA";
std::string requests;  // "cuInit 2000 1\n", ...
pid_t started_by = 0;

int number(const char* name, int otherwise) { return fake_number(words, name, otherwise); }

int init(unsigned) {
  if (fake_has(words, "crash")) std::abort();
  if (fake_has(words, "hang")) pause();
  if (started_by != 0 && started_by != getpid()) return 3;  // it does not survive fork()
  const int result = number("init", 0);
  if (result == 0) started_by = getpid();
  return result;
}

int driver_version(int* version) {
  if (fake_has(words, "stub")) return 34;
  *version = number("version", 13000);
  return 0;
}

int device_count(int* count) {
  *count = number("count", 2);
  return started_by ? 0 : 3;
}

int device_get(int* device, int ordinal) {
  *device = ordinal;
  return started_by ? 0 : 3;
}

int device_name(char* name, int length, int device) {
  std::snprintf(name, static_cast<size_t>(length), device == 1 ? "Fake GPU %d MIG 1g.10gb" : "Fake GPU %d", device);
  return 0;
}

int device_uuid(unsigned char* uuid, int device) {
  for (int i = 0; i < 16; ++i) uuid[i] = static_cast<unsigned char>(i * 16 + device);
  return 0;
}

int total_memory(size_t* bytes, int) {
  *bytes = size_t{80} << 30;
  return 0;
}

int attribute(int* value, int which, int device) {
  switch (which) {
    case 1: *value = 1024; return 0;
    case 8: *value = 49152; return 0;
    case 10: *value = 32; return 0;
    case 16: *value = 132; return 0;
    case 33: *value = 0x18 + device; return 0;
    case 34: *value = 0; return 0;
    case 38: *value = 50 << 20; return 0;
    case 50: *value = 0; return 0;
    case 75: *value = 9; return 0;
    case 76: *value = 0; return 0;
    case 81: *value = 233472; return 0;
    case 83: *value = 1; return 0;
    case 97: *value = 232448; return 0;
    case 102: *value = 1; return 0;
    default: return 1;
  }
}

int error_name(int result, const char** text) {
  static char name[32];
  if (result == 803) {
    *text = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH";
    return 0;
  }
  if (result == 700) {
    *text = "CUDA_ERROR_ILLEGAL_ADDRESS";
    return 0;
  }
  std::snprintf(name, sizeof(name), "CUDA_ERROR_%d", result);
  *text = name;
  return result < 1000 ? 0 : 1;
}

int error_string(int result, const char** text) {
  *text = result == 700 ? "an illegal memory access was encountered" : "words";
  return result < 1000 ? 0 : 1;
}

int anything_else() { return 999; }

void* find(const char* symbol, int version, uint64_t flags) {
  requests += std::string(symbol) + " " + std::to_string(version) + " " + std::to_string(flags) + "\n";
  if (fake_word(words, "hide", "\n") == symbol) return nullptr;
  const auto is = [symbol](const char* name) { return std::strcmp(symbol, name) == 0; };
  if (is("cuInit")) return reinterpret_cast<void*>(init);
  if (is("cuDriverGetVersion")) return reinterpret_cast<void*>(driver_version);
  if (is("cuDeviceGetCount")) return reinterpret_cast<void*>(device_count);
  if (is("cuDeviceGet")) return reinterpret_cast<void*>(device_get);
  if (is("cuDeviceGetName")) return reinterpret_cast<void*>(device_name);
  if (is("cuDeviceGetUuid")) return reinterpret_cast<void*>(device_uuid);
  if (is("cuDeviceTotalMem")) return reinterpret_cast<void*>(total_memory);
  if (is("cuDeviceGetAttribute")) return reinterpret_cast<void*>(attribute);
  if (is("cuGetErrorName")) return reinterpret_cast<void*>(error_name);
  if (is("cuGetErrorString")) return reinterpret_cast<void*>(error_string);
  return reinterpret_cast<void*>(anything_else);
}

[[maybe_unused]] int proc_address(const char* symbol, void** function, int version, uint64_t flags) {
  *function = find(symbol, version, flags);
  return *function ? 0 : 500;
}

[[maybe_unused]] int proc_address_v2(const char* symbol, void** function, int version, uint64_t flags, int* status) {
  const int result = proc_address(symbol, function, version, flags);
  if (status) *status = result ? 1 : 0;
  return 0;
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT const char* fake_cuda_requests() { return requests.c_str(); }
EXPORT int cuDriverGetVersion(int* version) { return driver_version(version); }

#if FAKE_FORMS >= 1
EXPORT int cuGetProcAddress(const char* symbol, void** function, int version, uint64_t flags) {
  return proc_address(symbol, function, version, flags);
}
#endif
#if FAKE_FORMS >= 2
EXPORT int cuGetProcAddress_v2(const char* symbol, void** function, int version, uint64_t flags, int* status) {
  return proc_address_v2(symbol, function, version, flags, status);
}
#endif
