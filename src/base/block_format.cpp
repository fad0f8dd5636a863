// Decodes blocks of quantized weights. In the comments i is the index of a value in its block.
#include "base/block_format.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "anyaccel/dtype.h"

namespace anyaccel {
namespace {

float half_at(const uint8_t* bytes) {
  uint16_t bits = 0;
  std::memcpy(&bits, bytes, sizeof bits);
  return fp16_to_float(bits);
}

int signed_byte(uint8_t byte) { return static_cast<int8_t>(byte); }

// ---- blocks of 32 values --------------------------------------------------------------------------------------------

// Reads a value of four bits: the low halves of 16 bytes are values 0 to 15, the high halves 16 to 31.
unsigned nibble(const uint8_t* bytes, unsigned i) { return bytes[i % 16] >> (i / 16 * 4) & 15u; }

unsigned fifth_bit(const uint8_t* bytes, unsigned i) { return (bytes[i / 8] >> (i % 8) & 1u) << 4; }

void decode_q4_0(const uint8_t* block, float* out) {
  const float scale = half_at(block);
  for (unsigned i = 0; i < 32; ++i) out[i] = scale * static_cast<float>(static_cast<int>(nibble(block + 2, i)) - 8);
}

void decode_q4_1(const uint8_t* block, float* out) {
  const float scale = half_at(block);
  const float least = half_at(block + 2);
  for (unsigned i = 0; i < 32; ++i) out[i] = scale * static_cast<float>(nibble(block + 4, i)) + least;
}

void decode_q5_0(const uint8_t* block, float* out) {
  const float scale = half_at(block);
  for (unsigned i = 0; i < 32; ++i) {
    const unsigned q = nibble(block + 6, i) | fifth_bit(block + 2, i);
    out[i] = scale * static_cast<float>(static_cast<int>(q) - 16);
  }
}

void decode_q5_1(const uint8_t* block, float* out) {
  const float scale = half_at(block);
  const float least = half_at(block + 2);
  for (unsigned i = 0; i < 32; ++i) {
    const unsigned q = nibble(block + 8, i) | fifth_bit(block + 4, i);
    out[i] = scale * static_cast<float>(q) + least;
  }
}

void decode_q8_0(const uint8_t* block, float* out) {
  const float scale = half_at(block);
  for (unsigned i = 0; i < 32; ++i) out[i] = scale * static_cast<float>(signed_byte(block[2 + i]));
}

// The 16 values of the formats IQ4: not evenly spaced, denser around zero.
constexpr std::array<float, 16> iq4_values = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

void decode_iq4_nl(const uint8_t* block, float* out) {
  const float scale = half_at(block);
  for (unsigned i = 0; i < 32; ++i) out[i] = scale * iq4_values[nibble(block + 2, i)];
}

// Floating-point numbers with 2 bits of exponent and 1 of mantissa, doubled, under one scale that is a power of two.
constexpr std::array<float, 16> fp4_values = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

void decode_mxfp4(const uint8_t* block, float* out) {
  const float scale = std::ldexp(1.0F, static_cast<int>(block[0]) - 128);  // less the bias of 127, and halved
  for (unsigned i = 0; i < 32; ++i) out[i] = scale * fp4_values[nibble(block + 1, i)];
}

// ---- blocks of 256 values -------------------------------------------------------------------------------------------

// Reads a value of two bits: four groups of 32 values share 32 bytes.
unsigned two_bits(const uint8_t* bytes, unsigned i) { return bytes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3u; }

void decode_q2_k(const uint8_t* block, float* out) {
  const float scale = half_at(block + 80);
  const float least = half_at(block + 82);
  for (unsigned part = 0; part < 16; ++part) {
    const float part_scale = scale * static_cast<float>(block[part] & 15u);
    const float part_least = least * static_cast<float>(block[part] >> 4);
    for (unsigned i = 16 * part; i < 16 * part + 16; ++i) {
      out[i] = part_scale * static_cast<float>(two_bits(block + 16, i)) - part_least;
    }
  }
}

void decode_q3_k(const uint8_t* block, float* out) {
  const float scale = half_at(block + 108);
  const uint8_t* scales = block + 96;  // 16 of 6 bits: 8 bytes of low halves, 4 bytes of high pairs
  for (unsigned part = 0; part < 16; ++part) {
    const unsigned low = scales[part % 8] >> (part / 8 * 4) & 15u;
    const unsigned high = scales[8 + part % 4] >> (part / 4 * 2) & 3u;
    const float part_scale = scale * static_cast<float>(static_cast<int>(low | high << 4) - 32);
    for (unsigned i = 16 * part; i < 16 * part + 16; ++i) {
      const unsigned high_bit = block[i % 32] >> (i / 32) & 1u;
      out[i] = part_scale * static_cast<float>(static_cast<int>(two_bits(block + 32, i) | high_bit << 2) - 4);
    }
  }
}

// The scale and the minimum of one of 8 parts, 6 bits each, from 12 bytes.
struct ScaleAndLeast {
  float scale;
  float least;
};

ScaleAndLeast scale_and_least(const uint8_t* bytes, unsigned part) {
  if (part < 4) return {static_cast<float>(bytes[part] & 63u), static_cast<float>(bytes[part + 4] & 63u)};
  const unsigned scale = (bytes[part + 4] & 15u) | (bytes[part - 4] >> 6) << 4;
  const unsigned least = (bytes[part + 4] >> 4) | (bytes[part] >> 6) << 4;
  return {static_cast<float>(scale), static_cast<float>(least)};
}

// Each 32 bytes hold two parts of 32 values: the first in the low halves, the second in the high halves.
template <bool fifth>
void decode_q4_or_q5_k(const uint8_t* block, float* out) {
  const float scale = half_at(block);
  const float least = half_at(block + 2);
  const uint8_t* high = block + 16;
  const uint8_t* low = block + (fifth ? 48 : 16);
  for (unsigned part = 0; part < 8; ++part) {
    const ScaleAndLeast of = scale_and_least(block + 4, part);
    const float part_scale = scale * of.scale;
    const float part_least = least * of.least;
    for (unsigned l = 0; l < 32; ++l) {
      unsigned q = low[part / 2 * 32 + l] >> (part % 2 * 4) & 15u;
      if constexpr (fifth) q |= (high[l] >> part & 1u) << 4;
      out[32 * part + l] = part_scale * static_cast<float>(q) - part_least;
    }
  }
}

void decode_q6_k(const uint8_t* block, float* out) {
  const float scale = half_at(block + 208);
  for (unsigned part = 0; part < 16; ++part) {
    const float part_scale = scale * static_cast<float>(signed_byte(block[192 + part]));
    for (unsigned i = 16 * part; i < 16 * part + 16; ++i) {
      const unsigned half = i / 128;
      const unsigned group = i % 128 / 32;
      const unsigned l = i % 32;
      const unsigned low = block[64 * half + group % 2 * 32 + l] >> (group / 2 * 4) & 15u;
      const unsigned high = block[128 + 32 * half + l] >> (2 * group) & 3u;
      out[i] = part_scale * static_cast<float>(static_cast<int>(low | high << 4) - 32);
    }
  }
}

void decode_iq4_xs(const uint8_t* block, float* out) {
  const float scale = half_at(block);
  const unsigned high_scales = block[2] | static_cast<unsigned>(block[3]) << 8;
  for (unsigned part = 0; part < 8; ++part) {
    const unsigned low = block[4 + part / 2] >> (part % 2 * 4) & 15u;
    const unsigned high = high_scales >> (2 * part) & 3u;
    const float part_scale = scale * static_cast<float>(static_cast<int>(low | high << 4) - 32);
    for (unsigned i = 0; i < 32; ++i) out[32 * part + i] = part_scale * iq4_values[nibble(block + 8 + 16 * part, i)];
  }
}

// A byte holds five values of three levels, as digits of a number in base 3 that is scaled to 256.
void decode_tq1_0(const uint8_t* block, float* out) {
  constexpr std::array<unsigned, 5> powers = {1, 3, 9, 27, 81};
  const float scale = half_at(block + 52);
  for (unsigned i = 0; i < 256; ++i) {
    const unsigned byte = i < 160 ? block[i % 32] : i < 240 ? block[32 + (i - 160) % 16] : block[48 + (i - 240) % 4];
    const unsigned digit = i < 160 ? i / 32 : i < 240 ? (i - 160) / 16 : (i - 240) / 4;
    const unsigned level = (byte * powers[digit] & 255u) * 3 >> 8;
    out[i] = scale * static_cast<float>(static_cast<int>(level) - 1);
  }
}

void decode_tq2_0(const uint8_t* block, float* out) {
  const float scale = half_at(block + 64);
  for (unsigned i = 0; i < 256; ++i) out[i] = scale * static_cast<float>(static_cast<int>(two_bits(block, i)) - 1);
}

constexpr std::array<BlockFormat, 15> formats = {{{"Q4_0", 2, 32, 18, decode_q4_0},
                                                  {"Q4_1", 3, 32, 20, decode_q4_1},
                                                  {"Q5_0", 6, 32, 22, decode_q5_0},
                                                  {"Q5_1", 7, 32, 24, decode_q5_1},
                                                  {"Q8_0", 8, 32, 34, decode_q8_0},
                                                  {"Q2_K", 10, 256, 84, decode_q2_k},
                                                  {"Q3_K", 11, 256, 110, decode_q3_k},
                                                  {"Q4_K", 12, 256, 144, decode_q4_or_q5_k<false>},
                                                  {"Q5_K", 13, 256, 176, decode_q4_or_q5_k<true>},
                                                  {"Q6_K", 14, 256, 210, decode_q6_k},
                                                  {"IQ4_NL", 20, 32, 18, decode_iq4_nl},
                                                  {"IQ4_XS", 23, 256, 136, decode_iq4_xs},
                                                  {"TQ1_0", 34, 256, 54, decode_tq1_0},
                                                  {"TQ2_0", 35, 256, 66, decode_tq2_0},
                                                  {"MXFP4", 39, 32, 17, decode_mxfp4}}};

}  // namespace

std::span<const BlockFormat> block_formats() noexcept { return formats; }

const BlockFormat* find_block_format(uint32_t number) noexcept {
  const auto* found = std::ranges::find(formats, number, &BlockFormat::number);
  return found == formats.end() ? nullptr : found;
}

void decode_blocks(const BlockFormat& format, std::span<const std::byte> blocks, std::span<float> out) {
  const auto* block = reinterpret_cast<const uint8_t*>(blocks.data());
  float* values = out.data();
  for (size_t left = blocks.size() / format.bytes; left > 0; --left) {
    format.decode(block, values);
    block += format.bytes;
    values += format.values;
  }
}

}  // namespace anyaccel
