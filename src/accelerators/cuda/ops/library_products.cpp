// Products of many rows: cuBLASLt, whose algorithm product_engine.h chooses. x and w must have the same dtype; results are summed
// in fp32 and rounded once, those of gate and up of a prompt also to bf16 before they are combined. Quantized weights are decoded
// before, piece by piece, to bf16 where the call may round, else to fp32 (kernels/cuda/dequantize.cu).
#include <algorithm>
#include <bit>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "accelerators/cuda/ops/op_group.h"
#include "accelerators/cuda/ops/product_engine.h"
#include "accelerators/cuda/ops/prompt_qkv.h"
#include "accelerators/cuda/ops/tuned_kernels.h"
#include "accelerators/cuda/stream.h"
#include "anyaccel/dtype.h"
#include "base/block_format.h"
#include "base/text/text.h"

using aa_i32 = int32_t;
using aa_i64 = int64_t;
#include "kernels/cuda/dequantize_arguments.h"
#include "kernels/cuda/gated_arguments.h"
#include "runtime/ops/op_params.h"

namespace anyaccel::cuda {
namespace {

// With fewer rows the time is that of reading w, which decode_products.cpp does faster; calls that it rejects are still
// faster here than on the portable kernels.
constexpr int64_t fewest_rows = 2;
// The two products of "gated_linear" are kept, in bf16 where rounds_gated() says so and else in fp32, until they are combined, which is
// done in pieces of columns where they would take more than a 64th of the memory, within these limits. Small pieces would leave
// multiprocessors idle at the end of each product: on an H200 2,048 rows by 4,096 columns run at 0.76 of a large product's speed, and
// 28,672 columns at 0.95.
constexpr size_t least_gated_bytes = size_t{64} << 20, most_gated_bytes = size_t{256} << 20;
constexpr size_t gated_share = 64;
constexpr int64_t fewest_columns = 1024;
constexpr unsigned most_grid_rows = 65535;
// With fewer rows, decoding weights in every row's product takes less time than writing and reading them in between.
constexpr int64_t fewest_quantized_rows = 9;
// Of decoded weights: enough for each matrix of a model of 1 billion parameters, and rows that fill a product's tiles.
constexpr size_t most_decoded_bytes = size_t{128} << 20;
constexpr int64_t decoded_rows_unit = 256;

// One product of a call: `bias` and `residual` may be absent.
struct Part {
  const aa_tensor& out;
  const aa_tensor& x;
  const aa_tensor& w;
  const aa_tensor& bias;
  const aa_tensor& residual;

  bool in_place() const { return is_there(residual) && residual.data == out.data; }
  // The library wants a bias in the dtype of the result. Where that is fp32, it gets a copy.
  bool widens_bias() const {
    return is_there(bias) && out.dtype == AA_DTYPE_F32 && (bias.dtype != AA_DTYPE_F32 || !dense_bias());
  }
  bool dense_bias() const { return bias.shape[0] <= 1 || bias.strides[0] == 1; }
  size_t bias_bytes() const { return widens_bias() ? aligned(static_cast<size_t>(out.shape[1]) * 4) : 0; }

  // Returns true if the product has a form that the library accepts.
  bool is_plain() const {
    if (x.shape[0] < fewest_rows || x.shape[1] < 1 || w.shape[0] < 1 || x.dtype != w.dtype) return false;
    if (x.dtype == AA_DTYPE_F32 && out.dtype != AA_DTYPE_F32) return false;
    if (x.dtype != AA_DTYPE_F32 && out.dtype != AA_DTYPE_F32 && out.dtype != x.dtype) return false;
    if (!is_by_rows(x) || !is_by_rows(w) || !is_by_rows(out)) return false;
    if (is_there(bias) && !widens_bias() && (bias.dtype != out.dtype || !dense_bias())) return false;
    if (!is_there(residual)) return true;
    // The library rounds a result of 16 bits twice when it adds a bias and a residual (seen on an H100). With a residual alone it
    // was not tried.
    return out.dtype == AA_DTYPE_F32 && residual.dtype == out.dtype && is_by_rows(residual) &&
           row_step(residual) == row_step(out);
  }
  ProductProblem problem() const {
    ProductProblem p;
    p.in = x.dtype;
    p.out = out.dtype;
    p.m = x.shape[0];
    p.n = w.shape[0];
    p.k = x.shape[1];
    p.x_step = row_step(x);
    p.w_step = row_step(w);
    p.out_step = row_step(out);
    p.bias = is_there(bias);
    p.residual = is_there(residual);
    p.x_align = alignment_of(x.data);
    p.w_align = alignment_of(w.data);
    p.out_align = alignment_of(out.data);
    if (p.residual) p.residual_align = alignment_of(residual.data);
    if (p.bias && !widens_bias()) p.bias_align = alignment_of(bias.data);
    return p;
  }
};

class LibraryProducts final : public OpGroup {
 public:
  explicit LibraryProducts(DeviceState& device)
      : device_(device),
        engine_(device),
        prompt_qkv_(device, engine_),
        kernels_(device, "gated.cu", {"gated_combine", "gated_widen", "gated_combine_bf16"}, {}),
        converters_(device, "dequantize_x.cu", {"dequantize_x"}, {}) {
    for (const BlockFormat& format : block_formats()) {
      std::string name(format.name);
      for (char& c : name) c = ascii_lower(c);
      decoders_.push_back(std::make_unique<TunedKernels>(device, "dequantize.cu",
                                                         std::vector<std::string>{"dequantize_w_" + name},
                                                         std::vector<std::string>{"-DAA_BLOCK=" + name}));
    }
  }

