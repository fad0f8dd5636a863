// Tests of the caching allocator over memory and fences that the tests control.
#include "anyaccel/caching_allocator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "anyaccel/error.h"
#include "runtime/fake_memory.h"
#include "runtime/memory/size_classes.h"

namespace anyaccel {
namespace {

using test::FakeFences;
using test::FakeMemory;

constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * kKiB;

const void* stream(uintptr_t number) { return reinterpret_cast<const void*>(number * 64); }

int seeds() {
  const char* text = std::getenv("ANYACCEL_TEST_SEEDS");
  return text ? std::max(1, std::atoi(text)) : 1;
}

struct Fixture {
  explicit Fixture(size_t capacity = SIZE_MAX / 4) : memory(capacity) {}
  ~Fixture() {
    allocator.reset();
    EXPECT_EQ(memory.held(), 0u);
    EXPECT_EQ(memory.wrong_frees, 0);
    EXPECT_EQ(fences.live(), 0u);
  }
  void free(Allocation block) const {
    allocator->deallocate(block, block.handle ? CachingAllocator::size(block) : 0, nullptr);
  }

  FakeMemory memory;
  FakeFences fences;
  std::unique_ptr<CachingAllocator> allocator = std::make_unique<CachingAllocator>(memory, fences);
};

// Live blocks and their ranges; fails when two overlap.
class LiveBlocks {
 public:
  void add(const FakeMemory& memory, Allocation block, size_t asked) {
    const auto begin = reinterpret_cast<uintptr_t>(block.pointer);
    const size_t bytes = CachingAllocator::capacity(block);
    EXPECT_EQ(CachingAllocator::size(block), std::max<size_t>(asked, 1));
    EXPECT_GE(bytes, asked);
    EXPECT_EQ(begin % 512, 0u);
    EXPECT_TRUE(memory.contains(block.pointer, bytes));
    const auto next = ranges_.lower_bound(begin);
    if (next != ranges_.end()) {
      EXPECT_LE(begin + bytes, next->first) << "overlaps the next block";
    }
    if (next != ranges_.begin()) {
      EXPECT_LE(std::prev(next)->first + std::prev(next)->second, begin) << "overlaps the block before";
    }
    ranges_[begin] = bytes;
  }
  void remove(Allocation block) { ranges_.erase(reinterpret_cast<uintptr_t>(block.pointer)); }

