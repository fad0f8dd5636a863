// Eight neighbouring elements, of an element type chosen when running, in accesses of 16 bytes. Include after dialect.h and
// warp.h.
#ifndef ANYACCEL_KERNELS_VECTORS_H_
#define ANYACCEL_KERNELS_VECTORS_H_

#define AA_VECTOR 8

AA_FN void aa_split_bf16(float* v, aa_u32x4 w) {
  v[0] = aa_float(w.x << 16);
  v[1] = aa_float(w.x & 0xffff0000u);
  v[2] = aa_float(w.y << 16);
  v[3] = aa_float(w.y & 0xffff0000u);
  v[4] = aa_float(w.z << 16);
  v[5] = aa_float(w.z & 0xffff0000u);
  v[6] = aa_float(w.w << 16);
  v[7] = aa_float(w.w & 0xffff0000u);
}
AA_FN void aa_split_f16(float* v, aa_u32x4 w) {
  v[0] = aa_unpack_f16((aa_u16)(w.x & 0xffffu));
  v[1] = aa_unpack_f16((aa_u16)(w.x >> 16));
  v[2] = aa_unpack_f16((aa_u16)(w.y & 0xffffu));
  v[3] = aa_unpack_f16((aa_u16)(w.y >> 16));
  v[4] = aa_unpack_f16((aa_u16)(w.z & 0xffffu));
  v[5] = aa_unpack_f16((aa_u16)(w.z >> 16));
  v[6] = aa_unpack_f16((aa_u16)(w.w & 0xffffu));
  v[7] = aa_unpack_f16((aa_u16)(w.w >> 16));
}
AA_FN void aa_split_f32(float* v, aa_u32x4 w) {
  v[0] = aa_float(w.x);
  v[1] = aa_float(w.y);
  v[2] = aa_float(w.z);
  v[3] = aa_float(w.w);
}

// Elements i .. i + 7; the first of them lies at a multiple of 16 bytes.
AA_FN void aa_load8(float* v, AA_IN(void) p, aa_i32 dtype, aa_i64 i) {
  if (dtype == AA_F32) {
    aa_split_f32(v, aa_load16(p, 4 * i));
    aa_split_f32(v + 4, aa_load16(p, 4 * i + 16));
  } else if (dtype == AA_BF16) {
    aa_split_bf16(v, aa_load16(p, 2 * i));
  } else {
    aa_split_f16(v, aa_load16(p, 2 * i));
  }
}
AA_FN void aa_store8(AA_OUT(void) p, aa_i32 dtype, aa_i64 i, const float* v) {
  if (dtype == AA_F32) {
    const aa_u32x4 low = {aa_bits(v[0]), aa_bits(v[1]), aa_bits(v[2]), aa_bits(v[3])};
    const aa_u32x4 high = {aa_bits(v[4]), aa_bits(v[5]), aa_bits(v[6]), aa_bits(v[7])};
    aa_store16(p, 4 * i, low);
    aa_store16(p, 4 * i + 16, high);
  } else if (dtype == AA_BF16) {
    const aa_u32x4 w = {aa_pack_bf16(v[0], v[1]), aa_pack_bf16(v[2], v[3]), aa_pack_bf16(v[4], v[5]),
                        aa_pack_bf16(v[6], v[7])};
    aa_store16(p, 2 * i, w);
  } else {
    const aa_u32x4 w = {aa_pack_f16(v[0], v[1]), aa_pack_f16(v[2], v[3]), aa_pack_f16(v[4], v[5]),
                        aa_pack_f16(v[6], v[7])};
    aa_store16(p, 2 * i, w);
  }
}
// The value that is read back after v has been stored.
AA_FN void aa_round8(float* v, aa_i32 dtype) {
  if (dtype == AA_F32) return;
  if (dtype == AA_BF16) {
    const aa_u32x4 w = {aa_pack_bf16(v[0], v[1]), aa_pack_bf16(v[2], v[3]), aa_pack_bf16(v[4], v[5]),
                        aa_pack_bf16(v[6], v[7])};
    aa_split_bf16(v, w);
  } else {
    const aa_u32x4 w = {aa_pack_f16(v[0], v[1]), aa_pack_f16(v[2], v[3]), aa_pack_f16(v[4], v[5]),
                        aa_pack_f16(v[6], v[7])};
    aa_split_f16(v, w);
  }
}

#endif  // ANYACCEL_KERNELS_VECTORS_H_
