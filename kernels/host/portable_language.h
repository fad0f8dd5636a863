// The dialect of the portable kernels (kernels/portable/dialect.h) that compiles them as C++ for the host. A source of this
// folder (ragged_ops.cpp and its like) includes this file and then files of kernels/portable, and so has their kernels as
// ops, compiled for the instruction set of the machine. A group has one work item, which does a whole row. An aa_wide, 16
// floats, is one or more vectors of vector.h, so loops over them are vector code.
//
// A kernel `name` becomes the op run_name(count, arguments), which runs the groups 0 .. count - 1 on the pool's threads.
// `arguments` are the addresses of the kernel's arguments, in their order. Grids have one dimension.
#pragma once

#include "anyaccel/op_source.h"
#include "vector.h"

// The path by which dialect.h includes this file.
#define AA_HOST_KERNELS "../host/portable_language.h"
#define AA_GROUP_SIZE 1
#define AA_LANES 1
#define AA_SUBGROUP 0
#define AA_ITEMS 1
#define AA_LOCAL_BYTES 0
#define AA_HAS_F16 0
#define AA_HAS_F64 1

using aa_i8 = int8_t;
using aa_u8 = uint8_t;
using aa_i16 = int16_t;
using aa_u16 = uint16_t;
using aa_i32 = int32_t;
using aa_u32 = uint32_t;
using aa_i64 = int64_t;
using aa_u64 = uint64_t;

#define AA_FN [[maybe_unused]] static inline __attribute__((always_inline))
#define AA_KERNEL(name, group) struct name : ::anyaccel::op::Group { AA_INLINE void operator()
#define AA_REGISTER(name, group) AA_HOST_REGISTER(name)
// AA_KERNEL opens a class whose call operator is the kernel; AA_REGISTER, behind the kernel, closes it and defines the op.
#define AA_HOST_REGISTER(name)                                              \
  };                                                                        \
  AA_OP void run_##name(int64_t count, const void* const* arguments) {     \
    ::anyaccel::op::run_groups(&name::operator(), count, arguments);        \
  }
#define AA_IN(type) const type*
#define AA_OUT(type) type*
#define AA_AS_IN(type, pointer) (reinterpret_cast<const type*>(pointer))
#define AA_AS_OUT(type, pointer) (reinterpret_cast<type*>(pointer))
#define AA_VALUE(type) type
#define AA_RESTRICT __restrict__
#define AA_PRIVATE
#define AA_LOCAL
#define AA_LOCAL_ARRAY(type, name, count) type name[count]
#define AA_GROUP_ID(dimension) ((dimension) == 0 ? this->group_number : 0)
#define AA_GROUP_COUNT(dimension) ((dimension) == 0 ? this->group_count : 1)
#define AA_LOCAL_ID 0
#define AA_BARRIER()
#define AA_PRAGMA_UNROLL _Pragma("GCC unroll 64")
#define AA_PRAGMA_NO_UNROLL
#define AA_PREFETCH(pointer) ::anyaccel::op::prefetch(pointer)

