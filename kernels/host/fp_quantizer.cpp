// The functions behind ops::FPQuantizer: small floating-point formats with a scale for each group of elements.
// include/anyaccel/ops/fp_quantizer.h defines the results and the layout, fp_quantizer_calls.h the arguments.
#include "fp_quantizer_calls.h"
#include "quant_blocks.h"

namespace anyaccel::op::quant {
namespace {

struct Scale {
  float scale = 0, inverse = 0;
  bool finite = true;
};

Scale make_scale(const Range& range, const aa_fp_format& format) {
  Scale s;
  s.finite = range.finite;
  s.scale = s.finite ? range.largest_magnitude() / format.max_value : bits_float(0x7fc00000u);
  if (s.finite && !(s.scale >= 0x1p-126f)) s.scale = 1.0f;
  s.inverse = 1.0f / s.scale;
  return s;
}

#if AA_VECTOR_AVX512
AA_INLINE __m512i bit_select(uint32_t mask, __m512i yes, __m512i no) {
  return _mm512_ternarylogic_epi32(yes, no, _mm512_set1_epi32(static_cast<int>(mask)), 0xe4);
}
#endif

// Codes of x * inverse. The exponent field `e` is that of the number, or that of the smallest normal; in units of the last
// mantissa bit under that exponent the number is `steps`, which is rounded to an integer. A carry goes into the exponent
// by itself.
//
// To nearest, the sum with a power of two whose last bit is that unit rounds. Its lowest 16 bits are the steps and what
// `magic` has there, which takes away the first exponent. Nothing needs a limit: the scale is the largest magnitude over
// the format's, so that only an error of the last bit of a float can lie above it.
// By chance, steps can reach the code above the limit.
struct Encoder {
  Words first_exponent, magic, magnitude_mask, unit_exponent, first_code, max_code;
  int bits, exponent_shift;

  explicit Encoder(const aa_fp_format& f) : bits(f.bits) {
    const int32_t m = f.mantissa_bits, rebias = 127 - f.bias;
    const uint32_t first = static_cast<uint32_t>(rebias + 1);
    exponent_shift = 23 - m;
    first_exponent = Words{} + (first << 23);
    magic = Words{} + ((static_cast<uint32_t>(exponent_shift) << 23) + (0x10000u - (first << m)));
    magnitude_mask = Words{} + ((1u << (f.bits - 1)) - 1);
    unit_exponent = Words{} + (static_cast<uint32_t>(254 + m) << 23);
    // Rounding by an addition leaves its own bits behind, which are taken away with the first exponent's.
    first_code = Words{} + (float_bits(kRounding) + (first << m));
    max_code = Words{} + static_cast<uint32_t>(f.max_code);
  }

  // Returns the exponent field.
  AA_INLINE Words exponent(Words magnitude) const {
    const Words e = magnitude & 0x7f800000u;
    return e > first_exponent ? e : first_exponent;
  }

  // The code of x * inverse, x not negative, in the lowest 16 bits of each word. Other bits follow.
  AA_INLINE Words nearest(Vec x, Vec inverse) const {
    const Vec scaled = x * inverse;
    const Words e = exponent(bits_of(scaled));
    return bits_of(scaled + of_bits(e + magic)) + (e >> exponent_shift);
  }

  template <bool kChance>
  AA_INLINE Words code(Vec x, Vec inverse, const uint32_t* words) const {
    const Words sign = bits_of(x) >> (32 - bits);
    if constexpr (!kChance) return select_bits(magnitude_mask, nearest(abs(x), inverse), sign);
    const Vec scaled = abs(x) * inverse;
    const Words e = exponent(bits_of(scaled));
    const Vec steps = round_by_chance(scaled * of_bits(unit_exponent - e), words);
    const Words code = bits_of(steps + Vec(kRounding)) + (e >> exponent_shift) - first_code;
    return select_bits(magnitude_mask, code < max_code ? code : max_code, sign);
  }

#if AA_VECTOR_AVX512
  // Elements in pairs: those in the upper halves of words are floats where they lie, the others are moved there.
  struct Pairs {
    __m512i low, high;
  };
  template <class Nearest>
  static AA_INLINE Pairs nearest_pairs(const Nearest& rounding, __m512i x, Vec inverse) {
    const __m512i magnitudes = _mm512_and_si512(x, _mm512_set1_epi32(0x7fff7fff));
    const __m512i high = _mm512_and_si512(x, _mm512_set1_epi32(0x7fff0000));
    return {(__m512i)rounding.nearest(_mm512_castsi512_ps(_mm512_slli_epi32(magnitudes, 16)), inverse),
            (__m512i)rounding.nearest(_mm512_castsi512_ps(high), inverse)};
  }
  // The same as nearest() for formats of at most 15 exponents: what is added has the code's exponent in place of the first one
  // as well, and is looked up.
  struct Sums {
    __m512i by_exponent;  // in place e % 16, for the exponent field e
    __m512 first;         // the least normal number

    explicit Sums(const Encoder& encoder) : by_exponent(), first(_mm512_castsi512_ps((__m512i)encoder.first_exponent)) {
      const uint32_t e0 = encoder.first_exponent[0] >> 23;
      alignas(64) uint32_t sums[16];
      for (uint32_t i = 0; i < 16; ++i) {
        const uint32_t e = (e0 + i) << 23;
        sums[(e0 + i) % 16] = e + encoder.magic[0] + (e >> encoder.exponent_shift);
      }
      by_exponent = _mm512_load_si512(sums);
    }
    AA_INLINE Words nearest(Vec x, Vec inverse) const {
      const Vec scaled = x * inverse;
      const __m512i e = _mm512_srli_epi32(_mm512_castps_si512(_mm512_max_ps(scaled.v, first)), 23);
      return bits_of(scaled + of_bits((Words)_mm512_permutexvar_epi32(e, by_exponent)));
    }
  };

