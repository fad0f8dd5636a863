// The arithmetic of the quantizer for small floats: codes from floats (Encoder) and floats from codes (decode()), for every
// format, dtype and instruction set, one vector at a time.
//
// Faster loops for the usual cases are in fp_codes_avx512.h, fp_codes_avx2.h and fp_codes_any.h (which has none).
// fp_quantizer.cpp includes the one for its instruction set. All three define:
//
//   encode_in_pairs(encoder, x, n, inverse, ahead, out)
//       Encodes bf16 elements, rounding to nearest, to one byte or one uint16_t each, according to the type of `out`. Returns
//       how many of the n elements it has encoded, from the first on; encode() does the others.
//   join_sixes(codes), join_twelves(codes)
//       Joins four codes of 6 bits (from bytes) or two of 12 bits (from uint16_t) in the lower 24 bits of each word, the first
//       code in the lowest bits. Reads one vector.
//   store_24(to, words), load_24(from)
//       Stores the lower three bytes of each word without gaps, and the reverse. store_24() may write a whole vector of words;
//       load_24() may read up to four bytes behind the last word's, where a row has its scale.
//   class DirectEncoder(encoder, args), its DirectEncoder::Group(direct, scale, elements) with
//   encode_block(x, n, ahead, out)
//       Encodes and packs n bf16 elements of a group in registers. May write up to 64 bytes behind the packed codes. Returns
//       false if encode() and pack() must do it.
//   class DirectDecoder(args) with set_scale(scale) for a group and
//   decode_block(stored, n, buffers, writer)
//       Writes the numbers of n stored codes of the group. Returns false, having written nothing, if unpack() and decode() must
//       do it.
//
// All of it is in an anonymous namespace: a compiler that sees every call of a noinline loop specializes and unrolls it for the
// few block sizes that occur.
#pragma once

#include "fp_quantizer_calls.h"
#include "quant_blocks.h"

namespace anyaccel::op::quant {
namespace {

// A group's scale, 1 / scale, and whether all elements are finite. If not, the scale is NaN.
struct Scale {
  float scale = 0, inverse = 0;
  bool finite = true;
};

inline Scale make_scale(const Range& range, const aa_fp_format& format) {
  Scale s;
  s.finite = range.finite;
  s.scale = s.finite ? range.largest_magnitude() / format.max_value : bits_float(0x7fc00000u);
  if (s.finite && !(s.scale >= 0x1p-126f)) s.scale = 1.0f;
  s.inverse = 1.0f / s.scale;
  return s;
}

// Encodes x * inverse. Let e be the exponent of the scaled number, but at least that of the smallest normal number of the format.
// Under e, the unit of the format's last mantissa bit is known. The number in this unit, rounded to an integer, is `steps`, and
// the code is steps plus e - first_exponent, moved to the code's exponent field. A mantissa that overflows by rounding carries
// into the exponent by itself, and subnormal numbers need no case of their own.
//
// Rounding to nearest: the number is added to a power of two whose ulp is that unit, so that the addition rounds and leaves the
// steps in the lowest bits. `magic` makes that power of two from e, and its lower 16 bits subtract first_exponent. Nothing has
// to be clamped: since the scale is the largest magnitude divided by the format's largest number, a scaled number can exceed
// the latter by no more than a rounding error of float32.
//
// Stochastic rounding can round such a number up to the code above the largest, so it needs the clamp.
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
    // code<true>() converts steps to an integer by adding kRounding. Its bits are subtracted together with the first exponent.
    first_code = Words{} + (float_bits(kRounding) + (first << m));
    max_code = Words{} + static_cast<uint32_t>(f.max_code);
  }

  // Returns the bits of e: the exponent of the magnitude in its place in a float.
  AA_INLINE Words exponent(Words magnitude) const {
    const Words e = magnitude & 0x7f800000u;
    return e > first_exponent ? e : first_exponent;
  }

  // The code of x * inverse for x not negative, in the lower 16 bits of each word; the upper ones are garbage.
  AA_INLINE Words nearest(Vec x, Vec inverse) const {
    const Vec scaled = x * inverse;
    const Words e = exponent(bits_of(scaled));
    return bits_of(scaled + of_bits(e + magic)) + (e >> exponent_shift);
  }

  // The code of x * inverse with its sign. kChance: rounds stochastically, with random words.
  template <bool kChance>
  AA_INLINE Words code(Vec x, Vec inverse, const uint32_t* words) const {
    const Words sign = bits_of(x) >> (32 - bits);
    if constexpr (!kChance) return select_bits(magnitude_mask, nearest(abs(x), inverse), sign);
    const Vec scaled = abs(x) * inverse;
    const Words e = exponent(bits_of(scaled));
    const Words steps = bits_of(magnitude_by_chance(scaled * of_bits(unit_exponent - e), words, Vec(kRounding)));
    const Words code = steps + (e >> exponent_shift) - first_code;
    return select_bits(magnitude_mask, code < max_code ? code : max_code, sign);
  }

 private:
  static constexpr float kRounding = 0x1.8p23f;  // floats from 2^23 to 2^24 have an ulp of 1
};

// Turns n codes, a multiple of the width of a vector, into numbers times the scale. kSpecial: the format has codes for
// infinity or NaN. (If the scale is NaN, so is every number.)
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

inline void decode(const void* codes, int64_t n, const aa_fp_format& f, float scale, float* out) {
  if (f.bits > 8) {
    decode<false>(static_cast<const uint16_t*>(codes), n, f, scale, out);
  } else if (f.first_special < 1 << (f.bits - 1)) {
    decode<true>(static_cast<const uint8_t*>(codes), n, f, scale, out);
  } else {
    decode<false>(static_cast<const uint8_t*>(codes), n, f, scale, out);
  }
}

// -- blocks of codes, defined in fp_quantizer.cpp --
template <bool kChance, class T>
void encode(const T* x, int64_t n, const Encoder& shared, float inverse_scale, const uint32_t* words, Ahead ahead,
            void* codes);
const void* unpack(const uint8_t* in, int64_t n, int32_t bits, void* codes);

// Room for the unpacked codes and the numbers of a block.
struct DecodeBuffers {
  alignas(64) uint16_t codes[kBlock + 64];
  alignas(64) float result[kBlock];
};

}  // namespace
}  // namespace anyaccel::op::quant
