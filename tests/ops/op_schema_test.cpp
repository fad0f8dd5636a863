// The checks of op calls: good calls pass, and each kind of bad call is told what was found and what was expected.
#include "ops/dispatch/op_schema.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "anyaccel/error.h"
#include "runtime/ops/op_list.h"

namespace anyaccel::ops {
namespace {

aa_tensor tensor(int32_t dtype, std::vector<int64_t> shape) {
  aa_tensor t{};
  t.dtype = dtype;
  t.ndim = static_cast<int32_t>(shape.size());
  int64_t stride = 1;
  for (int d = 0; d < AA_MAX_DIMS; ++d) t.shape[d] = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    t.shape[d] = shape[d];
    t.strides[d] = stride;
    stride *= shape[d];
  }
  return t;
}
aa_tensor floats(std::vector<int64_t> shape) { return tensor(AA_DTYPE_BF16, std::move(shape)); }
aa_tensor f32(std::vector<int64_t> shape) { return tensor(AA_DTYPE_F32, std::move(shape)); }
aa_tensor i32(std::vector<int64_t> shape) { return tensor(AA_DTYPE_I32, std::move(shape)); }
aa_tensor i64(std::vector<int64_t> shape) { return tensor(AA_DTYPE_I64, std::move(shape)); }
aa_tensor u8(std::vector<int64_t> shape) { return tensor(AA_DTYPE_U8, std::move(shape)); }
aa_tensor absent() { return aa_tensor{}; }

struct Call {
  std::string op;
  std::vector<aa_tensor> tensors;
  std::vector<uint8_t> params;