  std::span<const Op> ops() const override {
    static constexpr Op list[] = {Op::Linear, Op::LinearMulti, Op::GatedLinear, Op::QuantizedLinear, Op::NormQkvRope};
    return list;
  }

  bool supports(Op op, const aa_op_call& call, DeviceState&) override {
    const aa_tensor* t = call.tensors;
    if (op == Op::Linear) return supports(Part{t[0], t[1], t[2], t[3], t[4]});
    if (op == Op::GatedLinear) return supports_gated(call);
    if (op == Op::QuantizedLinear) return supports_quantized(call);
    if (op == Op::NormQkvRope) return prompt_qkv_.supports(call);
    for (uint32_t i = 1; i < call.tensor_count; i += 3) {
      if (!supports(Part{t[i], t[0], t[i + 1], t[i + 2], none_})) return false;
    }
    return true;
  }

  void enqueue(Op op, const aa_op_call& call, Stream& stream) override {
    const aa_tensor* t = call.tensors;
    if (op == Op::Linear) return run(Part{t[0], t[1], t[2], t[3], t[4]}, stream);
    if (op == Op::GatedLinear) return run_gated(call, stream);
    if (op == Op::QuantizedLinear) return run_quantized(call, stream);
    if (op == Op::NormQkvRope) return prompt_qkv_.enqueue(call, stream);
    run_multi(call, stream);
  }

 private:
  enum Kernel : size_t { combine, widen, combine_bf16 };

  bool supports(const Part& part) { return part.is_plain() && engine_.supports(part.problem()); }

  char* scratch(size_t library_bytes, size_t bytes, Stream& stream) {
    return product_scratch(device_, library_bytes, bytes, stream);
  }

  // Two products of one x by weights of the same shape, as one: each alone has too few tiles to fill a large device. Nothing
  // where the library does not take them together. `first` is the one of lower addresses.
  std::optional<ProductProblem> both(const Part& first, const Part& second, Stream& stream) {
    if (is_there(first.bias) || is_there(second.bias) || is_there(first.residual) || is_there(second.residual))
      return {};
    ProductProblem p = first.problem();
    if (p != second.problem()) return {};
    const auto step = [](const aa_tensor& low, const aa_tensor& high) {
      return batch_step(low.data, high.data, (low.shape[0] - 1) * row_step(low) + low.shape[1], low.dtype);
    };
    const auto w_step = step(first.w, second.w), out_step = step(first.out, second.out);
    if (!w_step || !out_step) return {};
    p.batch = 2;
    p.w_batch_step = *w_step;
    p.out_batch_step = *out_step;
    if (!engine_.supports(p) || !engine_.pays_together(p, first.problem(), stream)) return {};
    return p;
  }

  void run_multi(const aa_op_call& call, Stream& stream) {
    const aa_tensor* t = call.tensors;
    const auto part = [&](uint32_t i) { return Part{t[i], t[0], t[i + 1], t[i + 2], none_}; };
    for (uint32_t i = 1; i < call.tensor_count; i += 3) {
      if (i + 3 < call.tensor_count) {
        if (const auto problem = both(part(i), part(i + 3), stream)) {
          const auto engine = engine_.lock();
          char* memory = scratch(aligned(engine_.scratch_bytes(*problem, false, stream)), 0, stream);
          engine_.run(*problem, {t[0].data, t[i + 1].data, nullptr, nullptr, t[i].data}, memory, stream);
          i += 3;
          continue;
        }
      }
      run(part(i), stream);
    }
  }

