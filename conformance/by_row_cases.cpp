// Cases of the ops that compute by row: what they give for a row has the same bits alone, among others, and in every place
// among them, and it is nearly what the op without "_by_row" gives. Deterministic sessions need the same of other ops,
// which a driver that has these promises with them.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "conformance/op_run.h"

namespace anyaccel::conformance {
namespace by_row_group {
namespace {

constexpr int32_t f32 = AA_DTYPE_F32, i32 = AA_DTYPE_I32, u8 = AA_DTYPE_U8;
constexpr size_t few_rows = 40, more_rows = 100;

// A tensor of a call of several rows: one with a row for each, or one that all share.
struct Part {
  int32_t dtype = AA_DTYPE_NONE;  // none: absent
  Shape shape;
  Values values;
  bool has_rows = false;
  const Layout* layout = &dense;
};

Part shared(int32_t dtype, const Shape& shape, unsigned seed, double range = 1) {
  return {dtype, shape, numbers(count_of(shape), seed, range)};
}
// `shape` without the rows.
Part of_rows(size_t rows, int32_t dtype, Shape shape, Values values) {
  shape.insert(shape.begin(), static_cast<int64_t>(rows));
  return {dtype, std::move(shape), std::move(values), true};
}
Part of_rows(size_t rows, int32_t dtype, const Shape& shape, unsigned seed, double range = 2) {
  return of_rows(rows, dtype, shape, numbers(rows * count_of(shape), seed, range));
}
Part output(size_t rows, int32_t dtype, const Shape& shape) {
  return of_rows(rows, dtype, shape, Values(rows * count_of(shape), std::nan("")));
}

// Where an output holds what belongs to a row: row `row` of the case, and number `place` of the `count` rows of the call.
using RowOf = Bytes (*)(const Bytes& output, size_t row, size_t place, size_t count);

struct Call {
  std::vector<Part> parts;
  std::vector<size_t> outputs;    // numbers of the parts that are compared
  RowOf row_of_output = nullptr;  // null: outputs have the rows of the call, in their order
  size_t rows() const { return static_cast<size_t>(std::ranges::find(parts, true, &Part::has_rows)->shape[0]); }
};

template <class T>
std::vector<T> row_of(const std::vector<T>& all, size_t row, size_t count) {
  const size_t size = all.size() / count;
  return {all.begin() + static_cast<std::ptrdiff_t>(row * size),
          all.begin() + static_cast<std::ptrdiff_t>((row + 1) * size)};
}

// What each output holds after the call for some of the rows, in an order: bytes, and their values.
struct Found {
  std::vector<Bytes> bytes;
  std::vector<Values> values;
};

struct NoParams {};

template <class Params>
std::optional<Found> run(const Context& c, OpRun& op, const Call& call, const std::vector<size_t>& chosen,
                         Params params) {
  std::vector<std::unique_ptr<OpTensor>> tensors;
  std::vector<aa_tensor> views;
  for (const Part& part : call.parts) {
    tensors.emplace_back();
    if (part.dtype == AA_DTYPE_NONE) {
      views.push_back(absent);
      continue;
    }
    Shape shape = part.shape;
    Values values = part.values;
    if (part.has_rows) {
      shape[0] = static_cast<int64_t>(chosen.size());
      values.clear();
      for (const size_t row : chosen) {
        const Values one = row_of(part.values, row, call.rows());
        values.insert(values.end(), one.begin(), one.end());
      }
    }
    tensors.back() = std::make_unique<OpTensor>(c, part.dtype, shape, values, *part.layout);
    views.push_back(tensors.back()->view());
  }
  bool ran = false;
  if constexpr (std::is_same_v<Params, NoParams>) {
    ran = op.run(views, nullptr, 0, "by row", true);
  } else {
    params.struct_size = sizeof(params);
    ran = op.run(views, &params, sizeof(params), "by row", true);
  }
  if (!ran) return {};
  Found found;
  for (const size_t i : call.outputs) {
    found.bytes.push_back(tensors[i]->found_bytes());
    found.values.push_back(tensors[i]->found());
  }
  return found;
}

std::vector<size_t> from_to(size_t begin, size_t end) {
  std::vector<size_t> chosen;
  for (size_t row = begin; row < end; ++row) chosen.push_back(row);
  return chosen;
}

template <class Params>
void check(const Context& c, OpRun& op, OpRun* base, const Call& call, const Params& params, const std::string& what) {
  const size_t rows = call.rows();
  const std::vector<size_t> everything = from_to(0, rows);
  const auto all = run(c, op, call, everything, params);
  if (!all) return;
  std::vector<std::vector<size_t>> choices = {
      {0}, {1}, {rows - 1}, {5, 2}, from_to(3, 6), from_to(0, 8), from_to(7, 23), from_to(1, 18), from_to(2, rows - 5)};
  choices.emplace_back(everything.rbegin(), everything.rend());
  const auto bytes_of = [&](const Bytes& output, size_t row, size_t place, size_t count) {
    return call.row_of_output ? call.row_of_output(output, row, place, count) : row_of(output, place, count);
  };
  for (const std::vector<size_t>& chosen : choices) {
    const auto some = run(c, op, call, chosen, params);
    c.expect(some.has_value(), what + ": a call of " + std::to_string(chosen.size()) + " rows is refused, and one of " +
                                   std::to_string(rows) + " is not");
    for (size_t i = 0; i < call.outputs.size(); ++i) {
      for (size_t place = 0; place < chosen.size(); ++place) {
        const size_t row = chosen[place];
        c.expect(bytes_of(some->bytes[i], row, place, chosen.size()) == bytes_of(all->bytes[i], row, row, rows),
                 what + ": row " + std::to_string(row) + " has other bits as number " + std::to_string(place) + " of " +
                     std::to_string(chosen.size()) + " rows than among " + std::to_string(rows));
      }
    }
  }
  const auto plain = base ? run(c, *base, call, everything, params) : std::nullopt;
  for (size_t i = 0; plain && i < call.outputs.size(); ++i) {
    const Values& expected = plain->values[i];
    double largest = 0;
    for (const double value : expected) largest = std::max(largest, std::fabs(value));
    // Both may round what they multiply to their 16-bit type, and a quantized product 32 inputs to 127ths.
    op.compare_values(f32, all->values[i], expected, what + ", beside the op without _by_row",
                      Values(expected.size(), largest));
  }
}

// An op by row, and the same one without that, if it is there.
class Ops {
 public:
  Ops(const Context& c, const char* by_row, const char* plain)
      : op(c, by_row, {.factor = 0.02, .scale_text = "the largest result"}) {
    if (c.ops->find(plain) >= 0) base_.emplace(c, plain);
  }
  OpRun* base() { return base_ ? &*base_ : nullptr; }
  OpRun op;

