// Unpacks quantized weights for quantized_tile_products-inl.h: sixteen rows together, one group of 32 columns after
// another. Everything works on 64 bytes with a 32-bit lane (four values) for each of the sixteen rows: one vector with
// AVX-512, two with AVX2. Included after base/simd/highway.h, once per instruction set.
#include <array>
#include <cstdint>
#include <cstring>

#include "accelerators/cpu/kernels/vector-inl.h"

#if defined(ANYACCEL_CPU_KERNELS_QUANTIZED_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_QUANTIZED_TILES_INL_H_
#undef ANYACCEL_CPU_KERNELS_QUANTIZED_TILES_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_QUANTIZED_TILES_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#undef AA_HAS_QUANTIZED_TILES

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
#define AA_HAS_QUANTIZED_TILES 1

constexpr int64_t kTileGroup = 32;  // values of x that share a scale
constexpr int64_t kColumns = 16;    // rows of the weights that are unpacked together
constexpr int64_t kVector = 64;     // bytes

// Sixteen rows of weights at equal distances. Four pointers and two distances stay in registers and address them all; pointers to
// each row do not, and a compiler that keeps sixteen of them spends a third of the unpacking on it.
struct WeightRows {
  const uint8_t* fours[kColumns / 4];  // rows 0, 4, 8 and 12
  int64_t stride, three_strides;       // bytes

  WeightRows(const uint8_t* first, int64_t distance)
      : fours{first, first + 4 * distance, first + 8 * distance, first + 12 * distance},
        stride(distance),
        three_strides(3 * distance) {}
  HWY_INLINE const uint8_t* row(int r) const {
    const uint8_t* four = fours[r / 4];
    switch (r % 4) {
      case 0: return four;
      case 1: return four + stride;
      case 2: return four + 2 * stride;
      default: return four + three_strides;
    }
  }
  // Goes on by some bytes in each row.
  HWY_INLINE void advance(int64_t bytes) { AA_UNROLL for (const uint8_t*& four : fours) four += bytes; }
  // Begins a use of all rows. Hides from the compiler that the pointers are those of the use before, whose sixteen addresses it
  // would keep otherwise.
  HWY_INLINE void hold() {
    asm(""  // NOLINT(hicpp-no-assembler)
        : "+r"(fours[0]), "+r"(fours[1]), "+r"(fours[2]), "+r"(fours[3]), "+r"(stride), "+r"(three_strides));
  }
};

// ---- 64 bytes --------------------------------------------------------------------------------------------------------

#if HWY_TARGET == HWY_AVX3

using Ints = __m512i;  // lanes of 8, 16 or 32 bits
using Floats = __m512;

