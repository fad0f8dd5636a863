// Stores blocks of quantized weights in their formats' layouts. The scales come from block_scales.h; they are rounded as the
// format stores them, and the numbers chosen once more for the rounded ones.
#include "base/block_encode.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "anyaccel/dtype.h"
#include "base/block_scales.h"
#include "base/text/text.h"

namespace anyaccel {
namespace {

using block_scales::Alike;
using block_scales::best_scale;
using block_scales::best_scale_and_minimum;
using block_scales::Evenly;
using block_scales::FromMinimum;
using block_scales::Given;
using block_scales::scale_parts;
using block_scales::scale_parts_from_minimum;
using block_scales::ScaleAndMinimum;
using block_scales::Scaled;
using block_scales::to_half;
using block_scales::Unevenly;

void put_half(uint8_t* at, uint16_t bits) { std::memcpy(at, &bits, sizeof bits); }

// ---- blocks of 32 values --------------------------------------------------------------------------------------------

// Stores the low four bits of each value; those of values 0 to 15 are in the low halves of the bytes.
void put_nibbles(uint8_t* bytes, const int* q) {
  for (unsigned i = 0; i < 16; ++i) bytes[i] = static_cast<uint8_t>((q[i] & 15) | (q[i + 16] & 15) << 4);
}

void put_fifth_bits(uint8_t* bytes, const int* q) {
  uint32_t bits = 0;
  for (unsigned i = 0; i < 32; ++i) bits |= static_cast<uint32_t>(q[i] >> 4 & 1) << i;
  std::memcpy(bytes, &bits, sizeof bits);
}

// Stores the scale and returns the numbers for it.
template <class Levels, class Weights>
std::array<int, 32> scaled(const Levels& levels, const float* values, Weights weights, uint8_t* scale_at) {
  const uint16_t bits = to_half(best_scale(levels, {values, 32}, weights));
  put_half(scale_at, bits);
  const float scale = fp16_to_float(bits);
  std::array<int, 32> q{};
  for (unsigned i = 0; i < 32; ++i) q[i] = levels.nearest(scale == 0 ? 0 : values[i] / scale);
  return q;
}

template <class Weights>
std::array<int, 32> scaled_from_minimum(int most, const float* values, Weights weights, uint8_t* block) {
  const ScaleAndMinimum found = best_scale_and_minimum({values, 32}, weights, most, INFINITY);
  const uint16_t scale_bits = to_half(found.scale);
  const uint16_t minimum_bits = to_half(found.minimum);
  put_half(block, scale_bits);
  put_half(block + 2, minimum_bits);
  const float scale = fp16_to_float(scale_bits);
  const float minimum = fp16_to_float(minimum_bits);
  const Evenly levels{0, most};
  std::array<int, 32> q{};
  for (unsigned i = 0; i < 32; ++i) q[i] = levels.nearest(scale == 0 ? 0 : (values[i] - minimum) / scale);
  return q;
}

template <class Weights>
void encode_q4_0(const float* values, Weights weights, uint8_t* block) {
  std::array<int, 32> q = scaled(Evenly{-8, 7}, values, weights, block);
  for (int& one : q) one += 8;
  put_nibbles(block + 2, q.data());
}

template <class Weights>
void encode_q4_1(const float* values, Weights weights, uint8_t* block) {
  put_nibbles(block + 4, scaled_from_minimum(15, values, weights, block).data());
}

template <class Weights>
void encode_q5_0(const float* values, Weights weights, uint8_t* block) {
  std::array<int, 32> q = scaled(Evenly{-16, 15}, values, weights, block);
  for (int& one : q) one += 16;
  put_fifth_bits(block + 2, q.data());
  put_nibbles(block + 6, q.data());
}

template <class Weights>
void encode_q5_1(const float* values, Weights weights, uint8_t* block) {
  const std::array<int, 32> q = scaled_from_minimum(31, values, weights, block);
  put_fifth_bits(block + 4, q.data());
  put_nibbles(block + 8, q.data());
}

template <class Weights>
void encode_q8_0(const float* values, Weights weights, uint8_t* block) {
  const std::array<int, 32> q = scaled(Evenly{-127, 127}, values, weights, block);
  for (unsigned i = 0; i < 32; ++i) block[2 + i] = static_cast<uint8_t>(static_cast<int8_t>(q[i]));
}

template <class Weights>
void encode_iq4_nl(const float* values, Weights weights, uint8_t* block) {
  put_nibbles(block + 2, scaled(Unevenly(), values, weights, block).data());
}

template <class Weights>
void encode_mxfp4(const float* values, Weights weights, uint8_t* block) {
  // The magnitudes are doubled, as in the decoder; the sign is the fourth bit.
  constexpr std::array<float, 8> magnitudes = {0, 1, 2, 3, 4, 6, 8, 12};
  constexpr std::array<float, 7> middles = {0.5F, 1.5F, 2.5F, 3.5F, 5, 7, 10};  // of neighbours
  float largest = 0;
  for (unsigned i = 0; i < 32; ++i) largest = std::max(largest, std::abs(values[i]));
  int exponent = 0;
  std::frexp(largest, &exponent);  // largest < 2^exponent; a scale of 2^(exponent - 4) holds it exactly or nearly
  float best_error = INFINITY;
  std::array<int, 32> q{};
  for (int code = exponent - 5 + 128; code <= exponent - 3 + 128; ++code) {
    const int stored = largest == 0 ? 0 : std::clamp(code, 0, 254);
    const float scale = std::ldexp(1.0F, stored - 128);
    float error = 0;
    std::array<int, 32> candidate{};
    for (unsigned i = 0; i < 32; ++i) {
      const float x = std::abs(values[i]) / scale;
      // A search for the least distance is wrong with g++ 14 and -O3, which vectorizes it together with the sum of errors.
      unsigned nearest = 0;
      for (const float middle : middles) nearest += x > middle ? 1 : 0;
      const float miss = (x - magnitudes[nearest]) * scale;
      error += weights[i] * miss * miss;
      candidate[i] = static_cast<int>(values[i] < 0 && nearest > 0 ? nearest | 8u : nearest);
    }
    if (error < best_error) {
      best_error = error;
      q = candidate;
      block[0] = static_cast<uint8_t>(stored);
    }
  }
  put_nibbles(block + 1, q.data());
}

// ---- blocks of 256 values -------------------------------------------------------------------------------------------

// Inverse of two_bits() of the decoder.
void put_two_bits(uint8_t* bytes, unsigned i, int q) {
  bytes[i / 128 * 32 + i % 32] |= static_cast<uint8_t>((q & 3) << (i % 128 / 32 * 2));
}

template <class Weights>
void encode_q2_k(const float* values, Weights weights, uint8_t* block) {
  const FromMinimum<16> found = scale_parts_from_minimum<16>(3, 15, values, weights);
  for (unsigned part = 0; part < 16; ++part) {
    block[part] = static_cast<uint8_t>(found.scales[part] | found.minima[part] << 4);
  }
  for (unsigned i = 0; i < 256; ++i) put_two_bits(block + 16, i, found.q[i]);
  put_half(block + 80, found.d);
  put_half(block + 82, found.dmin);
}

template <class Weights>
void encode_q3_k(const float* values, Weights weights, uint8_t* block) {
  const Scaled<16> found = scale_parts<16>(Evenly{-4, 3}, Evenly{-32, 31}, values, weights);
  for (unsigned i = 0; i < 256; ++i) {
    const int q = found.q[i] + 4;
    put_two_bits(block + 32, i, q);
    block[i % 32] |= static_cast<uint8_t>((q >> 2) << (i / 32));
  }
  for (unsigned part = 0; part < 16; ++part) {
    const int scale = found.scales[part] + 32;
    block[96 + part % 8] |= static_cast<uint8_t>((scale & 15) << (part / 8 * 4));
    block[104 + part % 4] |= static_cast<uint8_t>((scale >> 4) << (part / 4 * 2));
  }
  put_half(block + 108, found.d);
}

// Stores 8 scales and minima of 6 bits in 12 bytes.
void put_scales_and_minima(const FromMinimum<8>& found, uint8_t* bytes) {
  for (unsigned part = 0; part < 8; ++part) {
    const int scale = found.scales[part];
    const int minimum = found.minima[part];
    if (part < 4) {
      bytes[part] |= static_cast<uint8_t>(scale);
      bytes[part + 4] |= static_cast<uint8_t>(minimum);
    } else {
      bytes[part + 4] |= static_cast<uint8_t>((scale & 15) | (minimum & 15) << 4);
      bytes[part - 4] |= static_cast<uint8_t>((scale >> 4) << 6);
      bytes[part] |= static_cast<uint8_t>((minimum >> 4) << 6);
    }
  }
}

template <bool fifth, class Weights>
void encode_q4_or_q5_k(const float* values, Weights weights, uint8_t* block) {
  const FromMinimum<8> found = scale_parts_from_minimum<8>(fifth ? 31 : 15, 63, values, weights);
  put_half(block, found.d);
  put_half(block + 2, found.dmin);
  put_scales_and_minima(found, block + 4);
  uint8_t* low = block + (fifth ? 48 : 16);
  for (unsigned part = 0; part < 8; ++part) {
    for (unsigned l = 0; l < 32; ++l) {
      const int q = found.q[32 * part + l];
      low[part / 2 * 32 + l] |= static_cast<uint8_t>((q & 15) << (part % 2 * 4));
      if constexpr (fifth) block[16 + l] |= static_cast<uint8_t>((q >> 4) << part);
    }
  }
}

template <class Weights>
void encode_q4_k(const float* values, Weights weights, uint8_t* block) {
  encode_q4_or_q5_k<false>(values, weights, block);
}

template <class Weights>
void encode_q5_k(const float* values, Weights weights, uint8_t* block) {
  encode_q4_or_q5_k<true>(values, weights, block);
}

template <class Weights>
void encode_q6_k(const float* values, Weights weights, uint8_t* block) {
  const Scaled<16> found = scale_parts<16>(Evenly{-32, 31}, Evenly{-128, 127}, values, weights);
  for (unsigned i = 0; i < 256; ++i) {
    const unsigned half = i / 128;
    const unsigned group = i % 128 / 32;
    const unsigned l = i % 32;
    const int q = found.q[i] + 32;
    block[64 * half + group % 2 * 32 + l] |= static_cast<uint8_t>((q & 15) << (group / 2 * 4));
    block[128 + 32 * half + l] |= static_cast<uint8_t>((q >> 4) << (2 * group));
  }
  for (unsigned part = 0; part < 16; ++part) {
    block[192 + part] = static_cast<uint8_t>(static_cast<int8_t>(found.scales[part]));
  }
  put_half(block + 208, found.d);
}

template <class Weights>
void encode_iq4_xs(const float* values, Weights weights, uint8_t* block) {
  const Scaled<8> found = scale_parts<8>(Unevenly(), Evenly{-32, 31}, values, weights);
  put_half(block, found.d);
  unsigned high_scales = 0;
  for (unsigned part = 0; part < 8; ++part) {
    const int scale = found.scales[part] + 32;
    block[4 + part / 2] |= static_cast<uint8_t>((scale & 15) << (part % 2 * 4));
    high_scales |= static_cast<unsigned>(scale >> 4) << (2 * part);
    put_nibbles(block + 8 + 16 * part, found.q.data() + 32 * part);
  }
  block[2] = static_cast<uint8_t>(high_scales);
  block[3] = static_cast<uint8_t>(high_scales >> 8);
}

struct Encoder {
  std::string_view name;
  // The block's bytes are 0.
  void (*encode)(const float* values, Alike weights, uint8_t* block);
  void (*encode_weighted)(const float* values, Given weights, uint8_t* block);
};

#define ANYACCEL_ENCODER(name, function) \
  { name, function<Alike>, function<Given> }
constexpr std::array<Encoder, 13> encoders = {
    {ANYACCEL_ENCODER("Q4_0", encode_q4_0), ANYACCEL_ENCODER("Q4_1", encode_q4_1),
     ANYACCEL_ENCODER("Q5_0", encode_q5_0), ANYACCEL_ENCODER("Q5_1", encode_q5_1),
     ANYACCEL_ENCODER("Q8_0", encode_q8_0), ANYACCEL_ENCODER("Q2_K", encode_q2_k),
     ANYACCEL_ENCODER("Q3_K", encode_q3_k), ANYACCEL_ENCODER("Q4_K", encode_q4_k),
     ANYACCEL_ENCODER("Q5_K", encode_q5_k), ANYACCEL_ENCODER("Q6_K", encode_q6_k),
     ANYACCEL_ENCODER("IQ4_NL", encode_iq4_nl), ANYACCEL_ENCODER("IQ4_XS", encode_iq4_xs),
     ANYACCEL_ENCODER("MXFP4", encode_mxfp4)}};
#undef ANYACCEL_ENCODER

}  // namespace

bool can_encode(const BlockFormat& format) noexcept {
  return std::ranges::find(encoders, format.name, &Encoder::name) != encoders.end();
}

void encode_blocks(const BlockFormat& format, std::span<const float> values, std::span<std::byte> out,
                   std::span<const float> weights) {
  const auto* encoder = std::ranges::find(encoders, format.name, &Encoder::name);
  std::ranges::fill(out, std::byte{0});
  auto* block = reinterpret_cast<uint8_t*>(out.data());
  for (size_t first = 0; first < values.size(); first += format.values) {
    if (weights.empty()) {
      encoder->encode(values.data() + first, Alike{}, block);
    } else {
      encoder->encode_weighted(values.data() + first, Given{weights.data() + first}, block);
    }
    block += format.bytes;
  }
}

void encode_numbers(const BlockFormat& format, uint16_t scale, std::span<const int> numbers, std::byte* out) {
  auto* block = reinterpret_cast<uint8_t*>(out);
  put_half(block, scale);
  const bool of_eight_bits = format.name == "Q8_0";
  std::array<int, 32> q{};
  for (size_t i = 0; i < q.size(); ++i) {
    if (of_eight_bits) block[2 + i] = static_cast<uint8_t>(static_cast<int8_t>(numbers[i]));
    q[i] = numbers[i] + 8;
  }
  if (!of_eight_bits) put_nibbles(block + 2, q.data());
}

const BlockFormat* find_block_format(std::string_view name) noexcept {
  for (const BlockFormat& format : block_formats()) {
    if (std::ranges::equal(format.name, name, {}, ascii_upper, ascii_upper)) return &format;
  }
  return nullptr;
}

}  // namespace anyaccel
