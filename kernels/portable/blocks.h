// Blocks of quantized weights, in the format AA_BLOCK (q4_0, q4_k, ..): the layouts and formulas are those of aa_block_format in
// anyaccel/abi/ops.h. Of each format:
//
//   AA_BLOCK_VALUES, AA_BLOCK_BYTES   of a block
//   AA_EVEN_BLOCKS                    1: blocks have an even number of bytes, and begin at even addresses
//   aa_head_of(w, b)                  what all values of the block at byte b of w share
//   aa_decode(w, b, head, i)          its values i to i + AA_WIDE - 1, i being a multiple of AA_WIDE
//
// A decoded value has the bits that the definition gives: products are exact, and a minimum is taken off by a fused
// multiplication and addition, which rounds once. (Where a zero is negative it may be positive here.)
#ifndef ANYACCEL_KERNELS_BLOCKS_H_
#define ANYACCEL_KERNELS_BLOCKS_H_

#include "ints.h"

// The numbers of aa_block_format.
#define AA_NUMBER_q4_0 2
#define AA_NUMBER_q4_1 3
#define AA_NUMBER_q5_0 6
#define AA_NUMBER_q5_1 7
#define AA_NUMBER_q8_0 8
#define AA_NUMBER_q2_k 10
#define AA_NUMBER_q3_k 11
#define AA_NUMBER_q4_k 12
#define AA_NUMBER_q5_k 13
#define AA_NUMBER_q6_k 14
#define AA_NUMBER_iq4_nl 20
#define AA_NUMBER_iq4_xs 23
#define AA_NUMBER_tq1_0 34
#define AA_NUMBER_tq2_0 35
#define AA_NUMBER_mxfp4 39
#define AA_FORMAT AA_CAT(AA_NUMBER_, AA_BLOCK)

#define AA_NAME_BLOCK(base) AA_CAT(base, AA_CAT(_, AA_BLOCK))

#if AA_FORMAT == AA_NUMBER_mxfp4
#define AA_EVEN_BLOCKS 0
#else
#define AA_EVEN_BLOCKS 1
#endif

typedef struct aa_head {
  float scale;
  float least;
} aa_head;

AA_FN aa_head aa_head_with(float scale, float least) {
  aa_head head;
  head.scale = scale;
  head.least = least;
  return head;
}

#if AA_GROUP_SIZE == 1 && !AA_HAS_F16
// A processor's OpenCL may read a half by dozens of instructions with jumps.
AA_FN float aa_half_at(AA_IN(aa_u8) w, aa_i64 at) {
  const aa_u32 half_bits = AA_AS_IN(aa_u16, w + at)[0];
  const aa_u32 magnitude = half_bits & 0x7fffu;
  const aa_u32 exponent = (magnitude >= 0x7c00u ? 224u : 112u) << 23;  // is added; infinities and NaNs keep theirs
  const float number = magnitude < 0x400u ? (float)(aa_i32)magnitude * 5.9604644775390625e-8f
                                          : aa_float((magnitude << 13) + exponent);
  return aa_float(aa_bits(number) | (half_bits & 0x8000u) << 16);
}
#else
AA_FN float aa_half_at(AA_IN(aa_u8) w, aa_i64 at) { return aa_load_f16(AA_AS_IN(aa_u16, w + at), 0); }
#endif
AA_FN aa_u32 aa_word_at(AA_IN(aa_u8) w, aa_i64 at) {
  return AA_AS_IN(aa_u16, w + at)[0] | (aa_u32)AA_AS_IN(aa_u16, w + at)[1] << 16;
}