  // 64 elements to bytes: in each 128 bits eight elements of the first half, then eight of the second.
  template <class Nearest>
  AA_INLINE __m512i mixed_bytes(const Nearest& rounding, const bf16* x, Vec inverse) const {
    const __m512i first = _mm512_loadu_si512(x), second = _mm512_loadu_si512(x + 32);
    const Pairs a = nearest_pairs(rounding, first, inverse), b = nearest_pairs(rounding, second, inverse);
    const __m512i two = bit_select(0xffu, a.low, _mm512_slli_epi32(a.high, 8));
    const __m512i above = bit_select(0xff0000u, _mm512_slli_epi32(b.low, 16), _mm512_slli_epi32(b.high, 24));
    // In each 128 bits eight elements of the first vector, then eight of the second: the order of the packed signs.
    const __m128i order = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    const __m512i codes = _mm512_shuffle_epi8(bit_select(0xffffu, two, above), _mm512_broadcast_i32x4(order));
    const __m512i signs = _mm512_srl_epi16(_mm512_packs_epi16(first, second), _mm_cvtsi32_si128(8 - bits));
    return bit_select(0x01010101u << (bits - 1), signs, codes);
  }
  AA_INLINE void bytes(const bf16* x, Vec inverse, uint8_t* out) const {
    const __m512i codes = mixed_bytes(*this, x, inverse);
    _mm512_storeu_si512(out, _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), codes));
  }
  // 32 elements to halves of words.
  AA_INLINE void halves(const bf16* x, Vec inverse, uint16_t* out) const {
    const __m512i from = _mm512_loadu_si512(x);
    const Pairs pairs = nearest_pairs(*this, from, inverse);
    const __m512i codes = bit_select(0xffffu, pairs.low, _mm512_slli_epi32(pairs.high, 16));
    const __m512i signs = _mm512_srl_epi32(from, _mm_cvtsi32_si128(16 - bits));
    _mm512_storeu_si512(out, bit_select(0x00010001u << (bits - 1), signs, codes));
  }
#elif AA_VECTOR_AVX2
  // Codes without signs of 16 elements in their order, in halves of words: elements in the upper halves of words are floats where
  // they lie, the others are moved there.
  AA_INLINE __m256i magnitudes(__m256i x, Vec inverse) const {
    const __m256i all = _mm256_and_si256(x, _mm256_set1_epi32(0x7fff7fff));
    const __m256i upper = _mm256_blend_epi16(_mm256_setzero_si256(), all, 0xaa);
    const __m256i low = (__m256i)nearest(_mm256_castsi256_ps(_mm256_slli_epi32(all, 16)), inverse);
    const __m256i high = (__m256i)nearest(_mm256_castsi256_ps(upper), inverse);
    return _mm256_blend_epi16(low, _mm256_slli_epi32(high, 16), 0xaa);
  }
  // Codes of up to 8 bits of 32 elements.
  AA_INLINE __m256i bytes(const bf16* x, Vec inverse) const {
    const __m256i first = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
    const __m256i second = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + 16));
    const __m256i codes = _mm256_packus_epi16(magnitudes(first, inverse), magnitudes(second, inverse));
    const __m256i signs = _mm256_srl_epi16(_mm256_packs_epi16(first, second), _mm_cvtsi32_si128(8 - bits));
    const __m256i sign = _mm256_set1_epi8(static_cast<char>(1u << (bits - 1)));
    // Both instructions that pack take eight elements of each vector in turns.
    return _mm256_permute4x64_epi64(_mm256_or_si256(codes, _mm256_and_si256(signs, sign)), 0xd8);
  }
  // Codes of 16 elements in halves of words.
  AA_INLINE __m256i halves(const bf16* x, Vec inverse) const {
    const __m256i from = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
    const __m256i signs = _mm256_srl_epi16(from, _mm_cvtsi32_si128(16 - bits));
    const __m256i sign = _mm256_set1_epi16(static_cast<int16_t>(1u << (bits - 1)));
    return _mm256_or_si256(magnitudes(from, inverse), _mm256_and_si256(signs, sign));
  }
#endif

 private:
  static constexpr float kRounding = 0x1.8p23f;  // the unit of floats from here on is 1
};

// n is a multiple of 16. Codes of up to 8 bits are stored as bytes, others as halves of words.
template <bool kChance, class T>
AA_ONCE void encode(const T* x, int64_t n, const Encoder& shared, float inverse_scale, const uint32_t* words,
                    Ahead ahead, void* codes) {
  const Encoder encoder = shared;  // in registers, which no store can change
  const Vec inverse(inverse_scale);
  constexpr int64_t w = Vec::width;
  const auto code = [&](int64_t i) { return encoder.code<kChance>(load(x + i), inverse, words + i); };
  int64_t i = 0;
  if (encoder.bits <= 8) {
    uint8_t* out = static_cast<uint8_t*>(codes);
#if AA_VECTOR_AVX512
    if constexpr (!kChance && __is_same(T, bf16)) {
      for (; i + 64 <= n; i += 64) {
        ahead.fetch<128>(2 * i);
        encoder.bytes(x + i, inverse, out + i);
      }
    }
#endif
    for (; i + 4 * w <= n; i += 4 * w) {
      ahead.fetch<4 * w * sizeof(T)>(i * static_cast<int64_t>(sizeof(T)));
      store_bytes(out + i, code(i), code(i + w), code(i + 2 * w), code(i + 3 * w));
    }
    for (; i < n; i += w) store_low(out + i, code(i));
  } else {
    uint16_t* out = static_cast<uint16_t*>(codes);
#if AA_VECTOR_AVX512
    if constexpr (!kChance && __is_same(T, bf16)) {
      for (; i + 64 <= n; i += 64) {
        ahead.fetch<128>(2 * i);
        encoder.halves(x + i, inverse, out + i);
        encoder.halves(x + i + 32, inverse, out + i + 32);
      }
      for (; i + 32 <= n; i += 32) encoder.halves(x + i, inverse, out + i);
    }
#endif
    for (; i < n; i += w) store_low(out + i, code(i));
  }
}