namespace anyaccel::op {

// A kernel's position in the grid.
struct Group {
  int64_t group_number = 0;
  int64_t group_count = 0;
};

// Calls body(thread, number) for each number in [0, count), on up to `most` threads. Each of these begins with its own part of the
// numbers, the same in every loop, because what it wrote in the previous loop is in its caches. Then it helps with the others'
// parts. It takes a few numbers at a time, because they differ in work.
template <class Body>
AA_INLINE void run_shares(int64_t count, int most, const Body& body) {
  constexpr int most_parts = 64;
  struct alignas(64) Part {
    int64_t next, end;
  };
  Part all[most_parts];
  int parts = threads() < most_parts ? threads() : most_parts;
  if (parts > most) parts = most;
  if (count == 1) parts = 1;
  for (int i = 0; i < parts; ++i) all[i] = {count * i / parts, count * (i + 1) / parts};
  const int64_t share = count / (int64_t{16} * parts) + 1;
  const auto take = [&](int index, int size) {
    if (index >= most) return;
    for (int i = 0; i < parts; ++i) {
      Part& part = all[(int64_t{index} * parts / size + i) % parts];
      while (__atomic_load_n(&part.next, __ATOMIC_RELAXED) < part.end) {
        const int64_t begin = __atomic_fetch_add(&part.next, share, __ATOMIC_RELAXED);
        const int64_t end = begin + share < part.end ? begin + share : part.end;
        for (int64_t number = begin; number < end; ++number) body(index, number);
      }
    }
  };
  using Take = decltype(take);
  const auto enter = [](void* context, int32_t index, int32_t size) { (*static_cast<Take*>(context))(index, size); };
  void* const context = const_cast<void*>(static_cast<const void*>(&take));
  if (count == 1) {
    const FlushDenormals flush;
    enter(context, 0, 1);
  } else {
    services->run(enter, context);
  }
}

// Runs all groups in its constructor. That it is a constructor serves run_groups(): the elements of a braced list are evaluated
// from left to right, unlike the arguments of a function.
template <class Kernel>
struct GroupRun {
  template <class... Values>
  AA_INLINE GroupRun(int64_t count, Values... values) {
    run_shares(count, 1 << 30, [&](int, int64_t number) {
      Kernel kernel;
      kernel.group_count = count;
      kernel.group_number = number;
      kernel(values...);
    });
  }
};

// Reads the kernel's arguments and runs the groups [0, count). Values are the parameters of the kernel's call operator.
template <class Kernel, class... Values>
void run_groups(void (Kernel::*)(Values...), int64_t count, const void* const* arguments) {
  if (count <= 0) return;
  const GroupRun<Kernel> done{count, *static_cast<const Values*>(*arguments++)...};
  static_cast<void>(done);
}

// a * b + c, fused if the instruction set has it; without FMA a call of fmaf() would be slow.
AA_INLINE float fused(float a, float b, float c) {
#if defined(__FMA__)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}
// e^x with an error of at most 2 ulps. Plain arithmetic without branches, which the compiler vectorizes.
AA_INLINE float exponential(float x) {
  // Beyond these limits the results are infinity and zero anyway. The compiler does not vectorize nested conditions.
  float inside = x > 88.8f ? 88.8f : x;
  inside = inside < -104.0f ? -104.0f : inside;
  const float shifted = fused(inside, 1.44269504f, 12582912.0f);  // x / ln 2, rounded: the ulp of 1.5 * 2^23 is 1
  const float n = shifted - 12582912.0f;
  float r = fused(n, -0.693359375f, inside);
  r = fused(n, 2.12194440e-4f, r);
  float p = 1.9875691500e-4f;
  p = fused(p, r, 1.3981999507e-3f);
  p = fused(p, r, 8.3334519073e-3f);
  p = fused(p, r, 4.1665795894e-2f);
  p = fused(p, r, 1.6666665459e-1f);
  p = fused(p, r, 5.0000001201e-1f);
  p = fused(p * r, r, r) + 1.0f;
  // Multiplies by 2^n in two factors, each of which is a normal number.
  const uint32_t whole = float_bits(shifted) - float_bits(12582912.0f);
  const uint32_t half = static_cast<uint32_t>(static_cast<int32_t>(whole) >> 1);
  return p * bits_float((half + 127) << 23) * bits_float((whole - half + 127) << 23);
}
// The same for each element of a vector, with the same bits; a NaN stays one.
AA_INLINE Vec exponential(Vec x) {
  const Vec magic(12582912.0f);
  const Vec inside = max(Vec(-104.0f), min(Vec(88.8f), x));
  const Vec shifted = multiply_add(inside, Vec(1.44269504f), magic);
  const Vec n = shifted - magic;
  Vec r = multiply_add(n, Vec(-0.693359375f), inside);
  r = multiply_add(n, Vec(2.12194440e-4f), r);
  Vec p(1.9875691500e-4f);
  p = multiply_add(p, r, Vec(1.3981999507e-3f));
  p = multiply_add(p, r, Vec(8.3334519073e-3f));
  p = multiply_add(p, r, Vec(4.1665795894e-2f));
  p = multiply_add(p, r, Vec(1.6666665459e-1f));
  p = multiply_add(p, r, Vec(5.0000001201e-1f));
  p = multiply_add(p * r, r, r) + Vec(1.0f);
#if AA_VECTOR_AVX512
  return _mm512_scalef_ps(p.v, n.v);
#else
  const Words whole = bits_of(shifted) - bits_of(magic);
  // Half of it, rounded down, by a shift of an unsigned number.
  const Words half = ((whole + 0x10000u) >> 1) - 0x8000u;
  return p * of_bits((half + 127u) << 23) * of_bits((whole - half + 127u) << 23);
#endif
}

// AA_WIDE of dialect.h.
struct Wide {
  static constexpr int parts = 16 / Vec::width;
  Vec v[parts];
};
AA_INLINE Wide wide_all(float value) {
  Wide r;
  for (int i = 0; i < Wide::parts; ++i) r.v[i] = Vec(value);
  return r;
}
AA_INLINE Wide wide_fma(Wide a, Wide b, Wide c) {
  for (int i = 0; i < Wide::parts; ++i) c.v[i] = multiply_add(a.v[i], b.v[i], c.v[i]);
  return c;
}
// e^(a - b)
AA_INLINE Wide wide_exp(Wide a, float b) {
  for (int i = 0; i < Wide::parts; ++i) a.v[i] = exponential(a.v[i] - Vec(b));
  return a;
}
AA_INLINE Wide wide_max(Wide a, Wide b) {
  for (int i = 0; i < Wide::parts; ++i) a.v[i] = max(a.v[i], b.v[i]);
  return a;
}
template <class Element>
AA_INLINE Wide wide_load(const Element* p) {
  Wide r;
  for (int i = 0; i < Wide::parts; ++i) r.v[i] = load(p + i * Vec::width);
  return r;
}
// Loads 16 signed integers of 4 bits, two to a byte, the first in the lower half.
AA_INLINE Wide wide_load_nibbles(const uint8_t* p) {
  alignas(16) int8_t values[16];
#if defined(__SSE2__)
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  const __m128i four = _mm_set1_epi8(15), sign = _mm_set1_epi8(8);
  const __m128i low = _mm_and_si128(bytes, four), high = _mm_and_si128(_mm_srli_epi16(bytes, 4), four);
  const __m128i both = _mm_unpacklo_epi8(low, high);
  _mm_store_si128(reinterpret_cast<__m128i*>(values), _mm_sub_epi8(_mm_xor_si128(both, sign), sign));
#else
  for (int i = 0; i < 16; ++i) values[i] = static_cast<int8_t>((((p[i / 2] >> (i % 2 * 4)) & 15) ^ 8) - 8);
#endif
  return wide_load(values);
}
AA_INLINE void wide_store(float* p, Wide a) {
  for (int i = 0; i < Wide::parts; ++i) store(p + i * Vec::width, a.v[i]);
}
// Stores the first n elements, n <= 16.
AA_INLINE void wide_store_part(float* p, Wide a, int64_t n) {
  for (int i = 0; i < Wide::parts; ++i) {
    const int64_t left = n - i * Vec::width;
    if (left >= Vec::width) {
      store(p + i * Vec::width, a.v[i]);
    } else if (left > 0) {
      store_n(p + i * Vec::width, a.v[i], left);
    }
  }
}
AA_INLINE float wide_sum(Wide a) {
  alignas(64) float v[16];
  wide_store(v, a);
  for (int step = 8; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) v[i] += v[i + step];
  }
  return v[0];
}
AA_INLINE float wide_largest(Wide a) {
  alignas(64) float v[16];
  wide_store(v, a);
  for (int step = 8; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) v[i] = v[i + step] > v[i] ? v[i + step] : v[i];
  }
  return v[0];
}
AA_INLINE float wide_get(Wide a, int i) {
  alignas(64) float v[16];
  wide_store(v, a);
  return v[i];
}

}  // namespace anyaccel::op

