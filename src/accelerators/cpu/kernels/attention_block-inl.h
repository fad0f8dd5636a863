// The inner parts of attention_tile.cpp: a product whose results stay in registers, for scores and for sums of values,
// and the packing of a block of keys into the layout that it reads. Included after base/simd/highway.h, once per
// instruction set.
#include "accelerators/cpu/kernels/attention_panel-inl.h"
#include "accelerators/cpu/kernels/attention_tile.h"
#include "accelerators/cpu/kernels/attention_transpose-inl.h"
#include "accelerators/cpu/kernels/cache_blocks-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"

#if defined(ANYACCEL_CPU_KERNELS_ATTENTION_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_ATTENTION_BLOCK_INL_H_
#undef ANYACCEL_CPU_KERNELS_ATTENTION_BLOCK_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_ATTENTION_BLOCK_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

// Slots of a block: the packed keys and values of a head of 64 fit into the first-level cache together.
constexpr int64_t kBlockSlots = kAttentionBlock;
// Rows and vectors of results in registers: 6 x 4 sums in 32 registers with AVX-512, 3 x 4 in 16 with AVX2.
constexpr int kMaxRows = HWY_TARGET == HWY_AVX2 ? 3 : 6;
constexpr int kMaxVectors = 4;
// Groups of rows that pass each step together, so that the steps of independent groups overlap in the processor. With
// AVX2 all of them also use a panel of keys or values while it is in the first-level cache.
constexpr int64_t kBatchGroups = HWY_TARGET == HWY_AVX2 ? 8 : 4;
// Floats from one row of packed keys to the next.
#if HWY_TARGET == HWY_AVX2
constexpr int64_t kKeyStride = kPanelFloats;
#else
constexpr int64_t kKeyStride = kBlockSlots;
#endif

constexpr int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Splits the rows of a tile into groups of at most kMaxRows, as evenly as possible.
struct RowGroups {
  int64_t rows;
  int64_t count() const { return (rows + kMaxRows - 1) / kMaxRows; }
  int64_t begin(int64_t group) const { return rows * group / count(); }
};

// The two products of attention for `rows` rows and `vectors` vectors of results, kept in registers:
//   scores:  c[m][n] = sum over k of a[k][m] * b[k][n]; a are packed queries, b packed keys, k runs over the head
//   sums:    c[m][n] = c[m][n] * factor[m] + sum over k of a[m][k] * b[k][n]; a are weights, b values, k runs over
//   slots
// Rows of scores and weights lie kBlockSlots apart, rows of packed keys kKeyStride. With AVX2 b is a panel and queries
// are a[m][k].
template <bool sums, int rows, int vectors>
HWY_INLINE void multiply_registers(int64_t begin, int64_t end, const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                                   int64_t b_stride, float* HWY_RESTRICT c, int64_t c_stride, const float* factor) {
#if HWY_TARGET == HWY_AVX2
  constexpr int64_t a_step = 1;
  const int64_t a_row = sums ? kBlockSlots : end;  // queries have `end` elements
#else
  constexpr int64_t a_row = sums ? kBlockSlots : 1, a_step = sums ? 1 : rows;
#endif
  FloatVec sum[rows][vectors];
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) {
#pragma GCC unroll 8
    for (int n = 0; n < vectors; ++n) {
      if constexpr (sums) {
        sum[m][n] = hn::Mul(hn::LoadU(kFloats, c + m * c_stride + n * kLanes), hn::Set(kFloats, factor[m]));
      } else {
        sum[m][n] = hn::Zero(kFloats);
      }
    }
  }
  a += begin * a_step;
  b += begin * b_stride;
#if HWY_TARGET == HWY_AVX2
  if constexpr (rows == kPanelRows && vectors == kPanelVectors) {
    add_panel(a, a_row, b, end - begin, sum);
    begin = end;
  }
#endif
  for (int64_t k = begin; k < end; ++k, a += a_step, b += b_stride) {
    FloatVec right[vectors];
#pragma GCC unroll 8
    for (int n = 0; n < vectors; ++n) right[n] = hn::LoadU(kFloats, b + n * kLanes);
#pragma GCC unroll 8
    for (int m = 0; m < rows; ++m) {
      const auto left = hn::Set(kFloats, a[m * a_row]);
#pragma GCC unroll 8
      for (int n = 0; n < vectors; ++n) sum[m][n] = hn::MulAdd(left, right[n], sum[m][n]);
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) {
#pragma GCC unroll 8
    for (int n = 0; n < vectors; ++n) hn::StoreU(sum[m][n], kFloats, c + m * c_stride + n * kLanes);
  }
}

template <bool sums, int rows>
HWY_NOINLINE void multiply_rows(int64_t vectors, int64_t begin, int64_t end, const float* a, const float* b,
                                int64_t b_stride, float* c, int64_t c_stride, const float* factor) {
  if constexpr (!sums) {
    b_stride = kKeyStride;
    c_stride = kBlockSlots;
  }
  int64_t n = 0;
  for (; n + kMaxVectors <= vectors; n += kMaxVectors) {
    multiply_registers<sums, rows, kMaxVectors>(begin, end, a, b + n * kLanes, b_stride, c + n * kLanes, c_stride,
                                                factor);
  }
  if constexpr (kMaxVectors > 2) {
    if (n + 2 <= vectors) {
      multiply_registers<sums, rows, 2>(begin, end, a, b + n * kLanes, b_stride, c + n * kLanes, c_stride, factor);
      n += 2;
    }
  }
  if (n < vectors) {
    multiply_registers<sums, rows, 1>(begin, end, a, b + n * kLanes, b_stride, c + n * kLanes, c_stride, factor);
  }
}

