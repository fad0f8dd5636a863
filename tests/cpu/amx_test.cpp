// Compares the processor's matrix unit with its software version.
#include "base/simd/amx.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/simd/cpu_features.h"

namespace anyaccel::cpu::amx {
namespace {

enum class Kind { Bf16, I8I8, I8U8, U8I8 };

struct Operands {
  std::vector<uint8_t> sum, a, b;
};

template <class U>
std::vector<uint8_t> multiply(Kind kind, const std::array<TileShape, kTiles>& shapes, const Operands& from) {
  std::vector<uint8_t> out(kMostRows * kMostRowBytes);
  U::set_shapes(shapes);
  U::template load<0>(from.sum.data(), kMostRowBytes);
  U::template load<1>(from.a.data(), kMostRowBytes);
  U::template load_once<7>(from.b.data(), kMostRowBytes);
  switch (kind) {
    case Kind::Bf16: U::template multiply_bf16<0, 1, 7>(); break;
    case Kind::I8I8: U::template multiply_i8_i8<0, 1, 7>(); break;
    case Kind::I8U8: U::template multiply_i8_u8<0, 1, 7>(); break;
    case Kind::U8I8: U::template multiply_u8_i8<0, 1, 7>(); break;
  }
  U::template store<0>(out.data(), kMostRowBytes);
  U::template zero<0>();
  U::release();
  return out;
}

TEST(Amx, TheProcessorAndTheSoftwareComputeTheSame) {
  if (!is_isa_available(Isa::Amx)) GTEST_SKIP() << "this machine lacks AMX, or its kernel lets no process use it";
  std::mt19937 random(1);
  for (const Kind kind : {Kind::Bf16, Kind::I8I8, Kind::I8U8, Kind::U8I8}) {
    for (int round = 0; round < 100; ++round) {
      const auto size = [&] { return static_cast<uint8_t>(random() % 16 + 1); };
      const uint8_t m = size(), n = size(), depth = size();
      std::array<TileShape, kTiles> shapes{};
      shapes[0] = {m, static_cast<uint16_t>(4 * n)};
      shapes[1] = {m, static_cast<uint16_t>(4 * depth)};
      shapes[7] = {depth, static_cast<uint16_t>(4 * n)};
      const auto bytes = [&] {
        std::vector<uint8_t> values(kMostRows * kMostRowBytes);
        for (uint8_t& value : values) value = static_cast<uint8_t>(random());
        return values;
      };
      // bf16 numbers and fp32 sums with exponents of -63 to 64, and now and then a denormal.
      const auto floats = [&](size_t width) {
        std::vector<uint8_t> values = bytes();
        for (size_t i = width - 1; i < values.size(); i += width) {
          const bool denormal = random() % 16 == 0;
          values[i] = static_cast<uint8_t>((values[i] & 0x80u) | (denormal ? 0 : 0x20 + random() % 0x40));
          if (denormal) values[i - 1] &= 0x7fu;
        }
        return values;
      };
      const Operands from =
          kind == Kind::Bf16 ? Operands{floats(4), floats(2), floats(2)} : Operands{bytes(), bytes(), bytes()};
      ASSERT_EQ(multiply<Unit>(kind, shapes, from), multiply<EmulatedUnit>(kind, shapes, from))
          << "kind " << static_cast<int>(kind) << ": " << int{m} << " x " << int{n} << ", depth " << int{depth};
    }
  }
}

// Products that overflow, that are below the smallest normal number, and infinite ones, among them those that are no numbers.
TEST(Amx, TheSoftwareRoundsSumsOnce) {
  std::mt19937 random(2);
  const auto flushed = [](float value) {
    return std::fabs(value) < std::numeric_limits<float>::min() ? std::copysign(0.0F, value) : value;
  };
  const auto number = [&](const std::vector<uint8_t>& bytes, size_t i) {
    return flushed(std::bit_cast<float>(static_cast<uint32_t>(bytes[2 * i] | bytes[2 * i + 1] << 8) << 16));
  };
  std::array<TileShape, kTiles> shapes{};
  shapes[0] = shapes[1] = shapes[7] = {16, 64};
  const std::array<uint8_t, 6> exponents{0x7f, 0x40, 0x20, 0x00, 0x01, 0x3f};  // their upper 7 bits
  for (int round = 0; round < 20; ++round) {
    Operands from{std::vector<uint8_t>(1024), std::vector<uint8_t>(1024), std::vector<uint8_t>(1024)};
    for (std::vector<uint8_t>* values : {&from.a, &from.b}) {
      for (size_t i = 0; i < values->size(); i += 2) {
        const uint32_t bits = random();
        (*values)[i] = static_cast<uint8_t>(bits);
        (*values)[i + 1] = static_cast<uint8_t>((bits >> 8 & 0x80U) | exponents[random() % exponents.size()]);
        if (random() % 4 != 0 && (*values)[i] > 0x7f) (*values)[i] &= 0x7f;  // fewer infinite ones
        if (random() % 4 == 0) (*values)[i] = (*values)[i + 1] = 0;
      }
    }
    const std::vector<uint8_t> found = multiply<EmulatedUnit>(Kind::Bf16, shapes, from);
    for (size_t m = 0; m < 16; ++m) {
      for (size_t n = 0; n < 16; ++n) {
        std::array<float, 2> halves{};
        for (size_t k = 0; k < 32; ++k) {
          const float left = number(from.a, m * 32 + k), right = number(from.b, k / 2 * 32 + 2 * n + k % 2);
          halves[k % 2] = flushed(std::fma(left, right, halves[k % 2]));
        }
        const float expected = flushed(0.0F + flushed(halves[0] + halves[1]));
        float sum;
        std::memcpy(&sum, &found[64 * m + 4 * n], sizeof(sum));
        ASSERT_TRUE(std::isnan(expected) ? std::isnan(sum)
                                         : std::bit_cast<uint32_t>(sum) == std::bit_cast<uint32_t>(expected))
            << sum << " instead of " << expected;
      }
    }
  }
}

TEST(Amx, TheSoftwareMultipliesByHand) {
  std::array<TileShape, kTiles> shapes{};
  shapes[0] = {1, 8};
  shapes[1] = {1, 4};
  shapes[7] = {1, 8};
  Operands from{std::vector<uint8_t>(1024), std::vector<uint8_t>(1024), std::vector<uint8_t>(1024)};
  from.a[0] = 255;  // -1 or 255
  from.a[3] = 2;
  from.b[0] = 3;
  from.b[3] = 254;  // -2 or 254
  from.b[4] = 1;
  const auto first_two = [&](Kind kind) {
    const std::vector<uint8_t> bytes = multiply<EmulatedUnit>(kind, shapes, from);
    std::array<int32_t, 2> sums;
    std::memcpy(sums.data(), bytes.data(), sizeof(sums));
    return sums;
  };
  EXPECT_EQ(first_two(Kind::I8I8), (std::array<int32_t, 2>{-3 - 4, -1}));
  EXPECT_EQ(first_two(Kind::I8U8), (std::array<int32_t, 2>{-3 + 508, -1}));
  EXPECT_EQ(first_two(Kind::U8I8), (std::array<int32_t, 2>{765 - 4, 255}));
  const auto put = [](std::vector<uint8_t>& to, size_t at, float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value) >> 16;
    to[2 * at] = static_cast<uint8_t>(bits);
    to[2 * at + 1] = static_cast<uint8_t>(bits >> 8);
  };
  put(from.a, 0, 1.5F);
  put(from.a, 1, -2.0F);
  put(from.b, 0, 4.0F);
  put(from.b, 1, 0.5F);
  put(from.b, 2, 0.0F);
  put(from.b, 3, 3.0F);
  const std::vector<uint8_t> bytes = multiply<EmulatedUnit>(Kind::Bf16, shapes, from);
  std::array<float, 2> sums;
  std::memcpy(sums.data(), bytes.data(), sizeof(sums));
  EXPECT_EQ(sums, (std::array<float, 2>{5.0F, -6.0F}));
}

}  // namespace
}  // namespace anyaccel::cpu::amx
