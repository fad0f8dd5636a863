// The memory between the ops of a sequence: whose it is, when it is used again, and what a graph keeps of it.
#include "ops/dispatch/workspace.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "anyaccel/detection.h"
#include "anyaccel/ops/inference.h"

namespace anyaccel::ops {
namespace {

class Workspaces : public ::testing::Test {
 protected:
  Tensor tensor(const Shape& shape, double value) {
    const Tensor made = Tensor::empty(shape, DType::F32, accelerator_.device());
    made.fill(value);
    return made;
  }
  int64_t allocations() { return accelerator_.memory_stats().at("allocation.all.allocated"); }

  std::unique_ptr<Accelerator> made_ = make_accelerator("cpu");
  Accelerator& accelerator_ = *made_;
};

TEST_F(Workspaces, TensorsOfACallDoNotOverlap) {
  Workspace workspace(accelerator_);
  const Tensor like = tensor({1}, 0);
  const Shape shape{3, 5};
  Workspace::Scratch one(workspace, like, 2 * Workspace::bytes(shape, DType::F32) + Workspace::bytes({7}, DType::BF16));
  Workspace::Scratch two(workspace, like, Workspace::bytes(shape, DType::F32));
  const Tensor a = one.tensor(shape, DType::F32), b = one.tensor({7}, DType::BF16), c = one.tensor(shape, DType::F32);
  const Tensor d = two.tensor(shape, DType::F32);
  a.fill(1);
  b.fill(2);
  c.fill(3);
  d.fill(4);
  EXPECT_EQ(a.to_vector<float>(), std::vector<float>(15, 1.0f));
  EXPECT_EQ(b.to_vector<float>(), std::vector<float>(7, 2.0f));
  EXPECT_EQ(c.to_vector<float>(), std::vector<float>(15, 3.0f));
  EXPECT_EQ(d.to_vector<float>(), std::vector<float>(15, 4.0f));
  for (const Tensor& t : {a, b, c, d}) EXPECT_EQ(reinterpret_cast<uintptr_t>(t.data()) % 64, 0u);
}

TEST_F(Workspaces, AStreamTakesItsMemoryAgain) {
  Workspace workspace(accelerator_);
  const Tensor like = tensor({1}, 0);
  const auto place = [&](size_t bytes) {
    Workspace::Scratch scratch(workspace, like, bytes);
    return scratch.tensor({1}, DType::U8).data();
  };
  const void* large = place(1 << 20);
  const int64_t before = allocations();
  EXPECT_EQ(place(1 << 20), large);
  EXPECT_EQ(place(100), large);
  EXPECT_EQ(allocations(), before);
  const Stream other = accelerator_.Stream();
  {
    const ScopeGuard on = accelerator_.stream(other);
    EXPECT_NE(place(100), large) << "work of the first stream may still use it";
    EXPECT_EQ(allocations(), before + 1);
  }
  EXPECT_EQ(place(100), large);
  EXPECT_EQ(allocations(), before + 1);
}

TEST_F(Workspaces, KeepsMemoryOfFewStreams) {
  Workspace workspace(accelerator_);
  const Tensor like = tensor({1}, 0);
  const int64_t before = accelerator_.memory_allocated();
  std::vector<Stream> streams;
  for (int i = 0; i < 50; ++i) {
    streams.push_back(accelerator_.Stream());
    const ScopeGuard on = accelerator_.stream(streams.back());
    Workspace::Scratch scratch(workspace, like, 1 << 20);
  }
  EXPECT_LE(accelerator_.memory_allocated() - before, 8 << 20);
}

TEST_F(Workspaces, StepsAllocateNothing) {
  Inference ops(accelerator_);
  const Tensor x = tensor({2, 64}, 1), w = tensor({32, 64}, 0.5), norm = tensor({64}, 1), out = tensor({2, 32}, 0);
  ops.norm_linear(out, x, norm, w, 0);
  const int64_t before = allocations();
  for (int i = 0; i < 10; ++i) {
    ops.norm_linear(out, x, norm, w, 0);
    ops.norm_gated_linear(out, x, norm, w, w, Activation::Relu, 0);
  }
  EXPECT_EQ(allocations(), before);
  EXPECT_EQ(out.to_vector<float>(), std::vector<float>(64, 32.0f * 32.0f));
}

// A graph goes on using its memory when the workspace's own has been given to others or back.
TEST_F(Workspaces, AGraphHasItsOwn) {
  if (!accelerator_.supports_graphs()) GTEST_SKIP() << "the accelerator has no graphs";
  Inference ops(accelerator_);
  const Tensor x = tensor({2, 64}, 1), w = tensor({32, 64}, 0.5), norm = tensor({64}, 1), out = tensor({2, 32}, 0);
  ops.norm_linear(out, x, norm, w, 0);
  Graph graph = accelerator_.create_graph();
  {
    const ScopeGuard capture = accelerator_.capture_to_graph(graph);
    ops.norm_linear(out, x, norm, w, 0);
  }
  for (const int64_t rows : {1, 2, 300, 7}) {
    const Tensor other = tensor({rows, 64}, -2), other_out = tensor({rows, 32}, 0);
    ops.norm_linear(other_out, other, norm, w, 0);
    EXPECT_EQ(other_out.to_vector<float>(), std::vector<float>(static_cast<size_t>(rows) * 32, -32.0f));
    accelerator_.empty_cache();
    out.fill(0);
    accelerator_.replay_graph(graph);
    EXPECT_EQ(out.to_vector<float>(), std::vector<float>(64, 32.0f));
  }
}

TEST_F(Workspaces, ThreadsOnOneStreamHaveTheirOwn) {
  Inference ops(accelerator_);
  const Tensor w = tensor({32, 64}, 0.5), norm = tensor({64}, 1);
  std::vector<Tensor> in, out;
  for (int i = 0; i < 4; ++i) {
    in.push_back(tensor({2 + i, 64}, i % 2 ? 1 : -1));
    out.push_back(tensor({2 + i, 32}, 0));
  }
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 200; ++round) ops.norm_linear(out[i], in[i], norm, w, 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(out[i].to_vector<float>(), std::vector<float>((2 + i) * 32, i % 2 ? 32.0f : -32.0f));
  }
}

}  // namespace
}  // namespace anyaccel::ops
