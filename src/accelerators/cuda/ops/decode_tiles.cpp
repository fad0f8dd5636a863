// Products of a few rows of x on the matrix units by the kernels of kernels/cuda/decode_tiles_*.cu: rounded ones with weights of
// Q4_0, Q8_0, Q4_K and Q6_K ("quantized_linear", "norm_quantized_gated_linear", "norm_quantized_qkv_rope"), and exact ones with weights in
// bf16 of three to eight rows of x in bf16, or whose norm's result is rounded to it ("linear", "norm_linear", "norm_gated_linear",
// "norm_qkv_rope"). Weights begin at a multiple of 16 bytes; their rows have a multiple of 256 values and lie multiples of 16 bytes apart, those of
// Q6_K of 2. decode_products.cpp, decode_quantized.cpp and the portable kernels run what is not supported here.
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "accelerators/cuda/ops/decode_calls.h"
#include "accelerators/cuda/ops/op_group.h"
#include "accelerators/cuda/ops/tuned_kernels.h"
#include "accelerators/cuda/stream.h"
#include "anyaccel/dtype.h"
#include "runtime/ops/op_params.h"

namespace anyaccel::cuda {
namespace {

#include "kernels/cuda/decode_tiles_arguments.h"

struct TileFormat {
  uint32_t number;
  const char* name;
  int64_t unit;  // of the distances between rows, in bytes
};
constexpr std::array<TileFormat, 5> tile_formats = {{{AA_BLOCK_Q4_0, "q4_0", 16},
                                                     {AA_BLOCK_Q8_0, "q8_0", 16},
                                                     {AA_BLOCK_Q4_K, "q4_k", 16},
                                                     {AA_BLOCK_Q6_K, "q6_k", 2},
                                                     {AA_TILES_BF16, "bf16", 16}}};
constexpr size_t bf16_format = 4;
// Columns of each format's kernels, which the ends of their names stand for: of one row of x in two parts, and of more. Of bf16 there
// is only the latter.
constexpr std::array<int, 2> tile_columns = {2, 8};
// With fewer, decode_products.cpp takes less time: with two rows 0.93 of the tiles', on an H200 and a model of 1.1 B parameters.
constexpr int64_t fewest_bf16_rows = 3;
// Where a row of weights begins is told by so many units.
constexpr int64_t most_weight_units = int64_t{1} << 30;

bool is_float_type(int32_t dtype) { return dtype == AA_DTYPE_F32 || dtype == AA_DTYPE_BF16 || dtype == AA_DTYPE_F16; }

// Four neighbours of a row can be read at once.
bool reads_by_four(const aa_tensor& t) {
  const int64_t quad = 4 * size_of(t.dtype);
  const int last = t.ndim - 1;
  if (!is_float_type(t.dtype) || (t.strides[last] != 1 && t.shape[last] > 1)) return false;
  if (reinterpret_cast<uintptr_t>(t.data) % static_cast<uintptr_t>(quad) != 0) return false;
  return last == 0 || t.shape[0] <= 1 || t.strides[0] * size_of(t.dtype) % quad == 0;
}

constexpr aa_tensor no_tensor{};

class DecodeTiles final : public OpGroup {
 public:
  explicit DecodeTiles(DeviceState& device) : device_(device) {
    for (const char* file : {"decode_tiles_linear", "decode_tiles_gated", "decode_tiles_qkv"}) {
      for (const TileFormat& format : tile_formats) {
        const std::string name = std::string(file) + "_" + format.name;
        std::vector<std::string> names{name + "_8"};
        if (format.number != AA_TILES_BF16) names.insert(names.begin(), name + "_1");
        kernels_.push_back(
            std::make_unique<TunedKernels>(device, std::string(file) + ".cu", names,
                                           std::vector<std::string>{"-DAA_NUMBER=" + std::to_string(format.number)}));
      }
    }
  }

  std::span<const Op> ops() const override { return list; }

  bool supports(Op op, const aa_op_call& call, DeviceState&) override {
    const aa_tensor* t = call.tensors;
    switch (op) {
      case Op::QuantizedLinear: return fits(format_of(params_of<aa_quantized_params>(call)), t[1], no_tensor, {t[2]});
      case Op::NormQuantizedGatedLinear:
        return fits(format_of(params_of<aa_norm_quantized_params>(call)), t[1], t[2], {t[3], t[4]});
      case Op::NormQuantizedQkvRope:
        return rotates(t) && fits(format_of(params_of<aa_norm_quantized_params>(call)), t[3], t[4], {t[5], t[7], t[9]});
      case Op::Linear: return t[1].dtype == AA_DTYPE_BF16 && fits(bf16_format, t[1], no_tensor, {t[2]});
      case Op::NormLinear:
        return params_of<aa_norm_linear_params>(call).normed == AA_DTYPE_BF16 && fits(bf16_format, t[1], t[2], {t[3]});
      case Op::NormGatedLinear:
        return params_of<aa_norm_activation_params>(call).normed == AA_DTYPE_BF16 &&
               fits(bf16_format, t[1], t[2], {t[3], t[4]});
      default:
        return params_of<aa_norm_rope_params>(call).normed == AA_DTYPE_BF16 && rotates(t) &&
               fits(bf16_format, t[3], t[4], {t[5], t[7], t[9]});
    }
  }

