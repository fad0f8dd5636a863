// Measures the ceilings of ceilings.h.
#include "accelerators/cpu/ceilings.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>

#include "accelerators/cpu/kernels/past_caches.h"
#include "accelerators/cpu/worker_pool.h"
#include "anyaccel/error.h"
#include "base/process/large_pages.h"
#include "base/simd/amx.h"
#include "base/simd/dispatch.h"

#ifndef AA_KERNEL_BATCH
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "accelerators/cpu/ceilings.cpp"
#include "hwy/foreach_target.h"
#endif
#include "base/simd/highway.h"

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The bits of all whole lines of kStreams equal parts of the memory, combined, so that every load counts. Prefetches `near`
// bytes ahead into the first level cache and `far` ahead into the second, unless 0. kStaggered: the parts are whole pages and a
// fraction of one apart, so that no two enter a page together. kTouching: eight lines of 32 KiB that stay in the first-level cache
// are loaded for each line of a stream, or of all streams where the compiler combines their loads.
// (kernels/gemv_staggered-inl.h says why both may help.)
template <int kStreams, int kNear, int kFar, bool kStaggered = false, bool kTouching = false>
uint32_t read_streams(const char* data, size_t bytes) {
  const hn::ScalableTag<uint32_t> words;
  constexpr size_t kLine = 64;
  constexpr size_t kStep = hn::MaxLanes(hn::ScalableTag<uint32_t>()) * sizeof(uint32_t);
  size_t part = bytes / kStreams / kLine * kLine;
  if constexpr (kStaggered) {
    constexpr size_t kPage = 4096, kApart = kPage / 4;
    if (part >= kPage) part = (part - kApart) / kPage * kPage + kApart;
  }
  hn::Vec<decltype(words)> sums[kStreams];
  AA_UNROLL for (int s = 0; s < kStreams; ++s) sums[s] = hn::Zero(words);
  // The memory's own first bytes, in rows that begin at different sets of the cache.
  constexpr size_t kTouchedRows = 8, kTouchedRow = size_t{4} << 10, kTouchedStride = kTouchedRow + 11 * kLine;
  const size_t touched_stride = bytes >= kTouchedRows * kTouchedStride ? kTouchedStride : 0;
  for (size_t i = 0; i < part; i += kLine) {
    const auto at = [&](int s) { return data + static_cast<size_t>(s) * part + i; };
    AA_UNROLL for (int s = 0; s < kStreams; ++s) {
      if constexpr (kNear != 0) __builtin_prefetch(at(s) + kNear, 0, 3);
      if constexpr (kFar != 0) __builtin_prefetch(at(s) + kFar, 0, 2);
    }
    AA_UNROLL for (int s = 0; s < kStreams; ++s) {
      AA_UNROLL for (size_t b = 0; b < kLine; b += kStep) {
        sums[s] = hn::Xor(sums[s], hn::LoadU(words, reinterpret_cast<const uint32_t*>(at(s) + b)));
      }
      if constexpr (kTouching) {
        const char* const near = data + i % kTouchedRow;
        AA_UNROLL for (size_t row = 0; row < kTouchedRows; ++row) {
          sums[s] = hn::Xor(sums[s], hn::LoadU(words, reinterpret_cast<const uint32_t*>(near + row * touched_stride)));
        }
      }
    }
  }
  if constexpr (kStaggered) {
    for (size_t i = part * kStreams; i + kLine <= bytes; i += kStep) {
      sums[0] = hn::Xor(sums[0], hn::LoadU(words, reinterpret_cast<const uint32_t*>(data + i)));
    }
  }
  // Not the lanes' sum, which Highway takes in signed numbers.
  AA_UNROLL for (int s = 1; s < kStreams; ++s) sums[0] = hn::Xor(sums[0], sums[s]);
  uint32_t lanes[hn::MaxLanes(hn::ScalableTag<uint32_t>())];
  hn::StoreU(sums[0], words, lanes);
  uint32_t result = 0;
  for (const uint32_t lane : lanes) result ^= lane;
  return result;
}

uint32_t read_way(int way, const char* data, size_t bytes) {
  switch (way) {
    case 0: return read_streams<4, 0, 0>(data, bytes);
    case 1: return read_streams<4, 1024, 0>(data, bytes);
    case 2: return read_streams<4, 4096, 0>(data, bytes);
    case 3: return read_streams<8, 1024, 0>(data, bytes);
    case 4: return read_streams<4, 1024, 3072>(data, bytes);
    case 5: return read_streams<2, 2048, 0, true>(data, bytes);
    case 6: return read_streams<4, 1024, 3072, true>(data, bytes);
    default: return read_streams<2, 2048, 0, true, true>(data, bytes);
  }
}

