// The dialect of the portable kernels: C that compiles unchanged as OpenCL C 1.2, as CUDA C++ (NVRTC, nvcc; HIP is taken for
// it where it is the same) and as host C++ (in the simulator). Every kernel of this folder includes this file first and uses
// nothing of a language beyond it, so that another language (Metal) is one more section here and nothing else.
//
// A kernel:
//
//   AA_KERNEL(scale, AA_ITEMS)(AA_OUT(float) y, AA_IN(float) x, float factor, aa_i64 count) {
//     const aa_i64 i = AA_ITEM_ID;
//     if (i < count) y[i] = x[i] * factor;
//   }
//   AA_REGISTER(scale, AA_ITEMS)
//
// Rules, which keep a kernel within every language:
//  - Groups are one-dimensional, of the size in AA_KERNEL, a compile-time constant; grids have three dimensions.
//  - Arguments are pointers to global memory (AA_IN, AA_OUT), 4- and 8-byte numbers, and structs of arguments.h, by value.
//    No pointers in memory. Absent tensors are null pointers.
//  - Pointers are used as p[i], p + i, and with the aa_load/aa_store functions; another element type by AA_AS_IN and
//    AA_AS_OUT. In the simulator they are objects that check and record every access.
//  - Local arrays (AA_LOCAL_ARRAY) and ids (AA_GROUP_ID, AA_LOCAL_ID) stand in kernels only; functions take them as
//    arguments. Every item of a group reaches every AA_BARRIER and every aa_lanes_* and aa_group_* function.
//  - No recursion, no function pointers, no 64-bit floats unless AA_HAS_F64.
//
// Settings, given as options to the compiler (see aa_kernel_tuning in anyaccel/abi/compiler.h, from which they come):
//   AA_GROUP_SIZE    items that work together on a row; 1: one item a row, no barriers
//   AA_LANES         items that share one row of a matrix product, 1 .. AA_GROUP_SIZE
//   AA_SUBGROUP      width of sub-groups, equal to AA_LANES; 0: reductions go through local memory
//   AA_ITEMS         items of a group in kernels whose items work alone
//   AA_LOCAL_BYTES   local memory worth using for tiles; 0: keep tiles in registers
//   AA_HAS_F16, AA_HAS_F64   0 or 1: arithmetic on these
//   AA_X, AA_W       for kernels in several element types: f32, bf16 or f16 (activations; weights or cache)
// From them follows AA_WIDE, the floats of an aa_wide: a vector register of a processor that runs one item a row, two loads
// of 16 bytes elsewhere.
#ifndef ANYACCEL_KERNELS_DIALECT_H_
#define ANYACCEL_KERNELS_DIALECT_H_

#if !defined(AA_GROUP_SIZE) || !defined(AA_LANES) || !defined(AA_SUBGROUP) || !defined(AA_ITEMS) || \
    !defined(AA_LOCAL_BYTES) || !defined(AA_HAS_F16) || !defined(AA_HAS_F64)
#error "a setting of kernels/portable/dialect.h is missing; see the list at its head"
#endif
#if AA_LANES > AA_GROUP_SIZE || (AA_SUBGROUP != 0 && AA_SUBGROUP != AA_LANES)
#error "AA_LANES must be at most AA_GROUP_SIZE, and equal to AA_SUBGROUP where there are sub-groups"
#endif

#define AA_CAT_(a, b) a##b
#define AA_CAT(a, b) AA_CAT_(a, b)
#if AA_GROUP_SIZE == 1
#define AA_WIDE 16
#else
#define AA_WIDE 8
#endif

// ---- one section a language --------------------------------------------------------------------------------------------

#if defined(AA_HOST_KERNELS)
// Host C++: the header that AA_HOST_KERNELS names defines everything that the sections below do.
#include AA_HOST_KERNELS

#elif defined(__OPENCL_C_VERSION__) || defined(__OPENCL_VERSION__)

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
#define AA_AS_IN(type, pointer) ((__global const type*)(pointer))
#define AA_AS_OUT(type, pointer) ((__global type*)(pointer))
#define AA_RESTRICT restrict
#define AA_LOCAL __local
#define AA_LOCAL_ARRAY(type, name, count) __local type name[count]
#define AA_GROUP_ID(dimension) ((aa_i64)get_group_id(dimension))
#define AA_GROUP_COUNT(dimension) ((aa_i64)get_num_groups(dimension))
#define AA_LOCAL_ID ((aa_i32)get_local_id(0))
#define AA_BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
#define AA_PRAGMA_UNROLL _Pragma("unroll")

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

#if AA_SUBGROUP
#define aa_subgroup_sum(v) sub_group_reduce_add(v)
#define aa_subgroup_max(v) sub_group_reduce_max(v)
#endif

