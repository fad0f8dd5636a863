// Loops of the quantizer for small floats with AVX2; fp_codes.h says what each name does.
//
// bf16 elements become packed codes of 8, 6 or 12 bits in registers. The reverse treats codes as fp16 numbers with another bias
// and converts them with vcvtph2ps (HalfNumbers). Other formats and dtypes take the loops of fp_quantizer.cpp. Arithmetic
// bounds these loops.
#pragma once

#include "fp_codes.h"

namespace anyaccel::op::quant {
namespace {

// The codes, without signs, of 16 consecutive bf16 elements, one in each 16-bit lane. An element in the upper half of a 32-bit
// lane is a float already when the lower half is cleared; one in the lower half is shifted up.
AA_INLINE __m256i magnitudes(const Encoder& encoder, __m256i x, Vec inverse) {
  const __m256i all = _mm256_and_si256(x, _mm256_set1_epi32(0x7fff7fff));
  const __m256i upper = _mm256_blend_epi16(_mm256_setzero_si256(), all, 0xaa);
  const __m256i low = (__m256i)encoder.nearest(_mm256_castsi256_ps(_mm256_slli_epi32(all, 16)), inverse);
  const __m256i high = (__m256i)encoder.nearest(_mm256_castsi256_ps(upper), inverse);
  return _mm256_blend_epi16(low, _mm256_slli_epi32(high, 16), 0xaa);
}
// The codes, of up to 8 bits, of 32 elements, one in each byte.
AA_INLINE __m256i bytes(const Encoder& encoder, const bf16* x, Vec inverse) {
  const __m256i first = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
  const __m256i second = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + 16));
  const __m256i codes = _mm256_packus_epi16(magnitudes(encoder, first, inverse), magnitudes(encoder, second, inverse));
  const __m256i signs = _mm256_srl_epi16(_mm256_packs_epi16(first, second), _mm_cvtsi32_si128(8 - encoder.bits));
  const __m256i sign = _mm256_set1_epi8(static_cast<char>(1u << (encoder.bits - 1)));
  // packus and packs both take eight elements of each vector in turns, which the permutation sorts.
  return _mm256_permute4x64_epi64(_mm256_or_si256(codes, _mm256_and_si256(signs, sign)), 0xd8);
}
// The codes of 16 elements, one in each 16-bit lane.
AA_INLINE __m256i halves(const Encoder& encoder, const bf16* x, Vec inverse) {
  const __m256i from = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
  const __m256i signs = _mm256_srl_epi16(from, _mm_cvtsi32_si128(16 - encoder.bits));
  const __m256i sign = _mm256_set1_epi16(static_cast<int16_t>(1u << (encoder.bits - 1)));
  return _mm256_or_si256(magnitudes(encoder, from, inverse), _mm256_and_si256(signs, sign));
}

// Encodes nothing: DirectEncoder takes the blocks whose speed matters.
template <class Code>
AA_INLINE int64_t encode_in_pairs(const Encoder&, const bf16*, int64_t, Vec, Ahead, Code*) {
  return 0;
}

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

class DirectEncoder {
 public:
  DirectEncoder(const Encoder& encoder, const aa_fp_quantize_args& a)
      : encoder_(encoder), is_used_(a.stochastic == 0 && a.dtype == AA_DTYPE_BF16 && has_loop(encoder.bits)) {}

  class Group {
   public:
    Group(const DirectEncoder& direct, const Scale& s, int64_t /*elements*/) : direct_(direct), inverse_(s.inverse) {}

    AA_INLINE bool encode_block(const bf16* x, int64_t n, Ahead ahead, uint8_t* out) const {
      if (!direct_.is_used_ || n % 64 != 0) return false;
      encode_whole(direct_.encoder_, x, n, inverse_, ahead, out);
      return true;
    }

   private:
    const DirectEncoder& direct_;
    float inverse_;
  };

 private:
  static bool has_loop(int bits) { return bits == 8 || bits == 6 || bits == 12; }

  // Encodes and packs n elements, a multiple of 64. With 6 and 12 bits, 4 bytes behind the codes are overwritten as well.
  AA_ONCE static void encode_whole(const Encoder& shared, const bf16* x, int64_t n, float inverse_scale, Ahead ahead,
                                   uint8_t* out) {
    const Encoder encoder = shared;  // a copy stays in registers: no store can alias it
    const Vec inverse(inverse_scale);
    if (encoder.bits == 12) {
      for (int64_t i = 0; i < n; i += 16, out += 24) {
        ahead.fetch<32>(2 * i);
        store_24(out, join_twelves(halves(encoder, x + i, inverse)));
      }
    } else if (encoder.bits == 6) {
      for (int64_t i = 0; i < n; i += 32, out += 24) {
        ahead.fetch<64>(2 * i);
        store_24(out, join_sixes(bytes(encoder, x + i, inverse)));
      }
    } else {
      for (int64_t i = 0; i < n; i += 32) {
        ahead.fetch<64>(2 * i);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), bytes(encoder, x + i, inverse));
      }
    }
  }

  const Encoder& encoder_;
  bool is_used_;
};

