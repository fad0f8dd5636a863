// Loops of the quantizer for small floats with AVX-512; fp_codes.h says what each name does.
//
// With AVX512-VBMI, 8-bit codes of bf16 come from a table of all 128 mantissas that is computed for each group
// (MantissaCodes), and codes of 6 and 12 bits are packed in registers (DenseCodes). Numbers of formats of up to 8 bits are
// looked up in a table for the group as well (Table), those of 12 bits are converted as fp16 (HalfNumbers). The two ports for
// 512-bit vectors bound the loops that encode.
#pragma once

#include "fp_codes.h"

namespace anyaccel::op::quant {
namespace {

// The bits of `yes` where `mask`, broadcast to all words, has ones, else those of `no`.
AA_INLINE __m512i bit_select(uint32_t mask, __m512i yes, __m512i no) {
  return _mm512_ternarylogic_epi32(yes, no, _mm512_set1_epi32(static_cast<int>(mask)), 0xe4);
}

// The results for 32 bf16 elements, in words: those for elements at even places (low) and at odd places (high). An element in the
// upper half of a word is a float already when the lower half is cleared; one in the lower half is shifted up.
struct Pairs {
  __m512i low, high;
};
template <class Nearest>
AA_INLINE Pairs nearest_pairs(const Nearest& rounding, __m512i x, Vec inverse) {
  const __m512i magnitudes = _mm512_and_si512(x, _mm512_set1_epi32(0x7fff7fff));
  const __m512i high = _mm512_and_si512(x, _mm512_set1_epi32(0x7fff0000));
  return {(__m512i)rounding.nearest(_mm512_castsi512_ps(_mm512_slli_epi32(magnitudes, 16)), inverse),
          (__m512i)rounding.nearest(_mm512_castsi512_ps(high), inverse)};
}
// As Encoder::nearest(), for formats of at most 15 exponents. The number that is added to round comes from a table by exponent,
// and includes the exponent of the code, so that nothing has to be added after rounding.
struct ExponentSums {
  __m512i by_exponent;  // lane e % 16 is for the exponent field e
  __m512 first;         // the smallest normal number

  explicit ExponentSums(const Encoder& encoder)
      : by_exponent(), first(_mm512_castsi512_ps((__m512i)encoder.first_exponent)) {
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

// Encodes 64 elements to bytes. Each 128-bit lane has eight codes of the first 32 elements, then eight of the others.
template <class Nearest>
AA_INLINE __m512i mixed_bytes(const Nearest& rounding, int bits, const bf16* x, Vec inverse) {
  const __m512i first = _mm512_loadu_si512(x), second = _mm512_loadu_si512(x + 32);
  const Pairs a = nearest_pairs(rounding, first, inverse), b = nearest_pairs(rounding, second, inverse);
  const __m512i two = bit_select(0xffu, a.low, _mm512_slli_epi32(a.high, 8));
  const __m512i above = bit_select(0xff0000u, _mm512_slli_epi32(b.low, 16), _mm512_slli_epi32(b.high, 24));
  // Puts the codes in that order, which is the order in which packs leaves the signs.
  const __m128i order = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
  const __m512i codes = _mm512_shuffle_epi8(bit_select(0xffffu, two, above), _mm512_broadcast_i32x4(order));
  const __m512i signs = _mm512_srl_epi16(_mm512_packs_epi16(first, second), _mm_cvtsi32_si128(8 - bits));
  return bit_select(0x01010101u << (bits - 1), signs, codes);
}

// Encodes 64 elements to bytes, in their order.
AA_INLINE void encode_bytes(const Encoder& encoder, const bf16* x, Vec inverse, uint8_t* out) {
  const __m512i codes = mixed_bytes(encoder, encoder.bits, x, inverse);
  _mm512_storeu_si512(out, _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), codes));
}
// Encodes 32 elements to 16-bit integers, in their order.
AA_INLINE void encode_halves(const Encoder& encoder, const bf16* x, Vec inverse, uint16_t* out) {
  const __m512i from = _mm512_loadu_si512(x);
  const Pairs pairs = nearest_pairs(encoder, from, inverse);
  const __m512i codes = bit_select(0xffffu, pairs.low, _mm512_slli_epi32(pairs.high, 16));
  const __m512i signs = _mm512_srl_epi32(from, _mm_cvtsi32_si128(16 - encoder.bits));
  _mm512_storeu_si512(out, bit_select(0x00010001u << (encoder.bits - 1), signs, codes));
}

AA_INLINE int64_t encode_in_pairs(const Encoder& encoder, const bf16* x, int64_t n, Vec inverse, Ahead ahead,
                                  uint8_t* out) {
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    ahead.fetch<128>(2 * i);
    encode_bytes(encoder, x + i, inverse, out + i);
  }
  return i;
}
AA_INLINE int64_t encode_in_pairs(const Encoder& encoder, const bf16* x, int64_t n, Vec inverse, Ahead ahead,
                                  uint16_t* out) {
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    ahead.fetch<128>(2 * i);
    encode_halves(encoder, x + i, inverse, out + i);
    encode_halves(encoder, x + i + 32, inverse, out + i + 32);
  }
  for (; i + 32 <= n; i += 32) encode_halves(encoder, x + i, inverse, out + i);
  return i;
}

