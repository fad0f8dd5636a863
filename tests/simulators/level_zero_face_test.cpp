// The simulated Level Zero driver through the real loader (Debian's libze_loader.so.1) with its validation layer: what a
// program meets when it uses the driver well, and when it does not. Each test is a process of its own, because a driver
// reads its environment once.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <level_zero/ze_api.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "base/files/files.h"
#include "tests/simulators/check.h"
#include "tests/this_build.h"

namespace {

void* loader() {
  static void* const library = ::dlopen("libze_loader.so.1", RTLD_NOW | RTLD_LOCAL);
  return library;
}

// ze(&zeInit, "zeInit")(...): the loader's function, found by name.
template <typename Function>
Function* ze(Function*, const char* name) {
  auto* found = reinterpret_cast<Function*>(::dlsym(loader(), name));
  if (found == nullptr) std::_Exit(90);
  return found;
}
#define ZE(function) ze(static_cast<decltype(&function)>(nullptr), #function)
#define ZE_OK(call)                                                                   \
  do {                                                                                \
    const ze_result_t result = (call);                                                \
    if (result != ZE_RESULT_SUCCESS) {                                                \
      std::fprintf(stderr, "line %d: %s: 0x%x\n", __LINE__, #call, unsigned(result)); \
      std::_Exit(91);                                                                 \
    }                                                                                 \
  } while (0)

// A SPIR-V module of kernels without bodies: name, number of parameters, group size.
struct KernelText {
  std::string name;
  std::uint32_t parameters, group;
};
std::vector<std::uint32_t> spirv(const std::vector<KernelText>& kernels, std::uint32_t version = 0x00010000) {
  std::vector<std::uint32_t> words = {0x07230203, version, 0, 1000, 0};
  const auto add = [&](std::uint32_t opcode, std::vector<std::uint32_t> operands) {
    words.push_back(static_cast<std::uint32_t>(operands.size() + 1) << 16 | opcode);
    words.insert(words.end(), operands.begin(), operands.end());
  };
  std::uint32_t id = 1;
  for (const KernelText& kernel : kernels) {
    std::vector<std::uint32_t> entry = {6, id};
    std::vector<std::uint32_t> text(kernel.name.size() / 4 + 1);
    std::memcpy(text.data(), kernel.name.data(), kernel.name.size());
    entry.insert(entry.end(), text.begin(), text.end());
    add(15, entry);
    if (kernel.group != 0) add(16, {id, 17, kernel.group, 1, 1});
    std::vector<std::uint32_t> type = {id + 1, 900};
    type.insert(type.end(), kernel.parameters, 901);
    add(33, type);
    add(54, {900, id, 0, id + 1});
    id += 2;
  }
  return words;
}

template <typename T>
T structure(ze_structure_type_t type) {
  T value{};
  value.stype = type;
  return value;
}

struct Program {
  ze_driver_handle_t driver = nullptr;
  std::vector<ze_device_handle_t> devices;
  ze_context_handle_t context = nullptr;
  ze_event_pool_handle_t pool = nullptr;
  std::uint32_t next_event = 0;

  Program() {
    ZE_OK(ZE(zeInit)(ZE_INIT_FLAG_GPU_ONLY));
    std::uint32_t count = 1;
    ZE_OK(ZE(zeDriverGet)(&count, &driver));
    count = 0;
    ZE_OK(ZE(zeDeviceGet)(driver, &count, nullptr));
    devices.resize(count);
    ZE_OK(ZE(zeDeviceGet)(driver, &count, devices.data()));
    const auto desc = structure<ze_context_desc_t>(ZE_STRUCTURE_TYPE_CONTEXT_DESC);
    ZE_OK(ZE(zeContextCreate)(driver, &desc, &context));
    auto pool_desc = structure<ze_event_pool_desc_t>(ZE_STRUCTURE_TYPE_EVENT_POOL_DESC);
    pool_desc.flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE | ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP;
    pool_desc.count = 16;
    ZE_OK(ZE(zeEventPoolCreate)(context, &pool_desc, 0, nullptr, &pool));
  }
  ze_result_t try_allocate(std::size_t bytes, void** pointer, int device = 0) {
    const auto desc = structure<ze_device_mem_alloc_desc_t>(ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC);
    return ZE(zeMemAllocDevice)(context, &desc, bytes, 64, devices[device], pointer);
  }
  char* allocate(std::size_t bytes, int device = 0) {
    void* pointer = nullptr;
    ZE_OK(try_allocate(bytes, &pointer, device));
    return static_cast<char*>(pointer);
  }
  void free(void* pointer) { ZE_OK(ZE(zeMemFree)(context, pointer)); }
  ze_command_list_handle_t immediate(std::uint32_t flags = 0) {
    auto desc = structure<ze_command_queue_desc_t>(ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC);
    desc.mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS;
    desc.flags = flags;
    ze_command_list_handle_t list = nullptr;
    ZE_OK(ZE(zeCommandListCreateImmediate)(context, devices[0], &desc, &list));
    return list;
  }
  ze_event_handle_t event() {
    auto desc = structure<ze_event_desc_t>(ZE_STRUCTURE_TYPE_EVENT_DESC);
    desc.index = next_event++;
    desc.signal = desc.wait = ZE_EVENT_SCOPE_FLAG_HOST;
    ze_event_handle_t event = nullptr;
    ZE_OK(ZE(zeEventCreate)(pool, &desc, &event));
    return event;
  }
  void copy(ze_command_list_handle_t list, void* to, const void* from, std::size_t bytes,
            ze_event_handle_t signal = nullptr) {
    ZE_OK(ZE(zeCommandListAppendMemoryCopy)(list, to, from, bytes, signal, 0, nullptr));
  }
  void barrier(ze_command_list_handle_t list) { ZE_OK(ZE(zeCommandListAppendBarrier)(list, nullptr, 0, nullptr)); }
  void wait(ze_event_handle_t event) { ZE_OK(ZE(zeEventHostSynchronize)(event, UINT64_MAX)); }
  ze_result_t try_module(const std::vector<std::uint32_t>& words, ze_module_handle_t* module, std::string* log) {
    auto desc = structure<ze_module_desc_t>(ZE_STRUCTURE_TYPE_MODULE_DESC);
    desc.format = ZE_MODULE_FORMAT_IL_SPIRV;
    desc.inputSize = words.size() * 4;
    desc.pInputModule = reinterpret_cast<const std::uint8_t*>(words.data());
    desc.pBuildFlags = "";
    ze_module_build_log_handle_t handle = nullptr;
    const ze_result_t result = ZE(zeModuleCreate)(context, devices[0], &desc, module, &handle);
    std::size_t size = 0;
    ZE_OK(ZE(zeModuleBuildLogGetString)(handle, &size, nullptr));
    log->resize(size);
    ZE_OK(ZE(zeModuleBuildLogGetString)(handle, &size, log->data()));
    ZE_OK(ZE(zeModuleBuildLogDestroy)(handle));
    return result;
  }
  // sim_scale(y, x, factor, count), ready to launch.
  ze_kernel_handle_t scale(ze_module_handle_t module, void* y, void* x, float factor, std::int64_t count) {
    auto desc = structure<ze_kernel_desc_t>(ZE_STRUCTURE_TYPE_KERNEL_DESC);
    desc.pKernelName = "sim_scale";
    ze_kernel_handle_t kernel = nullptr;
    ZE_OK(ZE(zeKernelCreate)(module, &desc, &kernel));
    ZE_OK(ZE(zeKernelSetGroupSize)(kernel, 32, 1, 1));
    ZE_OK(ZE(zeKernelSetArgumentValue)(kernel, 0, sizeof y, &y));
    ZE_OK(ZE(zeKernelSetArgumentValue)(kernel, 1, sizeof x, &x));
    ZE_OK(ZE(zeKernelSetArgumentValue)(kernel, 2, sizeof factor, &factor));
    ZE_OK(ZE(zeKernelSetArgumentValue)(kernel, 3, sizeof count, &count));
    return kernel;
  }
};

class LevelZeroFace : public ::testing::Test {
 protected:
  void SetUp() override {
    if (loader() == nullptr) GTEST_SKIP() << "libze_loader.so.1 (Debian package libze1) is not installed";
    GTEST_FLAG_SET(death_test_style, "fast");
  }

  // Runs `program` in a child under the driver, and returns the report it left.
  nlohmann::json run(const std::function<void()>& program, std::vector<std::pair<const char*, const char*>> more = {},
                     bool validate = true) {
    EXPECT_EXIT(
        {
          ::setenv("ZE_ENABLE_ALT_DRIVERS", anyaccel::test::built("simulators/libze_sim.so").c_str(), 1);
          for (const char* name :
               {"ZE_ENABLE_VALIDATION_LAYER", "ZE_ENABLE_PARAMETER_VALIDATION", "ZEL_ENABLE_BASIC_LEAK_CHECKER"}) {
            if (validate) ::setenv(name, "1", 1);
          }
          ::setenv("SIM_REPORT", report_.c_str(), 1);
          for (const auto& [name, value] : more) ::setenv(name, value, 1);
          program();
          std::exit(0);
        },
        ::testing::ExitedWithCode(0), "");
    std::ifstream file(report_);
    return nlohmann::json::parse(file, nullptr, false);
  }
  static std::string kinds(const nlohmann::json& report) {
    std::string text;
    for (const auto& v : report.at("violations")) {
      text += (text.empty() ? "" : ",") + v.at("kind").get<std::string>();
    }
    return text;
  }

  const anyaccel::TemporaryFolder folder_{"report"};
  const std::string report_ = folder_.file("report.json");
};

// Copy in, kernel, copy out; then a regular list that does the same, executed twice; everything destroyed.
void well_behaved_program() {
  Program p;
  std::vector<float> x(1000), y(1000), z(1000);
  std::iota(x.begin(), x.end(), 1.0f);
  char *a = p.allocate(4000), *b = p.allocate(4000);
  ze_module_handle_t module = nullptr;
  std::string log;
  ZE_OK(p.try_module(spirv({{"sim_scale", 4, 32}}), &module, &log));
  const auto kernel = p.scale(module, b, a, 3.0f, 1000);
  const auto list = p.immediate();
  const auto done = p.event(), fresh = p.event();
  const ze_group_count_t groups = {32, 1, 1};
  p.copy(list, a, x.data(), 4000);
  p.barrier(list);
  ZE_OK(ZE(zeCommandListAppendLaunchKernel)(list, kernel, &groups, nullptr, 0, nullptr));
  p.barrier(list);
  p.copy(list, y.data(), b, 4000, done);
  p.wait(done);
  for (int i = 0; i < 1000; ++i) CHECK(y[i] == 3.0f * x[i]);
  ze_kernel_timestamp_result_t times;
  ZE_OK(ZE(zeEventQueryKernelTimestamp)(done, &times));

  auto list_desc = structure<ze_command_list_desc_t>(ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC);
  ze_command_list_handle_t recorded = nullptr;
  ZE_OK(ZE(zeCommandListCreate)(p.context, p.devices[0], &list_desc, &recorded));
  ZE_OK(ZE(zeCommandListAppendLaunchKernel)(recorded, kernel, &groups, nullptr, 0, nullptr));
  p.barrier(recorded);
  p.copy(recorded, a, b, 4000);
  ZE_OK(ZE(zeCommandListClose)(recorded));
  auto queue_desc = structure<ze_command_queue_desc_t>(ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC);
  queue_desc.mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS;
  ze_command_queue_handle_t queue = nullptr;
  ZE_OK(ZE(zeCommandQueueCreate)(p.context, p.devices[0], &queue_desc, &queue));
  for (int i = 0; i < 2; ++i) ZE_OK(ZE(zeCommandQueueExecuteCommandLists)(queue, 1, &recorded, nullptr));
  ZE_OK(ZE(zeCommandQueueSynchronize)(queue, UINT64_MAX));
  p.copy(list, z.data(), a, 4000, fresh);
  p.wait(fresh);
  for (int i = 0; i < 1000; ++i) CHECK(z[i] == 9.0f * x[i]);

  ZE_OK(ZE(zeCommandListDestroy)(recorded));
  ZE_OK(ZE(zeCommandQueueDestroy)(queue));
  ZE_OK(ZE(zeCommandListDestroy)(list));
  ZE_OK(ZE(zeKernelDestroy)(kernel));
  ZE_OK(ZE(zeModuleDestroy)(module));
  ZE_OK(ZE(zeEventDestroy)(done));
  ZE_OK(ZE(zeEventDestroy)(fresh));
  ZE_OK(ZE(zeEventPoolDestroy)(p.pool));
  p.free(a);
  p.free(b);
  ZE_OK(ZE(zeContextDestroy)(p.context));
}

TEST_F(LevelZeroFace, AWellBehavedProgramLeavesACleanReport) {
  for (const char* seed : {"0", "1", "2"}) {
    const auto report = run(well_behaved_program, {{"SIM_SEED", seed}});
    EXPECT_EQ(report.at("violations"), nlohmann::json::array()) << "seed " << seed;
    EXPECT_EQ(report.at("leaks"), nlohmann::json::array()) << "seed " << seed;
    EXPECT_EQ(report.at("calls").at("zeCommandListAppendMemoryCopy"), 4);
    EXPECT_EQ(report.at("calls").at("zeCommandListAppendMemoryFill"), 0);
  }
}

TEST_F(LevelZeroFace, TheLoaderMayWrapHandles) {
  const auto report = run(well_behaved_program, {{"ZE_ENABLE_LOADER_INTERCEPT", "1"}}, false);
  EXPECT_EQ(kinds(report), "");
}

TEST_F(LevelZeroFace, DevicesFollowTheMask) {
  for (const auto& [mask, count] : std::vector<std::pair<const char*, std::size_t>>{
           {"", 4}, {"1,3", 2}, {"2.0", 1}, {"2.1", 0}, {"9", 0}, {"0,0", 1}}) {
    SCOPED_TRACE(mask);
    run(
        [count = count] {
          // A loader that counts devices at the start (1.20) finds no driver then.
          if (count == 0 && ZE(zeInit)(ZE_INIT_FLAG_GPU_ONLY) == ZE_RESULT_ERROR_UNINITIALIZED) return;
          Program p;
          CHECK(p.devices.size() == count);
        },
        {{"SIM_DEVICES", "4"}, {"ZE_AFFINITY_MASK", mask}});
  }
  run(
      [] {
        Program p;
        auto properties = structure<ze_device_properties_t>(ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES);
        ZE_OK(ZE(zeDeviceGetProperties)(p.devices[0], &properties));
        CHECK(std::string(properties.name) == "Simulated GPU 2");
      },
      {{"SIM_DEVICES", "4"}, {"ZE_AFFINITY_MASK", "3,2"}});
}

TEST_F(LevelZeroFace, WhatIsNotDestroyedIsALeak) {
  const auto report = run([] {
    Program p;
    p.allocate(100);
  });
  EXPECT_EQ(report.at("leaks").size(), 3u) << report.at("leaks");  // context, event pool, memory
}

TEST_F(LevelZeroFace, WithoutBarriersCommandsOfAnImmediateListRace) {
  const auto program = [](std::uint32_t flags) {
    Program p;
    std::vector<char> in(64), out(64);
    char* a = p.allocate(64);
    const auto list = p.immediate(flags);
    const auto done = p.event();
    p.copy(list, a, in.data(), 64);
    p.copy(list, out.data(), a, 64, done);
    p.wait(done);
    p.barrier(list);  // the last command of the list, so that the process does not end before it
  };
  EXPECT_EQ(kinds(run([&] { program(0); })), "race");
  // The flag of later specifications; the validation layer of 1.8.12 does not know it.
  EXPECT_EQ(kinds(run([&] { program(2); }, {{"SIM_LEVEL_ZERO_VERSION", "1.9"}}, false)), "");
}

TEST_F(LevelZeroFace, ModulesAreChecked) {
  const auto report = run([] {
    Program p;
    ze_module_handle_t module = nullptr;
    std::string log;
    CHECK(p.try_module({1, 2, 3, 4, 5}, &module, &log) == ZE_RESULT_ERROR_MODULE_BUILD_FAILURE);
    CHECK(log.find("magic") != std::string::npos);
    CHECK(p.try_module(spirv({{"sim_scale", 4, 32}}, 0x00010600), &module, &log) ==
          ZE_RESULT_ERROR_MODULE_BUILD_FAILURE);
    CHECK(log.find("SPIR-V 1.6") != std::string::npos);
    CHECK(p.try_module(spirv({{"no_such_kernel", 1, 0}}), &module, &log) == ZE_RESULT_ERROR_MODULE_BUILD_FAILURE);
    CHECK(log.find("no_such_kernel") != std::string::npos);
    CHECK(p.try_module(spirv({{"sim_scale", 3, 32}}), &module, &log) == ZE_RESULT_ERROR_MODULE_BUILD_FAILURE);
    CHECK(log.find("3 parameters") != std::string::npos);
    CHECK(p.try_module(spirv({{"sim_scale", 4, 16}}), &module, &log) == ZE_RESULT_ERROR_MODULE_BUILD_FAILURE);
    CHECK(log.find("groups of 16") != std::string::npos);
    auto cut = spirv({{"sim_scale", 4, 32}});
    cut.pop_back();
    CHECK(p.try_module(cut, &module, &log) == ZE_RESULT_ERROR_MODULE_BUILD_FAILURE);
    ZE_OK(p.try_module(spirv({{"sim_scale", 4, 0}, {"sim_reverse", 2, 32}}), &module, &log));
    std::uint32_t count = 0;
    ZE_OK(ZE(zeModuleGetKernelNames)(module, &count, nullptr));
    CHECK(count == 2);
  });
  EXPECT_EQ(kinds(report), "");
}

TEST_F(LevelZeroFace, KernelsAreChecked) {
  const auto report = run([] {
    Program p;
    ze_module_handle_t module = nullptr;
    std::string log;
    ZE_OK(p.try_module(spirv({{"sim_scale", 4, 32}}), &module, &log));
    auto desc = structure<ze_kernel_desc_t>(ZE_STRUCTURE_TYPE_KERNEL_DESC);
    ze_kernel_handle_t kernel = nullptr;
    desc.pKernelName = "sim_reverse";
    CHECK(ZE(zeKernelCreate)(module, &desc, &kernel) == ZE_RESULT_ERROR_INVALID_KERNEL_NAME);
    desc.pKernelName = "sim_scale";
    ZE_OK(ZE(zeKernelCreate)(module, &desc, &kernel));
    const auto list = p.immediate();
    const ze_group_count_t groups = {1, 1, 1};
    const double value = 0;
    CHECK(ZE(zeCommandListAppendLaunchKernel)(list, kernel, &groups, nullptr, 0, nullptr) ==
          ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION);
    CHECK(ZE(zeKernelSetGroupSize)(kernel, 16, 1, 1) == ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION);
    CHECK(ZE(zeKernelSetArgumentValue)(kernel, 2, 8, &value) == ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE);
    CHECK(ZE(zeKernelSetArgumentValue)(kernel, 4, 8, &value) == ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX);
    ZE_OK(ZE(zeKernelSetGroupSize)(kernel, 32, 1, 1));
    CHECK(ZE(zeCommandListAppendLaunchKernel)(list, kernel, &groups, nullptr, 0, nullptr) ==
          ZE_RESULT_ERROR_INVALID_ARGUMENT);
  });
  EXPECT_EQ(kinds(report), "kernel-state,kernel-state,kernel-state,kernel-state,kernel-state");
}

TEST_F(LevelZeroFace, CommandListsKnowTheirState) {
  const auto report = run(
      [] {
        Program p;
        auto desc = structure<ze_command_list_desc_t>(ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC);
        auto queue_desc = structure<ze_command_queue_desc_t>(ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC);
        ze_command_list_handle_t list = nullptr;
        ze_command_queue_handle_t queue = nullptr;
        ZE_OK(ZE(zeCommandListCreate)(p.context, p.devices[0], &desc, &list));
        ZE_OK(ZE(zeCommandQueueCreate)(p.context, p.devices[0], &queue_desc, &queue));
        CHECK(ZE(zeCommandQueueExecuteCommandLists)(queue, 1, &list, nullptr) == ZE_RESULT_ERROR_INVALID_ARGUMENT);
        const auto gate = p.event();
        ze_event_handle_t waits[] = {gate};
        ZE_OK(ZE(zeCommandListAppendWaitOnEvents)(list, 1, waits));
        ZE_OK(ZE(zeCommandListClose)(list));
        CHECK(ZE(zeCommandListAppendBarrier)(list, nullptr, 0, nullptr) == ZE_RESULT_ERROR_INVALID_ARGUMENT);
        ZE_OK(ZE(zeCommandQueueExecuteCommandLists)(queue, 1, &list, nullptr));
        CHECK(ZE(zeCommandListReset)(list) == ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE);
        CHECK(ZE(zeEventDestroy)(gate) == ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE);
        CHECK(ZE(zeCommandQueueSynchronize)(queue, 0) == ZE_RESULT_NOT_READY);
        ZE_OK(ZE(zeEventHostSignal)(gate));
        ZE_OK(ZE(zeCommandQueueSynchronize)(queue, UINT64_MAX));
        ZE_OK(ZE(zeCommandListReset)(list));
      },
      {}, false);  // the layer's own idea of handles does not survive refused destroys
  EXPECT_EQ(kinds(report), "list-state,list-state,list-state,destroyed-in-use");
}

TEST_F(LevelZeroFace, DestroyedHandlesAndForeignOnes) {
  const auto report = run(
      [] {
        Program p;
        const auto list = p.immediate();
        ZE_OK(ZE(zeCommandListDestroy)(list));
        CHECK(ZE(zeCommandListAppendBarrier)(list, nullptr, 0, nullptr) == ZE_RESULT_ERROR_INVALID_ARGUMENT);
        CHECK(ZE(zeContextDestroy)(p.context) == ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE);
        const auto event = reinterpret_cast<ze_event_handle_t>(p.pool);
        CHECK(ZE(zeEventQueryStatus)(event) == ZE_RESULT_ERROR_INVALID_ARGUMENT);
      },
      {}, false);
  EXPECT_EQ(kinds(report), "bad-handle,destroyed-in-use,bad-handle");
}

TEST_F(LevelZeroFace, FaultsComeAsTheVendorsErrors) {
  run(
      [] {
        Program p;
        void* pointer = nullptr;
        ZE_OK(p.try_allocate(64, &pointer));
        CHECK(p.try_allocate(64, &pointer) == ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
        CHECK(p.try_allocate(std::size_t{2} << 20, &pointer) == ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
      },
      {{"SIM_FAULT", "oom:call=2"}, {"SIM_MEMORY", "1m"}});
  run([] { CHECK(ZE(zeInit)(ZE_INIT_FLAG_GPU_ONLY) == ZE_RESULT_ERROR_UNINITIALIZED); }, {{"SIM_FAULT", "init"}});
  run(
      [] {
        Program p;
        ze_bool_t reach = 1;
        ZE_OK(ZE(zeDeviceCanAccessPeer)(p.devices[0], p.devices[1], &reach));
        CHECK(!reach);
        const auto list = p.immediate();
        CHECK(ZE(zeCommandListAppendBarrier)(list, nullptr, 0, nullptr) == ZE_RESULT_ERROR_UNKNOWN);
        ZE_OK(ZE(zeCommandListAppendBarrier)(list, nullptr, 0, nullptr));
        CHECK(ZE(zeEventHostReset)(p.event()) == ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
      },
      {{"SIM_FAULT", "no_peer;fail:zeCommandListAppendBarrier,call=1;hide:zeEventHostReset"}}, false);
  run(
      [] {
        Program p;
        std::vector<char> in(64);
        char* a = p.allocate(64);
        const auto list = p.immediate();
        const auto done = p.event();
        p.copy(list, a, in.data(), 64, done);
        CHECK(ZE(zeEventHostSynchronize)(done, UINT64_MAX) == ZE_RESULT_ERROR_DEVICE_LOST);
        CHECK(ZE(zeCommandListAppendBarrier)(list, nullptr, 0, nullptr) == ZE_RESULT_ERROR_DEVICE_LOST);
        CHECK(ZE(zeDeviceGetStatus)(p.devices[0]) == ZE_RESULT_ERROR_DEVICE_LOST);
      },
      {{"SIM_FAULT", "device_lost:command=1"}});
}

}  // namespace