 private:
  std::map<uintptr_t, size_t> ranges_;
};

TEST(SizeClasses, HoldTheRequestAndWasteLittle) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> log(0, 45.9);
  for (int i = 0; i < 200000; ++i) {
    const auto bytes = static_cast<size_t>(std::exp2(log(random)));
    const bool small = size_classes::is_small(bytes);
    const auto rounded = size_classes::class_of_request(bytes);
    ASSERT_GE(rounded.bytes, bytes);
    ASSERT_EQ(rounded.index, size_classes::class_of_block(rounded.bytes, small)) << bytes;
    ASSERT_LE(rounded.bytes - bytes, std::max<size_t>(511, bytes / 8)) << bytes;
    ASSERT_LT(rounded.index, size_classes::domain_end(small));
    if (!small) {
      ASSERT_GE(rounded.index, size_classes::kSmallCount);
    }
  }
  EXPECT_LT(size_classes::class_of_block(size_classes::kMostSmallSegment, true), size_classes::kSmallCount);
  EXPECT_LT(size_classes::class_of_request(size_classes::kMaxRequest).index, size_classes::kCount);
}

TEST(CachingAllocator, GivesTheSameBlockAgainOnTheSameStream) {
  Fixture f;
  Allocation a = f.allocator->allocate(1000, stream(1));
  void* pointer = a.pointer;
  f.free(a);
  const int64_t calls = f.allocator->source_calls();
  for (int i = 0; i < 100; ++i) {
    Allocation b = f.allocator->allocate(900 + static_cast<size_t>(i), stream(1));
    EXPECT_EQ(b.pointer, pointer);
    f.free(b);
  }
  EXPECT_EQ(f.allocator->source_calls(), calls);
  EXPECT_EQ(f.fences.records, 0);
}

TEST(CachingAllocator, DoesNotShareBetweenStreamsWithoutCause) {
  Fixture f;
  Allocation a = f.allocator->allocate(kMiB, stream(1));
  void* pointer = a.pointer;
  f.free(a);
  Allocation b = f.allocator->allocate(kMiB, stream(2));
  EXPECT_NE(b.pointer, pointer);
  f.free(b);
}

TEST(CachingAllocator, NullIsFreedWithoutEffectAndZeroBytesAreOne) {
  Fixture f;
  f.free({});
  Allocation a = f.allocator->allocate(0, nullptr);
  EXPECT_EQ(CachingAllocator::size(a), 1u);
  EXPECT_EQ(CachingAllocator::capacity(a), 512u);
  f.free(a);
}

TEST(CachingAllocator, LiveBlocksNeverOverlap) {
  for (int seed = 0; seed < 4 * seeds(); ++seed) {
    Fixture f;
    std::mt19937_64 random(static_cast<uint64_t>(seed));
    std::uniform_real_distribution<double> log(0, 26);
    LiveBlocks live;
    std::vector<Allocation> blocks;
    std::vector<uint64_t> pools;
    for (int step = 0; step < 6000; ++step) {
      const uint64_t dice = random() % 100;
      if (dice < 48 || blocks.empty()) {
        const auto bytes = static_cast<size_t>(std::exp2(log(random)));
        const uint64_t pool = !pools.empty() && random() % 5 == 0 ? pools[random() % pools.size()] : 0;
        Allocation block = f.allocator->allocate(bytes, stream(1 + random() % 3), pool);
        live.add(f.memory, block, bytes);
        blocks.push_back(block);
        if (random() % 10 == 0) f.allocator->record_stream(block, stream(1 + random() % 4));
      } else if (dice < 94) {
        const size_t i = random() % blocks.size();
        std::swap(blocks[i], blocks.back());
        live.remove(blocks.back());
        f.free(blocks.back());
        blocks.pop_back();
      } else if (dice == 94) {
        f.allocator->empty_cache();
      } else if (dice == 95) {
        f.allocator->forget_stream(stream(1 + random() % 3));
      } else if (dice == 96 && pools.size() < 3) {
        pools.push_back(f.allocator->begin_pool());
      } else if (dice == 97 && !pools.empty()) {
        f.allocator->release_pool(pools.back());
        pools.pop_back();
      } else {
        f.fences.set_busy(stream(1 + random() % 4), random() % 2 == 0);
      }
      ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed << ", step " << step;
    }
    for (Allocation block : blocks) f.free(block);
    for (const uint64_t pool : pools) f.allocator->release_pool(pool);
    f.allocator->empty_cache();
    EXPECT_EQ(f.allocator->figures().reserved, 0);
    EXPECT_EQ(f.allocator->figures().allocated, 0);
    const auto stats = f.allocator->stats();
    for (const char* key : {"active.all", "active_bytes.small_pool", "inactive_split_bytes.all", "segment.all",
                            "requested_bytes.large_pool", "allocation.all"}) {
      EXPECT_EQ(stats.at(std::string(key) + ".current"), 0) << key;
    }
  }
}

TEST(CachingAllocator, ARepeatedPatternMakesNoSourceCall) {
  Fixture f;
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> log(9, 26);
  std::vector<size_t> sizes(300);
  for (size_t& s : sizes) s = static_cast<size_t>(std::exp2(log(random)));
  const auto step = [&] {
    std::vector<Allocation> blocks;
    for (size_t i = 0; i < sizes.size(); ++i) {
      blocks.push_back(f.allocator->allocate(sizes[i], stream(1)));
      if (i % 3 == 2) {
        f.free(blocks[i - 1]);
        blocks[i - 1] = {};
      }
    }
    for (Allocation b : blocks) f.free(b);
  };
  for (int i = 0; i < 25; ++i) step();  // cuts settle within a few rounds
  const int64_t calls = f.allocator->source_calls();
  for (int i = 0; i < 20; ++i) step();
  EXPECT_EQ(f.allocator->source_calls(), calls);
}

TEST(CachingAllocator, CutsAndJoinsLargeBlocks) {
  Fixture f;
  Allocation large = f.allocator->allocate(256 * kMiB, stream(1));
  f.free(large);
  const int64_t calls = f.allocator->source_calls();
  std::vector<Allocation> parts;
  for (int i = 0; i < 4; ++i) parts.push_back(f.allocator->allocate(64 * kMiB, stream(1)));
  for (Allocation b : parts) f.free(b);
  EXPECT_EQ(f.allocator->stats().at("inactive_split.large_pool.current"), 4);
  f.free(f.allocator->allocate(256 * kMiB, stream(1)));
  EXPECT_EQ(f.allocator->source_calls(), calls) << "the parts were not joined again";
  EXPECT_EQ(f.allocator->figures().reserved, static_cast<int64_t>(256 * kMiB));
}

TEST(CachingAllocator, ABlockThatAnotherStreamUsesWaitsForIt) {
  Fixture f;
  f.fences.set_busy(stream(2), true);
  Allocation a = f.allocator->allocate(30 * kMiB, stream(1));
  void* pointer = a.pointer;
  f.allocator->record_stream(a, stream(2));
  f.allocator->record_stream(a, stream(2));
  f.free(a);
  EXPECT_EQ(f.fences.records, 1);
  EXPECT_EQ(f.allocator->figures().allocated, 0);
  EXPECT_EQ(f.allocator->stats().at("active_bytes.all.current"), static_cast<int64_t>(30 * kMiB));

  Allocation b = f.allocator->allocate(30 * kMiB, stream(1));
  EXPECT_NE(b.pointer, pointer);
  f.fences.set_busy(stream(2), false);
  Allocation c = f.allocator->allocate(30 * kMiB, stream(1));
  EXPECT_EQ(c.pointer, pointer);
  f.free(b);
  f.free(c);
  EXPECT_EQ(f.allocator->stats().at("active_bytes.all.current"), 0);
}

TEST(CachingAllocator, FencesAreLookedAtOnlyOnAMiss) {
  Fixture f;
  f.fences.set_busy(stream(2), true);
  Allocation a = f.allocator->allocate(4096, stream(1));
  Allocation spare = f.allocator->allocate(4096, stream(1));
  f.free(spare);
  f.allocator->record_stream(a, stream(2));
  f.free(a);
  for (int i = 0; i < 10; ++i) f.free(f.allocator->allocate(4096, stream(1)));
  EXPECT_EQ(f.fences.queries, 0);
}

TEST(CachingAllocator, OwnStreamNeedsNoFence) {
  Fixture f;
  Allocation a = f.allocator->allocate(4096, stream(1));
  f.allocator->record_stream(a, stream(1));
  f.free(a);
  EXPECT_EQ(f.fences.records, 0);
}

TEST(CachingAllocator, AFailedStreamKeepsItsMemoryOutOfUse) {
  Fixture f;
  Allocation a = f.allocator->allocate(30 * kMiB, stream(1));
  void* pointer = a.pointer;
  f.allocator->record_stream(a, stream(2));
  f.fences.failing.insert(stream(2));
  f.free(a);
  Allocation b = f.allocator->allocate(30 * kMiB, stream(1));
  EXPECT_NE(b.pointer, pointer);
  f.free(b);
  f.fences.failing.clear();
  f.allocator->empty_cache();
  EXPECT_EQ(f.allocator->figures().reserved, 0);
}

TEST(CachingAllocator, AStreamThatFailsAfterAFreeKeepsTheMemoryOutOfUse) {
  Fixture f;
  Allocation block = f.allocator->allocate(30 * kMiB, stream(1));
  void* const pointer = block.pointer;
  f.allocator->record_stream(block, stream(2));
  f.fences.set_busy(stream(2), true);
  f.free(block);  // with a fence, which will never be passed
  f.fences.failing.insert(stream(2));
  Allocation other = f.allocator->allocate(30 * kMiB, stream(1));
  EXPECT_NE(other.pointer, pointer);
  f.allocator->empty_cache();
  EXPECT_TRUE(f.memory.contains(pointer, 30 * kMiB)) << "it was given back";
  f.free(other);
}

// Its events may not be asked for, because its handle may be that of a new stream by then.
TEST(CachingAllocator, AForgottenStreamIsNotAskedAboutBlocksThatItUsed) {
  Fixture f;
  Allocation block = f.allocator->allocate(30 * kMiB, stream(1));
  void* const pointer = block.pointer;
  f.allocator->record_stream(block, stream(2));
  f.fences.set_busy(stream(2), true);
  f.allocator->forget_stream(stream(2));  // waits for it
  const int records = f.fences.records_of[stream(2)];
  f.free(block);
  EXPECT_EQ(f.fences.records_of[stream(2)], records);
  Allocation again = f.allocator->allocate(30 * kMiB, stream(1));
  EXPECT_EQ(again.pointer, pointer);
  f.free(again);
  // The same of a block of a pool, which was freed before the stream ended, and for which no event was asked yet.
  const uint64_t pool = f.allocator->begin_pool();
  block = f.allocator->allocate(30 * kMiB, stream(1), pool);
  f.allocator->record_stream(block, stream(3));
  f.free(block);
  f.allocator->forget_stream(stream(3));
  const int asked = f.fences.records_of[stream(3)];
  f.allocator->release_pool(pool);
  f.allocator->empty_cache();
  EXPECT_EQ(f.fences.records_of[stream(3)], asked);
  EXPECT_EQ(f.memory.held(), 0u);
}

// A long random pattern of sizes: the free memory lies in ever other pieces, and yet the source is soon left alone.
TEST(CachingAllocator, SteadyPatternLeavesTheSourceAlone) {
  constexpr size_t kLive = 4096, kPairs = size_t{1} << 18;
  Fixture f;
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> exponent(9.0, 26.0);
  const auto next_size = [&] { return static_cast<size_t>(std::exp2(exponent(random))); };
  std::vector<Allocation> blocks;
  for (size_t i = 0; i < kLive; ++i) blocks.push_back(f.allocator->allocate(next_size(), stream(1)));
  std::vector<std::pair<size_t, size_t>> pairs;  // which block, its next size
  for (size_t i = 0; i < kPairs; ++i) pairs.emplace_back(random() % kLive, next_size());
  const auto round = [&] {
    for (const auto& [index, size] : pairs) {
      f.free(blocks[index]);
      blocks[index] = f.allocator->allocate(size, stream(1));
    }
  };
  for (int i = 0; i < 3; ++i) round();
  const int64_t calls = f.allocator->source_calls();
  for (int i = 0; i < 6; ++i) round();
  EXPECT_LE(f.allocator->source_calls() - calls, 1);
  EXPECT_LE(f.allocator->figures().reserved, f.allocator->figures().max_allocated * 3 / 2);
  for (Allocation block : blocks) f.free(block);
}

TEST(CachingAllocator, AsksForWhatItNeedsWhileNothingIsFree) {
  Fixture f;
  std::vector<Allocation> blocks;
  for (int i = 0; i < 300; ++i) blocks.push_back(f.allocator->allocate(40 * kMiB, stream(1)));
  EXPECT_EQ(f.allocator->figures().reserved, static_cast<int64_t>(300 * 40 * kMiB));
  for (Allocation block : blocks) f.free(block);
}

// Much is free in pieces that are too small: a share of what is held is asked for, or what is needed when the source
// refuses that; nothing is given back for it.
TEST(CachingAllocator, AsksForMoreWhenTheFreeMemoryIsInPieces) {
  constexpr size_t kHeld = 2048 * 12 * kMiB;
  for (bool refused : {false, true}) {
    Fixture f(refused ? kHeld + 100 * kMiB : SIZE_MAX / 4);
    std::vector<Allocation> blocks;
    for (int i = 0; i < 2048; ++i) blocks.push_back(f.allocator->allocate(12 * kMiB, stream(1)));
    for (Allocation block : blocks) f.free(block);
    EXPECT_EQ(f.allocator->figures().reserved, static_cast<int64_t>(kHeld));
    Allocation block = f.allocator->allocate(40 * kMiB, stream(1));
    const size_t more = refused ? 40 * kMiB : kHeld / 32;
    EXPECT_EQ(f.allocator->figures().reserved, static_cast<int64_t>(kHeld + more));
    f.free(block);
  }
}

TEST(CachingAllocator, EmptyCacheWaitsForFencesAndForTheStreamsOfWhatItGivesBack) {
  Fixture f;
  f.fences.set_busy(stream(1), true);
  f.fences.set_busy(stream(2), true);
  Allocation a = f.allocator->allocate(30 * kMiB, stream(1));
  Allocation kept = f.allocator->allocate(100, stream(1));
  f.allocator->record_stream(a, stream(2));
  f.free(a);
  f.allocator->empty_cache();
  EXPECT_EQ(f.fences.waits, 2);
  EXPECT_EQ(f.allocator->figures().reserved, static_cast<int64_t>(2 * kMiB)) << "only the segment in use stays";
  f.free(kept);
}

TEST(CachingAllocator, OutOfMemoryGivesCachedMemoryBackAndTriesAgain) {
  Fixture f(64 * kMiB);
  f.free(f.allocator->allocate(40 * kMiB, stream(1)));
  Allocation b = f.allocator->allocate(60 * kMiB, stream(2));
  EXPECT_EQ(f.allocator->stats().at("num_alloc_retries"), 1);
  EXPECT_EQ(f.allocator->stats().at("num_ooms"), 0);
  EXPECT_EQ(f.allocator->stats().at("num_device_free"), 1);
  f.free(b);
}

TEST(CachingAllocator, OutOfMemoryWaitsForOtherStreams) {
  Fixture f(64 * kMiB);
  f.fences.set_busy(stream(2), true);
  Allocation a = f.allocator->allocate(60 * kMiB, stream(1));
  f.allocator->record_stream(a, stream(2));
  f.free(a);
  Allocation b = f.allocator->allocate(60 * kMiB, stream(1));
  EXPECT_EQ(f.fences.waits, 1);
  f.free(b);
}

// A stream that captures into a pool cannot be waited for: its memory stays, that of others is given back.
TEST(CachingAllocator, OutOfMemoryInACaptureDoesNotWaitForItsStream) {
  Fixture f(130 * kMiB);
  Allocation own = f.allocator->allocate(30 * kMiB, stream(1)), other = f.allocator->allocate(60 * kMiB, stream(2));
  void* const pointer = own.pointer;
  f.free(own);
  f.free(other);
  f.fences.set_busy(stream(2), true);
  const uint64_t pool = f.allocator->begin_pool();
  Allocation small = f.allocator->allocate(100, stream(1), pool);
  Allocation large = f.allocator->allocate(70 * kMiB, stream(1), pool);
  EXPECT_EQ(f.fences.records_of[stream(1)], 0);
  EXPECT_EQ(f.fences.waits, 1);
  own = f.allocator->allocate(30 * kMiB, stream(1));
  EXPECT_EQ(own.pointer, pointer);
  for (const Allocation& a : {small, large, own}) f.free(a);
  f.allocator->release_pool(pool);
}

TEST(CachingAllocator, ASegmentThatDoesNotFitIsAskedForInTheSizeNeeded) {
  Fixture f(6 * kMiB);
  Allocation b = f.allocator->allocate(5 * kMiB, stream(1));
  EXPECT_EQ(f.allocator->figures().reserved, static_cast<int64_t>(5 * kMiB));
  f.free(b);
}

TEST(CachingAllocator, OutOfMemorySaysTheNumbers) {
  Fixture f(100 * kMiB);
  Allocation a = f.allocator->allocate(40 * kMiB, stream(1));
  try {
    f.allocator->allocate(80 * kMiB, stream(1));
    FAIL() << "nothing was thrown";
  } catch (const OutOfMemoryError& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("fake:0 out of memory: 83.9 MB asked, 41.9 MB allocated, 41.9 MB reserved by this process, "
                        "62.9 MB free of 104.9 MB; "),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("try"), std::string::npos);
  }
  EXPECT_EQ(f.allocator->stats().at("num_ooms"), 1);
  EXPECT_THROW(f.allocator->allocate(SIZE_MAX, stream(1)), OutOfMemoryError);
  Allocation b = f.allocator->allocate(50 * kMiB, stream(1));
  f.free(a);
  f.free(b);
}

