// The dialect in OpenCL C 1.2; see ../../dialect.h.
#if AA_HAS_F16
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#endif
#if AA_HAS_F64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
#if AA_SUBGROUP
#ifdef cl_khr_subgroups
#pragma OPENCL EXTENSION cl_khr_subgroups : enable
#endif
#endif

typedef char aa_i8;
typedef uchar aa_u8;
typedef short aa_i16;
typedef ushort aa_u16;
typedef int aa_i32;
typedef uint aa_u32;
typedef long aa_i64;
typedef ulong aa_u64;

#define AA_FN static inline __attribute__((always_inline))
#if AA_SUBGROUP && defined(cl_intel_required_subgroup_size)
#define AA_SUBGROUP_WIDTH __attribute__((intel_reqd_sub_group_size(AA_SUBGROUP)))
#else
#define AA_SUBGROUP_WIDTH
#endif
#define AA_KERNEL(name, group) \
  __kernel __attribute__((reqd_work_group_size(group, 1, 1))) AA_SUBGROUP_WIDTH void name
#define AA_REGISTER(name, group)
#define AA_IN(type) __global const type*
#define AA_OUT(type) __global type*
#define AA_VALUE(type) type
#define AA_AS_IN(type, pointer) ((__global const type*)(pointer))
#define AA_AS_OUT(type, pointer) ((__global type*)(pointer))
#define AA_RESTRICT restrict
#define AA_LOCAL __local
#define AA_PRIVATE __private
#define AA_LOCAL_ARRAY(type, name, count) __local type name[count]
#define AA_GROUP_ID(dimension) ((aa_i64)get_group_id(dimension))
#define AA_GROUP_COUNT(dimension) ((aa_i64)get_num_groups(dimension))
#define AA_LOCAL_ID ((aa_i32)get_local_id(0))
#define AA_BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
#define AA_PRAGMA_UNROLL _Pragma("unroll")
#define AA_PRAGMA_NO_UNROLL _Pragma("unroll 1")

#define aa_bits(x) as_uint((float)(x))
#define aa_float(u) as_float((aa_u32)(u))
#define aa_isnan(x) isnan((float)(x))
#define aa_exp(x) exp((float)(x))
#define aa_log(x) log((float)(x))
#define aa_sqrt(x) sqrt((float)(x))
#define aa_tanh(x) tanh((float)(x))
#define aa_erf(x) erf((float)(x))
#define aa_sin(x) sin((float)(x))
#define aa_cos(x) cos((float)(x))
#define aa_fabs(x) fabs((float)(x))
#define aa_floor(x) floor((float)(x))
#define aa_rint(x) rint((float)(x))
#define aa_fma(a, b, c) fma((float)(a), (float)(b), (float)(c))
#define aa_fmin(a, b) fmin((float)(a), (float)(b))
#define aa_fmax(a, b) fmax((float)(a), (float)(b))
#define aa_ldexp(x, n) ldexp((float)(x), (int)(n))
#define aa_mulhi(a, b) mul_hi((aa_u32)(a), (aa_u32)(b))
#define aa_atomic_add_local(pointer, value) atomic_add(pointer, value)
AA_FN float aa_mul_rn(float a, float b) {
#pragma OPENCL FP_CONTRACT OFF
  return a * b;
}
AA_FN float aa_add_rn(float a, float b) {
#pragma OPENCL FP_CONTRACT OFF
  return a + b;
}
#define AA_HAS_RN
#if AA_HAS_F64
#define aa_log_f64(x) log((double)(x))
#define aa_sqrt_f64(x) sqrt((double)(x))
#define aa_sin_f64(x) sin((double)(x))
#define aa_cos_f64(x) cos((double)(x))
#define aa_bits_f64(x) as_ulong((double)(x))
AA_FN double aa_mul_rn_f64(double a, double b) {
#pragma OPENCL FP_CONTRACT OFF
  return a * b;
}
AA_FN double aa_add_rn_f64(double a, double b) {
#pragma OPENCL FP_CONTRACT OFF
  return a + b;
}
#endif

