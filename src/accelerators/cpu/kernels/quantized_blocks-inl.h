// Unpacks blocks of quantized weights to vectors of bytes, for AVX2 and AVX-512. There is a struct for each format,
// whose add() unpacks a block and passes each group of 32 values, with its scale, to a receiver: Decoded below, which writes the
// values as fp32, or DecodedTiles of quantized_unit_weights-inl.h. Included after base/simd/highway.h, once per instruction set.
#include <bit>
#include <cstdint>
#include <cstring>

#if defined(ANYACCEL_CPU_KERNELS_QUANTIZED_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_QUANTIZED_BLOCKS_INL_H_
#undef ANYACCEL_CPU_KERNELS_QUANTIZED_BLOCKS_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_QUANTIZED_BLOCKS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

constexpr int64_t kGroup = 32;  // values that are passed on together

#undef AA_DECODES_BLOCKS

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
#define AA_DECODES_BLOCKS 1

HWY_INLINE __m256i load32(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
HWY_INLINE float half_at(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return _cvtsh_ss(bits);
}

// The 32 nibbles of 16 bytes as bytes: the low ones, then the high ones.
HWY_INLINE __m256i nibbles(const uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(bytes), _mm_srli_epi16(bytes, 4), 1);
  return _mm256_and_si256(both, _mm256_set1_epi8(15));
}

// Byte i is 16 if bit i of the 32 bits at p is set, else 0.
HWY_INLINE __m256i fifth_bits(const uint8_t* p) {
  int32_t bits;
  std::memcpy(&bits, p, sizeof bits);
  const __m256i spread = _mm256_shuffle_epi8(
      _mm256_set1_epi32(bits),
      _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3));
  const __m256i mask = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201u));
  const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, mask), mask);
  return _mm256_and_si256(set, _mm256_set1_epi8(16));
}

// The formats, whose layouts aa_block_format describes. add() takes the block at b, whose first group is g.
struct Q4_0 {
  static constexpr int64_t kValues = 32, kBytes = 18;
  template <class S>
  static HWY_INLINE void add(S& to, const uint8_t* b, int64_t g) {
    const float d = half_at(b);
    to.add(g, nibbles(b + 2), d, -8 * d);
  }
};
struct Q4_1 {
  static constexpr int64_t kValues = 32, kBytes = 20;
  template <class S>
  static HWY_INLINE void add(S& to, const uint8_t* b, int64_t g) {
    to.add(g, nibbles(b + 4), half_at(b), half_at(b + 2));
  }
};
struct Q5_0 {
  static constexpr int64_t kValues = 32, kBytes = 22;
  template <class S>
  static HWY_INLINE void add(S& to, const uint8_t* b, int64_t g) {
    const float d = half_at(b);
    to.add(g, _mm256_or_si256(nibbles(b + 6), fifth_bits(b + 2)), d, -16 * d);
  }
};
struct Q5_1 {
  static constexpr int64_t kValues = 32, kBytes = 24;
  template <class S>
  static HWY_INLINE void add(S& to, const uint8_t* b, int64_t g) {
    to.add(g, _mm256_or_si256(nibbles(b + 8), fifth_bits(b + 4)), half_at(b), half_at(b + 2));
  }
};
struct Q8_0 {
  static constexpr int64_t kValues = 32, kBytes = 34;
  template <class S>
  static HWY_INLINE void add(S& to, const uint8_t* b, int64_t g) {
    to.add(g, load32(b + 2), half_at(b));
  }
};
HWY_INLINE __m256i look_up(__m256i indices, __m128i table) {
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), indices);
}
HWY_INLINE __m128i iq4_table() {
  return _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
}
// The scale of a block of MXFP4, 2^(e - 128). std::ldexp() takes as long as the products of the block.
inline float mxfp4_scale(uint8_t e) {
  return std::bit_cast<float>(e < 2 ? uint32_t{0x00200000} << e : (e - uint32_t{1}) << 23);
}
HWY_INLINE __m128i mxfp4_table() { return _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12); }
struct Iq4Nl {
  static constexpr int64_t kValues = 32, kBytes = 18;
  template <class S>
  static HWY_INLINE void add(S& to, const uint8_t* b, int64_t g) {
    const float d = half_at(b);
    to.add(g, look_up(nibbles(b + 2), iq4_table()), d);
  }
};
struct Mxfp4 {
  static constexpr int64_t kValues = 32, kBytes = 17;
  template <class S>
  static HWY_INLINE void add(S& to, const uint8_t* b, int64_t g) {
    const float d = mxfp4_scale(b[0]);
    to.add(g, look_up(nibbles(b + 1), mxfp4_table()), d);
  }
};

