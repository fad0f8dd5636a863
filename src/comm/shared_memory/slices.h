// Divides a chunk among the members of a group.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace anyaccel::comm::shm {

// Size of a cache line: members write to different lines.
inline constexpr size_t kLine = 64;

// The part of `count` elements that belongs to a member: whole lines, in the order of ranks; the last may be short or
// empty.
struct Slice {
  int64_t begin;
  int64_t count;
};
inline Slice slice_of(int64_t count, int member, int size, size_t item) noexcept {
  const auto line = static_cast<int64_t>(kLine / item);
  const int64_t lines = (count + line - 1) / line;
  const int64_t each = (lines + size - 1) / size * line;
  const int64_t begin = std::min(count, member * each);
  return {begin, std::min(each, count - begin)};
}

}  // namespace anyaccel::comm::shm
