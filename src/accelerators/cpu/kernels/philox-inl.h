// Words of Philox 4x32-10 (anyaccel/philox.h) in vectors. Included after base/simd/highway.h, once per instruction set.
#include <algorithm>

#include "anyaccel/philox.h"
#include "base/simd/float_types-inl.h"

#if defined(ANYACCEL_CPU_KERNELS_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_PHILOX_INL_H_
#undef ANYACCEL_CPU_KERNELS_PHILOX_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_PHILOX_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using namespace simd::HWY_NAMESPACE;  // NOLINT(google-build-using-namespace): one vocabulary for every kernel

#if HWY_TARGET != HWY_SCALAR
constexpr int kRounds = 10;
#endif

// The words of `counters` counters from `first` on, four each. There is room for kLanes more counters in `words`.
inline void philox_fill(uint64_t seed, uint64_t first, int64_t counters, uint32_t* words) {
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  // A 64-bit lane holds one counter, so that a product needs neither to be split nor put together: products read the lower
  // halves of their factors only, and what is left in the upper halves does not matter before the last round.
  const hn::RepartitionToWide<decltype(kUints)> wide;
  const auto swap = [&](auto x) HWY_ATTR { return hn::BitCast(wide, hn::Shuffle2301(hn::BitCast(kUints, x))); };
  const auto multiply = [&](auto x, uint64_t factor) HWY_ATTR {
    return hn::MulEven(hn::BitCast(kUints, x), hn::BitCast(kUints, hn::Set(wide, factor)));
  };
  const int64_t step = static_cast<int64_t>(hn::Lanes(wide));
  uint64_t keys0[kRounds], keys1[kRounds];
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < kRounds; ++round, k0 += kPhiloxWeyl0, k1 += kPhiloxWeyl1) {
    keys0[round] = k0;
    keys1[round] = k1;
  }
  const auto lower = hn::Set(wide, uint64_t{0xffffffff});
  for (; i < counters; i += step) {
    auto c0 = hn::Add(hn::Set(wide, first + static_cast<uint64_t>(i)), hn::Iota(wide, 0));
    auto c1 = swap(c0), c2 = hn::Zero(wide), c3 = c2;
    for (int round = 0; round < kRounds - 1; ++round) {
      const auto product0 = multiply(c0, kPhiloxMultiplier0), product1 = multiply(c2, kPhiloxMultiplier1);
      c0 = hn::Xor3(swap(product1), c1, hn::Set(wide, keys0[round]));
      c2 = hn::Xor3(swap(product0), c3, hn::Set(wide, keys1[round]));
      c1 = product1;
      c3 = product0;
    }
    // Words 0 and 1 of a counter, and 2 and 3, in its lane.
    const auto product0 = multiply(c0, kPhiloxMultiplier0), product1 = multiply(c2, kPhiloxMultiplier1);
    c0 = hn::Xor3(swap(product1), hn::And(c1, lower), hn::Set(wide, keys0[kRounds - 1]));
    c2 = hn::Xor3(swap(product0), hn::And(c3, lower), hn::Set(wide, keys1[kRounds - 1]));
    hn::StoreInterleaved2(c0, c2, wide, reinterpret_cast<uint64_t*>(words + 4 * i));
  }
#else
  for (; i < counters; ++i) {
    const auto four = philox_words(seed, first + static_cast<uint64_t>(i));
    std::copy(four.begin(), four.end(), words + 4 * i);
  }
#endif
}

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