  void run(const Part& part, Stream& stream) {
    const auto engine = engine_.lock();
    const size_t library_bytes = aligned(engine_.scratch_bytes(part.problem(), part.in_place(), stream));
    run_in(part, scratch(library_bytes, part.bias_bytes(), stream), stream);
  }

  // With the engine locked, and scratch memory for it and the bias.
  void run_in(const Part& part, char* memory, Stream& stream) {
    const ProductProblem problem = part.problem();
    const size_t library_bytes = aligned(engine_.scratch_bytes(problem, part.in_place(), stream));
    ProductOperands operands{part.x.data, part.w.data, part.bias.data, part.residual.data, part.out.data};
    if (part.widens_bias()) {
      void* wide = memory + library_bytes;
      const auto count = static_cast<aa_i64>(part.out.shape[1]);
      const aa_i64 inner = part.bias.strides[0];
      const TunedLaunch shape{.grid = {static_cast<unsigned>((count + AA_GATED_THREADS - 1) / AA_GATED_THREADS), 1, 1},
                              .block = AA_GATED_THREADS,
                              .overlaps_previous = true};
      kernels_.launch(widen, stream.handle(), shape, wide, part.bias.data, inner, count, aa_i32{part.bias.dtype});
      operands.bias = wide;
    }
    engine_.run(problem, operands, memory, stream);
  }

  // ---- gated_linear ----

  // One of the two products, into memory of `dtype`: `columns` of it from `first` on.
  static ProductProblem gated_problem(const aa_tensor& x, const aa_tensor& w, int32_t dtype, int64_t first,
                                      int64_t columns, int64_t step, const void* out) {
    ProductProblem p;
    p.in = x.dtype;
    p.out = dtype;
    p.m = x.shape[0];
    p.n = columns;
    p.k = x.shape[1];
    p.x_step = row_step(x);
    p.w_step = row_step(w);
    p.out_step = step;
    p.x_align = alignment_of(x.data);
    p.w_align = alignment_of(at(w, first));
    p.out_align = alignment_of(out);
    return p;
  }
  // A row of w.
  static const char* at(const aa_tensor& w, int64_t row) {
    const auto bytes = static_cast<size_t>(row * row_step(w)) * static_cast<size_t>(size_of(w.dtype));
    return w.data ? static_cast<const char*>(w.data) + bytes : nullptr;
  }

  // The division of a call's columns, and the location of gate and up between the two steps.
  struct Pieces {
    int32_t dtype;    // of gate and up
    int64_t columns;  // of each but the last
    int64_t step;     // elements between rows of gate and up in scratch memory
    bool gate_in_out;

    Pieces(const aa_op_call& call, size_t most_bytes) {
      const aa_tensor& out = call.tensors[0];
      const int64_t all = out.shape[1], rows = out.shape[0];
      dtype = rounds_gated(call) ? AA_DTYPE_BF16 : AA_DTYPE_F32;
      gate_in_out = out.dtype == AA_DTYPE_F32 && is_by_rows(out);
      const size_t a_column = static_cast<size_t>(rows * size_of(dtype)) * (gate_in_out ? 1 : 2);
      // A power of two, because its halves fill the tiles of a product.
      const auto most = static_cast<int64_t>(std::bit_floor(std::max<size_t>(most_bytes / a_column, 1)));
      columns = std::min(all, std::max(most, fewest_columns));
      step = (columns + AA_GATED_WIDTH - 1) / AA_GATED_WIDTH * AA_GATED_WIDTH;
    }
    size_t bytes(int64_t rows) const { return aligned(static_cast<size_t>(rows * step * size_of(dtype))); }
  };

  // Returns true if gate and up are rounded to bf16 and gated_combine_bf16 runs.
  static bool rounds_gated(const aa_op_call& call) {
    const aa_tensor &out = call.tensors[0], &x = call.tensors[1];
    return out.shape[0] >= fewest_rounded_rows && x.dtype == AA_DTYPE_BF16 && out.dtype == AA_DTYPE_BF16 &&
           !is_there(call.tensors[4]) && !is_there(call.tensors[5]) && is_by_rows(out) &&
           out.shape[1] % AA_GATED_WIDTH == 0 && out.strides[0] % AA_GATED_WIDTH == 0 && alignment_of(out.data) == 16;
  }

