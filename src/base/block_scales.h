// Searches the scales of blocks by least squares: for each of a few scales around the one that fits the largest value, the
// nearest whole numbers q are taken, and for them the scale (and minimum) with the least squared error; the best of all is
// kept. With weights, each squared error counts as often as its weight says. block_encode.cpp stores what is found here.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "anyaccel/dtype.h"

namespace anyaccel::block_scales {

constexpr float largest_half = 65504.0F;

inline uint16_t to_half(float value) { return float_to_fp16(std::clamp(value, -largest_half, largest_half)); }

// Four numbers that take one instruction, on every processor, so that all of them find the same scales.
using Four = float __attribute__((vector_size(16)));
inline Four load_four(const float* from) {
  Four four;
  std::memcpy(&four, from, sizeof four);
  return four;
}
// A number, or four times the same one.
template <class X>
X spread(float v) {
  if constexpr (std::is_same_v<X, float>) {
    return v;
  } else {
    return X{v, v, v, v};
  }
}
inline float sum_of(Four v) { return (v[0] + v[1]) + (v[2] + v[3]); }

// ---- the numbers that a format can store ----------------------------------------------------------------------------

// Levels that are the whole numbers from `least` to `most`.
struct Evenly {
  int least;
  int most;

  // Without branches and calls, so that loops over values use vector instructions. X is float or Four.
  template <class X>
  X nearest_value(X x) const {
    // Comparisons with NaN are false: a NaN, which is not allowed, becomes `least`.
    const X above = x > low() ? x : spread<X>(low());
    const X within = above < high() ? above : spread<X>(high());
    // Adding 1.5 * 2^23 leaves no bit for fractions: the sum is rounded to the nearest whole number, ties to even.
    constexpr float no_fractions = 0x1.8p23F;
    return (within + no_fractions) - no_fractions;
  }
  int nearest(float x) const { return static_cast<int>(nearest_value(x)); }
  float value(int q) const { return static_cast<float>(q); }
  float low() const { return static_cast<float>(least); }
  float high() const { return static_cast<float>(most); }
};

// Levels that are the 16 values of the formats IQ4; q is the index.
struct Unevenly {
  static constexpr std::array<float, 16> values = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                   1,    13,   25,  38,  53,  69,  89,  113};
  // A number halfway between two values becomes the upper one.
  int nearest(float x) const {
    int index = 0;
    for (size_t i = 1; i < values.size(); ++i) index += x >= (values[i - 1] + values[i]) / 2 ? 1 : 0;
    return index;
  }
  template <class X>
  X nearest_value(X x) const {
    X value = spread<X>(values.front());
    for (size_t i = 1; i < values.size(); ++i) {
      value += x >= (values[i - 1] + values[i]) / 2 ? spread<X>(values[i] - values[i - 1]) : X{};
    }
    return value;
  }
  float value(int q) const { return values[static_cast<size_t>(q)]; }
  float low() const { return values.front(); }
  float high() const { return values.back(); }
};

// ---- weights of the squared errors ----------------------------------------------------------------------------------

struct Alike {
  float operator[](size_t) const { return 1.0F; }
  Four four(size_t) const { return spread<Four>(1); }
  Alike from(size_t) const { return {}; }
};

struct Given {
  const float* values;

  float operator[](size_t i) const { return values[i]; }
  Four four(size_t i) const { return load_four(values + i); }
  Given from(size_t first) const { return {values + first}; }
};

// ---- scales ---------------------------------------------------------------------------------------------------------