#define aa_bits(x) ::anyaccel::op::float_bits(x)
#define aa_float(u) ::anyaccel::op::bits_float(static_cast<aa_u32>(u))
#define aa_isnan(x) ((x) != (x))
#define aa_exp(x) ::anyaccel::op::exponential(x)
#define aa_log(x) __builtin_logf(x)
#define aa_sqrt(x) __builtin_sqrtf(x)
#define aa_tanh(x) __builtin_tanhf(x)
#define aa_erf(x) __builtin_erff(x)
#define aa_sin(x) __builtin_sinf(x)
#define aa_cos(x) __builtin_cosf(x)
#define aa_fabs(x) __builtin_fabsf(x)
#define aa_floor(x) __builtin_floorf(x)
#define aa_rint(x) __builtin_rintf(x)
#define aa_fma(a, b, c) ::anyaccel::op::fused(a, b, c)
#define aa_fmin(a, b) __builtin_fminf(a, b)
#define aa_fmax(a, b) __builtin_fmaxf(a, b)
#define aa_ldexp(x, n) __builtin_ldexpf(x, n)
#define aa_mulhi(a, b) static_cast<aa_u32>((static_cast<aa_u64>(a) * static_cast<aa_u64>(b)) >> 32)
// A group has one item, so nothing needs to be atomic.
#define aa_atomic_add_local(pointer, value) (*(pointer) += (value), *(pointer) - (value))
#define aa_log_f64(x) __builtin_log(x)
#define aa_sqrt_f64(x) __builtin_sqrt(x)
#define aa_sin_f64(x) __builtin_sin(x)
#define aa_cos_f64(x) __builtin_cos(x)
#define aa_bits_f64(x) __builtin_bit_cast(aa_u64, x)

