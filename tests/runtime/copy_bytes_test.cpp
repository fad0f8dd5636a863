// copy_bytes() copies what memcpy() does, wherever both ranges lie within their pages.
#include "base/copy_bytes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace anyaccel {
namespace {

constexpr size_t kPage = 4096;

TEST(CopyBytes, EveryDistanceWithinAPageAndEveryKindOfSize) {
  constexpr size_t kMost = 3 * kPage + 7;
  std::vector<uint8_t> source(kMost + 3), target(kMost + 3 * kPage);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<uint8_t>(1 + i % 251);
  const auto place = [](const uint8_t* memory) { return reinterpret_cast<uintptr_t>(memory) % kPage; };
  for (size_t distance = 0; distance < kPage; distance += distance < 130 ? 1 : 61) {
    for (const size_t bytes : {size_t{0}, size_t{1}, size_t{65}, size_t{2048}, size_t{2049}, size_t{2112}, kMost}) {
      const uint8_t* const from = source.data() + bytes % 3;
      // From one page on, so that there is a byte before it.
      uint8_t* const to = target.data() + kPage + (place(from) + distance + kPage - place(target.data())) % kPage;
      const size_t after = static_cast<size_t>(to - target.data()) + bytes;
      ASSERT_LT(after, target.size());
      std::fill(target.begin(), target.end(), uint8_t{0});
      copy_bytes(to, from, bytes);
      for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(to[i], from[i]) << distance << ' ' << bytes << ' ' << i;
      ASSERT_EQ(to[-1], 0) << distance << ' ' << bytes;
      ASSERT_EQ(target[after], 0) << distance << ' ' << bytes;
    }
  }
}

TEST(CopyBytes, NothingFromNowhere) { copy_bytes(nullptr, nullptr, 0); }

}  // namespace
}  // namespace anyaccel
