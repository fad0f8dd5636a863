// Once a kernel is loaded, an op on the portable kernels allocates nothing in this process's C++ code: counted on
// OpenCL's CPU device, with every op that a decode step uses.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "anyaccel/detection.h"
#include "anyaccel/error.h"
#include "anyaccel/op_builder.h"
#include "anyaccel/ops/inference.h"

namespace {
std::atomic<long> allocations{0};
}

// Not inlined: the compiler would see malloc and free meet delete and new.
[[gnu::noinline]] void* operator new(size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size ? size : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace anyaccel {
namespace {

TEST(LaunchAllocations, NoneInADecodeStep) {
  setenv("ANYACCEL_XPU_RUNTIME", "opencl", 1);
  setenv("ANYACCEL_OPENCL_DEVICE_TYPE", "cpu", 1);
  std::unique_ptr<Accelerator> accelerator;
  try {
    accelerator = make_accelerator("xpu");
    accelerator->device_properties(0);
  } catch (const UnavailableError& error) {
    GTEST_SKIP() << error.what();
  }
  const Device device = accelerator->device(0);
  auto ops = accelerator->create_op_builder("InferenceBuilder")->load_as<ops::Inference>();
  const auto tensor = [&](const Shape& shape, DType dtype = DType::F32) { return Tensor::zeros(shape, dtype, device); };
  constexpr int64_t hidden = 64, heads = 4, head = 16, vocabulary = 100;
  const Tensor table = tensor({vocabulary, hidden}), weight = tensor({hidden}), w = tensor({hidden, hidden});
  const Tensor x = tensor({1, hidden}), y = tensor({1, hidden}), z = tensor({1, hidden}), v = tensor({1, hidden});
  const Tensor ids = tensor({1}, DType::I32), sequence = tensor({1}, DType::I32), positions = tensor({1}, DType::I32);
  const Tensor cos = tensor({1, head / 2}), sin = tensor({1, head / 2}), frequencies = tensor({head / 2});
  const Tensor keys = tensor({1, heads, 32, head}), values = tensor({1, heads, 32, head});
  const Tensor logits = tensor({1, vocabulary}), lm_head = tensor({vocabulary, hidden}), rng = tensor({2}, DType::I64);
  const Tensor none, attended = tensor({1, heads, head});
  const Shape by_head{1, heads, head};
  const Tensor q = y.reshape(by_head), k = z.reshape(by_head), value = v.reshape(by_head);
  const auto step = [&] {
    ops->embedding(x, table, ids);
    ops->rms_norm(y, x, weight, 1e-5f);
    const ops::LinearPart parts[] = {{y, w, none}, {z, w, none}, {v, w, none}};
    ops->linear_multi(x, parts);
    ops->rope_table(cos, sin, frequencies, positions, 1);
    ops->rope(q, k, cos, sin, false);
    ops->cache_write(keys, values, k, value, sequence, positions);
    ops->attention(attended, q, keys, values, sequence, positions, 0.25f);
    ops->linear(x, y, w, none, x);
    ops->gated_linear(y, x, w, w, ops::Activation::Silu);
    // Sequences here, whose memory is the workspace's.
    ops->norm_qkv_rope(q, {keys, values, sequence, positions}, x, weight, {w, none, w, none, w, none, none, none},
                       {cos, sin}, 1e-5f);
    ops->norm_gated_linear(y, x, weight, w, w, ops::Activation::Silu, 1e-5f);
    ops->norm_linear(logits, x, weight, lm_head, 1e-5f, none, DType::BF16);
    ops->linear(logits, x, lm_head);
    ops->sample(ids, logits, rng, 0.8f, 10, 0.9f);
    ops->argmax(ids, logits);
    ops->increment(positions, 1);
  };
  step();
  accelerator->synchronize();
  const long before = allocations;
  for (int i = 0; i < 10; ++i) step();
  const long after = allocations;
  accelerator->synchronize();
  EXPECT_EQ(after - before, 0);
  EXPECT_GT(before, 0) << "the counter does not count";
}

}  // namespace
}  // namespace anyaccel
