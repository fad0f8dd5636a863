// Products of rows of x with rows of quantized weights, for AVX2: a struct for each format of 32 values in a block, which
// quantized_row.cpp instantiates, and what those of 256 values (quantized_row_k_avx2-inl.h) use too. Included after
// base/simd/highway.h, once per instruction set.
//
// The number of vector instructions bounds these kernels, so they convert to fp32 as late as possible. vpmaddubsw
// multiplies unsigned weights with signed bytes of x and adds pairs of products in 16 bits, and horizontal additions
// continue in 16 bits as long as nothing can overflow. With weights of 4 or 5 bits that leaves so few sums that eight
// groups of 32 values share one conversion and one multiply-add with a vector of eight scales. The larger values of
// Q6_K and Q8_0 allow that for two groups and for one (Q2_K and Q3_K, whose scales are for 16 values, go like Q6_K); values that are
// looked up (IQ4, MXFP4) are widened to 32 bits at once, and eight groups share the rest. The scales of a block's eight groups are
// computed in one vector.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "accelerators/cpu/kernels/quantized_blocks-inl.h"
#include "accelerators/cpu/kernels/quantized_round-inl.h"
#include "accelerators/cpu/kernels/quantized_row.h"
#include "accelerators/cpu/kernels/vector-inl.h"

#if defined(ANYACCEL_CPU_KERNELS_QUANTIZED_ROW_AVX2_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_QUANTIZED_ROW_AVX2_INL_H_
#undef ANYACCEL_CPU_KERNELS_QUANTIZED_ROW_AVX2_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_QUANTIZED_ROW_AVX2_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX2

constexpr int64_t kBlock = 256;

