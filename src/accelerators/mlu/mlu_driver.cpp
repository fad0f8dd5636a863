// Implements the mlu accelerator: Cambricon MLU with the Neuware runtime (CNRT). The code that it shares with other
// vendors is in queue_runtime; this file has the probe's table, the properties of its devices, and its functions.
//
// The runtime decides which devices exist and how they are numbered: it reads MLU_VISIBLE_DEVICES itself.
#include "accelerators/mlu/mlu_driver.h"

#include <algorithm>
#include <cstdio>

#include "accelerators/mlu/collectives.h"
#include "accelerators/mlu/library_search.h"
#include "accelerators/mlu/mlu_api.h"
#include "accelerators/mlu/ops.h"
#include "accelerators/queue_runtime/device.h"
#include "accelerators/queue_runtime/probe.h"

namespace anyaccel::mlu {
namespace {

using queue_runtime::Answer;
using queue_runtime::DeviceFacts;

constexpr const char* visible_variable = "MLU_VISIBLE_DEVICES";
constexpr const char* visible_variables[] = {visible_variable};
constexpr queue_runtime::NodePattern nodes[] = {{"cambricon_dev"}};
constexpr int memory_alignment = 64;  // bytes

// ---- finding the runtime ---------------------------------------------------------------------------------------------

Api api;  // bound by the probe

std::string bind(void* handle) {
  queue_runtime::Binder binder(handle);
#define ANYACCEL_BIND(name, parameters) binder.required(api.name, #name);
  ANYACCEL_MLU_FUNCTIONS(ANYACCEL_BIND)
#undef ANYACCEL_BIND
#define ANYACCEL_BIND(name, parameters) binder.optional(api.name, #name);
  ANYACCEL_MLU_OPTIONAL_FUNCTIONS(ANYACCEL_BIND)
  ANYACCEL_MLU_CAPTURE_FUNCTIONS(ANYACCEL_BIND)
#undef ANYACCEL_BIND
  binder.optional(api.cnrtGetErrorName, "cnrtGetErrorName");
  binder.optional(api.cnrtGetErrorStr, "cnrtGetErrorStr");
  // Both functions take the same arguments; if both exist, the second is the intended one.
  if (api.cnrtMemcpyAsync_V2) return binder.missing();
  binder.required(api.cnrtMemcpyAsync, "cnrtMemcpyAsync");
  return binder.missing();
}

std::string result_text(int result) {
  const char* name = api.cnrtGetErrorName ? api.cnrtGetErrorName(result) : nullptr;
  const char* said = api.cnrtGetErrorStr ? api.cnrtGetErrorStr(result) : nullptr;
  return std::string(name && *name ? name : "error") + " (" + std::to_string(result) + ")" +
         (said && *said ? std::string(": ") + said : std::string());
}

int count_devices(int& count) {
  unsigned devices = 0;
  const CnrtResult result = api.cnrtGetDeviceCount(&devices);
  count = static_cast<int>(devices);
  return result;
}

queue_runtime::Probe& prober() {
  static const queue_runtime::ProbeTable table{
      .device = "Cambricon MLU",
      .software = "Neuware",
      .nodes = nodes,
      .search = library_search(),
      .library = "libcnrt.so",
      .install_advice = "install Neuware, or name its folder in NEUWARE_HOME",
      .old_advice = "install a Neuware with CNRT 6.0 or later",
      .permission_advice = "see who may open these files, and in a container pass the devices on",
      .tool_advice = "see cnmon",
      .visible_variables = visible_variables,
      .visible_rule = "numbers of devices, separated by commas, each once",
      .start_call = nullptr,
      .count_call = "cnrtGetDeviceCount",
      .no_device = no_device,
      .version = nullptr,
      .bind = bind,
      .start = nullptr,
      .count = count_devices,
      .text = result_text};
  static auto& probe = *new queue_runtime::Probe(table);
  return probe;
}

// ---- the runtime's functions -----------------------------------------------------------------------------------------

// Converts the result of a query: "not ready" is not an error.
Answer asked(CnrtResult result, const char* call, bool& done) {
  done = result == 0;
  return {result == not_ready || result == busy ? 0 : result, call};
}

class CnrtRuntime final : public queue_runtime::Vendor {
 public:
  explicit CnrtRuntime(bool has_bf16) : has_bf16_(has_bf16) {}

  const char* accelerator() const override { return "mlu"; }
  const char* vendor_name() const override { return "Cambricon"; }
  std::string text(int result) override { return result_text(result); }
  aa_code code(int result) const override;
  // The codes mean: a resource belongs to another device; no device is selected.
  bool is_wrong_device(int result) const override { return result == 632006 || result == 632019; }

