// The random number generator of a device: counter-based (Philox 4x32-10), so its whole state is a seed and an offset,
// and the same state gives the same numbers on every accelerator.
#pragma once

#include <cstdint>
#include <mutex>

namespace anyaccel {

struct RngState {
  uint64_t seed = 0;
  uint64_t offset = 0;  // in Philox counters; each yields four 32-bit words

  friend bool operator==(const RngState&, const RngState&) = default;
};

// Thread-safe. Not copyable: save and restore its state instead.
class Generator {
 public:
  // The seed that every accelerator uses until manual_seed() is called (PyTorch's default).
  static constexpr uint64_t default_seed = 67280421310721ull;

  Generator() = default;
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;

  // Sets the seed, and sets the offset to 0.
  void manual_seed(uint64_t seed);
  // Returns the seed of the current state, which set_state() changes too.
  uint64_t initial_seed() const;
  RngState get_state() const;
  void set_state(const RngState& state);
  // Reserves `counters` counters for the caller: returns the state that begins with them and advances the offset past
  // them.
  RngState reserve(uint64_t counters);

 private:
  mutable std::mutex mutex_;
  RngState state_{default_seed, 0};
};

}  // namespace anyaccel
