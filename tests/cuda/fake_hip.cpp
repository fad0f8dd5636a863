// A libamdhip64 without a GPU behind it: it answers with the numbers that HIP's headers have and writes down what it was
// asked, for tests of the adapters that give HIP the shape of CUDA's driver. FAKE_HIP: version=70051831 (below 60000000 it
// numbers kinds of memory as ROCm 5 did) count=2 init=0.
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "fake_words.h"

namespace {

constexpr const char* words = "FAKE_HIP";
std::string text;
int current = 0;

int version() { return fake_number(words, "version", 70051831); }
int note(const std::string& line) {
  text += line + "\n";
  return 0;
}
std::string number(unsigned long long value) { return std::to_string(value); }

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT const char* fake_hip_text() { return text.c_str(); }

EXPORT int hipInit(unsigned) { return fake_number(words, "init", 0); }
EXPORT int hipDriverGetVersion(int* value) {
  *value = version();
  return 0;
}
EXPORT int hipGetDeviceCount(int* count) {
  *count = fake_number(words, "count", 2);
  return *count ? 0 : 100;
}
EXPORT int hipDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return 0;
}
EXPORT int hipDeviceGetName(char* name, int length, int) {
  std::snprintf(name, static_cast<size_t>(length), "AMD Instinct Fake");
  return 0;
}
EXPORT int hipDeviceTotalMem(size_t* bytes, int) {
  *bytes = size_t{192} << 30;
  return 0;
}
EXPORT int hipDeviceGetUuid(unsigned char* uuid, int device) {
  std::memcpy(uuid, "0123456789abcde", 15);
  uuid[15] = static_cast<unsigned char>('0' + device);
  return 0;
}
EXPORT int hipDeviceGetAttribute(int* value, int attribute, int device) {
  // hipDeviceAttribute_t: each with a value that no other has.
  switch (attribute) {
    case 56: *value = 1024; return 0;        // threads of a block
    case 74: *value = 65536; return 0;       // local memory of a block
    case 87: *value = 64; return 0;          // wave
    case 63: *value = 304; return 0;         // compute units
    case 67: *value = 5 + device; return 0;  // PCI bus
    case 68: *value = 1; return 0;           // PCI device
    case 69: *value = 2; return 0;           // PCI domain
    case 19: *value = 4194304; return 0;     // L2
    case 23: *value = 9; return 0;
    case 61: *value = 4; return 0;
    case 24: *value = 1; return 0;         // managed memory
    case 10002: *value = 65537; return 0;  // local memory of a compute unit
    default: return 1;
  }
}
EXPORT int hipGetDevicePropertiesR0600(char* properties, int device) {
  std::strcpy(properties, "AMD Instinct Fake");
  std::strcpy(properties + 1160, device == 0 ? "gfx942:sramecc+:xnack-" : "gfx1100");
  return 0;
}
EXPORT const char* hipGetErrorName(int error) { return error == 2 ? "hipErrorOutOfMemory" : "hipErrorFake"; }
EXPORT const char* hipGetErrorString(int error) { return error == 2 ? "out of memory" : "words"; }

EXPORT int hipSetDevice(int device) {
  if (device > 1) return 101;
  current = device;
  return note("set device " + std::to_string(device));
}
EXPORT int hipGetDevice(int* device) {
  *device = current;
  return 0;
}
EXPORT int hipMalloc(void** pointer, size_t bytes) {
  *pointer = reinterpret_cast<void*>(uintptr_t{0x10000});
  return note("malloc " + number(bytes));
}
EXPORT int hipFree(void* pointer) { return note("free " + number(reinterpret_cast<uintptr_t>(pointer))); }
EXPORT int hipMallocManaged(void** pointer, size_t bytes, unsigned flags) {
  *pointer = reinterpret_cast<void*>(uintptr_t{0x20000});
  return note("malloc managed " + number(bytes) + " flags " + number(flags));
}
EXPORT int hipMemcpyAsync(void* destination, const void* source, size_t bytes, int kind, void*) {
  return note("copy " + number(reinterpret_cast<uintptr_t>(destination)) + " " +
              number(reinterpret_cast<uintptr_t>(source)) + " " + number(bytes) + " kind " + std::to_string(kind));
}
EXPORT int hipMemsetD32Async(void* destination, int value, size_t count, void*) {
  char hex[16];
  std::snprintf(hex, sizeof(hex), "%08x", static_cast<unsigned>(value));
  return note("fill " + number(reinterpret_cast<uintptr_t>(destination)) + " " + hex + " " + number(count));
}
EXPORT int hipMemset2DAsync(void* destination, size_t pitch, int value, size_t width, size_t height, void*) {
  return note("fill 2d " + number(reinterpret_cast<uintptr_t>(destination)) + " pitch " + number(pitch) + " byte " +
              std::to_string(value) + " " + number(width) + " x " + number(height));
}