AA_INLINE Words join_sixes(const void* codes) {
  const __m512i pairs = _mm512_maddubs_epi16(_mm512_loadu_si512(codes), _mm512_set1_epi16(64 << 8 | 1));
  return (Words)_mm512_madd_epi16(pairs, _mm512_set1_epi32(4096 << 16 | 1));
}
AA_INLINE Words join_twelves(const void* codes) {
  return (Words)_mm512_madd_epi16(_mm512_loadu_si512(codes), _mm512_set1_epi32(4096 << 16 | 1));
}
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

// 1 + m / 128 for the mantissas m of bf16, in the order in which MantissaCodes packs their codes: each half of them is four
// vectors, and vector k has the mantissas k, k + 4, k + 8 and so on, whose codes become byte k of the words.
struct Mantissas {
  alignas(64) float inner[128];
  constexpr Mantissas() : inner() {
    for (int i = 0; i < 128; ++i) inner[i / 64 * 64 + i % 4 * 16 + i % 64 / 4] = 1.0f + static_cast<float>(i) / 128;
  }
};
inline constexpr Mantissas kMantissas;

// Encodes bf16 to 8-bit codes by a table of a group. Two elements with the same mantissa have codes that differ in the exponent
// only, as long as both codes are those of normal numbers. So one table of the codes of all mantissas under one exponent
// serves every such exponent. Of each 64 elements, if one has a smaller exponent and is not zero, encode_bytes() does all.
class MantissaCodes {
 public:
  static bool can_be_used(const aa_fp_format& f) { return f.bits == 8 && __builtin_cpu_supports("avx512vbmi"); }
  // For groups of fewer elements, filling the table takes longer than it saves.
  static constexpr int64_t kFewest = 256;

  MantissaCodes(const Encoder& encoder, const aa_fp_format& f)
      : encoder_(encoder), step_(f.mantissa_bits), first_exponent_(static_cast<uint32_t>(128 - f.bias)) {}