// See ../../fours.h.
#define AA_HAS_FOURS
AA_FN float aa_f16_value(aa_u16 bits) {
#if AA_HAS_F16
  return (float)as_half(bits);
#else
  return vload_half(0, (__private const half*)&bits);
#endif
}
AA_FN aa_u16 aa_f16_bits(float v) {
#if AA_HAS_F16
  return as_ushort((half)v);
#else
  aa_u16 bits;
  vstore_half_rte(v, 0, (__private half*)&bits);
  return bits;
#endif
}
AA_FN float aa_load_f16(AA_IN(aa_u16) p, aa_i64 i) {
#if AA_HAS_F16
  return (float)((__global const half*)p)[i];
#else
  return vload_half(i, (__global const half*)p);
#endif
}
AA_FN void aa_store_f16(AA_OUT(aa_u16) p, aa_i64 i, float v) {
#if AA_HAS_F16
  ((__global half*)p)[i] = (half)v;
#else
  vstore_half_rte(v, i, (__global half*)p);
#endif
}

typedef AA_CAT(float, AA_WIDE) aa_wide;
#define AA_HAS_WIDE
#define AA_WIDE_AS_FLOATS AA_CAT(as_float, AA_WIDE)
#define AA_WIDE_TO_UINTS AA_CAT(convert_uint, AA_WIDE)
#define AA_WIDE_LOAD AA_CAT(vload, AA_WIDE)
#define aa_wide_all(value) ((aa_wide)(value))
#define aa_wide_fma(a, b, c) ((a) * (b) + (c))
#define aa_wide_load_f32(p, i) AA_WIDE_LOAD(0, (p) + (i))
#define aa_wide_load_bf16(p, i) AA_WIDE_AS_FLOATS(AA_WIDE_TO_UINTS(AA_WIDE_LOAD(0, (p) + (i))) << 16)
#define aa_wide_load_f16(p, i) AA_CAT(vload_half, AA_WIDE)(0, (__global const half*)((p) + (i)))
#define aa_wide_load_i8(p, i) AA_CAT(convert_float, AA_WIDE)(AA_WIDE_LOAD(0, (p) + (i)))
#if AA_WIDE == 16
#define AA_NIBBLES vload8
#define AA_NIBBLE_PAIRS uchar8
#else
#define AA_NIBBLES vload4
#define AA_NIBBLE_PAIRS uchar4
#endif
AA_FN aa_wide aa_wide_load_i4(AA_IN(aa_u8) p, aa_i64 i) {
  const AA_NIBBLE_PAIRS pairs = AA_NIBBLES(0, p + i / 2);
  AA_CAT(uchar, AA_WIDE) halves;
  halves.even = pairs & (uchar)15;
  halves.odd = pairs >> (uchar)4;
  return AA_CAT(convert_float, AA_WIDE)(AA_CAT(as_char, AA_WIDE)((halves ^ (uchar)8) - (uchar)8));
}
AA_FN float aa_wide_sum(aa_wide v) {
#if AA_WIDE == 16
  const float8 h = v.lo + v.hi;
#else
  const float8 h = v;
#endif
  const float4 q = h.lo + h.hi;
  const float2 d = q.lo + q.hi;
  return d.x + d.y;
}
#define aa_wide_dot(a, b, c) ((c) + aa_wide_sum((a) * (b)))
#define aa_wide_get(a, i) ((a)[i])

// See ../../ints.h.
typedef AA_CAT(int, AA_WIDE) aa_ints;
#define AA_HAS_WIDE_INTS
#if AA_WIDE == 16
#define AA_INTS_COUNT (aa_ints)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
#else
#define AA_INTS_COUNT (aa_ints)(0, 1, 2, 3, 4, 5, 6, 7)
#endif
#define aa_ints_all(value) ((aa_ints)(value))
#define aa_ints_numbers(first) (AA_INTS_COUNT + (aa_ints)(first))
#define aa_ints_and(a, b) ((a) & (b))
#define aa_ints_or(a, b) ((a) | (b))
#define aa_ints_add(a, b) ((a) + (b))
#define aa_ints_mul(a, b) ((a) * (b))
#define aa_ints_left(a, b) ((a) << (b))
#define aa_ints_right(a, b) ((a) >> (b))
#define aa_ints_choose(test, a, b) ((test) != 0 ? (a) : (b))
#define aa_ints_load_i8(p, i) AA_CAT(convert_int, AA_WIDE)(AA_WIDE_LOAD(0, (p) + (i)))
#define aa_ints_load_u8(p, i) AA_CAT(convert_int, AA_WIDE)(AA_WIDE_LOAD(0, (p) + (i)))
#define aa_ints_load_pairs(p, i) aa_ints_load_u8(p, i)
#define aa_ints_to_wide(a) AA_CAT(convert_float, AA_WIDE)(a)

#if AA_SUBGROUP
#define aa_subgroup_sum(v) sub_group_reduce_add(v)
#define aa_subgroup_max(v) sub_group_reduce_max(v)
#endif
