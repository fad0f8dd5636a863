// Codes and numbers of the quantizer for small floats, one vector at a time and with any instruction set, and what is asked
// of the headers with loops for one of them.
//
// fp_codes_avx512.h, fp_codes_avx2.h and fp_codes_any.h define the same names, and fp_quantizer.cpp includes the one that fits:
//
//   encode_in_pairs(encoder, x, n, inverse, ahead, out)
//       Codes of elements of bf16 to nearest, as bytes or halves of words like `out`. Returns how many of the n elements were
//       encoded, from the first on: encode() has the others.
//   join_sixes(codes), join_twelves(codes)
//       Words of four codes of 6 bits, or two of 12, the first in its lowest bits. The codes lie in bytes and in halves.
//   store_24(to, words), load_24(from)
//       Three bytes of each word, one word after the other. A whole vector is written; up to four bytes behind the words are
//       read, where a row has its scale.
//   class DirectEncoder(encoder, args), its DirectEncoder::Group(direct, scale, elements) with
//   encode_block(x, n, ahead, out)
//       Codes of a group's elements of bf16 as they are stored, without buffers in between; up to 64 bytes behind them are
//       written as well. Returns false if encode() and pack() are needed.
//   class DirectDecoder(args) with set_scale(scale) for a group and
//   decode_block(stored, n, buffers, writer)
//       Writes the numbers of n codes of the group. Returns false, and writes nothing, if unpack() and decode() are needed.
//
// All of it is local to one source: a compiler that knows every call of a loop that is not to be copied unrolls it for the
// few sizes of blocks that there are.
#pragma once

#include "fp_quantizer_calls.h"
#include "quant_blocks.h"

namespace anyaccel::op::quant {
namespace {

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

 private:
  static constexpr float kRounding = 0x1.8p23f;  // the unit of floats from here on is 1
};

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

inline void decode(const void* codes, int64_t n, const aa_fp_format& f, float scale, float* out) {
  if (f.bits > 8) {
    decode<false>(static_cast<const uint16_t*>(codes), n, f, scale, out);
  } else if (f.first_special < 1 << (f.bits - 1)) {
    decode<true>(static_cast<const uint8_t*>(codes), n, f, scale, out);
  } else {
    decode<false>(static_cast<const uint8_t*>(codes), n, f, scale, out);
  }
}

// -- blocks of codes, see fp_quantizer.cpp --
template <bool kChance, class T>
void encode(const T* x, int64_t n, const Encoder& shared, float inverse_scale, const uint32_t* words, Ahead ahead,
            void* codes);
const void* unpack(const uint8_t* in, int64_t n, int32_t bits, void* codes);

// Room for the codes and the numbers of a block.
struct DecodeBuffers {
  alignas(64) uint16_t codes[kBlock + 64];
  alignas(64) float result[kBlock];
};

}  // namespace
}  // namespace anyaccel::op::quant