HWY_INLINE Ints bytes_of(int v) { return _mm512_set1_epi8(static_cast<char>(v)); }
HWY_INLINE Ints words_of(int v) { return _mm512_set1_epi32(v); }
HWY_INLINE Ints load_ints(const void* p) { return _mm512_load_si512(p); }
HWY_INLINE void store(uint8_t* p, Ints v) { _mm512_store_si512(p, v); }
HWY_INLINE void store(uint8_t* p, Floats v) { _mm512_store_ps(p, v); }
HWY_INLINE Ints both(Ints a, Ints b) { return _mm512_and_si512(a, b); }
HWY_INLINE Ints either(Ints a, Ints b) { return _mm512_or_si512(a, b); }
HWY_INLINE Ints one_of(Ints a, Ints b) { return _mm512_xor_si512(a, b); }
HWY_INLINE Ints left16(Ints v, unsigned by) { return _mm512_slli_epi16(v, by); }
HWY_INLINE Ints right16(Ints v, unsigned by) { return _mm512_srli_epi16(v, by); }
HWY_INLINE Ints left32(Ints v, unsigned by) { return _mm512_slli_epi32(v, by); }
HWY_INLINE Ints right32(Ints v, unsigned by) { return _mm512_srli_epi32(v, by); }
HWY_INLINE Ints right16_signed(Ints v, unsigned by) { return _mm512_srai_epi16(v, by); }
HWY_INLINE Ints right32_signed(Ints v, unsigned by) { return _mm512_srai_epi32(v, by); }
HWY_INLINE Ints subtract32(Ints a, Ints b) { return _mm512_sub_epi32(a, b); }
HWY_INLINE Ints multiply32(Ints a, Ints b) { return _mm512_mullo_epi32(a, b); }
HWY_INLINE Ints multiply16(Ints a, int b) { return _mm512_mullo_epi16(a, _mm512_set1_epi16(static_cast<int16_t>(b))); }
HWY_INLINE Floats floats_of(Ints v) { return _mm512_cvtepi32_ps(v); }
HWY_INLINE Floats multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
HWY_INLINE Floats negative(Floats v) { return _mm512_sub_ps(_mm512_setzero_ps(), v); }
// Looks up each byte, which is at most 15, in a table of 16 bytes.
HWY_INLINE Ints choose(__m128i table, Ints v) { return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), v); }
// 16 in each byte that has bit number `bit`.
HWY_INLINE Ints sixteen_where(Ints v, int bit) {
  const __mmask64 set = _mm512_test_epi8_mask(v, _mm512_set1_epi8(static_cast<char>(1 << bit)));
  return _mm512_maskz_set1_epi8(set, 16);
}
// The lower half of each word as a number of 16 bits.
HWY_INLINE Floats lower_half(Ints words) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words)); }
// 2^(e - 128) for each word; the results of e = 0 and e = 1 are subnormal.
HWY_INLINE Floats power_of_two(Ints e) {
  const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
  const __m512i least = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
  const __mmask16 is_least = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
  return _mm512_castsi512_ps(_mm512_mask_blend_epi32(is_least, normal, least));
}

// Gathers the 16 bytes at rows.row(r) + at of 16 rows: 32-bit lane r of out[j] has bytes 4 * j to 4 * j + 3 of row r.
HWY_INLINE void gather16(WeightRows& rows, int64_t at, Ints* out) {
  rows.hold();
  __m512i four[4];  // rows i, i + 4, i + 8, i + 12
  AA_UNROLL for (int i = 0; i < 4; ++i) {
    const auto load = [&](int r)
                          HWY_ATTR { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows.row(r) + at)); };
    const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(load(i)), load(i + 4), 1);
    const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(load(i + 8)), load(i + 12), 1);
    four[i] = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }
  const __m512i a = _mm512_unpacklo_epi32(four[0], four[1]), b = _mm512_unpacklo_epi32(four[2], four[3]);
  const __m512i c = _mm512_unpackhi_epi32(four[0], four[1]), d = _mm512_unpackhi_epi32(four[2], four[3]);
  out[0] = _mm512_unpacklo_epi64(a, b);
  out[1] = _mm512_unpackhi_epi64(a, b);
  out[2] = _mm512_unpacklo_epi64(c, d);
  out[3] = _mm512_unpackhi_epi64(c, d);
}

#else

struct Ints {
  __m256i v[2];
};
struct Floats {
  __m256 v[2];
};

