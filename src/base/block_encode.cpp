// Finds the scales of blocks by least squares: for each of a few scales around the one that fits the largest value, the
// nearest whole numbers q are taken, and for them the scale (and minimum) with the least squared error; the best of all
// is kept. Scales are then rounded as the format stores them, and the numbers chosen once more for the rounded ones. With
// weights, each squared error counts as often as its weight says.
#include "base/block_encode.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstring>

#include "anyaccel/dtype.h"

namespace anyaccel {
namespace {

constexpr float largest_half = 65504.0F;

uint16_t to_half(float value) { return float_to_fp16(std::clamp(value, -largest_half, largest_half)); }
void put_half(uint8_t* at, uint16_t bits) { std::memcpy(at, &bits, sizeof bits); }

// ---- the numbers that a format can store ----------------------------------------------------------------------------

// Levels that are the whole numbers from `least` to `most`.
struct Evenly {
  int least;
  int most;

  int nearest(float x) const {
    // Comparisons with NaN are false: a NaN, which is not allowed, becomes `least`.
    if (!(x > static_cast<float>(least))) return least;
    if (x > static_cast<float>(most)) return most;
    return static_cast<int>(std::lrint(x));
  }
  float value(int q) const { return static_cast<float>(q); }
  float low() const { return static_cast<float>(least); }
  float high() const { return static_cast<float>(most); }
};

// Levels that are the 16 values of the formats IQ4; q is the index.
struct Unevenly {
  static constexpr std::array<float, 16> values = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                   1,    13,   25,  38,  53,  69,  89,  113};
  int nearest(float x) const {
    const auto above = std::ranges::lower_bound(values, x) - values.begin();
    if (above == 0) return 0;
    if (above == 16) return 15;
    const auto index = static_cast<size_t>(above);
    return static_cast<int>(x - values[index - 1] < values[index] - x ? above - 1 : above);
  }
  float value(int q) const { return values[static_cast<size_t>(q)]; }
  float low() const { return values.front(); }
  float high() const { return values.back(); }
};

// ---- weights of the squared errors ----------------------------------------------------------------------------------

struct Alike {
  float operator[](size_t) const { return 1.0F; }
  Alike from(size_t) const { return {}; }
};

struct Given {
  const float* values;

  float operator[](size_t i) const { return values[i]; }
  Given from(size_t first) const { return {values + first}; }
};

// ---- scales ---------------------------------------------------------------------------------------------------------

// Returns the scale d with the least sum of w (x - d q)^2.
template <class Levels, class Weights>
float best_scale(const Levels& levels, std::span<const float> values, Weights weights) {
  float largest = 0;
  for (const float x : values) {
    if (std::abs(x) > std::abs(largest)) largest = x;
  }
  if (largest == 0) return 0;
  constexpr int steps = 8;
  float best = 0;
  float best_gain = -1;  // the sum of w x^2 less the squared error
  for (const float end : {levels.low(), levels.high()}) {
    for (int step = -steps; step <= steps; ++step) {
      // The largest value becomes the last number, or a number up to 0.8 inside or beyond it.
      const float inverse = (end + 0.1F * static_cast<float>(step)) / largest;
      if (!std::isfinite(inverse)) continue;
      float xq = 0;
      float qq = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        const float q = levels.value(levels.nearest(values[i] * inverse));
        const float wq = weights[i] * q;
        xq += values[i] * wq;
        qq += wq * q;
      }
      if (qq > 0 && xq * xq > best_gain * qq) {
        best_gain = xq * xq / qq;
        best = xq / qq;
      }
    }
  }
  // If the values are so small that their squares underflow, the largest value becomes the highest number.
  return best_gain > 0 ? best : largest / levels.high();
}

struct ScaleAndMinimum {
  float scale = 0;
  float minimum = 0;
};