AA_FN aa_ints aa_bytes_at(AA_IN(aa_u8) w, aa_i64 at) {
#if AA_EVEN_BLOCKS
  return aa_ints_load_pairs(w, at);
#else
  return aa_ints_load_u8(w, at);
#endif
}
// Some bits of each byte: (byte >> shift) & mask.
AA_FN aa_ints aa_bits_at(AA_IN(aa_u8) w, aa_i64 at, aa_i32 shift, aa_i32 mask) {
  return aa_ints_and(aa_ints_right(aa_bytes_at(w, at), aa_ints_all(shift)), aa_ints_all(mask));
}
// Values of four bits, 32 of them in 16 bytes: the low halves first.
AA_FN aa_ints aa_nibbles_at(AA_IN(aa_u8) w, aa_i64 at, aa_i32 i) { return aa_bits_at(w, at + (i & 15), (i >> 4) * 4, 15); }
// Values of two bits, 128 of them in 32 bytes.
AA_FN aa_ints aa_pairs_at(AA_IN(aa_u8) w, aa_i64 at, aa_i32 i) {
  return aa_bits_at(w, at + (i >> 7) * 32 + (i & 31), ((i >> 5) & 3) * 2, 3);
}
// Bit i and the next ones of a word, each shifted left by 4.
AA_FN aa_ints aa_fifths_of(aa_u32 word, aa_i32 i) {
  const aa_ints bits = aa_ints_right(aa_ints_all((aa_i32)(word >> i)), aa_ints_numbers(0));
  return aa_ints_left(aa_ints_and(bits, aa_ints_all(1)), aa_ints_all(4));
}
// Entries of a table of 16 signed bytes, which four words hold.
AA_FN aa_ints aa_entries(aa_ints n, aa_u32 w0, aa_u32 w1, aa_u32 w2, aa_u32 w3) {
  const aa_ints four = aa_ints_and(n, aa_ints_all(4));
  const aa_ints low = aa_ints_choose(four, aa_ints_all((aa_i32)w1), aa_ints_all((aa_i32)w0));
  const aa_ints high = aa_ints_choose(four, aa_ints_all((aa_i32)w3), aa_ints_all((aa_i32)w2));
  const aa_ints word = aa_ints_choose(aa_ints_and(n, aa_ints_all(8)), high, low);
  // The byte moves to the top, and back with its sign.
  const aa_ints place = aa_ints_left(aa_ints_and(n, aa_ints_all(3)), aa_ints_all(3));
  const aa_ints top = aa_ints_left(word, aa_ints_add(aa_ints_all(24), aa_ints_mul(place, aa_ints_all(-1))));
  return aa_ints_right(top, aa_ints_all(24));
}
#define AA_IQ4_ENTRIES(n) aa_entries(n, 0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u)
#define AA_FP4_ENTRIES(n) aa_entries(n, 0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu)

AA_FN aa_wide aa_scaled(aa_ints codes, float scale) {
  return aa_wide_fma(aa_ints_to_wide(codes), aa_wide_all(scale), aa_wide_all(0.0f));
}
AA_FN aa_wide aa_scaled_less(aa_ints codes, float scale, float least) {
  return aa_wide_fma(aa_ints_to_wide(codes), aa_wide_all(scale), aa_wide_all(-least));
}
AA_FN aa_ints aa_less(aa_ints codes, aa_i32 offset) { return aa_ints_add(codes, aa_ints_all(-offset)); }

#define AA_HEAD AA_FN aa_head aa_head_of(AA_IN(aa_u8) w, aa_i64 b)
#define AA_DECODE AA_FN aa_wide aa_decode(AA_IN(aa_u8) w, aa_i64 b, aa_head head, aa_i32 i)

// ---- blocks of 32 values -----------------------------------------------------------------------------------------------

#if AA_FORMAT == AA_NUMBER_q4_0
#define AA_BLOCK_VALUES 32
#define AA_BLOCK_BYTES 18
AA_HEAD { return aa_head_with(aa_half_at(w, b), 0.0f); }
AA_DECODE { return aa_scaled(aa_less(aa_nibbles_at(w, b + 2, i), 8), head.scale); }

#elif AA_FORMAT == AA_NUMBER_q4_1
#define AA_BLOCK_VALUES 32
#define AA_BLOCK_BYTES 20
AA_HEAD { return aa_head_with(aa_half_at(w, b), -aa_half_at(w, b + 2)); }
AA_DECODE { return aa_scaled_less(aa_nibbles_at(w, b + 4, i), head.scale, head.least); }

#elif AA_FORMAT == AA_NUMBER_q5_0
#define AA_BLOCK_VALUES 32
#define AA_BLOCK_BYTES 22
AA_HEAD { return aa_head_with(aa_half_at(w, b), 0.0f); }
AA_DECODE {
  const aa_ints codes = aa_ints_or(aa_nibbles_at(w, b + 6, i), aa_fifths_of(aa_word_at(w, b + 2), i));
  return aa_scaled(aa_less(codes, 16), head.scale);
}