HWY_INLINE Ints twice(__m256i v) { return {{v, v}}; }
HWY_INLINE Ints bytes_of(int v) { return twice(_mm256_set1_epi8(static_cast<char>(v))); }
HWY_INLINE Ints words_of(int v) { return twice(_mm256_set1_epi32(v)); }
HWY_INLINE Ints load_ints(const void* p) {
  const auto* at = static_cast<const __m256i*>(p);
  return {{_mm256_load_si256(at), _mm256_load_si256(at + 1)}};
}
HWY_INLINE void store(uint8_t* p, Ints v) {
  _mm256_store_si256(reinterpret_cast<__m256i*>(p), v.v[0]);
  _mm256_store_si256(reinterpret_cast<__m256i*>(p) + 1, v.v[1]);
}
HWY_INLINE void store(uint8_t* p, Floats v) {
  _mm256_store_ps(reinterpret_cast<float*>(p), v.v[0]);
  _mm256_store_ps(reinterpret_cast<float*>(p) + 8, v.v[1]);
}
HWY_INLINE Ints both(Ints a, Ints b) { return {{_mm256_and_si256(a.v[0], b.v[0]), _mm256_and_si256(a.v[1], b.v[1])}}; }
HWY_INLINE Ints either(Ints a, Ints b) { return {{_mm256_or_si256(a.v[0], b.v[0]), _mm256_or_si256(a.v[1], b.v[1])}}; }
HWY_INLINE Ints one_of(Ints a, Ints b) {
  return {{_mm256_xor_si256(a.v[0], b.v[0]), _mm256_xor_si256(a.v[1], b.v[1])}};
}
HWY_INLINE Ints left16(Ints v, unsigned by) {
  return {{_mm256_slli_epi16(v.v[0], static_cast<int>(by)), _mm256_slli_epi16(v.v[1], static_cast<int>(by))}};
}
HWY_INLINE Ints right16(Ints v, unsigned by) {
  return {{_mm256_srli_epi16(v.v[0], static_cast<int>(by)), _mm256_srli_epi16(v.v[1], static_cast<int>(by))}};
}
HWY_INLINE Ints right16_signed(Ints v, unsigned by) {
  return {{_mm256_srai_epi16(v.v[0], static_cast<int>(by)), _mm256_srai_epi16(v.v[1], static_cast<int>(by))}};
}
HWY_INLINE Ints left32(Ints v, unsigned by) {
  return {{_mm256_slli_epi32(v.v[0], static_cast<int>(by)), _mm256_slli_epi32(v.v[1], static_cast<int>(by))}};
}
HWY_INLINE Ints right32(Ints v, unsigned by) {
  return {{_mm256_srli_epi32(v.v[0], static_cast<int>(by)), _mm256_srli_epi32(v.v[1], static_cast<int>(by))}};
}
HWY_INLINE Ints right32_signed(Ints v, unsigned by) {
  return {{_mm256_srai_epi32(v.v[0], static_cast<int>(by)), _mm256_srai_epi32(v.v[1], static_cast<int>(by))}};
}
HWY_INLINE Ints subtract32(Ints a, Ints b) {
  return {{_mm256_sub_epi32(a.v[0], b.v[0]), _mm256_sub_epi32(a.v[1], b.v[1])}};
}
HWY_INLINE Ints multiply32(Ints a, Ints b) {
  return {{_mm256_mullo_epi32(a.v[0], b.v[0]), _mm256_mullo_epi32(a.v[1], b.v[1])}};
}
HWY_INLINE Ints multiply16(Ints a, int b) {
  const __m256i factor = _mm256_set1_epi16(static_cast<int16_t>(b));
  return {{_mm256_mullo_epi16(a.v[0], factor), _mm256_mullo_epi16(a.v[1], factor)}};
}
HWY_INLINE Floats floats_of(Ints v) { return {{_mm256_cvtepi32_ps(v.v[0]), _mm256_cvtepi32_ps(v.v[1])}}; }
HWY_INLINE Floats multiply(Floats a, Floats b) {
  return {{_mm256_mul_ps(a.v[0], b.v[0]), _mm256_mul_ps(a.v[1], b.v[1])}};
}
HWY_INLINE Floats negative(Floats v) {
  return {{_mm256_sub_ps(_mm256_setzero_ps(), v.v[0]), _mm256_sub_ps(_mm256_setzero_ps(), v.v[1])}};
}
HWY_INLINE Ints choose(__m128i table, Ints v) {
  const __m256i both_tables = _mm256_broadcastsi128_si256(table);
  return {{_mm256_shuffle_epi8(both_tables, v.v[0]), _mm256_shuffle_epi8(both_tables, v.v[1])}};
}
HWY_INLINE Ints sixteen_where(Ints v, int bit) {
  const Ints of_bit = bytes_of(1 << bit), set = both(v, of_bit);
  const Ints equal = {{_mm256_cmpeq_epi8(set.v[0], of_bit.v[0]), _mm256_cmpeq_epi8(set.v[1], of_bit.v[1])}};
  return both(equal, bytes_of(16));
}
HWY_INLINE __m256 lower_half(__m256i words) {
  const __m256i lower = _mm256_and_si256(words, _mm256_set1_epi32(0xffff));
  const __m256i halves = _mm256_permute4x64_epi64(_mm256_packus_epi32(lower, lower), 0b1000);
  return _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
}
HWY_INLINE Floats lower_half(Ints words) { return {{lower_half(words.v[0]), lower_half(words.v[1])}}; }
HWY_INLINE __m256 power_of_two(__m256i e) {
  const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
  const __m256i least = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
  return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, least, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
}
HWY_INLINE Floats power_of_two(Ints e) { return {{power_of_two(e.v[0]), power_of_two(e.v[1])}}; }

