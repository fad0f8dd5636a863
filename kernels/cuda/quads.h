// Single elements, and four neighbouring ones, of an element type chosen when running. Include after dialect.h, arguments.h and
// warp.h.
#ifndef ANYACCEL_KERNELS_QUADS_H_
#define ANYACCEL_KERNELS_QUADS_H_

struct alignas(16) aa_quad {
  float v[4];
};

AA_FN aa_quad aa_quad_of_f32(aa_u32x4 v, aa_i32) {
  return {{aa_float(v.x), aa_float(v.y), aa_float(v.z), aa_float(v.w)}};
}
AA_FN aa_quad aa_quad_of_bf16(aa_u32x4 v, aa_i32 quad) {
  const aa_u32 a = quad ? v.z : v.x;
  const aa_u32 b = quad ? v.w : v.y;
  return {{aa_float(a << 16), aa_float(a & 0xffff0000u), aa_float(b << 16), aa_float(b & 0xffff0000u)}};
}
AA_FN aa_quad aa_quad_of_f16(aa_u32x4 v, aa_i32 quad) {
  const aa_u32 a = quad ? v.z : v.x;
  const aa_u32 b = quad ? v.w : v.y;
  return {{aa_unpack_f16((aa_u16)a), aa_unpack_f16((aa_u16)(a >> 16)), aa_unpack_f16((aa_u16)b),
           aa_unpack_f16((aa_u16)(b >> 16))}};
}

// A value of a type known when running, in two steps: nothing waits for the load before its number is needed.
AA_FN aa_u32 aa_load_raw(AA_IN(void) p, aa_i32 dtype, aa_i64 i) {
  if (dtype == AA_F32) return AA_AS_IN(aa_u32, p)[i];
  return AA_AS_IN(aa_u16, p)[i];
}
AA_FN float aa_raw_value(aa_u32 raw, aa_i32 dtype) {
  if (dtype == AA_F32) return aa_float(raw);
  return dtype == AA_BF16 ? aa_from_bf16((aa_u16)raw) : aa_unpack_f16((aa_u16)raw);
}
AA_FN void aa_store_value(AA_OUT(void) p, aa_i32 dtype, aa_i64 i, float v) {
  if (dtype == AA_F32) {
    AA_AS_OUT(float, p)[i] = v;
  } else {
    const aa_u32 f16 = aa_pack_f16(v, v);
    const aa_u32 bf16 = aa_pack_bf16(v, v);
    AA_AS_OUT(aa_u16, p)[i] = (aa_u16)(dtype == AA_BF16 ? bf16 : f16);
  }
}

// Four neighbours of a type known when running, as they lie in memory: aligned to 16 bytes (F32) or 8.
AA_FN aa_u32x4 aa_load_quad(AA_IN(aa_u8) p, aa_i32 dtype, aa_i32 quad) {
  if (dtype == AA_F32) return aa_load16(p, (aa_i64)quad * 16);
  const aa_u64 bits = AA_AS_IN(aa_u64, p)[quad];
  return {(aa_u32)bits, (aa_u32)(bits >> 32), 0, 0};
}
AA_FN aa_quad aa_quad_value(aa_u32x4 v, aa_i32 dtype) {
  if (dtype == AA_F32) return aa_quad_of_f32(v, 0);
  const aa_quad bf16 = aa_quad_of_bf16(v, 0);
  const aa_quad f16 = aa_quad_of_f16(v, 0);
  aa_quad value;
  AA_PRAGMA_UNROLL for (int e = 0; e < 4; ++e) value.v[e] = dtype == AA_BF16 ? bf16.v[e] : f16.v[e];
  return value;
}

#endif  // ANYACCEL_KERNELS_QUADS_H_