#elif AA_FORMAT == AA_NUMBER_q5_1
#define AA_BLOCK_VALUES 32
#define AA_BLOCK_BYTES 24
AA_HEAD { return aa_head_with(aa_half_at(w, b), -aa_half_at(w, b + 2)); }
AA_DECODE {
  const aa_ints codes = aa_ints_or(aa_nibbles_at(w, b + 8, i), aa_fifths_of(aa_word_at(w, b + 4), i));
  return aa_scaled_less(codes, head.scale, head.least);
}

#elif AA_FORMAT == AA_NUMBER_q8_0
#define AA_BLOCK_VALUES 32
#define AA_BLOCK_BYTES 34
AA_HEAD { return aa_head_with(aa_half_at(w, b), 0.0f); }
AA_DECODE { return aa_scaled(aa_ints_load_i8(AA_AS_IN(aa_i8, w), b + 2 + i), head.scale); }

#elif AA_FORMAT == AA_NUMBER_iq4_nl
#define AA_BLOCK_VALUES 32
#define AA_BLOCK_BYTES 18
AA_HEAD { return aa_head_with(aa_half_at(w, b), 0.0f); }
AA_DECODE { return aa_scaled(AA_IQ4_ENTRIES(aa_nibbles_at(w, b + 2, i)), head.scale); }

#elif AA_FORMAT == AA_NUMBER_mxfp4
#define AA_BLOCK_VALUES 32
#define AA_BLOCK_BYTES 17
// 2^(e - 128)
AA_HEAD {
  const aa_u32 e = w[b];
  return aa_head_with(aa_float(e > 1u ? (e - 1u) << 23 : 0x00200000u << e), 0.0f);
}
AA_DECODE { return aa_scaled(AA_FP4_ENTRIES(aa_nibbles_at(w, b + 1, i)), head.scale); }

// ---- blocks of 256 values ----------------------------------------------------------------------------------------------

#elif AA_FORMAT == AA_NUMBER_q2_k
#define AA_BLOCK_VALUES 256
#define AA_BLOCK_BYTES 84
AA_HEAD { return aa_head_with(aa_half_at(w, b + 80), aa_half_at(w, b + 82)); }
AA_DECODE {
  const aa_i32 both = w[b + (i >> 4)];
  return aa_scaled_less(aa_pairs_at(w, b + 16, i), head.scale * (float)(both & 15), head.least * (float)(both >> 4));
}

#elif AA_FORMAT == AA_NUMBER_q3_k
#define AA_BLOCK_VALUES 256
#define AA_BLOCK_BYTES 110
AA_HEAD { return aa_head_with(aa_half_at(w, b + 108), 0.0f); }
AA_DECODE {
  const aa_i32 j = i >> 4;
  const aa_i32 low = (w[b + 96 + (j & 7)] >> (j >> 3) * 4) & 15;
  const aa_i32 high = (w[b + 104 + (j & 3)] >> (j >> 2) * 2) & 3;
  const aa_ints third = aa_ints_left(aa_bits_at(w, b + (i & 31), i >> 5, 1), aa_ints_all(2));
  const aa_ints codes = aa_ints_or(aa_pairs_at(w, b + 32, i), third);
  return aa_scaled(aa_less(codes, 4), head.scale * (float)((low | high << 4) - 32));
}

#elif AA_FORMAT == AA_NUMBER_q4_k || AA_FORMAT == AA_NUMBER_q5_k
#define AA_BLOCK_VALUES 256
#if AA_FORMAT == AA_NUMBER_q4_k
#define AA_BLOCK_BYTES 144
#else
#define AA_BLOCK_BYTES 176
#endif
AA_HEAD { return aa_head_with(aa_half_at(w, b), aa_half_at(w, b + 2)); }
AA_DECODE {
  // The scale and the minimum of 32 values, 6 bits each; those of the first four of the eight parts are in one byte.
  const aa_i32 j = i >> 5;
  const aa_i64 s = b + 4 + (j & 3);
  const aa_i32 first = w[s], second = w[s + 4], third = w[s + 8];
  const aa_i32 scale = j < 4 ? first & 63 : (third & 15) | (first >> 6) << 4;
  const aa_i32 least = j < 4 ? second & 63 : (third >> 4) | (second >> 6) << 4;
  aa_ints codes = aa_bits_at(w, b + AA_BLOCK_BYTES - 128 + (i >> 6) * 32 + (i & 31), (j & 1) * 4, 15);
#if AA_FORMAT == AA_NUMBER_q5_k
  codes = aa_ints_or(codes, aa_ints_left(aa_bits_at(w, b + 16 + (i & 31), j, 1), aa_ints_all(4)));
#endif
  return aa_scaled_less(codes, head.scale * (float)scale, head.least * (float)least);
}