HWY_INLINE void gather16(WeightRows& rows, int64_t at, Ints* out) {
  rows.hold();
  AA_UNROLL for (int part = 0; part < 2; ++part) {
    __m256i two[4];  // rows i, i + 4
    AA_UNROLL for (int i = 0; i < 4; ++i) {
      const auto load = [&](int r) HWY_ATTR {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows.row(8 * part + r) + at));
      };
      two[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(load(i)), load(i + 4), 1);
    }
    const __m256i a = _mm256_unpacklo_epi32(two[0], two[1]), b = _mm256_unpacklo_epi32(two[2], two[3]);
    const __m256i c = _mm256_unpackhi_epi32(two[0], two[1]), d = _mm256_unpackhi_epi32(two[2], two[3]);
    out[0].v[part] = _mm256_unpacklo_epi64(a, b);
    out[1].v[part] = _mm256_unpackhi_epi64(a, b);
    out[2].v[part] = _mm256_unpacklo_epi64(c, d);
    out[3].v[part] = _mm256_unpackhi_epi64(c, d);
  }
}

#endif

HWY_INLINE Floats upper_half(Ints words) { return lower_half(right32(words, 16)); }
// Byte `number` of each of 16 words, without or with a sign.
HWY_INLINE Floats byte_of(Ints words, unsigned number) {
  return floats_of(both(right32(words, 8 * number), words_of(255)));
}
HWY_INLINE Floats signed_byte_of(Ints words, unsigned number) {
  return floats_of(right32_signed(left32(words, 24 - 8 * number), 24));
}
HWY_INLINE Ints shift_right(Ints v, unsigned by, int mask) { return both(right16(v, by), bytes_of(mask)); }

// ---- formats ---------------------------------------------------------------------------------------------------------

// The structs of the formats, whose layouts aa_block_format describes, have the same members:
//   kValues, kBytes         Values and bytes of a block.
//   kScales                 Scales of a group of 32 values: 1, or 2, one for each half.
//   kZero, kMost, kOffsets  A weight is scale * (value - kZero), or scale * value + offset if kOffsets, with as many offsets as
//                           scales; values are 0 to kMost.
//   kFiner                  Whether x has 16 bits, because rounding it to 8 would cause most of the error.
//   kWordsAt                Offsets in a block of the 32-bit words that unpack() takes from `words`.
//   unpack()                Takes the block at each of `rows` and writes its groups one after another: eight vectors of values,
//                           kScales vectors of scales, and as many of offsets if kOffsets.

// Without VNNI, two products of bytes are added in signed 16 bits. Formats whose values are too large for that are
// unpacked to signed 16-bit values, with kZero, which is 128 then, already subtracted. Four consecutive values become
// two vectors: the first and the third, then the second and the fourth.
template <class Format>
constexpr bool kIn16Bits = (HWY_TARGET == HWY_AVX2) && Format::kMost > 64;