// The same for any number of rows up to kMaxRows and of vectors.
template <bool sums>
HWY_INLINE void multiply(int rows, int64_t vectors, int64_t begin, int64_t end, const float* a, const float* b,
                         int64_t b_stride, float* c, int64_t c_stride, const float* factor) {
  switch (rows) {
    case 1: return multiply_rows<sums, 1>(vectors, begin, end, a, b, b_stride, c, c_stride, factor);
    case 2: return multiply_rows<sums, 2>(vectors, begin, end, a, b, b_stride, c, c_stride, factor);
#if HWY_TARGET == HWY_AVX2
    default: return multiply_rows<sums, 3>(vectors, begin, end, a, b, b_stride, c, c_stride, factor);
#else
    case 3: return multiply_rows<sums, 3>(vectors, begin, end, a, b, b_stride, c, c_stride, factor);
    case 4: return multiply_rows<sums, 4>(vectors, begin, end, a, b, b_stride, c, c_stride, factor);
    case 5: return multiply_rows<sums, 5>(vectors, begin, end, a, b, b_stride, c, c_stride, factor);
    default: return multiply_rows<sums, 6>(vectors, begin, end, a, b, b_stride, c, c_stride, factor);
#endif
  }
}

#if HWY_TARGET != HWY_SCALAR
// keys[d][j] = element d of slot j, for `dims` elements and kLanes slots. Lanes past the last slot repeat it.
template <class Type>
HWY_INLINE void pack_keys_vector(Type type, const typename Type::Raw* from, int64_t slot_stride, int64_t slots,
                                 int64_t dims, float* keys) {
  const typename Type::Raw* slot[kLanes];
  for (int64_t j = 0; j < kLanes; ++j) slot[j] = from + std::min(j, slots - 1) * slot_stride;
  int64_t d = 0;
  if constexpr (std::is_same_v<Type, Bf16Type>) {
    // Two consecutive elements are moved as one 32-bit lane and separated after the transposition.
    for (; d + 2 * kLanes <= dims; d += 2 * kLanes) {
      FloatVec v[kLanes];
#pragma GCC unroll 16
      for (int64_t j = 0; j < kLanes; ++j) v[j] = hn::LoadU(kFloats, reinterpret_cast<const float*>(slot[j] + d));
      transpose(v);
#pragma GCC unroll 16
      for (int64_t i = 0; i < kLanes; ++i) {
        const auto pair = hn::BitCast(kUints, v[i]);
        float* to = keys + (d + 2 * i) * kKeyStride;
        hn::StoreU(hn::BitCast(kFloats, hn::ShiftLeft<16>(pair)), kFloats, to);
        hn::StoreU(hn::BitCast(kFloats, hn::And(pair, hn::Set(kUints, 0xffff0000u))), kFloats, to + kKeyStride);
      }
    }
  }
  for (; d + kLanes <= dims; d += kLanes) {
    FloatVec v[kLanes];
#pragma GCC unroll 16
    for (int64_t j = 0; j < kLanes; ++j) v[j] = load(type, slot[j] + d);
    transpose(v);
#pragma GCC unroll 16
    for (int64_t i = 0; i < kLanes; ++i) hn::StoreU(v[i], kFloats, keys + (d + i) * kKeyStride);
  }
  for (; d < dims; ++d) {
    for (int64_t j = 0; j < kLanes; ++j) {
      keys[d * kKeyStride + j] =
          static_cast<float>(load_floating(slot[j] + d, std::is_same_v<Type, F32Type>    ? DType::F32
                                                        : std::is_same_v<Type, Bf16Type> ? DType::BF16
                                                        : std::is_same_v<Type, E4m3Type> ? DType::F8E4M3
                                                                                         : DType::F16));
    }
  }
}
#endif

// Packs the keys of `slots` slots, kLanes at most, as keys[d][slot], rows kKeyStride floats apart; lanes past the last
// slot repeat it. `first` is the row of the first slot.
inline void pack_keys(const Row& first, int64_t slot_stride, int64_t slots, float* keys) {
  if (first.dtype == DType::U8) {
    return pack_cache_keys(reinterpret_cast<const uint8_t*>(first.data), slot_stride, slots, first.length, keys,
                           kKeyStride);
  }
#if HWY_TARGET != HWY_SCALAR
  if (first.stride == 1) {
    const auto* wide = reinterpret_cast<const float*>(first.data);
    const auto* half = reinterpret_cast<const uint16_t*>(first.data);
    const auto* bytes = reinterpret_cast<const uint8_t*>(first.data);
    switch (first.dtype) {
      case DType::F32: return pack_keys_vector(F32Type(), wide, slot_stride, slots, first.length, keys);
      case DType::F8E4M3: return pack_keys_vector(E4m3Type(), bytes, slot_stride, slots, first.length, keys);
      case DType::BF16: return pack_keys_vector(Bf16Type(), half, slot_stride, slots, first.length, keys);
      default: return pack_keys_vector(F16Type(), half, slot_stride, slots, first.length, keys);
    }
  }
#endif
  const int64_t item = static_cast<int64_t>(dtype_size(first.dtype));
  for (int64_t j = 0; j < kLanes; ++j) {
    const char* slot = first.data + std::min(j, slots - 1) * slot_stride * item;
    for (int64_t d = 0; d < first.length; ++d) {
      keys[d * kKeyStride + j] = static_cast<float>(load_floating(slot + d * first.stride * item, first.dtype));
    }
  }
}

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
