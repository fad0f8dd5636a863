// Detection, the environment that steers it, and the accelerator object of the process.
#include "anyaccel/detection.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "anyaccel/accelerator.h"
#include "anyaccel/driver_accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/op_builder.h"
#include "anyaccel/ops/training.h"

namespace anyaccel {
namespace {

class Detection : public ::testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }
  void clear() {
    unsetenv("DS_ACCELERATOR");
    unsetenv("ANYACCEL_PLUGIN_PATH");
    reset_accelerator();
  }
  static std::string message_of(void (*body)()) {
    try {
      body();
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  }
};

TEST_F(Detection, FallsBackToTheCpuAndSaysWhatItTried) {
  EXPECT_EQ(get_accelerator()->name(), "cpu");
  const DetectionReport report = detection_report();
  EXPECT_EQ(report.chosen, "cpu");
  EXPECT_EQ(report.method, "auto detect");
  // The order of the interface's documentation.
  std::vector<std::string> order;
  for (const Candidate& candidate : report.candidates) order.push_back(candidate.name);
  EXPECT_EQ(order, (std::vector<std::string>{"xpu", "npu", "sdaa", "mps", "hpu", "mlu", "cuda", "cpu", "null"}));
  for (const Candidate& candidate : report.candidates) EXPECT_FALSE(candidate.reason.empty()) << candidate.name;
  EXPECT_TRUE(is_current_accelerator_supported());
  EXPECT_NE(accelerator_choice_summary().find("cpu"), std::string::npos);
}

TEST_F(Detection, OneRankOfAHostWarnsThatThereIsNothingElse) {
  const auto warns = [&](const char* local_rank) {
    clear();
    local_rank ? setenv("LOCAL_RANK", local_rank, 1) : unsetenv("LOCAL_RANK");
    ::testing::internal::CaptureStderr();
    get_accelerator();
    unsetenv("LOCAL_RANK");
    return ::testing::internal::GetCapturedStderr().find(
               "anyaccel: warning: Setting accelerator to CPU. If you have GPU or other accelerator, we were unable to "
               "detect it. `anyaccel info` says why.") != std::string::npos;
  };
  EXPECT_TRUE(warns(nullptr));
  EXPECT_TRUE(warns("0"));
  EXPECT_FALSE(warns("1"));
}

TEST_F(Detection, IsTheSameObjectFromEveryThread) {
  std::vector<std::thread> threads;
  std::vector<Accelerator*> seen(8);
  for (size_t i = 0; i < seen.size(); ++i) threads.emplace_back([&seen, i] { seen[i] = get_accelerator(); });
  for (auto& thread : threads) thread.join();
  for (Accelerator* accelerator : seen) EXPECT_EQ(accelerator, get_accelerator());
}

TEST_F(Detection, EmptyVariableCountsAsUnset) {
  setenv("DS_ACCELERATOR", "", 1);
  EXPECT_EQ(get_accelerator()->name(), "cpu");
}

TEST_F(Detection, ForcedByName) {
  setenv("DS_ACCELERATOR", "null", 1);
  EXPECT_EQ(get_accelerator()->name(), "null");
  EXPECT_EQ(detection_report().method, "DS_ACCELERATOR");
}

TEST_F(Detection, UnknownNameListsTheKnownOnes) {
  setenv("DS_ACCELERATOR", "gpu", 1);
  const std::string message = message_of([] { get_accelerator(); });
  for (const char* part : {"\"gpu\"", "cuda", "cpu", "xpu", "xpu.external", "npu", "mps", "hpu", "mlu", "sdaa"}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " is not in: " << message;
  }
  setenv("DS_ACCELERATOR", "cpu", 1);
  EXPECT_EQ(get_accelerator()->name(), "cpu") << "a failed detection must not stick";
}

TEST_F(Detection, NamesAreCaseSensitive) {
  setenv("DS_ACCELERATOR", "CPU", 1);
  EXPECT_THROW(get_accelerator(), InvalidArgument);
}

// The first words are DeepSpeed's.
TEST_F(Detection, NamesWithADriverSayWhatTheMachineLacks) {
  const struct {
    const char* name;
    const char* words;
  } cases[] = {
      {"xpu",
       "XPU_Accelerator requires an Intel GPU driver (Level Zero or OpenCL): DS_ACCELERATOR asks for \"xpu\", which is "
       "absent on this machine: "},
      {"cuda",
       "CUDA_Accelerator requires an NVIDIA driver (libcuda.so.1), or ROCm: DS_ACCELERATOR asks for \"cuda\", "},
      {"mps",
       "MPS_Accelerator requires macOS on Apple silicon (Metal): DS_ACCELERATOR asks for \"mps\", which is absent on "
       "this "
       "machine: Metal is a part of macOS, and this is Linux on "},
      {"npu", "NPU_Accelerator requires CANN (libascendcl.so): DS_ACCELERATOR asks for \"npu\", "},
      {"hpu", "HPU_Accelerator requires Synapse (libSynapse.so): DS_ACCELERATOR asks for \"hpu\", "},
      {"mlu", "MLU_Accelerator requires Neuware (libcnrt.so): DS_ACCELERATOR asks for \"mlu\", "},
      {"sdaa", "SDAA_Accelerator requires Tecorigin's runtime (libsdaart.so): DS_ACCELERATOR asks for \"sdaa\", "}};
  for (const auto& c : cases) {
    setenv("DS_ACCELERATOR", c.name, 1);
    const std::string message = message_of([] { get_accelerator(); });
    if (message.empty()) continue;  // a machine that has it
    EXPECT_EQ(message.rfind(c.words, 0), 0u) << message;
    EXPECT_GT(message.size(), std::string(c.words).size() + 10) << "no reason: " << message;
  }
}

TEST_F(Detection, ExternalWithoutAPluginSaysHowToGiveOne) {
  setenv("DS_ACCELERATOR", "xpu.external", 1);
  const std::string message = message_of([] { get_accelerator(); });
  EXPECT_NE(message.find("ANYACCEL_PLUGIN_PATH"), std::string::npos) << message;
}

TEST_F(Detection, MissingPluginFileIsNamed) {
  setenv("DS_ACCELERATOR", "xpu.external", 1);
  setenv("ANYACCEL_PLUGIN_PATH", "/nonexistent/libxpu.so", 1);
  const std::string message = message_of([] { get_accelerator(); });
  EXPECT_NE(message.find("/nonexistent/libxpu.so"), std::string::npos) << message;
}

TEST_F(Detection, SetAcceleratorReplacesIt) {
  set_accelerator(make_accelerator("null"));
  EXPECT_EQ(get_accelerator()->name(), "null");
  EXPECT_EQ(detection_report().method, "set_accelerator()");
  EXPECT_THROW(set_accelerator(nullptr), InvalidArgument);
  EXPECT_EQ(get_accelerator()->name(), "null");
}

// A program's own accelerator: derived, with one thing changed.
class Renamed final : public DriverAccelerator {
 public:
  explicit Renamed(const abi::DriverCalls* driver) : DriverAccelerator(driver) {}
  std::string communication_backend_name() const override { return "pigeons"; }
};

TEST_F(Detection, DerivedAcceleratorIsUsed) {
  auto base = make_accelerator("cpu");
  const abi::DriverCalls* driver = &dynamic_cast<DriverAccelerator&>(*base).driver();
  set_accelerator(std::make_unique<Renamed>(driver));
  EXPECT_EQ(get_accelerator()->communication_backend_name(), "pigeons");
  EXPECT_EQ(Tensor::zeros({3}, DType::F32, get_accelerator()->device()).to_vector<float>().size(), 3u);
}

TEST_F(Detection, RandomStateIsSavedAndRestored) {
  Accelerator& accelerator = *get_accelerator();
  accelerator.manual_seed(99);
  EXPECT_EQ(accelerator.initial_seed(), 99u);
  accelerator.default_generator(0).reserve(10);
  const RngState state = accelerator.get_rng_state();
  EXPECT_EQ(state, (RngState{99, 10}));
  accelerator.manual_seed_all(1);
  accelerator.set_rng_state(state);
  EXPECT_EQ(accelerator.random().get_state(), state);
}

TEST_F(Detection, OpBuilderNames) {
  Accelerator& accelerator = *get_accelerator();
  EXPECT_EQ(accelerator.create_op_builder("NoSuchBuilder"), nullptr);
  EXPECT_FALSE(accelerator.get_op_builder("NoSuchBuilder"));
  ASSERT_NE(accelerator.create_op_builder("InferenceBuilder"), nullptr);
  EXPECT_EQ(accelerator.get_op_builder("InferenceBuilder")()->name(), "InferenceBuilder");
  auto missing = accelerator.create_op_builder("DeepCompileBuilder");
  ASSERT_NE(missing, nullptr);
  std::string reason;
  EXPECT_FALSE(missing->is_compatible(&reason));
  try {
    missing->load();
    FAIL() << "loaded an op that does not exist";
  } catch (const NotImplementedError& error) {
    EXPECT_NE(std::string(error.what()).find("DeepCompileBuilder"), std::string::npos);
    EXPECT_EQ(error.what(), reason);
  }
}

TEST_F(Detection, CompileBackendsAreListed) {
  Accelerator& accelerator = *get_accelerator();
  EXPECT_EQ(accelerator.get_compile_backend(), "graph");
  accelerator.set_compile_backend("eager");
  EXPECT_EQ(accelerator.get_compile_backend(), "eager");
  try {
    accelerator.set_compile_backend("inductor");
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("graph, eager"), std::string::npos) << error.what();
  }
}

