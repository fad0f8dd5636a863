// Applies CUDA_VISIBLE_DEVICES to the list of GPUs by the driver's rules: NVML lists all GPUs, and querying the driver
// would start it.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace anyaccel::cuda {

// A slice of a GPU.
struct MigDevice {
  std::string uuid;               // "MIG-2a5e..."
  unsigned gpu_instance = 0;      // with compute_instance and the GPU's UUID, the older way to name one:
  unsigned compute_instance = 0;  // "MIG-GPU-8932f937-.../1/0"
};

struct PhysicalGpu {
  std::string uuid;          // "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
  bool mig_enabled = false;  // then only its slices can be used
  std::vector<MigDevice> slices;
};

struct VisibleDevices {
  int count = 0;
  // Says why there are fewer devices than entries, or none at all, and quotes the entry. Empty if every entry was used.
  std::string remark;
};

// `value`: of CUDA_VISIBLE_DEVICES; null when it is not set. The rules:
// - a list of ordinals, or one of UUIDs or unambiguous beginnings of UUIDs ("GPU-...", "MIG-..."); the first entry tells
//   which; a number ends at the first character that is no digit;
// - reading stops at the first entry that names no device; those before it count;
// - a device that is named twice makes the whole list invalid: no devices;
// - an empty value hides all;
// - where a slice is visible, the first one is the only device.
VisibleDevices visible_devices(const char* value, std::span<const PhysicalGpu> gpus);

}  // namespace anyaccel::cuda
