// Vectors of float in the instruction set being compiled: loads and stores of the float dtypes, rows as binary32, and
// the exponential. Included by kernel files after hwy/highway.h, once per instruction set.
#include "accelerators/cpu/kernels/rows.h"
#include "base/simd/float_types-inl.h"

#if defined(ANYACCEL_CPU_KERNELS_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_VECTOR_INL_H_
#undef ANYACCEL_CPU_KERNELS_VECTOR_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_VECTOR_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using namespace simd::HWY_NAMESPACE;  // NOLINT(google-build-using-namespace): one vocabulary for every kernel

// Converts n elements of a type to floats.
template <class Type>
inline void widen(Type type, const typename Type::Raw* HWY_RESTRICT from, float* HWY_RESTRICT to, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(load(type, from + i), kFloats, to + i);
  if (i < n) {
    typename Type::Raw tail[kLanes] = {};
    float wide[kLanes];
    std::memcpy(tail, from + i, static_cast<size_t>(n - i) * sizeof(tail[0]));
    hn::StoreU(load(type, tail), kFloats, wide);
    std::memcpy(to + i, wide, static_cast<size_t>(n - i) * sizeof(float));
  }
}

// Rounds n floats to elements of a type.
template <class Type>
inline void narrow(Type type, const float* HWY_RESTRICT from, typename Type::Raw* HWY_RESTRICT to, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(type, hn::LoadU(kFloats, from + i), to + i);
  if (i < n) {
    typename Type::Raw tail[kLanes];
    float wide[kLanes] = {};
    std::memcpy(wide, from + i, static_cast<size_t>(n - i) * sizeof(float));
    store(type, hn::LoadU(kFloats, wide), tail);
    std::memcpy(to + i, tail, static_cast<size_t>(n - i) * sizeof(tail[0]));
  }
}

// ---- pairs of vectors -------------------------------------------------------------------------------------------

// 2 * kLanes elements as two vectors: the first and the second half or, for bf16, the even and the odd elements, which
// take one instruction each instead of two.
template <class Type>
HWY_INLINE FloatVec load_first(Type type, const typename Type::Raw* p) {
  return load(type, p);
}
template <class Type>
HWY_INLINE FloatVec load_second(Type type, const typename Type::Raw* p) {
  return load(type, p + kLanes);
}
#if HWY_TARGET != HWY_SCALAR
HWY_INLINE auto load_bf16_pairs(const uint16_t* p) {
  const hn::Repartition<uint16_t, FloatTag> halves;
  return hn::BitCast(kUints, hn::LoadU(halves, p));
}
HWY_INLINE FloatVec load_first(Bf16Type, const uint16_t* p) {
  return hn::BitCast(kFloats, hn::ShiftLeft<16>(load_bf16_pairs(p)));
}
HWY_INLINE FloatVec load_second(Bf16Type, const uint16_t* p) {
  return hn::BitCast(kFloats, hn::And(load_bf16_pairs(p), hn::Set(kUints, 0xffff0000u)));
}
#endif

template <class Type>
HWY_INLINE void load_pair(Type type, const typename Type::Raw* p, FloatVec& a, FloatVec& b) {
  a = load_first(type, p);
  b = load_second(type, p);
}

// Puts n floats, a multiple of 2 * kLanes, into the order in which load_pair delivers elements of a type.
template <class Type>
HWY_INLINE void order_like(Type, float* /*x*/, int64_t /*n*/) {}
#if HWY_TARGET != HWY_SCALAR
inline void order_like(Bf16Type, float* x, int64_t n) {
  for (int64_t k = 0; k < n; k += 2 * kLanes) {
    const auto low = hn::LoadU(kFloats, x + k), high = hn::LoadU(kFloats, x + k + kLanes);
    hn::StoreU(hn::ConcatEven(kFloats, high, low), kFloats, x + k);
    hn::StoreU(hn::ConcatOdd(kFloats, high, low), kFloats, x + k + kLanes);
  }
}
#endif

// ---- rows as binary32 -------------------------------------------------------------------------------------------

