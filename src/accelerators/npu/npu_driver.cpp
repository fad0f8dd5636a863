// Implements the npu accelerator: Huawei Ascend with CANN's runtime. The code that it shares with other vendors is in
// queue_runtime; this file has the probe, the properties of its devices, and its functions.
//
// The runtime decides which devices exist and how they are numbered: it reads ASCEND_RT_VISIBLE_DEVICES itself.
#include "accelerators/npu/npu_driver.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "accelerators/npu/collectives.h"
#include "accelerators/npu/library_search.h"
#include "accelerators/npu/npu_api.h"
#include "accelerators/npu/ops.h"
#include "accelerators/queue_runtime/device.h"
#include "accelerators/queue_runtime/probe.h"

namespace anyaccel::npu {
namespace {

using queue_runtime::Answer;
using queue_runtime::DeviceFacts;
using queue_runtime::variable;

constexpr const char* visible_variable = "ASCEND_RT_VISIBLE_DEVICES";
constexpr const char* visible_variables[] = {visible_variable};
constexpr queue_runtime::NodePattern nodes[] = {{"davinci"}};
constexpr int memory_alignment = 64;  // bytes, of aclrtMalloc

// ---- finding the runtime ---------------------------------------------------------------------------------------------

Api api;  // bound by the probe

std::string bind(void* handle) {
  queue_runtime::Binder binder(handle);
#define ANYACCEL_BIND(name, result_type, parameters) binder.required(api.name, #name);
  ANYACCEL_NPU_FUNCTIONS(ANYACCEL_BIND)
#undef ANYACCEL_BIND
#define ANYACCEL_BIND(name, result_type, parameters) binder.optional(api.name, #name);
  ANYACCEL_NPU_OPTIONAL_FUNCTIONS(ANYACCEL_BIND)
  ANYACCEL_NPU_CAPTURE_FUNCTIONS(ANYACCEL_BIND)
#undef ANYACCEL_BIND
  return binder.missing();
}

// Returns the version, "8.0.RC2", from a file like ascend_toolkit_install.info in the installation; empty if there is
// none.
std::string cann_version() {
  for (const char* home : home_variables) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(variable(home), error)) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with("ascend_") || !name.ends_with("_install.info")) continue;
      std::ifstream file(entry.path());
      for (std::string line; std::getline(file, line);) {
        if (line.starts_with("version=")) return line.substr(8);
      }
    }
  }
  return {};
}

std::string result_text(int result) {
  struct Name {
    AclError result;
    const char* name;
  };
  static constexpr Name names[] = {
      {100000, "ACL_ERROR_INVALID_PARAM"},
      {100001, "ACL_ERROR_UNINITIALIZE"},
      {100002, "ACL_ERROR_REPEAT_INITIALIZE"},
      {100039, "ACL_ERROR_COMPILING_STUB_MODE"},
      {107000, "ACL_ERROR_RT_PARAM_INVALID"},
      {107001, "ACL_ERROR_RT_INVALID_DEVICEID"},
      {107002, "ACL_ERROR_RT_CONTEXT_NULL"},
      {107003, "ACL_ERROR_RT_STREAM_CONTEXT"},
      {107006, "ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID"},
      {107017, "ACL_ERROR_RT_INVALID_HANDLE"},
      {107019, "ACL_ERROR_WAIT_TIMEOUT"},
      {107022, "ACL_ERROR_RT_DEVICE_TASK_ABORT"},
      {207000, "ACL_ERROR_RT_FEATURE_NOT_SUPPORT"},
      {207001, "ACL_ERROR_RT_MEMORY_ALLOCATION"},
      {207004, "ACL_ERROR_RT_NO_DEVICE"},
      {207007, "ACL_ERROR_RT_NO_EVENT_RESOURCE"},
      {207008, "ACL_ERROR_RT_NO_STREAM_RESOURCE"},
      {207018, "ACL_ERROR_RT_DEVICE_OOM"},
      {507000, "ACL_ERROR_RT_INTERNAL_ERROR"},
      {507010, "ACL_ERROR_RT_LOST_HEARTBEAT"},
      {507014, "ACL_ERROR_RT_AICORE_TIMEOUT"},
      {507015, "ACL_ERROR_RT_AICORE_EXCEPTION"},
      {507053, "ACL_ERROR_RT_DEVICE_MEM_ERROR"},
      {507054, "ACL_ERROR_RT_HBM_MULTI_BIT_ECC_ERROR"},
      {507899, "ACL_ERROR_RT_DRV_INTERNAL_ERROR"},
  };
  const auto* known = std::find_if(std::begin(names), std::end(names), [=](auto& row) { return row.result == result; });
  std::string text = known != std::end(names) ? known->name : "error";
  text += " (" + std::to_string(result) + ")";
  // The message has several lines, with place and time; reading it clears it.
  const char* said = api.aclGetRecentErrMsg ? api.aclGetRecentErrMsg() : nullptr;
  if (said && *said) {
    std::string words = said;
    std::replace(words.begin(), words.end(), '\n', ' ');
    text += ": " + words.substr(0, 400);
  }
  return text;
}

