// The dialect in Metal's shading language, 2.4 and later; see ../../dialect.h.
//
// A kernel is told its ids by parameters, and takes values by reference to constant memory. So AA_KERNEL ends with the name of a
// macro, which takes the parameter list that follows and adds the ids to it. Buffers are numbered in the order of the parameters.
#include <metal_stdlib>

// A product and a sum are rounded on their own unless aa_fma says otherwise. (Newer compilers fuse them in "safe" mode too.)
#pragma METAL fp contract(off)

typedef char aa_i8;
typedef uchar aa_u8;
typedef short aa_i16;
typedef ushort aa_u16;
typedef int aa_i32;
typedef uint aa_u32;
typedef long aa_i64;
typedef ulong aa_u64;

// A kernel has 31 buffers at most.
#define AA_FEW_ARGUMENTS

#define AA_FN static inline __attribute__((always_inline))
#define AA_KERNEL(name, group) [[max_total_threads_per_threadgroup(group)]] kernel void name AA_WITH_IDS
#define AA_WITH_IDS(...)                                                                                \
  (__VA_ARGS__, uint3 aa_group_id [[threadgroup_position_in_grid]],                                     \
   uint3 aa_group_count [[threadgroups_per_grid]], uint aa_local_id [[thread_index_in_threadgroup]])
#define AA_REGISTER(name, group)
#define AA_IN(type) device const type*
#define AA_OUT(type) device type*
#define AA_VALUE(type) constant type&
#define AA_AS_IN(type, pointer) ((device const type*)(pointer))
#define AA_AS_OUT(type, pointer) ((device type*)(pointer))
#define AA_RESTRICT
#define AA_LOCAL threadgroup
#define AA_PRIVATE thread
#define AA_LOCAL_ARRAY(type, name, count) threadgroup type name[count]
#define AA_GROUP_ID(dimension) ((aa_i64)aa_group_id[dimension])
#define AA_GROUP_COUNT(dimension) ((aa_i64)aa_group_count[dimension])
#define AA_LOCAL_ID ((aa_i32)aa_local_id)
#define AA_BARRIER() metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup)
#define AA_PRAGMA_UNROLL _Pragma("unroll")
#define AA_PRAGMA_NO_UNROLL _Pragma("unroll 1")

#define aa_bits(x) metal::as_type<aa_u32>((float)(x))
#define aa_float(u) metal::as_type<float>((aa_u32)(u))
#define aa_isnan(x) metal::isnan((float)(x))
#define aa_exp(x) metal::precise::exp((float)(x))
#define aa_log(x) metal::precise::log((float)(x))
#define aa_sqrt(x) metal::precise::sqrt((float)(x))
#define aa_tanh(x) metal::precise::tanh((float)(x))
#define aa_sin(x) metal::precise::sin((float)(x))
#define aa_cos(x) metal::precise::cos((float)(x))
#define aa_fabs(x) metal::fabs((float)(x))
#define aa_floor(x) metal::floor((float)(x))
#define aa_rint(x) metal::rint((float)(x))
#define aa_fma(a, b, c) metal::fma((float)(a), (float)(b), (float)(c))
#define aa_fmin(a, b) metal::precise::fmin((float)(a), (float)(b))
#define aa_fmax(a, b) metal::precise::fmax((float)(a), (float)(b))
#define aa_ldexp(x, n) metal::ldexp((float)(x), (int)(n))
#define aa_mulhi(a, b) metal::mulhi((aa_u32)(a), (aa_u32)(b))

AA_FN aa_u32 aa_atomic_add_local(AA_LOCAL aa_u32* pointer, aa_u32 value) {
  return metal::atomic_fetch_add_explicit((AA_LOCAL metal::atomic_uint*)pointer, value, metal::memory_order_relaxed);
}

// Metal has no erf. Below 1 an odd polynomial, up to 4 one minus the exponential of a polynomial, fitted at Chebyshev nodes;
// the largest relative error of all floats is 1.8e-7. Beyond 4 the nearest float is 1.
AA_FN float aa_erf(float x) {
  const float a = aa_fabs(x);
  if (a >= 4.0f) return x < 0.0f ? -1.0f : 1.0f;
  if (a >= 1.0f) {
    float e = 1.6140494381033932e-06f;
    e = aa_fma(e, a, -4.559039371088147e-05f);
    e = aa_fma(e, a, 0.0005927677266299725f);
    e = aa_fma(e, a, -0.004740214440971613f);
    e = aa_fma(e, a, 0.026364697143435478f);
    e = aa_fma(e, a, -0.10997821390628815f);
    e = aa_fma(e, a, -0.6319371461868286f);
    e = aa_fma(e, a, -1.1301666498184204f);
    e = aa_fma(e, a, 0.0003032090899068862f);
    const float r = 1.0f - aa_exp(e);
    return x < 0.0f ? -r : r;
  }
  const float s = x * x;
  float p = 7.882500358391553e-05f;
  p = aa_fma(p, s, -0.0008018859080038965f);
  p = aa_fma(p, s, 0.005189312621951103f);
  p = aa_fma(p, s, -0.02685432881116867f);
  p = aa_fma(p, s, 0.11283597350120544f);
  p = aa_fma(p, s, -0.3761262595653534f);
  p = aa_fma(p, s, 1.1283791065216064f);
  return x * p;
}

// See ../../fours.h.
#define AA_HAS_FOURS
AA_FN float aa_f16_value(aa_u16 bits) { return (float)metal::as_type<half>(bits); }
AA_FN aa_u16 aa_f16_bits(float v) { return metal::as_type<aa_u16>((half)v); }
AA_FN float aa_load_f16(AA_IN(aa_u16) p, aa_i64 i) { return aa_f16_value(p[i]); }
AA_FN void aa_store_f16(AA_OUT(aa_u16) p, aa_i64 i, float v) { p[i] = aa_f16_bits(v); }

#if AA_SUBGROUP
// AA_SUBGROUP may be a part of a simdgroup: its lanes are aligned neighbours.
#define AA_SHUFFLE_REDUCE(name, combine)                                        \
  AA_FN float name(float v) {                                                   \
    for (ushort d = AA_SUBGROUP / 2; d > 0; d /= 2) {                           \
      const float other = metal::simd_shuffle_xor(v, d);                        \
      v = combine;                                                              \
    }                                                                           \
    return v;                                                                   \
  }
AA_SHUFFLE_REDUCE(aa_subgroup_sum, v + other)
AA_SHUFFLE_REDUCE(aa_subgroup_max, aa_fmax(v, other))
#endif