// The 8 scales, then the 8 minima, of a block of Q4_K or Q5_K as bytes; s points to their 12 packed bytes.
HWY_INLINE __m128i scales_and_minima(const uint8_t* s) {
  uint32_t a, b, c;
  std::memcpy(&a, s, 4);
  std::memcpy(&b, s + 4, 4);
  std::memcpy(&c, s + 8, 4);
  const uint32_t scales1 = (c & 0x0f0f0f0fu) | (a >> 6 & 0x03030303u) << 4;
  const uint32_t minima1 = (c >> 4 & 0x0f0f0f0fu) | (b >> 6 & 0x03030303u) << 4;
  return _mm_setr_epi32(static_cast<int>(a & 0x3f3f3f3fu), static_cast<int>(scales1), static_cast<int>(b & 0x3f3f3f3fu),
                        static_cast<int>(minima1));
}
template <bool kFifth>
struct Q4OrQ5K {
  static constexpr int64_t kValues = 256, kBytes = kFifth ? 176 : 144;
  template <class S>
  static HWY_INLINE void add(S& to, const uint8_t* b, int64_t g) {
    const __m128i bytes = scales_and_minima(b + 4);
    const auto floats_of = [](__m128i of) HWY_ATTR { return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(of)); };
    to.begin_block(_mm256_mul_ps(_mm256_set1_ps(half_at(b)), floats_of(bytes)),
                   _mm256_mul_ps(_mm256_set1_ps(-half_at(b + 2)), floats_of(_mm_srli_si128(bytes, 8))));
    const __m256i low_half = _mm256_set1_epi8(15);
    AA_UNROLL for (int pair = 0; pair < 4; ++pair) {
      const __m256i both = load32(b + (kFifth ? 48 : 16) + 32 * pair);
      __m256i first = _mm256_and_si256(both, low_half);
      __m256i second = _mm256_and_si256(_mm256_srli_epi16(both, 4), low_half);
      if constexpr (kFifth) {
        const __m256i high = load32(b + 16), bit = _mm256_set1_epi8(16);
        const __m256i of_first = _mm256_set1_epi8(static_cast<char>(1 << (2 * pair)));
        const __m256i of_second = _mm256_set1_epi8(static_cast<char>(1 << (2 * pair + 1)));
        const auto fifth = [&](__m256i mask) HWY_ATTR {
          return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(high, mask), mask), bit);
        };
        first = _mm256_or_si256(first, fifth(of_first));
        second = _mm256_or_si256(second, fifth(of_second));
      }
      to.add_of_block(g, 2 * pair, first);
      to.add_of_block(g, 2 * pair + 1, second);
    }
  }
};
// The pairs of bits of group i of a block, from bit 0 of each byte on, of the 64 bytes at p.
HWY_INLINE __m256i pairs_of_bits(const uint8_t* p, int i) {
  return _mm256_and_si256(_mm256_srli_epi16(load32(p + 32 * (i / 4)), 2 * (i % 4)), _mm256_set1_epi8(3));
}
// Of 16 numbers, of which v[0] has the first eight: those of the halves of group i, in the halves of a vector.
HWY_INLINE __m256 of_halves(const __m256* v, int i) {
  const int first = 2 * (i % 4);
  return _mm256_permutevar8x32_ps(
      v[i / 4], _mm256_setr_epi32(first, first, first, first, first + 1, first + 1, first + 1, first + 1));
}
struct Q2K {
  static constexpr int64_t kValues = 256, kBytes = 84;
  template <class S>
  static HWY_INLINE void add(S& to, const uint8_t* b, int64_t g) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(b)), low_half = _mm_set1_epi8(15);
    const __m256 d = _mm256_set1_ps(half_at(b + 80)), minus_m = _mm256_set1_ps(-half_at(b + 82));
    const auto times = [](__m256 factor, __m128i of)
                           HWY_ATTR { return _mm256_mul_ps(factor, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(of))); };
    const __m128i of_scales = _mm_and_si128(bytes, low_half);
    const __m128i of_minima = _mm_and_si128(_mm_srli_epi16(bytes, 4), low_half);
    const __m256 scales[2] = {times(d, of_scales), times(d, _mm_srli_si128(of_scales, 8))};
    const __m256 offsets[2] = {times(minus_m, of_minima), times(minus_m, _mm_srli_si128(of_minima, 8))};
    AA_UNROLL for (int i = 0; i < 8; ++i) {
      to.add_halves(g + i, pairs_of_bits(b + 16, i), of_halves(scales, i), of_halves(offsets, i));
    }
  }
};
struct Q3K {
  static constexpr int64_t kValues = 256, kBytes = 110;
  template <class S>
  static HWY_INLINE void add(S& to, const uint8_t* b, int64_t g) {
    uint32_t low[2], high;
    std::memcpy(low, b + 96, sizeof low);
    std::memcpy(&high, b + 104, sizeof high);
    const auto six_bits = [&](int i) {  // scales 4 * i to 4 * i + 3
      return static_cast<int>((low[i % 2] >> 4 * (i / 2) & 0x0f0f0f0fu) | (high >> 2 * i & 0x03030303u) << 4);
    };
    const __m128i bytes =
        _mm_sub_epi8(_mm_setr_epi32(six_bits(0), six_bits(1), six_bits(2), six_bits(3)), _mm_set1_epi8(32));
    const __m256 scales[2] = {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
                              _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
    to.begin_block(_mm256_set1_ps(half_at(b + 108)), _mm256_setzero_ps());
    const __m256i bits = load32(b), four = _mm256_set1_epi8(4);
    AA_UNROLL for (int i = 0; i < 8; ++i) {
      const __m256i third = i < 2 ? _mm256_slli_epi16(bits, 2 - i) : _mm256_srli_epi16(bits, i - 2);
      const __m256i q = _mm256_or_si256(pairs_of_bits(b + 32, i), _mm256_and_si256(third, four));
      to.add_signed_of_block(g, i, _mm256_sub_epi8(q, four), of_halves(scales, i));
    }
  }
};
struct Q6K {
  static constexpr int64_t kValues = 256, kBytes = 210;
  template <class S>
  static HWY_INLINE void add(S& to, const uint8_t* b, int64_t g) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(b + 192));
    const __m256 scales[2] = {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
                              _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
    to.begin_block(_mm256_set1_ps(half_at(b + 208)), _mm256_setzero_ps());
    AA_UNROLL for (int i = 0; i < 8; ++i) {
      const int half = i / 4, of_half = i % 4;
      const __m256i low = load32(b + 64 * half + of_half % 2 * 32);
      const __m256i high = _mm256_srli_epi16(load32(b + 128 + 32 * half), 2 * of_half);
      const __m256i q =
          _mm256_or_si256(_mm256_and_si256(of_half < 2 ? low : _mm256_srli_epi16(low, 4), _mm256_set1_epi8(15)),
                          _mm256_slli_epi16(_mm256_and_si256(high, _mm256_set1_epi8(3)), 4));
      to.add_signed_of_block(g, i, _mm256_sub_epi8(q, _mm256_set1_epi8(32)), of_halves(scales, i));
    }
  }
};
// The scales of the eight groups of a block of IQ4_XS. Scale j has its low four bits in nibble j of bytes 4 to 7, and two more bits
// in pair j of bytes 2 and 3.
HWY_INLINE __m256 iq4_xs_scales(const uint8_t* b) {
  int32_t d_and_high, low;
  std::memcpy(&d_and_high, b, sizeof d_and_high);
  std::memcpy(&low, b + 4, sizeof low);
  const __m256i four = _mm256_and_si256(
      _mm256_srlv_epi32(_mm256_set1_epi32(low), _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28)), _mm256_set1_epi32(15));
  const __m256i two = _mm256_and_si256(
      _mm256_srlv_epi32(_mm256_set1_epi32(d_and_high), _mm256_setr_epi32(12, 14, 16, 18, 20, 22, 24, 26)),
      _mm256_set1_epi32(0x30));
  const __m256 d = _mm256_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(d_and_high)));
  return _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_or_si256(four, two), _mm256_set1_epi32(32))));
}
struct Iq4Xs {
  static constexpr int64_t kValues = 256, kBytes = 136;
  template <class S>
  static HWY_INLINE void add(S& to, const uint8_t* b, int64_t g) {
    to.begin_block(iq4_xs_scales(b), _mm256_setzero_ps());
    AA_UNROLL for (int i = 0; i < 8; ++i) to.add_of_block(g, i, look_up(nibbles(b + 8 + 16 * i), iq4_table()));
  }
};