int start() {
  const AclError result = api.aclInit(nullptr);
  return result == repeated_init ? 0 : result;
}

int count_devices(int& count) {
  uint32_t devices = 0;
  const AclError result = api.aclrtGetDeviceCount(&devices);
  count = static_cast<int>(devices);
  return result;
}

queue_runtime::Probe& prober() {
  static const queue_runtime::ProbeTable table{
      .device = "Ascend NPU",
      .software = "CANN",
      .nodes = nodes,
      .search = library_search(),
      .library = "libascendcl.so",
      .install_advice = "install CANN and source its set_env.sh",
      .old_advice = "install CANN 8.0 or later",
      .permission_advice =
          "add it to the group of these files (usually HwHiAiUser), and in a container pass the devices on",
      .tool_advice = "see npu-smi info, and that the driver's lib64 is in LD_LIBRARY_PATH",
      .visible_variables = visible_variables,
      .visible_rule = "numbers of devices, separated by commas alone, each greater than the one before",
      .start_call = "aclInit",
      .count_call = "aclrtGetDeviceCount",
      .no_device = no_device,
      .stub_library = stub_mode,
      .version = cann_version,
      .bind = bind,
      .start = start,
      .count = count_devices,
      .text = result_text};
  static auto& probe = *new queue_runtime::Probe(table);
  return probe;
}

// ---- the runtime's functions -----------------------------------------------------------------------------------------

class AclRuntime final : public queue_runtime::Vendor {
 public:
  const char* accelerator() const override { return "npu"; }
  const char* vendor_name() const override { return "Huawei"; }
  std::string text(int result) override { return result_text(result); }
  aa_code code(int result) const override;
  bool is_wrong_device(int result) const override { return result == 107002 || result == 107003; }

  Answer set_device(int ordinal) override { return {api.aclrtSetDevice(ordinal), "aclrtSetDevice"}; }
  Answer get_device(int& ordinal) override { return {api.aclrtGetDevice(&ordinal), "aclrtGetDevice"}; }
  Answer release_device(int ordinal) override { return {api.aclrtResetDevice(ordinal), "aclrtResetDevice"}; }
  Answer memory_info(size_t& free, size_t& total) override {
    const AclError result = api.aclrtGetMemInfo(memory_hbm, &free, &total);
    if (result == 0 && total != 0) return {};
    return {api.aclrtGetMemInfo(memory_ddr, &free, &total), "aclrtGetMemInfo"};  // devices without HBM
  }

  Answer allocate(void*& pointer, size_t size) override {
    return {api.aclrtMalloc(&pointer, size, malloc_huge_first), "aclrtMalloc"};
  }
  Answer free(void* pointer) override { return {api.aclrtFree(pointer), "aclrtFree"}; }
  Answer allocate_pinned(void*& pointer, size_t size) override {
    return {api.aclrtMallocHost(&pointer, size), "aclrtMallocHost"};
  }
  Answer free_pinned(void* pointer) override { return {api.aclrtFreeHost(pointer), "aclrtFreeHost"}; }
  Answer copy_async(void* to, const void* from, size_t size, int32_t direction, void* stream) override {
    return {api.aclrtMemcpyAsync(to, size, from, size, memcpy_kinds[direction], stream), "aclrtMemcpyAsync"};
  }
  Answer fill_async(void* to, unsigned char value, size_t size, void* stream) override {
    return {api.aclrtMemsetAsync(to, size, value, size, stream), "aclrtMemsetAsync"};
  }