HWY_INLINE __m256i load_bytes(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
HWY_INLINE __m128i load_half(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
HWY_INLINE __m256i low_nibbles(__m256i v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }
HWY_INLINE __m256i high_nibbles(__m256i v) { return low_nibbles(_mm256_srli_epi16(v, 4)); }
HWY_INLINE __m256i in_both_halves(int w0, int w1, int w2, int w3) {
  return _mm256_broadcastsi128_si256(_mm_setr_epi32(w0, w1, w2, w3));
}
// Sixteen 16-bit sums of two products of bytes each: `u` is unsigned, `x` signed. Callers keep `u` small enough not to
// saturate.
HWY_INLINE __m256i pairs_of(__m256i u, __m256i x) { return _mm256_maddubs_epi16(u, x); }
// Adds neighbouring 16-bit lanes to eight sums of 32 bits.
HWY_INLINE __m256i widened(__m256i pairs) { return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)); }
HWY_INLINE __m256 add_scaled(__m256 total, __m256i sums, const float* scale) {
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums), _mm256_broadcast_ss(scale), total);
}
// Horizontal additions of 16-bit lanes within each half (128 bits) of two vectors. Of halves a0 .. a7 and b0 .. b7:
//   add_fours: a0+a4 a1+a5 a2+a6 a3+a7  b0+b4 b1+b5 b2+b6 b3+b7
//   add_twos:  a0+a2 a1+a3 a4+a6 a5+a7  b0+b2 b1+b3 b4+b6 b5+b7
HWY_INLINE __m256i add_fours(__m256i a, __m256i b) {
  return _mm256_add_epi16(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}
HWY_INLINE __m256i add_twos(__m256i a, __m256i b) {
  const __m256 front = _mm256_castsi256_ps(a), back = _mm256_castsi256_ps(b);
  return _mm256_add_epi16(_mm256_castps_si256(_mm256_shuffle_ps(front, back, 0x88)),
                          _mm256_castps_si256(_mm256_shuffle_ps(front, back, 0xdd)));
}

// The structs of the formats have the same members:
//   kBytes       Bytes of 256 weights: one block of a K format, or eight blocks of 32 values.
//   kFine        Whether x is rounded to 16 bits instead of 8.
//   place()      Where a quarter of a group of x (eight values) goes among the block's 256 bytes; not used with kFine.
//   put_factors  Fills a group's entries of BlockRow::first and ::second from its scale and the sums of its halves.
//   add          For each stream s, adds the products of the weights at b[s] with block number `block` of x to total[s].
// Eight blocks of 32 values are processed together, like one block of 256. The products of each add up to two 16-bit
// sums and then to one of 32 bits, so that a single vector of eight sums is converted and scaled.
struct RowQ4_0 {
  static constexpr int64_t kBytes = 8 * 18;
  static constexpr bool kFine = false;
  // 64 bytes for groups g and g + 4: the first 16 values of both, then the last 16 of both, in the order of
  // two_blocks().
  static int place(int group, int quarter) {
    return group % 4 * 64 + quarter / 2 * 32 + group / 4 * 16 + quarter % 2 * 8;
  }
  static void put_factors(float* first, float* second, int group, float scale, const int32_t* sums) {
    first[group] = scale;
    second[group] = -8 * scale * static_cast<float>(sums[0] + sums[1]);
  }

  // The scales of eight blocks as floats. The 32 bytes from b + 32 i hold two of them: word i of the first half has the
  // scale of block 2 i in its lower 16 bits, and word i of the second half that of block 2 i + 1 in its upper 16 bits.
  // Three blends collect them all.
  static HWY_INLINE __m256 scales_of(const uint8_t* b) {
    __m256i words = _mm256_blend_epi32(load_bytes(b), load_bytes(b + 32), 0b00100010);
    words = _mm256_blend_epi32(words, load_bytes(b + 64), 0b01000100);
    words = _mm256_blend_epi32(words, load_bytes(b + 96), 0b10001000);
    return _mm256_cvtph_ps(
        _mm_blend_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1), 0b10101010));
  }

  template <int kStreams>
  static HWY_INLINE void add(const uint8_t* const* b, const BlockRow& x, int64_t block, __m256* total) {
    const __m256 factors = _mm256_loadu_ps(x.first + 16 * block), minus_sums = _mm256_loadu_ps(x.second + 16 * block);
    __m256i sums[2][kStreams];  // in the halves: blocks 0, 1 and blocks 4, 5; then 2, 3 and 6, 7
    AA_UNROLL for (int side = 0; side < 2; ++side) {
      const int8_t* at = x.values + kBlock * block + 128 * side;
      const __m256i x0 = load_bytes(at), x1 = load_bytes(at + 32), x2 = load_bytes(at + 64), x3 = load_bytes(at + 96);
      AA_UNROLL for (int s = 0; s < kStreams; ++s) {
        sums[side][s] = add_fours(two_blocks(b[s] + 36 * side, x0, x1), two_blocks(b[s] + 36 * side + 18, x2, x3));
      }
    }
    AA_UNROLL for (int s = 0; s < kStreams; ++s) {
      // A 16-bit sum is at most 8 * 2 * 15 * 127 = 30,480.
      const __m256 all = _mm256_cvtepi32_ps(widened(add_twos(sums[0][s], sums[1][s])));
      total[s] = _mm256_fmadd_ps(scales_of(b[s]), _mm256_fmadd_ps(all, factors, minus_sums), total[s]);
    }
  }

  // Products of the block at b (lower half) and of the fourth one after it (upper half): eight 16-bit sums of each.
  static HWY_INLINE __m256i two_blocks(const uint8_t* b, __m256i x0, __m256i x1) {
    const __m256i two = _mm256_inserti128_si256(_mm256_castsi128_si256(load_half(b + 2)), load_half(b + 4 * 18 + 2), 1);
    return _mm256_add_epi16(pairs_of(low_nibbles(two), x0), pairs_of(high_nibbles(two), x1));
  }
};

// Eight numbers of 16 bits, kDistance bytes apart.
template <int kDistance>
HWY_INLINE __m128i eight_words(const uint8_t* b) {
  const auto word = [&](int i) HWY_ATTR {
    int16_t v;
    std::memcpy(&v, b + i * kDistance, sizeof v);
    return v;
  };
  return _mm_setr_epi16(word(0), word(1), word(2), word(3), word(4), word(5), word(6), word(7));
}
// The 16 bytes at a and those at b, in the halves of a vector.
HWY_INLINE __m256i two_runs(const uint8_t* a, const uint8_t* b) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(load_half(a)), load_half(b), 1);
}

