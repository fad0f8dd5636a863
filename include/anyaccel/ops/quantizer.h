// Quantization to integers with a scale for each group of elements: the library that "QuantizerBuilder" loads.
//
// Groups. A tensor of any shape, in row-major order, is cut into `groups` groups of equal size. A number of elements
// that is not a multiple of `groups` is an error; so is an odd group size, or an odd last dimension, with 4 bits.
//
// Symmetric: largest = max |x|, limit = 127 (8 bits) or 7 (4 bits),
//     scale = largest / limit        q = round(x * (1 / scale)) within [-limit, limit]       x ~ q * scale
// Asymmetric: steps = 255 or 15, half = 128 or 8,
//     scale = (max x - min x) / steps         offset = min x + half * scale
//     q = round((x - offset) * (1 / scale)) within [-half, half - 1]                         x ~ q * scale + offset
// Every operation is in F32, rounded to nearest even, in the order written, so results are bit-identical on every
// instruction set and with any number of threads; denormals count as zero. |x - q * scale| is at most scale / 2 (and
// the rounding of these operations); the largest element is not clipped.
//
// round() is to nearest even or, where a generator is given, stochastic: the integer below, plus one when (word >> 8) *
// 2^-24 is smaller than the fraction cut off, so that integers are unchanged and the mean is preserved. Element i of
// the call (row-major) takes word i % 4 of counter offset + i / 4, as the op "random" does (abi/ops.h), and the
// generator advances by numel / 4 counters, rounded up.
//
// A group of zeros, of equal elements (asymmetric), or of elements so small that the scale would be below 2^-126 has
// scale 1 (and offset min x): q is 0. A group with a NaN or an infinity, or whose max - min is beyond F32, has a NaN
// for its scale and offset and zeros for q: it is dequantized to NaN, so that a check for overflow finds it.
//
// Values are I8 with 8 bits; with 4 they are U8, two a byte, the first in the upper four bits, and the last dimension
// is half as long. Params are F32, [groups, 1] of scales or [groups, 2] of pairs scale, offset. Together these two show
// how a tensor was quantized.
//
// Tensors may lie on any accelerator and have any strides. If the accelerator compiles kernels and all tensors of a
// call lie on one of its devices, they are processed there, on the current stream, with the same results. Otherwise the
// host computes, with copies there and back if it cannot access the memory, and the call blocks until the result is
// complete. Any error in the arguments is an InvalidArgument that names the tensor, thrown before anything is written.
#pragma once

#include <cstdint>
#include <memory>

#include "anyaccel/generator.h"
#include "anyaccel/op_builder.h"
#include "anyaccel/tensor.h"

namespace anyaccel {
class Accelerator;
}

namespace anyaccel::ops {

enum class QuantKind : int32_t { Symmetric, Asymmetric };

struct Quantized {
  Tensor values;  // I8, or U8 with two values a byte
  Tensor params;  // F32 [groups, 1] or [groups, 2]

  int bits() const { return values.dtype() == DType::U8 ? 4 : 8; }
  int64_t groups() const { return params.size(0); }
  QuantKind kind() const { return params.size(1) == 2 ? QuantKind::Asymmetric : QuantKind::Symmetric; }
};

// The order in which a hierarchical all-to-all moves partitions: `nodes` * `devices` of them, the one for device d of
// node n being number n * devices + d, in `stages` pieces.
struct Swizzle {
  int64_t nodes = 1;
  int64_t devices = 1;  // per node
  int64_t stages = 1;   // for overlapping communication with computation
};

class Quantizer : public OpLibrary {
 public:
  Quantizer(Accelerator& accelerator, std::shared_ptr<HostOpLibrary> code);
  ~Quantizer() override;

  // bits: 8 or 4. The result is on x's device.
  Quantized quantize(const Tensor& x, int64_t groups, int bits = 8, QuantKind kind = QuantKind::Symmetric,
                     Generator* stochastic = nullptr);
  // Writes to existing tensors of the shapes above, which determine groups, bits and kind.
  void quantize_into(const Quantized& out, const Tensor& x, Generator* stochastic = nullptr);

  // F32, F16 or BF16.
  Tensor dequantize(const Quantized& x, DType dtype = DType::F32);
  void dequantize_into(const Tensor& out, const Quantized& x);

  // Rounds x, in place, to the values that quantizing and dequantizing gives. bits: 2 to 16, with the limits above for
  // that number of bits. x: F32, F16 or BF16; a group that is not finite becomes NaN.
  void ds_quantize(const Tensor& x, int64_t groups, int bits);
  void ds_quantize_asym(const Tensor& x, int64_t groups, int bits);
  void ds_sr_quantize(const Tensor& x, int64_t groups, int bits, Generator& random);
  void ds_sr_quantize_asym(const Tensor& x, int64_t groups, int bits, Generator& random);

  // Quantizes with the groups in the order of the first step of a hierarchical all-to-all (ZeRO++): the data for the
  // devices with number d, on all nodes, is contiguous. A group whose number, in row-major order, is
  //     (node, device, stage, inner) of [nodes, devices, stages, rest]
  // becomes group (stage, device, node, inner) of [stages, devices, nodes, rest], values and params alike. `groups` is
  // a multiple of nodes * devices * stages. Values are one-dimensional.
  Quantized swizzle_quant(const Tensor& x, int64_t groups, int bits, QuantKind kind, const Swizzle& swizzle);

  // The same for x + error, with error feedback (LoCo): error becomes, element by element, beta * error + (1 - beta) *
  // ((x + error) - the dequantized values). error: x's shape and order (not swizzled), F32, F16 or BF16. A group that
  // is not finite leaves its error unchanged.
  Quantized loco_swizzle_quant(const Tensor& x, const Tensor& error, float beta, int64_t groups, int bits,
                               QuantKind kind, const Swizzle& swizzle);

  // Sums `chunks` quantized tensors, which lie one behind the other in x (values and params, the number of whose groups
  // is a multiple of `chunks`), and quantizes the sum (not the mean) to `out_groups` groups of the same bits and kind.
  // The sum is in F32, from the first chunk to the last. Values are one-dimensional; groups of the sum need not be
  // whole groups of the chunks.
  Quantized quantized_reduction(const Quantized& x, int64_t out_groups, int64_t chunks);
  // The same for sum + error, with error feedback as above; error has as many elements as the sum.
  Quantized loco_quantized_reduction(const Quantized& x, const Tensor& error, float beta, int64_t out_groups,
                                     int64_t chunks);

  // Dequantizes weights of another quantizer, with unsigned values: (q / scale) + minimum in F32, then rounded to F16.
  // values: U8, [groups, group size] or, with 4 bits, [groups, group size / 2], the first value in the upper half of a
  // byte; scale and minimum: F16, BF16 or F32, one element per group. Returns [groups, group size].
  Tensor dequantize_int4_to_half(const Tensor& values, const Tensor& scale, const Tensor& minimum);
  Tensor dequantize_int8_to_half(const Tensor& values, const Tensor& scale, const Tensor& minimum);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace anyaccel::ops
