// ZenFlow's calls of ops::CPUAdam: a worker in a thread and in a process of its own gives the bits that adam_update gives, errors
// reach the side that waits, and wrong calls are refused.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "anyaccel/detection.h"
#include "anyaccel/error.h"
#include "anyaccel/op_builder.h"
#include "anyaccel/ops/cpu_adam.h"
#include "base/files/files.h"

namespace anyaccel {
namespace {

using ops::CPUAdam;

constexpr int zen_id = 7;
constexpr int64_t zen_sizes[] = {1000, 37};
constexpr int zen_groups = 2;

std::shared_ptr<CPUAdam> zen_library() {
  setenv("DS_ACCELERATOR", "cpu", 0);
  return get_accelerator()->create_op_builder("CPUAdamBuilder")->load_as<CPUAdam>();
}

// The parameters, gradients and copies of all groups, and the control block, in memory that may be a file's.
struct ZenMemory {
  explicit ZenMemory(const std::string& file, bool make) {
    std::ofstream(file, std::ios::app | std::ios::binary).close();
    const std::unique_ptr<FILE, int (*)(FILE*)> opened(std::fopen(file.c_str(), "r+b"), &std::fclose);
    EXPECT_TRUE(opened);
    if (make) {
      EXPECT_EQ(ftruncate(fileno(opened.get()), bytes()), 0);
    }
    base = static_cast<char*>(
        mmap(nullptr, static_cast<size_t>(bytes()), PROT_READ | PROT_WRITE, MAP_SHARED, fileno(opened.get()), 0));
    EXPECT_NE(base, MAP_FAILED);
  }
  ~ZenMemory() { munmap(base, static_cast<size_t>(bytes())); }
  static int64_t control_bytes() { return (CPUAdam::zenflow_adam_ctrl_size() + 4095) / 4096 * 4096; }
  static int64_t bytes() { return control_bytes() + zen_groups * 4 * 4096; }
  void* control() const { return base; }
  // Which: 0 parameters, 1 and 2 gradients, 3 the stale copy.
  Tensor tensor(int group, int which) const {
    return Tensor::from_blob(base + control_bytes() + (group * 4 + which) * 4096, Shape{zen_sizes[group]}, DType::F32,
                             nullptr);
  }
  char* base;
};

Tensor zen_numbers(int64_t count, int seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>((i * 37 + seed * 101) % 211 - 105) / 100);
  return Tensor::from_host(values.data(), {count}, DType::F32);
}

// A worker on that memory: what a process of the optimizer does.
void run_zen_worker(const ZenMemory& memory, std::span<const int> cores = {}) {
  auto library = zen_library();
  library->create_adam(zen_id);
  const int handle = library->zenflow_adam_create(zen_id, cores);
  for (int g = 0; g < zen_groups; ++g) {
    const auto moments = [&] { return Tensor::zeros({zen_sizes[g]}, DType::F32); };
    library->zenflow_adam_register_group(handle, memory.tensor(g, 0), memory.tensor(g, 1), memory.tensor(g, 2),
                                         moments(), moments(), moments(), moments(),
                                         g == 0 ? memory.tensor(g, 3) : Tensor());
  }
  library->zenflow_adam_run_worker(handle, memory.control());
  library->zenflow_adam_destroy(handle);
}

struct ZenRates {
  std::vector<float> lr{0.01f, 0.02f}, beta1{0.9f, 0.8f}, beta2{0.999f, 0.99f}, eps{1e-8f, 1e-6f}, decay{0.0f, 0.1f};
  std::vector<uint8_t> correction{1, 0};
};

void submit_zen(const ZenMemory& memory, int state, int64_t step, const ZenRates& r = {}) {
  CPUAdam::zenflow_adam_submit(memory.control(), state, step, r.lr, r.beta1, r.beta2, r.eps, r.decay, r.correction);
}

// Four steps by the worker, which someone else runs, against adam_update.
void check_zen_steps(const ZenMemory& memory) {
  auto library = zen_library();
  library->create_adam(zen_id + 1);
  const ZenRates rates;
  struct Plain {
    Tensor param;
    std::array<Tensor, 2> exp_avg, exp_avg_sq;
  };
  std::vector<Plain> plain;
  for (int g = 0; g < zen_groups; ++g) {
    memory.tensor(g, 0).copy_from(zen_numbers(zen_sizes[g], g));
    const auto moments = [&] { return Tensor::zeros({zen_sizes[g]}, DType::F32); };
    plain.push_back({zen_numbers(zen_sizes[g], g), {moments(), moments()}, {moments(), moments()}});
  }
  for (int64_t step = 1; step <= 4; ++step) {
    const auto state = static_cast<size_t>(step % 2);
    for (int g = 0; g < zen_groups; ++g) {
      const Tensor gradient = zen_numbers(zen_sizes[g], static_cast<int>(step) * 10 + g);
      memory.tensor(g, 1 + static_cast<int>(state)).copy_from(gradient);
      Plain& p = plain[static_cast<size_t>(g)];
      const auto i = static_cast<size_t>(g);
      library->adam_update(zen_id + 1, step, static_cast<double>(rates.lr[i]), static_cast<double>(rates.beta1[i]),
                           static_cast<double>(rates.beta2[i]), static_cast<double>(rates.eps[i]),
                           static_cast<double>(rates.decay[i]), rates.correction[i] != 0, p.param, gradient,
                           p.exp_avg[state], p.exp_avg_sq[state]);
    }
    submit_zen(memory, static_cast<int>(state), step);
    ASSERT_TRUE(CPUAdam::zenflow_adam_wait(memory.control(), 60));
    for (int g = 0; g < zen_groups; ++g) {
      EXPECT_EQ(memory.tensor(g, 0).to_vector<float>(), plain[static_cast<size_t>(g)].param.to_vector<float>()) << step;
    }
    EXPECT_EQ(memory.tensor(0, 3).to_vector<float>(), plain[0].param.to_vector<float>());
  }
}

int first_core() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof(allowed), &allowed);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<size_t>(core), &allowed)) return core;
  }
  return 0;
}

