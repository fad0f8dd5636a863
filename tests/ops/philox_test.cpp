// Philox 4x32-10 against the known answers that Random123 publishes (kat_vectors).
#include "anyaccel/philox.h"

#include <gtest/gtest.h>

namespace anyaccel {
namespace {

using Counter = std::array<uint32_t, 4>;
using Key = std::array<uint32_t, 2>;

TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}), (Counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Counter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Counter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, RunsInConstantExpressions) {
  constexpr Counter words = philox4x32_10({0, 0, 0, 0}, {0, 0});
  static_assert(words[0] == 0x6627e8d5u);
  SUCCEED();
}

TEST(Philox, SeedAndCounterGoLowWordFirst) {
  EXPECT_EQ(philox_words(0x299f31d0a4093822, 0x85a308d3243f6a88),
            philox4x32_10({0x243f6a88, 0x85a308d3, 0, 0}, {0xa4093822, 0x299f31d0}));
}

TEST(Philox, UnitStaysBelowOne) {
  EXPECT_EQ(philox_unit(0), 0.0f);
  EXPECT_EQ(philox_unit(0xffu), 0.0f);
  EXPECT_LT(philox_unit(0xffffffffu), 1.0f);
  EXPECT_EQ(philox_unit(0x80000000u), 0.5f);
}

}  // namespace
}  // namespace anyaccel