TEST(CachingAllocator, OtherErrorsOfTheSourcePassThrough) {
  Fixture f;
  f.memory.throws = true;
  EXPECT_THROW(f.allocator->allocate(100, stream(1)), std::runtime_error);
  f.memory.throws = false;
  f.free(f.allocator->allocate(100, stream(1)));
}

TEST(CachingAllocator, APoolKeepsItsMemoryToItself) {
  Fixture f;
  const uint64_t pool = f.allocator->begin_pool();
  EXPECT_NE(pool, 0u);
  Allocation a = f.allocator->allocate(30 * kMiB, stream(1), pool);
  void* pointer = a.pointer;
  f.free(a);
  Allocation common = f.allocator->allocate(30 * kMiB, stream(1));
  EXPECT_NE(common.pointer, pointer);
  Allocation again = f.allocator->allocate(30 * kMiB, stream(1), pool);
  EXPECT_EQ(again.pointer, pointer);
  f.free(common);
  f.allocator->empty_cache();
  EXPECT_EQ(f.allocator->figures().reserved, static_cast<int64_t>(30 * kMiB));
  f.free(again);
  f.allocator->empty_cache();
  EXPECT_EQ(f.allocator->figures().reserved, static_cast<int64_t>(30 * kMiB)) << "a pool in use keeps its memory";

  f.allocator->retain_pool(pool);
  f.allocator->release_pool(pool);
  Allocation late = f.allocator->allocate(30 * kMiB, stream(1), pool);
  f.allocator->release_pool(pool);
  EXPECT_THROW(f.allocator->retain_pool(pool), InvalidArgument);
  EXPECT_THROW(f.allocator->allocate(1, stream(1), pool), InvalidArgument);
  f.free(late);
  Allocation reused = f.allocator->allocate(30 * kMiB, stream(1));
  EXPECT_EQ(reused.pointer, pointer) << "what a pool leaves becomes common";
  f.free(reused);
  f.allocator->empty_cache();
  EXPECT_EQ(f.allocator->figures().reserved, 0);
}