#if AA_VECTOR_AVX512
// 1 + m / 128 for the mantissas m, those of each half as a matrix of 16 rows of four that is stored by columns: a column's codes
// are a byte each of the words that hold a row.
struct Mantissas {
  alignas(64) float inner[128];
  constexpr Mantissas() : inner() {
    for (int i = 0; i < 128; ++i) inner[i / 64 * 64 + i % 4 * 16 + i % 64 / 4] = 1.0f + static_cast<float>(i) / 128;
  }
};
constexpr Mantissas kMantissas;

// Codes of 8 bits for elements of bf16, by a table. Elements whose exponents differ have codes that differ by as many steps
// of the exponent, so that the codes for the mantissas under one exponent are those under all, as long as the codes are
// of normal numbers. 64 elements with a smaller one, other than zero, are encoded as elsewhere.
class MantissaCodes {
 public:
  static bool can_be_used(const aa_fp_format& f) { return f.bits == 8 && __builtin_cpu_supports("avx512vbmi"); }
  // Where fewer elements have a scale in common it takes longer to fill the table than to do without.
  static constexpr int64_t kFewest = 256;

  MantissaCodes(const Encoder& encoder, const aa_fp_format& f)
      : encoder_(encoder), step_(f.mantissa_bits), first_exponent_(static_cast<uint32_t>(128 - f.bias)) {}

  void set_scale(const Scale& s) {
    inverse_ = s.inverse;
    // An exponent under which every code is that of a normal number, and how many below it are such, too.
    const uint32_t exponent = (float_bits(s.scale) >> 23) + 5;
    uint32_t above = (float_bits(bits_float(exponent << 23) * s.inverse) >> 23) - first_exponent_;
    if (above >= exponent) above = exponent - 1;
    least_ = exponent - above;
    // The codes under the least exponent, from products p that lie between 1 and 4: the smaller one of p in steps of its first
    // octave and of p in steps of its second one, which begin as many steps further on, both rounded by an addition.
    const float rounding = bits_float(static_cast<uint32_t>(150 - step_) << 23) * 1.5f;
    const Vec first(rounding), second(rounding + 1.0f), half(0.5f);
    const Vec factor(bits_float((float_bits(s.inverse) & 0x7fffffu) | 0x3f800000u));
    const auto codes_of = [&](const float* mantissas) {
      const Vec p = load(mantissas) * factor;
      return _mm512_min_epi32((__m512i)bits_of(p + first), (__m512i)bits_of(multiply_add(p, half, second)));
    };
    const uint32_t further = (float_bits(bits_float(exponent << 23) * s.inverse) >> 23) - first_exponent_ - above;
    const __m512i more = _mm512_set1_epi8(static_cast<char>(further << step_));
    for (int half_of = 0; half_of < 2; ++half_of) {
      const float* const from = kMantissas.inner + 64 * half_of;
      const __m512i a = codes_of(from), b = codes_of(from + 16), c = codes_of(from + 32), d = codes_of(from + 48);
      const __m512i two = bit_select(0xffu, a, _mm512_slli_epi32(b, 8));
      const __m512i above_two = bit_select(0xff0000u, _mm512_slli_epi32(c, 16), _mm512_slli_epi32(d, 24));
      codes_[half_of] = _mm512_add_epi8(bit_select(0xffffu, two, above_two), more);
    }
  }

  // n is a multiple of 16, which a group's last block may have beside whole vectors.
  __attribute__((noinline, target("avx512vbmi"))) void encode_block(const bf16* x, int64_t n, Ahead ahead,
                                                                    uint8_t* out) const {
    const __m512i low_codes = codes_[0], high_codes = codes_[1];
    const __m512i least = _mm512_set1_epi8(static_cast<char>(least_)), sign = _mm512_set1_epi8(static_cast<char>(0x80));
    const __m512i low = _mm512_set1_epi16(0xff), order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    const __m512i step = _mm512_set1_epi16(static_cast<int16_t>(step_));
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
      ahead.fetch<128>(2 * i);
      const __m512i a = _mm512_loadu_si512(x + i), b = _mm512_loadu_si512(x + i + 32);
      // Bytes of eight elements of a and eight of b in turns, until they are stored.
      const __m512i mantissa = _mm512_packus_epi16(_mm512_and_si512(a, low), _mm512_and_si512(b, low));
      const __m512i exponent = _mm512_packus_epi16(_mm512_and_si512(_mm512_srli_epi16(a, 7), low),
                                                   _mm512_and_si512(_mm512_srli_epi16(b, 7), low));
      const __m512i signs = _mm512_packs_epi16(a, b);
      const __mmask64 used = _mm512_test_epi8_mask(exponent, exponent);  // denormals count as zero
      if (_mm512_mask_cmplt_epu8_mask(used, exponent, least)) {
        encoder_.bytes(x + i, Vec(inverse_), out + i);
        continue;
      }
      // At most 30 steps of at most 8: no bit leaves its byte.
      const __m512i steps = _mm512_sllv_epi16(_mm512_subs_epu8(exponent, least), step);
      const __m512i codes =
          _mm512_maskz_add_epi8(used, _mm512_permutex2var_epi8(low_codes, mantissa, high_codes), steps);
      _mm512_storeu_si512(out + i,
                          _mm512_permutexvar_epi64(order, _mm512_ternarylogic_epi32(codes, signs, sign, 0xf8)));
    }
    if (i < n) encode<false>(x + i, n - i, encoder_, inverse_, nullptr, {}, out + i);
  }

 private:
  const Encoder& encoder_;
  int step_;
  uint32_t first_exponent_;
  float inverse_ = 0;
  uint32_t least_ = 0;  // the least exponent under which all codes are those of normal numbers
  __m512i codes_[2];    // of the 128 mantissas under that one
};
#endif

