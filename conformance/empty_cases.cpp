// Cases of ops on tensors without elements: nothing is read or written there, a sum of nothing is 0, or what it is added to,
// and nothing fails. Sizes that are 0 are those of rows, of columns, and of what is summed. The form "null" gives such
// tensors no memory at all.
#include <algorithm>
#include <cmath>
#include <memory>
#include <type_traits>
#include <utility>

#include "conformance/op_run.h"
#include "runtime/ops/op_list.h"

namespace anyaccel::conformance {
namespace empty_group {
namespace {

constexpr int32_t f32 = AA_DTYPE_F32, i32 = AA_DTYPE_I32, u8 = AA_DTYPE_U8;

Values nans(size_t size) { return Values(size, std::nan("")); }

// A tensor of numbers.
OpTensor filled(const Context& c, int32_t dtype, const Shape& shape, unsigned seed) {
  return {c, dtype, shape, numbers(count_of(shape), seed)};
}

// A tensor that the call overwrites.
OpTensor unwritten(const Context& c, int32_t dtype, const Shape& shape) {
  return {c, dtype, shape, nans(count_of(shape))};
}

struct NoParams {};

// What one of the tensors holds after a call.
struct Result {
  const OpTensor& tensor;
  Values values;
};

// Runs a call; null: an absent tensor. Tensors without a result hold what they held before.
template <class Params>
void check(OpRun& op, const std::string& what, const std::vector<const OpTensor*>& tensors, Params params,
           const std::vector<Result>& results = {}) {
  std::vector<aa_tensor> views;
  for (const OpTensor* tensor : tensors) views.push_back(tensor ? tensor->view() : absent);
  bool ran = false;
  if constexpr (std::is_same_v<Params, NoParams>) {
    ran = op.run(views, nullptr, 0, what, true);
  } else {
    params.struct_size = sizeof(params);
    ran = op.run(views, &params, sizeof(params), what, true);
  }
  if (!ran) return;
  for (const OpTensor* tensor : tensors) {
    if (!tensor) continue;
    const auto result =
        std::ranges::find_if(results, [&](const Result& candidate) { return &candidate.tensor == tensor; });
    op.compare(*tensor, result == results.end() ? tensor->given() : result->values, what);
  }
}

const Shape empties[] = {{0, 5}, {3, 0}};

std::string text(const Shape& empty) { return empty[0] == 0 ? "of no rows" : "of no columns"; }

// An op whose tensors are all of one shape, or flags of that shape. There is nothing to compare but what surrounds them.
template <class Params>
void check_alike(OpRun& op, const Context& c, const std::vector<int32_t>& dtypes, const Params& params) {
  for (const Shape& empty : empties) {
    std::vector<std::unique_ptr<OpTensor>> tensors;
    std::vector<const OpTensor*> given;
    for (const int32_t dtype : dtypes) {
      tensors.push_back(std::make_unique<OpTensor>(c, dtype, empty));
      given.push_back(tensors.back().get());
    }
    check(op, text(empty), given, params);
  }
}

template <class Params>
void check_floats(const Context& c, const char* name, size_t count, const Params& params) {
  OpRun op(c, name);
  for (const int32_t dtype : float_dtypes) check_alike(op, c, std::vector<int32_t>(count, dtype), params);
  op.finish();
}

// ---- one element after the other ----

void activation(const Context& c) { check_floats(c, "activation", 2, aa_activation_params{}); }
void gated_activation(const Context& c) { check_floats(c, "gated_activation", 3, aa_activation_params{}); }
void add(const Context& c) { check_floats(c, "add", 3, NoParams{}); }
void multiply(const Context& c) { check_floats(c, "multiply", 3, NoParams{}); }
void scaled_add(const Context& c) { check_floats(c, "scaled_add", 3, aa_scaled_add_params{0, 2, 3}); }
void activation_backward(const Context& c) { check_floats(c, "activation_backward", 3, aa_activation_params{}); }
void gated_activation_backward(const Context& c) {
  check_floats(c, "gated_activation_backward", 6, aa_activation_params{});
}

void dropout(const Context& c) {
  OpRun op(c, "dropout");
  for (const int32_t dtype : float_dtypes) check_alike(op, c, {dtype, u8, dtype}, aa_dropout_params{0, 0.5f, 1, 2});
  op.finish();
}

void apply_mask(const Context& c) {
  OpRun op(c, "apply_mask");
  for (const int32_t dtype : float_dtypes) check_alike(op, c, {dtype, dtype, u8}, aa_softmax_params{0, 2});
  op.finish();
}

// Of one dtype, between floats, and between what only a plain loop converts.
void copy(const Context& c) {
  OpRun op(c, "copy");
  for (const auto& [to, from] : {std::pair{f32, f32},
                                 {int32_t{AA_DTYPE_BF16}, f32},
                                 {f32, int32_t{AA_DTYPE_F16}},
                                 {i32, f32},
                                 {int32_t{AA_DTYPE_BOOL}, i32},
                                 {int32_t{AA_DTYPE_F64}, u8}}) {
    check_alike(op, c, {to, from}, NoParams{});
  }
  op.finish();
}

void increment(const Context& c) {
  OpRun op(c, "increment");
  for (const int32_t dtype : {AA_DTYPE_I32, AA_DTYPE_I64}) check_alike(op, c, {dtype}, aa_increment_params{0, 0, 3});
  op.finish();
}

void random(const Context& c) {
  OpRun op(c, "random");
  for (const int32_t kind : {AA_RANDOM_BITS, AA_RANDOM_UNIFORM, AA_RANDOM_NORMAL}) {
    const int32_t dtype = kind == AA_RANDOM_BITS ? i32 : f32;
    check_alike(op, c, {dtype}, aa_random_params{0, kind, 1, 2, 0, 1});
  }
  op.finish();
}

// ---- rows ----

void softmax(const Context& c) { check_floats(c, "softmax", 2, aa_softmax_params{0, 1}); }
void softmax_masked(const Context& c) { check_floats(c, "softmax_masked", 3, aa_softmax_params{0, 1}); }
void softmax_backward(const Context& c) { check_floats(c, "softmax_backward", 3, aa_softmax_params{0, 1}); }

void rms_norm(const Context& c) {
  OpRun op(c, "rms_norm");
  for (const int32_t dtype : float_dtypes) {
    for (const Shape& empty : empties) {
      const OpTensor out(c, dtype, empty), x(c, dtype, empty), residual(c, dtype, empty);
      const OpTensor weight = filled(c, dtype, {empty[1]}, 1);
      check(op, text(empty), {&out, &x, &weight, &residual}, aa_norm_params{0, 1e-5f});
      check(op, text(empty) + ", plain", {&out, &x, nullptr, nullptr}, aa_norm_params{0, 1e-5f});
    }
  }
  op.finish();
}

void layer_norm(const Context& c) {
  OpRun op(c, "layer_norm");
  for (const int32_t dtype : float_dtypes) {
    for (const Shape& empty : empties) {
      const OpTensor out(c, dtype, empty), x(c, dtype, empty), residual(c, dtype, empty);
      const OpTensor weight = filled(c, dtype, {empty[1]}, 1), bias = filled(c, dtype, {empty[1]}, 2);
      check(op, text(empty), {&out, &x, &weight, &bias, &residual}, aa_norm_params{0, 1e-5f});
      check(op, text(empty) + ", plain", {&out, &x, nullptr, nullptr, nullptr}, aa_norm_params{0, 1e-5f});
    }
  }
  op.finish();
}

void moments(const Context& c) {
  OpRun op(c, "moments");
  for (const int32_t dtype : float_dtypes) {
    for (const int32_t centred : {0, 1}) {
      const OpTensor mean(c, f32, {0}), variance(c, f32, {0}), x(c, dtype, {0, 5});
      check(op, "of no rows", {&mean, &variance, &x}, aa_moments_params{0, 1, centred});
    }
  }
  op.finish();
}

void norm_backward(const Context& c) {
  OpRun op(c, "norm_backward");
  for (const int32_t dtype : float_dtypes) {
    for (const Shape& empty : empties) {
      for (const int32_t accumulate : {0, 1}) {
        const Shape row{empty[1]}, column{empty[0]};
        const size_t columns = count_of(row);
        const OpTensor dx(c, dtype, empty), dy(c, dtype, empty), x(c, dtype, empty), mean(c, f32, column);
        const OpTensor weight = filled(c, dtype, row, 1), variance(c, f32, column, Values(count_of(column), 1));
        const OpTensor dweight = accumulate ? filled(c, f32, row, 2) : unwritten(c, f32, row);
        const OpTensor dbias = accumulate ? filled(c, f32, row, 3) : unwritten(c, f32, row);
        const auto sums = [&](const OpTensor& before) { return accumulate ? before.given() : Values(columns); };
        check(op, text(empty), {&dx, &dweight, &dbias, &dy, &x, &weight, &mean, &variance},
              aa_accumulate_params{0, accumulate}, {{dweight, sums(dweight)}, {dbias, sums(dbias)}});
      }
      const OpTensor dx(c, dtype, empty), dy(c, dtype, empty), x(c, dtype, empty);
      const OpTensor variance(c, f32, {empty[0]}, Values(static_cast<size_t>(empty[0]), 1));
      check(op, text(empty) + ", only dx", {&dx, nullptr, nullptr, &dy, &x, nullptr, nullptr, &variance},
            aa_accumulate_params{});
    }
  }
  op.finish();
}

void layer_norm_inverse(const Context& c) {
  OpRun op(c, "layer_norm_inverse");
  for (const int32_t dtype : float_dtypes) {
    for (const Shape& empty : empties) {
      const Shape row{empty[1]}, column{empty[0]};
      const OpTensor x(c, dtype, empty), y(c, dtype, empty), bias(c, dtype, row), mean(c, f32, column);
      const OpTensor weight(c, dtype, row, Values(count_of(row), 1)),
          variance(c, f32, column, Values(count_of(column), 1));
      check(op, text(empty), {&x, &y, &weight, &bias, &mean, &variance}, NoParams{});
    }
  }
  op.finish();
}

void column_sums(const Context& c) {
  OpRun op(c, "column_sums");
  for (const int32_t dtype : float_dtypes) {
    for (const Shape& empty : empties) {
      for (const int32_t accumulate : {0, 1}) {
        const OpTensor x(c, dtype, empty);
        const OpTensor out = accumulate ? filled(c, f32, {empty[1]}, 1) : unwritten(c, f32, {empty[1]});
        check(op, text(empty), {&out, &x}, aa_accumulate_params{0, accumulate},
              {{out, accumulate ? out.given() : Values(out.given().size())}});
      }
    }
  }
  op.finish();
}

void cross_entropy(const Context& c) {
  OpRun op(c, "cross_entropy");
  for (const int32_t dtype : float_dtypes) {
    const OpTensor loss(c, f32, {0}), dx(c, dtype, {0, 5}), x(c, dtype, {0, 5}), targets(c, AA_DTYPE_I64, {0});
    check(op, "of no rows", {&loss, &dx, &x, &targets}, aa_softmax_params{0, 1});
    check(op, "of no rows, without dx", {&loss, nullptr, &x, &targets}, aa_softmax_params{0, 1});
  }
  op.finish();
}

// ---- tables ----

void embedding(const Context& c) {
  OpRun op(c, "embedding");
  for (const int32_t dtype : float_dtypes) {
    for (const int32_t to : {dtype, f32}) {
      for (const Shape& empty : empties) {
        const OpTensor out(c, to, empty), table = filled(c, dtype, {4, empty[1]}, 1);
        const OpTensor ids(c, i32, {empty[0]}, empty[0] ? Values{3, 0, 3} : Values{});
        check(op, text(empty), {&out, &table, &ids}, NoParams{});
      }
      const OpTensor out(c, to, {0, 5}), table(c, dtype, {0, 5}), ids(c, i32, {0});
      check(op, "of an empty table", {&out, &table, &ids}, NoParams{});
    }
  }
  op.finish();
}

void embedding_shard(const Context& c) {
  OpRun op(c, "embedding_shard");
  for (const int32_t dtype : float_dtypes) {
    for (const Shape& empty : empties) {
      const OpTensor out(c, dtype, empty), table = filled(c, dtype, {4, empty[1]}, 1);
      const OpTensor ids(c, i32, {empty[0]}, empty[0] ? Values{3, 0, 9} : Values{});
      check(op, text(empty), {&out, &table, &ids}, aa_embedding_shard_params{0, 0, 2});
    }
    const OpTensor out = unwritten(c, dtype, {3, 5}), table(c, dtype, {0, 5}), ids(c, i32, {3}, {2, 0, 9});
    check(op, "of an empty table", {&out, &table, &ids}, aa_embedding_shard_params{0, 0, 2}, {{out, Values(15)}});
  }
  op.finish();
}

void embedding_backward(const Context& c) {
  OpRun op(c, "embedding_backward");
  for (const int32_t dtype : float_dtypes) {
    for (const Shape& empty : empties) {
      const OpTensor dtable = filled(c, f32, {4, empty[1]}, 1), dy(c, dtype, empty);
      const OpTensor ids(c, AA_DTYPE_I64, {empty[0]}, empty[0] ? Values{2, 0, 2} : Values{});
      check(op, text(empty), {&dtable, &dy, &ids}, NoParams{});
    }
  }
  op.finish();
}

// Of formats with blocks of 32 and of 256 values.
constexpr struct {
  int32_t number;
  int64_t values, bytes;
} formats[] = {{AA_BLOCK_Q8_0, 32, 34}, {AA_BLOCK_Q4_K, 256, 144}, {AA_BLOCK_MXFP4, 32, 17}};

OpTensor blocks(const Context& c, int64_t rows, int64_t bytes) {
  return {c, u8, {rows, bytes}, Values(static_cast<size_t>(rows * bytes), 1), of_blocks};
}

void quantized_embedding(const Context& c) {
  OpRun op(c, "quantized_embedding");
  for (const auto& format : formats) {
    const aa_quantized_params params{0, format.number, AA_QUANTIZED_EXACT};
    for (const int64_t rows : {0, 3}) {  // of a whole block, or of none
      const OpTensor out(c, f32, {rows, rows ? 0 : format.values}), table = blocks(c, 4, rows ? 0 : format.bytes);
      const OpTensor ids(c, i32, {rows}, rows ? Values{3, 0, 3} : Values{});
      check(op, rows ? "of no columns" : "of no rows", {&out, &table, &ids}, params);
    }
  }
  op.finish();
}

void quantized_embedding_shard(const Context& c) {
  OpRun op(c, "quantized_embedding_shard");
  for (const auto& format : formats) {
    const aa_quantized_shard_params params{0, format.number, 2};
    for (const int64_t rows : {0, 3}) {
      const OpTensor out(c, f32, {rows, rows ? 0 : format.values}), table = blocks(c, 4, rows ? 0 : format.bytes);
      const OpTensor ids(c, i32, {rows}, rows ? Values{3, 0, 9} : Values{});
      check(op, rows ? "of no columns" : "of no rows", {&out, &table, &ids}, params);
    }
    const OpTensor out = unwritten(c, f32, {3, format.values}), table = blocks(c, 0, format.bytes);
    const OpTensor ids(c, i32, {3}, {2, 0, 9});
    check(op, "of an empty table", {&out, &table, &ids}, params, {{out, Values(out.given().size())}});
  }
  op.finish();
}

// ---- products ----

// M, N and K, of which one is 0.
struct Sizes {
  int64_t rows, outputs, inputs;
  const char* name;
};
constexpr Sizes sizes[] = {{0, 5, 8, "of no rows"}, {3, 0, 8, "of no columns"}, {3, 5, 0, "of no inputs"}};

// Small integers, whose sums and products every dtype holds.
Values integers(int64_t count, unsigned seed) {
  Values values = numbers(static_cast<size_t>(count), seed, 4);
  for (double& value : values) value = std::nearbyint(value);
  return values;
}

// `added` for every row; zeros if there is none.
Values in_every_row(int64_t rows, int64_t columns, const Values& added) {
  Values values(static_cast<size_t>(rows * columns));
  for (size_t i = 0; i < values.size() && !added.empty(); ++i) values[i] = added[i % added.size()];
  return values;
}

void linear(const Context& c) {
  OpRun op(c, "linear");
  for (const int32_t dtype : float_dtypes) {
    for (const Sizes& s : sizes) {
      const OpTensor x = filled(c, dtype, {s.rows, s.inputs}, 1), w = filled(c, dtype, {s.outputs, s.inputs}, 2);
      const OpTensor bias(c, dtype, {s.outputs}, integers(s.outputs, 3));
      const OpTensor residual(c, dtype, {s.rows, s.outputs}, integers(s.rows * s.outputs, 4));
      const OpTensor out = unwritten(c, dtype, {s.rows, s.outputs});
      const Values zeros(out.given().size());
      check(op, s.name, {&out, &x, &w, nullptr, nullptr}, NoParams{}, {{out, zeros}});
      Values sums = in_every_row(s.rows, s.outputs, bias.given());
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += residual.given()[i];
      const OpTensor again = unwritten(c, dtype, {s.rows, s.outputs});
      check(op, s.name + std::string(", with bias and residual"), {&again, &x, &w, &bias, &residual}, NoParams{},
            {{again, sums}});
    }
  }
  op.finish();
}

// Of four products one has no outputs.
void linear_multi(const Context& c) {
  OpRun op(c, "linear_multi");
  for (const int32_t dtype : float_dtypes) {
    for (const int64_t rows : {0, 3}) {
      const OpTensor x = filled(c, dtype, {rows, 0}, 1);
      std::vector<std::unique_ptr<OpTensor>> owned;
      std::vector<const OpTensor*> tensors{&x};
      std::vector<Result> results;
      for (const int64_t outputs : {4, 0, 1, 5}) {
        owned.push_back(
            std::make_unique<OpTensor>(c, dtype, Shape{rows, outputs}, nans(static_cast<size_t>(rows * outputs))));
        owned.push_back(std::make_unique<OpTensor>(c, dtype, Shape{outputs, 0}));
        owned.push_back(std::make_unique<OpTensor>(c, dtype, Shape{outputs}, integers(outputs, 2)));
        for (size_t i = owned.size() - 3; i < owned.size(); ++i) tensors.push_back(owned[i].get());
        results.push_back({*owned[owned.size() - 3], in_every_row(rows, outputs, owned.back()->given())});
      }
      check(op, rows ? "of no inputs" : "of no rows", tensors, NoParams{}, results);
    }
    const OpTensor x = filled(c, dtype, {0, 8}, 1), w = filled(c, dtype, {3, 8}, 2), out(c, dtype, {0, 3});
    check(op, "of no rows, one weight", {&x, &out, &w, nullptr}, NoParams{});
  }
  op.finish();
}

void gated_linear(const Context& c) {
  OpRun op(c, "gated_linear");
  const aa_activation_params params{0, AA_ACTIVATION_RELU};
  for (const int32_t dtype : float_dtypes) {
    for (const Sizes& s : sizes) {
      const Shape w_shape{s.outputs, s.inputs};
      const OpTensor x = filled(c, dtype, {s.rows, s.inputs}, 1), gate = filled(c, dtype, w_shape, 2);
      const OpTensor up = filled(c, dtype, w_shape, 3), out = unwritten(c, dtype, {s.rows, s.outputs});
      const OpTensor gate_bias(c, dtype, {s.outputs}, integers(s.outputs, 4));
      const OpTensor up_bias(c, dtype, {s.outputs}, integers(s.outputs, 5));
      check(op, s.name, {&out, &x, &gate, &up, nullptr, nullptr}, params, {{out, Values(out.given().size())}});
      Values products;
      for (size_t i = 0; i < gate_bias.given().size(); ++i) {
        products.push_back(std::max(gate_bias.given()[i], 0.0) * up_bias.given()[i]);
      }
      const OpTensor again = unwritten(c, dtype, {s.rows, s.outputs});
      check(op, s.name + std::string(", with biases"), {&again, &x, &gate, &up, &gate_bias, &up_bias}, params,
            {{again, in_every_row(s.rows, s.outputs, products)}});
    }
  }
  op.finish();
}

void quantized_linear(const Context& c) {
  OpRun op(c, "quantized_linear");
  for (const auto& format : formats) {
    for (const int32_t rounding : {AA_QUANTIZED_EXACT, AA_QUANTIZED_ROUNDED}) {
      const aa_quantized_params params{0, format.number, rounding};
      for (const int32_t dtype : float_dtypes) {
        for (const Sizes& s : sizes) {
          const bool block = s.inputs > 0;
          const OpTensor x = filled(c, dtype, {s.rows, block ? format.values : 0}, 1);
          const OpTensor w = blocks(c, s.outputs, block ? format.bytes : 0);
          const OpTensor bias(c, dtype, {s.outputs}, integers(s.outputs, 3));
          const OpTensor residual(c, dtype, {s.rows, s.outputs}, integers(s.rows * s.outputs, 4));
          const OpTensor out = unwritten(c, dtype, {s.rows, s.outputs});
          Values sums = in_every_row(s.rows, s.outputs, bias.given());
          for (size_t i = 0; i < sums.size(); ++i) sums[i] += residual.given()[i];
          check(op, s.name, {&out, &x, &w, &bias, &residual}, params, {{out, sums}});
        }
      }
    }
  }
  op.finish();
}

void matmul(const Context& c) {
  OpRun op(c, "matmul");
  struct Matrices {
    int64_t batches, m, n, k;
    const char* name;
  };
  for (const int32_t dtype : float_dtypes) {
    for (const Matrices& s : {Matrices{0, 2, 3, 4, "no batches"}, Matrices{2, 0, 3, 4, "no rows"},
                              Matrices{2, 2, 0, 4, "no columns"}, Matrices{2, 2, 3, 0, "no products"}}) {
      for (const int32_t accumulate : {0, 1}) {
        const Shape out_shape{s.batches, s.m, s.n};
        const OpTensor a = filled(c, dtype, {s.batches, s.m, s.k}, 1), b = filled(c, dtype, {s.batches, s.k, s.n}, 2);
        const OpTensor out = accumulate ? filled(c, dtype, out_shape, 3) : unwritten(c, dtype, out_shape);
        check(op, s.name, {&out, &a, &b}, aa_accumulate_params{0, accumulate},
              {{out, accumulate ? out.given() : Values(out.given().size())}});
      }
    }
  }
  op.finish();
}

// ---- positions ----

void rope_table(const Context& c) {
  OpRun op(c, "rope_table");
  for (const Shape& empty : empties) {
    const OpTensor cosine(c, f32, empty), sine(c, f32, empty), frequencies = filled(c, f32, {empty[1]}, 1);
    const OpTensor positions(c, i32, {empty[0]}, empty[0] ? Values{0, 1, 2} : Values{});
    check(op, text(empty), {&cosine, &sine, &frequencies, &positions}, aa_rope_table_params{0, 1});
  }
  op.finish();
}

void rope(const Context& c) {
  OpRun op(c, "rope");
  struct Heads {
    int64_t tokens, q_heads, k_heads, size, pairs;
    const char* name;
  };
  for (const int32_t dtype : float_dtypes) {
    for (const Heads& s : {Heads{0, 2, 1, 8, 4, "of no tokens"}, Heads{3, 0, 0, 8, 4, "of no heads"},
                           Heads{3, 2, 0, 8, 0, "of no key heads"}, Heads{3, 2, 1, 0, 0, "of empty heads"},
                           Heads{3, 2, 1, 8, 0, "of nothing to rotate"}}) {
      for (const int32_t interleaved : {0, 1}) {
        const OpTensor q = filled(c, dtype, {s.tokens, s.q_heads, s.size}, 1);
        const OpTensor k = filled(c, dtype, {s.tokens, s.k_heads, s.size}, 2);
        const OpTensor cosine = filled(c, f32, {s.tokens, s.pairs}, 3), sine = filled(c, f32, {s.tokens, s.pairs}, 4);
        check(op, s.name, {&q, &k, &cosine, &sine}, aa_rope_params{0, interleaved});
        check(op, s.name, {&q, nullptr, &cosine, &sine}, aa_rope_params{0, interleaved});
      }
    }
  }
  op.finish();
}

// ---- caches ----

struct CacheSizes {
  int64_t tokens, sequences, heads, slots, size;
  const char* name;
};
constexpr CacheSizes caches[] = {{0, 2, 1, 3, 32, "of no tokens"},
                                 {0, 0, 1, 3, 32, "of no sequences"},
                                 {0, 2, 1, 0, 32, "of no slots"},
                                 {3, 2, 0, 3, 32, "of no heads"},
                                 {3, 2, 1, 3, 0, "of empty heads"}};

// Where the tokens of such a call belong.
struct Places {
  Places(const Context& c, int64_t tokens)
      : sequence(c, i32, {tokens}, tokens ? Values{0, 1, 1} : Values{}),
        positions(c, i32, {tokens}, tokens ? Values{2, 0, 1} : Values{}) {}
  OpTensor sequence, positions;
};

void cache_write(const Context& c) {
  OpRun op(c, "cache_write");
  for (const int32_t dtype : float_dtypes) {
    for (const CacheSizes& s : caches) {
      const Shape cache_shape{s.sequences, s.heads, s.slots, s.size}, shape{s.tokens, s.heads, s.size};
      const OpTensor k_cache = filled(c, dtype, cache_shape, 1), v_cache = filled(c, dtype, cache_shape, 2);
      const OpTensor k = filled(c, f32, shape, 3), v = filled(c, f32, shape, 4);
      const Places places(c, s.tokens);
      check(op, s.name, {&k_cache, &v_cache, &k, &v, &places.sequence, &places.positions}, NoParams{});
    }
  }
  op.finish();
}

void attention(const Context& c) {
  OpRun op(c, "attention");
  for (const int32_t dtype : float_dtypes) {
    for (const CacheSizes& s : caches) {
      const Shape cache_shape{s.sequences, s.heads, s.slots, s.size}, shape{s.tokens, 2 * s.heads, s.size};
      const OpTensor out(c, dtype, shape), q = filled(c, dtype, shape, 1);
      const OpTensor k = filled(c, dtype, cache_shape, 2), v = filled(c, dtype, cache_shape, 3);
      const OpTensor slopes = filled(c, f32, {2 * s.heads}, 4), sinks = filled(c, f32, {2 * s.heads}, 5);
      const Places places(c, s.tokens);
      const aa_attention_params params{0, 1, 0, 0};
      check(op, s.name, {&out, &q, &k, &v, &places.sequence, &places.positions, nullptr, nullptr}, params);
      check(op, s.name, {&out, &q, &k, &v, &places.sequence, &places.positions, &slopes, &sinks}, params);
    }
  }
  op.finish();
}

int64_t cache_bytes(int32_t format, int64_t size) { return format == AA_CACHE_Q8_0 ? size / 32 * 34 : size; }

OpTensor quantized_cache(const Context& c, const CacheSizes& s, int32_t format) {
  const Shape shape{s.sequences, s.heads, s.slots, cache_bytes(format, s.size)};
  return {c, u8, shape, Values(count_of(shape), 1), of_blocks};
}

void quantized_cache_write(const Context& c) {
  OpRun op(c, "quantized_cache_write");
  for (const int32_t format : {AA_CACHE_Q8_0, AA_CACHE_F8_E4M3}) {
    for (const CacheSizes& s : caches) {
      const Shape shape{s.tokens, s.heads, s.size};
      const OpTensor k_cache = quantized_cache(c, s, format), v_cache = quantized_cache(c, s, format);
      const OpTensor k = filled(c, f32, shape, 3), v = filled(c, f32, shape, 4);
      const Places places(c, s.tokens);
      check(op, s.name, {&k_cache, &v_cache, &k, &v, &places.sequence, &places.positions}, aa_cache_params{0, format});
    }
  }
  op.finish();
}

void quantized_attention(const Context& c) {
  OpRun op(c, "quantized_attention");
  for (const int32_t format : {AA_CACHE_Q8_0, AA_CACHE_F8_E4M3}) {
    for (const int32_t dtype : float_dtypes) {
      for (const CacheSizes& s : caches) {
        const Shape shape{s.tokens, 2 * s.heads, s.size};
        const OpTensor out(c, dtype, shape), q = filled(c, dtype, shape, 1);
        const OpTensor k = quantized_cache(c, s, format), v = quantized_cache(c, s, format);
        const Places places(c, s.tokens);
        check(op, s.name, {&out, &q, &k, &v, &places.sequence, &places.positions, nullptr, nullptr},
              aa_quantized_attention_params{0, 1, 0, 0, format});
      }
    }
  }
  op.finish();
}

// ---- tokens ----

void argmax(const Context& c) {
  OpRun op(c, "argmax");
  for (const int32_t dtype : float_dtypes) {
    const OpTensor out(c, i32, {0}), x(c, dtype, {0, 5});
    check(op, "of no rows", {&out, &x}, NoParams{});
  }
  op.finish();
}

void repetition_penalty(const Context& c) {
  OpRun op(c, "repetition_penalty");
  for (const int32_t dtype : float_dtypes) check_alike(op, c, {dtype, u8}, aa_repetition_params{0, 2});
  op.finish();
}

void frequency_penalty(const Context& c) {
  OpRun op(c, "frequency_penalty");
  const aa_frequency_params params{0, 1, 2};
  for (const int32_t dtype : float_dtypes) {
    for (const Shape& empty : empties) {
      const OpTensor logits(c, dtype, empty), counts(c, i32, empty);
      check(op, text(empty), {&logits, &counts, nullptr}, params);
      const OpTensor ids(c, i32, {empty[0]}, empty[0] ? Values{0, -1, 7} : Values{});  // none of them is a token
      check(op, text(empty) + ", with ids", {&logits, &counts, &ids}, params);
    }
  }
  op.finish();
}

void sample(const Context& c) {
  OpRun op(c, "sample");
  for (const int32_t dtype : float_dtypes) {
    for (const float temperature : {0.0f, 1.0f}) {
      const OpTensor out(c, i32, {0}), logits(c, dtype, {0, 5}), rng(c, AA_DTYPE_I64, {2}, {5, 7});
      const OpTensor seen(c, u8, {0, 5});
      const aa_sample_params params{0, temperature, 3, 0.5f, 0.1f};
      check(op, "of no rows", {&out, &logits, &rng, nullptr}, params);
      check(op, "of no rows, with seen", {&out, &logits, &rng, &seen}, params);
    }
  }
  op.finish();
}

// ---- fused ops ----

void norm_linear(const Context& c) {
  OpRun op(c, "norm_linear");
  for (const int32_t dtype : float_dtypes) {
    for (const Sizes& s : sizes) {
      if (s.inputs == 0) continue;  // the mean of nothing
      const OpTensor x = filled(c, dtype, {s.rows, s.inputs}, 1), w = filled(c, dtype, {s.outputs, s.inputs}, 2);
      const OpTensor norm = filled(c, dtype, {s.inputs}, 3), bias = filled(c, dtype, {s.outputs}, 4);
      const OpTensor out(c, dtype, {s.rows, s.outputs});
      check(op, s.name, {&out, &x, &norm, &w, &bias}, aa_norm_linear_params{0, 1e-5f, f32});
    }
  }
  op.finish();
}

void norm_gated_linear(const Context& c) {
  OpRun op(c, "norm_gated_linear");
  for (const int32_t dtype : float_dtypes) {
    for (const Sizes& s : sizes) {
      if (s.inputs == 0) continue;
      const Shape w_shape{s.outputs, s.inputs};
      const OpTensor x = filled(c, dtype, {s.rows, s.inputs}, 1), norm = filled(c, dtype, {s.inputs}, 2);
      const OpTensor gate = filled(c, dtype, w_shape, 3), up = filled(c, dtype, w_shape, 4);
      const OpTensor out(c, dtype, {s.rows, s.outputs});
      check(op, s.name, {&out, &x, &norm, &gate, &up, nullptr, nullptr},
            aa_norm_activation_params{0, 1e-5f, AA_ACTIVATION_SILU, f32});
    }
  }
  op.finish();
}

void norm_quantized_gated_linear(const Context& c) {
  OpRun op(c, "norm_quantized_gated_linear");
  for (const int32_t rounding : {AA_QUANTIZED_EXACT, AA_QUANTIZED_ROUNDED}) {
    for (const Sizes& s : sizes) {
      if (s.inputs == 0) continue;
      const OpTensor x = filled(c, f32, {s.rows, 32}, 1), norm = filled(c, f32, {32}, 2);
      const OpTensor gate = blocks(c, s.outputs, 34), up = blocks(c, s.outputs, 34), out(c, f32, {s.rows, s.outputs});
      check(op, s.name, {&out, &x, &norm, &gate, &up, nullptr, nullptr},
            aa_norm_quantized_params{0, 1e-5f, AA_BLOCK_Q8_0, rounding, AA_ACTIVATION_SILU, 0});
    }
  }
  op.finish();
}

// Of no tokens: the caches stay as they are.
template <class Params>
void check_qkv(OpRun& op, const Context& c, int32_t dtype, const OpTensor& w_q, const OpTensor& w_k,
               const Params& params) {
  const Shape cache_shape{2, 1, 3, 32};
  const OpTensor q(c, dtype, {0, 2, 32}), x(c, dtype, {0, 32}), norm = filled(c, dtype, {32}, 1);
  const OpTensor k_cache = filled(c, dtype, cache_shape, 2), v_cache = filled(c, dtype, cache_shape, 3);
  const OpTensor cosine(c, f32, {0, 16}), sine(c, f32, {0, 16});
  const Places places(c, 0);
  check(op, "of no tokens",
        {&q, &k_cache, &v_cache, &x, &norm, &w_q, nullptr, &w_k, nullptr, &w_k, nullptr, &cosine, &sine,
         &places.sequence, &places.positions},
        params);
}

void norm_qkv_rope(const Context& c) {
  OpRun op(c, "norm_qkv_rope");
  for (const int32_t dtype : float_dtypes) {
    const OpTensor w_q = filled(c, dtype, {64, 32}, 4), w_k = filled(c, dtype, {32, 32}, 5);
    check_qkv(op, c, dtype, w_q, w_k, aa_norm_rope_params{0, 1e-5f, 0, f32});
  }
  op.finish();
}

void norm_quantized_qkv_rope(const Context& c) {
  OpRun op(c, "norm_quantized_qkv_rope");
  for (const int32_t rounding : {AA_QUANTIZED_EXACT, AA_QUANTIZED_ROUNDED}) {
    check_qkv(op, c, f32, blocks(c, 64, 34), blocks(c, 32, 34),
              aa_norm_quantized_params{0, 1e-5f, AA_BLOCK_Q8_0, rounding, 0, 0});
  }
  op.finish();
}

// Each op needs a function of its name above.
#define ANYACCEL_EMPTY_CASE(number, op, ...) {"op." #op, "no_rows", op},
constexpr Case cases[] = {ANYACCEL_OPS(ANYACCEL_EMPTY_CASE) ANYACCEL_FUSED_OPS(ANYACCEL_EMPTY_CASE)};

}  // namespace
}  // namespace empty_group

std::span<const Case> empty_cases() { return empty_group::cases; }

}  // namespace anyaccel::conformance
