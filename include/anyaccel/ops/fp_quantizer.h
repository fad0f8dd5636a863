// Quantization to small floating-point formats with a scale for each group of elements: the library that
// "FPQuantizerBuilder" loads.
//
// A tensor of any shape, in row-major order, is cut into groups of `group_size` elements; a number of elements that is
// not a multiple of it is an error. With `limit` the largest number of the format,
//     scale = max |x| / limit            code = encode(x * (1 / scale))             x ~ decode(code) * scale
// Every operation is in F32, rounded to nearest even, so results are bit-identical on every instruction set and with
// any number of threads; denormals of F32 count as zero. encode() returns the nearest number of the format, on a tie
// the one with an even code, and never exceeds the limit; the sign of a zero is kept. Subnormal numbers of the format
// are used. Where a generator is given, rounding is stochastic: to the number nearer to zero or, when (word >> 8) *
// 2^-24 is smaller than the fraction of a step that is cut off, to the next; random numbers and generator as in
// anyaccel/ops/quantizer.h.
//
// A group of zeros, or of elements so small that the scale would be below 2^-126, has scale 1. A group with a NaN or an
// infinity has a NaN for its scale and codes of zero: it is dequantized to NaN.
//
//     format   bits: sign, exponent, mantissa   bias   limit                            beside numbers
//     E4M3     8: 1, 4, 3                          7   448                              NaN: S.1111.111
//     E5M2     8: 1, 5, 2                         15   57344                            infinity and NaN: S.11111.xx
//     E3M2     6: 1, 3, 2                          3   28                               nothing
//     E4M7    12: 1, 4, 7                          7   510                              nothing
//     E2M1     4: 1, 2, 1                          1   6                                nothing
// The first two are the formats of the Open Compute Project (OCP FP8) and of DType::F8E4M3 and F8E5M2, so that every
// consumer of fp8 can read the codes; DeepSpeed scales these formats to 480 and 114688, whose codes mean a NaN and an
// infinity everywhere else. 28 and 6 are the limits of OCP's FP6 and FP4; E4M7 is not part of any standard, so all of
// its codes are numbers, up to 510 as in DeepSpeed.
//
// Storage: U8 [groups, group_size * bits / 8 + 4]. A row holds its group's codes as a bit stream (element i has the
// bits [i * bits, (i + 1) * bits), counted from the lowest bit of the first byte on), then the scale, an F32 in the
// byte order of the host. group_size * bits is a multiple of 32, so that scales are aligned.
//
// Tensors may lie on any accelerator and have any strides. If the accelerator compiles kernels and all tensors of a
// call lie on one of its devices, they are processed there, on the current stream, with the same results (calls with
// indexes wait for these). Otherwise the host computes, with copies there and back if it cannot access the memory, and
// the call blocks until the result is complete. Any error in the arguments is an InvalidArgument that names the tensor,
// thrown before anything is written.
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

enum class FpFormat : int32_t { E4M3, E5M2, E3M2, E4M7, E2M1 };

// Returns the format for DeepSpeed's q_bits and q_mantisa_bits: 8 with 3 or 2, 6 with 2, 12 with 7 (or 4, as in
// DeepSpeed), 4 with 1. Throws InvalidArgument for others.
FpFormat fp_format(int bits, int mantissa_bits);
int fp_format_bits(FpFormat format);
// Returns the limit in the table above.
float fp_format_limit(FpFormat format);

class FPQuantizer : public OpLibrary {
 public:
  FPQuantizer(Accelerator& accelerator, std::shared_ptr<HostOpLibrary> code);
  ~FPQuantizer() override;

  // x: F32, F16 or BF16. The result is on x's device.
  Tensor quantize(const Tensor& x, int64_t group_size, FpFormat format = FpFormat::E4M3,
                  Generator* stochastic = nullptr);
  // Writes to existing storage, whose shape determines the group size.
  void quantize_into(const Tensor& out, const Tensor& x, FpFormat format = FpFormat::E4M3,
                     Generator* stochastic = nullptr);

  // Dequantizes to a new tensor [groups, group_size] of F32, F16 or BF16, or to a tensor of any shape with that many
  // elements.
  Tensor dequantize(const Tensor& codes, FpFormat format = FpFormat::E4M3, DType dtype = DType::BF16);
  void dequantize_into(const Tensor& out, const Tensor& codes, FpFormat format = FpFormat::E4M3);

  // Dequantizes selected rows of a tensor that was quantized with `groups_per_row` groups per row, to [indexes,
  // groups_per_row * group_size]. indexes: I32 or I64 [n], counted from 0; an index out of range is an InvalidArgument
  // with AA_OUT_OF_RANGE.
  Tensor selective_dequantize(const Tensor& codes, const Tensor& indexes, int64_t groups_per_row,
                              FpFormat format = FpFormat::E4M3, DType dtype = DType::BF16);
  // The same, to out [n, ...], whose other dimensions make up a row; their product must be a multiple of the group
  // size.
  void selective_dequantize_into(const Tensor& out, const Tensor& codes, const Tensor& indexes,
                                 FpFormat format = FpFormat::E4M3);

  // Returns the scales, F32 [groups], as a view of the storage.
  static Tensor get_scales(const Tensor& codes);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace anyaccel::ops
