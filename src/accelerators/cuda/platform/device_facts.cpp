// Implements device_facts.h: the properties of devices that a started driver reports.
#include "accelerators/cuda/platform/device_facts.h"

#include <cstdio>

#include "accelerators/cuda/libraries/loading.h"

namespace anyaccel::cuda {
namespace {

class Reader {
 public:
  Reader(const Api& api, int ordinal) : api_(api), ordinal_(ordinal) {}

  DeviceFacts read() {
    DeviceFacts facts;
    check(api_.device_get(&facts.ordinal, ordinal_), "the device itself");
    device_ = facts.ordinal;
    char name[256] = {};
    check(api_.device_name(name, sizeof(name), device_), "its name");
    facts.name = name;
    // "NVIDIA A100-SXM4-40GB MIG 1g.5gb".
    facts.is_mig = facts.name.find(" MIG ") != std::string::npos;
    if (api_.device_uuid(&facts.uuid, device_) != success) facts.uuid = {};
    check(api_.device_total_memory(&facts.total_memory, device_), "its memory");
    facts.pci_bus_id = pci_bus_id();
    facts.major = needed(attribute_compute_capability_major, "its compute capability");
    facts.minor = needed(attribute_compute_capability_minor, "its compute capability");
    facts.arch = api_.runtime == Runtime::hip ? hip_arch(device_)
                                              : "sm_" + std::to_string(facts.major) + std::to_string(facts.minor);
    facts.multiprocessors = needed(attribute_multiprocessor_count, "its multiprocessors");
    facts.warp_size = needed(attribute_warp_size, "its warp size");
    facts.max_threads_per_block = needed(attribute_max_threads_per_block, "its largest block");
    facts.shared_per_block = needed(attribute_max_shared_memory_per_block, "its shared memory");
    facts.shared_per_block_optin = optional(attribute_max_shared_memory_per_block_optin, facts.shared_per_block);
    facts.shared_per_multiprocessor =
        optional(attribute_max_shared_memory_per_multiprocessor, facts.shared_per_block_optin);
    facts.l2_bytes = optional(attribute_l2_cache_size, 0);
    facts.managed_memory = optional(attribute_managed_memory, 0) != 0;
    facts.virtual_memory = api_.has_virtual_memory && optional(attribute_virtual_memory_management, 0) != 0;
    facts.virtual_memory_rdma = facts.virtual_memory && optional(attribute_virtual_memory_direct_rdma, 0) != 0;
    return facts;
  }

 private:
  void check(Result result, const char* what) const {
    if (result == success) return;
    throw abi::Failure(AA_UNAVAILABLE,
                       "device " + std::to_string(ordinal_) + " does not tell " + what + ": " +
                           result_text(api_, result) + "; see nvidia-smi (rocm-smi) and dmesg",
                       result);
  }
  int needed(DeviceAttribute attribute, const char* what) const {
    int value = 0;
    check(api_.device_attribute(&value, attribute, device_), what);
    return value;
  }
  int optional(DeviceAttribute attribute, int otherwise) const {
    int value = 0;
    return api_.device_attribute(&value, attribute, device_) == success ? value : otherwise;
  }
  std::string pci_bus_id() const {
    int domain = 0;
    int bus = 0;
    int device = 0;
    if (api_.device_attribute(&domain, attribute_pci_domain_id, device_) != success ||
        api_.device_attribute(&bus, attribute_pci_bus_id, device_) != success ||
        api_.device_attribute(&device, attribute_pci_device_id, device_) != success) {
      return {};
    }
    char text[48];
    std::snprintf(text, sizeof(text), "%04x:%02x:%02x.0", static_cast<unsigned>(domain), static_cast<unsigned>(bus),
                  static_cast<unsigned>(device));
    return text;
  }

  const Api& api_;
  const int ordinal_;
  DeviceOrdinal device_ = 0;
};

}  // namespace

std::vector<DeviceFacts> read_device_facts(const Api& api, int count) {
  std::vector<DeviceFacts> devices;
  devices.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) devices.push_back(Reader(api, i).read());
  return devices;
}

std::vector<DeviceFacts> share_devices(const std::vector<DeviceFacts>& physical, int shown) {
  std::vector<DeviceFacts> devices;
  const auto wanted = static_cast<size_t>(shown);
  for (size_t i = 0; i < wanted; ++i) {
    const size_t owner = i % physical.size();
    DeviceFacts facts = physical[owner];
    facts.shares = static_cast<int>((wanted - owner + physical.size() - 1) / physical.size());
    facts.total_memory /= static_cast<size_t>(facts.shares);
    devices.push_back(std::move(facts));
  }
  return devices;
}

}  // namespace anyaccel::cuda