  Answer set_device(int ordinal) override { return {api.cnrtSetDevice(ordinal), "cnrtSetDevice"}; }
  Answer get_device(int& ordinal) override { return {api.cnrtGetDevice(&ordinal), "cnrtGetDevice"}; }
  // Does not reset the device: cnrtDeviceReset would destroy the objects that other libraries of the process have on
  // it.
  Answer release_device(int ordinal) override {
    release_ops(ordinal);
    return {};
  }
  Answer memory_info(size_t& free, size_t& total) override {
    return {api.cnrtMemGetInfo(&free, &total), "cnrtMemGetInfo"};
  }

  Answer allocate(void*& pointer, size_t size) override { return {api.cnrtMalloc(&pointer, size), "cnrtMalloc"}; }
  Answer free(void* pointer) override { return {api.cnrtFree(pointer), "cnrtFree"}; }
  Answer allocate_pinned(void*& pointer, size_t size) override {
    return {api.cnrtHostMalloc(&pointer, size), "cnrtHostMalloc"};
  }
  Answer free_pinned(void* pointer) override { return {api.cnrtFreeHost(pointer), "cnrtFreeHost"}; }
  Answer copy_async(void* to, const void* from, size_t size, int32_t direction, void* queue) override {
    void* const source = const_cast<void*>(from);
    const int way = copy_directions[direction];
    if (api.cnrtMemcpyAsync_V2) return {api.cnrtMemcpyAsync_V2(to, source, size, queue, way), "cnrtMemcpyAsync_V2"};
    return {api.cnrtMemcpyAsync(to, source, size, queue, way), "cnrtMemcpyAsync"};
  }
  Answer fill_async(void* to, unsigned char value, size_t size, void* queue) override {
    return {api.cnrtMemsetAsync(to, value, size, queue), "cnrtMemsetAsync"};
  }

  Answer stream_create(void*& queue, int32_t priority) override {
    if (priority < 0 && api.cnrtQueueCreateWithPriority) {
      return {api.cnrtQueueCreateWithPriority(&queue, 0, highest_priority), "cnrtQueueCreateWithPriority"};
    }
    return {api.cnrtQueueCreate(&queue), "cnrtQueueCreate"};
  }
  Answer stream_destroy(void* queue) override { return {api.cnrtQueueDestroy(queue), "cnrtQueueDestroy"}; }
  Answer stream_query(void* queue, bool& done) override {
    return asked(api.cnrtQueueQuery(queue), "cnrtQueueQuery", done);
  }
  Answer stream_synchronize(void* queue) override { return {api.cnrtQueueSync(queue), "cnrtQueueSync"}; }
  Answer stream_wait(void* queue, void* notifier) override {
    return {api.cnrtQueueWaitNotifier(notifier, queue, 0), "cnrtQueueWaitNotifier"};
  }
  bool has_host_call() const override { return api.cnrtInvokeHostFunc != nullptr; }
  Answer host_call(void* queue, void (*function)(void* user), void* user) override {
    return {api.cnrtInvokeHostFunc(queue, function, user), "cnrtInvokeHostFunc"};
  }

  Answer event_create(void*& notifier, bool timed) override {
    return {api.cnrtNotifierCreateWithFlags(&notifier, timed ? notifier_timed : notifier_untimed),
            "cnrtNotifierCreateWithFlags"};
  }
  Answer event_destroy(void* notifier) override { return {api.cnrtNotifierDestroy(notifier), "cnrtNotifierDestroy"}; }
  Answer event_record(void* notifier, void* queue) override {
    return {api.cnrtPlaceNotifier(notifier, queue), "cnrtPlaceNotifier"};
  }
  Answer event_query(void* notifier, bool& done) override {
    return asked(api.cnrtQueryNotifier(notifier), "cnrtQueryNotifier", done);
  }
  Answer event_synchronize(void* notifier) override { return {api.cnrtWaitNotifier(notifier), "cnrtWaitNotifier"}; }
  Answer event_elapsed(float& milliseconds, void* start, void* end) override {
    return {api.cnrtNotifierElapsedTime(start, end, &milliseconds), "cnrtNotifierElapsedTime"};
  }

