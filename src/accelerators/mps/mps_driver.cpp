// Implements the mps accelerator: the driver class and its devices. Metal is opened at run time through the Objective-C
// runtime; building it needs nothing from Apple.
#include "accelerators/mps/mps_driver.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <string_view>

#include "accelerators/mps/kernels.h"
#include "accelerators/mps/memory.h"
#include "accelerators/mps/metal.h"
#include "accelerators/mps/stream.h"

namespace anyaccel::mps {
namespace {

constexpr uint64_t bit(aa_dtype dtype) { return uint64_t{1} << dtype; }

class Device final : public abi::Device {
 public:
  Device(const DeviceFacts& facts, int32_t index, Allocations& allocations)
      : facts_(facts), memory_(facts, index, allocations) {
    const Pool pool;
    // A buffer of zeros, large enough for any element: a kernel that reads one element of an absent tensor reads from
    // it.
    absent_ = Owned::given(send<Id>(facts.device.get(), sel.newBufferWithLength, uint64_t{64}, storage_shared));
    void* const zeros = absent_ ? send<void*>(absent_.get(), sel.contents) : nullptr;
    if (!zeros) throw abi::Failure(AA_RESOURCE_EXHAUSTED, "Metal gave no buffer on " + facts.name);
    std::memset(zeros, 0, 64);
  }

  void synchronize() override {
    std::optional<abi::Failure> first;
    for (const std::shared_ptr<Queue>& queue : living_queues()) {
      try {
        queue->finish();
      } catch (const abi::Failure& failure) {
        if (!first) first = failure;
      }
    }
    if (first) throw abi::Failure(*first);
    health_->check();
  }

  void memory_info(int64_t& free, int64_t& total) override { memory_.info(free, total); }
  void mem_alloc(const aa_alloc& what, aa_allocation& out) override {
    health_->check();
    memory_.allocate(what, out);
  }
  void mem_free(const aa_allocation& what) override { memory_.free(what); }
  void register_range(const aa_register& what, aa_registration& out) override {
    health_->check();
    memory_.register_range(what, out);
  }
  void unregister_range(void* pointer) override { memory_.unregister_range(pointer); }
  void* native(const char* what) override { return std::string_view(what) == "device" ? facts_.device.get() : nullptr; }

  std::unique_ptr<abi::Stream> stream_create(const aa_stream_params&) override {
    health_->check();
    auto queue = std::make_shared<Queue>(facts_.device.get(), health_);
    memory_.residency().attach_to(queue->get());
    const std::lock_guard lock(mutex_);
    std::erase_if(queues_, [](const auto& other) { return other.expired(); });
    queues_.push_back(queue);
    return std::make_unique<Stream>(std::move(queue), facts_.device.get(), absent_.get());
  }
  std::unique_ptr<abi::Event> event_create(const aa_event_params& params) override {
    return std::make_unique<Event>(this, (params.flags & AA_EVENT_TIMING) != 0);
  }
  std::unique_ptr<abi::Module> module_load(const aa_module_params& params) override {
    health_->check();
    return std::make_unique<Module>(facts_, params);
  }

  const char* compile_languages() override { return source_language; }
  std::string compile_fingerprint() override { return device_line(facts_); }
  abi::CompileOutput compile(const aa_compile& what) override {
    if (std::string_view(what.language) != source_language) {
      throw abi::Failure(AA_UNIMPLEMENTED,
                         std::string("no compiler for ") + what.language + "; there is one for " + source_language);
    }
    return compile_source(facts_, what);
  }

  // These values are a first guess: the group sizes that other GPUs use, in simdgroups of 32.
  void kernel_tuning(aa_kernel_tuning& tuning) override {
    tuning.group_size = 256;
    tuning.items = 256;
    tuning.lanes = 32;
    tuning.subgroup_size = 32;
    tuning.local_memory = static_cast<int32_t>(std::min<int64_t>(facts_.threadgroup_memory, INT32_MAX));
    tuning.native_f16 = 1;
  }

 private:
  std::vector<std::shared_ptr<Queue>> living_queues() {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<Queue>> living;
    for (const std::weak_ptr<Queue>& queue : queues_) {
      if (std::shared_ptr<Queue> one = queue.lock()) living.push_back(std::move(one));
    }
    return living;
  }

  const DeviceFacts& facts_;
  DeviceMemory memory_;
  const std::shared_ptr<DeviceHealth> health_ = std::make_shared<DeviceHealth>();
  Owned absent_;
  std::mutex mutex_;  // guards queues_
  std::vector<std::weak_ptr<Queue>> queues_;
};

constexpr abi::DriverFacts driver_facts{.name = "mps",
                                        .vendor = "Apple",
                                        .version = "1.0",
                                        .communication_backend = "gloo",
                                        .flags = AA_DRIVER_WANTS_MEMORY};

class Driver final : public abi::Driver {
 public:
  static constexpr abi::DriverFacts facts = driver_facts;

  explicit Driver(std::vector<DeviceFacts> devices) : devices_(std::move(devices)) {}

  static void probe(aa_probe& probe) { mps::probe(probe); }
  static std::unique_ptr<abi::Driver> initialize(const aa_initialize_params&) {
    return std::make_unique<Driver>(start());
  }

  uint32_t extensions() const override {
    return abi::graph_extension | abi::host_memory_extension | abi::compiler_extension | abi::lazy_extension;
  }
  int32_t device_count() override { return static_cast<int32_t>(devices_.size()); }

  void device_props(int32_t index, aa_device_props& props) override {
    const DeviceFacts& facts = at(index);
    abi::copy_text(props.name, facts.name);
    abi::copy_text(props.vendor, "Apple");
    abi::copy_text(props.arch, facts.family);
    std::memcpy(props.uuid, &facts.registry_id, sizeof(facts.registry_id));
    props.caps = AA_CAP_HOST_TIMERS | AA_CAP_HOST_COHERENT | AA_CAP_EVENT_TIMING | AA_CAP_PINNED_HOST |
                 AA_CAP_CONCURRENT_STREAMS | AA_CAP_HOST_CALL | AA_CAP_KERNELS;
    props.total_memory = facts.memory;
    props.max_allocation = facts.max_buffer;
    props.alignment = DeviceMemory::alignment;
    // Every item takes at most one of the queue's command buffers, in addition to the open one and the next one.
    props.queue_depth = static_cast<int32_t>(command_buffers / 2);
    props.dtypes_storable = (bit(AA_DTYPE_F8_E5M2) << 1) - 1 - bit(AA_DTYPE_NONE);
    // Metal has no 64-bit floats. 16-bit ones are held in half the memory and computed in 32 bits.
    props.dtypes_computable = bit(AA_DTYPE_BOOL) | bit(AA_DTYPE_U8) | bit(AA_DTYPE_I8) | bit(AA_DTYPE_I16) |
                              bit(AA_DTYPE_I32) | bit(AA_DTYPE_I64) | bit(AA_DTYPE_F16) | bit(AA_DTYPE_BF16) |
                              bit(AA_DTYPE_F32);
    props.dlpack_device_type = 0;  // kDLMetal means the buffer, where this accelerator has the address of its memory
  }

  std::unique_ptr<abi::Device> device_open(const aa_device_open_params& params) override {
    return std::make_unique<Device>(at(params.index), params.index, allocations_);
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

}  // namespace
}  // namespace anyaccel::mps

extern "C" const aa_driver* anyaccel_mps_driver_query(uint32_t host_abi_min, uint32_t host_abi_max,
                                                      const aa_host* host) {
  return anyaccel::abi::driver_query<anyaccel::mps::Driver>(host_abi_min, host_abi_max, host);
}
