// Products of a few rows of x by the kernels of kernels/cuda/decode_*.cu: "linear", "linear_multi", "gated_linear" and the
// fused ops that begin with a norm.
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "accelerators/cuda/ops/decode_calls.h"
#include "accelerators/cuda/ops/decode_plan.h"
#include "accelerators/cuda/ops/op_group.h"
#include "accelerators/cuda/ops/tuned_kernels.h"
#include "accelerators/cuda/stream.h"
#include "anyaccel/dtype.h"
#include "runtime/ops/op_params.h"

namespace anyaccel::cuda {
namespace {

constexpr std::array<const char*, 3> weight_types = {"f32", "bf16", "f16"};

// The index in weight_types; -1 for another type.
int weight_type(int32_t dtype) {
  return dtype == AA_DTYPE_F32 ? 0 : dtype == AA_DTYPE_BF16 ? 1 : dtype == AA_DTYPE_F16 ? 2 : -1;
}

// Returns true if rows (or the one row) can be read `bytes` at a time.
bool is_readable(const aa_tensor& tensor, int64_t bytes) {
  const int last = tensor.ndim - 1;
  if (tensor.strides[last] != 1 && tensor.shape[last] > 1) return false;
  if (reinterpret_cast<uintptr_t>(tensor.data) % static_cast<uintptr_t>(bytes) != 0) return false;
  return last == 0 || tensor.shape[0] <= 1 || tensor.strides[0] * size_of(tensor.dtype) % bytes == 0;
}
// Four neighbours at a time.
bool is_readable_by_four(const aa_tensor& tensor) { return is_readable(tensor, 4 * size_of(tensor.dtype)); }

constexpr aa_tensor absent{};

// Returns true if the kernels can give a norm's result this dtype.
bool rounds_as(int32_t dtype) { return dtype == AA_DTYPE_F32 || dtype == AA_DTYPE_BF16; }

class DecodeProducts final : public OpGroup {
 public:
  explicit DecodeProducts(DeviceState& device) : device_(device) {
    for (size_t file = 0; file < files.size(); ++file) {
      for (const char* type : weight_types) {
        for (size_t kernel = 0; kernel < decode_kernels.size(); ++kernel) {
          const std::string number = std::to_string(decode_shape(kernel));
          kernels_.push_back(std::make_unique<TunedKernels>(
              device, std::string(files[file]) + ".cu",
              std::vector<std::string>{std::string(files[file]) + "_" + number + "_" + type},
              std::vector<std::string>{std::string("-DAA_W=") + type, "-DAA_SHAPE=" + number}));
        }
      }
    }
  }

  std::span<const Op> ops() const override { return list; }

  bool supports(Op op, const aa_op_call& call, DeviceState&) override {
    const aa_tensor* t = call.tensors;
    switch (op) {
      case Op::Linear: return fits(t[1], absent, {t[2]}, decode_linear_unit(t[1].shape[0]));
      case Op::NormLinear:
        return rounds_as(params_of<aa_norm_linear_params>(call).normed) &&
               fits(t[1], t[2], {t[3]}, decode_linear_unit(t[1].shape[0]));
      case Op::GatedLinear: return fits(t[1], absent, {t[2], t[3]}, 2);
      case Op::NormGatedLinear:
        return rounds_as(params_of<aa_norm_activation_params>(call).normed) && fits(t[1], t[2], {t[3], t[4]}, 2);
      case Op::NormQkvRope: {
        const int64_t head_size = t[0].shape[2];
        return head_size > 0 && head_size % 2 == 0 && 2 * t[11].shape[1] <= head_size && t[1].shape[0] <= INT32_MAX &&
               t[1].shape[2] <= INT32_MAX && rounds_as(params_of<aa_norm_rope_params>(call).normed) &&
               fits(t[3], t[4], {t[5], t[7], t[9]}, 2);
      }
      default: {
        const aa_tensor& x = t[0];
        for (uint32_t i = 1; i < call.tensor_count; i += 3) {
          if (t[i + 1].dtype != t[2].dtype || !fits(x, absent, {t[i + 1]}, decode_linear_unit(x.shape[0])))
            return false;
        }
        return true;
      }
    }
  }

  void enqueue(Op op, const aa_op_call& call, Stream& stream) override {
    const aa_tensor* t = call.tensors;
    switch (op) {
      case Op::Linear: return enqueue_linear(t[0], t[1], {}, t[2], t[3], t[4], stream);
      case Op::NormLinear: {
        const auto& params = params_of<aa_norm_linear_params>(call);
        return enqueue_linear(t[0], t[1], CallNorm{t[2], params.eps, params.normed}, t[3], t[4], absent, stream);
      }
      case Op::LinearMulti: return enqueue_multi(call, stream);
      case Op::GatedLinear:
        return enqueue_gated(t[0], t[1], {}, t[2], t[3], t[4], t[5], params_of<aa_activation_params>(call).kind,
                             stream);
      case Op::NormGatedLinear: {
        const auto& params = params_of<aa_norm_activation_params>(call);
        return enqueue_gated(t[0], t[1], CallNorm{t[2], params.eps, params.normed}, t[3], t[4], t[5], t[6], params.kind,
                             stream);
      }
      default: return enqueue_qkv(call, stream);
    }
  }

