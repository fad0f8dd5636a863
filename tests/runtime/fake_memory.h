// Stand-ins for device memory and events, for tests of the caching allocator: addresses that nobody may touch, with
// every misuse counted, and fences that complete when the test says so.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>

#include "anyaccel/caching_allocator.h"

namespace anyaccel::test {

class FakeMemory final : public MemorySource {
 public:
  explicit FakeMemory(size_t capacity = SIZE_MAX / 4) : capacity_(capacity) {}

  void* allocate(size_t bytes) override {
    std::lock_guard guard(mutex_);
    if (throws) throw std::runtime_error("the device fell off");
    if (held_ + bytes > capacity_) return nullptr;
    const uintptr_t at = next_;
    next_ += bytes + 4096 + (4096 - bytes % 4096) % 4096;
    held_ += bytes;
    ranges_[at] = bytes;
    return reinterpret_cast<void*>(at);
  }
  void free(void* pointer, size_t bytes) noexcept override {
    std::lock_guard guard(mutex_);
    const auto found = ranges_.find(reinterpret_cast<uintptr_t>(pointer));
    if (found == ranges_.end() || found->second != bytes) {
      ++wrong_frees;
      return;
    }
    held_ -= bytes;
    ranges_.erase(found);
  }
  void info(int64_t& free_bytes, int64_t& total_bytes) noexcept override {
    std::lock_guard guard(mutex_);
    free_bytes = static_cast<int64_t>(capacity_ - held_);
    total_bytes = static_cast<int64_t>(capacity_);
  }
  std::string name() const override { return "fake:0"; }

  size_t held() const {
    std::lock_guard guard(mutex_);
    return held_;
  }
  // Returns true if [pointer, pointer + bytes) lies inside one allocation.
  bool contains(const void* pointer, size_t bytes) const {
    std::lock_guard guard(mutex_);
    const auto at = reinterpret_cast<uintptr_t>(pointer);
    auto found = ranges_.upper_bound(at);
    if (found == ranges_.begin()) return false;
    --found;
    return at + bytes <= found->first + found->second;
  }

  std::atomic<bool> throws{false};
  std::atomic<int> wrong_frees{0};

 private:
  mutable std::mutex mutex_;
  size_t capacity_;
  size_t held_ = 0;
  uintptr_t next_ = uintptr_t{1} << 40;
  std::map<uintptr_t, size_t> ranges_;
};

class FakeFences final : public FenceSource {
 public:
  void* record(const void* stream) override {
    std::lock_guard guard(mutex_);
    ++records;
    ++records_of[stream];
    if (failing.contains(stream)) throw std::runtime_error("the stream has failed");
    if (!busy.contains(stream)) return nullptr;
    auto* fence = new Fence{stream, false};
    live_.insert(fence);
    return fence;
  }
  bool done(void* fence) override {
    std::lock_guard guard(mutex_);
    ++queries;
    auto* f = static_cast<Fence*>(fence);
    if (failing.contains(f->stream)) throw std::runtime_error("the stream has failed");
    return f->waited || !busy.contains(f->stream);
  }
  void wait(void* fence) override {
    std::lock_guard guard(mutex_);
    ++waits;
    auto* f = static_cast<Fence*>(fence);
    if (failing.contains(f->stream)) throw std::runtime_error("the stream has failed");
    f->waited = true;
  }
  void destroy(void* fence) noexcept override {
    std::lock_guard guard(mutex_);
    auto* f = static_cast<Fence*>(fence);
    live_.erase(f);
    delete f;
  }
  void set_busy(const void* stream, bool is_busy) {
    std::lock_guard guard(mutex_);
    if (is_busy) {
      busy.insert(stream);
    } else {
      busy.erase(stream);
    }
  }
  size_t live() const {
    std::lock_guard guard(mutex_);
    return live_.size();
  }

  int records = 0;
  std::map<const void*, int> records_of;
  int queries = 0;
  int waits = 0;
  std::set<const void*> failing;

 private:
  struct Fence {
    const void* stream;
    bool waited;
  };
  mutable std::mutex mutex_;
  std::set<const void*> busy;
  std::set<Fence*> live_;
};

}  // namespace anyaccel::test
