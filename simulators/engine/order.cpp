// Implements vector clocks over byte ranges.
#include "simulators/engine/order.h"

#include <algorithm>

namespace sim {
namespace {

bool has_seen(const Clock& seen, const Access& access) {
  return access.actor < seen.size() && seen[access.actor] >= access.step;
}

std::uintptr_t address(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

}  // namespace

void join(Clock& into, const Clock& other) {
  if (into.size() < other.size()) into.resize(other.size());
  for (std::size_t i = 0; i < other.size(); ++i) into[i] = std::max(into[i], other[i]);
}

void OrderCheck::split(std::uintptr_t at) {
  auto next = segments_.upper_bound(at);
  if (next == segments_.begin()) return;
  auto& [begin, segment] = *std::prev(next);
  if (begin == at || segment.end <= at) return;
  Segment tail = segment;
  segment.end = at;
  segments_.emplace_hint(next, at, std::move(tail));
}

std::optional<Access> OrderCheck::check(const Segment& segment, bool write, const Clock& seen, const Access* self) {
  const auto unordered = [&](const Access& earlier) {
    const bool own = self != nullptr && earlier.actor == self->actor && earlier.step == self->step;
    return !own && !has_seen(seen, earlier);
  };
  if (segment.write && unordered(*segment.write)) return segment.write;
  if (write) {
    for (const Access& read : segment.reads) {
      if (unordered(read)) return read;
    }
  }
  return std::nullopt;
}

std::optional<Access> OrderCheck::access(const void* begin, const void* end, bool write, const Access& access,
                                         const Clock& seen) {
  const std::uintptr_t first = address(begin), last = address(end);
  if (first >= last) return std::nullopt;
  std::optional<Access> found;
  split(first);
  split(last);
  auto at = segments_.lower_bound(first);
  if (write) {
    while (at != segments_.end() && at->first < last) {
      if (!found) found = check(at->second, true, seen, &access);
      at = segments_.erase(at);
    }
    segments_.emplace(first, Segment{last, access, {}});
    return found;
  }
  std::uintptr_t position = first;
  while (position < last) {
    if (at == segments_.end() || at->first > position) {  // a gap: nothing known yet
      const std::uintptr_t stop = at == segments_.end() ? last : std::min(last, at->first);
      at = segments_.emplace_hint(at, position, Segment{stop, std::nullopt, {}});
    }
    Segment& segment = at->second;
    if (!found) found = check(segment, false, seen, &access);
    const auto same = std::find_if(segment.reads.begin(), segment.reads.end(),
                                   [&](const Access& read) { return read.actor == access.actor; });
    if (same == segment.reads.end()) {
      segment.reads.push_back(access);
    } else {
      *same = access;
    }
    position = segment.end;
    ++at;
  }
  return found;
}

std::optional<Access> OrderCheck::conflict(const void* begin, const void* end, const Clock& seen) const {
  const std::uintptr_t first = address(begin), last = address(end);
  auto at = segments_.upper_bound(first);
  if (at != segments_.begin() && std::prev(at)->second.end > first) --at;
  for (; at != segments_.end() && at->first < last; ++at) {
    if (auto found = check(at->second, true, seen, nullptr)) return found;
  }
  return std::nullopt;
}

void OrderCheck::forget(const void* begin, const void* end) {
  split(address(begin));
  split(address(end));
  segments_.erase(segments_.lower_bound(address(begin)), segments_.lower_bound(address(end)));
}

void OrderCheck::prune(const Clock& seen) {
  for (auto at = segments_.begin(); at != segments_.end();) {
    at = check(at->second, true, seen, nullptr) ? std::next(at) : segments_.erase(at);
  }
}

}  // namespace sim
