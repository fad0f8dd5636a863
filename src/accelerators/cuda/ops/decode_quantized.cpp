// "quantized_linear" of a few rows of x by the kernels of kernels/cuda/decode_quantized.cu: weights of Q8_0, Q4_0, Q4_K and Q6_K
// that begin at a multiple of 16 bytes and whose rows have a multiple of 256 values and lie multiples of 16 bytes apart, those of Q6_K
// of 2. The portable kernel runs what is not supported here.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "accelerators/cuda/ops/op_group.h"
#include "accelerators/cuda/ops/tuned_kernels.h"
#include "accelerators/cuda/stream.h"
#include "anyaccel/dtype.h"
#include "runtime/ops/op_params.h"

namespace anyaccel::cuda {
namespace {

using aa_i32 = int32_t;
using aa_i64 = int64_t;
#include "kernels/cuda/quantized_arguments.h"

struct Format {
  uint32_t number;
  const char* name;
};
constexpr std::array<Format, 4> formats = {
    {{AA_BLOCK_Q4_0, "q4_0"}, {AA_BLOCK_Q8_0, "q8_0"}, {AA_BLOCK_Q4_K, "q4_k"}, {AA_BLOCK_Q6_K, "q6_k"}}};
constexpr std::array<int64_t, 4> rows_of_kernels = {1, 2, 4, AA_QUANTIZED_ROWS};

const Format* find_format(const aa_op_call& call) {
  const auto number = static_cast<uint32_t>(params_of<aa_quantized_params>(call).format);
  const auto* found = std::ranges::find(formats, number, &Format::number);
  return found == formats.end() ? nullptr : found;
}

bool is_float(int32_t dtype) { return dtype == AA_DTYPE_F32 || dtype == AA_DTYPE_BF16 || dtype == AA_DTYPE_F16; }

class DecodeQuantized final : public OpGroup {
 public:
  explicit DecodeQuantized(DeviceState& device) : device_(device) {
    for (const Format& format : formats) {
      std::vector<std::string> kernels;
      for (const int64_t rows : rows_of_kernels) {
        kernels.push_back(std::string("decode_quantized_") + format.name + "_" + std::to_string(rows));
      }
      kernels_.push_back(
          std::make_unique<TunedKernels>(device, "decode_quantized.cu", kernels,
                                         std::vector<std::string>{"-DAA_NUMBER=" + std::to_string(format.number)}));
    }
  }

  std::span<const Op> ops() const override { return list; }

  bool supports(Op /*op*/, const aa_op_call& call, DeviceState&) override {
    const aa_tensor &x = call.tensors[1], &w = call.tensors[2];
    const Format* format = find_format(call);
    if (format == nullptr || !is_float(x.dtype) || x.shape[0] > AA_QUANTIZED_ROWS) return false;
    if (x.shape[1] < 1 || x.shape[1] % AA_QUANTIZED_PIECE != 0 || x.shape[1] > INT32_MAX / 2) return false;
    if (w.shape[0] > INT32_MAX / 4) return false;
    if (AA_QUANTIZED_SHARED(format->number) > device_.facts().shared_per_block_optin) return false;
    // Loads of 16 bytes of w, and of four elements of x.
    const int64_t quad = 4 * size_of(x.dtype);
    const bool one_row = w.shape[0] <= 1, one_x = x.shape[0] <= 1;
    return reinterpret_cast<uintptr_t>(w.data) % 16 == 0 &&
           (one_row || w.strides[0] % AA_QUANTIZED_ALIGNMENT(format->number) == 0) && x.strides[1] == 1 &&
           reinterpret_cast<uintptr_t>(x.data) % static_cast<uintptr_t>(quad) == 0 &&
           (one_x || x.strides[0] * size_of(x.dtype) % quad == 0);
  }

  void enqueue(Op /*op*/, const aa_op_call& call, Stream& stream) override {
    const aa_tensor &out = call.tensors[0], &x = call.tensors[1], &w = call.tensors[2], &bias = call.tensors[3],
                    &residual = call.tensors[4];
    if (out.shape[0] == 0 || out.shape[1] == 0) return;
    const Format& format = *find_format(call);
    const auto kernel =
        static_cast<size_t>(std::ranges::lower_bound(rows_of_kernels, x.shape[0]) - rows_of_kernels.begin());
    aa_quantized_decode a{};
    a.x_row = x.strides[0] * size_of(x.dtype);
    a.w_row = w.strides[0];
    a.out_row = out.strides[0];
    a.out_inner = out.strides[1];
    a.m = static_cast<int32_t>(x.shape[0]);
    a.n = static_cast<int32_t>(w.shape[0]);
    a.pieces = static_cast<int32_t>(x.shape[1] / AA_QUANTIZED_PIECE);
    a.x_dtype = x.dtype;
    a.out_dtype = out.dtype;
    a.bias_dtype = bias.dtype;
    if (is_there(bias)) a.bias_inner = bias.strides[0];
    a.residual_dtype = residual.dtype;
    if (is_there(residual)) {
      a.residual_row = residual.strides[0];
      a.residual_inner = residual.strides[1];
    }
    PendingWrites& pending = stream.pending_writes();
    const std::array reads = {PendingWrites::range_of(w)};
    a.early = pending.known() && !pending.contains_any_of(reads);
    const std::array writes = {PendingWrites::range_of(out)};
    pending.add(a.early != 0, writes);
    const int64_t rows = rows_of_kernels.at(kernel);
    const int64_t unit = AA_QUANTIZED_UNIT(rows), warps = AA_QUANTIZED_WARPS(rows);
    const int64_t units = (a.n + unit - 1) / unit;
    const int64_t blocks = std::min<int64_t>(units, device_.facts().multiprocessors);
    kernels_[static_cast<size_t>(&format - formats.data())]->launch(
        kernel, stream.handle(),
        {.grid = {static_cast<unsigned>(blocks), 1, 1},
         .block = static_cast<unsigned>(32 * warps),
         .shared_bytes = static_cast<unsigned>(AA_QUANTIZED_SHARED(format.number)),
         .overlaps_previous = true,
         .alone = true},
        x.data, out.data, w.data, bias.data, residual.data, a);
  }

 private:
  static constexpr Op list[] = {Op::QuantizedLinear};

  DeviceState& device_;
  std::vector<std::unique_ptr<TunedKernels>> kernels_;  // by format
};

}  // namespace

std::unique_ptr<OpGroup> make_decode_quantized(DeviceState& device) {
  return std::make_unique<DecodeQuantized>(device);
}

}  // namespace anyaccel::cuda