  // All streams have the highest priority, 0, the runtime's default.
  Answer stream_create(void*& stream, int32_t) override {
    return {api.aclrtCreateStreamWithConfig(&stream, 0, stream_fast_launch | stream_fast_sync),
            "aclrtCreateStreamWithConfig"};
  }
  Answer stream_destroy(void* stream) override { return {api.aclrtDestroyStream(stream), "aclrtDestroyStream"}; }
  Answer stream_query(void* stream, bool& done) override {
    int32_t status = stream_complete;
    const Answer answer{api.aclrtStreamQuery(stream, &status), "aclrtStreamQuery"};
    done = status == stream_complete;
    return answer;
  }
  Answer stream_synchronize(void* stream) override {
    return {api.aclrtSynchronizeStream(stream), "aclrtSynchronizeStream"};
  }
  Answer stream_wait(void* stream, void* event) override {
    return {api.aclrtStreamWaitEvent(stream, event), "aclrtStreamWaitEvent"};
  }
  bool has_host_call() const override { return api.aclrtLaunchHostFunc != nullptr; }
  Answer host_call(void* stream, void (*function)(void* user), void* user) override {
    return {api.aclrtLaunchHostFunc(stream, function, user), "aclrtLaunchHostFunc"};
  }

  Answer event_create(void*& event, bool timed) override {
    return {api.aclrtCreateEventExWithFlag(&event, event_sync | event_progress | (timed ? event_time_line : 0)),
            "aclrtCreateEventExWithFlag"};
  }
  Answer event_destroy(void* event) override { return {api.aclrtDestroyEvent(event), "aclrtDestroyEvent"}; }
  Answer event_record(void* event, void* stream) override {
    return {api.aclrtRecordEvent(event, stream), "aclrtRecordEvent"};
  }
  Answer event_query(void* event, bool& done) override {
    int32_t status = 0;
    const Answer answer{api.aclrtQueryEventStatus(event, &status), "aclrtQueryEventStatus"};
    done = status == event_complete;
    return answer;
  }
  Answer event_synchronize(void* event) override { return {api.aclrtSynchronizeEvent(event), "aclrtSynchronizeEvent"}; }
  Answer event_elapsed(float& milliseconds, void* start, void* end) override {
    return {api.aclrtEventElapsedTime(&milliseconds, start, end), "aclrtEventElapsedTime"};
  }

  bool captures() const override {
    return api.aclmdlRICaptureBegin && api.aclmdlRICaptureEnd && api.aclmdlRIExecuteAsync && api.aclmdlRIDestroy;
  }
  Answer capture_begin(void* stream) override {
    return {api.aclmdlRICaptureBegin(stream, capture_this_thread), "aclmdlRICaptureBegin"};
  }
  Answer capture_end(void* stream, void*& captured) override {
    return {api.aclmdlRICaptureEnd(stream, &captured), "aclmdlRICaptureEnd"};
  }
  Answer captured_launch(void* captured, void* stream) override {
    return {api.aclmdlRIExecuteAsync(captured, stream), "aclmdlRIExecuteAsync"};
  }
  Answer captured_destroy(void* captured) override { return {api.aclmdlRIDestroy(captured), "aclmdlRIDestroy"}; }

  const queue_runtime::OpSet* ops() override {
    std::string problem;
    const char* soc = api.aclrtGetSocName ? api.aclrtGetSocName() : nullptr;
    return op_set(soc ? soc : "", problem);
  }
};

