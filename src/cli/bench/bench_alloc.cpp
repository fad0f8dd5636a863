// Implements bench alloc: measures a steady allocate and free pair of the caching allocator with 4096 live blocks of
// 512 B to 64 MiB. One pair of a hundred waits for the memory: the record of the block that it frees was last used thousands of pairs ago.
// The 99th percentile is therefore compared with that of only reading such a record.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>

#include "anyaccel/caching_allocator.h"
#include "cli/bench/bench.h"

namespace anyaccel::cli::bench {
namespace {

// Hands out addresses that are never accessed, so that tens of GiB of live blocks need no memory. The allocator cannot
// tell the difference.
class AddressSource final : public MemorySource {
 public:
  void* allocate(size_t bytes) override {
    next_ += (bytes + 0xfffff) & ~size_t{0xfffff};
    return reinterpret_cast<void*>(next_);
  }
  void free(void*, size_t) noexcept override {}
  void info(int64_t& free_bytes, int64_t& total_bytes) noexcept override { free_bytes = total_bytes = INT64_MAX; }
  std::string name() const override { return "addresses"; }

 private:
  uintptr_t next_ = uintptr_t{1} << 40;
};

class NoFences final : public FenceSource {
 public:
  void* record(const void*) override { return nullptr; }
  bool done(void*) override { return true; }
  void wait(void*) override {}
  void destroy(void*) noexcept override {}
};

// Reading the time-stamp counter costs a tenth of reading the clock; its rate is measured against the clock.
inline uint64_t ticks() { return __builtin_ia32_rdtsc(); }

// Returns the least number of ticks between two readings with nothing in between.
uint64_t least_ticks() {
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < 10000; ++i) {
    const uint64_t begin = ticks();
    least = std::min(least, ticks() - begin);
  }
  return least;
}

double seconds_per_tick() {
  const auto start = Clock::now();
  const uint64_t first = ticks();
  while (seconds_since(start) < 0.02) {
  }
  return seconds_since(start) / static_cast<double>(ticks() - first);
}

}  // namespace

void run_alloc(const Options& options, std::vector<Result>& results) {
  AddressSource memory;
  NoFences fences;
  CachingAllocator allocator(memory, fences);
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> exponent(9.0, 26.0);  // 2^9 = 512 B to 2^26 = 64 MiB
  constexpr size_t live = 4096;
  constexpr size_t pairs = 1 << 18;
  const int stream = 0;
  std::vector<void*> blocks;  // Allocation::handle
  std::vector<size_t> sizes;
  auto next_size = [&] { return static_cast<size_t>(std::exp2(exponent(random))); };
  for (size_t i = 0; i < live; ++i) blocks.push_back(allocator.allocate(next_size(), &stream).handle);
  std::vector<uint32_t> order(pairs);
  for (uint32_t& index : order) index = static_cast<uint32_t>(random() % live);
  for (size_t i = 0; i < pairs; ++i) sizes.push_back(next_size());

  auto round = [&](std::vector<uint32_t>* taken, std::vector<uint32_t>* reads = nullptr) {
    for (size_t i = 0; i < pairs; ++i) {
      if (reads) {
        const uint64_t before = ticks();
        static_cast<void>(*static_cast<const volatile char*>(blocks[order[i]]));
        __builtin_ia32_lfence();  // waits for the read
        (*reads)[i] = static_cast<uint32_t>(ticks() - before);
      }
      const uint64_t begin = ticks();
      allocator.deallocate({nullptr, blocks[order[i]]}, 0, &stream);
      blocks[order[i]] = allocator.allocate(sizes[i], &stream).handle;
      if (taken) (*taken)[i] = static_cast<uint32_t>(ticks() - begin);
    }
  };
  // Warm-up with the same pairs. A few calls to the source still come later; they are counted and reported below.
  for (int i = 0; i < 3; ++i) round(nullptr);
  const int64_t calls = allocator.source_calls();

  const double nanoseconds = 1e9 * seconds_per_tick();
  std::vector<double> medians;
  std::vector<double> tails;
  std::vector<double> read_tails;
  std::vector<uint32_t> taken(pairs);
  auto at = [&](double share, uint64_t empty) {
    return nanoseconds *
           (static_cast<double>(taken[static_cast<size_t>(share * (pairs - 1))]) - static_cast<double>(empty));
  };
  for (int run = 0; run < options.runs; ++run) {
    // The cost of reading the counter changes from second to second if a virtual machine's host emulates it.
    uint64_t empty = least_ticks();
    round(&taken);
    std::sort(taken.begin(), taken.end());
    empty = std::min({empty, least_ticks(), uint64_t{taken.front()}});
    medians.push_back(at(0.5, empty));
    tails.push_back(at(0.99, empty));
    round(nullptr, &taken);
    std::sort(taken.begin(), taken.end());
    read_tails.push_back(at(0.99, taken.front()));  // the fastest one found the record in the nearest cache
  }
  const auto driver_calls = static_cast<double>(allocator.source_calls() - calls);
  for (void* block : blocks) allocator.deallocate({nullptr, block}, 0, &stream);

  // The C library's own cached pair of one small size: a pair can hardly be cheaper.
  double cheapest = 1e9;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const auto start = Clock::now();
    for (int i = 0; i < 100000; ++i) {
      void* volatile pointer = std::malloc(512);
      std::free(pointer);
    }
    cheapest = std::min(cheapest, 1e9 * seconds_since(start) / 100000);
  }
  Result pair{.name = "alloc.pair", .unit = "ns", .ceiling = cheapest, .ceiling_name = "malloc + free of one size"};
  summarize(pair, medians, true);
  results.push_back(pair);
  std::sort(read_tails.begin(), read_tails.end());
  Result tail{.name = "alloc.p99",
              .unit = "ns",
              .ceiling = read_tails[read_tails.size() / 2],
              .ceiling_name = "99th percentile of reading the record of the block that is freed"};
  summarize(tail, tails, true);
  results.push_back(tail);
  Result calls_result{.name = "alloc.driver_calls", .unit = "calls", .ceiling_name = "none in steady state"};
  summarize(calls_result, {driver_calls}, true);
  results.push_back(calls_result);
}

}  // namespace anyaccel::cli::bench