  size_t gated_bytes() const {
    return std::clamp(static_cast<size_t>(device_.facts().total_memory) / gated_share, least_gated_bytes,
                      most_gated_bytes);
  }

  // Both products of a piece as one, if the library takes them together: the one whose weights have the lower address first.
  std::optional<ProductProblem> both_gated(const ProductProblem& alone, const void* low, const void* high,
                                           size_t out_bytes, Stream& stream) {
    const auto w_step = batch_step(low, high, (alone.n - 1) * alone.w_step + alone.k, alone.in);
    if (!w_step) return {};
    ProductProblem problem = alone;
    problem.batch = 2;
    problem.w_batch_step = *w_step;
    problem.out_batch_step = static_cast<int64_t>(out_bytes) / size_of(problem.out);
    if (!engine_.supports(problem) || !engine_.pays_together(problem, alone, stream)) return {};
    return problem;
  }

  bool supports_gated(const aa_op_call& call) {
    const aa_tensor &out = call.tensors[0], &x = call.tensors[1], &gate = call.tensors[2], &up = call.tensors[3];
    if (x.shape[0] < fewest_rows || x.shape[1] < 1 || gate.shape[0] < 1) return false;
    if (x.dtype != gate.dtype || x.dtype != up.dtype) return false;
    if (!is_by_rows(x) || !is_by_rows(gate) || !is_by_rows(up)) return false;
    const Pieces pieces(call, gated_bytes());
    const int64_t all = out.shape[1], rest = all % pieces.columns;
    for (const aa_tensor* w : {&gate, &up}) {
      const bool into_out = w == &gate && pieces.gate_in_out;
      const int64_t step = into_out ? row_step(out) : pieces.step;
      const void* to = into_out ? out.data : nullptr;
      if (!engine_.supports(gated_problem(x, *w, pieces.dtype, 0, pieces.columns, step, to))) return false;
      if (rest && !engine_.supports(gated_problem(x, *w, pieces.dtype, all - rest, rest, step, to))) return false;
    }
    return true;
  }

  void run_gated(const aa_op_call& call, Stream& stream) {
    const aa_tensor* t = call.tensors;
    const aa_tensor &out = t[0], &x = t[1];
    const int64_t rows = x.shape[0], all = out.shape[1];
    const Pieces pieces(call, gated_bytes());
    const size_t between = pieces.bytes(rows) * (pieces.gate_in_out ? 1 : 2);
    const auto engine = engine_.lock();
    for (int64_t first = 0; first < all; first += pieces.columns) {
      const int64_t columns = std::min(pieces.columns, all - first);
      char* out_at = static_cast<char*>(out.data) +
                     static_cast<size_t>(first * column_step(out)) * static_cast<size_t>(size_of(out.dtype));
      const int64_t gate_step = pieces.gate_in_out ? row_step(out) : pieces.step;
      const char *w_gate = at(t[2], first), *w_up = at(t[3], first);
      const ProductProblem problems[2] = {
          gated_problem(x, t[2], pieces.dtype, first, columns, gate_step, pieces.gate_in_out ? out_at : nullptr),
          gated_problem(x, t[3], pieces.dtype, first, columns, pieces.step, nullptr)};
      std::optional<ProductProblem> together;
      const bool up_first = reinterpret_cast<uintptr_t>(w_up) < reinterpret_cast<uintptr_t>(w_gate);
      if (!pieces.gate_in_out && problems[0] == problems[1]) {
        together =
            both_gated(problems[0], up_first ? w_up : w_gate, up_first ? w_gate : w_up, pieces.bytes(rows), stream);
      }
      size_t library_bytes = 0;
      for (const ProductProblem& problem :
           together ? std::span(&*together, 1) : std::span<const ProductProblem>(problems)) {
        library_bytes = std::max(library_bytes, aligned(engine_.scratch_bytes(problem, false, stream)));
      }
      char* memory = scratch(library_bytes, between, stream);
      char* low = memory + library_bytes;
      char* high = low + pieces.bytes(rows);
      char* up = together && !up_first ? high : low;
      char* gate = pieces.gate_in_out ? out_at : up == low ? high : low;
      if (together) {
        engine_.run(*together, {x.data, up_first ? w_up : w_gate, nullptr, nullptr, low}, memory, stream);
      } else {
        engine_.run(problems[0], {x.data, w_gate, nullptr, nullptr, gate}, memory, stream);
        engine_.run(problems[1], {x.data, w_up, nullptr, nullptr, up}, memory, stream);
      }
      combine_piece(call, pieces.dtype, first, columns, gate_step, pieces.step, out_at, gate, up, stream);
    }
  }

