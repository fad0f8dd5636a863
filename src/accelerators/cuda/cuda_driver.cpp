// The cuda accelerator: over NVIDIA's driver, or over AMD's HIP runtime on machines that have that.
#include "accelerators/cuda/cuda_driver.h"

#include <cstdlib>
#include <cstring>
#include <string>

#include "accelerators/cuda/device.h"
#include "accelerators/cuda/libraries/collectives.h"
#include "accelerators/cuda/libraries/nvtx.h"
#include "accelerators/cuda/memory.h"

namespace anyaccel::cuda {
namespace {

constexpr int32_t dlpack_cuda = 2, dlpack_rocm = 10;  // kDLCUDA, kDLROCM

uint64_t bit(aa_dtype dtype) { return uint64_t{1} << dtype; }

// Half precision is fast from compute capability 7.0 on; 6.x has it too, slow on most devices, and only if it is asked
// for.
bool computes_f16(const DeviceFacts& facts) {
  if (facts.major >= 7) return true;
  const char* asked = std::getenv("DS_ALLOW_DEPRECATED_FP16");
  return facts.major == 6 && asked && std::strcmp(asked, "1") == 0;
}

void describe_dtypes(const DeviceFacts& facts, Runtime runtime, aa_device_props& props) {
  for (int dtype = AA_DTYPE_BOOL; dtype <= AA_DTYPE_F8_E5M2; ++dtype) {
    props.dtypes_storable |= bit(static_cast<aa_dtype>(dtype));
  }
  props.dtypes_computable = bit(AA_DTYPE_BOOL) | bit(AA_DTYPE_U8) | bit(AA_DTYPE_I8) | bit(AA_DTYPE_I16) |
                            bit(AA_DTYPE_I32) | bit(AA_DTYPE_I64) | bit(AA_DTYPE_F32) | bit(AA_DTYPE_F64);
  if (runtime == Runtime::hip) {
    props.dtypes_computable |= bit(AA_DTYPE_F16) | bit(AA_DTYPE_BF16);
    // Matrix units: MI100 (gfx908) and later of that line, RDNA 3 and later.
    const std::string& arch = facts.arch;
    const bool matrix = arch == "gfx908" || arch.starts_with("gfx90a") || arch.starts_with("gfx94") ||
                        arch.starts_with("gfx95") || arch.starts_with("gfx11") || arch.starts_with("gfx12");
    if (matrix) props.dtypes_matrix = bit(AA_DTYPE_F16) | bit(AA_DTYPE_BF16);
    return;
  }
  if (computes_f16(facts)) props.dtypes_computable |= bit(AA_DTYPE_F16);
  if (facts.major >= 7) props.dtypes_matrix |= bit(AA_DTYPE_F16);
  if (facts.major >= 8) {
    props.dtypes_computable |= bit(AA_DTYPE_BF16);
    props.dtypes_matrix |= bit(AA_DTYPE_BF16);
  }
  if (facts.major > 8 || (facts.major == 8 && facts.minor >= 9)) {
    props.dtypes_computable |= bit(AA_DTYPE_F8_E4M3) | bit(AA_DTYPE_F8_E5M2);
    props.dtypes_matrix |= bit(AA_DTYPE_F8_E4M3) | bit(AA_DTYPE_F8_E5M2);
  }
}

class Driver final : public abi::Driver {
 public:
  static constexpr abi::DriverFacts facts{.name = "cuda",
                                          .vendor = "NVIDIA (and AMD through ROCm)",
                                          .version = "1.0",
                                          .communication_backend = "nccl",
                                          .visible_devices_env = "CUDA_VISIBLE_DEVICES",
                                          .export_env_prefixes = "NCCL"};

  static void probe(aa_probe& probe) {
    const Discovery found = discover();
    probe.state = found.state;
    probe.device_count = found.state == AA_PROBE_USABLE ? found.device_count : 0;
    abi::copy_text(probe.reason, found.reason);
  }

  static std::unique_ptr<abi::Driver> initialize(const aa_initialize_params&) {
    return std::make_unique<Driver>(start_platform());
  }

  explicit Driver(const Platform& platform) : platform_(platform) {}

