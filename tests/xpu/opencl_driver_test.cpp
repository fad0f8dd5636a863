// xpu over OpenCL, for real: kernels, memory, streams, events and graphs on PoCL's CPU device. Skipped where there is no
// such driver.
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "conformance/suite.h"
#include "refuse_system_calls.h"
#include "xpu/opencl_test_support.h"

// The structs of portable kernels, as the host fills them.
using aa_i64 = int64_t;
using aa_i32 = int32_t;
#include "kernels/portable/arguments.h"

namespace anyaccel::xpu_test {
namespace {

// Before anything probes.
[[maybe_unused]] const bool forced = [] {
  setenv("ANYACCEL_XPU_RUNTIME", "opencl", 1);
  setenv("ANYACCEL_OPENCL_DEVICE_TYPE", "cpu", 1);
  return true;
}();

constexpr const char* kernels = R"(
typedef struct { long shape[6]; long stride[6]; long inner; int ndim; int dtype; } aa_rows;

// y[group] = sum of the group's 64 numbers, through local memory.
__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void sum_groups(__global float* y, __global const float* x) {
  __local float s[64];
  const int id = get_local_id(0);
  s[id] = x[get_group_id(0) * 64 + id];
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int d = 32; d > 0; d /= 2) {
    if (id < d) s[id] += s[id + d];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (id == 0) y[get_group_id(0)] = s[0];
}

// Rows of a strided matrix times a factor, plus an optional vector.
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void gather_rows(__global float* y, __global const float* x, aa_rows rows, float factor, __global const float* add) {
  const long row = get_group_id(0);
  const long columns = rows.shape[1];
  for (long j = 0; j < columns; ++j) {
    const float v = x[row * rows.stride[0] + j * rows.inner] * factor;
    y[row * columns + j] = add ? v + add[j] : v;
  }
}

__kernel __attribute__((reqd_work_group_size(16, 1, 1)))
void add_number(__global float* y, float number, long count) {
  const long i = get_group_id(0) * 16 + get_local_id(0);
  if (i < count) y[i] += number;
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void spin(__global int* y, int rounds) {
  int v = y[0];
  for (int i = 0; i < rounds; ++i) v = v * 1664525 + 1013904223;
  y[0] = v;
}
)";

aa_status* launch_whatever_the_flags(void* /*self*/, aa_stream* stream, aa_kernel* kernel, const aa_launch* what) {
  aa_launch known = *what;
  known.flags = 0;
  return table().kernel_launch(stream, kernel, &known);
}
aa_status* load_whatever_the_flags(void* /*self*/, aa_device* device, const aa_module_params* params,
                                   aa_module** out_module) {
  aa_module_params known = *params;
  known.flags = 0;
  return table().module_load(device, &known, out_module);
}

// The conformance suite notices a driver that takes flags that it does not know. Of those that every machine can run, only this
// one has kernels of its own. It comes before the tests after which no thread can be started.
TEST(OpenClConformance, UnknownFlagsThatAreTakenFailTheirCase) {
  if (probed().state != AA_PROBE_USABLE) GTEST_SKIP() << probed().reason;
  const auto outcome = [](const abi::DriverCalls& driver) {
    const std::string name = "kernels.unknown_flags_are_refused";
    for (const auto& result :
         conformance::run_conformance(&driver, host_services(), name, {}, {.in_process = true}).cases) {
      if (result.group + "." + result.name == name) return std::pair(result.outcome, result.message);
    }
    return std::pair(conformance::Outcome::unavailable, "there is no case " + name);
  };
  const auto [right, why] = outcome(table());
  EXPECT_EQ(right, conformance::Outcome::pass) << why;
  abi::DriverCalls launches = table();
  launches.aa_driver::kernel_launch = launch_whatever_the_flags;
  const auto [launched, launch_message] = outcome(launches);
  EXPECT_EQ(launched, conformance::Outcome::fail) << launch_message;
  EXPECT_TRUE(contains(launch_message, "kernel_launch")) << launch_message;
  abi::DriverCalls loads = table();
  loads.aa_driver::module_load = load_whatever_the_flags;
  const auto [loaded, load_message] = outcome(loads);
  EXPECT_EQ(loaded, conformance::Outcome::fail) << load_message;
  EXPECT_TRUE(contains(load_message, "module_load")) << load_message;
}

class OpenCl : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    try {
      opened_ = std::make_unique<Opened>();
      image_ = opened_->compile(kernels);
      module_ = std::make_unique<Module>(opened_->device, image_);
    } catch (const Error& error) {
      reason_ = error.what();
      if (error.code != AA_UNAVAILABLE) ADD_FAILURE() << reason_;
    }
  }
  static void TearDownTestSuite() {
    module_.reset();
    opened_.reset();
  }
  void SetUp() override {
    if (!module_) GTEST_SKIP() << "no OpenCL driver for the CPU: " << reason_;
  }