template <class Format>
constexpr int64_t kScalesAt = (kIn16Bits<Format> ? 16 : 8) * kVector;
template <class Format>
constexpr int64_t kGroupBytes = kScalesAt<Format> + Format::kScales*(Format::kOffsets ? 2 : 1) * kVector;

template <class Format>
HWY_INLINE void store_scale(uint8_t* group, unsigned number, Floats scales) {
  store(group + kScalesAt<Format> + number * kVector, scales);
}
// Stores the values 4 * j to 4 * j + 3 of a group.
template <class Format>
HWY_INLINE void store_values(uint8_t* group, int j, Ints values) {
  if constexpr (kIn16Bits<Format>) {
    static_assert(Format::kZero == 128);
    const Ints with_signs = one_of(values, bytes_of(128));
    store(group + 2 * j * kVector, right16_signed(left16(with_signs, 8), 8));
    store(group + (2 * j + 1) * kVector, right16_signed(with_signs, 8));
  } else {
    store(group + j * kVector, values);
  }
}

// Word number `number` of kWordsAt, of each row.
HWY_INLINE Ints word(const uint32_t* words, int number) { return load_ints(words + number * kColumns); }

// Unpacks a group of 32 values of 4 bits in 16 bytes, whose low nibbles are the first 16 values. change(q, j) turns the
// nibbles of values 4 * j to 4 * j + 3 into values.
template <class Format, class Change>
HWY_INLINE void store_nibbles(WeightRows& rows, int64_t at, uint8_t* to, Change change) {
  Ints bytes[4];
  gather16(rows, at, bytes);
  AA_UNROLL for (int j = 0; j < 4; ++j) {
    store_values<Format>(to, j, change(both(bytes[j], bytes_of(15)), j));
    store_values<Format>(to, j + 4, change(shift_right(bytes[j], 4, 15), j + 4));
  }
}
// Bits 4 * j to 4 * j + 3 of each 32-bit lane, as 16 or 0 in the four bytes of the lane. The multiplication copies the
// four bits to distances of 7, so that bit i is found at bit 8 * i.
HWY_INLINE Ints four_fifth_bits(Ints bits, unsigned j) {
  const Ints spread = multiply32(both(right32(bits, 4 * j), words_of(15)), words_of(0x00204081));
  return left32(both(spread, words_of(0x01010101)), 4);
}

