// copy_past_caches() copies what memcpy() does, and nothing around it, with every instruction set.
#include "accelerators/cpu/kernels/past_caches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/simd/cpu_features.h"

namespace anyaccel::cpu {
namespace {

TEST(PastCaches, CopiesFromAnyPlaceInALineToAnyOther) {
  const Isa before = isa();
  for (const Isa set : {Isa::Baseline, Isa::Avx2, Isa::Avx512, Isa::Amx}) {
    if (!is_isa_available(set)) continue;
    set_isa(set);
    SCOPED_TRACE(std::string(isa_name(set)));
    constexpr size_t kMost = 20'011, kAround = 256;
    std::vector<uint8_t> source(kMost + kAround), target(kMost + kAround);
    for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<uint8_t>(1 + i % 251);
    for (size_t from = 0; from < 64; from += 7) {
      for (size_t to = 1; to < 65; to += 3) {
        for (const size_t bytes : {size_t{0}, size_t{1}, size_t{62}, size_t{64}, size_t{127}, size_t{512}, kMost}) {
          std::fill(target.begin(), target.end(), uint8_t{0});
          std::vector<uint8_t> expected = target;
          std::copy_n(source.begin() + static_cast<int64_t>(from), bytes, expected.begin() + static_cast<int64_t>(to));
          copy_past_caches(target.data() + to, source.data() + from, bytes);
          ASSERT_EQ(target, expected) << bytes << " bytes from " << from << " to " << to;
        }
      }
    }
  }
  set_isa(before);
}

TEST(PastCaches, NothingFromNowhere) {
  uint8_t byte = 7;
  copy_past_caches(&byte, nullptr, 0);
  EXPECT_EQ(byte, 7);
  copy_past_caches(nullptr, nullptr, 0);  // a build with sanitizers sees a null pointer that is used
}

}  // namespace
}  // namespace anyaccel::cpu
