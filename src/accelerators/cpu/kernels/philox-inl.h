// Words of Philox 4x32-10 (anyaccel/philox.h) in vectors. Included after hwy/highway.h, once per instruction set.
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
using UintVec = hn::Vec<decltype(kUints)>;

// Upper and lower halves of the 64-bit products of all lanes.
HWY_INLINE void multiply_wide(UintVec x, uint32_t factor, UintVec& high, UintVec& low) {
  const hn::RepartitionToWide<decltype(kUints)> wide;
  const auto f = hn::Set(kUints, factor);
  const auto even = hn::MulEven(x, f);
  const auto odd = hn::MulEven(hn::BitCast(kUints, hn::ShiftRight<32>(hn::BitCast(wide, x))), f);
  high = hn::OddEven(hn::BitCast(kUints, odd), hn::BitCast(kUints, hn::ShiftRight<32>(even)));
  low = hn::Mul(x, f);
}
#endif

// The words of `counters` counters from `first` on, four each. There is room for kLanes more counters in `words`.
inline void philox_fill(uint64_t seed, uint64_t first, int64_t counters, uint32_t* words) {
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  for (; i < counters; i += kLanes) {
    const uint64_t base = first + static_cast<uint64_t>(i);
    // The lower word may wrap within the vector.
    const auto low_base = hn::Set(kUints, static_cast<uint32_t>(base));
    auto c0 = hn::Add(low_base, hn::Iota(kUints, 0));
    const auto carry = hn::VecFromMask(kUints, hn::Lt(c0, low_base));
    auto c1 = hn::Sub(hn::Set(kUints, static_cast<uint32_t>(base >> 32)), carry);
    auto c2 = hn::Zero(kUints), c3 = c2;
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      UintVec high0, low0, high1, low1;
      multiply_wide(c0, kPhiloxMultiplier0, high0, low0);
      multiply_wide(c2, kPhiloxMultiplier1, high1, low1);
      c0 = hn::Xor(hn::Xor(high1, c1), hn::Set(kUints, k0));
      c2 = hn::Xor(hn::Xor(high0, c3), hn::Set(kUints, k1));
      c1 = low1;
      c3 = low0;
      k0 += kPhiloxWeyl0;
      k1 += kPhiloxWeyl1;
    }
    hn::StoreInterleaved4(c0, c1, c2, c3, kUints, words + 4 * i);
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