TEST(ZenFlowTest, StepsInAThread) {
  const TemporaryFolder folder("zenflow");
  const ZenMemory memory(folder.file("memory"), true);
  CPUAdam::zenflow_adam_ctrl_init(memory.control(), zen_groups);
  EXPECT_FALSE(CPUAdam::zenflow_adam_wait(memory.control(), 0));
  EXPECT_FALSE(CPUAdam::zenflow_adam_wait(memory.control(), 0.02));
  const int core = first_core();
  zen_library();  // sets the environment before there is a thread that reads it
  auto worker = std::async(std::launch::async, [&] { run_zen_worker(memory, {&core, 1}); });
  check_zen_steps(memory);
  CPUAdam::zenflow_adam_ctrl_exit(memory.control());
  worker.get();
}

// Not a test by itself: the process of the next one.
TEST(ZenFlowTest, DISABLED_TheOtherProcess) {
  const char* file = std::getenv("ANYACCEL_TEST_ZENFLOW");
  if (!file) GTEST_SKIP();
  run_zen_worker(ZenMemory(file, false));
}

TEST(ZenFlowTest, StepsInAProcess) {
  const TemporaryFolder folder("zenflow");
  const std::string file = folder.file("memory");
  const ZenMemory memory(file, true);
  CPUAdam::zenflow_adam_ctrl_init(memory.control(), zen_groups);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    setenv("ANYACCEL_TEST_ZENFLOW", file.c_str(), 1);
    execl("/proc/self/exe", "zenflow_test", "--gtest_brief=1", "--gtest_also_run_disabled_tests",
          "--gtest_filter=ZenFlowTest.DISABLED_TheOtherProcess", nullptr);
    _exit(1);
  }
  check_zen_steps(memory);
  CPUAdam::zenflow_adam_ctrl_exit(memory.control());
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(ZenFlowTest, StepsThatFailAndStepsThatWait) {
  const TemporaryFolder folder("zenflow");
  const ZenMemory memory(folder.file("memory"), true);
  CPUAdam::zenflow_adam_ctrl_init(memory.control(), zen_groups);
  ZenRates wrong;
  wrong.beta1[1] = 2;
  submit_zen(memory, 0, 1, wrong);
  submit_zen(memory, 1, 1);
  submit_zen(memory, 0, 2);
  submit_zen(memory, 1, 2);
  try {
    submit_zen(memory, 0, 3);
    ADD_FAILURE() << "a fifth step";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("4 steps wait already"), std::string::npos) << error.what();
  }
  CPUAdam::zenflow_adam_ctrl_exit(memory.control());
  auto worker = std::async(std::launch::async, [&] { run_zen_worker(memory); });
  try {
    CPUAdam::zenflow_adam_wait(memory.control(), 60);
    ADD_FAILURE() << "a beta of 2";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("beta1"), std::string::npos) << error.what();
  }
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(CPUAdam::zenflow_adam_wait(memory.control(), 60));
  worker.get();
  EXPECT_FALSE(CPUAdam::zenflow_adam_wait(memory.control(), 0));
}

