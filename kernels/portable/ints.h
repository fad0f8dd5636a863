// AA_WIDE neighbouring 32-bit integers at once, for decoding blocks of quantized weights; see aa_wide in dialect.h, to which
// aa_ints_to_wide() leads. A language with vectors defines them in its own header, with AA_HAS_WIDE_INTS. Include after
// dialect.h.
#ifndef ANYACCEL_KERNELS_INTS_H_
#define ANYACCEL_KERNELS_INTS_H_

#ifndef AA_HAS_WIDE_INTS
typedef struct aa_ints {
  aa_i32 v[AA_WIDE];
} aa_ints;
#define AA_INTS_EACH(name, arguments, value)                      \
  AA_FN aa_ints name arguments {                                  \
    aa_ints r;                                                    \
    AA_PRAGMA_UNROLL for (int j = 0; j < AA_WIDE; ++j) r.v[j] = value; \
    return r;                                                     \
  }
AA_INTS_EACH(aa_ints_all, (aa_i32 value), value)
AA_INTS_EACH(aa_ints_numbers, (aa_i32 first), first + j)
AA_INTS_EACH(aa_ints_and, (aa_ints a, aa_ints b), a.v[j] & b.v[j])
AA_INTS_EACH(aa_ints_or, (aa_ints a, aa_ints b), a.v[j] | b.v[j])
AA_INTS_EACH(aa_ints_add, (aa_ints a, aa_ints b), a.v[j] + b.v[j])
AA_INTS_EACH(aa_ints_mul, (aa_ints a, aa_ints b), a.v[j] * b.v[j])
AA_INTS_EACH(aa_ints_left, (aa_ints a, aa_ints b), (aa_i32)((aa_u32)a.v[j] << b.v[j]))
AA_INTS_EACH(aa_ints_right, (aa_ints a, aa_ints b), a.v[j] >> b.v[j])
// a where the test is not 0, else b
AA_INTS_EACH(aa_ints_choose, (aa_ints test, aa_ints a, aa_ints b), test.v[j] != 0 ? a.v[j] : b.v[j])
AA_INTS_EACH(aa_ints_load_i8, (AA_IN(aa_i8) p, aa_i64 i), p[i + j])
AA_INTS_EACH(aa_ints_load_u8, (AA_IN(aa_u8) p, aa_i64 i), p[i + j])
// The same at an even address, two bytes a load.
AA_FN aa_ints aa_ints_load_pairs(AA_IN(aa_u8) p, aa_i64 i) {
  aa_ints r;
  AA_PRAGMA_UNROLL for (int j = 0; j < AA_WIDE; j += 2) {
    const aa_u16 pair = AA_AS_IN(aa_u16, p)[(i + j) / 2];
    r.v[j] = pair & 255;
    r.v[j + 1] = pair >> 8;
  }
  return r;
}
AA_FN aa_wide aa_ints_to_wide(aa_ints a) {
  aa_wide r;
  AA_PRAGMA_UNROLL for (int j = 0; j < AA_WIDE; ++j) r.v[j] = (float)a.v[j];
  return r;
}
#endif

#endif  // ANYACCEL_KERNELS_INTS_H_
