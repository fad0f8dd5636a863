// The op "random": Philox words as bits, uniform or normal numbers, the same on every accelerator. An item makes the
// elements of one counter: four, or two of I64 bits.
#include "dialect.h"

#include "arguments.h"
#include "formats.h"
#include "philox.h"
#include "views.h"

// `count` elements.
AA_KERNEL(random_bits, AA_ITEMS)
(AA_OUT(void) out, AA_VALUE(aa_view) view, AA_VALUE(aa_i64) count, AA_VALUE(aa_i64) seed, AA_VALUE(aa_i64) offset) {
  const aa_i64 counter = AA_ITEM_ID;
  const aa_i32 wide = view.dtype == AA_I64;
  const aa_i64 first = counter * (wide ? 2 : 4);
  if (first < count) {
    aa_u32 words[4];
    aa_philox((aa_u64)seed, (aa_u64)offset + (aa_u64)counter, words);
    for (aa_i32 j = 0; j < (wide ? 2 : 4) && first + j < count; ++j) {
      const aa_u64 value = wide ? ((aa_u64)words[2 * j + 1] << 32) | words[2 * j] : words[j];
      aa_store_integer(out, view.dtype, aa_view_offset(view, first + j), (aa_i64)value);
    }
  }
}
AA_REGISTER(random_bits, AA_ITEMS)

AA_KERNEL(random_uniform, AA_ITEMS)
(AA_OUT(void) out, AA_VALUE(aa_view) view, AA_VALUE(aa_i64) count, AA_VALUE(aa_i64) seed, AA_VALUE(aa_i64) offset,
 AA_VALUE(float) low, AA_VALUE(float) range) {
  const aa_i64 counter = AA_ITEM_ID;
  const aa_i64 first = 4 * counter;
  if (first < count) {
    aa_u32 words[4];
    aa_philox((aa_u64)seed, (aa_u64)offset + (aa_u64)counter, words);
    for (aa_i32 j = 0; j < 4 && first + j < count; ++j) {
      const float value = aa_add_rn(low, aa_mul_rn(range, aa_unit(words[j])));
      aa_store_float(out, view.dtype, aa_view_offset(view, first + j), value);
    }
  }
}
AA_REGISTER(random_uniform, AA_ITEMS)

#if AA_HAS_F64
AA_KERNEL(random_normal, AA_ITEMS)
(AA_OUT(void) out, AA_VALUE(aa_view) view, AA_VALUE(aa_i64) count, AA_VALUE(aa_i64) seed, AA_VALUE(aa_i64) offset,
 AA_VALUE(double) mean, AA_VALUE(double) deviation) {
  const aa_i64 counter = AA_ITEM_ID;
  const aa_i64 first = 4 * counter;
  if (first < count) {
    aa_u32 words[4];
    aa_philox((aa_u64)seed, (aa_u64)offset + (aa_u64)counter, words);
    for (aa_i32 j = 0; j < 4 && first + j < count; ++j) {
      const double unit = 1.0 / 16777216.0;
      const double radius = aa_sqrt_f64(-2.0 * aa_log_f64((double)((words[j & 2] >> 8) + 1) * unit));
      const double angle = 6.283185307179586476925 * ((double)(words[j | 1] >> 8) * unit);
      const double value = aa_mul_rn_f64(radius, (j & 1) ? aa_sin_f64(angle) : aa_cos_f64(angle));
      aa_store_f64(out, view.dtype, aa_view_offset(view, first + j),
                   aa_add_rn_f64(mean, aa_mul_rn_f64(deviation, value)));
    }
  }
}
AA_REGISTER(random_normal, AA_ITEMS)
#endif