// Independent chains of multiply-adds, enough to hide their latency, few enough for the registers. Returns the number
// of floating point operations done.
double multiply_add(int64_t rounds, float* result) {
  const hn::ScalableTag<float> floats;
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<float>()));
  constexpr int kChains = kLanes >= 16 ? 24 : 12;
  hn::Vec<decltype(floats)> sums[kChains];
  AA_UNROLL for (int i = 0; i < kChains; ++i) sums[i] = hn::Set(floats, *result + static_cast<float>(i));
  const auto factor = hn::Set(floats, 0.5f), term = hn::Set(floats, *result);
  for (int64_t round = 0; round < rounds; ++round) {
    AA_UNROLL for (int i = 0; i < kChains; ++i) sums[i] = hn::MulAdd(sums[i], factor, term);
  }
  for (int i = 1; i < kChains; ++i) sums[0] = hn::Add(sums[0], sums[i]);
  *result = hn::GetLane(hn::SumOfLanes(floats, sums[0]));
  return 2.0 * static_cast<double>(rounds * kChains * kLanes);
}

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anyaccel::cpu {
namespace {

AA_CPU_EXPORT(read_way);
AA_CPU_EXPORT(multiply_add);

constexpr int kReadWays = 8;  // of read_way

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void check(const char* what, size_t bytes, double seconds) {
  if (bytes > 0 && seconds > 0) return;
  throw InvalidArgument(std::string(what) + ": " + std::to_string(bytes) + " bytes for " + std::to_string(seconds) +
                        " s were asked for; both must be positive");
}

// Results of the measured loops go here, so that the compiler must produce them.
std::atomic<uint32_t> sink{0};

// A thread's share of `bytes`, in whole words.
struct Share {
  size_t begin, size;
};
Share share_of(size_t bytes, int index, int count) {
  const size_t each = bytes / static_cast<size_t>(count) / 8 * 8;
  const size_t begin = each * static_cast<size_t>(index);
  return {begin, index == count - 1 ? bytes - begin : each};
}

// Random words by xorshift64 (Marsaglia 2003), each thread its share.
void fill_random(char* memory, size_t bytes) {
  WorkerPool::instance().run([=](int index, int count) {
    const Share share = share_of(bytes, index, count);
    uint64_t word = 0x9e3779b97f4a7c15u * static_cast<uint64_t>(index + 1);
    for (size_t i = 0; i < share.size; i += sizeof(word)) {
      word ^= word << 13;
      word ^= word >> 7;
      word ^= word << 17;
      std::memcpy(memory + share.begin + i, &word, std::min(sizeof(word), share.size - i));
    }
  });
}

// Memory with random contents, in large pages, as tensors are: two cores of a Granite Rapids read them 1.25 to 1.6 times as
// fast as pages of 4 KiB. Each page is first written by the thread that takes it in a measurement, as share_of() says.
//
// It is kept for the next measurement of the same size: a virtual machine may give freed memory back to its host some seconds
// later (free page reporting), which slowed down whatever else was measured then by a sixth.
class Memory {
 public:
  char* take(size_t bytes) {
    if (bytes == size_) return data_.get();
    size_ = 0;
    data_.reset();
    const size_t rounded = (bytes + kLargePage - 1) / kLargePage * kLargePage;
    data_.reset(static_cast<char*>(std::aligned_alloc(kLargePage, rounded)));
    if (data_ == nullptr) throw std::bad_alloc();
    madvise(data_.get(), rounded, MADV_HUGEPAGE);
    fill_random(data_.get(), bytes);
    size_ = bytes;
    return data_.get();
  }

  // Leaves what is kept alone, whatever state it is in.
  void forget() noexcept {
    static_cast<void>(data_.release());
    size_ = 0;
  }

 private:
  struct Free {
    void operator()(char* p) const noexcept { std::free(p); }
  };
  std::unique_ptr<char, Free> data_;
  size_t size_ = 0;
};

// What is read, and what copies are written to. A measurement holds the lock.
struct Areas {
  std::mutex mutex;
  Memory from, to;
};
Areas areas;

// A child of a process that was measuring has no thread that would unlock. fork() does not wait for a measurement, which takes
// seconds, so that the memory may be half replaced there. Registered before anything can be measured: with a first use that
// registered it, a child of a process where another thread was just doing that would wait for that thread for ever.
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, [] {
  if (areas.mutex.try_lock()) return areas.mutex.unlock();
  new (&areas.mutex) std::mutex;
  areas.from.forget();
  areas.to.forget();
});

// Calls pass(way) for the ways in turn until the time is over, each at least twice; the best of work / duration.
template <class Pass>
double best_rate(double work, int ways, double seconds, Pass pass) {
  double best = 0;
  const Clock::time_point start = Clock::now();
  for (int round = 0; round < 2 * ways || seconds_since(start) < seconds; ++round) {
    const Clock::time_point begin = Clock::now();
    pass(round % ways);
    best = std::max(best, work / seconds_since(begin));
  }
  return best;
}

}  // namespace