// So many pools that some share a place in the cache of lists with the common memory of the stream.
TEST(CachingAllocator, ManyPoolsOfAStreamKeepTheirMemoryToThemselves) {
  Fixture f;
  std::vector<uint64_t> pools;
  for (int i = 0; i < 400; ++i) {
    pools.push_back(f.allocator->begin_pool());
    Allocation in_pool = f.allocator->allocate(1000, stream(1), pools.back());
    void* const pointer = in_pool.pointer;
    f.free(in_pool);
    Allocation common = f.allocator->allocate(1000, stream(1));
    ASSERT_NE(common.pointer, pointer) << "pool " << pools.back();
    f.free(common);
  }
  for (const uint64_t pool : pools) f.allocator->release_pool(pool);
}

TEST(CachingAllocator, InAPoolABlockOfSeveralStreamsIsNotReused) {
  Fixture f;
  const uint64_t pool = f.allocator->begin_pool();
  Allocation a = f.allocator->allocate(30 * kMiB, stream(1), pool);
  void* pointer = a.pointer;
  f.allocator->record_stream(a, stream(2));
  f.free(a);
  EXPECT_EQ(f.fences.records, 0) << "a capturing stream must not be asked";
  Allocation b = f.allocator->allocate(30 * kMiB, stream(1), pool);
  EXPECT_NE(b.pointer, pointer);
  f.free(b);
  f.allocator->release_pool(pool);
  f.allocator->empty_cache();
  EXPECT_EQ(f.allocator->figures().reserved, 0);
}