// Turns packed codes of 8, 6 or 12 bits into bf16. A code moved to the upper bits of 16, with its exponent field moved down
// to the width of fp16's, is an fp16 number with another bias. So vcvtph2ps converts it, subnormal numbers included, and one
// factor corrects the bias and applies the group's scale.
class HalfNumbers {
 public:
  explicit HalfNumbers(const aa_fp_format& f)
      : bits_(f.bits),
        first_special_(f.first_special),
        shift_(5 - (f.bits - 1 - f.mantissa_bits)),
        mask_(static_cast<int16_t>(0x8000u | (0x7fffu & ~((1u << (16 - f.bits)) - 1)) >> shift_)),
        unbias_(bits_float(static_cast<uint32_t>(127 + 15 - f.bias) << 23)) {}

  static bool can_be_used(const aa_fp_format& f) { return f.bits == 8 || f.bits == 6 || f.bits == 12; }

  // Returns false if the factor is not finite, so that this group must be decoded in another way.
  bool set_scale(float scale) {
    factor_ = scale * unbias_;
    return factor_ - factor_ == 0.0f;
  }

  // Returns whether all of n codes, a multiple of 32, stand for finite numbers; infinity and NaN would need their own handling.
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

  // Decodes n codes, a multiple of 32. May read four bytes behind the codes, where a row has its scale. `out` is aligned to 32
  // bytes. kStreams: with non-temporal stores.
  template <bool kStreams>
  AA_ONCE void decode_block(const uint8_t* codes, int64_t n, uint16_t* out) const {
    const __m256 factor = _mm256_set1_ps(factor_);
    const __m256i mask = _mm256_set1_epi16(mask_);
    const __m128i shift = _mm_cvtsi32_si128(shift_);
    // Makes fp16 of codes that lie in the upper bits of 16-bit lanes: the arithmetic shift makes room for the wider exponent, and
    // the mask clears what it copies of the sign, and bits of neighbouring codes.
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
        // Each 16-bit lane has two codes: the shift moves the lower one up, and in the other vector the mask clears it.
        write_pairs(i, _mm256_slli_epi16(pairs, 8), pairs);
      }
    } else if (bits_ == 6) {
      // load_overlapping() gives two 16-bit lanes for four codes: codes 0 and 1 begin at bits 0 and 6 of the first, codes 2 and
      // 3 at bits 4 and 10 of the second. Multiplying by a power of two for each lane moves a code to the upper bits.
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
  // Converts fp16 to float, multiplies, and rounds to bf16 in the upper halves of 32-bit lanes.
  static AA_INLINE __m256i rounded(__m128i halves, __m256 factor) {
    const __m256i bits = _mm256_castps_si256(_mm256_mul_ps(_mm256_cvtph_ps(halves), factor));
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  }
  // Interleaves two results of rounded().
  static AA_INLINE __m256i in_turns(__m256i even, __m256i odd) {
    return _mm256_blend_epi16(_mm256_srli_epi32(even, 16), odd, 0xaa);
  }
  // Loads eight fields of 24 bits, each into two 16-bit lanes: its lower 16 bits, then its upper 16. Reads 28 bytes.
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

class DirectDecoder {
 public:
  explicit DirectDecoder(const aa_fp_dequantize_args& a)
      : may_be_half_(a.dtype == AA_DTYPE_BF16 && HalfNumbers::can_be_used(a.format)), numbers_(a.format) {}

  AA_INLINE void set_scale(float scale) { by_half_ = may_be_half_ && numbers_.set_scale(scale); }

  AA_INLINE bool decode_block(const uint8_t* stored, int64_t n, DecodeBuffers& buffers, Writer& writer) const {
    if (!by_half_ || n % 32 != 0 || !numbers_.are_finite(stored, n)) return false;
    if (uint8_t* const lines = writer.lines(2 * n)) {
      numbers_.decode_block<true>(stored, n, reinterpret_cast<uint16_t*>(lines));
    } else {
      numbers_.decode_block<false>(stored, n, reinterpret_cast<uint16_t*>(buffers.result));
      writer.put(buffers.result, 2 * n);
    }
    return true;
  }

 private:
  bool may_be_half_, by_half_ = false;
  HalfNumbers numbers_;
};

}  // namespace
}  // namespace anyaccel::op::quant