// The digits of group kGroup of a block of TQ1_0: (b * power % 256) * 3 >> 8 of bytes b, with powers of 3. Groups 0 to 4 are digits
// of the first 32 bytes. The next 16 bytes have five digits, halves of the groups 5 and 6 and the first half of group 7, whose second
// half is four digits of four bytes.
template <int kGroup>
HWY_INLINE __m256i ternary_digits(const uint8_t* block) {
  const auto halves = [](__m128i first, __m128i second)
                          HWY_ATTR { return _mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1); };
  __m256i bytes, power;
  if constexpr (kGroup < 5) {
    constexpr int16_t kPowers[5] = {1, 3, 9, 27, 81};
    bytes = load32(block);
    power = _mm256_set1_epi16(kPowers[kGroup]);
  } else {
    const __m128i sixteen = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 32));
    if constexpr (kGroup < 7) {
      bytes = halves(sixteen, sixteen);
      power =
          kGroup == 5 ? halves(_mm_set1_epi16(1), _mm_set1_epi16(3)) : halves(_mm_set1_epi16(9), _mm_set1_epi16(27));
    } else {
      int32_t four;
      std::memcpy(&four, block + 48, sizeof four);
      bytes = halves(sixteen, _mm_set1_epi32(four));
      power = halves(_mm_set1_epi16(81), _mm_setr_epi16(1, 1, 3, 3, 9, 9, 27, 27));
    }
  }
  const __m256i lower = _mm256_set1_epi16(0xff), three = _mm256_set1_epi16(3);
  const __m256i even = _mm256_and_si256(_mm256_mullo_epi16(bytes, power), lower);
  const __m256i odd = _mm256_srli_epi16(_mm256_mullo_epi16(_mm256_andnot_si256(lower, bytes), power), 8);
  return _mm256_or_si256(_mm256_srli_epi16(_mm256_mullo_epi16(even, three), 8),
                         _mm256_andnot_si256(lower, _mm256_mullo_epi16(odd, three)));
}
struct Tq1_0 {
  static constexpr int64_t kValues = 256, kBytes = 54;
  template <class S>
  static HWY_INLINE void add(S& to, const uint8_t* b, int64_t g) {
    to.begin_block(_mm256_set1_ps(half_at(b + 52)), _mm256_setzero_ps());
    const auto add_group = [&]<int kGroup>() HWY_ATTR {
      const __m256i digits = ternary_digits<kGroup>(b);
      to.add_signed_of_block(g, kGroup, _mm256_sub_epi8(digits, _mm256_set1_epi8(1)), _mm256_set1_ps(1));
    };
    add_group.template operator()<0>();
    add_group.template operator()<1>();
    add_group.template operator()<2>();
    add_group.template operator()<3>();
    add_group.template operator()<4>();
    add_group.template operator()<5>();
    add_group.template operator()<6>();
    add_group.template operator()<7>();
  }
};
struct Tq2_0 {
  static constexpr int64_t kValues = 256, kBytes = 66;
  template <class S>
  static HWY_INLINE void add(S& to, const uint8_t* b, int64_t g) {
    to.begin_block(_mm256_set1_ps(half_at(b + 64)), _mm256_setzero_ps());
    AA_UNROLL for (int i = 0; i < 8; ++i) {
      to.add_signed_of_block(g, i, _mm256_sub_epi8(pairs_of_bits(b, i), _mm256_set1_epi8(1)), _mm256_set1_ps(1));
    }
  }
};