struct PointerFacts {
  int type, device;
  void *device_pointer, *host_pointer;
  int is_managed;
  unsigned flags;
};
// 0x1000: host memory, 0x2000: device memory of device 1, 0x3000: managed; else unknown.
EXPORT int hipPointerGetAttributes(PointerFacts* facts, const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  const bool older = version() < 60000000;
  *facts = {};
  facts->device = 1;
  facts->device_pointer = const_cast<void*>(pointer);
  if (address == 0x1000) {
    facts->type = older ? 0 : 1;
    facts->host_pointer = const_cast<void*>(pointer);
  } else if (address == 0x2000) {
    facts->type = older ? 1 : 2;
  } else if (address == 0x3000) {
    facts->type = older ? 1 : 3;
    facts->is_managed = 1;
  } else {
    return older ? 1 : 0;  // type 0: not registered
  }
  return 0;
}
EXPORT int hipPointerGetAttribute(void* data, int attribute, void*) {
  const size_t value = attribute == 12 ? 4096 : 0x2000;
  std::memcpy(data, &value, sizeof(value));
  return attribute == 11 || attribute == 12 ? 0 : 1;
}
EXPORT int hipGraphInstantiate(void** exec, void* graph, void** node, char* log, size_t size) {
  *exec = graph;
  return node || log || size ? 1 : note("instantiate");
}
EXPORT int hipDeviceEnablePeerAccess(int peer, unsigned flags) {
  return note("peer " + std::to_string(peer) + " flags " + number(flags));
}
EXPORT int hipMemcpyPeerAsync(void* destination, int to, const void* source, int from, size_t bytes, void*) {
  return note("copy " + number(reinterpret_cast<uintptr_t>(destination)) + " of device " + std::to_string(to) +
              " from " + number(reinterpret_cast<uintptr_t>(source)) + " of device " + std::to_string(from) + " " +
              number(bytes));
}
EXPORT int hipDeviceCanAccessPeer(int* can, int, int) {
  *can = 1;
  return 0;
}

// There, and not used by these tests.
#define ANYACCEL_FAKE(name) \
  EXPORT int name() { return 999; }
ANYACCEL_FAKE(hipDeviceSynchronize)
ANYACCEL_FAKE(hipDeviceGetStreamPriorityRange)
ANYACCEL_FAKE(hipMemGetInfo)
ANYACCEL_FAKE(hipHostMalloc)
ANYACCEL_FAKE(hipHostFree)
ANYACCEL_FAKE(hipHostRegister)
ANYACCEL_FAKE(hipHostUnregister)
ANYACCEL_FAKE(hipMemsetD8Async)
ANYACCEL_FAKE(hipMemsetD16Async)
ANYACCEL_FAKE(hipStreamCreateWithPriority)
ANYACCEL_FAKE(hipStreamDestroy)
ANYACCEL_FAKE(hipStreamQuery)
ANYACCEL_FAKE(hipStreamSynchronize)
ANYACCEL_FAKE(hipStreamWaitEvent)
ANYACCEL_FAKE(hipEventCreateWithFlags)
ANYACCEL_FAKE(hipEventDestroy)
ANYACCEL_FAKE(hipEventRecord)
ANYACCEL_FAKE(hipEventQuery)
ANYACCEL_FAKE(hipEventSynchronize)
ANYACCEL_FAKE(hipEventElapsedTime)
ANYACCEL_FAKE(hipModuleLoadDataEx)
ANYACCEL_FAKE(hipModuleUnload)
ANYACCEL_FAKE(hipModuleGetFunction)
ANYACCEL_FAKE(hipFuncGetAttribute)
ANYACCEL_FAKE(hipModuleLaunchKernel)
ANYACCEL_FAKE(hipLaunchHostFunc)
ANYACCEL_FAKE(hipStreamBeginCapture)
ANYACCEL_FAKE(hipStreamEndCapture)
ANYACCEL_FAKE(hipStreamIsCapturing)
ANYACCEL_FAKE(hipThreadExchangeStreamCaptureMode)
ANYACCEL_FAKE(hipGraphGetNodes)
ANYACCEL_FAKE(hipGraphLaunch)
ANYACCEL_FAKE(hipGraphExecDestroy)
ANYACCEL_FAKE(hipGraphDestroy)