  template <class Params>
  Call& with(Params p) {
    p.struct_size = sizeof(Params);
    params.assign(reinterpret_cast<const uint8_t*>(&p), reinterpret_cast<const uint8_t*>(&p + 1));
    return *this;
  }
  void check() const {
    aa_op_call call{};
    call.struct_size = sizeof(call);
    call.tensors = tensors.data();
    call.tensor_count = static_cast<uint32_t>(tensors.size());
    call.params = params.empty() ? nullptr : params.data();
    call.params_size = static_cast<uint32_t>(params.size());
    find_op_schema(op)->check(call);
  }
  // The text of the error, or nothing.
  std::string error() const {
    try {
      check();
    } catch (const InvalidArgument& e) {
      EXPECT_EQ(e.code(), AA_INVALID_ARGUMENT);
      return e.what();
    }
    return "";
  }
};

Call make(std::string op, std::vector<aa_tensor> tensors) { return {std::move(op), std::move(tensors), {}}; }

// Good calls that tests spoil.
std::vector<Call> good_calls() {
  const aa_activation_params silu{0, AA_ACTIVATION_SILU};
  const aa_norm_params eps{0, 1e-6f};
  return {
      make("embedding", {floats({3, 8}), f32({10, 8}), i64({3})}),
      make("rms_norm", {floats({2, 3, 8}), f32({2, 3, 8}), floats({8}), floats({2, 3, 8})}).with(eps),
      make("layer_norm", {floats({8}), f32({8}), absent(), floats({8}), absent()}).with(eps),
      make("linear", {floats({3, 5}), floats({3, 8}), floats({5, 8}), absent(), f32({3, 5})}),
      make("linear_multi",
           {floats({3, 8}), floats({3, 5}), floats({5, 8}), floats({5}), floats({3, 2}), floats({2, 8}), absent()}),
      make("gated_linear", {floats({3, 5}), floats({3, 8}), floats({5, 8}), floats({5, 8}), absent(), floats({5})})
          .with(silu),
      make("rope_table", {f32({3, 4}), f32({3, 4}), f32({4}), i32({3})}).with(aa_rope_table_params{0, 1}),
      make("rope", {floats({3, 4, 8}), floats({3, 2, 8}), f32({3, 4}), f32({3, 4})}).with(aa_rope_params{0, 1}),
      make("cache_write",
           {floats({2, 2, 16, 8}), floats({2, 2, 16, 8}), f32({3, 2, 8}), f32({3, 2, 8}), i32({3}), i32({3})}),
      make("attention", {floats({3, 4, 8}), f32({3, 4, 8}), floats({2, 2, 16, 8}), floats({2, 2, 16, 8}), i32({3}),
                         i32({3}), f32({4}), absent()})
          .with(aa_attention_params{0, 0.3f, 0, 0}),
      make("activation", {floats({3, 4}), f32({3, 4})}).with(silu),
      make("gated_activation", {floats({3}), f32({3}), floats({3})}).with(silu),
      make("softmax", {floats({3, 4}), f32({3, 4})}).with(aa_softmax_params{0, 1}),
      make("add", {floats({}), f32({}), floats({})}),
      make("copy", {u8({3, 4}), f32({3, 4})}),
      make("increment", {i32({3, 4})}).with(aa_increment_params{0, 0, 1}),
      make("argmax", {i32({3}), f32({3, 9})}),
      make("repetition_penalty", {f32({3, 9}), u8({3, 9})}).with(aa_repetition_params{0, 1.1f}),
      make("sample", {i64({3}), f32({3, 9}), i64({2}), absent()}).with(aa_sample_params{0, 1, 0, 1, 0}),
      make("random", {floats({3, 9})}).with(aa_random_params{0, AA_RANDOM_UNIFORM, 1, 0, 0, 1}),
      make("embedding_shard", {floats({3, 8}), f32({10, 8}), i64({3})}).with(aa_embedding_shard_params{0, 0, 20}),
      make("frequency_penalty", {f32({3, 9}), i32({3, 9}), i64({3})}).with(aa_frequency_params{0, 0.5f, -0.5f}),
      make("quantized_linear", {f32({3, 5}), floats({3, 64}), u8({5, 36}), floats({5}), absent()})
          .with(aa_quantized_params{0, AA_BLOCK_Q4_0, AA_QUANTIZED_ROUNDED}),
      make("quantized_embedding", {floats({3, 256}), u8({9, 210}), i64({3})})
          .with(aa_quantized_params{0, AA_BLOCK_Q6_K, AA_QUANTIZED_EXACT}),
      make("quantized_embedding_shard", {floats({3, 64}), u8({9, 68}), i32({3})})
          .with(aa_quantized_shard_params{0, AA_BLOCK_Q8_0, 20}),
      make("quantized_cache_write",
           {u8({2, 2, 16, 68}), u8({2, 2, 16, 68}), f32({3, 2, 64}), floats({3, 2, 64}), i32({3}), i32({3})})
          .with(aa_cache_params{0, AA_CACHE_Q8_0}),
      make("quantized_cache_write",
           {u8({2, 2, 16, 64}), u8({2, 2, 16, 64}), f32({3, 2, 64}), floats({3, 2, 64}), i32({3}), i32({3})})
          .with(aa_cache_params{0, AA_CACHE_F8_E4M3}),
      make("quantized_attention", {floats({3, 4, 64}), f32({3, 4, 64}), u8({2, 2, 16, 68}), u8({2, 2, 16, 68}),
                                   i32({3}), i32({3}), absent(), f32({4})})
          .with(aa_quantized_attention_params{0, 0.3f, 0, 0, AA_BLOCK_Q8_0}),
      make("norm_linear", {f32({3, 5}), floats({3, 8}), absent(), floats({5, 8}), floats({5})})
          .with(aa_norm_linear_params{0, 1e-6f, AA_DTYPE_F32}),
      make("norm_gated_linear",
           {f32({3, 5}), f32({3, 8}), floats({8}), floats({5, 8}), floats({5, 8}), floats({5}), absent()})
          .with(aa_norm_activation_params{0, 1e-6f, AA_ACTIVATION_SILU, AA_DTYPE_F32}),
      make("norm_qkv_rope", {f32({3, 4, 8}), floats({2, 2, 16, 8}), floats({2, 2, 16, 8}), f32({3, 12}), floats({12}),
                             floats({32, 12}), floats({32}), floats({16, 12}), absent(), floats({16, 12}), floats({16}),
                             f32({3, 4}), f32({3, 4}), i32({3}), i32({3})})
          .with(aa_norm_rope_params{0, 1e-6f, 0, AA_DTYPE_BF16}),
      make("norm_quantized_gated_linear",
           {f32({3, 5}), f32({3, 64}), floats({64}), u8({5, 36}), u8({5, 36}), floats({5}), absent()})
          .with(aa_norm_quantized_params{0, 1e-6f, AA_BLOCK_Q4_0, AA_QUANTIZED_ROUNDED, AA_ACTIVATION_SILU, 0}),
      make("norm_quantized_qkv_rope", {f32({3, 4, 8}), floats({2, 2, 16, 8}), floats({2, 2, 16, 8}), f32({3, 64}),
                                       floats({64}), u8({32, 36}), floats({32}), u8({16, 36}), absent(), u8({16, 36}),
                                       floats({16}), f32({3, 4}), f32({3, 4}), i32({3}), i32({3})})
          .with(aa_norm_quantized_params{0, 1e-6f, AA_BLOCK_Q4_0, AA_QUANTIZED_EXACT, 0, 1}),
  };
}

Call good(const std::string& op) {
  for (Call& call : good_calls()) {
    if (call.op == op) return call;
  }
  throw std::runtime_error("no op " + op);
}

// A good call made from the op's description: every tensor present, letters as in good_calls(), parameters 0.
Call described_call(const OpSchema& schema) {
  std::map<char, int64_t> sizes = {{'T', 3}, {'H', 8}, {'V', 9},  {'M', 3}, {'N', 5}, {'K', 32}, {'R', 3},
                                   {'D', 8}, {'B', 2}, {'S', 16}, {'q', 4}, {'k', 2}, {'x', 32}, {'y', 16},
                                   {'a', 5}, {'b', 2}, {'c', 3},  {'d', 4}, {'.', 6}, {'2', 2},  {'C', 18}};
  if (is_for_quantized_cache(*find_op_by_name(schema.name))) {  // a row of a cache is a block of Q8_0
    sizes['D'] = 32;
    sizes['C'] = 34;
  }
  Call call{std::string(schema.name), {}, std::vector<uint8_t>(schema.params_size)};
  for (const TensorSchema& t : schema.tensors) {
    std::vector<int64_t> shape;
    for (const char* letter = t.shape; *letter; ++letter) shape.push_back(sizes.at(*letter));
    call.tensors.push_back(tensor(std::bit_width(t.dtypes) - 1, shape));
  }
  if (schema.params_size) std::memcpy(call.params.data(), &schema.params_size, sizeof(uint32_t));
  return call;
}

// The same with parameters that the op accepts.
Call accepted_call(size_t i) {
  const OpSchema& schema = op_schemas()[i];
  Call good = described_call(schema);
  // 0 is no penalty and no probability, and random bits are integers.
  if (schema.name == "repetition_penalty") good.with(aa_repetition_params{0, 1.1f});
  if (schema.name == "random") good.with(aa_random_params{0, AA_RANDOM_UNIFORM, 1, 0, 0, 1});
  // No format has the number 0.
  if (schema.name == "quantized_embedding_shard") {
    good.with(aa_quantized_shard_params{0, AA_BLOCK_Q4_0, 4});
  } else if (is_for_quantized_weights(static_cast<Op>(i))) {
    good.with(aa_quantized_params{0, AA_BLOCK_Q4_0, AA_QUANTIZED_EXACT});
  }
  if (std::string_view(schema.name).starts_with("norm_quantized")) {
    good.with(aa_norm_quantized_params{0, 0, AA_BLOCK_Q4_0, AA_QUANTIZED_EXACT, 0, 0});
  }
  if (schema.name == "norm_linear") good.with(aa_norm_linear_params{0, 0, AA_DTYPE_F32});
  if (schema.name == "norm_gated_linear") good.with(aa_norm_activation_params{0, 0, 0, AA_DTYPE_F32});
  if (schema.name == "norm_qkv_rope") good.with(aa_norm_rope_params{0, 0, 0, AA_DTYPE_F16});
  if (schema.name == "quantized_cache_write") good.with(aa_cache_params{0, AA_BLOCK_Q8_0});
  if (schema.name == "quantized_attention") {
    good.with(aa_quantized_attention_params{0, 0.3f, 0, 0, AA_BLOCK_Q8_0});
  }
  if (schema.name == "sample") good.with(aa_sample_params{0, 1, 0, 1, 0});
  return good;
}

TEST(OpSchema, EveryOpIsFoundAndChecksItsTensors) {
  ASSERT_EQ(op_schemas().size(), op_count);
  for (size_t i = 0; i < op_count; ++i) {
    const OpSchema& schema = op_schemas()[i];
    EXPECT_EQ(schema.name, op_names[i]);
    EXPECT_EQ(find_op_schema(op_names[i]), &schema);
    ASSERT_LE(schema.tensors.size(), size_t{AA_OP_MAX_TENSORS});
    const Call good = accepted_call(i);
    EXPECT_EQ(good.error(), "") << schema.name;
    for (size_t t = 0; t < schema.tensors.size(); ++t) {
      Call bad = good;
      bad.tensors[t].dtype = AA_DTYPE_F8_E5M2 + 1;
      EXPECT_NE(bad.error().find("has dtype"), std::string::npos) << schema.name << ": " << bad.error();
      bad = good;
      bad.tensors[t] = absent();
      EXPECT_EQ(bad.error().empty(), schema.tensors[t].optional) << schema.name << ": " << bad.error();
      if (schema.tensors[t].shape[0] == '.') continue;  // any number of dimensions may be right
      bad = good;
      bad.tensors[t].ndim += 1;
      EXPECT_NE(bad.error().find("has shape"), std::string::npos) << schema.name << ": " << bad.error();
    }
  }
  EXPECT_EQ(find_op_schema("convolution"), nullptr);
}

TEST(OpSchema, GoodCallsPass) {
  for (const Call& call : good_calls()) EXPECT_EQ(call.error(), "") << call.op;
}

TEST(OpSchema, RowsOfQuantizedWeightsAreWholeBlocks) {
  Call c = good("quantized_linear");
  const auto expect = [&](aa_block_format format, const std::string& part) {
    c.with(aa_quantized_params{0, format, AA_QUANTIZED_EXACT});
    EXPECT_NE(c.error().find(part), std::string::npos) << c.error();
  };
  expect(AA_BLOCK_Q8_0, "expected rows of 68 bytes, which hold 64 values of Q8_0");
  expect(AA_BLOCK_Q4_K, "rows have 64 values, expected a multiple of 256, the block of Q4_K");
  c.tensors[2].strides[1] = 2;
  expect(AA_BLOCK_Q4_0, "has the stride 2 between the bytes of a row, expected 1");
}

TEST(OpSchema, EmptyTensorsPass) {
  Call c = good("attention");
  for (size_t i : {0u, 1u}) c.tensors[i] = floats({0, 4, 8});
  for (size_t i : {4u, 5u}) c.tensors[i] = i32({0});
  EXPECT_EQ(c.error(), "");
  EXPECT_EQ(make("linear", {floats({0, 5}), floats({0, 8}), floats({5, 8}), absent(), absent()}).error(), "");
}

TEST(OpSchema, WrongSizeNamesTheTensorThatSetIt) {
  Call c = good("rms_norm");
  c.tensors = {floats({4, 128}), floats({4, 128}), floats({64}), absent()};
  EXPECT_EQ(c.error(),
            "rms_norm: tensor \"weight\" has shape [64], expected [H] = [128] to match the last dimension of \"x\"");
  c.tensors = {floats({5, 128}), floats({4, 128}), absent(), absent()};
  EXPECT_EQ(
      c.error(),
      "rms_norm: tensor \"out\" has shape [5, 128], expected [.., H] = [4, 128] to match the first dimension of \"x\"");
  c = good("linear");
  c.tensors[2] = floats({5, 9});
  EXPECT_EQ(c.error(),
            "linear: tensor \"w\" has shape [5, 9], expected [N, K] = [5, 8] to match the last dimension of \"x\"");
  c = good("linear_multi");
  c.tensors[6] = floats({3});
  EXPECT_EQ(
      c.error(),
      "linear_multi: tensor \"bias1\" has shape [3], expected [N1] = [2] to match the last dimension of \"out1\"");
  c = good("add");
  c.tensors = {floats({3, 4}), floats({3, 4}), floats({4, 3})};
  EXPECT_EQ(c.error(),
            "add: tensor \"b\" has shape [4, 3], expected [..] = [3, 4] to match the first dimension of \"a\"");
}

// Sizes that are products: heads times head size.
TEST(OpSchema, WrongNumberOfHeadElements) {
  Call c = good("norm_qkv_rope");
  c.tensors[5] = floats({30, 12});
  EXPECT_EQ(c.error(),
            "norm_qkv_rope: tensor \"w_q\" has shape [30, 12], expected [Hq*D, K] = [32, 12] to match the second "
            "dimension of \"q\"");
  c = good("norm_qkv_rope");
  c.tensors[10] = floats({8});
  EXPECT_EQ(c.error(),
            "norm_qkv_rope: tensor \"bias_v\" has shape [8], expected [Hk*D] = [16] to match the second dimension of "
            "\"k_cache\"");
  c = good("norm_qkv_rope");
  c.tensors[9] = floats({16, 13});
  EXPECT_EQ(c.error(),
            "norm_qkv_rope: tensor \"w_v\" has shape [16, 13], expected [Hk*D, K] = [16, 12] to match the last "
            "dimension of \"x\"");
  c = good("norm_qkv_rope");
  c.tensors[2] = floats({2, 2, 15, 8});
  EXPECT_EQ(
      c.error(),
      "norm_qkv_rope: tensor \"v_cache\" has shape [2, 2, 15, 8], expected [B, Hk, S, D] = [2, 2, 16, 8] to match "
      "the third dimension of \"k_cache\"");
  c = good("norm_gated_linear");
  c.tensors[4] = floats({6, 8});
  EXPECT_EQ(
      c.error(),
      "norm_gated_linear: tensor \"w_up\" has shape [6, 8], expected [N, K] = [5, 8] to match the first dimension "
      "of \"w_gate\"");
}

TEST(OpSchema, WrongRank) {
  Call c = good("linear");
  c.tensors[1] = floats({2, 3, 8});
  EXPECT_EQ(c.error(), "linear: tensor \"x\" has shape [2, 3, 8], expected [M, K]");
  c = good("softmax");
  c.tensors[1] = floats({});
  EXPECT_EQ(c.error(), "softmax: tensor \"x\" has shape [], expected [.., V]");
  c = good("sample");
  c.tensors[2] = i64({3});
  EXPECT_EQ(c.error(), "sample: tensor \"rng\" has shape [3], expected [2]");
}

TEST(OpSchema, WrongDtype) {
  Call c = good("embedding");
  c.tensors[2] = f32({3});
  EXPECT_EQ(c.error(), "embedding: tensor \"ids\" has dtype float32, expected int32 or int64");
  c = good("linear");
  c.tensors[1] = i32({3, 8});
  EXPECT_EQ(c.error(), "linear: tensor \"x\" has dtype int32, expected float16, bfloat16 or float32");
  c = good("copy");
  c.tensors[1].dtype = 77;
  EXPECT_EQ(c.error(), "copy: tensor \"x\" has dtype invalid, expected a dtype of abi/base.h");
  c = good("random");
  c.with(aa_random_params{0, AA_RANDOM_BITS, 1, 0, 0, 1});
  EXPECT_NE(c.error().find("for random bits"), std::string::npos) << c.error();
}

TEST(OpSchema, NumberOfTensorsAndAbsentOnes) {
  Call c = good("rms_norm");
  c.tensors.pop_back();
  EXPECT_EQ(c.error(),
            "rms_norm: 3 tensors were passed, expected 4 (out, x, weight, residual), absent optional ones included");
  c = good("linear_multi");
  c.tensors.pop_back();
  EXPECT_NE(c.error().find("6 tensors were passed, expected 4, 7, 10 or 13"), std::string::npos) << c.error();
  c = good("softmax");
  c.tensors[1] = absent();
  EXPECT_EQ(c.error(), "softmax: tensor \"x\" is absent, but it is not optional");
}

TEST(OpSchema, ParamsAreThereAndLargeEnough) {
  Call c = good("softmax");
  c.params.clear();
  EXPECT_EQ(c.error(), "softmax: params of 0 bytes were passed, expected 8 with struct_size set");
  c = good("softmax");
  c.params[0] = 4;
  EXPECT_NE(c.error(), "");
  c = good("softmax");
  c.params.resize(64);
  c.params[0] = 64;
  EXPECT_EQ(c.error(), "") << "a larger struct of a newer caller is fine";
}

TEST(OpSchema, RowsOfQuantizedCachesAreWholeBlocks) {
  Call c = good("quantized_attention");
  c.tensors[2] = c.tensors[3] = u8({2, 2, 16, 64});
  EXPECT_EQ(
      c.error(),
      "quantized_attention: tensor \"k_cache\" has shape [2, 2, 16, 64], expected rows of 68 bytes, which hold 64 "
      "values of Q8_0");
  c = good("quantized_cache_write");
  c.tensors[1].strides[3] = 2;
  EXPECT_EQ(c.error(),
            "quantized_cache_write: tensor \"v_cache\" has the stride 2 between the bytes of a row, expected 1");
  c = good("quantized_cache_write");
  c.tensors[2] = c.tensors[3] = f32({3, 2, 40});
  EXPECT_EQ(c.error(), "quantized_cache_write: heads have 40 values, expected a multiple of 32");
}

TEST(OpSchema, OutputsMustNotOverlapThemselves) {
  Call c = good("add");
  c.tensors = {floats({3, 4}), floats({3, 4}), floats({3, 4})};
  c.tensors[1].strides[0] = 0;
  c.tensors[2].strides[1] = -1;
  EXPECT_EQ(c.error(), "");
  c.tensors[0].strides[0] = 0;
  EXPECT_EQ(c.error(),
            "add: tensor \"out\" is written, but its stride in the first dimension is 0; expected a positive one");
}

// An op may be told to write over an input only where its definition says so, and then only over all of it exactly.
TEST(OpSchema, OutputsHaveMemoryOfTheirOwn) {
  for (size_t op = 0; op < op_count; ++op) {
    const OpSchema& schema = op_schemas()[op];
    Call good = accepted_call(op);
    const auto place = [](size_t t) { return reinterpret_cast<char*>((t + 1) << 20); };
    for (size_t t = 0; t < good.tensors.size(); ++t) good.tensors[t].data = place(t);
    EXPECT_EQ(good.error(), "") << schema.name;
    for (size_t i = 0; i < good.tensors.size(); ++i) {
      if (schema.tensors[i].role == Role::In) continue;
      for (size_t j = 0; j < good.tensors.size(); ++j) {
        if (i == j) continue;
        SCOPED_TRACE(std::string(schema.name) + ", " + schema.tensors[i].name + " and " + schema.tensors[j].name);
        Call call = good;
        call.tensors[i].data = place(j);
        const bool allowed = (schema.tensors[i].in_place >> j) & 1u;
        if (schema.name == "norm_backward" && allowed) {
          EXPECT_NE(call.error().find("only where \"dweight\" and \"dbias\" are absent"), std::string::npos);
          call.tensors[1] = call.tensors[2] = absent();
        }
        EXPECT_EQ(call.error().find("shares memory with") == std::string::npos, allowed) << call.error();
        EXPECT_EQ(call.error().empty(), allowed) << call.error();
        call.tensors[i].data = place(j) + 1;
        EXPECT_NE(call.error().find("shares memory with"), std::string::npos) << call.error();
      }
    }
  }
}

TEST(OpSchema, ViewsOfOneTensorShareMemoryOnlyWhereTheirElementsDo) {
  char* const memory = reinterpret_cast<char*>(uintptr_t{4096});
  const auto view = [&](std::vector<int64_t> shape, std::vector<int64_t> strides, int64_t offset) {
    aa_tensor t = f32(std::move(shape));
    std::copy(strides.begin(), strides.end(), t.strides);
    t.data = memory + 4 * offset;
    return t;
  };
  // Queries and keys are columns of the result of one product.
  Call c = good("rope");
  c.tensors[0] = view({3, 4, 8}, {48, 8, 1}, 0);
  c.tensors[1] = view({3, 2, 8}, {48, 8, 1}, 32);
  EXPECT_EQ(c.error(), "");
  c.tensors[1] = view({3, 2, 8}, {48, 8, 1}, 24);
  EXPECT_EQ(
      c.error(),
      "rope: tensor \"q\" shares memory with \"k\", so that values of one would be lost; expected a tensor of its "
      "own");
  // A row that is added to all rows, itself included.
  c = good("add");
  c.tensors = {view({3, 4}, {4, 1}, 0), view({3, 4}, {4, 1}, 0), view({3, 4}, {0, 1}, 0)};
  EXPECT_EQ(c.error(),
            "add: tensor \"out\" shares memory with \"b\", so that values could be overwritten before they are read; "
            "expected a tensor of its own, or exactly that one, with its address, strides and dtype");
  c.tensors[2] = view({3, 4}, {0, 1}, 12);
  EXPECT_EQ(c.error(), "");
  // A transposed input.
  c.tensors = {view({4, 4}, {4, 1}, 0), view({4, 4}, {1, 4}, 0), view({4, 4}, {4, 1}, 0)};
  EXPECT_NE(c.error().find("\"out\" shares memory with \"a\""), std::string::npos) << c.error();
  // Even and odd elements.
  c.tensors = {view({4}, {2}, 0), view({4}, {2}, 1), view({4}, {2}, 1)};
  EXPECT_EQ(c.error(), "");
  // Windows that overlap.
  c.tensors = {view({3, 4}, {2, 1}, 0), view({3, 4}, {2, 1}, 100), view({3, 4}, {2, 1}, 100)};
  EXPECT_EQ(c.error(),
            "add: tensor \"out\" is written, but some of its elements share memory; expected a tensor with memory for "
            "each");
  c.tensors[0] = view({2, 2}, {3, 2}, 0);
  c.tensors[1] = c.tensors[2] = view({2, 2}, {3, 2}, 100);
  EXPECT_EQ(c.error(), "") << "elements 0, 2, 3 and 5";
  // What has no elements shares none.
  c.tensors = {view({0, 4}, {4, 1}, 0), view({0, 4}, {4, 1}, 1), view({0, 4}, {4, 1}, 2)};
  EXPECT_EQ(c.error(), "");
}

TEST(OpSchema, ParameterValues) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<Call> bad = {
      good("rms_norm").with(aa_norm_params{0, -1}),
      good("layer_norm").with(aa_norm_params{0, nan}),
      good("activation").with(aa_activation_params{0, 6}),
      good("gated_linear").with(aa_activation_params{0, -1}),
      good("rope").with(aa_rope_params{0, 2}),
      good("attention").with(aa_attention_params{0, nan, 0, 0}),
      good("attention").with(aa_attention_params{0, 1, -1, 0}),
      good("attention").with(aa_attention_params{0, 1, 0, -1}),
      good("repetition_penalty").with(aa_repetition_params{0, 0}),
      good("sample").with(aa_sample_params{0, -1, 0, 1, 0}),
      good("sample").with(aa_sample_params{0, 1, -1, 1, 0}),
      good("sample").with(aa_sample_params{0, 1, 0, 0, 0}),
      good("sample").with(aa_sample_params{0, 1, 0, 1.5f, 0}),
      good("sample").with(aa_sample_params{0, 1, 0, nan, 0}),
      good("sample").with(aa_sample_params{0, 1, 0, 1, -0.1f}),
      good("sample").with(aa_sample_params{0, 1, 0, 1, 1.5f}),
      good("quantized_linear").with(aa_quantized_params{0, 0, 0}),
      good("quantized_linear").with(aa_quantized_params{0, AA_BLOCK_Q4_0, 2}),
      good("quantized_cache_write").with(aa_cache_params{0, AA_BLOCK_Q4_0}),
      good("quantized_attention").with(aa_quantized_attention_params{0, nan, 0, 0, AA_BLOCK_Q8_0}),
      good("quantized_attention").with(aa_quantized_attention_params{0, 1, -1, 0, AA_BLOCK_Q8_0}),
      good("quantized_attention").with(aa_quantized_attention_params{0, 1, 0, 0, 0}),
      good("frequency_penalty").with(aa_frequency_params{0, nan, 0}),
      good("frequency_penalty").with(aa_frequency_params{0, 0, nan}),
      good("embedding_shard").with(aa_embedding_shard_params{0, 0, -1}),
      good("quantized_embedding_shard").with(aa_quantized_shard_params{0, AA_BLOCK_Q8_0, -1}),
      good("quantized_embedding_shard").with(aa_quantized_shard_params{0, 1, 0}),
      good("norm_linear").with(aa_norm_linear_params{0, nan, AA_DTYPE_F32}),
      good("norm_gated_linear").with(aa_norm_activation_params{0, -1, 0, AA_DTYPE_F32}),
      good("norm_gated_linear").with(aa_norm_activation_params{0, 0, 6, AA_DTYPE_F32}),
      good("norm_qkv_rope").with(aa_norm_rope_params{0, -1, 0, AA_DTYPE_F32}),
      good("norm_qkv_rope").with(aa_norm_rope_params{0, 0, 2, AA_DTYPE_F32}),
      good("norm_qkv_rope").with(aa_norm_rope_params{0, 0, 0, AA_DTYPE_F64}),
      good("norm_linear").with(aa_norm_linear_params{0, 0, 0}),
      good("norm_quantized_gated_linear").with(aa_norm_quantized_params{0, 0, AA_BLOCK_Q4_0, 2, 0, 0}),
      good("norm_quantized_gated_linear").with(aa_norm_quantized_params{0, 0, AA_BLOCK_Q4_0, 0, 6, 0}),
      good("norm_quantized_qkv_rope").with(aa_norm_quantized_params{0, 0, AA_BLOCK_Q4_0, 0, 0, 2}),
      good("random").with(aa_random_params{0, 3, 1, 0, 0, 1}),
      good("random").with(aa_random_params{0, AA_RANDOM_NORMAL, 1, 0, 0, std::numeric_limits<double>::infinity()}),
  };
  for (const Call& c : bad) {
    EXPECT_NE(c.error().find(c.op + ": parameter "), std::string::npos) << c.op << ": " << c.error();
  }
  EXPECT_EQ(good("rms_norm").with(aa_norm_params{0, -1e-9f}).error(),
            "rms_norm: parameter eps is -1e-09, expected a finite number, at least 0");
  EXPECT_EQ(good("rms_norm").with(aa_norm_params{0, -1.0000001f}).error(),
            "rms_norm: parameter eps is -1.0000001, expected a finite number, at least 0");
  EXPECT_EQ(good("gated_linear").with(aa_activation_params{0, 9}).error(),
            "gated_linear: parameter kind is 9, expected an aa_activation, 0 to 5");
}