// As RowQ4_0, for other formats of nibbles. kMinimumAt: where a block has what is added to its weights (0: a weight is scale *
// (value - kZero)). kFifthAt: where it has 32 fifth bits (0: nowhere).
template <int kBytesOfBlock, int kNibblesAt, int kFifthAt, int kMinimumAt, int kZero>
struct RowOf32 {
  static constexpr int64_t kBytes = 8 * kBytesOfBlock;
  static constexpr bool kFine = false;
  static int place(int group, int quarter) { return RowQ4_0::place(group, quarter); }
  static void put_factors(float* first, float* second, int group, float scale, const int32_t* sums) {
    first[group] = scale;
    second[group] = scale * static_cast<float>((kMinimumAt > 0 ? 1 : -kZero) * (sums[0] + sums[1]));
  }
  static HWY_INLINE __m256 halves_at(const uint8_t* b) { return _mm256_cvtph_ps(eight_words<kBytesOfBlock>(b)); }
  // Adds fifth bits to the values of a half (kHalf) of the groups of two blocks.
  template <int kHalf>
  static HWY_INLINE __m256i with_fifth_bits(__m256i values, const uint8_t* b) {
    if constexpr (kFifthAt == 0) {
      return values;
    } else {
      int32_t of_first, of_second;
      std::memcpy(&of_first, b + kFifthAt, sizeof of_first);
      std::memcpy(&of_second, b + 4 * kBytesOfBlock + kFifthAt, sizeof of_second);
      const __m256i bits = _mm256_set_m128i(_mm_set1_epi32(of_second), _mm_set1_epi32(of_first));
      const __m256i spread =
          _mm256_shuffle_epi8(bits, kHalf == 0 ? in_both_halves(0, 0, 0x01010101, 0x01010101)
                                               : in_both_halves(0x02020202, 0x02020202, 0x03030303, 0x03030303));
      const __m256i mask = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201u));
      const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, mask), mask);
      return _mm256_or_si256(values, _mm256_and_si256(set, _mm256_set1_epi8(16)));
    }
  }
  // Products of the block at b (lower half) and of the fourth one after it (upper half): eight 16-bit sums of each.
  static HWY_INLINE __m256i two_blocks(const uint8_t* b, __m256i x0, __m256i x1) {
    const __m256i two = two_runs(b + kNibblesAt, b + 4 * kBytesOfBlock + kNibblesAt);
    return _mm256_add_epi16(pairs_of(with_fifth_bits<0>(low_nibbles(two), b), x0),
                            pairs_of(with_fifth_bits<1>(high_nibbles(two), b), x1));
  }

  template <int kStreams>
  static HWY_INLINE void add(const uint8_t* const* b, const BlockRow& x, int64_t block, __m256* total) {
    const __m256 factors = _mm256_loadu_ps(x.first + 16 * block), offsets = _mm256_loadu_ps(x.second + 16 * block);
    __m256i sums[2][kStreams];  // in the halves: blocks 0, 1 and blocks 4, 5; then 2, 3 and 6, 7
    AA_UNROLL for (int side = 0; side < 2; ++side) {
      const int8_t* at = x.values + kBlock * block + 128 * side;
      const __m256i x0 = load_bytes(at), x1 = load_bytes(at + 32), x2 = load_bytes(at + 64), x3 = load_bytes(at + 96);
      AA_UNROLL for (int s = 0; s < kStreams; ++s) {
        const uint8_t* two = b[s] + 2 * kBytesOfBlock * side;
        sums[side][s] = add_fours(two_blocks(two, x0, x1), two_blocks(two + kBytesOfBlock, x2, x3));
      }
    }
    AA_UNROLL for (int s = 0; s < kStreams; ++s) {
      // A 16-bit sum of two blocks is at most 4 * 2 * 31 * 127 = 31,496; those of nibbles alone could be added once more.
      const __m256 all = _mm256_cvtepi32_ps(kFifthAt > 0 ? _mm256_hadd_epi32(widened(sums[0][s]), widened(sums[1][s]))
                                                         : widened(add_twos(sums[0][s], sums[1][s])));
      const __m256 d = halves_at(b[s]);
      if constexpr (kMinimumAt > 0) {
        total[s] = _mm256_fmadd_ps(halves_at(b[s] + kMinimumAt), offsets, total[s]);
        total[s] = _mm256_fmadd_ps(d, _mm256_mul_ps(all, factors), total[s]);
      } else {
        total[s] = _mm256_fmadd_ps(d, _mm256_fmadd_ps(all, factors, offsets), total[s]);
      }
    }
  }
};
using RowQ4_1 = RowOf32<20, 4, 0, 2, 0>;
using RowQ5_0 = RowOf32<22, 6, 2, 0, 16>;
using RowQ5_1 = RowOf32<24, 8, 4, 2, 0>;