// The receiver that stores the values of a row as fp32. `q` has signed bytes.
struct Decoded {
  float* values;
  __m256 block_scales = _mm256_setzero_ps();
  __m256 block_offsets = _mm256_setzero_ps();

  // Group g is scale * q + offset.
  HWY_INLINE void add(int64_t g, __m256i q, float scale, float offset = 0) const {
    store(g, q, _mm256_set1_ps(scale), _mm256_set1_ps(scale), _mm256_set1_ps(offset), _mm256_set1_ps(offset));
  }
  // The same with two scales and two offsets: the lower half of each vector is for the first 16 values, the upper for the last 16.
  HWY_INLINE void add_halves(int64_t g, __m256i q, __m256 scales, __m256 offsets) const {
    store(g, q, lower(scales), upper(scales), lower(offsets), upper(offsets));
  }
  // Sets a scale and an offset for each of the eight groups of a block.
  HWY_INLINE void begin_block(__m256 of_scales, __m256 of_offsets) {
    block_scales = of_scales;
    block_offsets = of_offsets;
  }
  // Group g + i is q times scale i of the block plus offset i.
  HWY_INLINE void add_of_block(int64_t g, int i, __m256i q) const {
    const __m256i pick = _mm256_set1_epi32(i);
    const __m256 scale = _mm256_permutevar8x32_ps(block_scales, pick);
    const __m256 offset = _mm256_permutevar8x32_ps(block_offsets, pick);
    store(g + i, q, scale, scale, offset, offset);
  }
  // Group g + i is q times scale i of the block, times further factors for its halves.
  HWY_INLINE void add_signed_of_block(int64_t g, int i, __m256i q, __m256 both) const {
    const __m256 scale = _mm256_mul_ps(both, _mm256_permutevar8x32_ps(block_scales, _mm256_set1_epi32(i)));
    store(g + i, q, lower(scale), upper(scale), _mm256_setzero_ps(), _mm256_setzero_ps());
  }