TEST(OpSchema, RelationsBetweenSizes) {
  Call c = good("attention");
  c.tensors[0] = c.tensors[1] = floats({3, 3, 8});
  c.tensors[6] = f32({3});
  EXPECT_EQ(
      c.error(),
      "attention: tensor \"q\" has Hq = 3 heads, expected a multiple of Hk = 2, the second dimension of \"k_cache\"");
  c = good("rope");
  c.tensors[2] = c.tensors[3] = f32({3, 5});
  EXPECT_NE(c.error().find("2 * 5 rotated elements do not fit in heads of size D = 8"), std::string::npos) << c.error();
  c = good("norm_qkv_rope");
  c.tensors[11] = c.tensors[12] = f32({3, 5});
  EXPECT_NE(c.error().find("2 * 5 rotated elements do not fit in heads of size D = 8"), std::string::npos) << c.error();
  c = good("norm_qkv_rope");
  c.tensors[0] = f32({3, 3, 8});
  c.tensors[5] = floats({24, 12});
  c.tensors[6] = floats({24});
  EXPECT_EQ(c.error(),
            "norm_qkv_rope: tensor \"q\" has Hq = 3 heads, expected a multiple of Hk = 2, the second dimension of "
            "\"k_cache\"");
  c = good("argmax");
  c.tensors[1] = f32({3, 0});
  EXPECT_NE(c.error().find("at least one column"), std::string::npos) << c.error();
  c = make("cross_entropy", {f32({3}), absent(), f32({3, 0}), i64({3})}).with(aa_softmax_params{0, 1});
  EXPECT_EQ(c.error(), "cross_entropy: tensor \"x\" has shape [3, 0], expected at least one column to choose from");
}

}  // namespace
}  // namespace anyaccel::ops