#elif AA_FORMAT == AA_NUMBER_q6_k
#define AA_BLOCK_VALUES 256
#define AA_BLOCK_BYTES 210
AA_HEAD { return aa_head_with(aa_half_at(w, b + 208), 0.0f); }
AA_DECODE {
  const aa_i32 c = i >> 7, g = (i >> 5) & 3, l = i & 31;
  const aa_ints low = aa_bits_at(w, b + 64 * c + 32 * (g & 1) + l, (g >> 1) * 4, 15);
  const aa_ints high = aa_bits_at(w, b + 128 + 32 * c + l, g * 2, 3);
  const aa_ints codes = aa_ints_or(low, aa_ints_left(high, aa_ints_all(4)));
  return aa_scaled(aa_less(codes, 32), head.scale * (float)AA_AS_IN(aa_i8, w)[b + 192 + (i >> 4)]);
}

#elif AA_FORMAT == AA_NUMBER_iq4_xs
#define AA_BLOCK_VALUES 256
#define AA_BLOCK_BYTES 136
AA_HEAD { return aa_head_with(aa_half_at(w, b), 0.0f); }
AA_DECODE {
  const aa_i32 j = i >> 5;
  const aa_i32 low = (w[b + 4 + (j >> 1)] >> (j & 1) * 4) & 15;
  const aa_i32 high = (AA_AS_IN(aa_u16, w + b + 2)[0] >> j * 2) & 3;
  const aa_ints codes = AA_IQ4_ENTRIES(aa_nibbles_at(w, b + 8 + 16 * j, i & 31));
  return aa_scaled(codes, head.scale * (float)((low | high << 4) - 32));
}

#elif AA_FORMAT == AA_NUMBER_tq1_0
#define AA_BLOCK_VALUES 256
#define AA_BLOCK_BYTES 54
AA_HEAD { return aa_head_with(aa_half_at(w, b + 52), 0.0f); }
AA_DECODE {
  aa_ints bytes;
  aa_ints power;  // of 3, for each value's digit
  if (i < 240) {
    bytes = aa_bytes_at(w, b + (i < 160 ? i & 31 : 32 + (i & 15)));
    const aa_i32 digit = i < 160 ? i >> 5 : (i - 160) >> 4;
    power = aa_ints_all(digit < 4 ? (aa_i32)((0x1b090301u >> digit * 8) & 255u) : 81);
  } else {
    const aa_ints n = aa_ints_numbers(i - 240);
    const aa_ints place = aa_ints_left(aa_ints_and(n, aa_ints_all(3)), aa_ints_all(3));
    bytes = aa_ints_and(aa_ints_right(aa_ints_all((aa_i32)aa_word_at(w, b + 48)), place), aa_ints_all(255));
    const aa_ints digit = aa_ints_left(aa_ints_right(n, aa_ints_all(2)), aa_ints_all(3));
    power = aa_ints_and(aa_ints_right(aa_ints_all(0x1b090301), digit), aa_ints_all(255));
  }
  const aa_ints shifted = aa_ints_and(aa_ints_mul(bytes, power), aa_ints_all(255));
  return aa_scaled(aa_less(aa_ints_right(aa_ints_mul(shifted, aa_ints_all(3)), aa_ints_all(8)), 1), head.scale);
}

#elif AA_FORMAT == AA_NUMBER_tq2_0
#define AA_BLOCK_VALUES 256
#define AA_BLOCK_BYTES 66
AA_HEAD { return aa_head_with(aa_half_at(w, b + 64), 0.0f); }
AA_DECODE { return aa_scaled(aa_less(aa_pairs_at(w, b, i), 1), head.scale); }

#else
#error "AA_BLOCK is none of the formats above"
#endif

#endif  // ANYACCEL_KERNELS_BLOCKS_H_