// Returns the scale d and minimum m with the least sum of w (x - d q - m)^2 for q from 0 to `most`; m is at most
// `at_most`.
template <class Weights>
ScaleAndMinimum best_scale_and_minimum(std::span<const float> values, Weights weights, int most, float at_most) {
  const auto [low, high] = std::ranges::minmax(values);
  const float bottom = std::min(low, at_most);
  if (!(high > bottom)) return {0, bottom};
  const Evenly levels{0, most};
  const auto top = static_cast<float>(most);
  ScaleAndMinimum best{(high - bottom) / top, bottom};
  float best_error = INFINITY;
  const auto consider = [&](ScaleAndMinimum candidate) {
    if (!(candidate.scale > 0)) return;
    float error = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const float q = static_cast<float>(levels.nearest((values[i] - candidate.minimum) / candidate.scale));
      const float miss = values[i] - candidate.scale * q - candidate.minimum;
      error += weights[i] * miss * miss;
    }
    if (error < best_error) {
      best_error = error;
      best = candidate;
    }
  };
  consider(best);
  constexpr int steps = 10;
  for (int step = -steps; step <= steps; ++step) {
    const float inverse = (top + 0.1F * static_cast<float>(step)) / (high - bottom);
    if (!std::isfinite(inverse)) continue;
    float n = 0;
    float q1 = 0;
    float q2 = 0;
    float x1 = 0;
    float xq = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const float q = static_cast<float>(levels.nearest((values[i] - bottom) * inverse));
      const float wq = weights[i] * q;
      const float wx = weights[i] * values[i];
      n += weights[i];
      q1 += wq;
      q2 += wq * q;
      x1 += wx;
      xq += wx * q;
    }
    const float determinant = n * q2 - q1 * q1;
    if (!(determinant > 0)) continue;
    ScaleAndMinimum solved{(n * xq - q1 * x1) / determinant, (q2 * x1 - q1 * xq) / determinant};
    if (solved.minimum > at_most) solved = {xq / q2, at_most};
    consider(solved);
  }
  return best;
}

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
      unsigned nearest = 0;
      for (unsigned k = 1; k < 8; ++k) {
        if (std::abs(x - magnitudes[k]) < std::abs(x - magnitudes[nearest])) nearest = k;
      }
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

// Encodes parts with scales only: value = d * scale of the part * q.
template <unsigned parts>
struct Scaled {
  uint16_t d = 0;
  std::array<int, parts> scales{};
  std::array<int, 256> q{};
};

// `scales`: the levels that stored scales may have.
template <unsigned parts, class Levels, class Weights>
Scaled<parts> scale_parts(const Levels& levels, const Evenly& scales, const float* values, Weights weights) {
  constexpr unsigned size = 256 / parts;
  std::array<float, parts> wanted{};
  float largest = 0;
  for (unsigned part = 0; part < parts; ++part) {
    wanted[part] = best_scale(levels, {values + part * size, size}, weights.from(part * size));
    if (std::abs(wanted[part]) > std::abs(largest)) largest = wanted[part];
  }
  Scaled<parts> found;
  if (largest == 0) {
    for (unsigned i = 0; i < 256; ++i) found.q[i] = levels.nearest(0);
    return found;
  }
  float d = largest / static_cast<float>(scales.least);
  // Takes the best of the storable scales near the wanted one, since rounding a scale moves all values of a part.
  const auto choose = [&] {
    for (unsigned part = 0; part < parts; ++part) {
      const float near = wanted[part] / d;
      float best_error = INFINITY;
      for (int step = -1; step <= 1; ++step) {
        const int stored = scales.nearest(near + static_cast<float>(step));
        const float scale = d * static_cast<float>(stored);
        std::array<int, size> q{};
        float error = 0;
        for (unsigned i = 0; i < size; ++i) {
          const float x = values[part * size + i];
          q[i] = levels.nearest(scale == 0 ? 0 : x / scale);
          const float miss = x - scale * levels.value(q[i]);
          error += weights[part * size + i] * miss * miss;
        }
        if (error < best_error || step == -1) {
          best_error = error;
          found.scales[part] = stored;
          std::ranges::copy(q, found.q.begin() + part * size);
        }
      }
    }
  };
  choose();
  // Computes the best common factor for these numbers.
  float xq = 0;
  float qq = 0;
  for (unsigned i = 0; i < 256; ++i) {
    const float q = static_cast<float>(found.scales[i / size]) * levels.value(found.q[i]);
    const float wq = weights[i] * q;
    xq += values[i] * wq;
    qq += wq * q;
  }
  if (qq > 0 && std::isfinite(xq / qq) && xq != 0) d = xq / qq;
  found.d = to_half(d);
  d = fp16_to_float(found.d);
  if (d == 0) {
    for (unsigned i = 0; i < 256; ++i) found.q[i] = levels.nearest(0);
    return found;
  }
  choose();
  return found;
}