  static int64_t column_step(const aa_tensor& out) { return out.shape[1] <= 1 ? 1 : out.strides[1]; }

  void combine_piece(const aa_op_call& call, int32_t dtype, int64_t first, int64_t columns, int64_t gate_step,
                     int64_t up_step, void* out_at, const void* gate, const void* up, Stream& stream) {
    const aa_tensor &out = call.tensors[0], &gate_bias = call.tensors[4], &up_bias = call.tensors[5];
    aa_gated g{};
    g.rows = out.shape[0];
    g.columns = columns;
    g.out_row = out.strides[0];
    g.out_inner = column_step(out);
    g.gate_row = gate_step;
    g.up_row = up_step;
    g.gate_bias_inner = gate_bias.strides[0];
    g.up_bias_inner = up_bias.strides[0];
    g.out_dtype = out.dtype;
    g.gate_bias_dtype = gate_bias.dtype;
    g.up_bias_dtype = up_bias.dtype;
    g.kind = params_of<aa_activation_params>(call).kind;
    const auto whole = [](int64_t step, size_t item) { return static_cast<size_t>(step) * item % 16 == 0; };
    g.wide = g.out_inner == 1 && alignment_of(out_at) == 16 && alignment_of(gate) == 16 && whole(gate_step, 4) &&
             whole(up_step, 4) && (g.rows <= 1 || whole(g.out_row, size_of(out.dtype)));
    constexpr int64_t block_columns = AA_GATED_THREADS * AA_GATED_WIDTH;
    TunedLaunch shape{.grid = {static_cast<unsigned>((columns + block_columns - 1) / block_columns),
                               static_cast<unsigned>(std::min<int64_t>(g.rows, most_grid_rows)), 1},
                      .block = AA_GATED_THREADS,
                      .overlaps_previous = true};
    if (dtype == AA_DTYPE_BF16) {
      const int64_t blocks = (g.rows + AA_GATED_ROWS - 1) / AA_GATED_ROWS;
      shape.grid[1] = static_cast<unsigned>(std::min<int64_t>(blocks, most_grid_rows));
      kernels_.launch(combine_bf16, stream.handle(), shape, out_at, gate, up, g);
      return;
    }
    const auto bias_at = [&](const aa_tensor& bias) -> const void* {
      if (!is_there(bias)) return nullptr;
      return static_cast<const char*>(bias.data) + first * bias.strides[0] * size_of(bias.dtype);
    };
    kernels_.launch(combine, stream.handle(), shape, out_at, gate, up, bias_at(gate_bias), bias_at(up_bias), g);
  }

  // ---- quantized_linear ----

  // The division of a call's rows of w, which are decoded to `dtype`.
  struct Decoded {
    int32_t dtype;
    int64_t rows;  // of each piece but the last
    size_t x_bytes, w_bytes;

    explicit Decoded(const aa_op_call& call) {
      const aa_tensor &x = call.tensors[1], &w = call.tensors[2];
      const auto* params = &params_of<aa_quantized_params>(call);
      dtype = params->rounding == AA_QUANTIZED_ROUNDED ? AA_DTYPE_BF16 : AA_DTYPE_F32;
      const auto row = static_cast<size_t>(x.shape[1] * size_of(dtype));
      const auto most = static_cast<int64_t>(most_decoded_bytes / row) / decoded_rows_unit * decoded_rows_unit;
      rows = std::min(w.shape[0], std::max(most, decoded_rows_unit));
      x_bytes = aligned(static_cast<size_t>(x.shape[0]) * row);
      w_bytes = aligned(static_cast<size_t>(rows) * row);
    }
  };

  // The operands of a piece: rows of w from `first` on. x and w are in scratch memory, null in queries for support.
  struct Piece {
    aa_tensor x, w, out, bias, residual;

    Piece(const aa_op_call& call, const Decoded& decoded, int64_t first, int64_t rows)
        : x(matrix(decoded.dtype, call.tensors[1].shape[0], call.tensors[1].shape[1])),
          w(matrix(decoded.dtype, rows, call.tensors[1].shape[1])),
          out(columns(call.tensors[0], 1, first, rows)),
          bias(columns(call.tensors[3], 0, first, rows)),
          residual(columns(call.tensors[4], 1, first, rows)) {}
    Part part() const { return {out, x, w, bias, residual}; }

