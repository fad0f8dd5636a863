// Computes the matrix product of the simulated cuBLASLt.
#include "simulators/libraries/product.h"

#include <cmath>
#include <cstring>
#include <vector>

namespace sim_library {
namespace {

std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
float float_of(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Keeps the upper bits of an fp32 number, rounding to nearest, ties to even.
float round_to(float value, int dropped_bits) {
  const std::uint32_t bits = bits_of(value);
  if (std::isnan(value) || std::isinf(value)) return value;
  const std::uint32_t half = (std::uint32_t{1} << (dropped_bits - 1)) - 1;
  const std::uint32_t odd = (bits >> dropped_bits) & 1;
  return float_of((bits + half + odd) & ~((std::uint32_t{1} << dropped_bits) - 1));
}

std::uint16_t half_bits(float value) {
  const std::uint32_t bits = bits_of(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000);
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | 0x7e00);
  const float size = std::fabs(value);
  if (size >= 65520.0F) return static_cast<std::uint16_t>(sign | 0x7c00);
  if (size < 0x1p-14F) {  // subnormal: units of 2^-24
    return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(std::nearbyintf(size * 0x1p24F)));
  }
  const std::uint32_t rounded = bits_of(round_to(size, 13));
  return static_cast<std::uint16_t>(sign | ((rounded >> 13) - (112U << 10)));
}

float half_value(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000) << 16;
  const std::uint32_t exponent = (half >> 10) & 31, fraction = half & 0x3ff;
  if (exponent == 0) {
    const float size = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -size : size;
  }
  return float_of(sign | (exponent == 31 ? 0x7f800000U : (exponent + 112) << 23) | fraction << 13);
}

float rounded(float value, InputRounding rounding) {
  switch (rounding) {
    case InputRounding::tf32: return round_to(value, 13);
    case InputRounding::bf16: return round_to(value, 16);
    case InputRounding::f16: return half_value(half_bits(value));
    default: return value;
  }
}

float activated(float value, Activation activation) {
  switch (activation) {
    case Activation::relu: return value > 0 ? value : 0;
    case Activation::gelu:  // by tanh, as the library's documentation has it
      return 0.5F * value * (1 + std::tanh(0.7978845608F * (value + 0.044715F * value * value * value)));
    default: return value;
  }
}

}  // namespace

std::size_t size_of_type(int type) {
  switch (type) {
    case kF32: return 4;
    case kF16:
    case kBf16: return 2;
    default: return 0;
  }
}

float load_number(const char* at, int type) {
  if (type == kF32) {
    float value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return type == kBf16 ? float_of(static_cast<std::uint32_t>(bits) << 16) : half_value(bits);
}

void store_number(char* at, int type, float value) {
  if (type == kF32) {
    std::memcpy(at, &value, sizeof value);
    return;
  }
  std::uint16_t bits = 0;
  if (type == kF16) {
    bits = half_bits(value);
  } else {
    bits = std::isnan(value) ? std::uint16_t{0x7fc0} : static_cast<std::uint16_t>(bits_of(round_to(value, 16)) >> 16);
  }
  std::memcpy(at, &bits, sizeof bits);
}

void compute(const Product& p, const char* a, const char* b, const char* c, const char* bias, char* d) {
  const auto at = [](const char* base, const Strided& s, std::int64_t row, std::int64_t column, std::int64_t batch) {
    return base + (row * s.row_step + column * s.column_step + batch * s.batch_step) *
                      static_cast<std::int64_t>(size_of_type(s.type));
  };
  const auto m = static_cast<std::size_t>(p.m), k = static_cast<std::size_t>(p.k);
  std::vector<float> left(m * k);  // a, column by column, so that the inner loop runs over rows
  std::vector<float> right(k), sums(m);
  for (std::int64_t batch = 0; batch < p.batch; ++batch) {
    for (std::int64_t j = 0; j < p.k; ++j) {
      for (std::int64_t i = 0; i < p.m; ++i) {
        left[static_cast<std::size_t>(j) * m + static_cast<std::size_t>(i)] =
            rounded(load_number(at(a, p.a, i, j, batch), p.a.type), p.rounding);
      }
    }
    for (std::int64_t column = 0; column < p.n; ++column) {
      for (std::int64_t j = 0; j < p.k; ++j) {
        right[static_cast<std::size_t>(j)] = rounded(load_number(at(b, p.b, j, column, batch), p.b.type), p.rounding);
      }
      std::fill(sums.begin(), sums.end(), 0.0F);
      for (std::size_t j = 0; j < k; ++j) {
        const float factor = right[j];
        const float* from = left.data() + j * m;
        for (std::size_t i = 0; i < m; ++i) sums[i] += from[i] * factor;
      }
      for (std::int64_t row = 0; row < p.m; ++row) {
        float value = p.alpha * sums[static_cast<std::size_t>(row)];
        if (p.beta != 0) value += p.beta * load_number(at(c, p.c, row, column, batch), p.c.type);
        if (p.bias) {
          value += load_number(
              bias + (row + batch * p.bias_batch_step) * static_cast<std::int64_t>(size_of_type(p.bias_type)),
              p.bias_type);
        }
        store_number(const_cast<char*>(at(d, p.d, row, column, batch)), p.d.type, activated(value, p.activation));
      }
    }
  }
}

}  // namespace sim_library