// A service that captures a graph for each request must not hold more memory with each of them.
TEST(CachingAllocator, APoolTakesTheSegmentsThatEarlierPoolsHaveLeft) {
  Fixture f;
  for (int request = 0; request < 10; ++request) {
    const uint64_t pool = f.allocator->begin_pool();
    Allocation small = f.allocator->allocate(100, stream(1), pool);
    Allocation other = f.allocator->allocate(2000, stream(1), pool);
    Allocation large = f.allocator->allocate(30 * kMiB, stream(1), pool);
    Allocation elsewhere = f.allocator->allocate(50 * kMiB, stream(2), pool);
    Allocation common = f.allocator->allocate(100, stream(1));
    EXPECT_TRUE(f.memory.contains(small.pointer, 100) && f.memory.contains(large.pointer, 30 * kMiB));
    for (const Allocation& a : {small, other, large, elsewhere, common}) f.free(a);
    f.allocator->release_pool(pool);
    EXPECT_EQ(f.allocator->figures().reserved, static_cast<int64_t>(84 * kMiB)) << request;
  }
  f.allocator->empty_cache();
  EXPECT_EQ(f.allocator->figures().reserved, 0);
  EXPECT_EQ(f.memory.held(), 0u);
}

TEST(CachingAllocator, APoolTakesNothingThatMayBeInUse) {
  Fixture f;
  uint64_t pool = f.allocator->begin_pool();
  Allocation a = f.allocator->allocate(30 * kMiB, stream(1), pool);
  Allocation live = f.allocator->allocate(100, stream(1), pool);
  void* const pointer = a.pointer;
  f.free(a);
  f.fences.set_busy(stream(1), true);
  f.allocator->release_pool(pool);
  pool = f.allocator->begin_pool();
  Allocation b = f.allocator->allocate(30 * kMiB, stream(2), pool);
  EXPECT_NE(b.pointer, pointer) << "work of the stream may still use it";
  Allocation c = f.allocator->allocate(100, stream(2), pool);
  f.allocator->forget_stream(stream(1));
  Allocation d = f.allocator->allocate(30 * kMiB, stream(2), pool);
  EXPECT_EQ(d.pointer, pointer) << "the stream is gone, and with it its work";
  for (const Allocation& left : {live, b, c, d}) f.free(left);
  f.allocator->release_pool(pool);
  f.allocator->empty_cache();
  EXPECT_EQ(f.memory.held(), 0u);
}