// Eight groups whose nibbles are looked up: `table` has signed bytes. Pairs of products of the largest values just fit into 16 bits,
// which are widened at once. Format::nibbles_of(b, group) is where the 16 bytes of a group are; Format::scales_of(b) has the scales
// of the eight groups.
template <class Format, int kStreams>
HWY_INLINE void add_looked_up(const uint8_t* const* b, const BlockRow& x, int64_t block, __m128i table, __m256* total) {
  const __m256 factors = _mm256_loadu_ps(x.first + 16 * block);
  const __m256i tables = _mm256_broadcastsi128_si256(table);
  const auto products = [](__m256i q, __m256i v)
                            HWY_ATTR { return widened(pairs_of(_mm256_abs_epi8(q), _mm256_sign_epi8(v, q))); };
  __m256i sums[2][kStreams];  // in the halves: two lanes each of groups 0, 1 and 4, 5; then of 2, 3 and 6, 7
  AA_UNROLL for (int side = 0; side < 2; ++side) {
    const int8_t* at = x.values + kBlock * block + 128 * side;
    const __m256i x0 = load_bytes(at), x1 = load_bytes(at + 32), x2 = load_bytes(at + 64), x3 = load_bytes(at + 96);
    AA_UNROLL for (int s = 0; s < kStreams; ++s) {
      const auto two_groups = [&](int group, __m256i low, __m256i high) HWY_ATTR {
        const __m256i two = two_runs(Format::nibbles_of(b[s], group), Format::nibbles_of(b[s], group + 4));
        return _mm256_add_epi32(products(_mm256_shuffle_epi8(tables, low_nibbles(two)), low),
                                products(_mm256_shuffle_epi8(tables, high_nibbles(two)), high));
      };
      sums[side][s] = _mm256_hadd_epi32(two_groups(2 * side, x0, x1), two_groups(2 * side + 1, x2, x3));
    }
  }
  AA_UNROLL for (int s = 0; s < kStreams; ++s) {
    const __m256 all = _mm256_cvtepi32_ps(_mm256_hadd_epi32(sums[0][s], sums[1][s]));
    total[s] = _mm256_fmadd_ps(Format::scales_of(b[s]), _mm256_mul_ps(all, factors), total[s]);
  }
}
template <class Format, int kStreams>
HWY_INLINE void add_iq4(const uint8_t* const* b, const BlockRow& x, int64_t block, __m256* total) {
  add_looked_up<Format, kStreams>(b, x, block, iq4_table(), total);
}
struct RowIq4Nl {
  static constexpr int64_t kBytes = 8 * 18;
  static constexpr bool kFine = false;
  static int place(int group, int quarter) { return RowQ4_0::place(group, quarter); }
  static void put_factors(float* first, float* /*second*/, int group, float scale, const int32_t* /*sums*/) {
    first[group] = scale;
  }
  static HWY_INLINE const uint8_t* nibbles_of(const uint8_t* b, int group) { return b + 18 * group + 2; }
  static HWY_INLINE __m256 scales_of(const uint8_t* b) { return RowQ4_0::scales_of(b); }
  template <int kStreams>
  static HWY_INLINE void add(const uint8_t* const* b, const BlockRow& x, int64_t block, __m256* total) {
    add_iq4<RowIq4Nl, kStreams>(b, x, block, total);
  }
};
struct RowMxfp4 {
  static constexpr int64_t kBytes = 8 * 17;
  static constexpr bool kFine = false;
  static int place(int group, int quarter) { return RowQ4_0::place(group, quarter); }
  static void put_factors(float* first, float* /*second*/, int group, float scale, const int32_t* /*sums*/) {
    first[group] = scale;
  }
  static HWY_INLINE const uint8_t* nibbles_of(const uint8_t* b, int group) { return b + 17 * group + 1; }
  // 2^(e - 128); the results of e = 0 and e = 1 are subnormal. Of each word of eight_words(), e is the lower byte.
  static HWY_INLINE __m256 scales_of(const uint8_t* b) {
    const __m256i e = _mm256_cvtepu16_epi32(_mm_and_si128(eight_words<17>(b), _mm_set1_epi16(255)));
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    const __m256i least = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, least, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
  }
  template <int kStreams>
  static HWY_INLINE void add(const uint8_t* const* b, const BlockRow& x, int64_t block, __m256* total) {
    add_looked_up<RowMxfp4, kStreams>(b, x, block, mxfp4_table(), total);
  }
};