// Encodes parts with scales and minima: value = d * scale * q - dmin * minimum.
template <unsigned parts>
struct FromMinimum {
  uint16_t d = 0;
  uint16_t dmin = 0;
  std::array<int, parts> scales{};
  std::array<int, parts> minima{};
  std::array<int, 256> q{};
};

// q is at most `most`, scales and minima are at most `most_stored`.
template <unsigned parts, class Weights>
FromMinimum<parts> scale_parts_from_minimum(int most, int most_stored, const float* values, Weights weights) {
  constexpr unsigned size = 256 / parts;
  const Evenly levels{0, most};
  const Evenly stored{0, most_stored};
  std::array<ScaleAndMinimum, parts> wanted{};
  float scale_max = 0;
  float minimum_max = 0;
  for (unsigned part = 0; part < parts; ++part) {
    wanted[part] = best_scale_and_minimum({values + part * size, size}, weights.from(part * size), most, 0.0F);
    scale_max = std::max(scale_max, wanted[part].scale);
    minimum_max = std::max(minimum_max, -wanted[part].minimum);
  }
  FromMinimum<parts> found;
  float d = scale_max / static_cast<float>(most_stored);
  float dmin = minimum_max / static_cast<float>(most_stored);
  // Takes the best of the storable pairs near the wanted one.
  const auto choose = [&] {
    for (unsigned part = 0; part < parts; ++part) {
      const float near_scale = d == 0 ? 0 : wanted[part].scale / d;
      const float near_minimum = dmin == 0 ? 0 : -wanted[part].minimum / dmin;
      float best_error = INFINITY;
      for (int step = 0; step < 9; ++step) {
        const int stored_scale = stored.nearest(near_scale + static_cast<float>(step / 3 - 1));
        const int stored_minimum = stored.nearest(near_minimum + static_cast<float>(step % 3 - 1));
        const float scale = d * static_cast<float>(stored_scale);
        const float minimum = dmin * static_cast<float>(stored_minimum);
        std::array<int, size> q{};
        float error = 0;
        for (unsigned i = 0; i < size; ++i) {
          const float x = values[part * size + i];
          q[i] = levels.nearest(scale == 0 ? 0 : (x + minimum) / scale);
          const float miss = x + minimum - scale * static_cast<float>(q[i]);
          error += weights[part * size + i] * miss * miss;
        }
        if (error < best_error || step == 0) {
          best_error = error;
          found.scales[part] = stored_scale;
          found.minima[part] = stored_minimum;
          std::ranges::copy(q, found.q.begin() + part * size);
        }
      }
    }
  };
  choose();
  // Computes the best factors for these numbers: x is about d a - dmin b.
  double aa = 0;
  double ab = 0;
  double bb = 0;
  double xa = 0;
  double xb = 0;
  for (unsigned i = 0; i < 256; ++i) {
    const double a = found.scales[i / size] * found.q[i];
    const double b = -found.minima[i / size];
    const auto w = static_cast<double>(weights[i]);
    aa += w * a * a;
    ab += w * a * b;
    bb += w * b * b;
    xa += w * static_cast<double>(values[i]) * a;
    xb += w * static_cast<double>(values[i]) * b;
  }
  const double determinant = aa * bb - ab * ab;
  if (determinant > 1e-6 * aa * bb) {
    const double best_d = (bb * xa - ab * xb) / determinant;
    const double best_dmin = (aa * xb - ab * xa) / determinant;
    if (best_d > 0 && best_dmin >= 0) {
      d = static_cast<float>(best_d);
      dmin = static_cast<float>(best_dmin);
    }
  } else if (aa > 0 && bb == 0 && xa > 0) {
    d = static_cast<float>(xa / aa);
  }
  found.d = to_half(d);
  found.dmin = to_half(dmin);
  d = fp16_to_float(found.d);
  dmin = fp16_to_float(found.dmin);
  choose();
  return found;
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
    if (std::ranges::equal(format.name, name, {}, {}, [](unsigned char c) { return std::toupper(c); })) return &format;
  }
  return nullptr;
}

}  // namespace anyaccel