void expect_zen_error(const std::function<void()>& call, const std::string& words) {
  try {
    call();
    ADD_FAILURE() << "no error about " << words;
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

TEST(ZenFlowTest, Refusals) {
  auto library = zen_library();
  library->create_adam(zen_id);
  const TemporaryFolder folder("zenflow");
  const ZenMemory memory(folder.file("memory"), true);
  void* const block = memory.control();
  expect_zen_error([&] { submit_zen(memory, 0, 1); }, "there is no control block");
  expect_zen_error([&] { CPUAdam::zenflow_adam_wait(nullptr, 1); }, "there is no control block");
  expect_zen_error([&] { CPUAdam::zenflow_adam_ctrl_exit(static_cast<char*>(block) + 4); },
                   "there is no control block");
  expect_zen_error([&] { CPUAdam::zenflow_adam_ctrl_init(block, 0); }, "num_groups is 0");
  expect_zen_error([&] { CPUAdam::zenflow_adam_ctrl_init(block, 1025); }, "num_groups is 1025");
  expect_zen_error([&] { CPUAdam::zenflow_adam_ctrl_init(static_cast<char*>(block) + 8, 1); }, "multiple of 64");
  CPUAdam::zenflow_adam_ctrl_init(block, 2);
  ZenRates short_list;
  short_list.eps.pop_back();
  expect_zen_error([&] { submit_zen(memory, 0, 1, short_list); },
                   "eps has 1 values; expected one for each of 2 groups");
  expect_zen_error([&] { submit_zen(memory, 2, 1); }, "now_state is 2");
  expect_zen_error([&] { CPUAdam::zenflow_adam_wait(block, -1); }, "timeout_s is");
  expect_zen_error([&] { library->zenflow_adam_create(12345); }, "12345");
  const int core = 100000;
  expect_zen_error([&] { library->zenflow_adam_create(zen_id, {&core, 1}); }, "core 100000");
  const int handle = library->zenflow_adam_create(zen_id);
  const Tensor x = zen_numbers(4, 1), y = zen_numbers(5, 1);
  expect_zen_error([&] { library->zenflow_adam_register_group(handle, x, x, y, x, x, x, x); }, "grad1 has shape [5]");
  expect_zen_error([&] { library->zenflow_adam_register_group(handle, x, x, x, x, {}, x, x); }, "exp_avg1 is absent");
  expect_zen_error([&] { library->zenflow_adam_register_group(handle, x, x, x, x, x, x, x, y); },
                   "stale has shape [5]");
  expect_zen_error([&] { library->zenflow_adam_register_group(99, x, x, x, x, x, x, x); }, "worker 99");
  expect_zen_error([&] { library->zenflow_adam_run_worker(handle, block); }, "has 0 groups");
  expect_zen_error([&] { library->zenflow_adam_run_worker(99, block); }, "worker 99");
  library->zenflow_adam_destroy(handle);
  library->zenflow_adam_destroy(handle);
}

}  // namespace
}  // namespace anyaccel