// Turns codes into numbers, n a multiple of the width of a vector.
template <bool kSpecial, class Code>
AA_ONCE void decode(const Code* codes, int64_t n, const aa_fp_format& f, float scale, float* out) {
  const int32_t m = f.mantissa_bits;
  const uint32_t magnitude_mask = (1u << (f.bits - 1)) - 1, mantissa_mask = (1u << m) - 1;
  const uint32_t rebias = static_cast<uint32_t>(127 - f.bias) << 23;
  const Vec smallest(bits_float(static_cast<uint32_t>(128 - f.bias - m) << 23));
  const Words first_special = Words{} + static_cast<uint32_t>(f.first_special);
  const int up = 23 - m, sign_shift = 32 - f.bits;
  for (int64_t i = 0; i < n; i += Vec::width) {
    const Words code = load_words(codes + i);
    const Words magnitude = code & magnitude_mask;
    const Words normal = (magnitude << up) + rebias;
    const Words subnormal = bits_of(to_floats(magnitude) * smallest);
    Words bits = magnitude > mantissa_mask ? normal : subnormal;
    if constexpr (kSpecial) {
      const Words infinity = Words{} + 0x7f800000u, nan = Words{} + 0x7fc00000u;
      bits = magnitude >= first_special ? ((magnitude & mantissa_mask) == 0 ? infinity : nan) : bits;
    }
    store(out + i, of_bits(bits | (code << sign_shift & 0x80000000u)) * Vec(scale));
  }
}

void decode(const void* codes, int64_t n, const aa_fp_format& f, float scale, float* out) {
  if (f.bits > 8) {
    decode<false>(static_cast<const uint16_t*>(codes), n, f, scale, out);
  } else if (f.first_special < 1 << (f.bits - 1)) {
    decode<true>(static_cast<const uint8_t*>(codes), n, f, scale, out);
  } else {
    decode<false>(static_cast<const uint8_t*>(codes), n, f, scale, out);
  }
}

#if AA_VECTOR_AVX512
// Numbers of 16 bits by their code, for the codes of a format of at most 8 bits: those of the codes without sign, of which
// a number with one differs in its highest bit only.
class Table {
 public:
  // For a format of at most 8 bits; before set_scale().
  void set_format(const aa_fp_format& f) {
    sign_shift_ = 16 - f.bits;
    many_ = f.bits == 8;
    alignas(64) uint8_t codes[kCodes];
    for (int i = 0; i < kCodes; ++i) codes[i] = static_cast<uint8_t>(i & ((1 << (f.bits - 1)) - 1));
    decode(codes, kCodes, f, 1.0f, numbers_);
  }

  // Where groups are smaller it takes longer to fill the table than to do without.
  static constexpr int64_t kSmallestGroup = 256;

  void set_scale(float scale, int32_t dtype) {
    alignas(64) float scaled[kCodes];
    const int n = many_ ? kCodes : kCodes / 4;
    for (int i = 0; i < n; i += Vec::width) store(scaled + i, load(numbers_ + i) * Vec(scale));
    narrow_block(scaled, n, dtype, values_);
  }

  // n is a multiple of 32.
  AA_ONCE void decode_block(const uint8_t* codes, int64_t n, uint16_t* out) const {
    const __m512i a = _mm512_load_si512(values_), b = _mm512_load_si512(values_ + 32);
    const __m512i c = _mm512_load_si512(values_ + 64), d = _mm512_load_si512(values_ + 96);
    const __m512i sign = _mm512_set1_epi16(static_cast<int16_t>(0x8000));
    const __m128i up = _mm_cvtsi32_si128(sign_shift_);
    for (int64_t i = 0; i < n; i += 32) {
      const __m512i code = _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + i)));
      __m512i value;
      if (many_) {
        value = _mm512_mask_blend_epi16(_mm512_test_epi16_mask(code, _mm512_set1_epi16(64)),
                                        _mm512_permutex2var_epi16(a, code, b), _mm512_permutex2var_epi16(c, code, d));
      } else {
        value = _mm512_permutexvar_epi16(code, a);
      }
      // value ^ (code << up & sign)
      value = _mm512_ternarylogic_epi32(value, _mm512_sll_epi16(code, up), sign, 0x78);
      _mm512_storeu_si512(out + i, value);
    }
  }

 private:
  static constexpr int kCodes = 128;
  int sign_shift_ = 0;
  bool many_ = false;  // more codes than one vector of numbers
  alignas(64) float numbers_[kCodes];
  alignas(64) uint16_t values_[kCodes];
};
#endif

