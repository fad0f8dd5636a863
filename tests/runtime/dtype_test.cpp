// Tests of dtype names and of the conversions of single bf16 and fp16 values.
#include "anyaccel/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace anyaccel {
namespace {

TEST(DType, EveryNameIsUnderstood) {
  for (int32_t i = AA_DTYPE_BOOL; i <= AA_DTYPE_F8_E5M2; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype);
    EXPECT_EQ(parse_dtype("torch." + std::string(dtype_name(dtype))), dtype);
    EXPECT_GT(dtype_size(dtype), 0u);
  }
}

TEST(DType, ShortFormsAreUnderstood) {
  EXPECT_EQ(parse_dtype("fp32"), DType::F32);
  EXPECT_EQ(parse_dtype("bf16"), DType::BF16);
  EXPECT_EQ(parse_dtype("fp16"), DType::F16);
  EXPECT_EQ(parse_dtype("fp64"), DType::F64);
}

TEST(DType, OtherTextIsNot) {
  for (const char* text : {"", "none", "float17", "BF16 ", "torch."}) {
    EXPECT_FALSE(parse_dtype(text).has_value()) << text;
  }
}

TEST(DType, EveryFp16ComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = fp16_to_float(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(fp16_to_float(float_to_fp16(value))));
    } else {
      EXPECT_EQ(float_to_fp16(value), bits);
    }
  }
}

TEST(DType, EveryBf16ComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = bf16_to_float(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(value))));
    } else {
      EXPECT_EQ(float_to_bf16(value), bits);
    }
  }
}

// Between two neighbours the nearer one wins, in the middle the even one.
TEST(DType, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const float low = fp16_to_float(static_cast<uint16_t>(bits));
    const float high = fp16_to_float(static_cast<uint16_t>(bits + 1));
    const float middle = (low + high) / 2;
    EXPECT_EQ(float_to_fp16(middle), bits % 2 == 0 ? bits : bits + 1);
    EXPECT_EQ(float_to_fp16(std::nextafter(middle, low)), bits);
    EXPECT_EQ(float_to_fp16(std::nextafter(middle, high)), bits + 1);
  }
  EXPECT_EQ(float_to_fp16(65519.0f), 0x7bff);
  EXPECT_EQ(float_to_fp16(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
}

}  // namespace
}  // namespace anyaccel
