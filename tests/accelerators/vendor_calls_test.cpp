// Every call of every driver into its vendor's runtime fails once, in turn, while a little of everything is done: memory, copies,
// fills, events, waits, host functions, graphs. Whatever fails is told, or all has been done; nothing hangs or ends the process; and
// what was made can be given back. Then the same for each allocation that finds no memory, and each command that fails or loses the
// device. On the simulated runtimes of the drivers that take addresses of memory. Kernels and operators have tests of their own.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "accelerators/cuda/cuda_driver.h"
#include "accelerators/hpu/hpu_driver.h"
#include "accelerators/mlu/mlu_driver.h"
#include "accelerators/npu/npu_driver.h"
#include "accelerators/sdaa/sdaa_driver.h"
#include "accelerators/xpu/xpu_driver.h"
#include "anyaccel/abi/graph.h"
#include "ops/op_build_support.h"
#include "runtime/driver/driver_table.h"
#include "runtime/driver/host_services.h"
#include "this_build.h"

namespace anyaccel {
namespace {

struct Runtime {
  const char* name;
  aa_driver_query_fn query;
  const char* variable;  // names the simulated library, or its folder
  const char* value;     // below the simulators' folder
  const char* library;
};

void PrintTo(const Runtime& runtime, std::ostream* out) { *out << runtime.name; }

constexpr Runtime runtimes[] = {
    {"cuda", anyaccel_cuda_driver_query, "ANYACCEL_CUDA_LIBRARY_PATH", "cuda", "cuda/libcuda.so.1"},
    {"level_zero", anyaccel_xpu_driver_query, "ZE_ENABLE_ALT_DRIVERS", "libze_sim.so", "libze_sim.so"},
    {"npu", anyaccel_npu_driver_query, "ANYACCEL_NPU_LIBRARY_PATH", "ascend", "ascend/libascendcl.so"},
    {"mlu", anyaccel_mlu_driver_query, "ANYACCEL_MLU_LIBRARY_PATH", "neuware", "neuware/libcnrt.so"},
    {"sdaa", anyaccel_sdaa_driver_query, "ANYACCEL_SDAA_LIBRARY_PATH", "tecorigin", "tecorigin/libsdaart.so"},
    {"hpu", anyaccel_hpu_driver_query, "ANYACCEL_HPU_LIBRARY_PATH", "habana", "habana/libSynapse.so"},
};

// A little of everything. What fails is counted, and the rest is tried nevertheless.
class Everything {
 public:
  explicit Everything(const abi::DriverCalls& driver) : table(driver) {
    aa_initialize_params params{};
    params.struct_size = sizeof(params);
    if (!tried(table.initialize(&params, &instance))) return;
    aa_device_props props{};
    props.struct_size = sizeof(props);
    tried(table.device_props(instance, 0, &props));
    if (tried(table.device_open(instance, 0, &device))) {
      use(props);
      give_back();
    }
    tried(table.shutdown(instance));
  }
  int failed = 0;

 private:
  static constexpr size_t size = 96;

  bool tried(aa_status* status) {
    if (!status) return true;
    const StatusRef taken(status);
    EXPECT_FALSE(taken.ok());
    EXPECT_FALSE(taken.message().empty());
    std::printf("%s\n", std::string(taken.text()).c_str());
    ++failed;
    return false;
  }

  void use(const aa_device_props& props) {
    const void* found = nullptr;
    aa_status* const none = table.query_extension(instance, AA_GRAPH_EXTENSION, 1, &found);
    graphs = none ? nullptr : static_cast<const abi::Calls<aa_graph_table>*>(found);
    release_status(none);
    for (void*& block : memory) tried(table.mem_alloc(device, AA_MEMORY_DEVICE, size, &block));
    if (props.caps & AA_CAP_PINNED_HOST) tried(table.mem_alloc(device, AA_MEMORY_PINNED, size, &pinned));
    for (aa_stream*& stream : streams) tried(table.stream_create(device, 0, AA_STREAM_DEFAULT, &stream));
    for (aa_event*& event : events) tried(table.event_create(device, AA_EVENT_TIMING, &event));
    if (failed == 0 && enqueue(props)) check();
    // Before the memory is freed, also after an error.
    for (aa_stream* stream : streams) {
      if (stream) tried(table.stream_synchronize(stream));
    }
    tried(table.device_synchronize(device));
  }

