// xpu over OpenCL: the driver class, its devices, and the probe.
//
// Device memory is shared virtual memory (SVM), the one kind that has plain pointers. The host could often access it,
// but AA_CAP_HOST_COHERENT is clear: coarse-grained memory is not coherent without map calls, and a caller that copies
// is correct on every device.
//
// The probe opens a vendor's library (no thread is started by that; measured for PoCL) and asks GPUs for their devices.
// It does not query PoCL, which would start PoCL's threads: it promises one device, and initialize() fails with
// AA_UNAVAILABLE when there is none.
#include "accelerators/xpu/runtime.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <string>

#include "accelerators/xpu/opencl/kernels.h"
#include "accelerators/xpu/opencl/platform.h"
#include "accelerators/xpu/opencl/stream.h"

namespace anyaccel::xpu::opencl {
namespace {

// The largest type of OpenCL C, long16; clSVMAlloc need not align to more.
constexpr int32_t alignment = 128;

// All memory of the driver, for mem_query.
class Allocations {
 public:
  void add(void* base, const aa_memory_info& info) {
    std::lock_guard lock(mutex_);
    infos_[reinterpret_cast<uintptr_t>(base)] = info;
  }
  // Returns the size; 0 if there is no allocation of that kind and device.
  size_t remove(void* base, int32_t kind, int32_t device) {
    std::lock_guard lock(mutex_);
    const auto found = infos_.find(reinterpret_cast<uintptr_t>(base));
    if (found == infos_.end() || found->second.kind != kind || found->second.device_index != device) return 0;
    const size_t size = found->second.size;
    infos_.erase(found);
    return size;
  }
  bool find(const void* pointer, aa_memory_info& info) {
    std::lock_guard lock(mutex_);
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    auto next = infos_.upper_bound(address);
    if (next == infos_.begin()) return false;
    --next;
    if (address - next->first >= next->second.size) return false;
    info.kind = next->second.kind;
    info.device_index = next->second.device_index;
    info.base = next->second.base;
    info.size = next->second.size;
    info.device_address = const_cast<void*>(pointer);
    return true;
  }

 private:
  std::mutex mutex_;
  std::map<uintptr_t, aa_memory_info> infos_;
};

class Device final : public abi::Device {
 public:
  Device(const DeviceFacts& facts, int32_t index, Allocations& allocations)
      : facts_(facts), index_(index), allocations_(allocations) {
    cl_int error = CL_SUCCESS;
    context_ = OwnedContext(facts.api, facts.api.CreateContext(nullptr, 1, &facts.id, nullptr, nullptr, &error));
    check(error, "clCreateContext for " + facts.name);
  }

  void synchronize() override {
    std::vector<std::shared_ptr<Queue>> queues;
    {
      std::lock_guard lock(mutex_);
      std::erase_if(queues_, [](const auto& queue) { return queue.expired(); });
      for (const auto& weak : queues_) {
        if (auto queue = weak.lock()) queues.push_back(std::move(queue));
      }
    }
    for (const auto& queue : queues) queue->finish();
  }

  // OpenCL does not report free memory: it is the total less what this process has allocated here.
  void memory_info(int64_t& free, int64_t& total) override {
    total = facts_.global_memory;
    free = std::max<int64_t>(0, total - used_);
  }

  void mem_alloc(const aa_alloc& what, aa_allocation& out) override {
    const int32_t kind = what.kind;
    const size_t size = what.size;
    const bool pinned = kind == AA_MEMORY_PINNED && facts_.fine_grained;
    if (kind != AA_MEMORY_DEVICE && !pinned) abi::unimplemented("mem_alloc of this kind of memory");
    const auto bytes = static_cast<int64_t>(std::min<size_t>(size, INT64_MAX));
    if (bytes > facts_.max_allocation) {
      exhausted(size, "one allocation may have " + std::to_string(facts_.max_allocation));
    }
    // Counted here, because a system that overcommits memory grants every request and kills the process later.
    const int64_t before = used_.fetch_add(bytes);
    if (before + bytes > facts_.global_memory) {
      used_ -= bytes;
      exhausted(size, std::to_string(std::max<int64_t>(0, facts_.global_memory - before)) + " of " +
                          std::to_string(facts_.global_memory) + " are free");
    }
    void* pointer = facts_.api.SVMAlloc(context_.get(), CL_MEM_READ_WRITE | (pinned ? CL_MEM_SVM_FINE_GRAIN_BUFFER : 0),
                                        size, alignment);
    if (!pointer) {
      used_ -= bytes;
      exhausted(size, "clSVMAlloc refused, with " + std::to_string(facts_.global_memory - before) + " of " +
                          std::to_string(facts_.global_memory) + " not allocated by this process");
    }
    try {
      aa_memory_info info{};
      info.kind = kind;
      info.device_index = index_;
      info.base = pointer;
      info.size = size;
      allocations_.add(pointer, info);
    } catch (...) {
      facts_.api.SVMFree(context_.get(), pointer);
      used_ -= bytes;
      throw;
    }
    out.pointer = pointer;
  }

