// Calls that were checked and resolved before: which ones count as the same, that no wrong call is taken for a checked
// one, how many are kept, and threads.
#include "ops/dispatch/resolved_calls.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <limits>
#include <thread>
#include <vector>

#include "accelerators/cpu/cpu_driver.h"
#include "anyaccel/driver_accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/ops/inference.h"
#include "runtime/driver/driver_table.h"
#include "runtime/driver/host_services.h"

namespace anyaccel::ops {
namespace {

// A call of two tensors and a parameter, and the changes that tests make to it.
struct Sample {
  aa_tensor tensors[2] = {};
  aa_softmax_params params{sizeof(aa_softmax_params), 1.0f};
  aa_op_call call{};
  int device = 0;

  Sample() {
    for (aa_tensor& t : tensors) t = {nullptr, AA_DTYPE_F32, 2, {3, 4, 1, 1, 1, 1}, {4, 1, 0, 0, 0, 0}};
    tensors[0].data = reinterpret_cast<void*>(uintptr_t{4096});
    call = {sizeof(call), 7, tensors, 2, sizeof(params), &params, nullptr, nullptr};
  }
  ResolvedCalls::Class call_class() const { return {call, device, /*written=*/1}; }
};

TEST(ResolvedCalls, AnythingThatAnAnswerMayDependOnMakesAnotherClass) {
  const std::vector<std::function<void(Sample&)>> changes = {
      [](Sample& s) { s.call.op = 8; },
      [](Sample& s) { s.device = 1; },
      [](Sample& s) { s.call.tensor_count = 1; },
      [](Sample& s) { s.params.scale = 2; },
      [](Sample& s) { s.call.params_size = 0; },
      [](Sample& s) { s.tensors[1].dtype = AA_DTYPE_BF16; },
      [](Sample& s) { s.tensors[1].dtype = AA_DTYPE_NONE; },
      [](Sample& s) { s.tensors[1].ndim = 1; },
      [](Sample& s) { s.tensors[1].shape[0] = 5; },
      [](Sample& s) { s.tensors[1].strides[0] = 8; },
      [](Sample& s) { s.tensors[1].strides[1] = -1; },
      [](Sample& s) { s.tensors[0].data = reinterpret_cast<void*>(uintptr_t{4096 + 128}); },
      [](Sample& s) { s.tensors[0].data = reinterpret_cast<void*>(uintptr_t{4096 + 2}); },
      [](Sample& s) { s.tensors[1].data = s.tensors[0].data; },  // the output meets the input
  };
  ResolvedCalls calls;
  Sample first;
  calls.remember(first.call_class(), {.own = 3});
  for (size_t i = 0; i < changes.size(); ++i) {
    Sample other;
    changes[i](other);
    EXPECT_FALSE(calls.find(other.call_class())) << "change " << i;
  }
  // Neither the address matters beyond its alignment, nor what lies behind the last dimension.
  Sample same;
  same.tensors[0].data = reinterpret_cast<void*>(uintptr_t{1} << 40);
  same.tensors[1].shape[4] = 99;
  const auto found = calls.find(same.call_class());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->own, 3);
  EXPECT_EQ(found->portable, -1);
}

TEST(ResolvedCalls, NothingWasFoundIsAnAnswerToo) {
  ResolvedCalls calls;
  EXPECT_FALSE(calls.find(Sample().call_class()));
  calls.remember(Sample().call_class(), {});
  const auto found = calls.find(Sample().call_class());
  ASSERT_TRUE(found);
  EXPECT_FALSE(*found);
}

TEST(ResolvedCalls, OldOnesMakeRoom) {
  ResolvedCalls calls;
  int known = 0;
  for (int i = 0; i < 10000; ++i) {
    Sample sample;
    sample.tensors[0].shape[0] = i;
    calls.remember(sample.call_class(), {.own = i});
    const auto found = calls.find(sample.call_class());
    ASSERT_TRUE(found);
    ASSERT_EQ(found->own, i);
  }
  for (int i = 0; i < 10000; ++i) {
    Sample sample;
    sample.tensors[0].shape[0] = i;
    const auto found = calls.find(sample.call_class());
    if (!found) continue;
    EXPECT_EQ(found->own, i);
    ++known;
  }
  EXPECT_GT(known, 32);
  EXPECT_LE(known, 128);
}

TEST(ResolvedCalls, ThreadsNeverSeeAnothersAnswer) {
  ResolvedCalls calls;
  std::atomic<int> wrong{0}, hits{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 20000; ++round) {
        Sample sample;
        // Each twice in a row: 300 in turns alone would push each other out before they come again.
        const int number = (round / 2 * 7 + t) % 300;
        sample.tensors[1].shape[1] = number;
        const auto found = calls.find(sample.call_class());
        if (found) {
          wrong += found->own != number;
          ++hits;
        } else {
          calls.remember(sample.call_class(), {.own = number});
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(hits, 0);
}

// Counts how often somebody asks what runs a call.
class Asked : public DriverAccelerator {
 public:
  Asked()
      : DriverAccelerator(
            complete_table(anyaccel_cpu_driver_query(AA_ABI_VERSION(1, 0), AA_ABI_CURRENT, host_services()), "test")) {}
  OpHandle resolve_op(const aa_op_call& call, int index) override {
    ++count;
    return DriverAccelerator::resolve_op(call, index);
  }
  int count = 0;
};

TEST(ResolvedCalls, InferenceAsksOnceForAClass) {
  Asked accelerator;
  Inference ops(accelerator);
  const auto filled = [&](const Shape& shape, double value) {
    const Tensor tensor = Tensor::empty(shape, DType::F32, accelerator.device());
    tensor.fill(value);
    return tensor;
  };
  const Tensor a = filled({4, 8}, 1), b = filled({4, 8}, 2), out = filled({4, 8}, 0);
  accelerator.count = 0;
  for (int i = 0; i < 5; ++i) ops.add(out, a, b);
  EXPECT_EQ(accelerator.count, 1);
  EXPECT_EQ(out.to_vector<float>(), std::vector<float>(32, 3.0f));
  // Another tensor of the same kind, then other kinds.
  const Tensor other = filled({4, 8}, 5);
  accelerator.count = 0;
  ops.add(out, other, b);
  EXPECT_EQ(accelerator.count, 0);
  EXPECT_EQ(out.to_vector<float>(), std::vector<float>(32, 7.0f));
  ops.add(out.slice(0, 0, 2), a.slice(0, 0, 2), b.slice(0, 2, 4));
  EXPECT_EQ(accelerator.count, 1);
  ops.softmax(out, a, 1.0f);
  ops.softmax(out, a, 2.0f);
  EXPECT_EQ(accelerator.count, 3);
  // A remembered correct call does not make a wrong call pass, and a wrong call stays wrong.
  for (int i = 0; i < 2; ++i) {
    EXPECT_THROW(ops.add(out, a.slice(0, 0, 2), b), InvalidArgument);
    EXPECT_THROW(ops.softmax(out, a, std::numeric_limits<float>::infinity()), InvalidArgument);
    EXPECT_THROW(ops.add(out, Tensor::zeros({4, 8}, DType::I32, accelerator.device()), b), InvalidArgument);
  }
}

}  // namespace
}  // namespace anyaccel::ops