TEST_F(Detection, AmpScopesNest) {
  Accelerator& accelerator = *get_accelerator();
  EXPECT_EQ(accelerator.amp_dtype(), DType::None);
  {
    auto outer = accelerator.amp(DType::BF16);
    EXPECT_EQ(accelerator.amp_dtype(), DType::BF16);
    {
      auto inner = accelerator.amp(DType::None);
      EXPECT_EQ(accelerator.amp_dtype(), DType::None);
    }
    EXPECT_EQ(accelerator.amp_dtype(), DType::BF16);
  }
  EXPECT_EQ(accelerator.amp_dtype(), DType::None);
  EXPECT_THROW(static_cast<void>(accelerator.amp(DType::I32)), InvalidArgument);
}

TEST_F(Detection, AmpRoundsTheInputsOfEveryProduct) {
  Accelerator& accelerator = *get_accelerator();
  const Tensor x = accelerator.FloatTensor({1, 1}), w = accelerator.FloatTensor({1, 1});
  const Tensor by_linear = accelerator.FloatTensor({1, 1}), by_matmul = accelerator.FloatTensor({1, 1});
  x.fill(1.001);  // between two numbers of bf16, of which 1 is nearer
  w.fill(3);
  ops::Training ops(accelerator);
  const auto products = [&] {
    ops.linear(by_linear, x, w);
    ops.matmul(by_matmul, x, w);
    return std::pair(by_linear.item<float>(), by_matmul.item<float>());
  };
  EXPECT_EQ(products(), std::pair(1.001f * 3, 1.001f * 3));
  const ScopeGuard amp = accelerator.amp(DType::BF16);
  EXPECT_EQ(products(), std::pair(3.0f, 3.0f));
  EXPECT_THROW(ops.linear(by_linear, x.to(DType::I32), w), InvalidArgument);
  EXPECT_THROW(ops.matmul(by_matmul, x, w.to(DType::I64)), InvalidArgument);
}