// Returns the scale d with the least sum of w (x - d q)^2. The number of values is a multiple of four.
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
      Four four_xq{};
      Four four_qq{};
      for (size_t i = 0; i < values.size(); i += 4) {
        const Four x = load_four(&values[i]);
        const Four q = levels.nearest_value(x * inverse);
        const Four wq = weights.four(i) * q;
        four_xq += x * wq;
        four_qq += wq * q;
      }
      const float xq = sum_of(four_xq);
      const float qq = sum_of(four_qq);
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
    Four errors{};
    for (size_t i = 0; i < values.size(); i += 4) {
      const Four x = load_four(&values[i]);
      const Four q = levels.nearest_value((x - candidate.minimum) / candidate.scale);
      const Four miss = x - candidate.scale * q - candidate.minimum;
      errors += weights.four(i) * miss * miss;
    }
    const float error = sum_of(errors);
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
    Four sums[5] = {};  // of w, w q, w q^2, w x and w x q
    for (size_t i = 0; i < values.size(); i += 4) {
      const Four x = load_four(&values[i]);
      const Four w = weights.four(i);
      const Four q = levels.nearest_value((x - bottom) * inverse);
      sums[0] += w;
      sums[1] += w * q;
      sums[2] += w * q * q;
      sums[3] += w * x;
      sums[4] += w * x * q;
    }
    const float n = sum_of(sums[0]);
    const float q1 = sum_of(sums[1]);
    const float q2 = sum_of(sums[2]);
    const float x1 = sum_of(sums[3]);
    const float xq = sum_of(sums[4]);
    const float determinant = n * q2 - q1 * q1;
    if (!(determinant > 0)) continue;
    ScaleAndMinimum solved{(n * xq - q1 * x1) / determinant, (q2 * x1 - q1 * xq) / determinant};
    if (solved.minimum > at_most) solved = {xq / q2, at_most};
    consider(solved);
  }
  return best;
}

// ---- parts of a block of 256 values, whose scales are stored rounded ------------------------------------------------

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
      const float* own = values + part * size;
      const float near = wanted[part] / d;
      float best_error = INFINITY;
      for (int step = -1; step <= 1; ++step) {
        const int stored = scales.nearest(near + static_cast<float>(step));
        const float scale = d * static_cast<float>(stored);
        Four errors{};
        for (unsigned i = 0; i < size; i += 4) {
          const Four x = load_four(own + i);
          const Four miss = x - scale * levels.nearest_value(scale == 0 ? Four{} : x / scale);
          errors += weights.four(part * size + i) * miss * miss;
        }
        const float error = sum_of(errors);
        if (error < best_error || step == -1) {
          best_error = error;
          found.scales[part] = stored;
        }
      }
      const float scale = d * static_cast<float>(found.scales[part]);
      for (unsigned i = 0; i < size; ++i) found.q[part * size + i] = levels.nearest(scale == 0 ? 0 : own[i] / scale);
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
      const float* own = values + part * size;
      const float near_scale = d == 0 ? 0 : wanted[part].scale / d;
      const float near_minimum = dmin == 0 ? 0 : -wanted[part].minimum / dmin;
      float best_error = INFINITY;
      for (int step = 0; step < 9; ++step) {
        const int stored_scale = stored.nearest(near_scale + static_cast<float>(step / 3 - 1));
        const int stored_minimum = stored.nearest(near_minimum + static_cast<float>(step % 3 - 1));
        const float scale = d * static_cast<float>(stored_scale);
        const float minimum = dmin * static_cast<float>(stored_minimum);
        Four errors{};
        for (unsigned i = 0; i < size; i += 4) {
          const Four x = load_four(own + i) + minimum;
          const Four miss = x - scale * levels.nearest_value(scale == 0 ? Four{} : x / scale);
          errors += weights.four(part * size + i) * miss * miss;
        }
        const float error = sum_of(errors);
        if (error < best_error || step == 0) {
          best_error = error;
          found.scales[part] = stored_scale;
          found.minima[part] = stored_minimum;
        }
      }
      const float scale = d * static_cast<float>(found.scales[part]);
      const float minimum = dmin * static_cast<float>(found.minima[part]);
      for (unsigned i = 0; i < size; ++i) {
        found.q[part * size + i] = levels.nearest(scale == 0 ? 0 : (own[i] + minimum) / scale);
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

}  // namespace anyaccel::block_scales
