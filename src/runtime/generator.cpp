// Generator: see anyaccel/generator.h.
#include "anyaccel/generator.h"

namespace anyaccel {

void Generator::manual_seed(uint64_t seed) {
  std::lock_guard guard(mutex_);
  state_ = {seed, 0};
}

uint64_t Generator::initial_seed() const {
  std::lock_guard guard(mutex_);
  return state_.seed;
}

RngState Generator::get_state() const {
  std::lock_guard guard(mutex_);
  return state_;
}

void Generator::set_state(const RngState& state) {
  std::lock_guard guard(mutex_);
  state_ = state;
}

RngState Generator::reserve(uint64_t counters) {
  std::lock_guard guard(mutex_);
  const RngState before = state_;
  state_.offset += counters;  // wraps like Philox's own counter
  return before;
}

}  // namespace anyaccel