  void mem_free(const aa_allocation& what) override {
    const size_t size = allocations_.remove(what.pointer, what.kind, index_);
    if (size == 0) throw abi::Failure(AA_INVALID_ARGUMENT, "mem_free: the device has no such allocation of this kind");
    facts_.api.SVMFree(context_.get(), what.pointer);
    used_ -= static_cast<int64_t>(size);
  }

  // Priorities need an extension that few drivers have; all streams are of normal priority.
  std::unique_ptr<abi::Stream> stream_create(const aa_stream_params&) override {
    auto queue = std::make_shared<Queue>(facts_.api, context_.get(), facts_.id);
    std::lock_guard lock(mutex_);
    std::erase_if(queues_, [](const auto& weak) { return weak.expired(); });
    queues_.push_back(queue);
    return std::make_unique<Stream>(std::move(queue));
  }

  std::unique_ptr<abi::Event> event_create(const aa_event_params& params) override {
    return std::make_unique<Event>(facts_.api, this, (params.flags & AA_EVENT_TIMING) != 0);
  }

  std::unique_ptr<abi::Module> module_load(const aa_module_params& params) override {
    return std::make_unique<Module>(facts_, context_.get(), params.image, params.size, params.format);
  }

  const char* compile_languages() override { return source_language; }
  std::string compile_fingerprint() override { return device_line(facts_); }

  abi::CompileOutput compile(const aa_compile& what) override {
    if (std::string(what.language) != source_language) {
      throw abi::Failure(AA_INVALID_ARGUMENT, std::string("language \"") + what.language +
                                                  "\" was asked for; OpenCL compiles " + source_language);
    }
    return compile_program(facts_, context_.get(), what.source, what.source_size, what.options, what.option_count);
  }

  void kernel_tuning(aa_kernel_tuning& tuning) override {
    tuning.native_f16 = facts_.f16;
    tuning.native_f64 = facts_.f64;
    if (facts_.type == DeviceType::cpu) {
      // A work-item is an iteration of a loop there and local memory is ordinary memory: one item does a whole row.
      tuning.group_size = 1;
      tuning.lanes = 1;
      tuning.items = 64;
      return;
    }
    int32_t group = 256;
    while (group > std::max(1, facts_.max_group)) group /= 2;
    tuning.group_size = group;
    tuning.items = group;
    tuning.subgroup_size = facts_.subgroup;
    tuning.lanes = std::min(group, facts_.subgroup ? facts_.subgroup : 16);
    tuning.local_memory = static_cast<int32_t>(std::min<int64_t>(facts_.local_memory, INT32_MAX));
  }

 private:
  [[noreturn]] void exhausted(size_t size, const std::string& found) const {
    throw abi::Failure(AA_RESOURCE_EXHAUSTED,
                       std::to_string(size) + " bytes were asked for on " + facts_.name + "; " + found);
  }

  const DeviceFacts& facts_;
  const int32_t index_;
  Allocations& allocations_;
  OwnedContext context_;
  std::atomic<int64_t> used_{0};  // bytes
  std::mutex mutex_;              // of queues_
  std::vector<std::weak_ptr<Queue>> queues_;
};

class Driver final : public abi::Driver {
 public:
  explicit Driver(std::vector<DeviceFacts> devices) : devices_(std::move(devices)) {}

  uint32_t extensions() const override { return abi::graph_extension | abi::compiler_extension; }
  int32_t device_count() override { return static_cast<int32_t>(devices_.size()); }

