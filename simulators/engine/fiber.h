// Runs the items of one work group as fibers on the calling thread, so that barriers and collectives of sub-groups work in
// any control flow. An item that never waits costs no switch; a barrier or collective costs one an item, in their order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace sim {

class Fiber;

inline constexpr std::size_t kMostLocalBytes = 227 * 1024;  // of any simulated device, for one group
inline constexpr int kMostGroupSize = 1024;

// Sizes of the small simulated devices (a device may set others, see GroupShape).
inline constexpr std::size_t kLocalBytes = 16384;  // local memory of a group
inline constexpr int kGroupSize = 32;              // most items of a group
inline constexpr int kSubgroup = 8;                // neighbours that reduce together

struct GroupShape {
  int size = 1;
  int subgroup = 0;                        // neighbours that take part in one collective, at most 64; 0: there are none
  bool backwards = false;                  // the order in which items run between barriers
  std::size_t dynamic_local = 0;           // bytes behind the local arrays, sized by the launch
  std::size_t static_limit = kLocalBytes;  // of the local arrays
  std::size_t local_limit = kLocalBytes;   // of both together
  bool overlaps_previous = false;          // items must call wait_previous() before they use what earlier kernels wrote
};

class GroupRunner {
 public:
  GroupRunner();
  ~GroupRunner();
  GroupRunner(const GroupRunner&) = delete;
  GroupRunner& operator=(const GroupRunner&) = delete;

  // Calls `item` once for each item of the group. Returns what is wrong (a barrier or collective that not all items reached),
  // empty if nothing is: after a divergence the group was abandoned, and destructors of its items' objects did not run. Items do not
  // throw: nothing would catch it, and the address sanitizer would not clear what it has marked on their stacks.
  std::string run(const GroupShape& shape, const std::function<void()>& item);

  // Returns whether the problem that run() returned concerns local memory: too much, or used out of bounds.
  bool local_problem() const { return !local_problem_.empty(); }

  // The functions below are called by an item.
  int item() const { return current_; }
  void barrier();
  float subgroup_sum(float value);
  float subgroup_max(float value);
  // All items of a sub-group call it with the same `combine`, which gets what each of them passed, in the order of items,
  // once all are there, and may change it.
  using Combine = void (*)(void* const* items, int count);
  void collective(void* mine, Combine combine);

  // Returns the same block for all items whose call has the same position in their sequence of calls, at most
  // kMostLocalBytes. Too much in all is reported by run().
  void* local_array(std::size_t bytes, std::size_t alignment);
  void* dynamic_local();
  // Reports an address that is misaligned or outside of local memory and gives other memory instead.
  void* checked_local(const void* address, std::size_t bytes, std::size_t alignment);

  // A copy of 16 bytes to local memory in the background: until it is waited for, there are NaNs.
  void async_copy16(void* local, const void* bytes);
  void async_commit();
  void async_wait(int groups_left);

  // Barriers in local memory (8 aligned bytes) that pass through phases of `count` arrivals, as PTX's mbarrier. The wait is
  // for the end of the latest phase of a parity, 0 for the first one.
  void phase_make(std::uint64_t* barrier, int count);
  void phase_arrive(std::uint64_t* barrier);
  void phase_wait(std::uint64_t* barrier, unsigned parity);
  // Barriers 1 to 15, of `count` items; those that arrive only do not wait.
  void some_arrive(int barrier, int count);
  void some_sync(int barrier, int count);

  // Work of the running item's sub-group in the background, in groups: done when it is waited for.
  void background(std::function<void()> work);
  void background_commit();
  void background_wait(int groups_left);

  void wait_previous() { items_[current_].waited = true; }
  bool waited() const { return items_[current_].waited; }

  // The runner that runs on this thread.
  static GroupRunner& current();

 private:
  friend class Fiber;
  enum class State : std::uint8_t { unstarted, runnable, waits_barrier, waits_collective, waits_some, finished };
  struct Item {
    State state = State::unstarted;
    bool waited = false;
    std::uint32_t arrays = 0;  // local arrays requested
    std::uint32_t word = 0;    // its place in ready_: computing it at every switch would take a division
    std::uint64_t bit = 0;
    Fiber* fiber = nullptr;
  };
  // Items of a sub-group that wait in a collective.
  struct Meeting {
    int arrived = 0;
    bool different = false;  // they do not all wait for the same one
    Combine combine = nullptr;
  };
  struct LocalArray {
    std::size_t begin, bytes;
  };
  // Copies that an item has begun: `ends` are the numbers of copies before the end of each committed group.
  struct AsyncCopies {
    struct Copy {
      void* local;
      std::array<std::uint64_t, 2> bytes;
    };
    std::vector<Copy> copies;
    std::vector<std::size_t> ends;
  };
  struct PhaseWaiter {
    int item;
    const std::uint64_t* barrier;
  };
  struct SomeBarrier {
    int arrived = 0;
    std::vector<int> waiting;
  };
  struct Background {
    std::vector<std::function<void()>> work;
    std::vector<std::size_t> ends;  // numbers of pieces of work before the end of each committed group
  };
  struct Scheduler;

  void work(Fiber& self);                      // body of every fiber: runs items until others must go on
  void switch_to_item(Fiber* from, int next);  // from null: from run()
  int pick();                                  // the next item that may run, or -1
  void wait();
  void set_ready(const Item& item) { ready_[item.word] |= item.bit; }
  void release(int first, int end);
  void go_on(int item);  // when its turn comes
  void report_local(const std::string& what);
  std::string divergence() const;
  void check_guards();

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
  std::vector<Item> items_;
  std::vector<void*> slots_;          // what items passed to collective()
  std::vector<std::uint64_t> ready_;  // a bit an item that may run, a word a sub-group
  std::vector<Meeting> meetings_;     // by sub-group
  std::vector<AsyncCopies> async_;
  bool async_used_ = false;
  std::vector<PhaseWaiter> phase_waiters_;
  std::array<SomeBarrier, 16> some_;
  std::vector<Background> background_;  // by sub-group
  GroupShape shape_;
  const std::function<void()>* body_ = nullptr;
  int width_ = 1;  // of a word of ready_
  int current_ = 0, at_barrier_ = 0, finished_ = 0;
  std::string local_problem_;
  std::vector<LocalArray> arrays_;
  std::size_t static_used_ = 0;  // as the device would lay them out
  std::size_t local_end_ = 0;    // in local_, with the guards between arrays
  std::unique_ptr<char[]> local_memory_, dynamic_memory_;
  char* local_ = nullptr;
  char* dynamic_ = nullptr;
  std::unique_ptr<Scheduler> scheduler_;
};

}  // namespace sim
