// Declares the functions behind ops::Quantizer and ops::FPQuantizer as portable kernels. Their arguments are those of
// the host's functions (kernels/host/quantizer_calls.h, fp_quantizer_calls.h) with arrays on a device, and their
// results are identical bit for bit.
#pragma once

#include "anyaccel/driver_accelerator.h"
#include "kernels/host/fp_quantizer_calls.h"
#include "kernels/host/quantizer_calls.h"
#include "ops/portable/kernel_set.h"

namespace anyaccel::ops::portable {

// Every function enqueues on the calling thread's current stream of `device`, on which all arrays of its argument lie.
class QuantizerKernels {
 public:
  explicit QuantizerKernels(DriverAccelerator& accelerator);

  void quantize(const aa_quantize_args& args, int device);
  void fake(const aa_quantize_args& args, int device);
  void dequantize(const aa_dequantize_args& args, int device);
  void quantized_reduction(const aa_quantized_reduction_args& args, int device);
  void dequantize_to_half(const aa_dequantize_to_half_args& args, int device);

 private:
  DriverAccelerator& accelerator_;
  KernelSet ranges_;
  KernelSet kernels_;
  KernelSet teams_;
};

class FPQuantizerKernels {
 public:
  explicit FPQuantizerKernels(DriverAccelerator& accelerator);

  void quantize(const aa_fp_quantize_args& args, int device);
  void dequantize(const aa_fp_dequantize_args& args, int device);

 private:
  DriverAccelerator& accelerator_;
  KernelSet ranges_;
  KernelSet kernels_;
  KernelSet teams_;
};

}  // namespace anyaccel::ops::portable