#elif defined(__CUDACC__) || defined(__CUDACC_RTC__) || defined(__HIP__) || defined(__HIPCC_RTC__)
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
#define AA_AS_IN(type, pointer) ((const type*)(pointer))
#define AA_AS_OUT(type, pointer) ((type*)(pointer))
#define AA_RESTRICT __restrict__
#define AA_LOCAL
#define AA_LOCAL_ARRAY(type, name, count) __shared__ type name[count]
#define AA_GROUP_ID(dimension) ((aa_i64)((dimension) == 0 ? blockIdx.x : (dimension) == 1 ? blockIdx.y : blockIdx.z))
#define AA_GROUP_COUNT(dimension) ((aa_i64)((dimension) == 0 ? gridDim.x : (dimension) == 1 ? gridDim.y : gridDim.z))
#define AA_LOCAL_ID ((aa_i32)threadIdx.x)
#define AA_BARRIER() __syncthreads()
#define AA_PRAGMA_UNROLL _Pragma("unroll")

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

#if AA_IS_HIP
AA_FN float aa_load_f16(AA_IN(aa_u16) p, aa_i64 i) {
  const aa_u16 bits = p[i];
  _Float16 v;
  __builtin_memcpy(&v, &bits, sizeof(v));
  return (float)v;
}
AA_FN void aa_store_f16(AA_OUT(aa_u16) p, aa_i64 i, float v) {
  const _Float16 rounded = (_Float16)v;
  aa_u16 bits;
  __builtin_memcpy(&bits, &rounded, sizeof(bits));
  p[i] = bits;
}
#else
AA_FN float aa_load_f16(AA_IN(aa_u16) p, aa_i64 i) {
  float v;
  asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(p[i]));
  return v;
}
AA_FN void aa_store_f16(AA_OUT(aa_u16) p, aa_i64 i, float v) {
  aa_u16 bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(v));
  p[i] = bits;
}
#endif

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

#else
#error "kernels/portable/dialect.h has no section for this language"
#endif

// ---- the same in every language ----------------------------------------------------------------------------------------

#define AA_ITEM_ID (AA_GROUP_ID(0) * AA_ITEMS + AA_LOCAL_ID)

// The name of a kernel that is compiled for several element types: AA_NAME_XW(gemv) is gemv_f32_bf16 with AA_X f32 and
// AA_W bf16.
#define AA_NAME_X(base) AA_CAT(base, AA_CAT(_, AA_X))
#define AA_NAME_XW(base) AA_CAT(AA_NAME_X(base), AA_CAT(_, AA_W))

// Element types chosen when compiling: AA_STORAGE(AA_W), AA_LOAD(AA_W, p, i), AA_STORE(AA_X, p, i, v).
typedef float aa_storage_f32;
typedef aa_u16 aa_storage_bf16;
typedef aa_u16 aa_storage_f16;
#define AA_STORAGE(type) AA_CAT(aa_storage_, type)
#define AA_LOAD(type, p, i) AA_CAT(aa_load_, type)(p, i)
#define AA_STORE(type, p, i, v) AA_CAT(aa_store_, type)(p, i, v)

// A product and a sum that are rounded on their own: never fused with what is done to the result. (A host compiler is told
// not to fuse.)
#ifndef AA_HAS_RN
#define aa_mul_rn(a, b) ((a) * (b))
#define aa_add_rn(a, b) ((a) + (b))
#if AA_HAS_F64
#define aa_mul_rn_f64(a, b) ((a) * (b))
#define aa_add_rn_f64(a, b) ((a) + (b))
#endif
#endif

