// Entry points of the products: the ops "linear", "linear_multi" and "gated_linear" of abi/ops.h and their forms by
// rows.
//
// Weights are read in place, in the dtype they are stored in, and never repacked between calls: they may be a read-only
// mapping of a file. A few rows of activations (decoding) go through gemv.cpp, which streams the weights at the speed
// of memory; more rows (a prompt) go through gemm.cpp, which is bound by the rate of F32 multiply-adds or of dot products of bf16
// pairs. With a matrix unit, bf16 weights go through gemm_amx.cpp from some rows on. The forms by rows are all run by one kernel,
// that of the matrix unit or else the one for few rows, so that the sums of a row have one order whatever the number of rows.
#include <algorithm>

#include "accelerators/cpu/kernels/matmul_args.h"
#include "accelerators/cpu/kernels/matmul_choice.h"
#include "accelerators/cpu/kernels/matmul_inner.h"
#include "accelerators/cpu/ops.h"
#include "base/simd/cpu_features.h"

namespace anyaccel::cpu {
namespace {

// Bytes of x as F32 that each thread keeps near while rows of weights pass: half of a second-level cache.
constexpr int64_t kBlockBytes = 1 << 20;
constexpr int64_t kFewestBlockRows = 31, kMostBlockRows = 96;
// Fewer rows of x than this are computed by gemv() at the speed of memory, which the matrix unit's kernel misses: five on an
// Emerald Rapids, seven on a Granite Rapids. On two cores of the latter five and six rows read 31 to 36 GB/s by gemv(), in a
// single pass over the weights, and 28 to 30 by the unit, and seven rows 24 and 28 to 30.
int64_t fewest_unit_rows() { return cpu_features().granite_rapids ? 7 : 5; }

// Returns whether the matrix unit can compute the call.
bool by_matrix_unit(const Matmul& args) { return isa() == Isa::Amx && has_bf16_rows(args); }

void run_by_row(const Matmul& args) {
  if (by_matrix_unit(args)) return gemm_amx(args);
  const int64_t row_bytes = std::max<int64_t>(args.k, 1) * static_cast<int64_t>(sizeof(float));
  const int64_t block = std::clamp(kBlockBytes / row_bytes, kFewestBlockRows, kMostBlockRows);
  for (int64_t begin = 0; begin < args.m; begin += block) {
    gemv(rows_of(args, begin, std::min(block, args.m - begin)));
  }
}

}  // namespace

void multiply(const Matmul& args) {
  if (args.m == 0) return;
  const bool unit = args.m >= fewest_unit_rows() && by_matrix_unit(args);
  const bool few = !unit && are_few_rows(args);
  // Few rows that oneDNN does not take leave no choice and are not counted as one.
  if ((!few || onednn_takes(args)) && choose_onednn(args)) {
    gemm_onednn(args);
  } else if (few) {
    gemv(args);
  } else if (unit) {
    gemm_amx(args);
  } else {
    gemm(args);
  }
}

void linear_by_row(const aa_op_call& call) { run_by_row(linear_args(call)); }
void linear_multi_by_row(const aa_op_call& call) { run_by_row(linear_multi_args(call)); }
void gated_linear_by_row(const aa_op_call& call) { run_by_row(gated_linear_args(call)); }

void linear(const aa_op_call& call) { multiply(linear_args(call)); }
void linear_multi(const aa_op_call& call) { multiply(linear_multi_args(call)); }
void gated_linear(const aa_op_call& call) { multiply(gated_linear_args(call)); }

}  // namespace anyaccel::cpu