  void set_scale(const Scale& s) {
    inverse_ = s.inverse;
    // Under this exponent every code is that of a normal number. `above` is how many exponents below it have that property, too.
    const uint32_t exponent = (float_bits(s.scale) >> 23) + 5;
    uint32_t above = (float_bits(bits_float(exponent << 23) * s.inverse) >> 23) - first_exponent_;
    if (above >= exponent) above = exponent - 1;
    least_ = exponent - above;
    // The codes under the least of these exponents. A product p of two mantissas lies between 1 and 4. Below 2, its code is p in
    // units of 2^-step_; from 2 on, it is p / 2 in these units plus 2^step_. Each of the two is the smaller one on its side
    // of 2, so a minimum selects it. Adding a large number rounds both.
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

  // Encodes n elements, a multiple of 16: the last block of a group need not be whole vectors. Fetch: an Ahead, or a Part of a
  // Meanwhile.
  template <class Fetch>
  __attribute__((noinline, target("avx512vbmi"))) void encode_block(const bf16* x, int64_t n, Fetch fetch,
                                                                    uint8_t* out) const {
    auto ahead = fetch.open();
    const __m512i low_codes = codes_[0], high_codes = codes_[1];
    const __m512i least = _mm512_set1_epi8(static_cast<char>(least_)), sign = _mm512_set1_epi8(static_cast<char>(0x80));
    const __m512i low = _mm512_set1_epi16(0xff), order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    const __m512i step = _mm512_set1_epi16(static_cast<int16_t>(step_));
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
      ahead.template fetch<128>(2 * i);
      const __m512i a = _mm512_loadu_si512(x + i), b = _mm512_loadu_si512(x + i + 32);
      // packs and packus take eight elements of a and of b in turns; the permutation at the end sorts them.
      const __m512i mantissa = _mm512_packus_epi16(_mm512_and_si512(a, low), _mm512_and_si512(b, low));
      const __m512i exponent = _mm512_packus_epi16(_mm512_and_si512(_mm512_srli_epi16(a, 7), low),
                                                   _mm512_and_si512(_mm512_srli_epi16(b, 7), low));
      const __m512i signs = _mm512_packs_epi16(a, b);
      const __mmask64 used = _mm512_test_epi8_mask(exponent, exponent);  // denormals count as zero
      if (_mm512_mask_cmplt_epu8_mask(used, exponent, least)) {
        encode_bytes(encoder_, x + i, Vec(inverse_), out + i);
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
    fetch.close(ahead);
  }

 private:
  const Encoder& encoder_;
  int step_;
  uint32_t first_exponent_;
  float inverse_ = 0;
  uint32_t least_ = 0;  // the least exponent under which all codes are those of normal numbers
  __m512i codes_[2];    // of the 128 mantissas under that one
};

// Encodes bf16 to codes of 6 or 12 bits and packs them in registers.
class DenseCodes {
 public:
  static bool can_be_used(const aa_fp_format& f) {
    return __builtin_cpu_supports("avx512vbmi") &&
           (f.bits == 6 || (f.bits == 12 && f.mantissa_bits == 7 && rounds_to_bf16));
  }
  DenseCodes(const Encoder& encoder, const aa_fp_format& f)
      : encoder_(encoder), sums_(encoder), rebias_(static_cast<uint32_t>(127 - f.bias) << 7) {}

  // Encodes n elements, a multiple of 64. 16 bytes behind the codes are overwritten as well. Returns false if the elements must
  // be encoded in another way.
  template <class Fetch>
  AA_INLINE bool encode_block(const bf16* x, int64_t n, float inverse, Fetch ahead, uint8_t* out) const {
    if (encoder_.bits == 12) return twelves(x, n, Vec(inverse), ahead, out);
    sixes(x, n, Vec(inverse), ahead, out);
    return true;
  }

 private:
  // A permutation of bytes that takes the lower three bytes of each word. mixed: the words come from mixed_bytes() and are put in
  // the order of their elements.
  static AA_INLINE __m512i three_of_four(bool mixed) {
    alignas(64) int8_t from[64] = {};
    for (int i = 0; i < 48; ++i) {
      const int word = i / 3;
      from[i] = static_cast<int8_t>(4 * (mixed ? word % 8 / 2 * 4 + word / 8 * 2 + word % 2 : word) + i % 3);
    }
    return _mm512_load_si512(from);
  }

  template <class Fetch>
  __attribute__((noinline, target("avx512vbmi"))) void sixes(const bf16* x, int64_t n, Vec inverse, Fetch fetch,
                                                             uint8_t* out) const {
    auto ahead = fetch.open();
    const Encoder encoder = encoder_;
    const ExponentSums sums = sums_;
    const __m512i order = three_of_four(true);
    for (int64_t i = 0; i < n; i += 64, out += 48) {
      ahead.template fetch<128>(2 * i);
      const __m512i pairs =
          _mm512_maddubs_epi16(mixed_bytes(sums, encoder.bits, x + i, inverse), _mm512_set1_epi16(64 << 8 | 1));
      const __m512i fours = _mm512_madd_epi16(pairs, _mm512_set1_epi32(4096 << 16 | 1));
      _mm512_storeu_si512(out, _mm512_permutexvar_epi8(order, fours));
    }
    fetch.close(ahead);
  }

  // A format with a mantissa of 7 bits, as bf16 has: codes of normal numbers are bf16 with another bias, so one instruction
  // rounds 32 elements. Returns false if a scaled element is smaller than the smallest normal number and not zero.
  template <class Fetch>
  __attribute__((noinline, target("avx512vbmi"))) bool twelves(const bf16* x, int64_t n, Vec inverse, Fetch fetch,
                                                               uint8_t* out) const {
    auto ahead = fetch.open();
    const __m512i rebias = _mm512_set1_epi16(static_cast<int16_t>(rebias_)), one = _mm512_set1_epi16(1);
    const __m512i sign = _mm512_set1_epi16(0x800), magnitude = _mm512_set1_epi16(0x7fff);
    const __m512i factors = _mm512_set1_epi32(4096 << 16 | 1), bytes = three_of_four(false);
    __m512i least[2] = {magnitude, magnitude};  // the least magnitudes less one; zero becomes the largest integer
    for (int64_t i = 0; i < n; i += 64) {
      ahead.template fetch<128>(2 * i);
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
    fetch.close(ahead);
    // Zero has the right code, 0. Other numbers below the smallest normal one have wrong codes.
    const __m512i normal = _mm512_add_epi16(rebias, _mm512_set1_epi16(127));
    return _mm512_cmplt_epu16_mask(_mm512_min_epu16(least[0], least[1]), normal) == 0;
  }

  const Encoder& encoder_;
  ExponentSums sums_;  // for codes of 6 bits
  uint32_t rebias_;    // between bf16 and the codes, above the mantissa
};

class DirectEncoder {
 public:
  DirectEncoder(const Encoder& encoder, const aa_fp_quantize_args& a)
      : encoder_(encoder), format_(a.format), dense_(encoder, a.format) {
    const bool nearest = a.stochastic == 0 && a.dtype == AA_DTYPE_BF16;
    by_table_ = nearest && MantissaCodes::can_be_used(a.format);
    is_dense_ = nearest && DenseCodes::can_be_used(a.format);
  }

  // Whether groups of this size are encoded with a Meanwhile: whether the loops above call fetch() for all of their elements, if
  // they are finite. It makes no difference to codes of 12 bits.
  bool gains_from_meanwhile(int64_t group_size) const {
    const bool is_sixes = is_dense_ && format_.bits == 6;
    return group_size % 64 == 0 && (is_sixes || (by_table_ && group_size >= MantissaCodes::kFewest));
  }

  class Group {
   public:
    Group(const DirectEncoder& direct, const Scale& s, int64_t elements)
        : direct_(direct),
          table_(direct.encoder_, direct.format_),
          inverse_(s.inverse),
          by_table_(direct.by_table_ && s.finite && elements >= MantissaCodes::kFewest) {
      if (by_table_) table_.set_scale(s);
    }
    template <class Fetch>
    AA_INLINE bool encode_block(const bf16* x, int64_t n, Fetch ahead, uint8_t* out) const {
      if (by_table_) {
        table_.encode_block(x, padded(n), ahead, out);
        return true;
      }
      return direct_.is_dense_ && n % 64 == 0 && direct_.dense_.encode_block(x, n, inverse_, ahead, out);
    }

   private:
    const DirectEncoder& direct_;
    MantissaCodes table_;
    float inverse_;
    bool by_table_;
  };

 private:
  const Encoder& encoder_;
  const aa_fp_format& format_;
  DenseCodes dense_;
  bool by_table_, is_dense_;  // for finite groups that are large enough, and for blocks of whole 64 elements
};

// Permutations of bytes that spread packed codes over lanes of 64 bits, 6 bytes to each: those of 8 codes of 6 bits or of 4
// codes of 12.
struct Fields {
  alignas(64) uint8_t of_sixes[64];  // the lanes of the second half take turns with those of the first
  alignas(64) uint8_t of_twelves[64];
  alignas(64) uint8_t every_second[64];
  constexpr Fields() : of_sixes(), of_twelves(), every_second() {
    for (int i = 0; i < 64; ++i) {
      const int lane = i / 8, byte = i % 8 < 6 ? i % 8 : 0;
      of_sixes[i] = static_cast<uint8_t>(6 * (lane % 2 * 4 + lane / 2) + byte);
      of_twelves[i] = static_cast<uint8_t>(6 * lane + byte);
      every_second[i] = static_cast<uint8_t>(2 * i);
    }
  }
};
inline constexpr Fields kFields;

// Loads 48 bytes in two parts: masked loads do not make the hardware fetch ahead on a Zen 5.
AA_INLINE __m512i load_48(const uint8_t* from) {
  const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  const __m128i high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 32));
  return _mm512_inserti32x4(_mm512_castsi256_si512(low), high, 2);
}

template <bool kStreams>
AA_INLINE void write_vector(uint16_t* to, __m512i numbers) {
  if constexpr (kStreams) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), numbers);
  } else {
    _mm512_storeu_si512(to, numbers);
  }
}