// The elements [begin, begin + n) of a row of a float dtype, converted into `buffer`.
inline void read_row(const Row& row, int64_t begin, int64_t n, float* buffer) {
  const char* p = row.data + begin * row.stride * static_cast<int64_t>(dtype_size(row.dtype));
  if (row.stride == 1 || n == 1) {
    switch (row.dtype) {
      case DType::F32: std::memcpy(buffer, p, static_cast<size_t>(n) * sizeof(float)); return;
      case DType::BF16: return widen(Bf16Type(), reinterpret_cast<const uint16_t*>(p), buffer, n);
      default: return widen(F16Type(), reinterpret_cast<const uint16_t*>(p), buffer, n);
    }
  }
  const auto* wide = reinterpret_cast<const float*>(p);
  const auto* half = reinterpret_cast<const uint16_t*>(p);
  switch (row.dtype) {
    case DType::F32:
      for (int64_t i = 0; i < n; ++i) buffer[i] = wide[i * row.stride];
      return;
    case DType::BF16:
      for (int64_t i = 0; i < n; ++i) buffer[i] = bf16_to_float(half[i * row.stride]);
      return;
    default:
      for (int64_t i = 0; i < n; ++i) buffer[i] = fp16_to_float(half[i * row.stride]);
  }
}

// The same, without a copy if the row is dense binary32 already.
HWY_INLINE const float* row_floats(const Row& row, int64_t begin, int64_t n, float* buffer) {
  if (row.dtype == DType::F32 && row.stride == 1) return reinterpret_cast<const float*>(row.data) + begin;
  read_row(row, begin, n, buffer);
  return buffer;
}

// Returns where to put n results for a row: the row itself if it is binary32 and dense, else `buffer`.
HWY_INLINE float* row_target(const Row& row, int64_t begin, float* buffer) {
  if (row.dtype == DType::F32 && row.stride == 1) return reinterpret_cast<float*>(row.data) + begin;
  return buffer;
}

// Rounds n floats into a row, unless `from` is the row itself (see row_target).
inline void write_row(const Row& row, int64_t begin, int64_t n, const float* from) {
  char* p = row.data + begin * row.stride * static_cast<int64_t>(dtype_size(row.dtype));
  if (static_cast<const void*>(from) == p) return;
  if (row.stride == 1 || n == 1) {
    switch (row.dtype) {
      case DType::F32: std::memcpy(p, from, static_cast<size_t>(n) * sizeof(float)); return;
      case DType::BF16: return narrow(Bf16Type(), from, reinterpret_cast<uint16_t*>(p), n);
      default: return narrow(F16Type(), from, reinterpret_cast<uint16_t*>(p), n);
    }
  }
  auto* wide = reinterpret_cast<float*>(p);
  auto* half = reinterpret_cast<uint16_t*>(p);
  switch (row.dtype) {
    case DType::F32:
      for (int64_t i = 0; i < n; ++i) wide[i * row.stride] = from[i];
      return;
    case DType::BF16:
      for (int64_t i = 0; i < n; ++i) half[i * row.stride] = float_to_bf16(from[i]);
      return;
    default:
      for (int64_t i = 0; i < n; ++i) half[i * row.stride] = float_to_fp16(from[i]);
  }
}

// ---- partial vectors --------------------------------------------------------------------------------------------

// Loads n < kLanes floats; the other lanes are `fill`.
HWY_INLINE FloatVec load_part(const float* p, int64_t n, float fill = 0.0f) {
#if HWY_TARGET <= HWY_AVX2
  const auto mask = hn::FirstN(kFloats, static_cast<size_t>(n));
  return hn::IfThenElse(mask, hn::MaskedLoad(mask, kFloats, p), hn::Set(kFloats, fill));
#else
  float lanes[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) lanes[i] = i < n ? p[i] : fill;
  return hn::LoadU(kFloats, lanes);
#endif
}

HWY_INLINE void store_part(FloatVec v, float* p, int64_t n) {
#if HWY_TARGET <= HWY_AVX2
  hn::BlendedStore(v, hn::FirstN(kFloats, static_cast<size_t>(n)), kFloats, p);
#else
  float lanes[kLanes];
  hn::StoreU(v, kFloats, lanes);
  for (int64_t i = 0; i < n; ++i) p[i] = lanes[i];
#endif
}

HWY_INLINE float sum_lanes(FloatVec v) { return hn::GetLane(hn::SumOfLanes(kFloats, v)); }
HWY_INLINE float max_lanes(FloatVec v) { return hn::GetLane(hn::MaxOfLanes(kFloats, v)); }

// to[i] = the sum of the lanes of v[i], i < 4, always in the same order.
HWY_INLINE void sum_four(const FloatVec (&v)[4], float* to) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  const hn::RepartitionToWide<FloatTag> doubles;
  const auto fold = [&](FloatVec a, FloatVec b) HWY_ATTR {
    return hn::Add(hn::InterleaveLower(kFloats, a, b), hn::InterleaveUpper(kFloats, a, b));
  };
  const auto ab = hn::BitCast(doubles, fold(v[0], v[1])), cd = hn::BitCast(doubles, fold(v[2], v[3]));
  // Each 128 bits hold a partial sum of each of the four vectors.
  const auto sums = hn::Add(hn::BitCast(kFloats, hn::InterleaveLower(doubles, ab, cd)),
                            hn::BitCast(kFloats, hn::InterleaveUpper(doubles, ab, cd)));