 private:
  static constexpr Op list[] = {Op::Linear,     Op::LinearMulti,     Op::GatedLinear,
                                Op::NormLinear, Op::NormGatedLinear, Op::NormQkvRope};
  enum File : size_t { linear_file, multi_file, gated_file, qkv_file };
  static constexpr std::array<const char*, 4> files = {"decode_linear", "decode_multi", "decode_gated", "decode_qkv"};

  bool fits(const aa_tensor& x, const aa_tensor& norm,
            std::initializer_list<std::reference_wrapper<const aa_tensor>> ws, int unit) const {
    const int64_t m = x.shape[0], k = x.shape[1];
    const aa_tensor& first = ws.begin()->get();
    if (m > AA_DECODE_ROWS || k < 1 || weight_type(x.dtype) < 0 || weight_type(first.dtype) < 0) return false;
    if (k * size_of(first.dtype) % 16 != 0 || !is_readable_by_four(x)) return false;
    if (is_there(norm) && !is_readable_by_four(norm)) return false;
    for (const aa_tensor& w : ws) {
      if (w.dtype != first.dtype || w.shape[0] > INT32_MAX / 4 || !is_readable(w, 16)) return false;
    }
    return kernel_for(x, first.dtype, unit).has_value();
  }
  std::optional<size_t> kernel_for(const aa_tensor& x, int32_t w_dtype, int unit) const {
    return decode_kernel_for(x.shape[0], x.shape[1], static_cast<int>(size_of(w_dtype)), unit,
                             device_.facts().shared_per_block_optin);
  }

  static const void* data_of(const std::optional<CallNorm>& norm) { return norm ? norm->weight.data : nullptr; }

  struct Planned {
    DecodePlan plan;
    TunedLaunch shape;
  };
  // Plans the computation of `units` of `unit` rows of `weights`, which have one element type. Records in the stream that
  // the next kernel writes `written`.
  Planned plan(Stream& stream, std::initializer_list<const aa_tensor*> written, const aa_tensor& x,
               const std::optional<CallNorm>& norm, std::span<const aa_tensor* const> weights, int64_t units,
               int unit) const {
    const int32_t w_dtype = weights.front()->dtype;
    DecodePlan plan = decode_plan(*kernel_for(x, w_dtype, unit), x.shape[0], x.shape[1],
                                  static_cast<int>(size_of(w_dtype)), units, unit, device_.facts().multiprocessors);
    plan.x.row = x.strides[0] * size_of(x.dtype);
    plan.x.dtype = x.dtype;
    plan.x.normed = norm.has_value();
    plan.x.norm_dtype = norm ? norm->weight.dtype : AA_DTYPE_NONE;
    plan.x.eps = norm ? norm->eps : 0.0f;
    plan.x.rounds = norm && norm->dtype == AA_DTYPE_BF16;
    PendingWrites& pending = stream.pending_writes();
    std::array<PendingWrites::Range, 4> reads;
    for (size_t i = 0; i < weights.size(); ++i) reads.at(i) = PendingWrites::range_of(*weights[i]);
    plan.x.early = pending.known() && !pending.contains_any_of(reads);
    std::array<PendingWrites::Range, 4> writes;
    size_t count = 0;
    for (const aa_tensor* tensor : written) writes.at(count++) = PendingWrites::range_of(*tensor);
    pending.add(plan.x.early != 0, std::span(writes).first(count));
    return {plan,
            {.grid = {static_cast<unsigned>(plan.blocks), 1, 1},
             .block = AA_DECODE_THREADS,
             .shared_bytes = static_cast<unsigned>(plan.shared_bytes),
             .overlaps_previous = true,
             .alone = true}};
  }

  TunedKernels& kernel(File file, int32_t w_dtype, const DecodePlan& plan) {
    const auto type = static_cast<size_t>(weight_type(w_dtype));
    return *kernels_[(file * weight_types.size() + type) * decode_kernels.size() + plan.kernel];
  }

