// Allocators other than the default: the adaptors by themselves, and accelerators that use them.
#include "anyaccel/device_allocator.h"

#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "accelerators/cpu/cpu_driver.h"
#include "anyaccel/caching_allocator.h"
#include "anyaccel/driver_accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/tensor.h"
#include "runtime/driver/driver_table.h"
#include "runtime/driver/host_services.h"

namespace anyaccel {
namespace {

template <class Expected, class Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const Expected& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

// Gives out addresses and notes what is out; has neither pools nor statistics.
class Plain final : public DeviceAllocator {
 public:
  explicit Plain(int64_t* peak = nullptr) : peak_(peak) {}
  ~Plain() override { EXPECT_TRUE(out_.empty()); }

  std::string name() const override { return "plain:0"; }
  Allocation allocate(size_t bytes, const void* stream, uint64_t) override {
    const std::lock_guard lock(mutex_);
    if (fails) throw OutOfMemoryError("plain:0 has no memory");
    auto* pointer = reinterpret_cast<void*>(next_ += 256);
    out_.insert({pointer, bytes, stream});
    held_ += static_cast<int64_t>(bytes);
    if (peak_) *peak_ = std::max(*peak_, held_);
    return {pointer, this};
  }
  void deallocate(Allocation allocation, size_t bytes, const void* stream) noexcept override {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(allocation.handle, this);
    EXPECT_EQ(out_.erase({allocation.pointer, bytes, stream}), 1u) << "not what was given out";
    held_ -= static_cast<int64_t>(bytes);
  }
  void record_stream(Allocation, const void*) override { ++recorded; }

  std::atomic<bool> fails{false};
  int recorded = 0;