   private:
    static aa_tensor matrix(int32_t dtype, int64_t rows, int64_t columns) {
      aa_tensor t{};
      t.dtype = dtype;
      t.ndim = 2;
      t.shape[0] = rows;
      t.shape[1] = columns;
      t.strides[0] = columns;
      t.strides[1] = 1;
      return t;
    }
    static aa_tensor columns(aa_tensor t, int dimension, int64_t first, int64_t count) {
      if (!is_there(t)) return t;
      t.shape[dimension] = count;
      if (t.data) t.data = static_cast<char*>(t.data) + first * t.strides[dimension] * size_of(t.dtype);
      return t;
    }
  };

  bool supports_quantized(const aa_op_call& call) {
    const aa_tensor &x = call.tensors[1], &w = call.tensors[2];
    if (x.shape[0] < fewest_quantized_rows || x.shape[1] < 1 || w.shape[0] < 1) return false;
    // The decoders read two bytes at an even address where a block has an even number of them.
    if (format_of(call).bytes % 2 == 0 &&
        ((reinterpret_cast<uintptr_t>(w.data) | static_cast<uintptr_t>(w.strides[0])) & 1u)) {
      return false;
    }
    const Decoded decoded(call);
    for (const int64_t rows : {decoded.rows, w.shape[0] % decoded.rows}) {
      if (rows > 0 && !supports(Piece(call, decoded, 0, rows).part())) return false;
    }
    return true;
  }

  void run_quantized(const aa_op_call& call, Stream& stream) {
    const aa_tensor &x = call.tensors[1], &w = call.tensors[2];
    const Decoded decoded(call);
    TunedKernels& decoders = *decoders_[static_cast<size_t>(&format_of(call) - block_formats().data())];
    const auto engine = engine_.lock();
    for (int64_t first = 0; first < w.shape[0]; first += decoded.rows) {
      const int64_t rows = std::min(decoded.rows, w.shape[0] - first);
      Piece piece(call, decoded, first, rows);
      const size_t library_bytes =
          aligned(engine_.scratch_bytes(piece.part().problem(), piece.part().in_place(), stream)) +
          piece.part().bias_bytes();
      char* memory = scratch(library_bytes, decoded.x_bytes + decoded.w_bytes, stream);
      piece.x.data = memory + aligned(library_bytes);
      piece.w.data = memory + aligned(library_bytes) + decoded.x_bytes;
      aa_dequantize shape{};
      shape.k = x.shape[1];
      shape.out_dtype = decoded.dtype;
      shape.dtype = x.dtype;
      shape.rows = x.shape[0];
      shape.row_step = x.strides[0];
      shape.step = x.strides[1];
      // Growing scratch memory may move it, so x is written for each piece; of most matrices there is one.
      converters_.launch(0, stream.handle(), decode_shape(shape), static_cast<const void*>(piece.x.data),
                         static_cast<const void*>(x.data), shape);
      shape.rows = rows;
      shape.row_step = w.strides[0];
      const void* from = static_cast<const char*>(w.data) + first * w.strides[0];
      decoders.launch(0, stream.handle(), decode_shape(shape), static_cast<const void*>(piece.w.data), from, shape);
      run_in(piece.part(), memory, stream);
    }
  }

  static TunedLaunch decode_shape(const aa_dequantize& shape) {
    constexpr int64_t block = AA_DEQUANTIZE_THREADS * AA_DEQUANTIZE_WIDTH;
    return {.grid = {static_cast<unsigned>((shape.k + block - 1) / block),
                     static_cast<unsigned>(std::min<int64_t>(shape.rows, most_grid_rows)), 1},
            .block = AA_DEQUANTIZE_THREADS,
            .overlaps_previous = true};
  }

  static const BlockFormat& format_of(const aa_op_call& call) {
    return *find_block_format(static_cast<uint32_t>(params_of<aa_quantized_params>(call).format));
  }

  DeviceState& device_;
  ProductEngine engine_;
  PromptQkv prompt_qkv_;
  TunedKernels kernels_;
  TunedKernels converters_;                              // of x, to the dtype of decoded weights
  std::vector<std::unique_ptr<TunedKernels>> decoders_;  // of weights, by the position in block_formats()
  const aa_tensor none_{};
};

}  // namespace

std::unique_ptr<OpGroup> make_library_products(DeviceState& device) {
  return std::make_unique<LibraryProducts>(device);
}

}  // namespace anyaccel::cuda
