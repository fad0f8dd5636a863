// Implements the sdaa accelerator: Tecorigin with its SDAA runtime. The code that it shares with other vendors is in
// queue_runtime; this file has the probe's table, the properties of its devices, and its functions.
//
// The runtime decides which devices exist and how they are numbered: it reads SDAA_VISIBLE_DEVICES itself.
#include "accelerators/sdaa/sdaa_driver.h"

#include <algorithm>

#include "accelerators/queue_runtime/device.h"
#include "accelerators/queue_runtime/probe.h"
#include "accelerators/sdaa/collectives.h"
#include "accelerators/sdaa/library_search.h"
#include "accelerators/sdaa/sdaa_api.h"

namespace anyaccel::sdaa {
namespace {

using queue_runtime::Answer;
using queue_runtime::DeviceFacts;

constexpr const char* visible_variable = "SDAA_VISIBLE_DEVICES";
constexpr const char* visible_variables[] = {visible_variable};
constexpr queue_runtime::NodePattern nodes[] = {{"tcaicard"}};
constexpr int memory_alignment = 64;  // bytes

// ---- finding the runtime ---------------------------------------------------------------------------------------------

Api api;  // bound by the probe

std::string bind(void* handle) {
  queue_runtime::Binder binder(handle);
#define ANYACCEL_BIND(name, parameters) binder.required(api.name, #name);
  ANYACCEL_SDAA_FUNCTIONS(ANYACCEL_BIND)
#undef ANYACCEL_BIND
#define ANYACCEL_BIND(name, parameters) binder.optional(api.name, #name);
  ANYACCEL_SDAA_OPTIONAL_FUNCTIONS(ANYACCEL_BIND)
#undef ANYACCEL_BIND
  binder.optional(api.sdaaGetErrorName, "sdaaGetErrorName");
  binder.optional(api.sdaaGetErrorString, "sdaaGetErrorString");
  return binder.missing();
}

std::string result_text(int result) {
  const char* name = api.sdaaGetErrorName ? api.sdaaGetErrorName(result) : nullptr;
  const char* said = api.sdaaGetErrorString ? api.sdaaGetErrorString(result) : nullptr;
  return std::string(name && *name ? name : "error") + " (" + std::to_string(result) + ")" +
         (said && *said ? std::string(": ") + said : std::string());
}

int count_devices(int& count) { return api.sdaaGetDeviceCount(&count); }

queue_runtime::Probe& prober() {
  static const queue_runtime::ProbeTable table{
      .device = "Tecorigin card",
      .software = "SDAA runtime",
      .nodes = nodes,
      .search = library_search(),
      .library = "libsdaart.so",
      .install_advice = "install Tecorigin's software and source its setvars.sh",
      .old_advice = "install a later release of Tecorigin's software",
      .permission_advice = "see who may open these files, and in a container pass the devices on",
      .tool_advice = "see that the card's kernel driver is loaded",
      .visible_variables = visible_variables,
      .visible_rule = "numbers of devices, separated by commas, each once",
      .start_call = nullptr,
      .count_call = "sdaaGetDeviceCount",
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
Answer asked(SdaaResult result, const char* call, bool& done) {
  done = result == 0;
  return {result == not_ready ? 0 : result, call};
}

class SdaaRuntime final : public queue_runtime::Vendor {
 public:
  const char* accelerator() const override { return "sdaa"; }
  const char* vendor_name() const override { return "Tecorigin"; }
  std::string text(int result) override { return result_text(result); }
  aa_code code(int result) const override;
  bool is_wrong_device(int result) const override { return result == 201; }

  Answer set_device(int ordinal) override { return {api.sdaaSetDevice(ordinal), "sdaaSetDevice"}; }
  Answer get_device(int& ordinal) override { return {api.sdaaGetDevice(&ordinal), "sdaaGetDevice"}; }
  // Does nothing: sdaaDeviceReset would destroy the objects that other libraries of the process have on the device.
  Answer release_device(int) override { return {}; }
  Answer memory_info(size_t& free, size_t& total) override {
    return {api.sdaaMemGetInfo(&free, &total), "sdaaMemGetInfo"};
  }

  Answer allocate(void*& pointer, size_t size) override { return {api.sdaaMalloc(&pointer, size), "sdaaMalloc"}; }
  Answer free(void* pointer) override { return {api.sdaaFree(pointer), "sdaaFree"}; }
  Answer allocate_pinned(void*& pointer, size_t size) override {
    return {api.sdaaMallocHost(&pointer, size), "sdaaMallocHost"};
  }
  Answer free_pinned(void* pointer) override { return {api.sdaaFreeHost(pointer), "sdaaFreeHost"}; }
  Answer copy_async(void* to, const void* from, size_t size, int32_t direction, void* stream) override {
    return {api.sdaaMemcpyAsync(to, from, size, memcpy_kinds[direction], stream), "sdaaMemcpyAsync"};
  }
  Answer fill_async(void* to, unsigned char value, size_t size, void* stream) override {
    return {api.sdaaMemsetAsync(to, value, size, stream), "sdaaMemsetAsync"};
  }

  // The runtime does not expose priorities.
  Answer stream_create(void*& stream, int32_t) override {
    return {api.sdaaStreamCreateWithFlags(&stream, stream_non_blocking), "sdaaStreamCreateWithFlags"};
  }
  Answer stream_destroy(void* stream) override { return {api.sdaaStreamDestroy(stream), "sdaaStreamDestroy"}; }
  Answer stream_query(void* stream, bool& done) override {
    return asked(api.sdaaStreamQuery(stream), "sdaaStreamQuery", done);
  }
  Answer stream_synchronize(void* stream) override {
    return {api.sdaaStreamSynchronize(stream), "sdaaStreamSynchronize"};
  }
  Answer stream_wait(void* stream, void* event) override {
    return {api.sdaaStreamWaitEvent(stream, event, 0), "sdaaStreamWaitEvent"};
  }
  bool has_host_call() const override { return api.sdaaLaunchHostFunc != nullptr; }
  Answer host_call(void* stream, void (*function)(void* user), void* user) override {
    return {api.sdaaLaunchHostFunc(stream, function, user), "sdaaLaunchHostFunc"};
  }

  Answer event_create(void*& event, bool timed) override {
    return {api.sdaaEventCreateWithFlags(&event, timed ? event_timed : event_untimed), "sdaaEventCreateWithFlags"};
  }
  Answer event_destroy(void* event) override { return {api.sdaaEventDestroy(event), "sdaaEventDestroy"}; }
  Answer event_record(void* event, void* stream) override {
    return {api.sdaaEventRecord(event, stream), "sdaaEventRecord"};
  }
  Answer event_query(void* event, bool& done) override {
    return asked(api.sdaaEventQuery(event), "sdaaEventQuery", done);
  }
  Answer event_synchronize(void* event) override { return {api.sdaaEventSynchronize(event), "sdaaEventSynchronize"}; }
  Answer event_elapsed(float& milliseconds, void* start, void* end) override {
    return {api.sdaaEventElapsedTime(&milliseconds, start, end), "sdaaEventElapsedTime"};
  }
};

aa_code SdaaRuntime::code(int result) const {
  switch (result) {
    case 2: return AA_RESOURCE_EXHAUSTED;
    case 3:
    case 35:
    case 100: return AA_UNAVAILABLE;
    case 1:
    case 17:
    case 21:
    case 101:
    case 400: return AA_INVALID_ARGUMENT;
    case 217:
    case 801: return AA_UNIMPLEMENTED;
    case 700:  // a kernel accessed memory out of bounds
    case 719:  // a kernel failed otherwise
      return AA_DEVICE_LOST;
    default: return AA_UNKNOWN;
  }
}

uint64_t bit(aa_dtype dtype) { return uint64_t{1} << dtype; }

std::vector<DeviceFacts> read_facts(SdaaRuntime& runtime, int count) {
  std::vector<DeviceFacts> devices(static_cast<size_t>(count));
  int before = 0;
  const bool restore = api.sdaaGetDevice(&before) == 0;
  for (int i = 0; i < count; ++i) {
    DeviceFacts& facts = devices[static_cast<size_t>(i)];
    facts.ordinal = i;
    alignas(std::max_align_t) char properties[properties_bytes] = {};
    facts.name = "Tecorigin SPA";
    if (api.sdaaGetDeviceProperties(properties, i) == 0 && properties[0] != '\0') {
      facts.name.assign(properties, std::find(properties, properties + properties_name_bytes, '\0'));
    }
    facts.arch = "sdaa";
    facts.alignment = memory_alignment;
    // The numbers of the attributes are not public; the runtime reports the memory of the current device.
    size_t free = 0;
    if (api.sdaaSetDevice(i) != 0 || runtime.memory_info(free, facts.total_memory).result != 0) facts.total_memory = 0;
    // The matrix unit takes fp16; bf16 would be converted, which changes numbers, so it does not count as computable.
    facts.dtypes_computable = bit(AA_DTYPE_BOOL) | bit(AA_DTYPE_U8) | bit(AA_DTYPE_I8) | bit(AA_DTYPE_I16) |
                              bit(AA_DTYPE_I32) | bit(AA_DTYPE_F16) | bit(AA_DTYPE_F32);
    facts.dtypes_matrix = bit(AA_DTYPE_F16);
  }
  if (restore) api.sdaaSetDevice(before);
  return devices;
}

class Driver final : public queue_runtime::Driver {
 public:
  static constexpr abi::DriverFacts facts{.name = "sdaa",
                                          .vendor = "Tecorigin",
                                          .version = "1.0",
                                          .communication_backend = "tccl",
                                          .visible_devices_env = visible_variable,
                                          .export_env_prefixes = "SDAA,TCCL"};

  using queue_runtime::Driver::Driver;

  static void probe(aa_probe& probe) { prober().discover(probe); }

  static std::unique_ptr<abi::Driver> initialize(const aa_initialize_params&) {
    const int count = prober().start();
    auto runtime = std::make_unique<SdaaRuntime>();
    std::vector<DeviceFacts> devices = read_facts(*runtime, count);
    return std::make_unique<Driver>(std::move(runtime), std::move(devices), collective_library);
  }
};

}  // namespace
}  // namespace anyaccel::sdaa

extern "C" const aa_driver* anyaccel_sdaa_driver_query(uint32_t host_abi_min, uint32_t host_abi_max,
                                                       const aa_host* host) {
  return anyaccel::abi::driver_query<anyaccel::sdaa::Driver>(host_abi_min, host_abi_max, host);
}