  bool captures() const override {
    return api.cnrtQueueBeginCapture && api.cnrtQueueEndCapture && api.cnrtTaskTopoInstantiate &&
           api.cnrtTaskTopoEntityInvoke && api.cnrtTaskTopoEntityDestroy && api.cnrtTaskTopoDestroy;
  }
  Answer capture_begin(void* queue) override {
    return {api.cnrtQueueBeginCapture(queue, capture_this_thread), "cnrtQueueBeginCapture"};
  }
  Answer capture_end(void* queue, void*& captured) override {
    void* topology = nullptr;
    if (const CnrtResult result = api.cnrtQueueEndCapture(queue, &topology); result != 0) {
      return {result, "cnrtQueueEndCapture"};
    }
    const CnrtResult result = api.cnrtTaskTopoInstantiate(&captured, topology, nullptr, nullptr, 0);
    api.cnrtTaskTopoDestroy(topology);
    return {result, "cnrtTaskTopoInstantiate"};
  }
  Answer captured_launch(void* captured, void* queue) override {
    return {api.cnrtTaskTopoEntityInvoke(captured, queue), "cnrtTaskTopoEntityInvoke"};
  }
  Answer captured_destroy(void* captured) override {
    return {api.cnrtTaskTopoEntityDestroy(captured), "cnrtTaskTopoEntityDestroy"};
  }

  const queue_runtime::OpSet* ops() override { return op_set(api, has_bf16_); }

 private:
  const bool has_bf16_;  // all devices
};

aa_code CnrtRuntime::code(int result) const {
  switch (result) {
    case 100100: return AA_RESOURCE_EXHAUSTED;
    case 100004: return AA_UNAVAILABLE;
    case 100050: return AA_UNIMPLEMENTED;
    case 100005:
    case 100006:
    case 100014: return AA_INVALID_ARGUMENT;
    case 632015: return AA_INTERNAL;  // a call of the driver below failed
    default: return AA_UNKNOWN;
  }
}

uint64_t bit(aa_dtype dtype) { return uint64_t{1} << dtype; }

// Returns 0 if the runtime does not report the attribute.
int attribute(int what, int device) {
  int value = 0;
  return api.cnrtDeviceGetAttribute(&value, what, device) == 0 ? value : 0;
}

std::vector<DeviceFacts> read_facts(int count) {
  std::vector<DeviceFacts> devices(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    DeviceFacts& facts = devices[static_cast<size_t>(i)];
    facts.ordinal = i;
    alignas(std::max_align_t) char properties[properties_bytes] = {};
    facts.name = "MLU";
    if (api.cnrtGetDeviceProperties(properties, i) == 0 && properties[0] != '\0') {
      facts.name.assign(properties, std::find(properties, properties + properties_name_bytes, '\0'));
    }
    facts.arch = "mlu_" + std::to_string(attribute(attribute_major, i)) + std::to_string(attribute(attribute_minor, i));
    facts.alignment = memory_alignment;
    facts.total_memory = static_cast<size_t>(attribute(attribute_total_megabytes, i)) << 20;
    facts.compute_units = attribute(attribute_clusters, i) * attribute(attribute_cores_per_cluster, i);
    facts.dtypes_computable = bit(AA_DTYPE_BOOL) | bit(AA_DTYPE_U8) | bit(AA_DTYPE_I8) | bit(AA_DTYPE_I16) |
                              bit(AA_DTYPE_I32) | bit(AA_DTYPE_F16) | bit(AA_DTYPE_F32);
    facts.dtypes_matrix = bit(AA_DTYPE_F16);
    if (attribute(attribute_bf16, i) != 0) {
      facts.dtypes_computable |= bit(AA_DTYPE_BF16);
      facts.dtypes_matrix |= bit(AA_DTYPE_BF16);
    }
  }
  return devices;
}

class Driver final : public queue_runtime::Driver {
 public:
  static constexpr abi::DriverFacts facts{.name = "mlu",
                                          .vendor = "Cambricon",
                                          .version = "1.0",
                                          .communication_backend = "cncl",
                                          .visible_devices_env = visible_variable,
                                          .export_env_prefixes = "NEUWARE,CNCL,MLU"};

  using queue_runtime::Driver::Driver;

  static void probe(aa_probe& probe) { prober().discover(probe); }

  static std::unique_ptr<abi::Driver> initialize(const aa_initialize_params&) {
    std::vector<DeviceFacts> devices = read_facts(prober().start());
    const bool has_bf16 = std::all_of(devices.begin(), devices.end(), [](const DeviceFacts& facts) {
      return (facts.dtypes_matrix & bit(AA_DTYPE_BF16)) != 0;
    });
    return std::make_unique<Driver>(std::make_unique<CnrtRuntime>(has_bf16), std::move(devices), collective_library);
  }
};

}  // namespace
}  // namespace anyaccel::mlu

extern "C" const aa_driver* anyaccel_mlu_driver_query(uint32_t host_abi_min, uint32_t host_abi_max,
                                                      const aa_host* host) {
  return anyaccel::abi::driver_query<anyaccel::mlu::Driver>(host_abi_min, host_abi_max, host);
}