TEST(CachingAllocator, WhatAStreamLeavesBecomesCommon) {
  Fixture f;
  f.fences.set_busy(stream(1), true);
  Allocation cached = f.allocator->allocate(30 * kMiB, stream(1));
  Allocation live = f.allocator->allocate(50 * kMiB, stream(1));
  void* pointer = cached.pointer;
  void* live_pointer = live.pointer;
  f.free(cached);
  f.allocator->forget_stream(stream(1));
  EXPECT_EQ(f.fences.waits, 1);
  const int records = f.fences.records;
  Allocation a = f.allocator->allocate(30 * kMiB, stream(2));
  EXPECT_EQ(a.pointer, pointer);
  f.free(live);
  Allocation b = f.allocator->allocate(50 * kMiB, stream(3));
  EXPECT_EQ(b.pointer, live_pointer);
  // Once taken, a block belongs to its new stream.
  f.free(a);
  Allocation c = f.allocator->allocate(30 * kMiB, stream(3));
  EXPECT_NE(c.pointer, pointer);
  f.free(b);
  f.free(c);
  f.allocator->empty_cache();
  EXPECT_EQ(f.allocator->figures().reserved, 0);
  f.fences.set_busy(stream(1), false);
  EXPECT_GT(f.fences.records, records);
}