aa_code AclRuntime::code(int result) const {
  switch (result) {
    case 200000:  // ACL_ERROR_BAD_ALLOC
    case 207001:
    case 207007:
    case 207008:
    case 207018: return AA_RESOURCE_EXHAUSTED;
    case 100001:
    case 100039: return AA_UNAVAILABLE;
    case 207000: return AA_UNIMPLEMENTED;
    case 107022:  // the device's tasks were aborted
    case 507010:  // the device does not respond
    case 507053:  // errors of its memory that cannot be corrected
    case 507054:
    case 507899:  // its kernel driver fails
      return AA_DEVICE_LOST;
    case 100000:
    case 107000:
    case 107001:
    case 107017: return AA_INVALID_ARGUMENT;
    default: return result >= 507000 && result < 508000 ? AA_INTERNAL : AA_UNKNOWN;
  }
}

uint64_t bit(aa_dtype dtype) { return uint64_t{1} << dtype; }

std::vector<DeviceFacts> read_facts(AclRuntime& runtime, int count) {
  std::vector<DeviceFacts> devices(static_cast<size_t>(count));
  const char* soc = api.aclrtGetSocName ? api.aclrtGetSocName() : nullptr;
  int32_t bf16 = 0;
  if (api.aclGetCannAttribute && api.aclGetCannAttribute(cann_bf16, &bf16) != 0) bf16 = 0;
  for (uint32_t i = 0; i < devices.size(); ++i) {
    DeviceFacts& facts = devices[i];
    facts.ordinal = static_cast<int>(i);
    facts.name = facts.arch = soc && *soc ? soc : "Ascend";
    facts.alignment = memory_alignment;
    int64_t value = 0;
    if (api.aclrtGetDeviceInfo && api.aclrtGetDeviceInfo(i, device_ai_cores, &value) == 0) {
      facts.compute_units = static_cast<int>(value);
    }
    if (api.aclrtGetDeviceInfo && api.aclrtGetDeviceInfo(i, device_total_memory, &value) == 0) {
      facts.total_memory = static_cast<size_t>(value);
    } else if (api.aclrtSetDevice(facts.ordinal) == 0) {  // older runtimes only report on a device in use
      size_t free = 0;
      if (runtime.memory_info(free, facts.total_memory).result != 0) facts.total_memory = 0;
      api.aclrtResetDevice(facts.ordinal);
    }
    facts.dtypes_computable = bit(AA_DTYPE_BOOL) | bit(AA_DTYPE_U8) | bit(AA_DTYPE_I8) | bit(AA_DTYPE_I16) |
                              bit(AA_DTYPE_I32) | bit(AA_DTYPE_I64) | bit(AA_DTYPE_F16) | bit(AA_DTYPE_F32);
    facts.dtypes_matrix = bit(AA_DTYPE_F16);
    if (bf16 != 0) {
      facts.dtypes_computable |= bit(AA_DTYPE_BF16);
      facts.dtypes_matrix |= bit(AA_DTYPE_BF16);
    }
  }
  return devices;
}

class Driver final : public queue_runtime::Driver {
 public:
  static constexpr abi::DriverFacts facts{.name = "npu",
                                          .vendor = "Huawei",
                                          .version = "1.0",
                                          .communication_backend = "hccl",
                                          .visible_devices_env = visible_variable,
                                          .export_env_prefixes = "ASCEND,HCCL"};

  using queue_runtime::Driver::Driver;

  static void probe(aa_probe& probe) { prober().discover(probe); }

  static std::unique_ptr<abi::Driver> initialize(const aa_initialize_params&) {
    const int count = prober().start();
    auto runtime = std::make_unique<AclRuntime>();
    std::vector<DeviceFacts> devices = read_facts(*runtime, count);
    return std::make_unique<Driver>(std::move(runtime), std::move(devices), collective_library);
  }
};

}  // namespace
}  // namespace anyaccel::npu

extern "C" const aa_driver* anyaccel_npu_driver_query(uint32_t host_abi_min, uint32_t host_abi_max,
                                                      const aa_host* host) {
  return anyaccel::abi::driver_query<anyaccel::npu::Driver>(host_abi_min, host_abi_max, host);
}