double best_read_bandwidth(size_t bytes, double seconds) {
  check("best_read_bandwidth", bytes, seconds);
  const std::scoped_lock lock(areas.mutex);
  const char* const memory = areas.from.take(bytes);
  return best_rate(static_cast<double>(bytes), kReadWays, seconds, [&](int way) {
    WorkerPool::instance().run([&](int index, int count) {
      const Share share = share_of(bytes, index, count);
      sink.fetch_xor(AA_CPU_DISPATCH(read_way)(way, memory + share.begin, share.size));
    });
  });
}

double best_copy_bandwidth(size_t bytes, double seconds) {
  check("best_copy_bandwidth", bytes, seconds);
  // An odd number of pages from a large page on, where the source begins: they would meet in the same cache sets otherwise.
  constexpr size_t kOffset = 13 * 4096;
  const std::scoped_lock lock(areas.mutex);
  const char* const from = areas.from.take(bytes);
  char* const to = areas.to.take(bytes + kOffset) + kOffset;
  constexpr int kWays = 3;
  return best_rate(2.0 * static_cast<double>(bytes), kWays, seconds, [&](int way) {
    WorkerPool::instance().run([&](int index, int count) {
      const Share share = share_of(bytes, index, count);
      if (way == 2) return copy_past_caches(to + share.begin, from + share.begin, share.size);
      // Large copies bypass the caches on the way out (non-temporal stores), pieces of 64 KiB do not.
      const size_t piece = way == 0 ? std::max<size_t>(share.size, 1) : size_t{1} << 16;
      for (size_t i = 0; i < share.size; i += piece) {
        std::memcpy(to + share.begin + i, from + share.begin + i, std::min(piece, share.size - i));
      }
      sink.fetch_xor(static_cast<uint32_t>(to[share.begin]));
    });
  });
}

double matrix_unit_rate(double seconds) {
  check("matrix_unit_rate", 1, seconds);
  if (isa() != Isa::Amx) return 0;
  using amx::Unit;
  constexpr int64_t kRounds = 20'000;  // about a millisecond
  std::atomic<double> operations{0};
  const Clock::time_point start = Clock::now();
  do {
    WorkerPool::instance().run([&](int, int) {
      // bf16 numbers of both signs from 1 to 2: the unit is faster with zeros.
      alignas(64) uint16_t numbers[amx::kMostRows * amx::kMostRowBytes / 2];
      for (size_t i = 0; i < std::size(numbers); ++i) {
        numbers[i] = static_cast<uint16_t>((i % 3 == 0 ? 0x3f80u : 0xbf80u) | (i * 37 & 0x7fu));
      }
      std::array<amx::TileShape, amx::kTiles> shapes;
      shapes.fill({amx::kMostRows, amx::kMostRowBytes});
      Unit::set_shapes(shapes);
      Unit::load<4>(numbers, amx::kMostRowBytes);
      Unit::load<5>(numbers, amx::kMostRowBytes);
      Unit::load<6>(numbers, amx::kMostRowBytes);
      Unit::load<7>(numbers, amx::kMostRowBytes);
      for (int64_t round = 0; round < kRounds; ++round) {
        Unit::multiply_bf16<0, 4, 6>();
        Unit::multiply_bf16<1, 4, 7>();
        Unit::multiply_bf16<2, 5, 6>();
        Unit::multiply_bf16<3, 5, 7>();
      }
      Unit::release();
      operations.fetch_add(4.0 * kRounds * 2 * amx::kMostRows * amx::kMostRows * (amx::kMostRowBytes / 2));
    });
  } while (seconds_since(start) < seconds);
  return operations.load() / seconds_since(start);
}

double fma_rate(double seconds) {
  check("fma_rate", 1, seconds);
  constexpr int64_t kRounds = 400'000;  // some milliseconds
  std::atomic<double> operations{0};
  const Clock::time_point start = Clock::now();
  do {
    WorkerPool::instance().run([&](int index, int) {
      float value = static_cast<float>(index + 1);
      operations.fetch_add(AA_CPU_DISPATCH(multiply_add)(kRounds, &value));
      sink.fetch_xor(static_cast<uint32_t>(value));
    });
  } while (seconds_since(start) < seconds);
  return operations.load() / seconds_since(start);
}

}  // namespace anyaccel::cpu
#endif  // HWY_ONCE
