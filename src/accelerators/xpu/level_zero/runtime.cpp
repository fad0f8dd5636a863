// Level Zero as a runtime of xpu: probe, and the driver class.
//
// The driver decides which devices there are and in which order: it reads ZE_AFFINITY_MASK, ZE_FLAT_DEVICE_HIERARCHY
// and ZE_ENABLE_PCI_ID_DEVICE_ORDER itself.
#include "accelerators/xpu/runtime.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "accelerators/xpu/level_zero/device.h"

namespace anyaccel::xpu {
namespace level_zero {
namespace {

constexpr int32_t dlpack_oneapi = 14;  // kDLOneAPI

uint64_t bit(aa_dtype dtype) { return uint64_t{1} << dtype; }

int32_t numa_node_of(const std::string& pci_address) {
  std::ifstream stream("/sys/bus/pci/devices/" + pci_address + "/numa_node");
  int32_t node = -1;
  return !pci_address.empty() && stream >> node ? node : -1;
}

class Driver final : public abi::Driver {
 public:
  explicit Driver(Platform platform) : context_(std::make_shared<const Context>(std::move(platform))) {}

  uint32_t extensions() const override { return abi::graph_extension | abi::compiler_extension | abi::peer_extension; }

  int32_t device_count() override { return static_cast<int32_t>(platform().devices.size()); }

  void device_props(int32_t index, aa_device_props& props) override {
    check_index(index);
    const DeviceFacts facts = read_facts(platform(), platform().devices[static_cast<size_t>(index)]);
    const DeviceProperties& properties = facts.properties;
    char arch[32];
    std::snprintf(arch, sizeof(arch), "%04x:%04x", properties.vendor_id, properties.device_id);
    abi::copy_text(props.name, properties.name);
    abi::copy_text(props.vendor, properties.vendor_id == 0x8086 ? "Intel" : "");
    abi::copy_text(props.arch, arch);
    abi::copy_text(props.pci_bus_id, facts.pci_address);
    props.numa_node = numa_node_of(facts.pci_address);
    std::memcpy(props.uuid, properties.uuid, sizeof(props.uuid));
    props.caps = AA_CAP_EVENT_TIMING | AA_CAP_CONCURRENT_STREAMS | AA_CAP_HOST_CALL | AA_CAP_KERNELS;
    if (facts.access.host & memory_access_rw) props.caps |= AA_CAP_PINNED_HOST;
    if (facts.access.shared_single_device & memory_access_rw) props.caps |= AA_CAP_MANAGED_MEMORY;
    props.total_memory = static_cast<int64_t>(facts.total_memory);
    props.max_allocation = static_cast<int64_t>(std::min(properties.max_allocation, facts.total_memory));
    props.alignment = memory_alignment;
    props.queue_depth = 1024;  // immediate command lists grow
    props.compute_units =
        static_cast<int32_t>(properties.slices * properties.subslices_per_slice * properties.eus_per_subslice);
    for (int dtype = AA_DTYPE_BOOL; dtype <= AA_DTYPE_F8_E5M2; ++dtype) {
      props.dtypes_storable |= bit(static_cast<aa_dtype>(dtype));
    }
    // Floats of 16 bits are stored in half the memory and computed in 32 bits on every device.
    props.dtypes_computable =
        bit(AA_DTYPE_I32) | bit(AA_DTYPE_I64) | bit(AA_DTYPE_F32) | bit(AA_DTYPE_F16) | bit(AA_DTYPE_BF16);
    if (facts.module.flags & module_fp64) props.dtypes_computable |= bit(AA_DTYPE_F64);
    props.dlpack_device_type = dlpack_oneapi;
  }

  std::unique_ptr<abi::Device> device_open(const aa_device_open_params& params) override {
    const int32_t index = params.index;
    check_index(index);
    if (is_forked_child()) {
      throw abi::Failure(AA_FAILED_PRECONDITION, "Level Zero was opened before fork() and cannot be used in the child");
    }
    auto state = std::make_shared<DeviceState>(context_, index);
    // Nothing could be waited for on a device without events, so this is checked before any work.
    state->events().give_back(state->events().acquire(false), false);
    return std::make_unique<Device>(std::move(state));
  }

  bool mem_query(const void* pointer, aa_memory_info& info) override {
    if (!pointer || is_forked_child()) return false;
    const Api& api = context_->api();
    AllocationProperties properties{};
    properties.type = type_memory_properties;
    DeviceHandle device = nullptr;
    if (api.zeMemGetAllocProperties(context_->handle(), pointer, &properties, &device) != success) return false;
    switch (properties.memory_type) {
      case memory_device: info.kind = AA_MEMORY_DEVICE; break;
      case memory_host: info.kind = AA_MEMORY_PINNED; break;
      case memory_shared: info.kind = AA_MEMORY_MANAGED; break;
      default: return false;
    }
    check(platform(), api.zeMemGetAddressRange(context_->handle(), pointer, &info.base, &info.size),
          "zeMemGetAddressRange");
    info.device_address = const_cast<void*>(pointer);
    info.device_index = -1;
    for (size_t i = 0; i < platform().devices.size(); ++i) {
      if (platform().devices[i] == device) info.device_index = static_cast<int32_t>(i);
    }
    return true;
  }

 private:
  const Platform& platform() const noexcept { return context_->platform(); }

  void check_index(int32_t index) {
    if (index >= 0 && index < device_count()) return;
    throw abi::Failure(AA_OUT_OF_RANGE, "xpu:" + std::to_string(index) + " was asked for; there are " +
                                            std::to_string(device_count()) + " devices");
  }

  std::shared_ptr<const Context> context_;
};

}  // namespace
}  // namespace level_zero

const Runtime level_zero_runtime{"level_zero",
                                 [](aa_probe& probe, bool) {
                                   const level_zero::Discovery found = level_zero::discover();
                                   probe.state = found.state;
                                   probe.device_count = static_cast<int32_t>(found.platform.devices.size());
                                   abi::copy_text(probe.reason, found.reason);
                                 },
                                 [](const aa_initialize_params&) -> std::unique_ptr<abi::Driver> {
                                   level_zero::Discovery found = level_zero::discover();
                                   if (found.state != AA_PROBE_USABLE) throw abi::Failure(AA_UNAVAILABLE, found.reason);
                                   level_zero::claim_process();
                                   return std::make_unique<level_zero::Driver>(std::move(found.platform));
                                 }};

}  // namespace anyaccel::xpu