 private:
  std::optional<OpRun> base_;
};

struct Sizes {
  int64_t outputs, inputs;
  size_t rows = few_rows;
};
// More rows than there are in a block of the products that are cut into blocks, and sums that are cut.
constexpr Sizes sizes[] = {{1, 7}, {33, 67}, {64, 256, more_rows}, {130, 515}, {16, 2048}};

std::string text(const Sizes& s, int32_t dtype) {
  return std::to_string(s.rows) + " rows, " + std::to_string(s.outputs) + " outputs of " + std::to_string(s.inputs) +
         " inputs, " + dtype_text(dtype);
}

void linear(const Context& c) {
  Ops ops(c, "linear_by_row", "linear");
  for (const int32_t dtype : float_dtypes) {
    for (const Sizes& s : sizes) {
      check(c, ops.op, ops.base(),
            {{output(s.rows, dtype, {s.outputs}), of_rows(s.rows, dtype, {s.inputs}, 1),
              shared(dtype, {s.outputs, s.inputs}, 2), shared(dtype, {s.outputs}, 3),
              of_rows(s.rows, dtype, {s.outputs}, 4)},
             {0}},
            NoParams{}, text(s, dtype));
    }
  }
  ops.op.finish();
}

void linear_multi(const Context& c) {
  Ops ops(c, "linear_multi_by_row", "linear_multi");
  for (const int32_t dtype : float_dtypes) {
    for (const Sizes& s : sizes) {
      Call call{{of_rows(s.rows, dtype, {s.inputs}, 1)}, {1, 4, 7}};
      for (const int64_t outputs : {s.outputs, int64_t{16}, int64_t{3}}) {
        call.parts.push_back(output(s.rows, dtype, {outputs}));
        call.parts.push_back(shared(dtype, {outputs, s.inputs}, static_cast<unsigned>(outputs)));
        call.parts.push_back(outputs == 16 ? Part{} : shared(dtype, {outputs}, 3));
      }
      check(c, ops.op, ops.base(), call, NoParams{}, text(s, dtype));
    }
  }
  ops.op.finish();
}

void gated_linear(const Context& c) {
  Ops ops(c, "gated_linear_by_row", "gated_linear");
  for (const int32_t dtype : float_dtypes) {
    for (const Sizes& s : sizes) {
      const Shape w_shape{s.outputs, s.inputs};
      check(c, ops.op, ops.base(),
            {{output(s.rows, dtype, {s.outputs}), of_rows(s.rows, dtype, {s.inputs}, 1), shared(dtype, w_shape, 2, 0.2),
              shared(dtype, w_shape, 3, 0.2), shared(dtype, {s.outputs}, 4), shared(dtype, {s.outputs}, 5)},
             {0}},
            aa_activation_params{0, AA_ACTIVATION_SILU}, text(s, dtype));
    }
  }
  ops.op.finish();
}

// Blocks of Q8_0 whose scale is 1/64.
Values blocks(size_t count, unsigned seed) {
  const Bytes codes = pattern(count * 32, seed);
  Values bytes;
  for (size_t i = 0; i < codes.size(); ++i) {
    if (i % 32 == 0) bytes.insert(bytes.end(), {0x00, 0x24});
    bytes.push_back(codes[i]);
  }
  return bytes;
}

void quantized_linear(const Context& c) {
  Ops ops(c, "quantized_linear_by_row", "quantized_linear");
  for (const int32_t rounding : {AA_QUANTIZED_EXACT, AA_QUANTIZED_ROUNDED}) {
    for (const int32_t dtype : float_dtypes) {
      for (const Sizes& s : {Sizes{1, 32}, {33, 96}, {64, 256, more_rows}, {130, 512}, {16, 2048}}) {
        const int64_t count = s.inputs / 32;
        const Part w{u8, {s.outputs, count * 34}, blocks(static_cast<size_t>(s.outputs * count), 2), false, &of_blocks};
        check(c, ops.op, ops.base(),
              {{output(s.rows, dtype, {s.outputs}), of_rows(s.rows, dtype, {s.inputs}, 1), w,
                shared(dtype, {s.outputs}, 3), of_rows(s.rows, dtype, {s.outputs}, 4)},
               {0}},
              aa_quantized_params{0, AA_BLOCK_Q8_0, rounding}, text(s, dtype));
      }
    }
  }
  ops.op.finish();
}

// Tokens of three sequences, most of the second.
constexpr int64_t sequences = 3, slots = 70;
Part sequence_of() {
  Values which(few_rows, 1);
  for (size_t t = 0; t < few_rows; t += 4) which[t] = static_cast<double>(t % 3);
  return of_rows(few_rows, i32, {}, std::move(which));
}
Part positions() {
  Values where(few_rows);
  for (size_t t = 0; t < few_rows; ++t) where[t] = static_cast<double>(t * 31 % slots);
  return of_rows(few_rows, i32, {}, std::move(where));
}

struct Heads {
  int64_t queries, keys, size;
};
constexpr Heads all_heads[] = {{1, 1, 32}, {6, 2, 64}, {4, 4, 128}};

std::string text(const Heads& h, int32_t dtype, int32_t window) {
  return std::to_string(h.queries) + " heads of " + std::to_string(h.size) + ", window " + std::to_string(window) +
         ", " + dtype_text(dtype);
}

void attention(const Context& c) {
  Ops ops(c, "attention_by_row", "attention");
  for (const int32_t dtype : float_dtypes) {
    for (const Heads& h : all_heads) {
      for (const int32_t window : {0, 9}) {
        const Shape cache{sequences, h.keys, slots, h.size};
        check(c, ops.op, ops.base(),
              {{output(few_rows, dtype, {h.queries, h.size}), of_rows(few_rows, dtype, {h.queries, h.size}, 1),
                shared(dtype, cache, 2), shared(dtype, cache, 3), sequence_of(), positions(), Part{}, Part{}},
               {0}},
              aa_attention_params{0, 0.125f, window, 0}, text(h, dtype, window));
      }
    }
  }
  ops.op.finish();
}

void quantized_attention(const Context& c) {
  Ops ops(c, "quantized_attention_by_row", "quantized_attention");
  for (const int32_t dtype : float_dtypes) {
    for (const Heads& h : all_heads) {
      for (const int32_t window : {0, 9}) {
        const Shape shape{sequences, h.keys, slots, h.size / 32 * 34};
        const auto count = static_cast<size_t>(sequences * h.keys * slots * h.size / 32);
        const Part k{u8, shape, blocks(count, 2), false, &of_blocks}, v{u8, shape, blocks(count, 3), false, &of_blocks};
        check(c, ops.op, ops.base(),
              {{output(few_rows, dtype, {h.queries, h.size}), of_rows(few_rows, dtype, {h.queries, h.size}, 1), k, v,
                sequence_of(), positions(), Part{}, Part{}},
               {0}},
              aa_quantized_attention_params{0, 0.125f, window, 0, AA_CACHE_Q8_0}, text(h, dtype, window));
      }
    }
  }
  ops.op.finish();
}

// ---- what a driver with these ops promises of others ----

OpRun promised(const Context& c, const char* name) {
  if (c.ops->find("linear_by_row") < 0) c.unsupported("there is no op \"linear_by_row\", so that nothing is promised");
  return {c, name};
}

void rms_norm(const Context& c) {
  OpRun op = promised(c, "rms_norm");
  for (const int32_t dtype : float_dtypes) {
    for (const int64_t width : {7, 64, 515}) {
      check(c, op, nullptr,
            {{output(few_rows, dtype, {width}), of_rows(few_rows, dtype, {width}, 1), shared(dtype, {width}, 2),
              of_rows(few_rows, dtype, {width}, 3)},
             {0, 3}},
            aa_norm_params{0, 1e-5f}, "rows of " + std::to_string(width));
    }
  }
  op.finish();
}

void layer_norm(const Context& c) {
  OpRun op = promised(c, "layer_norm");
  for (const int32_t dtype : float_dtypes) {
    for (const int64_t width : {7, 64, 515}) {
      check(c, op, nullptr,
            {{output(few_rows, dtype, {width}), of_rows(few_rows, dtype, {width}, 1), shared(dtype, {width}, 2),
              shared(dtype, {width}, 3), of_rows(few_rows, dtype, {width}, 4)},
             {0, 4}},
            aa_norm_params{0, 1e-5f}, "rows of " + std::to_string(width));
    }
  }
  op.finish();
}

void rope_table(const Context& c) {
  OpRun op = promised(c, "rope_table");
  for (const int64_t pairs : {3, 64}) {
    check(c, op, nullptr,
          {{output(few_rows, f32, {pairs}), output(few_rows, f32, {pairs}), shared(f32, {pairs}, 1), positions()},
           {0, 1}},
          aa_rope_table_params{0, 1}, std::to_string(pairs) + " pairs");
  }
  op.finish();
}

void rope(const Context& c) {
  OpRun op = promised(c, "rope");
  for (const int32_t dtype : float_dtypes) {
    for (const int64_t size : {6, 64}) {
      check(c, op, nullptr,
            {{of_rows(few_rows, dtype, {3, size}, 1), of_rows(few_rows, dtype, {2, size}, 2),
              of_rows(few_rows, f32, {size / 2}, 3, 1), of_rows(few_rows, f32, {size / 2}, 4, 1)},
             {0, 1}},
            aa_rope_params{}, "heads of " + std::to_string(size));
    }
  }
  op.finish();
}

constexpr int64_t activation_widths[] = {7, 64, 1030};
constexpr aa_activation activations[] = {AA_ACTIVATION_SILU, AA_ACTIVATION_GELU,    AA_ACTIVATION_GELU_TANH,
                                         AA_ACTIVATION_RELU, AA_ACTIVATION_SIGMOID, AA_ACTIVATION_TANH};

std::string text(aa_activation kind, int64_t width, int32_t dtype) {
  return "activation " + std::to_string(kind) + " of rows of " + std::to_string(width) + ", " + dtype_text(dtype);
}

void activation(const Context& c) {
  OpRun op = promised(c, "activation");
  for (const int32_t dtype : float_dtypes) {
    for (const aa_activation kind : activations) {
      for (const int64_t width : activation_widths) {
        check(c, op, nullptr, {{output(few_rows, dtype, {width}), of_rows(few_rows, dtype, {width}, 1, 6)}, {0}},
              aa_activation_params{0, kind}, text(kind, width, dtype));
      }
    }
  }
  op.finish();
}

void gated_activation(const Context& c) {
  OpRun op = promised(c, "gated_activation");
  for (const int32_t dtype : float_dtypes) {
    for (const aa_activation kind : activations) {
      for (const int64_t width : activation_widths) {
        check(c, op, nullptr,
              {{output(few_rows, dtype, {width}), of_rows(few_rows, dtype, {width}, 1, 6),
                of_rows(few_rows, dtype, {width}, 2)},
               {0}},
              aa_activation_params{0, kind}, text(kind, width, dtype));
      }
    }
  }
  op.finish();
}

void add(const Context& c) {
  OpRun op = promised(c, "add");
  for (const int32_t dtype : float_dtypes) {
    for (const int64_t width : activation_widths) {
      check(c, op, nullptr,
            {{output(few_rows, dtype, {width}), of_rows(few_rows, dtype, {width}, 1),
              of_rows(few_rows, dtype, {width}, 2)},
             {0}},
            NoParams{}, "rows of " + std::to_string(width));
    }
  }
  op.finish();
}

void scaled_add(const Context& c) {
  OpRun op = promised(c, "scaled_add");
  for (const int32_t dtype : float_dtypes) {
    for (const int64_t width : activation_widths) {
      check(c, op, nullptr,
            {{output(few_rows, dtype, {width}), of_rows(few_rows, dtype, {width}, 1),
              of_rows(few_rows, dtype, {width}, 2)},
             {0}},
            aa_scaled_add_params{0, 0.7f, 1.3f}, "rows of " + std::to_string(width));
    }
  }
  op.finish();
}

// The slots of a cache that a token writes: number `slot` of its sequence, in every head.
constexpr int64_t written_heads = 3;
size_t sequence_of_row(size_t row) { return row % static_cast<size_t>(sequences); }
size_t slot_of_row(size_t row) { return row * 31 % static_cast<size_t>(slots); }
Bytes written_by(const Bytes& cache, size_t row, size_t, size_t) {
  const size_t size = cache.size() / static_cast<size_t>(sequences * written_heads * slots);
  Bytes found;
  for (size_t head = 0; head < written_heads; ++head) {
    const size_t at = ((sequence_of_row(row) * written_heads + head) * static_cast<size_t>(slots) + slot_of_row(row));
    found.insert(found.end(), cache.begin() + static_cast<std::ptrdiff_t>(at * size),
                 cache.begin() + static_cast<std::ptrdiff_t>((at + 1) * size));
  }
  return found;
}
// Tokens that write no slot twice.
Call of_caches(const Part& k_cache, const Part& v_cache, int32_t dtype, int64_t size) {
  Values which(few_rows), where(few_rows);
  for (size_t t = 0; t < few_rows; ++t) {
    which[t] = static_cast<double>(sequence_of_row(t));
    where[t] = static_cast<double>(slot_of_row(t));
  }
  return {{k_cache, v_cache, of_rows(few_rows, dtype, {written_heads, size}, 3),
           of_rows(few_rows, dtype, {written_heads, size}, 4), of_rows(few_rows, i32, {}, std::move(which)),
           of_rows(few_rows, i32, {}, std::move(where))},
          {0, 1},
          written_by};
}

void cache_write(const Context& c) {
  OpRun op = promised(c, "cache_write");
  for (const int32_t dtype : float_dtypes) {
    for (const int32_t source : {dtype, f32}) {
      for (const int64_t size : {6, 64, 130}) {
        const Shape shape{sequences, written_heads, slots, size};
        check(c, op, nullptr, of_caches(shared(dtype, shape, 1), shared(dtype, shape, 2), source, size), NoParams{},
              std::string("from ") + dtype_text(source) + " to " + dtype_text(dtype) + ", heads of " +
                  std::to_string(size));
      }
    }
  }
  op.finish();
}

void quantized_cache_write(const Context& c) {
  OpRun op = promised(c, "quantized_cache_write");
  for (const int32_t dtype : float_dtypes) {
    for (const aa_cache_format format : {AA_CACHE_Q8_0, AA_CACHE_F8_E4M3}) {
      for (const int64_t size : {32, 96, 128}) {
        const int64_t row_bytes = format == AA_CACHE_Q8_0 ? size / 32 * 34 : size;
        const Shape shape{sequences, written_heads, slots, row_bytes};
        const Part cache{u8, shape, Values(count_of(shape)), false, &of_blocks};
        check(c, op, nullptr, of_caches(cache, cache, dtype, size), aa_cache_params{0, format},
              std::string("from ") + dtype_text(dtype) + " to format " + std::to_string(format) + ", heads of " +
                  std::to_string(size));
      }
    }
  }
  op.finish();
}

// Ids of a table of `count` rows, some of them several times.
Part ids_below(int64_t count) {
  Values ids(few_rows);
  for (size_t t = 0; t < few_rows; ++t) ids[t] = static_cast<double>(t * 29 % static_cast<size_t>(count));
  return of_rows(few_rows, i32, {}, std::move(ids));
}
constexpr int64_t table_rows = 33;

void embedding(const Context& c) {
  OpRun op = promised(c, "embedding");
  for (const int32_t dtype : float_dtypes) {
    for (const int32_t to : {dtype, f32}) {
      for (const int64_t width : {7, 64, 515}) {
        check(
            c, op, nullptr,
            {{output(few_rows, to, {width}), shared(dtype, {table_rows, width}, 1), ids_below(table_rows)}, {0}},
            NoParams{},
            std::string("from ") + dtype_text(dtype) + " to " + dtype_text(to) + ", rows of " + std::to_string(width));
      }
    }
  }
  op.finish();
}

void quantized_embedding(const Context& c) {
  OpRun op = promised(c, "quantized_embedding");
  for (const int32_t dtype : float_dtypes) {
    for (const int64_t count : {1, 3, 16}) {
      const Part table{
          u8, {table_rows, count * 34}, blocks(static_cast<size_t>(table_rows * count), 2), false, &of_blocks};
      check(c, op, nullptr, {{output(few_rows, dtype, {count * 32}), table, ids_below(table_rows)}, {0}},
            aa_quantized_params{0, AA_BLOCK_Q8_0, AA_QUANTIZED_EXACT},
            "rows of " + std::to_string(count) + " blocks, " + dtype_text(dtype));
    }
  }
  op.finish();
}

// ---- choosing tokens ----

constexpr int64_t vocabularies[] = {7, 515, 4099};

void argmax(const Context& c) {
  OpRun op = promised(c, "argmax");
  for (const int32_t dtype : float_dtypes) {
    for (const int64_t width : vocabularies) {
      const auto w = static_cast<size_t>(width);
      Values x = numbers(few_rows * w, 1);
      // Two maxima, in places that differ from row to row.
      for (size_t r = 0; r < few_rows; ++r) x[r * w + r * 101 % w] = x[r * w + (r * 37 + w / 2) % w] = 3;
      check(c, op, nullptr, {{output(few_rows, i32, {}), of_rows(few_rows, dtype, {width}, std::move(x))}, {0}},
            NoParams{}, "rows of " + std::to_string(width) + ", " + dtype_text(dtype));
    }
  }
  op.finish();
}

void repetition_penalty(const Context& c) {
  OpRun op = promised(c, "repetition_penalty");
  for (const int32_t dtype : float_dtypes) {
    for (const int64_t width : vocabularies) {
      Values seen(few_rows * static_cast<size_t>(width));
      for (size_t i = 0; i < seen.size(); i += 3) seen[i] = 1;
      check(c, op, nullptr,
            {{of_rows(few_rows, dtype, {width}, 1, 10), of_rows(few_rows, u8, {width}, std::move(seen))}, {0}},
            aa_repetition_params{0, 1.3f}, "rows of " + std::to_string(width) + ", " + dtype_text(dtype));
    }
  }
  op.finish();
}

void frequency_penalty(const Context& c) {
  OpRun op = promised(c, "frequency_penalty");
  for (const int32_t dtype : float_dtypes) {
    for (const int64_t width : vocabularies) {
      Values counts(few_rows * static_cast<size_t>(width));
      for (size_t i = 0; i < counts.size(); i += 3) counts[i] = static_cast<double>(i % 5);
      check(c, op, nullptr,
            {{of_rows(few_rows, dtype, {width}, 1, 10), of_rows(few_rows, i32, {width}, std::move(counts)),
              ids_below(width)},
             {0, 1}},
            aa_frequency_params{0, 0.3f, 0.7f}, "rows of " + std::to_string(width) + ", " + dtype_text(dtype));
    }
  }
  op.finish();
}

// Of calls with one row: the token depends on the row, the parameters and rng, and not on where in memory the row lies.
void sample(const Context& c) {
  OpRun op = promised(c, "sample");
  const aa_sample_params all_params[] = {{sizeof(aa_sample_params), 0.9f, 0, 1, 0},
                                         {sizeof(aa_sample_params), 1.2f, 20, 0.95f, 0},
                                         {sizeof(aa_sample_params), 0.8f, 0, 0.8f, 0.01f},
                                         {sizeof(aa_sample_params), 0, 0, 1, 0}};
  for (const int32_t dtype : float_dtypes) {
    for (const int64_t width : vocabularies) {
      constexpr size_t rows = 12;
      const auto w = static_cast<size_t>(width);
      const Values values = numbers(rows * w, 3, 4);
      Values reversed;
      for (size_t r = rows; r-- > 0;) {
        const Values one = row_of(values, r, rows);
        reversed.insert(reversed.end(), one.begin(), one.end());
      }
      const OpTensor among(c, dtype, {rows, width}, values), backwards(c, dtype, {rows, width}, reversed);
      for (const aa_sample_params& params : all_params) {
        for (size_t r = 0; r < rows; ++r) {
          const OpTensor alone(c, dtype, {1, width}, row_of(values, r, rows));
          const OpTensor rng(c, AA_DTYPE_I64, {2}, {12345, static_cast<double>(r)});
          const auto row = [&](const OpTensor& of, size_t number) {
            aa_tensor view = of.view();
            view.shape[0] = 1;
            view.data = static_cast<unsigned char*>(view.data) +
                        static_cast<int64_t>(number) * view.strides[0] * dtype_size(dtype);
            return view;
          };
          // The token, and what is marked.
          const auto draw = [&](const aa_tensor& logits) {
            const OpTensor out(c, i32, {1}), seen(c, u8, {1, width});
            std::vector<Bytes> found;
            if (op.run({out.view(), logits, rng.view(), seen.view()}, params)) {
              found = {out.found_bytes(), seen.found_bytes()};
            }
            return found;
          };
          const auto expected = draw(alone.view());
          for (const aa_tensor& logits : {row(among, r), row(backwards, rows - 1 - r), alone.view()}) {
            const auto found = draw(logits);
            if (expected.empty() || found.empty()) continue;
            c.expect(found == expected,
                     "row " + std::to_string(r) + " of " + std::to_string(width) + ", " + dtype_text(dtype) +
                         ", temperature " + std::to_string(params.temperature) +
                         ": the token of the same row and random numbers differs with the place of the "
                         "row in memory, or from call to call");
          }
        }
      }
    }
  }
  op.finish();
}

constexpr Case cases[] = {
    {"op.linear_by_row", "does_not_depend_on_other_rows", linear},
    {"op.linear_multi_by_row", "does_not_depend_on_other_rows", linear_multi},
    {"op.gated_linear_by_row", "does_not_depend_on_other_rows", gated_linear},
    {"op.quantized_linear_by_row", "does_not_depend_on_other_rows", quantized_linear},
    {"op.attention_by_row", "does_not_depend_on_other_rows", attention},
    {"op.quantized_attention_by_row", "does_not_depend_on_other_rows", quantized_attention},
    {"op.rms_norm", "does_not_depend_on_other_rows", rms_norm},
    {"op.layer_norm", "does_not_depend_on_other_rows", layer_norm},
    {"op.rope_table", "does_not_depend_on_other_rows", rope_table},
    {"op.rope", "does_not_depend_on_other_rows", rope},
    {"op.activation", "does_not_depend_on_other_rows", activation},
    {"op.gated_activation", "does_not_depend_on_other_rows", gated_activation},
    {"op.add", "does_not_depend_on_other_rows", add},
    {"op.scaled_add", "does_not_depend_on_other_rows", scaled_add},
    {"op.cache_write", "does_not_depend_on_other_rows", cache_write},
    {"op.quantized_cache_write", "does_not_depend_on_other_rows", quantized_cache_write},
    {"op.embedding", "does_not_depend_on_other_rows", embedding},
    {"op.quantized_embedding", "does_not_depend_on_other_rows", quantized_embedding},
    {"op.argmax", "does_not_depend_on_other_rows", argmax},
    {"op.repetition_penalty", "does_not_depend_on_other_rows", repetition_penalty},
    {"op.frequency_penalty", "does_not_depend_on_other_rows", frequency_penalty},
    {"op.sample", "does_not_depend_on_the_place_of_a_row", sample},
};

}  // namespace
}  // namespace by_row_group

std::span<const Case> by_row_cases() { return by_row_group::cases; }

}  // namespace anyaccel::conformance
