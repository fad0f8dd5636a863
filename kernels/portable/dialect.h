// The dialect of the portable kernels: C that compiles unchanged in every language that has a header in dialects/ (OpenCL C,
// CUDA C++), in those of drivers that bring one, and as host C++ (in the simulators). Every kernel of this folder includes
// this file first and uses nothing of a language beyond it, so that another language is one more header and nothing else.
// Such a header defines what those in dialects/ define.
//
// A kernel:
//
//   AA_KERNEL(scale, AA_ITEMS)(AA_OUT(float) y, AA_IN(float) x, AA_VALUE(float) factor, AA_VALUE(aa_i64) count) {
//     const aa_i64 i = AA_ITEM_ID;
//     if (i < count) y[i] = x[i] * factor;
//   }
//   AA_REGISTER(scale, AA_ITEMS)
//
// Rules, which keep a kernel within every language:
//  - Groups are one-dimensional, of the size in AA_KERNEL, a compile-time constant; grids have three dimensions.
//  - Arguments are pointers to global memory (AA_IN, AA_OUT), 4- and 8-byte numbers, and structs of arguments.h, by value
//    (AA_VALUE). They are not assigned to. At most 31 of them, or the language's own AA_FEW_ARGUMENTS leaves the kernel out.
//    No pointers in memory. Absent tensors are null pointers, or point to zeros.
//  - Pointers are used as p[i], p + i, and with the aa_load/aa_store functions; another element type by AA_AS_IN and
//    AA_AS_OUT. In the simulator they are objects that check and record every access.
//  - Pointers to an item's own variables are AA_PRIVATE, to local memory AA_LOCAL; a pointer has one of the four.
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
//   AA_BLOCK         for kernels of quantized weights: their format, a name of blocks.h
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

// ---- the language ------------------------------------------------------------------------------------------------------

#if defined(AA_HOST_KERNELS)
// Host C++: the header that AA_HOST_KERNELS names.
#include AA_HOST_KERNELS
#else
// From the folder of the language: dialects/opencl-c, dialects/cuda-c++, or a driver's own (aa_compiler_table::dialect).
#include "language.h"
#endif
// Before a loop that is not to be unrolled; languages without such a word need not define it.
#ifndef AA_PRAGMA_NO_UNROLL
#define AA_PRAGMA_NO_UNROLL
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

// A language whose products of floats are exact for denormal numbers too, wherever it is compiled for, defines
// AA_HAS_DENORMALS.
//
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
AA_FN aa_wide aa_wide_load_i8(AA_IN(aa_i8) p, aa_i64 i) {
  aa_wide r;
  AA_PRAGMA_UNROLL for (int j = 0; j < AA_WIDE; ++j) r.v[j] = (float)p[i + j];
  return r;
}
// Integers of 4 bits, of which each byte has two, the lower half first; i is even.
AA_FN aa_wide aa_wide_load_i4(AA_IN(aa_u8) p, aa_i64 i) {
  aa_wide r;
  AA_PRAGMA_UNROLL for (int j = 0; j < AA_WIDE; j += 2) {
    const aa_i32 byte = p[(i + j) / 2];
    r.v[j] = (float)(((byte & 15) ^ 8) - 8);
    r.v[j + 1] = (float)(((byte >> 4) ^ 8) - 8);
  }
  return r;
}
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
AA_FN aa_wide aa_load_wide(AA_IN(void) p, aa_i32 dtype, aa_i64 i) {
  if (dtype == AA_F32) return AA_LOAD_WIDE(f32, AA_AS_IN(float, p), i);
  if (dtype == AA_BF16) return AA_LOAD_WIDE(bf16, AA_AS_IN(aa_u16, p), i);
  return AA_LOAD_WIDE(f16, AA_AS_IN(aa_u16, p), i);
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