  void enqueue_linear(const aa_tensor& out, const aa_tensor& x, const std::optional<CallNorm>& norm, const aa_tensor& w,
                      const aa_tensor& bias, const aa_tensor& residual, Stream& stream) {
    if (out.shape[0] == 0 || out.shape[1] == 0) return;
    const int unit = decode_linear_unit(x.shape[0]);
    const aa_decode_part part = part_of(out, w, bias, unit);
    const std::array weights = {&w};
    const auto [plan, shape] = this->plan(stream, {&out}, x, norm, weights, part.units, unit);
    const aa_decode_residual res = residual_of(residual);
    kernel(linear_file, w.dtype, plan)
        .launch(0, stream.handle(), shape, x.data, data_of(norm), plan.x, out.data, w.data, bias.data, part,
                residual.data, res);
  }

  void enqueue_multi(const aa_op_call& call, Stream& stream) {
    const aa_tensor& x = call.tensors[0];
    const int unit = decode_linear_unit(x.shape[0]);
    std::array<aa_decode_part, 4> parts{};
    std::array<const aa_tensor*, 4> tensors;
    tensors.fill(nullptr);
    size_t count = 0;
    int64_t units = 0;
    for (uint32_t i = 1; i < call.tensor_count; i += 3) {
      const aa_tensor* tensor = &call.tensors[i];
      if (tensor[1].shape[0] == 0) continue;
      parts[count] = part_of(tensor[0], tensor[1], tensor[2], unit);
      units += parts[count].units;
      tensors[count++] = tensor;
    }
    if (x.shape[0] == 0 || count == 0) return;
    const int32_t w_dtype = tensors[0][1].dtype;
    std::array<const aa_tensor*, 4> weights, outs;
    for (size_t i = 0; i < 4; ++i) {
      weights[i] = i < count ? &tensors[i][1] : &absent;
      outs[i] = i < count ? &tensors[i][0] : &absent;
    }
    const auto [plan, shape] = this->plan(stream, {outs[0], outs[1], outs[2], outs[3]}, x, {}, weights, units, unit);
    const auto data = [&](size_t i, size_t which) { return i < count ? tensors[i][which].data : nullptr; };
    kernel(multi_file, w_dtype, plan)
        .launch(0, stream.handle(), shape, x.data, plan.x, data(0, 0), data(0, 1), data(0, 2), parts[0], data(1, 0),
                data(1, 1), data(1, 2), parts[1], data(2, 0), data(2, 1), data(2, 2), parts[2], data(3, 0), data(3, 1),
                data(3, 2), parts[3]);
  }

  void enqueue_gated(const aa_tensor& out, const aa_tensor& x, const std::optional<CallNorm>& norm,
                     const aa_tensor& w_gate, const aa_tensor& w_up, const aa_tensor& bias_gate,
                     const aa_tensor& bias_up, int32_t kind, Stream& stream) {
    if (out.shape[0] == 0 || out.shape[1] == 0) return;
    const aa_decode_part gate = part_of(out, w_gate, bias_gate, 1);
    const aa_decode_part up = part_of(out, w_up, bias_up, 1);
    const std::array weights = {&w_gate, &w_up};
    const auto [plan, shape] = this->plan(stream, {&out}, x, norm, weights, gate.units, 2);
    kernel(gated_file, w_gate.dtype, plan)
        .launch(0, stream.handle(), shape, x.data, data_of(norm), plan.x, out.data, w_gate.data, w_up.data,
                bias_gate.data, bias_up.data, gate, up, kind, int32_t{0});
  }

  void enqueue_qkv(const aa_op_call& call, Stream& stream) {
    const aa_tensor* t = call.tensors;
    const aa_tensor &q = t[0], &k_cache = t[1], &v_cache = t[2], &x = t[3], &norm = t[4], &cos = t[11], &sin = t[12],
                    &sequence = t[13], &positions = t[14];
    if (x.shape[0] == 0) return;
    const auto& params = params_of<aa_norm_rope_params>(call);
    const QkvArguments a = qkv_arguments(t, params.interleaved);
    const int64_t units = (q.shape[1] + 2 * k_cache.shape[1]) * (q.shape[2] / 2);
    if (units == 0) return;
    const std::array weights = {&t[5], &t[7], &t[9]};
    const auto [plan, shape] =
        this->plan(stream, {&q, &k_cache, &v_cache}, x, CallNorm{norm, params.eps, params.normed}, weights, units, 2);
    kernel(qkv_file, t[5].dtype, plan)
        .launch(0, stream.handle(), shape, x.data, norm.data, plan.x, t[5].data, t[7].data, t[9].data, t[6].data,
                t[8].data, t[10].data, q.data, k_cache.data, v_cache.data, a.q, a.k, a.v, cos.data, sin.data,
                sequence.data, positions.data, a.rope);
  }

  DeviceState& device_;
  std::vector<std::unique_ptr<TunedKernels>> kernels_;  // by file, type of weights, rows of x
};

}  // namespace

std::unique_ptr<OpGroup> make_decode_products(DeviceState& device) { return std::make_unique<DecodeProducts>(device); }

}  // namespace anyaccel::cuda