 private:
  static HWY_INLINE __m256 floats(__m128i bytes) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)); }
  template <int kPart>
  static HWY_INLINE __m128i quarter(__m256i q) {
    const __m128i half = _mm256_extracti128_si256(q, kPart / 2);
    return kPart % 2 == 0 ? half : _mm_srli_si128(half, 8);
  }
  static HWY_INLINE __m256 lower(__m256 v) { return _mm256_permute2f128_ps(v, v, 0x00); }
  static HWY_INLINE __m256 upper(__m256 v) { return _mm256_permute2f128_ps(v, v, 0x11); }
  // first and second: what the first and the last 16 values have.
  HWY_INLINE void store(int64_t g, __m256i q, __m256 first_scale, __m256 second_scale, __m256 first_offset,
                        __m256 second_offset) const {
    float* p = values + g * kGroup;
    _mm256_storeu_ps(p, _mm256_fmadd_ps(floats(quarter<0>(q)), first_scale, first_offset));
    _mm256_storeu_ps(p + 8, _mm256_fmadd_ps(floats(quarter<1>(q)), first_scale, first_offset));
    _mm256_storeu_ps(p + 16, _mm256_fmadd_ps(floats(quarter<2>(q)), second_scale, second_offset));
    _mm256_storeu_ps(p + 24, _mm256_fmadd_ps(floats(quarter<3>(q)), second_scale, second_offset));
  }
};

template <class Format>
void decode_row_as(const uint8_t* b, int64_t k, float* to) {
  Decoded sink{to};
  for (int64_t i = 0; i < k / Format::kValues; ++i, b += Format::kBytes) {
    Format::add(sink, b, i * (Format::kValues / kGroup));
  }
}

#else
#define AA_DECODES_BLOCKS 0
#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