// A table of the numbers, in bf16 or fp16, that the codes of a format of at most 8 bits stand for. It has the codes without sign
// only; decode_block() applies the sign to the number's highest bit.
class Table {
 public:
  // Call this once, before set_scale(). The format has at most 8 bits.
  void set_format(const aa_fp_format& f) {
    sign_shift_ = 16 - f.bits;
    many_ = f.bits == 8;
    alignas(64) uint8_t codes[kCodes];
    for (int i = 0; i < kCodes; ++i) codes[i] = static_cast<uint8_t>(i & ((1 << (f.bits - 1)) - 1));
    decode(codes, kCodes, f, 1.0f, numbers_);
  }

  // For smaller groups, filling the table takes longer than it saves.
  static constexpr int64_t kSmallestGroup = 256;

  void set_scale(float scale, int32_t dtype) {
    alignas(64) float scaled[kCodes];
    const int n = many_ ? kCodes : kCodes / 4;
    for (int i = 0; i < n; i += Vec::width) store(scaled + i, load(numbers_ + i) * Vec(scale));
    narrow_block(scaled, n, dtype, values_);
  }

  // n is a multiple of 32. kStreams: with non-temporal stores; `out` is aligned to 64 bytes.
  template <bool kStreams>
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
      write_vector<kStreams>(out + i, _mm512_ternarylogic_epi32(value, _mm512_sll_epi16(code, up), sign, 0x78));
    }
  }

  // The same for packed codes of 6 bits; needs AVX512-VBMI. n is a multiple of 64.
  template <bool kStreams>
  __attribute__((noinline, target("avx512vbmi"))) void decode_sixes(const uint8_t* packed, int64_t n,
                                                                    uint16_t* out) const {
    // The lower and the upper bytes of the numbers of all 64 codes.
    const __m512i positive = _mm512_load_si512(values_);
    const __m512i negative = _mm512_xor_si512(positive, _mm512_set1_epi16(static_cast<int16_t>(0x8000)));
    const __m512i every_second = _mm512_load_si512(kFields.every_second);
    const __m512i low = _mm512_permutex2var_epi8(positive, every_second, negative);
    const __m512i high =
        _mm512_permutex2var_epi8(positive, _mm512_or_si512(every_second, _mm512_set1_epi8(1)), negative);
    const __m512i spread = _mm512_load_si512(kFields.of_sixes);
    const __m512i shifts = _mm512_set1_epi64(0x2a241e18120c0600);  // 6 bits from code to code of a lane of 64 bits
    for (int64_t i = 0; i < n; i += 64, packed += 48) {
      const __m512i lanes = _mm512_permutexvar_epi8(spread, load_48(packed));
      // The permutations below ignore the two bits above a code.
      const __m512i codes = _mm512_multishift_epi64_epi8(shifts, lanes);
      const __m512i lower = _mm512_permutexvar_epi8(codes, low), upper = _mm512_permutexvar_epi8(codes, high);
      write_vector<kStreams>(out + i, _mm512_unpacklo_epi8(lower, upper));
      write_vector<kStreams>(out + i + 32, _mm512_unpackhi_epi8(lower, upper));
    }
  }

 private:
  static constexpr int kCodes = 128;
  int sign_shift_ = 0;
  bool many_ = false;  // more codes than one vector of numbers
  alignas(64) float numbers_[kCodes];
  alignas(64) uint16_t values_[kCodes];
};