  static aa_device* device() { return opened_->device; }
  static aa_kernel* kernel(const char* name) { return module_->kernel(name); }

  static inline std::unique_ptr<Opened> opened_;
  static inline std::unique_ptr<Module> module_;
  static inline std::string image_;
  static inline std::string reason_;
};

std::vector<float> random_floats(size_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> draw(-1, 1);
  std::vector<float> values(count);
  for (float& value : values) value = draw(engine);
  return values;
}

int seeds() {
  const char* text = std::getenv("ANYACCEL_TEST_SEEDS");
  return text ? std::max(1, std::atoi(text)) : 3;
}

TEST_F(OpenCl, BarriersAndLocalMemory) {
  const Stream stream(device());
  for (int seed = 0; seed < seeds(); ++seed) {
    const uint32_t groups = 1 + static_cast<uint32_t>(seed) * 37;
    const std::vector<float> x = random_floats(groups * 64, static_cast<unsigned>(seed));
    const Array<float> in(device(), x.size());
    const Array<float> out(device(), groups);
    in.upload(stream, x);
    ok(launch(stream, kernel("sum_groups"), groups, 64, out.data(), in.data()));
    const std::vector<float> found = out.download(stream);
    for (size_t g = 0; g < groups; ++g) {
      std::vector<float> s(x.begin() + static_cast<ptrdiff_t>(g * 64), x.begin() + static_cast<ptrdiff_t>(g * 64 + 64));
      for (size_t d = 32; d > 0; d /= 2) {
        for (size_t i = 0; i < d; ++i) s[i] += s[i + d];
      }
      EXPECT_EQ(found[g], s[0]) << "group " << g << " of " << groups;  // the same additions in the same order
    }
  }
}

TEST_F(OpenCl, StructsByValueAndAbsentTensors) {
  const Stream stream(device());
  for (int seed = 0; seed < seeds(); ++seed) {
    const size_t rows = 5;
    const size_t columns = 7 + static_cast<size_t>(seed);
    const std::vector<float> x = random_floats(rows * columns * 2, static_cast<unsigned>(seed));
    const std::vector<float> add = random_floats(columns, 100);
    const Array<float> in(device(), x.size());
    const Array<float> extra(device(), columns);
    const Array<float> out(device(), rows * columns);
    in.upload(stream, x);
    extra.upload(stream, add);
    aa_rows view{};
    view.shape[0] = rows;
    view.shape[1] = static_cast<int64_t>(columns);
    view.stride[0] = static_cast<int64_t>(columns * 2);
    view.inner = 2;
    view.ndim = 2;
    for (const bool with_add : {true, false}) {
      const float factor = 1.5f;
      float* const addend = with_add ? extra.data() : nullptr;
      ok(launch(stream, kernel("gather_rows"), rows, 1, out.data(), in.data(), view, factor, addend));
      const std::vector<float> found = out.download(stream);
      for (size_t i = 0; i < found.size(); ++i) {
        const float v = x[i / columns * columns * 2 + i % columns * 2] * factor;
        // The compiler may fuse the product and the sum.
        EXPECT_NEAR(found[i], with_add ? v + add[i % columns] : v, 1e-6f) << i;
      }
    }
  }
}

