// Kernels that prove what the host's execution of kernels/cuda/warpgroup.h does: products by descriptors, barriers, and the
// mistakes it must find.
#include "dialect.h"
#include "warp.h"
#include "warpgroup.h"

// Matrices of 128 columns in shared memory: 64 rows of a, 128 of b.
AA_FN aa_u8* group_take(aa_u8* to, AA_IN(aa_u16) from, aa_i32 rows) {
  for (aa_i32 i = AA_LOCAL_ID; i < rows * 16; i += 128) {
    *(aa_u32x4*)(to + aa_panel_chunk(i / 16, i % 16, rows * 128)) = aa_load16(from, i * 16);
  }
  return to + rows * 256;
}
AA_FN aa_u8* group_memory(aa_u8* memory) { return memory + (1024 - aa_shared_address(memory) % 1024) % 1024; }
AA_FN aa_i32 group_row(aa_i32 i) { return AA_LOCAL_ID / 32 * 16 + AA_LANE / 4 + i / 2 % 2 * 8; }
AA_FN aa_i32 group_column(aa_i32 i) { return i / 4 * 8 + AA_LANE % 4 * 2 + i % 2; }

#define GROUP_PRODUCTS(type)                                                                                          \
  /* d = a (64 x 128) * transpose(b), b 128 x 128. `early`: the result is used before the product has ended. */       \
  AA_TUNED_KERNEL(group_rows_##type, 128, 1)(AA_OUT(float) d, AA_IN(aa_u16) a, AA_IN(aa_u16) b, aa_i32 early) {       \
    AA_DYNAMIC_LOCAL(memory);                                                                                         \
    aa_u8* const a_at = group_memory(memory);                                                                         \
    aa_u8* const b_at = group_take(a_at, a, 64);                                                                      \
    group_take(b_at, b, 128);                                                                                         \
    aa_matrix_fence();                                                                                                \
    AA_BARRIER();                                                                                                     \
    const aa_u64 a_rows = aa_rows_descriptor(aa_shared_address(a_at));                                                \
    const aa_u64 b_rows = aa_rows_descriptor(aa_shared_address(b_at));                                                \
    float r[64];                                                                                                      \
    for (int i = 0; i < 64; ++i) r[i] = 1000.0f;                                                                      \
    aa_wg_landed(r);                                                                                                  \
    aa_wg_fence();                                                                                                    \
    AA_PRAGMA_UNROLL for (int step = 0; step < 8; ++step) {                                                           \
      aa_wg_rows_##type(r, aa_descriptor_at(a_rows, step / 4 * 64 * 128 + step % 4 * 32),                             \
                        aa_descriptor_at(b_rows, step / 4 * 128 * 128 + step % 4 * 32), step > 0);                    \
    }                                                                                                                 \
    aa_wg_commit();                                                                                                   \
    if (!early) aa_wg_wait(0);                                                                                        \
    aa_wg_landed(r);                                                                                                  \
    for (int i = 0; i < 64; ++i) d[group_row(i) * 128 + group_column(i)] = r[i];                                      \
    aa_wg_wait(0);                                                                                                    \
  }                                                                                                                   \
  AA_REGISTER_TUNED(group_rows_##type, 128)                                                                           \
  /* d += a (64 x 128) * b, b 128 x 128. `reuse`: b is changed before the product has ended. */                       \
  AA_TUNED_KERNEL(group_columns_##type, 128, 1)(AA_OUT(float) d, AA_IN(aa_u16) a, AA_IN(aa_u16) b, aa_i32 reuse) {    \
    AA_DYNAMIC_LOCAL(memory);                                                                                         \
    aa_u8* const b_at = group_memory(memory);                                                                         \
    group_take(b_at, b, 128);                                                                                         \
    aa_matrix_fence();                                                                                                \
    AA_BARRIER();                                                                                                     \
    const aa_u64 b_columns = aa_columns_descriptor(aa_shared_address(b_at), 128 * 128);                               \
    float r[64];                                                                                                      \
    for (int i = 0; i < 64; ++i) r[i] = d[group_row(i) * 128 + group_column(i)];                                      \
    aa_u32 own[8][4];                                                                                                 \
    for (int step = 0; step < 8; ++step) {                                                                            \
      for (int e = 0; e < 4; ++e) {                                                                                   \
        const aa_i32 at = group_row(2 * (e % 2)) * 128 + 16 * step + AA_LANE % 4 * 2 + e / 2 * 8;                     \
        own[step][e] = a[at] | (aa_u32)a[at + 1] << 16;                                                               \
      }                                                                                                               \
    }                                                                                                                 \
    aa_wg_landed(r);                                                                                                  \
    aa_wg_landed(own);                                                                                                \
    aa_wg_fence();                                                                                                    \
    AA_PRAGMA_UNROLL for (int step = 0; step < 8; ++step) {                                                           \
      aa_wg_columns_##type(r, own[step], aa_descriptor_at(b_columns, step * 2048));                                   \
    }                                                                                                                 \
    aa_wg_commit();                                                                                                   \
    if (reuse) group_take(b_at, a, 64);                                                                               \
    aa_wg_wait(0);                                                                                                    \
    aa_wg_landed(r);                                                                                                  \
    aa_wg_landed(own);                                                                                                \
    for (int i = 0; i < 64; ++i) d[group_row(i) * 128 + group_column(i)] = r[i];                                      \
  }                                                                                                                   \
  AA_REGISTER_TUNED(group_columns_##type, 128)
GROUP_PRODUCTS(bf16)
GROUP_PRODUCTS(f16)

// The first warp hands `count` numbers to the second one through two places, which hands them back doubled by a barrier of the
// two warps at the end. `mistake` 1: nobody says that a place is full; 2: a place is filled again before it was emptied; 3: one
// warp does not come to the last barrier; 4: a product is never waited for.
AA_TUNED_KERNEL(group_phases, 96, 1)(AA_OUT(aa_i32) y, AA_IN(aa_i32) x, aa_i32 count, aa_i32 mistake) {
  AA_LOCAL_ARRAY(aa_u64, full, 2);
  AA_LOCAL_ARRAY(aa_u64, empty, 2);
  AA_LOCAL_ARRAY(aa_i32, place, 64);
  AA_LOCAL_ARRAY(aa_i32, sum, 32);
  if (AA_LOCAL_ID == 0) {
    for (int i = 0; i < 2; ++i) {
      aa_phase_make(full + i, 32);
      aa_phase_make(empty + i, 1);
    }
    aa_phase_made();
  }
  AA_BARRIER();
  if (AA_WARP == 2) {
    if (mistake == 4) {
      float r[32];
      aa_wg_rows_bf16(r, 0, 0, false);
    }
    return;
  }
  if (AA_WARP == 0) {
    for (aa_i32 i = 0; i < count; ++i) {
      if (mistake != 2) aa_phase_wait(empty + i % 2, (aa_u32)(i / 2 + 1) & 1u);
      place[i % 2 * 32 + AA_LANE] = x[i * 32 + AA_LANE];
      if (mistake != 1) aa_phase_arrive(full + i % 2);
    }
    if (mistake != 3) aa_some_sync(1, 64);
    y[AA_LANE] = 2 * sum[31 - AA_LANE];
  } else {
    aa_i32 own = 0;
    for (aa_i32 i = 0; i < count; ++i) {
      aa_phase_wait(full + i % 2, (aa_u32)(i / 2) & 1u);
      own += place[i % 2 * 32 + AA_LANE] * (i + 1);
      AA_WARP_SYNC();
      if (AA_LANE == 0) aa_phase_arrive(empty + i % 2);
    }
    sum[AA_LANE] = own;
    aa_some_sync(1, 64);
  }
}
AA_REGISTER_TUNED(group_phases, 96)
