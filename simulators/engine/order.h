// The happens-before check. Every actor (the host, each stream) counts its steps; a vector clock holds the number of
// steps of each actor that happened before a point. The last write of each byte and the reads since are recorded; an
// access that is not ordered after them is a race, whatever the timing of this run was.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace sim {

// clock[actor] = last step of that actor that happened before; actors beyond the end: none.
using Clock = std::vector<std::uint64_t>;
void join(Clock& into, const Clock& other);

struct Access {
  std::size_t actor;
  std::uint64_t step;
  const char* what;       // name of the operation
  std::uint64_t command;  // its number, for the message
};

class OrderCheck {
 public:
  // Notes an access of [begin, end) and returns the earlier access it is not ordered after, if there is one. What the
  // same step of the same actor did before never counts.
  std::optional<Access> access(const void* begin, const void* end, bool write, const Access& access, const Clock& seen);
  // As access() for a write, without recording it: returns whether these bytes may be freed.
  std::optional<Access> conflict(const void* begin, const void* end, const Clock& seen) const;
  void forget(const void* begin, const void* end);
  // Drops what `seen` has seen; call it when nothing that began earlier is pending.
  void prune(const Clock& seen);
  std::size_t size() const { return segments_.size(); }

 private:
  struct Segment {
    std::uintptr_t end;
    std::optional<Access> write;
    std::vector<Access> reads;  // at most one of each actor
  };
  using Map = std::map<std::uintptr_t, Segment>;
  void split(std::uintptr_t at);
  static std::optional<Access> check(const Segment& segment, bool write, const Clock& seen, const Access* self);

  Map segments_;  // by begin; disjoint
};

}  // namespace sim