 private:
  struct Piece {
    void* pointer;
    size_t bytes;
    const void* stream;
    auto operator<=>(const Piece&) const = default;
  };
  std::mutex mutex_;
  std::set<Piece> out_;
  uintptr_t next_ = 4096;
  int64_t held_ = 0;
  int64_t* peak_;
};

const int a_stream = 0;

TEST(LimitingAllocator, RefusesWhatDoesNotFitAndTellsWhy) {
  LimitingAllocator allocator(std::make_unique<Plain>(), 1'000'000);
  const Allocation first = allocator.allocate(600'000, &a_stream, 0);
  EXPECT_EQ(
      error_of<OutOfMemoryError>([&] { allocator.allocate(400'001, &a_stream, 0); }),
      "plain:0 out of memory: 400.0 KB asked, 600.0 KB allocated, and its allocator is limited to 1.0 MB; raise the "
      "limit, or try a smaller batch, a shorter context or a smaller dtype");
  EXPECT_THROW(allocator.allocate(std::numeric_limits<size_t>::max(), &a_stream, 0), OutOfMemoryError);
  const Allocation rest = allocator.allocate(400'000, &a_stream, 0);
  EXPECT_THROW(allocator.allocate(1, &a_stream, 0), OutOfMemoryError);
  allocator.deallocate(first, 600'000, &a_stream);
  allocator.deallocate(allocator.allocate(600'000, &a_stream, 0), 600'000, &a_stream);
  allocator.deallocate(rest, 400'000, &a_stream);
}

TEST(LimitingAllocator, WhatTheOneBelowRefusesDoesNotCount) {
  auto below = std::make_unique<Plain>();
  Plain& plain = *below;
  LimitingAllocator allocator(std::move(below), 1000);
  plain.fails = true;
  for (int i = 0; i < 5; ++i) EXPECT_THROW(allocator.allocate(800, &a_stream, 0), OutOfMemoryError);
  plain.fails = false;
  allocator.deallocate(allocator.allocate(1000, &a_stream, 0), 1000, &a_stream);
}

TEST(LimitingAllocator, ThreadsTogetherStayBelow) {
  int64_t peak = 0;
  std::atomic<int> refused{0}, given{0};
  {
    LimitingAllocator allocator(std::make_unique<Plain>(&peak), 1000);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 3000; ++i) {
          try {
            const Allocation memory = allocator.allocate(400, &a_stream, 0);
            if (i % 16 == 0) std::this_thread::yield();
            allocator.deallocate(memory, 400, &a_stream);
            ++given;
          } catch (const OutOfMemoryError&) {
            ++refused;
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_LE(peak, 1000);
  EXPECT_GT(given, 0);
  EXPECT_EQ(given + refused, 12000);
}

TEST(LimitingAllocator, BadArguments) {
  EXPECT_THROW(LimitingAllocator(nullptr, 1), InvalidArgument);
  EXPECT_THROW(LimitingAllocator(std::make_unique<Plain>(), -1), InvalidArgument);
}

TEST(StatisticsAllocator, CountsForOneThatDoesNot) {
  StatisticsAllocator allocator(std::make_unique<Plain>());
  const Allocation a = allocator.allocate(100, &a_stream, 0);
  const Allocation b = allocator.allocate(50, &a_stream, 0);
  allocator.deallocate(a, 100, &a_stream);
  EXPECT_EQ(allocator.figures().allocated, 50);
  EXPECT_EQ(allocator.figures().max_allocated, 150);
  EXPECT_EQ(allocator.figures().reserved, 0);
  auto stats = allocator.stats();
  EXPECT_EQ(stats.at("requested_bytes.all.current"), 50);
  EXPECT_EQ(stats.at("requested_bytes.all.peak"), 150);
  EXPECT_EQ(stats.at("requested_bytes.all.allocated"), 150);
  EXPECT_EQ(stats.at("requested_bytes.all.freed"), 100);
  EXPECT_EQ(stats.at("allocation.all.current"), 1);
  EXPECT_EQ(stats.at("allocation.all.allocated"), 2);
  allocator.reset_peaks(DeviceAllocator::Peak::Reserved);
  EXPECT_EQ(allocator.figures().max_allocated, 150);
  allocator.reset_peaks(DeviceAllocator::Peak::Allocated);
  EXPECT_EQ(allocator.figures().max_allocated, 50);
  allocator.deallocate(b, 50, &a_stream);
}

TEST(LoggingAllocator, OneLineForEachCall) {
  std::vector<std::string> lines;
  LoggingAllocator allocator(std::make_unique<Plain>(), [&](std::string_view line) { lines.emplace_back(line); });
  const Allocation a = allocator.allocate(4096, nullptr, 0);
  allocator.deallocate(a, 4096, nullptr);
  const Allocation b = allocator.allocate(1, nullptr, 7);
  allocator.deallocate(b, 1, nullptr);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0], "plain:0: allocate 4096 bytes for stream (nil): 0x1100");
  EXPECT_EQ(lines[1], "plain:0: deallocate 4096 bytes for stream (nil): 0x1100");
  EXPECT_EQ(lines[2], "plain:0: allocate 1 bytes for stream (nil) in pool 7: 0x1200");
}

TEST(LoggingAllocator, LosesNoMemoryWhenItsLogFails) {
  bool fails = true;
  LoggingAllocator allocator(std::make_unique<Plain>(), [&](std::string_view) {
    if (fails) throw Error("the disk is full");
  });
  EXPECT_THROW(allocator.allocate(1, &a_stream, 0), Error);
  fails = false;
  const Allocation a = allocator.allocate(1, &a_stream, 0);
  fails = true;
  allocator.deallocate(a, 1, &a_stream);  // Plain's destructor sees whether it came through
}

// ---- on an accelerator ----------------------------------------------------------------------------------------------

class OnAccelerator : public ::testing::Test {
 protected:
  Tensor tensor(int64_t bytes) { return Tensor::empty({bytes}, DType::U8, accelerator.device()); }

  DriverAccelerator accelerator{
      complete_table(anyaccel_cpu_driver_query(AA_ABI_VERSION(1, 0), AA_ABI_CURRENT, host_services()), "built in")};
};

TEST_F(OnAccelerator, TheExampleOfTheHeader) {
  accelerator.set_allocator([](MemorySource& memory, FenceSource& fences) {
    return std::make_unique<LimitingAllocator>(std::make_unique<CachingAllocator>(memory, fences), 8'000'000);
  });
  Tensor a = tensor(5'000'000);
  const std::string error = error_of<OutOfMemoryError>([&] { tensor(4'000'000); });
  EXPECT_EQ(error.find("cpu out of memory: 4.0 MB asked, 5.0 MB allocated"), 0u) << error;
  EXPECT_EQ(accelerator.available_memory(), 3'000'000);
  a = Tensor();
  EXPECT_EQ(tensor(4'000'000).numel(), 4'000'000);
  EXPECT_GT(accelerator.max_memory_allocated(), 0) << "the caching allocator's figures come through";
}

TEST_F(OnAccelerator, EverythingComesThroughAdaptors) {
  std::atomic<int> lines{0};
  accelerator.set_allocator([&](MemorySource& memory, FenceSource& fences) {
    std::unique_ptr<DeviceAllocator> chain = std::make_unique<CachingAllocator>(memory, fences);
    chain = std::make_unique<StatisticsAllocator>(std::move(chain));
    chain = std::make_unique<LimitingAllocator>(std::move(chain), int64_t{1} << 30);
    return std::make_unique<LoggingAllocator>(std::move(chain), [&](std::string_view) { ++lines; });
  });
  {
    const Tensor a = tensor(1000);
    EXPECT_EQ(accelerator.memory_allocated(), 1000) << "bytes that were asked for";
    const Stream other = accelerator.Stream();
    a.storage()->record_stream(other);
    if (accelerator.supports_graphs()) {
      Graph graph = accelerator.create_graph();
      Tensor inside;
      {
        const ScopeGuard capture = accelerator.capture_to_graph(graph);
        inside = Tensor::zeros({64}, DType::F32, accelerator.device());
      }
      accelerator.replay_graph(graph);
      accelerator.synchronize();
      EXPECT_EQ(inside.to_vector<float>(), std::vector<float>(64, 0.0f));
    }
  }
  EXPECT_EQ(accelerator.memory_allocated(), 0);
  EXPECT_GT(accelerator.memory_reserved(), 0);
  EXPECT_GE(lines, 2);
  accelerator.empty_cache();
  EXPECT_EQ(accelerator.memory_reserved(), 0);
  accelerator.reset_peak_memory_stats();
  EXPECT_EQ(accelerator.max_memory_allocated(), 0);
  EXPECT_TRUE(accelerator.memory_stats().contains("segment.all.current"));
}

// Straight from the driver.
class Direct final : public DeviceAllocator {
 public:
  explicit Direct(MemorySource& memory) : memory_(memory) {}
  std::string name() const override { return memory_.name(); }
  Allocation allocate(size_t bytes, const void*, uint64_t) override {
    void* pointer = memory_.allocate(std::max<size_t>(bytes, 1));
    if (!pointer) throw OutOfMemoryError(name() + " has no memory");
    return {pointer, nullptr};
  }
  void deallocate(Allocation allocation, size_t bytes, const void*) noexcept override {
    memory_.free(allocation.pointer, std::max<size_t>(bytes, 1));
  }
  void record_stream(Allocation, const void*) override {}

 private:
  MemorySource& memory_;
};

TEST_F(OnAccelerator, OneWithoutPoolsServesAllButGraphs) {
  accelerator.set_allocator([](MemorySource& memory, FenceSource&) { return std::make_unique<Direct>(memory); });
  const Tensor a = Tensor::zeros({1000}, DType::F32, accelerator.device());
  EXPECT_EQ(a.to_vector<float>(), std::vector<float>(1000, 0.0f));
  EXPECT_EQ(accelerator.memory_allocated(), 0) << "it counts nothing";
  Graph graph = accelerator.create_graph();
  const std::string error =
      error_of<NotImplementedError>([&] { const ScopeGuard capture = accelerator.capture_to_graph(graph); });
  EXPECT_NE(error.find("no memory pools for graphs"), std::string::npos) << error;
  a.fill(1);  // the stream is not left in a capture
  EXPECT_EQ(a.to_vector<float>(), std::vector<float>(1000, 1.0f));
}

TEST_F(OnAccelerator, OnlyBeforeADeviceIsOpen) {
  tensor(1);
  const std::string error = error_of<InvalidArgument>([&] { accelerator.set_allocator({}); });
  EXPECT_NE(error.find("cpu is open already"), std::string::npos) << error;
}

TEST_F(OnAccelerator, AFunctionThatMakesNoneLeavesTheDeviceClosed) {
  accelerator.set_allocator([](MemorySource&, FenceSource&) { return std::unique_ptr<DeviceAllocator>(); });
  EXPECT_NE(error_of<InvalidArgument>([&] { tensor(1); }).find("made no allocator"), std::string::npos);
  accelerator.set_allocator([](MemorySource&, FenceSource&) -> std::unique_ptr<DeviceAllocator> {
    throw OutOfMemoryError("no arena today");
  });
  EXPECT_EQ(error_of<OutOfMemoryError>([&] { tensor(1); }), "no arena today");
  accelerator.set_allocator({});
  EXPECT_EQ(tensor(1).numel(), 1);
}

}  // namespace
}  // namespace anyaccel
