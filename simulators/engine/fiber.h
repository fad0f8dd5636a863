// Runs the items of one work group as fibers on the calling thread, so that barriers and sub-group reductions work in any
// control flow. An item that never waits costs no switch.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace sim {

class Fiber;

class GroupRunner {
 public:
  GroupRunner();
  ~GroupRunner();
  GroupRunner(const GroupRunner&) = delete;
  GroupRunner& operator=(const GroupRunner&) = delete;

  // Calls `item` once for each of `size` items; `backwards` changes the order in which items run between barriers.
  // Returns what is wrong (a barrier that not all items reached), empty if nothing is: the group was abandoned then, and
  // destructors of its items' objects did not run.
  std::string run(int size, int subgroup, bool backwards, const std::function<void()>& item);

  // Whether the problem that run() returned is too much local memory.
  bool local_overflow() const { return local_overflow_; }

  // The functions below are called by an item.
  int item() const { return current_; }
  void barrier();
  float subgroup_sum(float value) { return reduce(State::waits_sum, value); }
  float subgroup_max(float value) { return reduce(State::waits_max, value); }
  // The same block for all items that ask for it as the same one in their sequence of calls. `bytes` is at most
  // kLocalBytes; a sum beyond that is reported by run().
  void* local_array(std::size_t bytes, std::size_t alignment);

  // The runner that runs on this thread.
  static GroupRunner& current();

 private:
  friend class Fiber;
  enum class State { unstarted, runnable, waits_barrier, waits_sum, waits_max, finished };
  struct Item {
    State state = State::unstarted;
    float value = 0;
    std::size_t local_used = 0;
    Fiber* fiber = nullptr;
  };

  float reduce(State kind, float value);
  void wait(State state);
  void work();  // body of every fiber: starts items until none is left
  bool release_waiting();
  void resume(Fiber& fiber);
  int nth(int k) const { return backwards_ ? size_ - 1 - k : k; }

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
  std::vector<Item> items_;
  const std::function<void()>* body_ = nullptr;
  int size_ = 0, subgroup_ = 0, started_ = 0, current_ = 0;
  bool backwards_ = false;
  bool local_overflow_ = false;
  std::size_t local_peak_ = 0;
  std::unique_ptr<char[]> local_;
  struct Scheduler;
  std::unique_ptr<Scheduler> scheduler_;
};

// What the simulated devices have.
inline constexpr std::size_t kLocalBytes = 16384;  // local memory of a group
inline constexpr int kGroupSize = 32;              // most items of a group
inline constexpr int kSubgroup = 8;                // neighbours that reduce together

}  // namespace sim