AA_FN float aa_from_bf16(aa_u16 bits) { return aa_float((aa_u32)bits << 16); }
// To nearest even; a NaN stays one.
AA_FN aa_u16 aa_to_bf16(float v) {
  const aa_u32 u = aa_bits(v);
  if ((u & 0x7fffffffu) > 0x7f800000u) return (aa_u16)((u >> 16) | 0x40u);
  return (aa_u16)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
AA_FN float aa_load_f32(AA_IN(float) p, aa_i64 i) { return p[i]; }
AA_FN void aa_store_f32(AA_OUT(float) p, aa_i64 i, float v) { p[i] = v; }
AA_FN float aa_load_bf16(AA_IN(aa_u16) p, aa_i64 i) { return aa_from_bf16(p[i]); }
AA_FN void aa_store_bf16(AA_OUT(aa_u16) p, aa_i64 i, float v) { p[i] = aa_to_bf16(v); }

// AA_WIDE neighbouring elements at once, for the inner loops of products. Loads need no more alignment than an element.
#ifndef AA_HAS_WIDE
typedef struct aa_wide {
  float v[AA_WIDE];
} aa_wide;
AA_FN aa_wide aa_wide_all(float value) {
  aa_wide r;
  AA_PRAGMA_UNROLL for (int i = 0; i < AA_WIDE; ++i) r.v[i] = value;
  return r;
}
// a * b + c
AA_FN aa_wide aa_wide_fma(aa_wide a, aa_wide b, aa_wide c) {
  AA_PRAGMA_UNROLL for (int i = 0; i < AA_WIDE; ++i) c.v[i] = aa_fma(a.v[i], b.v[i], c.v[i]);
  return c;
}
AA_FN float aa_wide_sum(aa_wide a) {
  float sum = 0;
  AA_PRAGMA_UNROLL for (int i = 0; i < AA_WIDE; ++i) sum += a.v[i];
  return sum;
}
#define aa_wide_get(a, i) ((a).v[i])
// c + the sum of a * b
AA_FN float aa_wide_dot(aa_wide a, aa_wide b, float c) {
  AA_PRAGMA_UNROLL for (int i = 0; i < AA_WIDE; ++i) c = aa_fma(a.v[i], b.v[i], c);
  return c;
}
#define AA_WIDE_LOAD(type)                                                                        \
  AA_FN aa_wide AA_CAT(aa_wide_load_, type)(AA_IN(AA_STORAGE(type)) p, aa_i64 i) {                \
    aa_wide r;                                                                                    \
    AA_PRAGMA_UNROLL for (int j = 0; j < AA_WIDE; ++j) r.v[j] = AA_LOAD(type, p, i + j);          \
    return r;                                                                                     \
  }
AA_WIDE_LOAD(f32)
AA_WIDE_LOAD(bf16)
AA_WIDE_LOAD(f16)
#endif
#define AA_LOAD_WIDE(type, p, i) AA_CAT(aa_wide_load_, type)(p, i)

// Element types chosen when running: the values of aa_dtype.
#define AA_F16 7
#define AA_BF16 8
#define AA_F32 9
AA_FN float aa_load(AA_IN(void) p, aa_i32 dtype, aa_i64 i) {
  if (dtype == AA_F32) return aa_load_f32(AA_AS_IN(float, p), i);
  if (dtype == AA_BF16) return aa_load_bf16(AA_AS_IN(aa_u16, p), i);
  return aa_load_f16(AA_AS_IN(aa_u16, p), i);
}
AA_FN void aa_store(AA_OUT(void) p, aa_i32 dtype, aa_i64 i, float v) {
  if (dtype == AA_F32) {
    aa_store_f32(AA_AS_OUT(float, p), i, v);
  } else if (dtype == AA_BF16) {
    aa_store_bf16(AA_AS_OUT(aa_u16, p), i, v);
  } else {
    aa_store_f16(AA_AS_OUT(aa_u16, p), i, v);
  }
}

// Reductions over the AA_LANES neighbours that share a row (aa_lanes_*) and over the whole group of AA_GROUP_SIZE items
// (aa_group_*). Every item gets the result. `id` is AA_LOCAL_ID, `scratch` an array made by AA_SCRATCH in the kernel, free
// again when the function returns. aa_group_* may be called from kernels of AA_GROUP_SIZE items only, aa_lanes_* from those
// of AA_GROUP_SIZE items.
#if AA_GROUP_SIZE > 1
#define AA_SCRATCH(name) AA_LOCAL_ARRAY(float, name, AA_GROUP_SIZE)
#define AA_REDUCE_LOCAL(name, width, combine)                                              \
  AA_FN float name(float v, AA_LOCAL float* scratch, aa_i32 id) {                          \
    scratch[id] = v;                                                                       \
    AA_BARRIER();                                                                          \
    for (aa_i32 d = (width) / 2; d > 0; d /= 2) {                                          \
      const float a = scratch[id];                                                         \
      const float b = scratch[id ^ d];                                                     \
      AA_BARRIER();                                                                        \
      scratch[id] = combine;                                                               \
      AA_BARRIER();                                                                        \
    }                                                                                      \
    const float result = scratch[id];                                                      \
    AA_BARRIER();                                                                          \
    return result;                                                                         \
  }
#else
#define AA_SCRATCH(name)
#endif

#if AA_LANES == 1
#define aa_lanes_sum(v, scratch, id) (v)
#elif AA_SUBGROUP
#define aa_lanes_sum(v, scratch, id) aa_subgroup_sum(v)
#else
AA_REDUCE_LOCAL(aa_lanes_sum, AA_LANES, a + b)
#endif

#if AA_GROUP_SIZE == 1
#define aa_group_sum(v, scratch, id) (v)
#define aa_group_max(v, scratch, id) (v)
#elif AA_SUBGROUP
#define AA_REDUCE_SUBGROUPS(name, inner, combine)                 \
  AA_FN float name(float v, AA_LOCAL float* scratch, aa_i32 id) { \
    v = inner(v);                                                 \
    if (id % AA_SUBGROUP == 0) scratch[id / AA_SUBGROUP] = v;     \
    AA_BARRIER();                                                 \
    float a = scratch[0];                                         \
    for (aa_i32 s = 1; s < AA_GROUP_SIZE / AA_SUBGROUP; ++s) {    \
      const float b = scratch[s];                                 \
      a = combine;                                                \
    }                                                             \
    AA_BARRIER();                                                 \
    return a;                                                     \
  }
AA_REDUCE_SUBGROUPS(aa_group_sum, aa_subgroup_sum, a + b)
AA_REDUCE_SUBGROUPS(aa_group_max, aa_subgroup_max, aa_fmax(a, b))
#else
AA_REDUCE_LOCAL(aa_group_sum, AA_GROUP_SIZE, a + b)
AA_REDUCE_LOCAL(aa_group_max, AA_GROUP_SIZE, aa_fmax(a, b))
#endif

#endif  // ANYACCEL_KERNELS_DIALECT_H_
