// Device memory and page-locked host memory, and a registry of all ranges.
//
// Device memory from one granule of the vendor's virtual memory on (2 MiB) is mapped by cuMemCreate and cuMemMap if the
// device supports that: freeing it does not wait for the device, as cuMemFree does. Everything may be called while a
// stream captures.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "accelerators/cuda/device_state.h"

namespace anyaccel::cuda {

inline constexpr size_t memory_alignment = 256;  // bytes

class DeviceMemory {
 public:
  // The device's context exists.
  explicit DeviceMemory(DeviceState& device);
  // Devices that are opened later no longer request access to this one's memory.
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // As aa_driver's mem_alloc and mem_free. Thread-safe, as are the following.
  void* allocate(int32_t kind, size_t size);
  void free(int32_t kind, void* pointer);
  // Bytes of this device's share, if several devices share a GPU.
  void info(int64_t& free, int64_t& total);

  // Extension "host_memory".
  void register_range(void* pointer, size_t size);
  void unregister_range(void* pointer);
  void* allocate_on_node(size_t size, int32_t numa_node);
  // Returns the address at which kernels reach a byte of registered host memory; null if they cannot.
  void* device_address(const void* pointer) const;

  // As aa_driver's mem_query, over all open devices. Memory of other libraries is found too.
  static bool query(const void* pointer, aa_memory_info& info);

 private:
  void* allocate_device(size_t size);
  DevicePointer map_device(size_t size, Result& result, const char*& call);
  void reach_peers();
  void grant(DevicePointer pointer, size_t size, const DeviceState& other);
  [[noreturn]] void exhausted(const char* call, Result result, size_t size);
  void take_share(size_t bytes);
  void refuse_failed_lock(Result result, const char* call, size_t size);

  DeviceState& device_;
  size_t granularity_ = 0;       // bytes; 0: no virtual memory
  std::atomic<size_t> used_{0};  // bytes of device memory of this DeviceMemory
};

// The NUMA node of a PCI device, or -1.
int32_t numa_node_of(const std::string& pci_bus_id);

}  // namespace anyaccel::cuda