TEST(CachingAllocator, StatisticsHavePyTorchsKeysAndTrueNumbers) {
  Fixture f;
  Allocation small = f.allocator->allocate(1000, stream(1));
  Allocation large = f.allocator->allocate(33 * kMiB, stream(1));
  auto s = f.allocator->stats();
  for (const char* metric : {"allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes",
                             "requested_bytes", "allocation", "segment", "active", "inactive_split"}) {
    for (const char* domain : {"all", "small_pool", "large_pool"}) {
      for (const char* part : {"current", "peak", "allocated", "freed"}) {
        EXPECT_TRUE(s.contains(std::string(metric) + "." + domain + "." + part)) << metric;
      }
    }
  }
  for (const char* key :
       {"num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free", "num_sync_all_streams",
        "max_split_size", "oversize_allocations.current", "oversize_segments.peak"}) {
    EXPECT_TRUE(s.contains(key)) << key;
  }
  const auto large_bytes = static_cast<int64_t>(CachingAllocator::capacity(large));
  EXPECT_EQ(s.at("allocated_bytes.small_pool.current"), 1024);
  EXPECT_EQ(s.at("allocated_bytes.large_pool.current"), large_bytes);
  EXPECT_EQ(s.at("allocated_bytes.all.current"), 1024 + large_bytes);
  EXPECT_EQ(s.at("requested_bytes.all.current"), static_cast<int64_t>(1000 + 33 * kMiB));
  EXPECT_EQ(s.at("reserved_bytes.small_pool.current"), static_cast<int64_t>(2 * kMiB));
  EXPECT_EQ(s.at("inactive_split_bytes.small_pool.current"), static_cast<int64_t>(2 * kMiB - 1024));
  EXPECT_EQ(s.at("segment.all.current"), 2);
  EXPECT_EQ(s.at("num_device_alloc"), 2);
  EXPECT_EQ(f.allocator->figures().allocated, 1024 + large_bytes);
  EXPECT_EQ(f.allocator->figures().reserved, s.at("reserved_bytes.all.current"));

  f.free(large);
  s = f.allocator->stats();
  EXPECT_EQ(s.at("allocated_bytes.all.peak"), 1024 + large_bytes);
  EXPECT_EQ(s.at("allocated_bytes.all.freed"), large_bytes);
  EXPECT_EQ(s.at("active_bytes.large_pool.peak"), large_bytes);
  EXPECT_EQ(f.allocator->figures().max_allocated, 1024 + large_bytes);
  f.allocator->reset_peaks(DeviceAllocator::Peak::Allocated);
  EXPECT_EQ(f.allocator->figures().max_allocated, 1024);
  EXPECT_GT(f.allocator->stats().at("requested_bytes.all.peak"), 1000);
  f.allocator->reset_peaks(DeviceAllocator::Peak::Both);
  EXPECT_EQ(f.allocator->stats().at("requested_bytes.all.peak"), 1000);
  EXPECT_EQ(f.allocator->stats().at("active.all.peak"), 1);
  f.allocator->empty_cache();
  EXPECT_GT(f.allocator->figures().max_reserved, f.allocator->figures().reserved);
  f.allocator->reset_peaks(DeviceAllocator::Peak::Reserved);
  EXPECT_EQ(f.allocator->figures().max_reserved, f.allocator->figures().reserved);
  f.free(small);
}