  uint32_t extensions() const override {
    uint32_t offered = abi::host_memory_extension | abi::ops_extension | abi::compiler_extension |
                       abi::ceilings_extension | abi::collectives_extension | abi::peer_extension;
    if (platform_.api->runtime == Runtime::cuda) offered |= abi::profiler_extension | abi::files_extension;
    if (platform_.api->has_graphs) offered |= abi::graph_extension;
    return offered;
  }

  int32_t device_count() override { return static_cast<int32_t>(platform_.devices.size()); }

  void device_props(int32_t index, aa_device_props& props) override {
    check_index(index);
    const DeviceFacts& facts = platform_.devices[static_cast<size_t>(index)];
    const bool hip = platform_.api->runtime == Runtime::hip;
    abi::copy_text(props.name, facts.name);
    abi::copy_text(props.vendor, hip ? "AMD" : "NVIDIA");
    abi::copy_text(props.arch, facts.arch);
    abi::copy_text(props.pci_bus_id, facts.pci_bus_id);
    static_assert(sizeof(props.uuid) == sizeof(facts.uuid.bytes));
    std::memcpy(props.uuid, facts.uuid.bytes, sizeof(props.uuid));
    props.numa_node = numa_node_of(facts.pci_bus_id);
    props.caps = AA_CAP_EVENT_TIMING | AA_CAP_PINNED_HOST | AA_CAP_CONCURRENT_STREAMS | AA_CAP_KERNELS;
    if (facts.managed_memory) props.caps |= AA_CAP_MANAGED_MEMORY;
    if (platform_.api->has_host_call) props.caps |= AA_CAP_HOST_CALL;
    if (!hip && facts.major >= 8) props.caps |= AA_CAP_TRITON;
    props.total_memory = static_cast<int64_t>(facts.total_memory);
    props.alignment = memory_alignment;
    props.queue_depth = 1000;  // the vendor accepts about 1024 launches before its call waits
    props.compute_units = facts.multiprocessors;
    describe_dtypes(facts, platform_.api->runtime, props);
    props.dlpack_device_type = hip ? dlpack_rocm : dlpack_cuda;
  }

  std::unique_ptr<abi::Device> device_open(const aa_device_open_params& params) override {
    const int32_t index = params.index;
    check_index(index);
    if (is_forked_child()) start_platform();  // throws, and says why
    return std::make_unique<Device>(platform_, index);
  }

  bool mem_query(const void* pointer, aa_memory_info& info) override {
    return pointer && !is_forked_child() && DeviceMemory::query(pointer, info);
  }

  int32_t find_op(const char* name) override { return OpLibrary::find(name); }

  void range_push(const char* message, const char* domain, const char* category) override {
    ranges_.push(message, domain, category);
  }
  void range_pop(const char* domain) override { ranges_.pop(domain); }
  void mark(const char* message, const char* domain) override { ranges_.mark(message, domain); }

  void collectives_library(const char*& name, const char*& version) override {
    name = collectives_here().name();
    version = collectives_here().version().c_str();
  }
  size_t collectives_id_size() override { return collectives_here().id_size(); }
  void collectives_id_create(void* id) override { collectives_here().id_create(id); }
  void collectives_group_begin() override { collectives_here().group_begin(); }
  void collectives_group_end() override { collectives_here().group_end(); }

 private:
  const collectives::Library& collectives_here() const { return collective_library(platform_.api->runtime); }

  void check_index(int32_t index) {
    if (index >= 0 && index < device_count()) return;
    throw abi::Failure(AA_OUT_OF_RANGE, "cuda:" + std::to_string(index) + " was asked for; there are " +
                                            std::to_string(device_count()) + " devices");
  }

  const Platform& platform_;
  NvtxRanges ranges_;
};

}  // namespace
}  // namespace anyaccel::cuda

extern "C" const aa_driver* anyaccel_cuda_driver_query(uint32_t host_abi_min, uint32_t host_abi_max,
                                                       const aa_host* host) {
  return anyaccel::abi::driver_query<anyaccel::cuda::Driver>(host_abi_min, host_abi_max, host);
}
