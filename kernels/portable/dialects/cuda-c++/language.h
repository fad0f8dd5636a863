// The dialect in CUDA C++ (NVRTC, nvcc), and in HIP, which is taken for it where it is the same; see ../../dialect.h.
#if defined(__HIP__) || defined(__HIPCC_RTC__)
#define AA_IS_HIP 1
#else
#define AA_IS_HIP 0
#endif

typedef signed char aa_i8;
typedef unsigned char aa_u8;
typedef short aa_i16;
typedef unsigned short aa_u16;
typedef int aa_i32;
typedef unsigned int aa_u32;
typedef long long aa_i64;
typedef unsigned long long aa_u64;

#define AA_FN static __device__ __forceinline__
#define AA_KERNEL(name, group) extern "C" __global__ void __launch_bounds__(group) name
#define AA_REGISTER(name, group)
#define AA_IN(type) const type*
#define AA_OUT(type) type*
#define AA_VALUE(type) type
#define AA_AS_IN(type, pointer) ((const type*)(pointer))
#define AA_AS_OUT(type, pointer) ((type*)(pointer))
#define AA_RESTRICT __restrict__
#define AA_LOCAL
#define AA_PRIVATE
#define AA_LOCAL_ARRAY(type, name, count) __shared__ type name[count]
#define AA_GROUP_ID(dimension) ((aa_i64)((dimension) == 0 ? blockIdx.x : (dimension) == 1 ? blockIdx.y : blockIdx.z))
#define AA_GROUP_COUNT(dimension) ((aa_i64)((dimension) == 0 ? gridDim.x : (dimension) == 1 ? gridDim.y : gridDim.z))
#define AA_LOCAL_ID ((aa_i32)threadIdx.x)
#define AA_BARRIER() __syncthreads()
#define AA_PRAGMA_UNROLL _Pragma("unroll")
#define AA_PRAGMA_NO_UNROLL _Pragma("unroll 1")

#define aa_bits(x) __float_as_uint(x)
#define aa_float(u) __uint_as_float(u)
#define aa_isnan(x) ((x) != (x))
#define aa_exp(x) expf(x)
#define aa_log(x) logf(x)
#define aa_sqrt(x) sqrtf(x)
#define aa_tanh(x) tanhf(x)
#define aa_erf(x) erff(x)
#define aa_sin(x) sinf(x)
#define aa_cos(x) cosf(x)
#define aa_fabs(x) fabsf(x)
#define aa_floor(x) floorf(x)
#define aa_rint(x) rintf(x)
#define aa_fma(a, b, c) fmaf(a, b, c)
#define aa_fmin(a, b) fminf(a, b)
#define aa_fmax(a, b) fmaxf(a, b)
#define aa_ldexp(x, n) ldexpf(x, n)
#define aa_mulhi(a, b) __umulhi(a, b)
#define aa_atomic_add_local(pointer, value) atomicAdd(pointer, value)
#define AA_HAS_RN
#if AA_IS_HIP
// HIP's own functions of CUDA's names are plain operators, which clang fuses.
#define AA_ROUNDED(type, name, operation)   \
  AA_FN type name(type a, type b) {         \
    _Pragma("clang fp contract(off)")       \
    return a operation b;                   \
  }
AA_ROUNDED(float, aa_mul_rn, *)
AA_ROUNDED(float, aa_add_rn, +)
#else
// Products of floats take and give denormal numbers (NVRTC is not asked to flush them).
#define AA_HAS_DENORMALS
#define aa_mul_rn(a, b) __fmul_rn(a, b)
#define aa_add_rn(a, b) __fadd_rn(a, b)
#endif
#if AA_HAS_F64
#define aa_log_f64(x) log(x)
#define aa_sqrt_f64(x) sqrt(x)
#define aa_sin_f64(x) sin(x)
#define aa_cos_f64(x) cos(x)
#define aa_bits_f64(x) ((aa_u64)__double_as_longlong(x))
#if AA_IS_HIP
AA_ROUNDED(double, aa_mul_rn_f64, *)
AA_ROUNDED(double, aa_add_rn_f64, +)
#else
#define aa_mul_rn_f64(a, b) __dmul_rn(a, b)
#define aa_add_rn_f64(a, b) __dadd_rn(a, b)
#endif
#endif

// See ../../fours.h.
#define AA_HAS_FOURS
#if AA_IS_HIP
AA_FN float aa_f16_value(aa_u16 bits) {
  _Float16 v;
  __builtin_memcpy(&v, &bits, sizeof(v));
  return (float)v;
}
AA_FN aa_u16 aa_f16_bits(float v) {
  const _Float16 rounded = (_Float16)v;
  aa_u16 bits;
  __builtin_memcpy(&bits, &rounded, sizeof(bits));
  return bits;
}
#else
AA_FN float aa_f16_value(aa_u16 bits) {
  float v;
  asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(bits));
  return v;
}
AA_FN aa_u16 aa_f16_bits(float v) {
  aa_u16 bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(v));
  return bits;
}
#endif
AA_FN float aa_load_f16(AA_IN(aa_u16) p, aa_i64 i) { return aa_f16_value(p[i]); }
AA_FN void aa_store_f16(AA_OUT(aa_u16) p, aa_i64 i, float v) { p[i] = aa_f16_bits(v); }

#if AA_SUBGROUP
#if AA_IS_HIP  // a wave moves as one: there is no mask
#define AA_SHUFFLE_XOR(v, distance) __shfl_xor(v, distance)
#else
#define AA_SHUFFLE_XOR(v, distance) __shfl_xor_sync(0xffffffffu, v, distance)
#endif
// AA_SUBGROUP may be a part of a warp: its lanes are aligned neighbours.
#define AA_SHUFFLE_REDUCE(name, combine)                                       \
  AA_FN float name(float v) {                                                  \
    for (int d = AA_SUBGROUP / 2; d > 0; d /= 2) {                             \
      const float other = AA_SHUFFLE_XOR(v, d);                                \
      v = combine;                                                             \
    }                                                                          \
    return v;                                                                  \
  }
AA_SHUFFLE_REDUCE(aa_subgroup_sum, v + other)
AA_SHUFFLE_REDUCE(aa_subgroup_max, fmaxf(v, other))
#endif