  void device_props(int32_t index, aa_device_props& props) override {
    const DeviceFacts& facts = at(index);
    abi::copy_text(props.name, facts.name);
    abi::copy_text(props.vendor, facts.vendor);
    abi::copy_text(props.arch, facts.version.substr(0, facts.version.find(' ', facts.version.find(' ') + 1)));
    props.caps = AA_CAP_EVENT_TIMING | AA_CAP_CONCURRENT_STREAMS | AA_CAP_HOST_CALL | AA_CAP_KERNELS |
                 (facts.fine_grained ? AA_CAP_PINNED_HOST : 0);
    props.total_memory = facts.global_memory;
    props.max_allocation = facts.max_allocation;
    props.alignment = alignment;
    props.compute_units = facts.compute_units;
    props.queue_depth = 1024;  // no limit is known; tests with 4096 reached none
    const auto bit = [](aa_dtype dtype) { return uint64_t{1} << dtype; };
    props.dtypes_storable = (bit(AA_DTYPE_F8_E5M2) << 1) - 1 - bit(AA_DTYPE_NONE);
    props.dtypes_computable = bit(AA_DTYPE_BOOL) | bit(AA_DTYPE_U8) | bit(AA_DTYPE_I8) | bit(AA_DTYPE_I16) |
                              bit(AA_DTYPE_I32) | bit(AA_DTYPE_I64) | bit(AA_DTYPE_F32) |
                              // Stored in half the memory and computed in 32 bits on every device.
                              bit(AA_DTYPE_F16) | bit(AA_DTYPE_BF16) | (facts.f64 ? bit(AA_DTYPE_F64) : 0);
  }

  std::unique_ptr<abi::Device> device_open(const aa_device_open_params& params) override {
    const int32_t index = params.index;
    return std::make_unique<Device>(at(index), index, allocations_);
  }

  bool mem_query(const void* pointer, aa_memory_info& info) override { return allocations_.find(pointer, info); }

 private:
  const DeviceFacts& at(int32_t index) const {
    if (index >= 0 && static_cast<size_t>(index) < devices_.size()) return devices_[static_cast<size_t>(index)];
    throw abi::Failure(AA_OUT_OF_RANGE, "device " + std::to_string(index) + " was asked for; there are " +
                                            std::to_string(devices_.size()));
  }

  const std::vector<DeviceFacts> devices_;
  Allocations allocations_;
};

void answer(aa_probe& probe, aa_probe_state state, size_t devices, const std::string& reason) {
  probe.state = state;
  probe.device_count = static_cast<int32_t>(devices);
  abi::copy_text(probe.reason, reason);
}

// For a CPU device: opens libraries until one has a platform.
void probe_cpu(aa_probe& probe) {
  std::string where;
  const std::vector<Icd> icds = installed_icds(where);
  if (icds.empty())
    return answer(probe, AA_PROBE_ABSENT, 0, "no OpenCL driver is installed (no *.icd file in " + where + ")");
  std::string report;
  for (const Icd& icd : icds) {
    try {
      const std::vector<Platform> platforms = open_platforms(icd);
      return answer(probe, AA_PROBE_USABLE, 1, platforms.front().name + " (" + icd.library + ")");
    } catch (const abi::Failure& failure) {
      report += (report.empty() ? "" : "; ") + icd.library + " (" + icd.file + "): " + failure.what();
    }
  }
  answer(probe, AA_PROBE_UNUSABLE, 0, report);
}

// The process that initialized the runtime. Its forked children do not have the runtime's threads.
std::atomic<pid_t> initialized_by{0};

void check_not_forked() {
  const pid_t owner = initialized_by;
  if (owner == 0 || owner == getpid()) return;
  throw abi::Failure(
      AA_FAILED_PRECONDITION,
      "OpenCL was initialized before this process was forked from its parent, and does not survive that; "
      "start a fresh process, or fork before the accelerator is first used");
}

void probe(aa_probe& probe, bool forced) {
  try {
    check_not_forked();
    const DeviceType type = device_type(forced);
    if (type == DeviceType::cpu) return probe_cpu(probe);
    if (!forced && !gpu_node_exists()) {
      return answer(probe, AA_PROBE_ABSENT, 0, std::string("no GPU device node (") + gpu_nodes + ")");
    }
    const Search search = find_devices(type);
    if (search.devices.empty()) {
      return answer(probe, search.found_library ? AA_PROBE_UNUSABLE : AA_PROBE_ABSENT, 0, search.report);
    }
    answer(probe, AA_PROBE_USABLE, search.devices.size(), search.devices.front().name);
  } catch (const abi::Failure& failure) {
    answer(probe, AA_PROBE_UNUSABLE, 0, failure.what());
  }
}

std::unique_ptr<abi::Driver> initialize(const aa_initialize_params&) {
  check_not_forked();
  initialized_by = getpid();
  const char* runtime = std::getenv(runtime_variable);
  Search search = find_devices(device_type(runtime && std::string(runtime) == opencl_runtime.name));
  if (search.devices.empty()) {
    throw abi::Failure(AA_UNAVAILABLE, "OpenCL has no device that can be used: " + search.report);
  }
  return std::make_unique<Driver>(std::move(search.devices));
}

}  // namespace
}  // namespace anyaccel::xpu::opencl

namespace anyaccel::xpu {
const Runtime opencl_runtime{"opencl", opencl::probe, opencl::initialize};
}  // namespace anyaccel::xpu