  void enqueue(Op op, const aa_op_call& call, Stream& stream) override {
    const aa_tensor* t = call.tensors;
    switch (op) {
      case Op::QuantizedLinear:
        return enqueue_linear(format_of(params_of<aa_quantized_params>(call)), t[0], t[1], {}, t[2], t[3], t[4],
                              stream);
      case Op::Linear: return enqueue_linear(bf16_format, t[0], t[1], {}, t[2], t[3], t[4], stream);
      case Op::NormLinear:
        return enqueue_linear(bf16_format, t[0], t[1], CallNorm{t[2], params_of<aa_norm_linear_params>(call).eps}, t[3],
                              t[4], no_tensor, stream);
      case Op::NormQuantizedGatedLinear: {
        const auto& params = params_of<aa_norm_quantized_params>(call);
        return enqueue_gated(format_of(params), t, params.eps, params.kind, stream);
      }
      case Op::NormGatedLinear: {
        const auto& params = params_of<aa_norm_activation_params>(call);
        return enqueue_gated(bf16_format, t, params.eps, params.kind, stream);
      }
      case Op::NormQuantizedQkvRope: {
        const auto& params = params_of<aa_norm_quantized_params>(call);
        return enqueue_qkv(format_of(params), t, params.eps, params.interleaved, stream);
      }
      default: {
        const auto& params = params_of<aa_norm_rope_params>(call);
        return enqueue_qkv(bf16_format, t, params.eps, params.interleaved, stream);
      }
    }
  }

 private:
  static constexpr Op list[] = {Op::QuantizedLinear, Op::NormQuantizedGatedLinear, Op::NormQuantizedQkvRope, Op::Linear,
                                Op::NormLinear,      Op::NormGatedLinear,          Op::NormQkvRope};
  enum File : size_t { linear_file, gated_file, qkv_file };

  struct Plan {
    aa_tiles_x x;
    size_t format, kernel;
    TunedLaunch shape;
  };

  // The index in tile_formats; their number for other formats, and for exact products.
  template <class Params>
  static size_t format_of(const Params& params) {
    if (params.rounding != AA_QUANTIZED_ROUNDED) return tile_formats.size();
    const auto* found = std::ranges::find(tile_formats, static_cast<uint32_t>(params.format), &TileFormat::number);
    return static_cast<size_t>(found - tile_formats.begin());
  }
  static int columns_of(size_t format, int64_t m) { return tile_columns.at(m > 1 || format == bf16_format ? 1 : 0); }
  static int64_t shared_bytes(size_t format, int64_t m, int64_t k) {
    return AA_TILES_SHARED(tile_formats.at(format).number, columns_of(format, m), k / AA_TILES_PIECE);
  }

  // Of the tensors of "norm_qkv_rope" and "norm_quantized_qkv_rope".
  static bool rotates(const aa_tensor* t) {
    const int64_t head_size = t[0].shape[2];
    return head_size > 0 && head_size % 2 == 0 && 2 * t[11].shape[1] <= head_size && t[1].shape[0] <= INT32_MAX &&
           t[1].shape[2] <= INT32_MAX;
  }
  bool fits(size_t format, const aa_tensor& x, const aa_tensor& norm,
            std::initializer_list<std::reference_wrapper<const aa_tensor>> ws) const {
    const int64_t m = x.shape[0], k = x.shape[1];
    if (format == tile_formats.size() || m > AA_TILES_ROWS) return false;
    if (format == bf16_format && m < fewest_bf16_rows) return false;
    if (k < 1 || k % AA_TILES_PIECE != 0 || k > INT32_MAX / 64) return false;
    if (shared_bytes(format, m, k) > device_.facts().shared_per_block_optin) return false;
    if (!reads_by_four(x) || (is_there(norm) && !reads_by_four(norm))) return false;
    const int64_t unit = tile_formats.at(format).unit;
    for (const aa_tensor& w : ws) {
      if (format == bf16_format && (w.dtype != AA_DTYPE_BF16 || w.strides[1] != 1)) return false;
      if (reinterpret_cast<uintptr_t>(w.data) % 16 != 0 || w.shape[0] > INT32_MAX / 4) return false;
      if (w.shape[0] <= 1) continue;
      const int64_t row = w.strides[0] * size_of(w.dtype);
      if (row < 0 || row % unit != 0 || w.shape[0] > most_weight_units * unit / std::max<int64_t>(row, 1)) return false;
    }
    return true;
  }

