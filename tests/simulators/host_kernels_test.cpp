// Host-compiled kernels: items as fibers, barriers, sub-groups, local arrays, struct arguments, and the mistakes of kernels
// that are found. The kernels are tests/simulators/kernels/sim_test.cl.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "simulators/engine/engine.h"

using aa_i64 = std::int64_t;
using aa_i32 = std::int32_t;
#include "kernels/portable/arguments.h"

namespace {

using namespace sim;

constexpr int kGroup = 32, kLanes = 8;

std::vector<char> bytes_of(const void* value, std::size_t size) {
  const char* p = static_cast<const char*>(value);
  return {p, p + size};
}
template <typename T>
std::vector<char> value(const T& v) {
  return bytes_of(&v, sizeof v);
}

struct Launcher {
  explicit Launcher(std::uint64_t seed = 0) : engine(settings(seed)), stream(engine, 0, true) {}
  static Settings settings(std::uint64_t seed) {
    Settings s;
    s.seed = seed;
    s.delay_us = 20;
    return s;
  }
  // Shared memory: the test can read and write it.
  template <typename T>
  T* array(std::size_t count) {
    std::shared_ptr<const Allocation> allocation;
    EXPECT_EQ(engine.allocate(MemoryKind::shared, 0, 1, count * sizeof(T), 0, &allocation), Status::ok);
    return reinterpret_cast<T*>(allocation->pointer);
  }
  void launch(const char* name, std::vector<std::vector<char>> values, std::uint32_t x, std::uint32_t y = 1) {
    const KernelInfo& kernel = kernel_table().at(name);
    ASSERT_EQ(kernel.parameters.size(), values.size());
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(kernel.parameters[i].size, values[i].size());
    Command command;
    command.what = "launch";
    command.run = [&kernel, values = std::move(values), x, y](Execution& execution) {
      const std::uint32_t groups[3] = {x, y, 1};
      execution.launch(kernel, values, groups);
    };
    stream.submit({std::make_shared<const Command>(std::move(command))});
    stream.wait(kForever);
  }
  std::string kinds() {
    std::string text;
    for (const Violation& v : engine.report().violations()) text += (text.empty() ? "" : ",") + v.kind;
    return text;
  }