struct TileQ4_0 {
  static constexpr int64_t kValues = 32, kBytes = 18;
  static constexpr int kScales = 1, kZero = 8, kMost = 15;
  static constexpr bool kOffsets = false, kFiner = false;
  static constexpr std::array<int64_t, 1> kWordsAt = {0};
  static HWY_INLINE void unpack(WeightRows& rows, const uint32_t* words, uint8_t* to) {
    store_nibbles<TileQ4_0>(rows, 2, to, [](Ints q, int /*j*/) HWY_ATTR { return q; });
    store_scale<TileQ4_0>(to, 0, lower_half(word(words, 0)));
  }
};
struct TileQ4_1 {
  static constexpr int64_t kValues = 32, kBytes = 20;
  static constexpr int kScales = 1, kZero = 0, kMost = 15;
  static constexpr bool kOffsets = true, kFiner = false;
  static constexpr std::array<int64_t, 1> kWordsAt = {0};
  static HWY_INLINE void unpack(WeightRows& rows, const uint32_t* words, uint8_t* to) {
    store_nibbles<TileQ4_1>(rows, 4, to, [](Ints q, int /*j*/) HWY_ATTR { return q; });
    const Ints d_and_m = word(words, 0);
    store_scale<TileQ4_1>(to, 0, lower_half(d_and_m));
    store_scale<TileQ4_1>(to, 1, upper_half(d_and_m));
  }
};
struct TileQ5_0 {
  static constexpr int64_t kValues = 32, kBytes = 22;
  static constexpr int kScales = 1, kZero = 16, kMost = 31;
  static constexpr bool kOffsets = false, kFiner = false;
  static constexpr std::array<int64_t, 2> kWordsAt = {0, 2};
  static HWY_INLINE void unpack(WeightRows& rows, const uint32_t* words, uint8_t* to) {
    const Ints bits = word(words, 1);
    store_nibbles<TileQ5_0>(rows, 6, to, [&](Ints q, int j) HWY_ATTR {
      return either(q, four_fifth_bits(bits, static_cast<unsigned>(j)));
    });
    store_scale<TileQ5_0>(to, 0, lower_half(word(words, 0)));
  }
};
struct TileQ5_1 {
  static constexpr int64_t kValues = 32, kBytes = 24;
  static constexpr int kScales = 1, kZero = 0, kMost = 31;
  static constexpr bool kOffsets = true, kFiner = false;
  static constexpr std::array<int64_t, 2> kWordsAt = {0, 4};
  static HWY_INLINE void unpack(WeightRows& rows, const uint32_t* words, uint8_t* to) {
    const Ints bits = word(words, 1);
    store_nibbles<TileQ5_1>(rows, 8, to, [&](Ints q, int j) HWY_ATTR {
      return either(q, four_fifth_bits(bits, static_cast<unsigned>(j)));
    });
    const Ints d_and_m = word(words, 0);
    store_scale<TileQ5_1>(to, 0, lower_half(d_and_m));
    store_scale<TileQ5_1>(to, 1, upper_half(d_and_m));
  }
};
struct TileQ8_0 {
  static constexpr int64_t kValues = 32, kBytes = 34;
  static constexpr int kScales = 1, kZero = 128, kMost = 255;
  static constexpr bool kOffsets = false, kFiner = true;
  static constexpr std::array<int64_t, 1> kWordsAt = {0};
  static HWY_INLINE void unpack(WeightRows& rows, const uint32_t* words, uint8_t* to) {
    Ints bytes[8];
    gather16(rows, 2, bytes);
    gather16(rows, 18, bytes + 4);
    AA_UNROLL for (int j = 0; j < 8; ++j) { store_values<TileQ8_0>(to, j, one_of(bytes[j], bytes_of(128))); }
    store_scale<TileQ8_0>(to, 0, lower_half(word(words, 0)));
  }
};
// The 16 values of the formats IQ4, with 128 added.
HWY_INLINE Ints iq4_of(Ints indices) {
  const __m128i table = _mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, static_cast<char>(129), static_cast<char>(141),
                                      static_cast<char>(153), static_cast<char>(166), static_cast<char>(181),
                                      static_cast<char>(197), static_cast<char>(217), static_cast<char>(241));
  return choose(table, indices);
}
struct TileIq4Nl {
  static constexpr int64_t kValues = 32, kBytes = 18;
  static constexpr int kScales = 1, kZero = 128, kMost = 241;
  static constexpr bool kOffsets = false, kFiner = false;
  static constexpr std::array<int64_t, 1> kWordsAt = {0};
  static HWY_INLINE void unpack(WeightRows& rows, const uint32_t* words, uint8_t* to) {
    store_nibbles<TileIq4Nl>(rows, 2, to, [](Ints q, int /*j*/) HWY_ATTR { return iq4_of(q); });
    store_scale<TileIq4Nl>(to, 0, lower_half(word(words, 0)));
  }
};
struct TileMxfp4 {
  static constexpr int64_t kValues = 32, kBytes = 17;
  static constexpr int kScales = 1, kZero = 12, kMost = 24;
  static constexpr bool kOffsets = false, kFiner = false;
  static constexpr std::array<int64_t, 1> kWordsAt = {0};
  static HWY_INLINE void unpack(WeightRows& rows, const uint32_t* words, uint8_t* to) {
    const __m128i table = _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
    store_nibbles<TileMxfp4>(rows, 1, to, [&](Ints q, int /*j*/) HWY_ATTR { return choose(table, q); });
    store_scale<TileMxfp4>(to, 0, power_of_two(both(word(words, 0), words_of(255))));
  }
};

#else
#define AA_HAS_QUANTIZED_TILES 0
#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
