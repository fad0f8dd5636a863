// What fp_codes.h asks for, for instruction sets below AVX2: joining and splitting codes with vectors of any width. It has no
// loops, so those of fp_quantizer.cpp do all elements.
#pragma once

#include "fp_codes.h"

namespace anyaccel::op::quant {
namespace {

template <class Code>
AA_INLINE int64_t encode_in_pairs(const Encoder&, const bf16*, int64_t, Vec, Ahead, Code*) {
  return 0;
}

AA_INLINE Words join(const void* codes, uint32_t mask, int shift) {
  Words words;
  __builtin_memcpy(&words, codes, sizeof(words));
  // First the codes of 6 bits in each half of the word move together, then the two halves: each moves down behind the code, or
  // pair of codes, below it.
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

struct DirectEncoder {
  DirectEncoder(const Encoder&, const aa_fp_quantize_args&) {}
  struct Group {
    Group(const DirectEncoder&, const Scale&, int64_t /*elements*/) {}
    bool encode_block(const bf16*, int64_t, Ahead, uint8_t*) const { return false; }
  };
};

struct DirectDecoder {
  explicit DirectDecoder(const aa_fp_dequantize_args&) {}
  void set_scale(float) {}
  bool decode_block(const uint8_t*, int64_t, DecodeBuffers&, Writer&) const { return false; }
};

}  // namespace
}  // namespace anyaccel::op::quant