// Eight blocks of Q8_0 at a time. x is rounded to 16 bits: with weights of 8 bits, rounding it to 8 would cause most of
// the error.
struct RowQ8_0 {
  static constexpr int64_t kBytes = 8 * 34;
  static constexpr bool kFine = true;
  static void put_factors(float* first, float* /*second*/, int group, float scale, const int32_t* /*sums*/) {
    first[group] = scale;
  }

  // The scales of eight blocks as floats. The 16 bytes from b + 32 n have the scale of block n in 16-bit lane n, where
  // it belongs, so that each scale after the first takes one blend with a memory operand.
  template <int... kBefore>
  static HWY_INLINE __m256 scales_of(const uint8_t* b, std::integer_sequence<int, kBefore...> /*the first seven*/) {
    __m128i all = load_half(b);
    ((all = _mm_blend_epi16(all, load_half(b + (34 - 2) * (kBefore + 1)), 1 << (kBefore + 1))), ...);
    return _mm256_cvtph_ps(all);
  }

  template <int kStreams>
  static HWY_INLINE void add(const uint8_t* const* b, const BlockRow& x, int64_t block, __m256* total) {
    const __m256 factors = _mm256_loadu_ps(x.first + 16 * block);
    alignas(32) float scales[kStreams][8];
    AA_UNROLL for (int s = 0; s < kStreams; ++s) {
      _mm256_store_ps(scales[s], _mm256_mul_ps(scales_of(b[s], std::make_integer_sequence<int, 7>()), factors));
    }
    AA_UNROLL for (int group = 0; group < 8; ++group) {
      const int8_t* at = x.values + 2 * (kBlock * block + 32 * group);
      const __m256i x0 = load_bytes(at), x1 = load_bytes(at + 32);
      AA_UNROLL for (int s = 0; s < kStreams; ++s) {
        const uint8_t* q = b[s] + 34 * group + 2;
        const __m256i first = _mm256_madd_epi16(_mm256_cvtepi8_epi16(load_half(q)), x0);
        const __m256i second = _mm256_madd_epi16(_mm256_cvtepi8_epi16(load_half(q + 16)), x1);
        total[s] = add_scaled(total[s], _mm256_add_epi32(first, second), &scales[s][group]);
      }
    }
  }
};

// Rounds k values of x to integers of 8 bits, or of 16 if Format::kFine, with a scale for each group of 32, into the
// arrays of a BlockRow. A group with a NaN or an infinity gets a NaN as its scale, so that every sum with it becomes
// NaN.
template <class Format>
void round_row_for(const float* x, int64_t k, int8_t* values, float* first, float* second) {
  for (int64_t block = 0; block < k / kBlock; ++block, first += 16, second += 16) {
    for (int group = 0; group < 8; ++group) {
      const float* from = x + block * kBlock + group * 32;
      const RoundedValues r = round_values(from, Format::kFine ? 127.0F * 256.0F : 127.0F);
      AA_UNROLL for (int half = 0; half < 2; ++half) {
        const __m256i wide = r.half_as_16_bits(half);
        if constexpr (Format::kFine) {
          int8_t* to = values + 2 * (block * kBlock + group * 32 + half * 16);
          _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), wide);
        } else {
          const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
          int8_t* to = values + block * kBlock;
          _mm_storeu_si64(to + Format::place(group, 2 * half), bytes);
          _mm_storeu_si64(to + Format::place(group, 2 * half + 1), _mm_unpackhi_epi64(bytes, bytes));
        }
      }
      Format::put_factors(first, second, group, r.scale, r.sums);
    }
  }
}

#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