TEST_F(OpenCl, PointersIntoAllocationsAreArguments) {
  const Stream stream(device());
  const Array<float> memory(device(), 100);
  memory.upload(stream, std::vector<float>(100, 1.0f));
  ok(launch(stream, kernel("add_number"), 1, 16, memory.data() + 50, 2.0f, int64_t{10}));
  const std::vector<float> found = memory.download(stream);
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(found[i], i >= 50 && i < 60 ? 3.0f : 1.0f) << i;
}

TEST_F(OpenCl, WrongLaunchesAreRefused) {
  const Stream stream(device());
  const Array<float> memory(device(), 16);
  aa_kernel* const add = kernel("add_number");
  const Error few = error_of(launch(stream, add, 1, 16, memory.data(), 1.0f));
  EXPECT_EQ(few.code, AA_INVALID_ARGUMENT);
  for (const char* part : {"add_number", "3 arguments", "2 were given"}) {
    EXPECT_TRUE(contains(few.what(), part)) << few.what();
  }
  const Error narrow = error_of(launch(stream, add, 1, 16, int32_t{5}, 1.0f, int64_t{16}));
  EXPECT_EQ(narrow.code, AA_INVALID_ARGUMENT);
  EXPECT_TRUE(contains(narrow.what(), "argument 0 of kernel add_number is a pointer; 4 bytes were given"));
  const Error wide = error_of(launch(stream, add, 1, 16, memory.data(), 1.0, int64_t{16}));
  EXPECT_EQ(wide.code, AA_INVALID_ARGUMENT) << wide.what();
  EXPECT_TRUE(contains(wide.what(), "argument 1 of kernel add_number (8 bytes)")) << wide.what();
  EXPECT_EQ(error_of(launch(stream, add, 0, 16, memory.data(), 1.0f, int64_t{16})).code, AA_INVALID_ARGUMENT);
  const Error group = error_of(launch(stream, add, 1, 32, memory.data(), 1.0f, int64_t{16}));
  EXPECT_EQ(group.code, AA_INVALID_ARGUMENT) << group.what();
  stream.synchronize();  // the stream is as good as before
  memory.upload(stream, std::vector<float>(16, 1.0f));
  ok(launch(stream, add, 1, 16, memory.data(), 1.0f, int64_t{16}));
  EXPECT_EQ(memory.download(stream), std::vector<float>(16, 2.0f));
}

TEST_F(OpenCl, KernelInfo) {
  aa_kernel* found = nullptr;
  aa_kernel_info info{};
  info.struct_size = sizeof(info);
  ok(table().kernel_get(module_->get(), "sum_groups", &found, &info));
  EXPECT_EQ(info.argument_count, 2);
  EXPECT_GE(info.max_threads_per_block, 64);
  EXPECT_TRUE(info.static_shared_bytes == 256 || info.static_shared_bytes == 0)
      << info.static_shared_bytes;  // PoCL 6 answers 0
  EXPECT_EQ(error_of(table().kernel_get(module_->get(), "sum", &found, nullptr)).code, AA_NOT_FOUND);
}

