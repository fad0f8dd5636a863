// The section of kernels/cuda/warpgroup.h for host C++, which AA_HOST_WARPGROUP selects when the simulators compile the tuned
// kernels.
#pragma once

#include "simulators/engine/fiber.h"
#include "simulators/engine/warpgroup.h"

AA_FN aa_u32 aa_shared_address(const void* local) { return ::sim::local_address(local); }

AA_FN void aa_phase_make(aa_u64* barrier, aa_i32 count) { ::sim::GroupRunner::current().phase_make(barrier, count); }
AA_FN void aa_phase_made() {}
AA_FN void aa_phase_arrive(aa_u64* barrier) { ::sim::GroupRunner::current().phase_arrive(barrier); }
AA_FN void aa_phase_wait(aa_u64* barrier, aa_u32 parity) { ::sim::GroupRunner::current().phase_wait(barrier, parity); }
AA_FN void aa_some_sync(aa_i32 barrier, aa_i32 threads) { ::sim::GroupRunner::current().some_sync(barrier, threads); }
AA_FN void aa_some_arrive(aa_i32 barrier, aa_i32 threads) {
  ::sim::GroupRunner::current().some_arrive(barrier, threads);
}
AA_FN void aa_matrix_fence() {}
#define aa_fewer_registers(count)
#define aa_more_registers(count)

AA_FN void aa_wg_fence() {}
AA_FN void aa_wg_commit() { ::sim::warpgroup_commit(); }
#define aa_wg_wait(left) ::sim::warpgroup_wait(left)
template <int kCount>
AA_FN void aa_wg_landed(float (&)[kCount]) {}
template <int kSteps>
AA_FN void aa_wg_landed(aa_u32 (&)[kSteps][4]) {}

#define AA_HOST_WG_PRODUCTS(type, is_f16)                                                     \
  template <int kCount>                                                                       \
  AA_FN void aa_wg_rows_##type(float(&d)[kCount], aa_u64 a_rows, aa_u64 b_rows, bool add) {   \
    ::sim::warpgroup_product({d, 2 * kCount, nullptr, a_rows, b_rows, add, true, is_f16});    \
  }                                                                                           \
  template <int kCount>                                                                       \
  AA_FN void aa_wg_columns_##type(float(&d)[kCount], const aa_u32(&a)[4], aa_u64 b_columns) { \
    ::sim::warpgroup_product({d, 2 * kCount, a, 0, b_columns, true, false, is_f16});          \
  }
AA_HOST_WG_PRODUCTS(bf16, false)
AA_HOST_WG_PRODUCTS(f16, true)