  // Plans the computation of `units` units of two rows of `weights`. Records in the stream that the next kernel writes `written`.
  Plan plan(size_t format, const aa_tensor& x, const std::optional<CallNorm>& norm, int64_t units,
            std::initializer_list<const aa_tensor*> weights, std::initializer_list<const aa_tensor*> written,
            Stream& stream) const {
    const int64_t m = x.shape[0], k = x.shape[1];
    const int columns = columns_of(format, m);
    Plan plan{};
    plan.format = format;
    plan.kernel = m > 1 && format != bf16_format ? 1 : 0;
    plan.x.row = x.strides[0] * size_of(x.dtype);
    plan.x.dtype = x.dtype;
    plan.x.normed = norm.has_value();
    plan.x.norm_dtype = norm ? norm->weight.dtype : AA_DTYPE_NONE;
    plan.x.eps = norm ? norm->eps : 0.0f;
    plan.x.inverse_k = 1.0f / static_cast<float>(k);
    plan.x.m = static_cast<int32_t>(m);
    plan.x.parts = 2 * m <= columns && format != bf16_format ? 2 : 1;
    plan.x.pieces = static_cast<int32_t>(k / AA_TILES_PIECE);
    plan.x.units = static_cast<int32_t>(units);
    const int64_t tiles = (units + AA_TILES_UNITS - 1) / AA_TILES_UNITS;
    const int64_t blocks = std::min<int64_t>(tiles, device_.facts().multiprocessors);
    plan.x.tiles_each = static_cast<int32_t>(tiles / blocks);
    plan.x.tiles_more = static_cast<int32_t>(tiles % blocks);
    PendingWrites& pending = stream.pending_writes();
    std::array<PendingWrites::Range, 3> reads, writes;
    size_t read_count = 0, write_count = 0;
    for (const aa_tensor* tensor : weights) reads.at(read_count++) = PendingWrites::range_of(*tensor);
    for (const aa_tensor* tensor : written) writes.at(write_count++) = PendingWrites::range_of(*tensor);
    plan.x.early = pending.known() && !pending.contains_any_of(std::span(reads).first(read_count));
    pending.add(plan.x.early != 0, std::span(writes).first(write_count));
    plan.shape = {.grid = {static_cast<unsigned>(blocks), 1, 1},
                  .block = static_cast<unsigned>(AA_TILES_THREADS(tile_formats.at(format).number, columns)),
                  .shared_bytes = static_cast<unsigned>(shared_bytes(format, m, k)),
                  .overlaps_previous = true,
                  .alone = true};
    return plan;
  }
  TunedKernels& kernels(File file, const Plan& plan) { return *kernels_[file * tile_formats.size() + plan.format]; }

  void enqueue_linear(size_t format, const aa_tensor& out, const aa_tensor& x, const std::optional<CallNorm>& norm,
                      const aa_tensor& w, const aa_tensor& bias, const aa_tensor& residual, Stream& stream) {
    if (out.shape[0] == 0 || out.shape[1] == 0) return;
    const aa_decode_part part = part_of(out, w, bias, 2);
    const Plan plan = this->plan(format, x, norm, part.units, {&w}, {&out}, stream);
    const void* const factors = norm ? norm->weight.data : nullptr;
    kernels(linear_file, plan)
        .launch(plan.kernel, stream.handle(), plan.shape, x.data, factors, plan.x, out.data, w.data, bias.data, part,
                residual.data, residual_of(residual));
  }

  // `t`: tensors of "norm_gated_linear" or "norm_quantized_gated_linear".
  void enqueue_gated(size_t format, const aa_tensor* t, float eps, int32_t kind, Stream& stream) {
    const aa_tensor& out = t[0];
    if (out.shape[0] == 0 || out.shape[1] == 0) return;
    const aa_decode_part gate = part_of(out, t[3], t[5], 1), up = part_of(out, t[4], t[6], 1);
    const Plan plan = this->plan(format, t[1], CallNorm{t[2], eps}, gate.units, {&t[3], &t[4]}, {&out}, stream);
    kernels(gated_file, plan)
        .launch(plan.kernel, stream.handle(), plan.shape, t[1].data, t[2].data, plan.x, out.data, t[3].data, t[4].data,
                t[5].data, t[6].data, gate, up, kind, int32_t{0});
  }

  // `t`: tensors of "norm_qkv_rope" or "norm_quantized_qkv_rope".
  void enqueue_qkv(size_t format, const aa_tensor* t, float eps, int32_t interleaved, Stream& stream) {
    const int64_t units = (t[0].shape[1] + 2 * t[1].shape[1]) * (t[0].shape[2] / 2);
    if (t[3].shape[0] == 0 || units == 0) return;
    const QkvArguments a = qkv_arguments(t, interleaved);
    const Plan plan =
        this->plan(format, t[3], CallNorm{t[4], eps}, units, {&t[5], &t[7], &t[9]}, {&t[0], &t[1], &t[2]}, stream);
    kernels(qkv_file, plan)
        .launch(plan.kernel, stream.handle(), plan.shape, t[3].data, t[4].data, plan.x, t[5].data, t[7].data, t[9].data,
                t[6].data, t[8].data, t[10].data, t[0].data, t[1].data, t[2].data, a.q, a.k, a.v, t[11].data,
                t[12].data, t[13].data, t[14].data, a.rope);
  }

  DeviceState& device_;
  std::vector<std::unique_ptr<TunedKernels>> kernels_;  // by file and format
};

}  // namespace

std::unique_ptr<OpGroup> make_decode_tiles(DeviceState& device) { return std::make_unique<DecodeTiles>(device); }

}  // namespace anyaccel::cuda