AA_FN float aa_load_f16(AA_IN(aa_u16) p, aa_i64 i) { return ::anyaccel::op::to_float(::anyaccel::op::fp16{p[i]}); }
AA_FN void aa_store_f16(AA_OUT(aa_u16) p, aa_i64 i, float v) {
  p[i] = ::anyaccel::op::from_float<::anyaccel::op::fp16>(v).bits;
}

using aa_wide = ::anyaccel::op::Wide;
#define AA_HAS_WIDE
#define AA_HAS_WIDE_STORE
#define AA_HAS_WIDE_MAX
#define AA_HAS_WIDE_EXP
// The tiles of kernels/portable/products.h that 16 registers hold. With AVX2, 6 rows of one aa_wide are 12 registers of sums,
// beside two for the columns and one for an element of a row; with SSE2, 2 rows are 8, beside four and one.
#if AA_VECTOR_AVX2
#define AA_TILE_ROWS 6
#define AA_TILE_WIDES 1
#elif AA_VECTOR_SSE2
#define AA_TILE_ROWS 2
#define AA_TILE_WIDES 1
#endif
#define aa_wide_all(value) ::anyaccel::op::wide_all(value)
#define aa_wide_fma(a, b, c) ::anyaccel::op::wide_fma(a, b, c)
#define aa_wide_max(a, b) ::anyaccel::op::wide_max(a, b)
#define aa_wide_exp(a, b) ::anyaccel::op::wide_exp(a, b)
#define aa_wide_largest(a) ::anyaccel::op::wide_largest(a)
#define aa_wide_sum(a) ::anyaccel::op::wide_sum(a)
#define aa_wide_get(a, i) ::anyaccel::op::wide_get(a, i)
#define aa_wide_dot(a, b, c) ((c) + aa_wide_sum(aa_wide_fma(a, b, aa_wide_all(0.0f))))
#define aa_wide_load_f32(p, i) ::anyaccel::op::wide_load((p) + (i))
#define aa_wide_load_bf16(p, i) ::anyaccel::op::wide_load(reinterpret_cast<const ::anyaccel::op::bf16*>((p) + (i)))
#define aa_wide_load_f16(p, i) ::anyaccel::op::wide_load(reinterpret_cast<const ::anyaccel::op::fp16*>((p) + (i)))
#define aa_wide_load_i8(p, i) ::anyaccel::op::wide_load((p) + (i))
#define aa_wide_load_i4(p, i) ::anyaccel::op::wide_load_nibbles((p) + (i) / 2)
#define aa_wide_store_f32(p, i, a) ::anyaccel::op::wide_store((p) + (i), a)
#define aa_wide_store_part(p, i, a, n) ::anyaccel::op::wide_store_part((p) + (i), a, n)