  // What comes after a failure would not be in order with the rest.
  bool enqueue(const aa_device_props& props) {
    for (size_t i = 0; i < size; ++i) input[i] = static_cast<unsigned char>(i + 1);
    const uint16_t pattern = 0x4321;
    const bool first = tried(table.copy_async(streams[0], memory[0], input.data(), size, AA_COPY_HOST_TO_DEVICE)) &&
                       tried(table.event_record(events[0], streams[0])) &&
                       tried(table.stream_wait_event(streams[1], events[0])) &&
                       tried(table.copy_async(streams[1], memory[1], memory[0], size, AA_COPY_DEVICE_TO_DEVICE)) &&
                       tried(table.fill_async(streams[1], memory[1], &pattern, sizeof(pattern), 16));
    if (!first) return false;
    if (props.caps & AA_CAP_HOST_CALL) {
      calls_host = true;
      const auto count = [](void* user) { ++*static_cast<int*>(user); };
      if (!tried(table.stream_host_call(streams[1], count, &host_calls))) return false;
    }
    if (!tried(table.event_record(events[1], streams[1])) || !tried(table.stream_wait_event(streams[0], events[1]))) {
      return false;
    }
    // In a graph where there are graphs, else at once. What has failed is known before, so that a run does not depend on when.
    if (!tried(table.stream_synchronize(streams[0]))) return false;
    if (graphs && !tried(graphs->capture_begin(streams[0]))) return false;
    const unsigned char byte = 7;
    const bool filled = tried(table.fill_async(streams[0], static_cast<char*>(memory[1]) + 16, &byte, 1, 16)) &&
                        tried(table.copy_async(streams[0], memory[0], memory[1], size, AA_COPY_DEVICE_TO_DEVICE));
    if (graphs && !tried(graphs->capture_end(streams[0], &graph))) return false;
    if (!filled) return false;
    for (int i = 0; graph && i < 2; ++i) {
      if (!tried(graphs->launch(graph, streams[0]))) return false;
    }
    void* const to = pinned ? pinned : output.data();
    return tried(table.copy_async(streams[0], to, memory[0], size, AA_COPY_DEVICE_TO_HOST));
  }

  void check() {
    int32_t done = 0;
    tried(table.event_query(events[1], &done));
    tried(table.event_synchronize(events[1]));
    double milliseconds = 0;
    tried(table.event_elapsed(events[0], events[1], &milliseconds));
    tried(table.stream_query(streams[0], &done));
    tried(table.stream_synchronize(streams[0]));
    int64_t free = 0;
    int64_t total = 0;
    tried(table.device_memory_info(device, &free, &total));
    aa_memory_info info{};
    info.struct_size = sizeof(info);
    tried(table.mem_query(instance, memory[0], &info));
    if (failed > 0) return;
    if (pinned) std::memcpy(output.data(), pinned, size);
    std::array<unsigned char, size> expected = input;
    for (size_t i = 0; i < 32; ++i) expected[i] = static_cast<unsigned char>(i >= 16 ? 7 : i % 2 ? 0x43 : 0x21);
    EXPECT_EQ(output, expected);
    EXPECT_EQ(host_calls, calls_host ? 1 : 0);
  }

  void give_back() {
    if (graph) tried(graphs->destroy(graph));
    for (aa_event* event : events) {
      if (event) tried(table.event_destroy(event));
    }
    for (aa_stream* stream : streams) {
      if (stream) tried(table.stream_destroy(stream));
    }
    for (void* block : memory) {
      if (block) tried(table.mem_free(device, AA_MEMORY_DEVICE, block, size));
    }
    if (pinned) tried(table.mem_free(device, AA_MEMORY_PINNED, pinned, size));
    tried(table.device_close(device));
  }

  const abi::DriverCalls& table;
  aa_instance* instance = nullptr;
  aa_device* device = nullptr;
  const abi::Calls<aa_graph_table>* graphs = nullptr;
  std::array<void*, 2> memory{};
  void* pinned = nullptr;
  std::array<aa_stream*, 2> streams{};
  std::array<aa_event*, 2> events{};
  aa_graph* graph = nullptr;
  std::array<unsigned char, size> input{};
  std::array<unsigned char, size> output{};
  bool calls_host = false;
  int host_calls = 0;
};

int failures() {
  const ::testing::TestResult& result = *::testing::UnitTest::GetInstance()->current_test_info()->result();
  int count = 0;
  for (int i = 0; i < result.total_part_count(); ++i) count += result.GetTestPartResult(i).failed();
  return count;
}

// Everything, in a process with a simulator of its own.
struct Trial {
  std::string output;
  nlohmann::json report;
  int failed = 0;  // calls of the driver; 0 too where the process did not come to its end