TEST(CachingAllocator, PeaksSeeFreesOfOtherThreads) {
  Fixture f;
  Allocation a = f.allocator->allocate(2048, stream(1));
  std::thread([&] { f.free(a); }).join();
  Allocation b = f.allocator->allocate(4096, stream(2));
  EXPECT_EQ(f.allocator->figures().max_allocated, 4096);
  EXPECT_EQ(f.allocator->figures().allocated, 4096);
  std::thread([&] { f.free(b); }).join();
  EXPECT_EQ(f.allocator->figures().allocated, 0);
}

TEST(CachingAllocator, ThreadsShareIt) {
  for (int seed = 0; seed < seeds(); ++seed) {
    Fixture f;
    std::mutex mutex;
    LiveBlocks live;
    std::vector<Allocation> shared;  // blocks that another thread frees
    std::atomic<bool> stop{false};
    const auto work = [&](uint64_t number) {
      std::mt19937_64 random(number + 100 * static_cast<uint64_t>(seed));
      std::uniform_real_distribution<double> log(9, 24);
      std::vector<Allocation> mine;
      for (int i = 0; i < 3000; ++i) {
        if (random() % 2 == 0 || mine.empty()) {
          const auto bytes = static_cast<size_t>(std::exp2(log(random)));
          Allocation block = f.allocator->allocate(bytes, stream(1 + number % 2));
          std::lock_guard guard(mutex);
          live.add(f.memory, block, bytes);
          mine.push_back(block);
        } else {
          Allocation block = mine.back();
          mine.pop_back();
          if (random() % 8 == 0) f.allocator->record_stream(block, stream(5));
          std::lock_guard guard(mutex);
          if (shared.size() < 16) {
            shared.push_back(block);
            continue;
          }
          if (random() % 4 == 0) {
            shared.push_back(block);
            std::swap(shared[random() % shared.size()], shared.back());
            block = shared.back();
            shared.pop_back();
          }
          live.remove(block);
          f.free(block);
        }
      }
      for (Allocation block : mine) {
        {
          std::lock_guard guard(mutex);
          live.remove(block);
        }
        f.free(block);
      }
    };
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 4; ++t) threads.emplace_back(work, t);
    std::thread meddler([&] {
      bool busy = false;
      while (!stop) {
        f.fences.set_busy(stream(5), busy = !busy);
        f.allocator->empty_cache();
        f.allocator->stats();
        f.allocator->forget_stream(stream(9));
        std::this_thread::yield();
      }
    });
    for (auto& t : threads) t.join();
    stop = true;
    meddler.join();
    for (Allocation block : shared) f.free(block);
    f.fences.set_busy(stream(5), false);
    f.allocator->empty_cache();
    EXPECT_EQ(f.allocator->figures().allocated, 0);
    EXPECT_EQ(f.allocator->figures().reserved, 0);
  }
}

}  // namespace
}  // namespace anyaccel
