// A libnvidia-ml.so.1 for tests of what the simulator's has not: errors at the start, MIG devices. FAKE_NVML: count=2 init=0
// version=13000 mig (the second GPU is cut in two).
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "fake_words.h"

namespace {

constexpr const char* words = "FAKE_NVML";
constexpr int not_found = 6;

// Handles: GPU i is 100 * (i + 1); its slice k 1 + k more.
using Device = uintptr_t;
unsigned gpu_of(Device device) { return static_cast<unsigned>(device / 100 - 1); }
unsigned slice_of(Device device) { return static_cast<unsigned>(device % 100); }
bool has_mig(Device device) { return fake_has(words, "mig") && gpu_of(device) == 1; }

// The UUIDs that the fake driver gives: byte i is 16 i + device.
std::string uuid_of(Device device) {
  const unsigned low = slice_of(device) ? 7 + slice_of(device) : gpu_of(device);
  std::string text = slice_of(device) ? "MIG-" : "GPU-";
  for (unsigned i = 0; i < 16; ++i) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", (i * 16 + low) & 0xff);
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += digits;
  }
  return text;
}

unsigned count() { return static_cast<unsigned>(fake_number(words, "count", 2)); }

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int nvmlInit_v2() { return fake_number(words, "init", 0); }
EXPORT const char* nvmlErrorString(int result) {
  return result == 18 ? "Driver/library version mismatch" : "NVML words";
}
EXPORT int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  std::snprintf(text, size, "580.65.06");
  return 0;
}
EXPORT int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = fake_number(words, "version", 13000);
  return 0;
}
EXPORT int nvmlDeviceGetCount_v2(unsigned* number) {
  *number = count();
  return 0;
}
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* device) {
  if (index >= count()) return not_found;
  *device = 100 * (index + 1);
  return 0;
}
EXPORT int nvmlDeviceGetUUID(Device device, char* text, unsigned size) {
  std::snprintf(text, size, "%s", uuid_of(device).c_str());
  return 0;
}
EXPORT int nvmlDeviceGetHandleByUUID(const char* uuid, Device* device) {
  for (unsigned gpu = 0; gpu < count(); ++gpu) {
    for (unsigned slice = 0; slice < 3; ++slice) {
      const Device candidate = 100 * (gpu + 1) + slice;
      if (uuid_of(candidate) == uuid) {
        *device = candidate;
        return 0;
      }
    }
  }
  return not_found;
}
struct Memory {
  unsigned long long total, free, used;
};
EXPORT int nvmlDeviceGetMemoryInfo(Device device, Memory* memory) {
  memory->total = 80ull << 30;
  memory->used = device << 20;
  memory->free = memory->total - memory->used;
  return 0;
}
EXPORT int nvmlDeviceGetMigMode(Device device, unsigned* current, unsigned* pending) {
  *current = *pending = has_mig(device) ? 1 : 0;
  return 0;
}
EXPORT int nvmlDeviceGetMaxMigDeviceCount(Device device, unsigned* number) {
  *number = has_mig(device) ? 7 : 0;
  return 0;
}
EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(Device device, unsigned index, Device* slice) {
  if (!has_mig(device) || (index != 0 && index != 3)) return not_found;  // places in between are empty
  *slice = device + (index == 0 ? 1 : 2);
  return 0;
}
EXPORT int nvmlDeviceGetGpuInstanceId(Device slice, unsigned* id) {
  *id = slice_of(slice);
  return 0;
}
EXPORT int nvmlDeviceGetComputeInstanceId(Device, unsigned* id) {
  *id = 0;
  return 0;
}