  Trial(const Runtime& runtime, const std::string& fault) {
    const test::TemporaryFolder folder;
    const std::string output_file = (folder.path() / "output").string();
    const std::string report_file = (folder.path() / "report").string();
    std::fflush(nullptr);
    const pid_t pid = fork();
    if (pid == 0) child(runtime, fault, output_file, report_file);
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    std::ifstream said(output_file);
    output.assign(std::istreambuf_iterator<char>(said), {});
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << (WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status)) + "\n" : "") << output;
    std::ifstream written(report_file);
    if (written) report = nlohmann::json::parse(written, nullptr, false);
    constexpr std::string_view count = "failed calls: ";
    if (const size_t at = output.rfind(count); at != std::string::npos) failed = std::atoi(&output[at + count.size()]);
  }

  // No rule of the simulator was broken, and nothing is left. (A runtime that did not start writes no report.)
  void expect_clean() const {
    if (!report.is_object()) return;
    EXPECT_TRUE(report["violations"].empty()) << report["violations"].dump(1) << output;
    EXPECT_TRUE(report["leaks"].empty()) << report["leaks"].dump(1) << output;
  }

 private:
  [[noreturn]] static void child(const Runtime& runtime, const std::string& fault, const std::string& output_file,
                                 const std::string& report_file) {
    if (!std::freopen(output_file.c_str(), "w", stdout)) _exit(3);
    dup2(fileno(stdout), STDERR_FILENO);
    alarm(300);  // what hangs in the driver, and not in the simulator, ends too
    for (const char* name : {"SIM_DEVICES", "SIM_SEED", "SIM_STRICT", "SIM_LEVEL_ZERO_VERSION", "ZE_AFFINITY_MASK",
                             "CUDA_VISIBLE_DEVICES", "ANYACCEL_CUDA_DEVICES", "ASCEND_RT_VISIBLE_DEVICES",
                             "ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "HABANA_VISIBLE_MODULES"}) {
      unsetenv(name);
    }
    setenv("ANYACCEL_XPU_RUNTIME", "level_zero", 1);
    setenv(runtime.variable, test::built(std::string("simulators/") + runtime.value).c_str(), 1);
    setenv("SIM_MEMORY", "64m", 1);
    setenv("SIM_HANG_SECONDS", "30", 1);
    setenv("SIM_REPORT", report_file.c_str(), 1);
    setenv("SIM_FAULT", fault.c_str(), 1);
    const int before = failures();
    const abi::DriverCalls* table =
        complete_table(runtime.query(AA_ABI_VERSION(AA_ABI_MAJOR, 0), AA_ABI_CURRENT, host_services()), "built in");
    const int failed = Everything(*table).failed;
    std::printf("failed calls: %d\n", failed);
    std::exit(failures() > before ? 1 : 0);
  }
};

// What could not be given back remains, and with it what it was made from. A capture that was not ended keeps its stream.
bool remains_after(std::string_view function) {
  for (const char* word : {"Destroy", "Free", "Release", "EndCapture", "CaptureEnd"}) {
    if (function.find(word) != std::string_view::npos) return true;
  }
  return false;
}

class VendorCalls : public ::testing::TestWithParam<Runtime> {
 protected:
  void SetUp() override {
    const std::string library = test::built(std::string("simulators/") + GetParam().library);
    if (!std::filesystem::exists(library)) GTEST_SKIP() << library << " was not built";
  }
};

TEST_P(VendorCalls, EachFailsOnce) {
  const Trial whole(GetParam(), "");
  ASSERT_TRUE(whole.report.is_object()) << whole.output;
  EXPECT_EQ(whole.failed, 0) << whole.output;
  whole.expect_clean();
  int told = 0;
  for (const auto& [function, count] : whole.report["calls"].items()) {
    // Of many calls, which come from one loop, some.
    const int calls = count.get<int>();
    for (int call = 1; call <= calls; call += 1 + calls / 40) {
      SCOPED_TRACE(function + ", call " + std::to_string(call) + " of " + std::to_string(calls));
      const Trial trial(GetParam(), "fail:" + function + ",call=" + std::to_string(call));
      told += trial.failed > 0;
      if (!remains_after(function)) trial.expect_clean();
    }
  }
  EXPECT_GE(told, 10);
}

// Until nothing fails: then there was no such command or allocation.
TEST_P(VendorCalls, EachCommandAndAllocationFailsOnce) {
  for (const char* fault : {"oom:call=", "sticky:command=", "device_lost:command="}) {
    int told = 0;
    for (int number = 1, untold = 0; untold < 3; ++number) {
      SCOPED_TRACE(fault + std::to_string(number));
      const Trial trial(GetParam(), fault + std::to_string(number));
      trial.expect_clean();
      told += trial.failed > 0;
      untold = trial.failed > 0 ? 0 : untold + 1;
    }
    EXPECT_GE(told, 2) << fault;
  }
}

INSTANTIATE_TEST_SUITE_P(Runtimes, VendorCalls, ::testing::ValuesIn(runtimes),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace anyaccel