  Engine engine;
  Stream stream;
};

TEST(HostKernels, RunAllItemsOfAllGroups) {
  Launcher l;
  float *x = l.array<float>(1000), *y = l.array<float>(1000);
  for (int i = 0; i < 1000; ++i) x[i] = static_cast<float>(i);
  l.launch("sim_scale", {value(y), value(x), value(3.0f), value(aa_i64{999})}, 32);
  for (int i = 0; i < 999; ++i) ASSERT_EQ(y[i], 3.0f * x[i]);
  std::uint32_t untouched = 0;
  std::memcpy(&untouched, &y[999], 4);
  EXPECT_EQ(untouched, 0xA5A5A5A5u);
  EXPECT_EQ(l.kinds(), "");
}

TEST(HostKernels, BarriersWorkInEitherOrderOfItems) {
  for (const std::uint64_t seed : {0, 1, 2}) {
    Launcher l(seed);
    aa_i32 *x = l.array<aa_i32>(4 * kGroup), *y = l.array<aa_i32>(4 * kGroup);
    for (int i = 0; i < 4 * kGroup; ++i) x[i] = i;
    for (int twice = 0; twice < 2; ++twice) {
      std::memset(y, 0, 4 * kGroup * sizeof *y);
      l.launch("sim_reverse", {value(y), value(x)}, 4);
      for (int g = 0; g < 4; ++g) {
        for (int i = 0; i < kGroup; ++i) ASSERT_EQ(y[g * kGroup + i], g * kGroup + kGroup - 1 - i);
      }
    }
    EXPECT_EQ(l.kinds(), "");
  }
}

TEST(HostKernels, ReductionsOfSubgroupsAndGroups) {
  std::mt19937 random(1);
  Launcher l(1);
  constexpr int kCount = 5 * kGroup;
  float *x = l.array<float>(kCount), *out = l.array<float>(4 * kCount);
  for (int i = 0; i < kCount; ++i) x[i] = static_cast<float>(static_cast<int>(random() % 2000) - 1000);
  l.launch("sim_reduce", {value(out), value(x)}, 5);
  for (int i = 0; i < kCount; ++i) {
    float lanes = 0, sum = 0, most = -std::numeric_limits<float>::infinity();
    for (int k = 0; k < kLanes; ++k) lanes += x[i / kLanes * kLanes + k];
    for (int k = 0; k < kGroup; ++k) {
      sum += x[i / kGroup * kGroup + k];
      most = std::max(most, x[i / kGroup * kGroup + k]);
    }
    ASSERT_EQ(out[4 * i], lanes);
    ASSERT_EQ(out[4 * i + 1], sum);
    ASSERT_EQ(out[4 * i + 2], most);
    ASSERT_EQ(out[4 * i + 3], static_cast<float>(i / kGroup));
  }
  EXPECT_EQ(l.kinds(), "");
}

TEST(HostKernels, StructsByValueAndNullPointers) {
  Launcher l;
  float *out = l.array<float>(50), *in = l.array<float>(50);
  for (int i = 0; i < 50; ++i) in[i] = 100.0f * static_cast<float>(i);
  aa_rows rows{};
  rows.stride[1] = 7;
  rows.inner = 3;
  const float* none = nullptr;
  l.launch("sim_struct", {value(out), value(none), value(rows), value(aa_i32{50})}, 2);
  for (int i = 0; i < 50; ++i) ASSERT_EQ(out[i], static_cast<float>(7 * i + 3));
  l.launch("sim_struct", {value(out), value(in), value(rows), value(aa_i32{50})}, 2);
  for (int i = 0; i < 50; ++i) ASSERT_EQ(out[i], static_cast<float>(107 * i + 3));
  EXPECT_EQ(l.kinds(), "");
}

TEST(HostKernels, HalfAndBfloat16RoundToNearestEven) {
  Launcher l;
  // 1 + 2^-11 lies between two halves and goes to the even one, 1 + 3 * 2^-11 too; 65520 overflows.
  const std::vector<float> values = {1.0f,  1.0f + 0x1p-11f, 1.0f + 0x3p-11f, 65504.0f, 65520.0f, 0x1p-24f,
                                     -0.0f, 1.0f + 0x1p-8f,  -3.5f,           1e-8f,    INFINITY, 1.0f + 0x3p-8f};
  const std::vector<std::uint16_t> halves = {0x3c00, 0x3c00, 0x3c02, 0x7bff, 0x7c00, 0x0001,
                                             0x8000, 0x3c04, 0xc300, 0x0000, 0x7c00, 0x3c0c};
  const std::vector<std::uint16_t> brains = {0x3f80, 0x3f80, 0x3f80, 0x4780, 0x4780, 0x3380,
                                             0x8000, 0x3f80, 0xc060, 0x322c, 0x7f80, 0x3f82};
  const auto count = static_cast<aa_i64>(values.size());
  float* in = l.array<float>(values.size());
  auto* out = l.array<std::uint16_t>(values.size());
  float* back = l.array<float>(values.size());
  std::memcpy(in, values.data(), values.size() * 4);
  l.launch("sim_convert", {value(out), value(aa_i32{7}), value(in), value(aa_i32{9}), value(count)}, 1);
  EXPECT_EQ(std::vector<std::uint16_t>(out, out + count), halves);
  l.launch("sim_convert", {value(back), value(aa_i32{9}), value(out), value(aa_i32{7}), value(count)}, 1);
  EXPECT_EQ(back[3], 65504.0f);
  EXPECT_EQ(back[5], 0x1p-24f);
  l.launch("sim_convert", {value(out), value(aa_i32{8}), value(in), value(aa_i32{9}), value(count)}, 1);
  EXPECT_EQ(std::vector<std::uint16_t>(out, out + count), brains);
  EXPECT_EQ(l.kinds(), "");
}

TEST(HostKernels, ABarrierThatNotAllReachIsFound) {
  Launcher l;
  aa_i32* y = l.array<aa_i32>(kGroup);
  l.launch("sim_diverge", {value(y)}, 3);
  EXPECT_EQ(l.kinds(), "divergent-barrier");
  // The runner is as good as new afterwards.
  aa_i32* x = l.array<aa_i32>(kGroup);
  for (int i = 0; i < kGroup; ++i) x[i] = i;
  l.launch("sim_reverse", {value(y), value(x)}, 1);
  EXPECT_EQ(y[0], kGroup - 1);
  EXPECT_EQ(l.kinds(), "divergent-barrier");
}

TEST(HostKernels, TooMuchLocalMemoryIsFound) {
  Launcher l;
  float* y = l.array<float>(kGroup);
  l.launch("sim_greedy", {value(y)}, 1);
  EXPECT_EQ(l.kinds(), "local-memory");
}

TEST(HostKernels, AccessBeyondAnAllocationIsFound) {
  Launcher l;
  float *x = l.array<float>(100), *y = l.array<float>(99), *none = nullptr;
  std::memset(x, 0, 400);
  l.launch("sim_scale", {value(y), value(x), value(1.0f), value(aa_i64{100})}, 4);
  EXPECT_EQ(l.kinds(), "out-of-bounds");
  l.launch("sim_scale", {value(y), value(none), value(1.0f), value(aa_i64{1})}, 1);
  EXPECT_EQ(l.kinds(), "out-of-bounds,out-of-bounds");
  EXPECT_NE(l.engine.report().violations()[1].message.find("null pointer"), std::string::npos);
  float own = 0;
  const float* foreign = &own;
  l.launch("sim_scale", {value(y), value(foreign), value(1.0f), value(aa_i64{1})}, 1);
  EXPECT_EQ(l.kinds(), "out-of-bounds,out-of-bounds,bad-pointer");
  l.engine.free(x, 1);
  l.launch("sim_scale", {value(y), value(x), value(1.0f), value(aa_i64{1})}, 1);
  EXPECT_EQ(l.kinds(), "out-of-bounds,out-of-bounds,bad-pointer,use-after-free");
}

// A race is counted by the bytes that kernels touched, so two streams may work on the halves of one allocation.
TEST(HostKernels, RacesBetweenKernelsAreFoundByTheBytesTheyTouched) {
  for (const bool overlap : {false, true}) {
    Launcher l;
    Stream other(l.engine, 0, true);
    float *x = l.array<float>(200), *y = l.array<float>(200);
    std::memset(x, 0, 800);
    const KernelInfo& kernel = kernel_table().at("sim_scale");
    const auto scale = [&](Stream& stream, std::size_t from, aa_i64 count) {
      Command command;
      command.what = "launch";
      command.run = [&kernel,
                     values = std::vector{value(y + from), value(x), value(1.0f), value(count)}](Execution& execution) {
        const std::uint32_t groups[3] = {4, 1, 1};
        execution.launch(kernel, values, groups);
      };
      stream.submit({std::make_shared<const Command>(std::move(command))});
    };
    scale(l.stream, 0, 100);
    while (l.engine.commands_run() < 1) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    scale(other, overlap ? 99 : 100, 100);
    l.stream.wait(kForever);
    other.wait(kForever);
    EXPECT_EQ(l.kinds(), overlap ? "race" : "");
  }
}

}  // namespace
