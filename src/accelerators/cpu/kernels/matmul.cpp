// Entry points of the matmul ops: reads the call and chooses between the kernel for few rows and the ones for many.
#include "accelerators/cpu/kernels/matmul.h"

#include "accelerators/cpu/kernels/matmul_args.h"
#include "accelerators/cpu/kernels/matmul_choice.h"
#include "accelerators/cpu/kernels/matmul_inner.h"

namespace anyaccel::cpu {
namespace {

void run(const Matmul& args) {
  if (args.m == 0) return;
  if (args.m <= gemv_max_rows()) {
    gemv(args);
  } else if (choose_onednn(args)) {
    gemm_onednn(args);
  } else {
    gemm(args);
  }
}

}  // namespace

void linear(const aa_op_call& call) { run(linear_args(call)); }
void linear_multi(const aa_op_call& call) { run(linear_multi_args(call)); }
void gated_linear(const aa_op_call& call) { run(gated_linear_args(call)); }

}  // namespace anyaccel::cpu
