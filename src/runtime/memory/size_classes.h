// Size classes of the caching allocator: eight for each doubling of the size, finer for very large sizes.
//
// Blocks live in one of two domains that never mix: small ones, cut from small segments, and large ones. Each domain
// has its own classes, and all classes of both are numbered in one row, so that one bitmap covers them.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace anyaccel::size_classes {

inline constexpr size_t kMinBlock = 512;
inline constexpr size_t kMaxSmall = size_t{1} << 20;           // the largest request of the small domain
inline constexpr size_t kSmallSegment = size_t{2} << 20;       // of small blocks: at least,
inline constexpr size_t kMostSmallSegment = size_t{32} << 20;  // and at most
inline constexpr size_t kMaxMid = size_t{10} << 20;  // below this, large blocks are cut from segments of the next size
inline constexpr size_t kMidSegment = size_t{20} << 20;
inline constexpr size_t kMaxRequest = size_t{1} << 46;  // more than any device has; keeps the arithmetic from wrapping

// Divides the sizes from 2^l to 2^(l+1) into classes: class = base + (size >> shift).
struct Doubling {
  int16_t base = 0;
  int16_t shift = 0;
};

inline constexpr int kLogs = 48;
using Doublings = std::array<Doubling, kLogs>;

struct Tables {
  Doublings small;
  Doublings large;
  Doublings requests;  // of either domain, by the logarithm of the size less one
  int small_count = 0;
  int count = 0;
};

// log2 of the number of classes in the doubling from 2^l on. From 32 MiB on a step is 2 MiB, the page of most devices,
// or 1/32 of the size: weights are kept for long, and should not pay 12.5%.
constexpr int log_classes(int l) { return l < 25 ? 3 : l == 25 ? 4 : 5; }

constexpr Tables make_tables() {
  Tables t;
  // Multiples of 512 up to 4 KiB, then eight to a doubling.
  for (int l = 0; l < 12; ++l) t.small[static_cast<size_t>(l)] = {0, 9};
  int next = 8;
  for (int l = 12; l <= 25; ++l) {
    t.small[static_cast<size_t>(l)] = {static_cast<int16_t>(next - 8), static_cast<int16_t>(l - 3)};
    next += 8;
  }
  t.small_count = next;
  for (int l = 20; l < kLogs; ++l) {
    const int log = log_classes(l);
    t.large[static_cast<size_t>(l)] = {static_cast<int16_t>(next - (1 << log)), static_cast<int16_t>(l - log)};
    next += 1 << log;
  }
  t.count = next;
  for (size_t l = 0; l < kLogs; ++l) {
    t.requests[l] = l < 20 ? t.small[l] : t.large[l];
    ++t.requests[l].base;
  }
  return t;
}

inline constexpr Tables kTables = make_tables();
inline constexpr size_t kSmallCount = static_cast<size_t>(kTables.small_count);
inline constexpr size_t kCount = static_cast<size_t>(kTables.count);

constexpr bool is_small(size_t bytes) noexcept { return bytes <= kMaxSmall; }

constexpr size_t log2_floor(size_t bytes) noexcept { return static_cast<size_t>(63 - std::countl_zero(bytes)); }

// The class whose blocks have at least its size and less than the next one's.
constexpr uint32_t class_of_block(size_t bytes, bool small) noexcept {
  const Doubling d = (small ? kTables.small : kTables.large)[log2_floor(bytes)];
  return static_cast<uint32_t>(d.base + static_cast<int>(bytes >> d.shift));
}

struct Rounded {
  size_t bytes;  // of the class
  uint32_t index;
};

// The smallest class that holds a request of 1 to kMaxRequest bytes. Without a branch, as sizes are hard to predict.
constexpr Rounded class_of_request(size_t bytes) noexcept {
  const size_t last = bytes - 1;
  const Doubling d = kTables.requests[log2_floor(last | 1)];
  const size_t step = last >> d.shift;
  return {(step + 1) << d.shift, static_cast<uint32_t>(d.base + static_cast<int>(step))};
}

// One past the last class of a domain.
constexpr size_t domain_end(bool small) noexcept { return small ? kSmallCount : kCount; }

}  // namespace anyaccel::size_classes