// -- codes of 6 and 12 bits in words of 24 bits --
#if AA_VECTOR_AVX512
// Four codes of 6 bits, or two of 12, in each word, the first in its lowest bits. The codes lie in bytes and in halves.
AA_INLINE Words join_sixes(const void* codes) {
  const __m512i pairs = _mm512_maddubs_epi16(_mm512_loadu_si512(codes), _mm512_set1_epi16(64 << 8 | 1));
  return (Words)_mm512_madd_epi16(pairs, _mm512_set1_epi32(4096 << 16 | 1));
}
AA_INLINE Words join_twelves(const void* codes) {
  return (Words)_mm512_madd_epi16(_mm512_loadu_si512(codes), _mm512_set1_epi32(4096 << 16 | 1));
}
// Three bytes of each word, one word after the other. A whole vector is written; up to four bytes behind the words are
// read, where a row has its scale.
AA_INLINE void store_24(uint8_t* to, Words words) {
  const __m512i dense = _mm512_shuffle_epi8(
      (__m512i)words, _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1)));
  const __m512i order = _mm512_setr_epi32(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 15, 15, 15, 15);
  _mm512_storeu_si512(to, _mm512_permutexvar_epi32(order, dense));
}
AA_INLINE Words load_24(const uint8_t* from) {
  const __m512i order = _mm512_setr_epi32(0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 8, 9, 10, 11, 11);
  const __m512i spread = _mm512_permutexvar_epi32(order, _mm512_maskz_loadu_epi32(0xfff, from));
  return (Words)_mm512_shuffle_epi8(
      spread, _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1)));
}
#elif AA_VECTOR_AVX2
AA_INLINE Words join_sixes(__m256i codes) {
  return (Words)_mm256_madd_epi16(_mm256_maddubs_epi16(codes, _mm256_set1_epi16(64 << 8 | 1)),
                                  _mm256_set1_epi32(4096 << 16 | 1));
}
AA_INLINE Words join_twelves(__m256i codes) {
  return (Words)_mm256_madd_epi16(codes, _mm256_set1_epi32(4096 << 16 | 1));
}
AA_INLINE Words join_sixes(const void* codes) {
  return join_sixes(_mm256_loadu_si256(static_cast<const __m256i*>(codes)));
}
AA_INLINE Words join_twelves(const void* codes) {
  return join_twelves(_mm256_loadu_si256(static_cast<const __m256i*>(codes)));
}
AA_INLINE void store_24(uint8_t* to, Words words) {
  const __m128i three = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
  const __m256i dense = _mm256_shuffle_epi8((__m256i)words, _mm256_broadcastsi128_si256(three));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(dense));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 12), _mm256_extracti128_si256(dense, 1));
}
AA_INLINE Words load_24(const uint8_t* from) {
  const __m128i four = _mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1);
  const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  const __m128i high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 12));
  return (Words)_mm256_shuffle_epi8(_mm256_set_m128i(high, low), _mm256_broadcastsi128_si256(four));
}
#else
AA_INLINE Words join(const void* codes, uint32_t mask, int shift) {
  Words words;
  __builtin_memcpy(&words, codes, sizeof(words));
  // Fields of 16 bits first, of 8 bits then: each moves down to the one before it.
  if (shift == 2) words = (words & 0x003f003fu) | (words >> 2 & 0x0fc00fc0u);
  return (words & mask) | (words >> 4 & ~mask & 0xffffffu);
}
AA_INLINE Words join_sixes(const void* codes) { return join(codes, 0xfffu, 2); }
AA_INLINE Words join_twelves(const void* codes) { return join(codes, 0xfffu, 0); }
AA_INLINE void store_24(uint8_t* to, Words words) {
  for (int i = 0; i < Vec::width; ++i) {
    const uint32_t word = words[i];
    __builtin_memcpy(to + 3 * i, &word, 4);
  }
}
AA_INLINE Words load_24(const uint8_t* from) {
  uint32_t words[Vec::width];
  for (int i = 0; i < Vec::width; ++i) __builtin_memcpy(&words[i], from + 3 * i, 4);
  return __builtin_bit_cast(Words, words) & 0xffffffu;
}
#endif

#if AA_VECTOR_AVX512
// Codes of 6 and of 12 bits for elements of bf16 as they are stored, without buffers in between.
class DenseCodes {
 public:
  static bool can_be_used(const aa_fp_format& f) {
    return __builtin_cpu_supports("avx512vbmi") &&
           (f.bits == 6 || (f.bits == 12 && f.mantissa_bits == 7 && rounds_to_bf16));
  }
  DenseCodes(const Encoder& encoder, const aa_fp_format& f)
      : encoder_(encoder), sums_(encoder), rebias_(static_cast<uint32_t>(127 - f.bias) << 7) {}

  // n is a multiple of 64; 16 bytes behind the codes are written as well. Returns false if codes of another way are needed.
  AA_INLINE bool encode_block(const bf16* x, int64_t n, float inverse, Ahead ahead, uint8_t* out) const {
    if (encoder_.bits == 12) return twelves(x, n, Vec(inverse), ahead, out);
    sixes(x, n, Vec(inverse), ahead, out);
    return true;
  }

 private:
  // Three bytes of each word, the words in the order of their places.
  static AA_INLINE __m512i three_of_four(bool mixed) {
    alignas(64) int8_t from[64] = {};
    for (int i = 0; i < 48; ++i) {
      const int word = i / 3;
      from[i] = static_cast<int8_t>(4 * (mixed ? word % 8 / 2 * 4 + word / 8 * 2 + word % 2 : word) + i % 3);
    }
    return _mm512_load_si512(from);
  }

  __attribute__((noinline, target("avx512vbmi"))) void sixes(const bf16* x, int64_t n, Vec inverse, Ahead ahead,
                                                             uint8_t* out) const {
    const Encoder encoder = encoder_;
    const Encoder::Sums sums = sums_;
    const __m512i order = three_of_four(true);
    for (int64_t i = 0; i < n; i += 64, out += 48) {
      ahead.fetch<128>(2 * i);
      const __m512i pairs =
          _mm512_maddubs_epi16(encoder.mixed_bytes(sums, x + i, inverse), _mm512_set1_epi16(64 << 8 | 1));
      const __m512i fours = _mm512_madd_epi16(pairs, _mm512_set1_epi32(4096 << 16 | 1));
      _mm512_storeu_si512(out, _mm512_permutexvar_epi8(order, fours));
    }
  }

  // A mantissa of 7 bits is that of bf16: the codes of normal numbers are those of bf16 with another bias.
  __attribute__((noinline, target("avx512vbmi"))) bool twelves(const bf16* x, int64_t n, Vec inverse, Ahead ahead,
                                                               uint8_t* out) const {
    const __m512i rebias = _mm512_set1_epi16(static_cast<int16_t>(rebias_)), one = _mm512_set1_epi16(1);
    const __m512i sign = _mm512_set1_epi16(0x800), magnitude = _mm512_set1_epi16(0x7fff);
    const __m512i factors = _mm512_set1_epi32(4096 << 16 | 1), bytes = three_of_four(false);
    __m512i least[2] = {magnitude, magnitude};  // of what is not zero, less one
    for (int64_t i = 0; i < n; i += 64) {
      ahead.fetch<128>(2 * i);
#pragma GCC unroll 2
      for (int k = 0; k < 2; ++k, out += 48) {
        const EvenOdd two = load_pairs(x + i + 32 * k);
        const __m512i rounded = in_turns(narrow_in_one_step(two.even * inverse, two.odd * inverse));
        const __m512i number = _mm512_and_si512(rounded, magnitude);
        least[k] = _mm512_min_epu16(least[k], _mm512_sub_epi16(number, one));
        const __m512i code =
            _mm512_ternarylogic_epi32(_mm512_srli_epi16(rounded, 4), _mm512_subs_epu16(number, rebias), sign, 0xe4);
        _mm512_storeu_si512(out, _mm512_permutexvar_epi8(bytes, _mm512_madd_epi16(code, factors)));
      }
    }
    // Zero has the code 0, which a smaller number than all normal ones need not have.
    const __m512i normal = _mm512_add_epi16(rebias, _mm512_set1_epi16(127));
    return _mm512_cmplt_epu16_mask(_mm512_min_epu16(least[0], least[1]), normal) == 0;
  }