// Arguments belong to the cl_kernel: launches of one kernel on several threads must not mix them.
TEST_F(OpenCl, OneKernelOnManyThreads) {
  constexpr size_t threads = 4;
  constexpr size_t count = 1000;
  aa_kernel* const add = kernel("add_number");
  std::atomic<int> wrong{0};
  std::vector<std::thread> workers;
  for (size_t t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      try {
        const Stream stream(device());
        const Array<float> memory(device(), count);
        memory.upload(stream, std::vector<float>(count, 0.0f));
        for (int i = 0; i < 50; ++i) {
          ok(launch(stream, add, 63, 16, memory.data(), static_cast<float>(t + 1), static_cast<int64_t>(count)));
        }
        if (memory.download(stream) != std::vector<float>(count, static_cast<float>(50 * (t + 1)))) ++wrong;
      } catch (const Error&) {
        ++wrong;
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  EXPECT_EQ(wrong, 0);
}

// ---- compiling and images --------------------------------------------------------------------------------------------

TEST_F(OpenCl, CompileErrorsShowTheLog) {
  ::testing::internal::CaptureStderr();  // PoCL prints there, too
  std::string log;
  try {
    opened_->compile("__kernel void f(__global float* x) { x[0] = no_such_thing; }");
  } catch (const Error& error) {
    log = error.what();
  }
  ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(contains(log, "no_such_thing")) << log;
}

TEST_F(OpenCl, OptionsReachTheCompiler) {
  const std::string source = "__kernel void f(__global int* x) { x[0] = NUMBER; }";
  const Module module(device(), opened_->compile(source, {"-DNUMBER=42"}));
  const Stream stream(device());
  const Array<int32_t> x(device(), 1);
  ok(launch(stream, module.kernel("f"), 1, 1, x.data()));
  EXPECT_EQ(x.download(stream)[0], 42);
}

TEST_F(OpenCl, ImagesOfAnotherDriverVersionAreRefused) {
  const size_t driver = image_.find(", driver ");
  ASSERT_NE(driver, std::string::npos);
  std::string other = image_;
  other.insert(driver + 9, "99.");
  aa_module* module = nullptr;
  const Error error = error_of(table().module_load(device(), other.data(), other.size(), "opencl-binary", &module));
  EXPECT_EQ(error.code, AA_INCOMPATIBLE);
  EXPECT_TRUE(contains(error.what(), "another device or driver version")) << error.what();
  EXPECT_TRUE(contains(error.what(), "driver 99.")) << error.what();
  EXPECT_EQ(module, nullptr);
}

TEST_F(OpenCl, DamagedImagesAreRefused) {
  aa_module* module = nullptr;
  const size_t head = image_.find("\nsource ");
  ASSERT_NE(head, std::string::npos);
  for (size_t size = 0; size < head + 40; ++size) {
    const Error error = error_of(table().module_load(device(), image_.data(), size, "opencl-binary", &module));
    EXPECT_TRUE(error.code == AA_DATA_LOSS || error.code == AA_INCOMPATIBLE) << size << ": " << error.what();
  }
  EXPECT_EQ(error_of(table().module_load(device(), image_.data(), image_.size() - 1, "opencl-binary", &module)).code,
            AA_DATA_LOSS);
  EXPECT_EQ(error_of(table().module_load(device(), image_.data(), image_.size(), "spirv", &module)).code,
            AA_INVALID_ARGUMENT);
  EXPECT_EQ(module, nullptr);
}

// ---- memory ----------------------------------------------------------------------------------------------------------

TEST_F(OpenCl, OutOfMemoryLeavesTheDeviceUsable) {
  int64_t free_bytes = 0;
  int64_t total = 0;
  ok(table().device_memory_info(device(), &free_bytes, &total));
  EXPECT_GT(total, 0);
  aa_device_props props{};
  props.struct_size = sizeof(props);
  ok(table().device_props(opened_->instance, 0, &props));
  void* pointer = nullptr;
  const auto too_much = static_cast<size_t>(props.max_allocation) + 1;
  const Error one = error_of(table().mem_alloc(device(), AA_MEMORY_DEVICE, too_much, &pointer));
  EXPECT_EQ(one.code, AA_RESOURCE_EXHAUSTED);
  EXPECT_TRUE(contains(one.what(), std::to_string(too_much) + " bytes were asked for")) << one.what();
  EXPECT_TRUE(contains(one.what(), std::to_string(props.max_allocation))) << one.what();
  // Untouched memory costs nothing, so all of it can be taken.
  std::vector<void*> taken;
  Error full(AA_OK, "");
  const auto piece = static_cast<size_t>(props.max_allocation);
  while ((full = error_of(table().mem_alloc(device(), AA_MEMORY_DEVICE, piece, &pointer))).code == AA_OK) {
    taken.push_back(pointer);
    ASSERT_LT(taken.size(), 1000u);
  }
  EXPECT_EQ(full.code, AA_RESOURCE_EXHAUSTED) << full.what();
  int64_t left = 0;
  ok(table().device_memory_info(device(), &left, &total));
  EXPECT_EQ(left, free_bytes - static_cast<int64_t>(taken.size() * piece));
  {
    const Stream stream(device());
    const Array<float> small(device(), 16);
    small.upload(stream, std::vector<float>(16, 3.0f));
    EXPECT_EQ(small.download(stream), std::vector<float>(16, 3.0f));
  }
  for (void* base : taken) ok(table().mem_free(device(), AA_MEMORY_DEVICE, base, piece));
  ok(table().device_memory_info(device(), &left, &total));
  EXPECT_EQ(left, free_bytes);
}

TEST_F(OpenCl, ForeignMemoryIsNotFreed) {
  int value = 0;
  EXPECT_EQ(error_of(table().mem_free(device(), AA_MEMORY_DEVICE, &value, sizeof(value))).code, AA_INVALID_ARGUMENT);
  const Array<float> memory(device(), 4);
  EXPECT_EQ(error_of(table().mem_free(device(), AA_MEMORY_PINNED, memory.data(), memory.bytes())).code,
            AA_INVALID_ARGUMENT);
}

// Fills at every offset and length around the pattern's size; OpenCL itself takes aligned ones only.
TEST_F(OpenCl, FillsAnywhere) {
  const Stream stream(device());
  const Array<uint8_t> memory(device(), 96);
  for (const size_t period : {1, 2, 4, 8}) {
    const std::array<uint8_t, 8> pattern{11, 22, 33, 44, 55, 66, 77, 88};
    for (size_t offset = 0; offset < 9; ++offset) {
      for (const size_t repeats : {size_t{1}, size_t{2}, size_t{9}}) {
        memory.upload(stream, std::vector<uint8_t>(96, 1));
        ok(table().fill_async(stream, memory.data() + offset, pattern.data(), period, period * repeats));
        std::vector<uint8_t> expected(96, 1);
        for (size_t i = 0; i < period * repeats; ++i) expected[offset + i] = pattern[i % period];
        ASSERT_EQ(memory.download(stream), expected) << period << " at " << offset << ", " << repeats << " times";
      }
    }
  }
}

// ---- streams and events ----------------------------------------------------------------------------------------------

TEST_F(OpenCl, HostCallsKeepTheOrderAndHoldNobodyElse) {
  struct Step {
    std::atomic<bool> released{false};
    std::atomic<int> order{0};
  } step;
  const Stream held(device());
  const Stream other(device());
  const Array<float> memory(device(), 16);
  memory.upload(held, std::vector<float>(16, 0.0f));
  const auto wait = [](void* user) {
    auto* s = static_cast<Step*>(user);
    while (!s->released) std::this_thread::yield();
    ++s->order;
  };
  ok(table().stream_host_call(held, wait, &step));
  ok(launch(held, kernel("add_number"), 1, 16, memory.data(), 1.0f, int64_t{16}));
  ok(table().stream_host_call(
      held, [](void* user) { ++static_cast<Step*>(user)->order; }, &step));
  // The other stream is not held: its own host call runs and lets the first one go on.
  int32_t done = 1;
  ok(table().stream_query(held, &done));
  EXPECT_EQ(done, 0);
  EXPECT_EQ(memory.download(other), std::vector<float>(16, 0.0f)) << "a kernel overtook a host call";
  ok(table().stream_host_call(
      other, [](void* user) { static_cast<Step*>(user)->released = true; }, &step));
  other.synchronize();
  held.synchronize();
  EXPECT_EQ(step.order, 2);
  EXPECT_EQ(memory.download(held), std::vector<float>(16, 1.0f));
}

// The stream must not wait for a function that nothing will call.
TEST_F(OpenCl, AThreadThatIsRefusedLeavesTheStreamUsable) {
  const Stream stream(device());
  int calls = 0;
  const auto count = [](void* user) { ++*static_cast<int*>(user); };
  std::thread([&] {  // whose system calls are filtered
    if (!test::refuse_threads(EPERM)) return;
    const Error error = error_of(table().stream_host_call(stream, count, &calls));
    EXPECT_EQ(error.code, AA_RESOURCE_EXHAUSTED) << error.what();
    EXPECT_TRUE(contains(error.what(), "seccomp")) << error.what();
    calls = 1;
  })
      .join();
  if (calls == 0) GTEST_SKIP() << "the system takes no filter of system calls";
  stream.synchronize();
  ok(table().stream_host_call(stream, count, &calls));
  stream.synchronize();
  EXPECT_EQ(calls, 2);
}

// Waits for an event that is not complete for certain: a host call holds the stream that recorded it. The consumer is a
// stream of the same device, and one of the device opened once more, in another OpenCL context.
TEST_F(OpenCl, StreamsWaitForEventsAlsoOfAnotherContext) {
  aa_device* second = nullptr;
  ok(table().device_open(opened_->instance, 0, &second));
  for (aa_device* where : {device(), second}) {
    std::atomic<bool> released{false};
    std::atomic<bool> seen{false};
    const Stream producer(device());
    const Stream consumer(where);
    const Event event(device());
    ok(table().stream_host_call(
        producer,
        [](void* user) {
          while (!*static_cast<std::atomic<bool>*>(user)) std::this_thread::yield();
        },
        &released));
    ok(table().event_record(event, producer));
    ok(table().stream_wait_event(consumer, event));
    ok(table().stream_host_call(
        consumer, [](void* user) { *static_cast<std::atomic<bool>*>(user) = true; }, &seen));
    int32_t done = 1;
    ok(table().event_query(event, &done));
    EXPECT_EQ(done, 0);
    ok(table().stream_query(consumer, &done));
    EXPECT_EQ(done, 0);
    EXPECT_FALSE(seen);
    released = true;
    consumer.synchronize();
    EXPECT_TRUE(seen);
    ok(table().event_query(event, &done));
    EXPECT_EQ(done, 1);
  }
  ok(table().device_close(second));
}

TEST_F(OpenCl, EventsTimeKernels) {
  const Stream stream(device());
  const Array<int32_t> memory(device(), 1);
  memory.upload(stream, {1});
  const Event start(device(), AA_EVENT_TIMING);
  const Event middle(device(), AA_EVENT_TIMING);
  const Event end(device(), AA_EVENT_TIMING);
  ok(launch(stream, kernel("spin"), 1, 1, memory.data(), 1));  // compiled and warm
  const auto begin = std::chrono::steady_clock::now();
  ok(table().event_record(start, stream));
  ok(launch(stream, kernel("spin"), 1, 1, memory.data(), 20000000));
  ok(table().event_record(middle, stream));
  ok(launch(stream, kernel("spin"), 1, 1, memory.data(), 1));
  ok(table().event_record(end, stream));
  stream.synchronize();
  const double wall = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  double first = 0;
  double second = 0;
  ok(table().event_elapsed(start, middle, &first));
  ok(table().event_elapsed(middle, end, &second));
  // 20 million dependent multiply-adds take milliseconds on anything; the host's clock saw them all.
  EXPECT_GT(first, 2.0);
  EXPECT_GE(second, 0.0);
  EXPECT_LE(first + second, wall + 1.0);
}

// ---- graphs ----------------------------------------------------------------------------------------------------------

TEST_F(OpenCl, GraphsReplayKernelsWithTheArgumentsOfTheCapture) {
  const Stream stream(device());
  const Stream elsewhere(device());
  const Array<float> memory(device(), 16);
  const Array<float> copy(device(), 16);
  std::atomic<int> calls{0};
  memory.upload(stream, std::vector<float>(16, 0.0f));
  float number = 1;
  int64_t count = 16;
  uint16_t filling = 0;
  ok(opened_->graphs.capture_begin(stream));
  ok(table().fill_async(stream, copy.data(), &filling, 2, copy.bytes()));
  for (int i = 0; i < 3; ++i) {
    number = static_cast<float>(i + 1);
    ok(launch(stream, kernel("add_number"), 1, 16, memory.data(), number, count));
  }
  ok(table().copy_async(stream, copy.data(), memory.data(), copy.bytes(), AA_COPY_DEVICE_TO_DEVICE));
  ok(table().stream_host_call(
      stream, [](void* user) { ++*static_cast<std::atomic<int>*>(user); }, &calls));
  aa_graph* graph = nullptr;
  ok(opened_->graphs.capture_end(stream, &graph));
  number = 1000;
  count = 0;
  filling = 0xffff;
  EXPECT_EQ(memory.download(stream), std::vector<float>(16, 0.0f));
  int64_t nodes = 0;
  ok(opened_->graphs.node_count(graph, &nodes));
  EXPECT_EQ(nodes, 6);
  // A launch of the same kernel in between has arguments of its own.
  ok(launch(stream, kernel("add_number"), 1, 16, memory.data(), 100.0f, int64_t{16}));
  ok(opened_->graphs.launch(graph, stream));
  ok(opened_->graphs.launch(graph, stream));
  EXPECT_EQ(copy.download(stream), std::vector<float>(16, 112.0f));
  ok(opened_->graphs.launch(graph, elsewhere));
  EXPECT_EQ(copy.download(elsewhere), std::vector<float>(16, 118.0f));
  EXPECT_EQ(calls, 3);

  // A graph launched on a capturing stream becomes a part of the new graph.
  aa_graph* twice = nullptr;
  ok(opened_->graphs.capture_begin(stream));
  ok(opened_->graphs.launch(graph, stream));
  ok(opened_->graphs.launch(graph, stream));
  ok(opened_->graphs.capture_end(stream, &twice));
  ok(opened_->graphs.destroy(graph));
  EXPECT_EQ(copy.download(stream), std::vector<float>(16, 118.0f));
  ok(opened_->graphs.launch(twice, stream));
  EXPECT_EQ(copy.download(stream), std::vector<float>(16, 130.0f));
  ok(opened_->graphs.destroy(twice));
}

TEST_F(OpenCl, CapturesReachOtherStreamsThroughEvents) {
  const Stream first(device());
  const Stream second(device());
  const Event forked(device());
  const Event joined(device());
  const Array<float> memory(device(), 16);
  memory.upload(first, std::vector<float>(16, 0.0f));
  ok(opened_->graphs.capture_begin(first));
  ok(launch(first, kernel("add_number"), 1, 16, memory.data(), 1.0f, int64_t{16}));
  ok(table().event_record(forked, first));
  ok(table().stream_wait_event(second, forked));
  ok(launch(second, kernel("add_number"), 1, 16, memory.data(), 2.0f, int64_t{16}));
  ok(table().event_record(joined, second));
  ok(table().stream_wait_event(first, joined));
  ok(launch(first, kernel("add_number"), 1, 16, memory.data(), 4.0f, int64_t{16}));
  int32_t capturing = 0;
  ok(opened_->graphs.capture_status(second, &capturing));
  EXPECT_EQ(capturing, 1);
  int32_t done = 0;
  EXPECT_EQ(error_of(table().event_query(forked, &done)).code, AA_FAILED_PRECONDITION);
  aa_graph* graph = nullptr;
  EXPECT_EQ(error_of(opened_->graphs.capture_end(second, &graph)).code, AA_FAILED_PRECONDITION);
  ok(opened_->graphs.capture_end(first, &graph));
  ok(opened_->graphs.capture_status(second, &capturing));
  EXPECT_EQ(capturing, 0);
  ok(table().event_query(forked, &done));
  EXPECT_EQ(done, 1);
  EXPECT_EQ(memory.download(second), std::vector<float>(16, 0.0f));
  ok(opened_->graphs.launch(graph, first));
  EXPECT_EQ(memory.download(first), std::vector<float>(16, 7.0f));
  ok(opened_->graphs.destroy(graph));
}

TEST_F(OpenCl, CapturesDoNotWaitForWorkOutside) {
  std::atomic<bool> released{false};
  const Stream outside(device());
  const Stream inside(device());
  const Event event(device());
  ok(table().stream_host_call(
      outside,
      [](void* user) {
        while (!*static_cast<std::atomic<bool>*>(user)) std::this_thread::yield();
      },
      &released));
  ok(table().event_record(event, outside));
  ok(opened_->graphs.capture_begin(inside));
  EXPECT_EQ(error_of(table().stream_wait_event(inside, event)).code, AA_FAILED_PRECONDITION);
  released = true;
  outside.synchronize();
  ok(table().stream_wait_event(inside, event));  // complete now: nothing to wait for
  ok(opened_->graphs.capture_end(inside, nullptr));
}

}  // namespace
}  // namespace anyaccel::xpu_test
