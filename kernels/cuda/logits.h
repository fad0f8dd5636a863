// Shared by argmax.cu and sampling.cu: rows of logits of element type AA_X that many blocks share. A row begins at a
// multiple of 16 bytes and its elements are neighbours. Tokens are ordered by a 32-bit key that rises with the logit,
// lower index first among equals. Include after dialect.h and warp.h.
#ifndef ANYACCEL_KERNELS_LOGITS_H_
#define ANYACCEL_KERNELS_LOGITS_H_

#include "formats.h"
#include "row_arguments.h"
#include "vectors.h"

#define AA_IS_F32_f32 1
#define AA_IS_F32_bf16 0
#define AA_IS_F32_f16 0
// Logits in 16 bytes.
#if AA_CAT(AA_IS_F32_, AA_X)
#define AA_LOGITS 4
#else
#define AA_LOGITS 8
#endif
// Vectors that a thread has in flight if a block takes a whole row.
#define AA_FLIGHT (16 / AA_LOGITS)

AA_FN void load_logits(float* v, AA_IN(void) x, aa_i64 i) {
  const aa_u32x4 w = aa_load16(x, i * (16 / AA_LOGITS));
  AA_CAT(aa_split_, AA_X)(v, w);
}
AA_FN float load_logit(AA_IN(void) x, aa_i64 i) { return AA_LOAD(AA_X, AA_AS_IN(AA_STORAGE(AA_X), x), i); }

// Rises with the value; a NaN is above all, -0 equals +0.
AA_FN aa_u32 logit_key(float v) {
  const aa_u32 u = aa_bits(v);
  if ((u & 0x7fffffffu) > AA_INFINITY_BITS) return 0xffffffffu;
  if ((u & 0x7fffffffu) == 0) return 0x80000000u;
  return (u >> 31) ? ~u : u | 0x80000000u;
}
// The value of a key that is not a NaN's.
AA_FN float key_logit(aa_u32 key) { return aa_float((key >> 31) ? key & 0x7fffffffu : ~key); }

// Returns whether a token can be chosen in a row with this largest key: the logit is finite.
AA_FN bool key_is_finite(aa_u32 key) { return key > 0x007fffffu && key < 0xff800000u; }

// Runs the code at the end with `logit` and its place `i` for the elements of a row that come to this thread: vectors first,
// first + step, ... and then single elements at the end of the row.
#define AA_FOR_LOGITS(flight, x, base, size, first, step, ...)                                           \
  for (aa_i64 v_ = (first), end_ = (size) / AA_LOGITS; v_ < end_; v_ += (step) * (flight)) {             \
    float logits_[(flight)][AA_LOGITS];                                                                  \
    AA_PRAGMA_UNROLL for (aa_i32 f_ = 0; f_ < (flight); ++f_) {                                          \
      if (v_ + f_ * (step) < end_) load_logits(logits_[f_], x, (base) + (v_ + f_ * (step)) * AA_LOGITS); \
    }                                                                                                    \
    AA_PRAGMA_UNROLL for (aa_i32 f_ = 0; f_ < (flight); ++f_) {                                          \
      if (v_ + f_ * (step) < end_) {                                                                     \
        AA_PRAGMA_UNROLL for (aa_i32 j_ = 0; j_ < AA_LOGITS; ++j_) {                                     \
          const float logit = logits_[f_][j_];                                                           \
          const aa_u32 i = (aa_u32)((v_ + f_ * (step)) * AA_LOGITS + j_);                                \
          __VA_ARGS__                                                                                    \
        }                                                                                                \
      }                                                                                                  \
    }                                                                                                    \
  }                                                                                                      \
  for (aa_i64 e_ = (size) / AA_LOGITS * AA_LOGITS + (first); e_ < (size); e_ += (step)) {                \
    const float logit = load_logit(x, (base) + e_);                                                      \
    const aa_u32 i = (aa_u32)e_;                                                                         \
    __VA_ARGS__                                                                                          \
  }

// Returns whether this block is the last of its row to arrive here; what the others wrote before can then be read. The
// counter is zero again.
AA_FN bool last_of_row(AA_OUT(aa_u32) counter, aa_i64 at, aa_u32* scratch) {
  AA_BARRIER();
  if (AA_LOCAL_ID == 0) {
    aa_device_fence();
    scratch[0] = aa_atomic_add(counter, at, 1);
    aa_device_fence();
  }
  AA_BARRIER();
  const bool last = scratch[0] + 1 == (aa_u32)AA_GROUP_COUNT(0);
  AA_BARRIER();
  if (last && AA_LOCAL_ID == 0) counter[at] = 0;
  return last;
}

#endif  // ANYACCEL_KERNELS_LOGITS_H_