  const Encoder& encoder_;
  Encoder::Sums sums_;  // for codes of 6 bits
  uint32_t rebias_;     // between bf16 and the codes, above the mantissa
};
#endif

#if AA_VECTOR_AVX2
// Codes of 8, 6 and 12 bits for elements of bf16 as they are stored, without buffers in between.
class DenseCodes {
 public:
  static bool can_be_used(const aa_fp_format& f) { return f.bits == 8 || f.bits == 6 || f.bits == 12; }

  // n is a multiple of 64; 16 bytes behind the codes are written as well.
  AA_ONCE static void encode_block(const Encoder& shared, const bf16* x, int64_t n, float inverse_scale, Ahead ahead,
                                   uint8_t* out) {
    const Encoder encoder = shared;  // in registers, which no store can change
    const Vec inverse(inverse_scale);
    if (encoder.bits == 12) {
      for (int64_t i = 0; i < n; i += 16, out += 24) {
        ahead.fetch<32>(2 * i);
        store_24(out, join_twelves(encoder.halves(x + i, inverse)));
      }
    } else if (encoder.bits == 6) {
      for (int64_t i = 0; i < n; i += 32, out += 24) {
        ahead.fetch<64>(2 * i);
        store_24(out, join_sixes(encoder.bytes(x + i, inverse)));
      }
    } else {
      for (int64_t i = 0; i < n; i += 32) {
        ahead.fetch<64>(2 * i);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), encoder.bytes(x + i, inverse));
      }
    }
  }
};

// Numbers in bf16 from codes of 8, 6 and 12 bits as they are stored. A code is a number of fp16 whose exponent has another
// bias, and an instruction knows those, subnormal ones too.
class HalfNumbers {
 public:
  explicit HalfNumbers(const aa_fp_format& f)
      : bits_(f.bits),
        first_special_(f.first_special),
        shift_(5 - (f.bits - 1 - f.mantissa_bits)),
        mask_(static_cast<int16_t>(0x8000u | (0x7fffu & ~((1u << (16 - f.bits)) - 1)) >> shift_)),
        unbias_(bits_float(static_cast<uint32_t>(127 + 15 - f.bias) << 23)) {}

  static bool can_be_used(const aa_fp_format& f) { return DenseCodes::can_be_used(f); }

  // Returns false if the numbers of this group must be found otherwise.
  bool set_scale(float scale) {
    factor_ = scale * unbias_;
    return factor_ - factor_ == 0.0f;
  }

  // Returns whether all of n codes, a multiple of 32, stand for finite numbers.
  AA_ONCE bool are_finite(const uint8_t* codes, int64_t n) const {
    if (bits_ != 8 || first_special_ > 0x7f) return true;
    __m256i largest = _mm256_setzero_si256();
    for (int64_t i = 0; i < n; i += 32) {
      const __m256i code = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + i));
      largest = _mm256_max_epu8(largest, _mm256_and_si256(code, _mm256_set1_epi8(0x7f)));
    }
    const __m256i special = _mm256_cmpgt_epi8(largest, _mm256_set1_epi8(static_cast<char>(first_special_ - 1)));
    return _mm256_testz_si256(special, special) != 0;
  }

  // n is a multiple of 32; up to four bytes behind the codes are read, where a row has its scale. `out` lies on whole vectors and
  // is written past the caches if kStreams.
  template <bool kStreams>
  AA_ONCE void decode_block(const uint8_t* codes, int64_t n, uint16_t* out) const {
    const __m256 factor = _mm256_set1_ps(factor_);
    const __m256i mask = _mm256_set1_epi16(mask_);
    const __m128i shift = _mm_cvtsi32_si128(shift_);
    // Codes in the upper bits of halves of words become fp16.
    const auto fp16_of = [&](__m256i upper) { return _mm256_and_si256(_mm256_sra_epi16(upper, shift), mask); };
    const auto write = [&](int64_t i, __m256i numbers) {
      if constexpr (kStreams) {
        _mm256_stream_si256(reinterpret_cast<__m256i*>(out + i), numbers);
      } else {
        _mm256_store_si256(reinterpret_cast<__m256i*>(out + i), numbers);
      }
    };
    const auto write_pairs = [&](int64_t i, __m256i even, __m256i odd) {
      const __m256i a = fp16_of(even), b = fp16_of(odd);
      write(i, in_turns(rounded(_mm256_castsi256_si128(a), factor), rounded(_mm256_castsi256_si128(b), factor)));
      write(i + 16,
            in_turns(rounded(_mm256_extracti128_si256(a, 1), factor), rounded(_mm256_extracti128_si256(b, 1), factor)));
    };
    if (bits_ == 8) {
      for (int64_t i = 0; i < n; i += 32) {
        const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + i));
        // The lower one of two codes is masked out.
        write_pairs(i, _mm256_slli_epi16(pairs, 8), pairs);
      }
    } else if (bits_ == 6) {
      // Of four codes in 24 bits the first two from bit 0 on, the others from bit 8 on: a product moves each to the upper bits.
      const __m256i even = _mm256_set1_epi32(1 << 6 << 16 | 1 << 10), odd = _mm256_set1_epi32(1 << 16 | 1 << 4);
      for (int64_t i = 0; i < n; i += 32, codes += 24) {
        const __m256i fours = load_overlapping(codes);
        write_pairs(i, _mm256_mullo_epi16(fours, even), _mm256_mullo_epi16(fours, odd));
      }
    } else {
      const __m256i up = _mm256_set1_epi32(1 << 16 | 1 << 4);
      for (int64_t i = 0; i < n; i += 16, codes += 24) {
        const __m256i a = fp16_of(_mm256_mullo_epi16(load_overlapping(codes), up));
        const __m256i low = _mm256_srli_epi32(rounded(_mm256_castsi256_si128(a), factor), 16);
        const __m256i high = _mm256_srli_epi32(rounded(_mm256_extracti128_si256(a, 1), factor), 16);
        write(i, _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8));
      }
    }
  }

 private:
  // Products in bf16, in the upper halves of words.
  static AA_INLINE __m256i rounded(__m128i halves, __m256 factor) {
    const __m256i bits = _mm256_castps_si256(_mm256_mul_ps(_mm256_cvtph_ps(halves), factor));
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  }
  static AA_INLINE __m256i in_turns(__m256i even, __m256i odd) {
    return _mm256_blend_epi16(_mm256_srli_epi32(even, 16), odd, 0xaa);
  }
  // Eight times 24 bits: the lower 16 of them, then the upper 16.
  static AA_INLINE __m256i load_overlapping(const uint8_t* from) {
    const __m128i halves = _mm_setr_epi8(0, 1, 1, 2, 3, 4, 4, 5, 6, 7, 7, 8, 9, 10, 10, 11);
    const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    const __m128i high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 12));
    return _mm256_shuffle_epi8(_mm256_set_m128i(high, low), _mm256_broadcastsi128_si256(halves));
  }

  int bits_, first_special_, shift_;
  int16_t mask_;
  float unbias_, factor_ = 0;
};
#endif

