// Cases of the op "attention" with random shapes, layouts and numbers.
#pragma once

#include <functional>

#include "ops/op_test_support.h"

namespace anyaccel::cpu::testing {

struct Geometry {
  int64_t tokens, q_heads, kv_heads, head_size, sequences, slots;
};

inline OpCase make_case(Random& random, const Geometry& g, bool any_layout, DType cache_dtype,
                        aa_attention_params params) {
  const auto tensor = [&](DType dtype, Shape shape, bool input) {
    return any_layout ? TestTensor::random_layout(random, dtype, std::move(shape), input)
                      : TestTensor(dtype, std::move(shape));
  };
  OpCase c;
  c.op = "attention";
  c.tensors.push_back(tensor(random.float_dtype(), {g.tokens, g.q_heads, g.head_size}, false));
  c.tensors.push_back(tensor(random.float_dtype(), {g.tokens, g.q_heads, g.head_size}, true));
  c.tensors.push_back(tensor(cache_dtype, {g.sequences, g.kv_heads, g.slots, g.head_size}, true));
  c.tensors.push_back(tensor(cache_dtype, {g.sequences, g.kv_heads, g.slots, g.head_size}, true));
  c.tensors.push_back(TestTensor(DType::I32, {g.tokens}));
  c.tensors.push_back(TestTensor(DType::I32, {g.tokens}));
  for (size_t i = 1; i < 4; ++i) c.tensors[i].fill_normal(random);
  c.tensors.resize(8);  // neither slopes nor sinks
  return c.with(params);
}

// Adds slopes, sinks or both.
inline void add_of_heads(Random& random, OpCase& c) {
  const int64_t heads = c.tensors[1].shape()[1], which = random.integer(1, 3);
  for (const int64_t bit : {1, 2}) {
    if ((which & bit) == 0) continue;
    TestTensor& t = c.tensors[static_cast<size_t>(5 + bit)];
    t = random.chance(0.3) ? TestTensor::random_layout(random, DType::F32, {heads}, true)
                           : TestTensor(DType::F32, {heads});
    // Steep slopes leave the weight of a few slots, gentle ones that of many; one head has none.
    t.fill([&](int64_t i) { return bit == 2 ? random.normal(2) : i == 1 ? 0.0 : std::exp2(-random.normal(2) - 4); });
  }
}

inline void set_tokens(OpCase& c, const std::function<int64_t(int64_t)>& sequence,
                       const std::function<int64_t(int64_t)>& position) {
  for (int64_t t = 0; t < c.tensors[4].count(); ++t) {
    c.tensors[4].set(t, sequence(t));
    c.tensors[5].set(t, position(t));
  }
}

inline aa_attention_params params_of(int64_t head_size, int32_t window = 0, float softcap = 0) {
  return {0, 1.0f / std::sqrt(static_cast<float>(head_size)), window, softcap};
}

}  // namespace anyaccel::cpu::testing
