// Four neighbouring elements as floats, in one access of 16 or 8 bytes where the language has vectors of words (AA_HAS_FOURS).
// The first of them lies at a multiple of that size. What a load returns takes as many registers as the elements take in
// memory (aa_raw_four_TYPE), until its floats are asked for. Include after dialect.h.
#ifndef ANYACCEL_KERNELS_FOURS_H_
#define ANYACCEL_KERNELS_FOURS_H_

typedef struct aa_four {
  float v[4];
} aa_four;

#ifdef AA_HAS_FOURS
typedef uint4 aa_raw_four_f32;
typedef uint2 aa_raw_four_bf16;
typedef uint2 aa_raw_four_f16;
#define aa_load_four_f32(p, four) (AA_AS_IN(uint4, p)[four])
#define aa_load_four_bf16(p, four) (AA_AS_IN(uint2, p)[four])
#define aa_load_four_f16(p, four) (AA_AS_IN(uint2, p)[four])
AA_FN aa_four aa_four_of_f32(uint4 w) {
  aa_four r;
  r.v[0] = aa_float(w.x);
  r.v[1] = aa_float(w.y);
  r.v[2] = aa_float(w.z);
  r.v[3] = aa_float(w.w);
  return r;
}
AA_FN void aa_store_four_f32(AA_OUT(float) p, aa_i64 four, aa_four v) {
  uint4 w;
  w.x = aa_bits(v.v[0]);
  w.y = aa_bits(v.v[1]);
  w.z = aa_bits(v.v[2]);
  w.w = aa_bits(v.v[3]);
  AA_AS_OUT(uint4, p)[four] = w;
}
AA_FN aa_four aa_four_of_bf16(uint2 w) {
  aa_four r;
  r.v[0] = aa_float(w.x << 16);
  r.v[1] = aa_float(w.x & 0xffff0000u);
  r.v[2] = aa_float(w.y << 16);
  r.v[3] = aa_float(w.y & 0xffff0000u);
  return r;
}
AA_FN aa_u32 aa_two_bf16(float low, float high) { return (aa_u32)aa_to_bf16(low) | (aa_u32)aa_to_bf16(high) << 16; }
AA_FN void aa_store_four_bf16(AA_OUT(aa_u16) p, aa_i64 four, aa_four v) {
  uint2 w;
  w.x = aa_two_bf16(v.v[0], v.v[1]);
  w.y = aa_two_bf16(v.v[2], v.v[3]);
  AA_AS_OUT(uint2, p)[four] = w;
}
// Numbers that are no NaNs, to nearest even in the upper half of a word.
AA_FN aa_u32 aa_upper_bf16(float v) {
  const aa_u32 u = aa_bits(v);
  return u + 0x7fffu + ((u >> 16) & 1u);
}
AA_FN void aa_store_numbers_bf16(AA_OUT(aa_u16) p, aa_i64 four, aa_four v) {
  uint2 w;
  w.x = aa_upper_bf16(v.v[0]) >> 16 | (aa_upper_bf16(v.v[1]) & 0xffff0000u);
  w.y = aa_upper_bf16(v.v[2]) >> 16 | (aa_upper_bf16(v.v[3]) & 0xffff0000u);
  AA_AS_OUT(uint2, p)[four] = w;
}
AA_FN aa_four aa_four_of_f16(uint2 w) {
  aa_four r;
  r.v[0] = aa_f16_value((aa_u16)(w.x & 0xffffu));
  r.v[1] = aa_f16_value((aa_u16)(w.x >> 16));
  r.v[2] = aa_f16_value((aa_u16)(w.y & 0xffffu));
  r.v[3] = aa_f16_value((aa_u16)(w.y >> 16));
  return r;
}
AA_FN void aa_store_four_f16(AA_OUT(aa_u16) p, aa_i64 four, aa_four v) {
  uint2 w;
  w.x = (aa_u32)aa_f16_bits(v.v[0]) | (aa_u32)aa_f16_bits(v.v[1]) << 16;
  w.y = (aa_u32)aa_f16_bits(v.v[2]) | (aa_u32)aa_f16_bits(v.v[3]) << 16;
  AA_AS_OUT(uint2, p)[four] = w;
}
#else
#define AA_EACH_FOUR(type)                                                                      \
  typedef aa_four AA_CAT(aa_raw_four_, type);                                                   \
  AA_FN aa_four AA_CAT(aa_four_of_, type)(aa_four four) { return four; }                        \
  AA_FN aa_four AA_CAT(aa_load_four_, type)(AA_IN(AA_STORAGE(type)) p, aa_i64 four) {           \
    aa_four r;                                                                                  \
    for (aa_i32 j = 0; j < 4; ++j) r.v[j] = AA_LOAD(type, p, 4 * four + j);                     \
    return r;                                                                                   \
  }                                                                                             \
  AA_FN void AA_CAT(aa_store_four_, type)(AA_OUT(AA_STORAGE(type)) p, aa_i64 four, aa_four v) { \
    for (aa_i32 j = 0; j < 4; ++j) AA_STORE(type, p, 4 * four + j, v.v[j]);                     \
  }
AA_EACH_FOUR(f32)
AA_EACH_FOUR(bf16)
AA_EACH_FOUR(f16)
#define aa_store_numbers_bf16 aa_store_four_bf16
#endif
#define aa_store_numbers_f32 aa_store_four_f32
#define aa_store_numbers_f16 aa_store_four_f16

// Elements 4 * four and following of an array of an element type chosen when compiling; their floats.
#define AA_RAW_FOUR(type) AA_CAT(aa_raw_four_, type)
#define AA_FOUR_OF(type, raw) AA_CAT(aa_four_of_, type)(raw)
#define AA_LOAD_FOUR(type, p, four) AA_CAT(aa_load_four_, type)(AA_AS_IN(AA_STORAGE(type), p), four)
#define AA_STORE_FOUR(type, p, four, v) AA_CAT(aa_store_four_, type)(AA_AS_OUT(AA_STORAGE(type), p), four, v)
// The same for numbers of which none is a NaN.
#define AA_STORE_NUMBERS(type, p, four, v) AA_CAT(aa_store_numbers_, type)(AA_AS_OUT(AA_STORAGE(type), p), four, v)

#endif  // ANYACCEL_KERNELS_FOURS_H_