// Codes to a stream of bits and back, n a multiple of 8 (4 for 8 bits). Whole vectors of codes are read and written, and up
// to 64 bytes of the stream behind its end written.
AA_ONCE const void* pack(const void* codes, int64_t n, int32_t bits, uint8_t* out) {
  if (bits == 8) return codes;
  const uint8_t* c = static_cast<const uint8_t*>(codes);
  if (bits == 4) {
    for (int64_t i = 0; i < n / 2; ++i) out[i] = static_cast<uint8_t>(c[2 * i] | c[2 * i + 1] << 4);
  } else if (bits == 6) {
    for (int64_t i = 0; i < n; i += 4 * Vec::width) store_24(out + i / 4 * 3, join_sixes(c + i));
  } else {
    for (int64_t i = 0; i < n; i += 2 * Vec::width) store_24(out + i / 2 * 3, join_twelves(c + 2 * i));
  }
  return out;
}

AA_ONCE const void* unpack(const uint8_t* in, int64_t n, int32_t bits, void* codes) {
  if (bits == 8) return in;
  uint8_t* c = static_cast<uint8_t*>(codes);
  if (bits == 4) {
    for (int64_t i = 0; i < n / 2; ++i) {
      c[2 * i] = in[i] & 0xfu;
      c[2 * i + 1] = static_cast<uint8_t>(in[i] >> 4);
    }
  } else if (bits == 6) {
    for (int64_t i = 0; i < n; i += 4 * Vec::width) {
      const Words word = load_24(in + i / 4 * 3);
      const Words four = (word & 0x3fu) | (word << 2 & 0x3f00u) | (word << 4 & 0x3f0000u) | (word << 6 & 0x3f000000u);
      __builtin_memcpy(c + i, &four, sizeof(four));
    }
  } else {
    for (int64_t i = 0; i < n; i += 2 * Vec::width) {
      const Words word = load_24(in + i / 2 * 3);
      const Words two = (word & 0xfffu) | (word << 4 & 0xfff0000u);
      __builtin_memcpy(c + 2 * i, &two, sizeof(two));
    }
  }
  return codes;
}

// The part of a call that is the same for all groups.
struct Call {
  const aa_fp_quantize_args& args;
  Encoder encoder;
#if AA_VECTOR_AVX512
  DenseCodes dense;
  bool by_table, is_dense;  // for finite groups that are large enough, and for blocks of whole 64 elements

  explicit Call(const aa_fp_quantize_args& a) : args(a), encoder(a.format), dense(encoder, a.format) {
    const bool nearest = a.stochastic == 0 && a.dtype == AA_DTYPE_BF16;
    by_table = nearest && MantissaCodes::can_be_used(a.format);
    is_dense = nearest && DenseCodes::can_be_used(a.format);
  }
  Call(const Call&) = delete;  // `dense` refers to `encoder`
#else
  explicit Call(const aa_fp_quantize_args& a) : args(a), encoder(a.format) {
#if AA_VECTOR_AVX2
    is_dense = a.stochastic == 0 && a.dtype == AA_DTYPE_BF16 && DenseCodes::can_be_used(a.format);
#endif
  }
  bool is_dense = false;  // blocks of whole 64 elements
#endif
};

// Elements [begin, end) of one group, as codes.
AA_ONCE void write_codes(const Call& call, int64_t begin, int64_t end, const Scale& s, Ahead ahead, Writer& out) {
  const aa_fp_quantize_args& a = call.args;
  const Encoder& encoder = call.encoder;
  const Random random{a.seed, a.offset, a.stochastic != 0};
  alignas(64) float buffer[kBlock];
  alignas(64) uint32_t words[kWords];
  alignas(64) uint16_t codes[kBlock + 64];
  alignas(64) uint8_t packed[2 * kBlock];
#if AA_VECTOR_AVX512
  MantissaCodes table(encoder, a.format);
  const bool by_table = call.by_table && s.finite && end - begin >= MantissaCodes::kFewest;
  if (by_table) table.set_scale(s);
#endif
  for (int64_t i = begin; i < end; i += kBlock) {
    const int64_t n = smaller(kBlock, end - i);
    const Ahead here = ahead.behind((i - begin) * bytes_of(a.dtype));
    uint8_t* const room = out.room();
    uint8_t* const to = room ? room : packed;
    bool done = false;
    if (!s.finite) {
      __builtin_memset(codes, 0, sizeof(codes));
    } else {
      with_elements(a.x, a.dtype, i, n, buffer, [&](const auto* x) {
#if AA_VECTOR_AVX512
        if constexpr (__is_same(decltype(x), const bf16*)) {
          if (by_table) {
            table.encode_block(x, padded(n), here, to);
            done = true;
          } else if (call.is_dense && n % 64 == 0) {
            done = call.dense.encode_block(x, n, s.inverse, here, to);
          }
        }
#elif AA_VECTOR_AVX2
        if constexpr (__is_same(decltype(x), const bf16*)) {
          if (call.is_dense && n % 64 == 0) {
            DenseCodes::encode_block(encoder, x, n, s.inverse, here, to);
            done = true;
          }
        }
#endif
        if (done) return;
        if (random.used) {
          encode<true>(x, padded(n), encoder, s.inverse, draw(random, i, n, words), here, codes);
        } else {
          encode<false>(x, padded(n), encoder, s.inverse, nullptr, here, codes);
        }
      });
    }
    const void* const from = done ? to : pack(codes, n, a.format.bits, to);
    const int64_t bytes = n * a.format.bits / 8;
    if (room && from == to) {
      out.took(bytes);
    } else {
      out.put(from, bytes);
    }
  }
}

}  // namespace