// Turns packed codes of 12 bits into bf16. A code moved to the upper bits of 16, with its exponent field moved down to the width of
// fp16's, is an fp16 number with another bias. So vcvtph2ps converts it, subnormal numbers included, and one factor corrects the
// bias and applies the group's scale.
class HalfNumbers {
 public:
  explicit HalfNumbers(const aa_fp_format& f) : unbias_(bits_float(static_cast<uint32_t>(127 + 15 - f.bias) << 23)) {}

  static bool can_be_used(const aa_fp_format& f) { return f.bits == 12 && f.mantissa_bits == 7 && rounds_to_bf16; }

  // Returns false if the factor is not finite, so that this group must be decoded in another way.
  bool set_scale(float scale) {
    factor_ = scale * unbias_;
    return factor_ - factor_ == 0.0f;
  }

  // n is a multiple of 32. kStreams: as for Table.
  template <bool kStreams>
  __attribute__((noinline, target("avx512vbmi"))) void decode_block(const uint8_t* packed, int64_t n,
                                                                    uint16_t* out) const {
    const __m512 factor = _mm512_set1_ps(factor_);
    const __m512i spread = _mm512_load_si512(kFields.of_twelves);
    // Moves a code to the upper 12 bits of 16; those below come from its neighbours.
    const __m512i shifts = _mm512_set1_epi64(0x28201c141008043c);
    // The arithmetic shift makes room for the wider exponent, and the mask clears what it copies of the sign.
    const __m512i mask = _mm512_set1_epi16(static_cast<int16_t>(0xbff8));
    for (int64_t i = 0; i < n; i += 32, packed += 48) {
      const __m512i lanes = _mm512_permutexvar_epi8(spread, load_48(packed));
      const __m512i upper = _mm512_multishift_epi64_epi8(shifts, lanes);
      const __m512i halves = _mm512_and_si512(_mm512_srai_epi16(upper, 1), mask);
      const __m512 first = _mm512_cvtph_ps(_mm512_castsi512_si256(halves));
      const __m512 second = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1));
      write_vector<kStreams>(out + i, narrow_in_one_step(_mm512_mul_ps(first, factor), _mm512_mul_ps(second, factor)));
    }
  }

 private:
  float unbias_, factor_ = 0;
};

