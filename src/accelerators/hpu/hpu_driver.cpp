// Implements the hpu accelerator: Habana Gaudi with Synapse. The code that it shares with other vendors is in
// queue_runtime; this file has the probe's table, the acquisition of a module, and Synapse's functions.
//
// A process has one module, which no other process can use meanwhile: hpu has one device, however many the machine has.
// It is acquired with the first instance of the driver and released after the last. Checking whether a module is free
// would acquire it, and the kernel driver may reset a module that is released: therefore the probe does not check, and
// a busy module is an error at initialization.
#include "accelerators/hpu/hpu_driver.h"

#include <algorithm>
#include <mutex>

#include "accelerators/hpu/collectives.h"
#include "accelerators/hpu/hpu_api.h"
#include "accelerators/hpu/library_search.h"
#include "accelerators/hpu/modules.h"
#include "accelerators/hpu/ops.h"
#include "accelerators/queue_runtime/device.h"
#include "accelerators/queue_runtime/probe.h"

namespace anyaccel::hpu {
namespace {

using queue_runtime::Answer;
using queue_runtime::DeviceFacts;

constexpr const char* visible_variables[] = {visible_variable, module_variable, rank_variable};
// The kernel driver's device nodes belong to a class that other vendors share; older drivers use a separate name.
constexpr queue_runtime::NodePattern nodes[] = {{"accel/accel", "0x1da3"}, {"hl"}};
constexpr int memory_alignment = 64;  // bytes

// ---- finding the runtime ---------------------------------------------------------------------------------------------

Api api;  // bound by the probe

std::string bind(void* handle) {
  queue_runtime::Binder binder(handle);
#define ANYACCEL_BIND(name, parameters) binder.required(api.name, #name);
  ANYACCEL_HPU_FUNCTIONS(ANYACCEL_BIND)
#undef ANYACCEL_BIND
#define ANYACCEL_BIND(name, parameters) binder.optional(api.name, #name);
  ANYACCEL_HPU_OPTIONAL_FUNCTIONS(ANYACCEL_BIND)
  ANYACCEL_HPU_GRAPH_FUNCTIONS(ANYACCEL_BIND)
  ANYACCEL_HPU_RECIPE_FILE_FUNCTIONS(ANYACCEL_BIND)
#undef ANYACCEL_BIND
  return binder.missing();
}

std::string result_text(int result) { return status_text(api, result); }

int start() {
  const SynStatus result = api.synInitialize();
  return result == already_initialized ? 0 : result;
}

// Lists the modules with synDeviceGetModuleIDs, whose result it returns.
SynStatus list_modules(std::vector<uint32_t>& modules) {
  uint32_t count = most_modules;
  modules.resize(count);
  const SynStatus result = api.synDeviceGetModuleIDs(modules.data(), &count);
  modules.resize(result == 0 ? std::min(count, most_modules) : 0);
  return result;
}

// Sets `count` to 1 if there is a module for this process, else to 0.
int count_devices(int& count) {
  uint32_t devices = 0;
  if (const SynStatus result = api.synDeviceGetCount(&devices); result != 0) return result;
  std::vector<uint32_t> modules;
  if (const SynStatus result = devices == 0 ? 0 : list_modules(modules); result != 0) return result;
  count = choose_modules(choice_of_environment(), modules).empty() ? 0 : 1;
  return 0;
}

queue_runtime::Probe& prober() {
  static const queue_runtime::ProbeTable table{
      .device = "Gaudi",
      .software = "Synapse",
      .nodes = nodes,
      .search = library_search(),
      .library = library_name,
      .install_advice = "install Habana's software (habanalabs-graph)",
      .old_advice = "install a later release of Habana's software",
      .permission_advice = "see who may open these files, and in a container pass the devices on",
      .tool_advice = "see hl-smi",
      .visible_variables = visible_variables,
      .start_call = "synInitialize",
      .count_call = "synDeviceGetCount",
      .no_device = no_device,
      .version = nullptr,
      .bind = bind,
      .start = start,
      .count = count_devices,
      .text = result_text};
  static auto& probe = *new queue_runtime::Probe(table);
  return probe;
}

// ---- the module of this process --------------------------------------------------------------------------------------

struct Acquired {
  std::mutex mutex;
  int users = 0;  // instances of the driver
  SynDevice device = 0;
};
Acquired& acquired() {
  static auto& only = *new Acquired();
  return only;
}

SynDevice acquire_module() {
  Acquired& module = acquired();
  const std::lock_guard lock(module.mutex);
  if (module.users > 0) {
    ++module.users;
    return module.device;
  }
  std::vector<uint32_t> present;
  if (const SynStatus result = list_modules(present); result != 0) {
    throw abi::Failure(AA_UNAVAILABLE, "Synapse: synDeviceGetModuleIDs gave " + result_text(result), result);
  }
  std::string tried;
  SynStatus result = no_device;
  for (const uint32_t number : choose_modules(choice_of_environment(), present)) {
    result = api.synDeviceAcquireByModuleId(&module.device, number);
    if (result == 0) {
      module.users = 1;
      return module.device;
    }
    tried += (tried.empty() ? "module " : "; module ") + std::to_string(number) + ": synDeviceAcquireByModuleId gave " +
             result_text(result) + (result == busy || result == no_device ? ": another process has it" : "");
  }
  throw abi::Failure(AA_UNAVAILABLE,
                     "no Gaudi module can be acquired: " + (tried.empty() ? "there is none" : tried) +
                         ". See hl-smi for who has them; " + visible_variable + " names the modules to use",
                     result);
}

void release_module() noexcept {
  Acquired& module = acquired();
  const std::lock_guard lock(module.mutex);
  if (--module.users == 0) api.synDeviceRelease(module.device);
}

// ---- the runtime's functions -----------------------------------------------------------------------------------------

uint64_t address_of(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

// Converts the result of a query: "not ready" is not an error.
Answer asked(SynStatus result, const char* call, bool& done) {
  done = result == 0;
  return {result == busy ? 0 : result, call};
}

// No device is current on a thread, since a process has only one.
class SynapseRuntime final : public queue_runtime::Vendor {
 public:
  SynapseRuntime() : device_(acquire_module()), ops_(make_ops(api, device_)) {}
  ~SynapseRuntime() override {
    ops_.reset();
    if (!process_.is_forked_child()) release_module();
  }

  DeviceFacts facts() const;

  const char* accelerator() const override { return "hpu"; }
  const char* vendor_name() const override { return "Habana"; }
  std::string text(int result) override { return result_text(result); }
  aa_code code(int result) const override;
  bool is_wrong_device(int) const override { return false; }

  Answer set_device(int) override { return {}; }
  Answer get_device(int& ordinal) override {
    ordinal = 0;
    return {};
  }
  Answer release_device(int) override { return {}; }
  Answer memory_info(size_t& free, size_t& total) override {
    uint64_t free_bytes = 0, total_bytes = 0;
    const Answer answer{api.synDeviceGetMemoryInfo(device_, &free_bytes, &total_bytes), "synDeviceGetMemoryInfo"};
    free = free_bytes;
    total = total_bytes;
    return answer;
  }

  Answer allocate(void*& pointer, size_t size) override {
    uint64_t address = 0;
    const Answer answer{api.synDeviceMalloc(device_, size, 0, 0, &address), "synDeviceMalloc"};
    pointer = reinterpret_cast<void*>(address);
    return answer;
  }
  Answer free(void* pointer) override { return {api.synDeviceFree(device_, address_of(pointer), 0), "synDeviceFree"}; }
  Answer allocate_pinned(void*& pointer, size_t size) override {
    return {api.synHostMalloc(device_, size, 0, &pointer), "synHostMalloc"};
  }
  Answer free_pinned(void* pointer) override { return {api.synHostFree(device_, pointer, 0), "synHostFree"}; }
  Answer copy_async(void* to, const void* from, size_t size, int32_t direction, void* stream) override {
    return {api.synMemCopyAsync(stream, address_of(from), size, address_of(to), directions[direction]),
            "synMemCopyAsync"};
  }
  bool copies_pageable() const override { return false; }
  Answer fill_async(void* to, unsigned char value, size_t size, void* stream) override {
    return {api.synMemsetD8Async(address_of(to), value, size, stream), "synMemsetD8Async"};
  }

  // The runtime does not expose priorities.
  Answer stream_create(void*& stream, int32_t) override {
    return {api.synStreamCreateGeneric(&stream, device_, 0), "synStreamCreateGeneric"};
  }
  Answer stream_destroy(void* stream) override { return {api.synStreamDestroy(stream), "synStreamDestroy"}; }
  Answer stream_query(void* stream, bool& done) override {
    return asked(api.synStreamQuery(stream), "synStreamQuery", done);
  }
  Answer stream_synchronize(void* stream) override {
    return {api.synStreamSynchronize(stream), "synStreamSynchronize"};
  }
  Answer stream_wait(void* stream, void* event) override {
    return {api.synStreamWaitEvent(stream, event, 0), "synStreamWaitEvent"};
  }
  const queue_runtime::OpSet* ops() override { return ops_.get(); }

  bool has_host_call() const override { return false; }
  Answer host_call(void*, void (*)(void* user), void*) override { return {}; }

  Answer event_create(void*& event, bool timed) override {
    return {api.synEventCreate(&event, device_, timed ? event_timed : 0), "synEventCreate"};
  }
  Answer event_destroy(void* event) override { return {api.synEventDestroy(event), "synEventDestroy"}; }
  Answer event_record(void* event, void* stream) override {
    return {api.synEventRecord(event, stream), "synEventRecord"};
  }
  Answer event_query(void* event, bool& done) override {
    return asked(api.synEventQuery(event), "synEventQuery", done);
  }
  Answer event_synchronize(void* event) override { return {api.synEventSynchronize(event), "synEventSynchronize"}; }
  Answer event_elapsed(float& milliseconds, void* start, void* end) override {
    uint64_t nanoseconds = 0;
    const Answer answer{api.synEventElapsedTime(&nanoseconds, start, end), "synEventElapsedTime"};
    milliseconds = static_cast<float>(static_cast<double>(nanoseconds) * 1e-6);
    return answer;
  }

 private:
  const SynDevice device_;
  std::unique_ptr<queue_runtime::OpSet> ops_;
  const queue_runtime::StartedProcess process_;
};

aa_code SynapseRuntime::code(int result) const {
  switch (result) {
    case 3:   // host memory
    case 4:   // device memory
    case 14:  // device memory too
    case 23:
    case 27: return AA_RESOURCE_EXHAUSTED;
    case 8:
    case 16:
    case 24:
    case 28: return AA_UNAVAILABLE;
    case 1:
    case 33:
    case 34: return AA_INVALID_ARGUMENT;
    case 18: return AA_UNIMPLEMENTED;
    case 17:  // the device is being reset
    case 32:  // the device found that its work was wrong
      return AA_DEVICE_LOST;
    default: return AA_UNKNOWN;
  }
}

uint64_t bit(aa_dtype dtype) { return uint64_t{1} << dtype; }

DeviceFacts SynapseRuntime::facts() const {
  DeviceFacts facts;
  char name[name_bytes] = {};
  facts.name = api.synDeviceGetName(name, name_bytes - 1, device_) == 0 && name[0] ? name : "Gaudi";
  facts.arch = "gaudi";
  facts.alignment = memory_alignment;
  uint64_t free = 0, total = 0;
  const SynStatus result = api.synDeviceGetMemoryInfo(device_, &free, &total);
  if (result != 0) {
    throw abi::Failure(code(result), "hpu: synDeviceGetMemoryInfo gave " + result_text(result), result);
  }
  facts.total_memory = total;
  facts.dtypes_computable = bit(AA_DTYPE_BOOL) | bit(AA_DTYPE_U8) | bit(AA_DTYPE_I8) | bit(AA_DTYPE_I16) |
                            bit(AA_DTYPE_I32) | bit(AA_DTYPE_F16) | bit(AA_DTYPE_BF16) | bit(AA_DTYPE_F32);
  facts.dtypes_matrix = bit(AA_DTYPE_BF16) | bit(AA_DTYPE_F16) | bit(AA_DTYPE_F32);
  return facts;
}

class Driver final : public queue_runtime::Driver {
 public:
  static constexpr abi::DriverFacts facts{.name = "hpu",
                                          .vendor = "Habana",
                                          .version = "1.0",
                                          .visible_devices_env = visible_variable,
                                          .export_env_prefixes = "HABANA,HCCL,GC_KERNEL_PATH"};

  using queue_runtime::Driver::Driver;

  static void probe(aa_probe& probe) {
    try {
      choose_modules(choice_of_environment(), {});
    } catch (const abi::Failure& failure) {
      probe.state = AA_PROBE_UNUSABLE;
      abi::copy_text(probe.reason, failure.what());
      return;
    }
    prober().discover(probe);
  }

  static std::unique_ptr<abi::Driver> initialize(const aa_initialize_params&) {
    choose_modules(choice_of_environment(), {});
    prober().start();
    auto runtime = std::make_unique<SynapseRuntime>();
    std::vector<DeviceFacts> devices{runtime->facts()};
    return std::make_unique<Driver>(std::move(runtime), std::move(devices), collective_library);
  }
};

}  // namespace
}  // namespace anyaccel::hpu

extern "C" const aa_driver* anyaccel_hpu_driver_query(uint32_t host_abi_min, uint32_t host_abi_max,
                                                      const aa_host* host) {
  return anyaccel::abi::driver_query<anyaccel::hpu::Driver>(host_abi_min, host_abi_max, host);
}
