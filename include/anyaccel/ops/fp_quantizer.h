// Small floating-point numbers with a scale for each group of elements: what "FPQuantizerBuilder" loads.
//
// A tensor of any shape, in row-major order, is cut into groups of `group_size` elements; a number of elements that is
// no multiple of it is an error. With `limit` the largest number of the format,
//     scale = max |x| / limit            code = encode(x * (1 / scale))             x ~ decode(code) * scale
// Every operation is one of F32, rounded to nearest even, so results are the same bits on every instruction set and
// with any number of threads; denormals of F32 count as zero. encode() gives the nearest number of the format, on a tie
// the one with an even code, and never more than the limit; the sign of a zero is kept. Subnormal numbers of the format
// are used. Where a generator is given, rounding is stochastic: to the number nearer to zero or, when (word >> 8) *
// 2^-24 is smaller than the fraction of a step that is cut off, to the next; random numbers and generator as in
// anyaccel/ops/quantizer.h.
//
// A group of zeros, or of elements so small that the scale would be below 2^-126, has scale 1. A group with a NaN or an
// infinity has a NaN for its scale and codes of zero: it reads back as NaN.
//
//     format   bits: sign, exponent, mantissa   bias   limit                            beside numbers
//     E4M3     8: 1, 4, 3                          7   448                              NaN: S.1111.111
//     E5M2     8: 1, 5, 2                         15   57344                            infinity and NaN: S.11111.xx
//     E3M2     6: 1, 3, 2                          3   28                               nothing
//     E4M7    12: 1, 4, 7                          7   510                              nothing
//     E2M1     4: 1, 2, 1                          1   6                                nothing
// The first two are the formats of the Open Compute Project (OCP FP8) and of DType::F8E4M3 and F8E5M2, so that every
// consumer of fp8 can read the codes; DeepSpeed scales to 480 and 114688 there, whose codes are a NaN and an infinity
// to all others. 28 and 6 are the limits of OCP's FP6 and FP4; E4M7 belongs to no standard, so all of its codes are
// numbers, up to 510 as in DeepSpeed.
//
// Storage: U8 [groups, group_size * bits / 8 + 4]. A row holds its group's codes as a stream of bits (element i has the
// bits [i * bits, (i + 1) * bits), counted from the lowest bit of the first byte on), then the scale, an F32 in the
// byte order of the host. group_size * bits is a multiple of 32, so that scales are aligned.
//
// Tensors may lie on any accelerator and have any strides. Where the accelerator compiles kernels and all tensors of a
// call lie on one of its devices, they are worked on there, on the current stream, with the same results (indexes are
// waited for). Else the host does it, with copies there and back where it does not reach the memory, and the call
// blocks until the result is there. Everything that is wrong with a call is an InvalidArgument that names the tensor;
// nothing has been written then.
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

// The format of DeepSpeed's q_bits and q_mantisa_bits: 8 with 3 or 2, 6 with 2, 12 with 7 (or 4, as DeepSpeed has it),
// 4 with 1. Throws InvalidArgument for others.
FpFormat fp_format(int bits, int mantissa_bits);
int fp_format_bits(FpFormat format);
// The limit of the table above.
float fp_format_limit(FpFormat format);

class FPQuantizer : public OpLibrary {
 public:
  FPQuantizer(Accelerator& accelerator, std::shared_ptr<HostOpLibrary> code);
  ~FPQuantizer() override;

  // x: F32, F16 or BF16. The result is on x's device.
  Tensor quantize(const Tensor& x, int64_t group_size, FpFormat format = FpFormat::E4M3,
                  Generator* stochastic = nullptr);
  // Into storage that is there; it tells the group size.
  void quantize_into(const Tensor& out, const Tensor& x, FpFormat format = FpFormat::E4M3,
                     Generator* stochastic = nullptr);

  // [groups, group_size] of F32, F16 or BF16, or into a tensor of any shape with so many elements.
  Tensor dequantize(const Tensor& codes, FpFormat format = FpFormat::E4M3, DType dtype = DType::BF16);
  void dequantize_into(const Tensor& out, const Tensor& codes, FpFormat format = FpFormat::E4M3);

  // Chosen rows of a tensor that was quantized with `groups_per_row` groups a row: [indexes, groups_per_row *
  // group_size]. indexes: I32 or I64 [n], from 0; one out of range is InvalidArgument with AA_OUT_OF_RANGE.
  Tensor selective_dequantize(const Tensor& codes, const Tensor& indexes, int64_t groups_per_row,
                              FpFormat format = FpFormat::E4M3, DType dtype = DType::BF16);
  // The same into out [n, ...], whose other dimensions make up a row: a multiple of the group size.
  void selective_dequantize_into(const Tensor& out, const Tensor& codes, const Tensor& indexes,
                                 FpFormat format = FpFormat::E4M3);

  // The scales, F32 [groups]: a view of the storage.
  static Tensor get_scales(const Tensor& codes);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace anyaccel::ops