class DirectDecoder {
 public:
  explicit DirectDecoder(const aa_fp_dequantize_args& a)
      : bits_(a.format.bits),
        dtype_(a.dtype),
        use_table_(bits_ <= 8 && bytes_of(dtype_) == 2 && a.group_size >= Table::kSmallestGroup),
        packed_sixes_(bits_ == 6 && __builtin_cpu_supports("avx512vbmi")),
        use_half_(a.dtype == AA_DTYPE_BF16 && HalfNumbers::can_be_used(a.format)),
        numbers_(a.format) {
    if (use_table_) table_.set_format(a.format);
  }

  AA_INLINE void set_scale(float scale) {
    by_table_ = use_table_ && scale == scale;
    if (by_table_) table_.set_scale(scale, dtype_);
    by_half_ = use_half_ && numbers_.set_scale(scale);
  }
  AA_INLINE bool decode_block(const uint8_t* stored, int64_t n, DecodeBuffers& buffers, Writer& writer) const {
    if (!by_table_ && !by_half_) return false;
    if (uint8_t* const lines = n % 64 == 0 ? writer.lines(2 * n) : nullptr) {
      decode<true>(stored, n, buffers, reinterpret_cast<uint16_t*>(lines));
    } else {
      decode<false>(stored, n, buffers, reinterpret_cast<uint16_t*>(buffers.result));
      writer.put(buffers.result, 2 * n);
    }
    return true;
  }

 private:
  template <bool kStreams>
  AA_INLINE void decode(const uint8_t* stored, int64_t n, DecodeBuffers& buffers, uint16_t* out) const {
    if (by_half_) {
      numbers_.decode_block<kStreams>(stored, (n + 31) / 32 * 32, out);
    } else if (packed_sixes_) {
      table_.decode_sixes<kStreams>(stored, (n + 63) / 64 * 64, out);
    } else {
      const void* const codes = unpack(stored, n, bits_, buffers.codes);
      table_.decode_block<kStreams>(static_cast<const uint8_t*>(codes), (n + 31) / 32 * 32, out);
    }
  }

  int32_t bits_, dtype_;
  bool use_table_, packed_sixes_, use_half_, by_table_ = false, by_half_ = false;
  Table table_;
  HalfNumbers numbers_;
};

}  // namespace
}  // namespace anyaccel::op::quant