#if HWY_TARGET == HWY_AVX3
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(sums.raw), _mm512_extractf32x8_ps(sums.raw, 1));
#else
  const __m256 half = sums.raw;
#endif
  _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
#else
  for (int i = 0; i < 4; ++i) to[i] = sum_lanes(v[i]);
#endif
}

// ---- exponential ------------------------------------------------------------------------------------------------

// The larger (smaller) of a number and a bound; a NaN stays one.
HWY_INLINE FloatVec at_least(float bound, FloatVec v) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  return hn::Max(hn::Set(kFloats, bound), v);  // maxps returns its second operand when either is a NaN
#else
  return hn::IfThenElse(hn::Lt(v, hn::Set(kFloats, bound)), hn::Set(kFloats, bound), v);
#endif
}
HWY_INLINE FloatVec at_most(float bound, FloatVec v) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  return hn::Min(hn::Set(kFloats, bound), v);
#else
  return hn::IfThenElse(hn::Gt(v, hn::Set(kFloats, bound)), hn::Set(kFloats, bound), v);
#endif
}

// 2^n for whole n in [-127, 127] held as floats; -127 gives 0.
HWY_INLINE FloatVec power_of_two(FloatVec n) {
  // Adding 2^23 + 127 is exact and leaves n + 127 in the lowest bits, which the shift moves to the exponent field.
  const auto biased = hn::BitCast(kInts, hn::Add(n, hn::Set(kFloats, 8388608.0f + 127.0f)));
  return hn::BitCast(kFloats, hn::ShiftLeft<23>(biased));
}

// 2^x for x <= 127, with a relative error below 2e-7. Returns 0 below -127 (with AVX-512, and where denormals are not
// flushed, below -149) and for -infinity. NaN gives NaN.
HWY_INLINE FloatVec exp2_below(FloatVec x) {
  x = at_least(HWY_TARGET == HWY_AVX3 ? -200.0f : -127.0f, x);
  const auto n = hn::Round(x);
  const auto f = hn::Sub(x, n);
  // Minimax polynomial of 2^f on [-0.5, 0.5].
  auto p = hn::Set(kFloats, 1.5353362e-4f);
  p = hn::MulAdd(p, f, hn::Set(kFloats, 1.3398874e-3f));
  p = hn::MulAdd(p, f, hn::Set(kFloats, 9.6184373e-3f));
  p = hn::MulAdd(p, f, hn::Set(kFloats, 5.5503324e-2f));
  p = hn::MulAdd(p, f, hn::Set(kFloats, 2.4022648e-1f));
  p = hn::MulAdd(p, f, hn::Set(kFloats, 6.9314718e-1f));
  p = hn::MulAdd(p, f, hn::Set(kFloats, 1.0f));
#if HWY_TARGET == HWY_AVX3
  return FloatVec{_mm512_scalef_ps(p.raw, n.raw)};
#else
  return hn::Mul(p, power_of_two(n));
#endif
}

// e^x, at most 2 ulp off; infinity above 88.72, 0 or subnormal below -87.34. NaN gives NaN.
HWY_INLINE FloatVec exp(FloatVec x) {
  x = at_least(-104.0f, at_most(89.0f, x));
  const auto n = hn::Round(hn::Mul(x, hn::Set(kFloats, 1.44269504f)));
  // ln 2 in two parts (Cody and Waite): n * the first is exact.
  auto r = hn::NegMulAdd(n, hn::Set(kFloats, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(kFloats, -2.12194440e-4f), r);
  // Cephes expf.
  auto p = hn::Set(kFloats, 1.9875691500e-4f);
  p = hn::MulAdd(p, r, hn::Set(kFloats, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(kFloats, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(kFloats, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(kFloats, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(kFloats, 5.0000001201e-1f));
  p = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), hn::Set(kFloats, 1.0f));
#if HWY_TARGET == HWY_AVX3
  return FloatVec{_mm512_scalef_ps(p.raw, n.raw)};
#else
  // Two factors, so that neither 2^128 nor a result near the end of the range overflows on the way.
  const auto half = hn::Floor(hn::Mul(n, hn::Set(kFloats, 0.5f)));
  return hn::Mul(hn::Mul(p, power_of_two(half)), power_of_two(hn::Sub(n, half)));
#endif
}

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