TEST_F(Detection, LazyCallRunsWhenTheDeviceOpens) {
  Accelerator& accelerator = *get_accelerator();
  int calls = 0;
  accelerator.lazy_call([&] { ++calls; });
  EXPECT_EQ(calls, 0);
  accelerator.synchronize();
  EXPECT_EQ(calls, 1);
  accelerator.lazy_call([&] { ++calls; });
  EXPECT_EQ(calls, 2);
}

TEST_F(Detection, VisibleDevices) {
  std::map<std::string, std::string> env;
  get_accelerator()->set_visible_devices_envs(env, {"0", "2"});
  for (const std::string& name : get_accelerator()->visible_devices_envs()) EXPECT_EQ(env.at(name), "0,2");
  EXPECT_EQ(env.size(), get_accelerator()->visible_devices_envs().size());
}

TEST_F(Detection, TensorFactories) {
  Accelerator& accelerator = *get_accelerator();
  EXPECT_EQ(accelerator.HalfTensor({2, 3}).dtype(), DType::F16);
  EXPECT_EQ(accelerator.BFloat16Tensor({2}).dtype(), DType::BF16);
  const std::vector<double> values{1, 2, 3};
  EXPECT_EQ(accelerator.LongTensor(values).to_vector<int64_t>(), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_TRUE(accelerator.on_accelerator(accelerator.FloatTensor(values)));
}

int thread_count() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("Threads:", 0) == 0) return std::stoi(line.substr(8));
  }
  return -1;
}

TEST_F(Detection, ProbingStartsNoThread) {
  const int before = thread_count();
  ASSERT_GE(before, 1);
  probe_all_accelerators();
  EXPECT_EQ(thread_count(), before) << "a process with threads cannot fork safely";
}

}  // namespace
}  // namespace anyaccel