AA_OP void fp_quantizer_quantize(const aa_fp_quantize_args* a) {
  const FlushDenormals flush;
  const int64_t code_bytes = a->group_size * a->format.bits / 8;
  const int64_t row_bytes = code_bytes + 4;
  const bool past_caches = a->groups * row_bytes >= kLargeOutput;
  const Call call(*a);
  if (!has_wide_groups(a->groups, a->group_size)) {
    for_groups(a->groups, a->group_size, [&](int64_t first, int64_t last) {
      Writer writer(a->out + first * row_bytes, past_caches);
      const auto range_of = [&](int64_t g, Ahead ahead) {
        const int64_t begin = g * a->group_size;
        return range_of_dense<true>(a->x, a->dtype, begin, begin + a->group_size, ahead);
      };
      const auto scale_of = [&](const Range& range) { return make_scale(range, a->format); };
      const auto write_one = [&](int64_t g, const Scale& s, Ahead ahead) {
        write_codes(call, g * a->group_size, (g + 1) * a->group_size, s, ahead, writer);
        writer.put(&s.scale, 4);
      };
      write_groups<Scale>(a->x, a->dtype, first, last, a->group_size, a->format.bits < 8, range_of, scale_of,
                          write_one);
    });
    return;
  }
  for (int64_t g = 0; g < a->groups; ++g) {
    const int64_t begin = g * a->group_size;
    const auto range = [&](int64_t first, int64_t last) { return range_of_dense<true>(a->x, a->dtype, first, last); };
    const Scale s = make_scale(range_of_wide_group(range, begin, begin + a->group_size), a->format);
    uint8_t* const row = a->out + g * row_bytes;
    __builtin_memcpy(row + code_bytes, &s.scale, 4);
    parallel_for(a->group_size, 16384, 128, [&](int64_t first, int64_t last) {
      Writer writer(row + first * a->format.bits / 8, past_caches);
      write_codes(call, begin + first, begin + last, s, {}, writer);
    });
  }
}

AA_OP void fp_quantizer_dequantize(const aa_fp_dequantize_args* a) {
  const int64_t count = a->groups * a->group_size;
  const int64_t item = bytes_of(a->dtype), bits = a->format.bits;
  const int64_t code_bytes = a->group_size * bits / 8;
  parallel_for(count, 16384, 128, [&](int64_t first, int64_t last) {
    alignas(64) uint16_t codes[kBlock + 64];
    alignas(64) uint8_t odd[2 * kBlock];
    alignas(64) float result[kBlock], narrow[kBlock];
    Writer writer(static_cast<char*>(a->out) + first * item, count * item >= kLargeOutput);
#if AA_VECTOR_AVX512
    const bool use_table = bits <= 8 && item == 2 && a->group_size >= Table::kSmallestGroup;
    Table table;
    if (use_table) table.set_format(a->format);
#elif AA_VECTOR_AVX2
    const bool may_be_half = a->dtype == AA_DTYPE_BF16 && HalfNumbers::can_be_used(a->format);
    HalfNumbers numbers(a->format);
#endif
    for (int64_t i = first; i < last;) {
      const int64_t group = i / a->group_size;
      const int64_t group_begin = group * a->group_size;
      const int64_t end = smaller(last, group_begin + a->group_size);
      int64_t source = group;
      if (a->rows) source = a->rows[group / a->groups_per_row] * a->groups_per_row + group % a->groups_per_row;
      const uint8_t* row = a->codes + source * (code_bytes + 4);
      float scale;
      __builtin_memcpy(&scale, row + code_bytes, 4);
#if AA_VECTOR_AVX512
      const bool by_table = use_table && scale == scale;
      if (by_table) table.set_scale(scale, a->dtype);
#elif AA_VECTOR_AVX2
      const bool by_half = may_be_half && numbers.set_scale(scale);
#endif
      for (; i < end; i += kBlock) {
        const int64_t n = smaller(kBlock, end - i);
        const uint8_t* from = row + (i - group_begin) * bits / 8;
        if (n % 64 != 0) {
          // Whole vectors would be read behind the end.
          __builtin_memcpy(odd, from, static_cast<size_t>(n * bits / 8));
          from = odd;
        }
#if AA_VECTOR_AVX2
        if (by_half && n % 32 == 0 && numbers.are_finite(from, n)) {
          if (uint8_t* const lines = writer.lines(n * item)) {
            numbers.decode_block<true>(from, n, reinterpret_cast<uint16_t*>(lines));
          } else {
            numbers.decode_block<false>(from, n, reinterpret_cast<uint16_t*>(result));
            writer.put(result, n * item);
          }
          continue;
        }
#endif
        const void* const block = unpack(from, n, a->format.bits, codes);
#if AA_VECTOR_AVX512
        if (by_table) {
          table.decode_block(static_cast<const uint8_t*>(block), (n + 31) / 32 * 32,
                             reinterpret_cast<uint16_t*>(result));
          writer.put(result, n * item);
          continue;
        }
#endif
        decode(block, padded(n), a->format, scale, result);
        writer.put(narrow_block(result, n, a->dtype, narrow), n * item);
      }
      i = end;
    }
  });
}

}  // namespace anyaccel::op::quant
