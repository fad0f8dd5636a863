// The defaults of DeviceAllocator, and its adaptors.
#include "anyaccel/device_allocator.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "anyaccel/error.h"
#include "anyaccel/format_bytes.h"
#include "anyaccel/log.h"

namespace anyaccel {

void DeviceAllocator::forget_stream(const void*) noexcept {}
void DeviceAllocator::empty_cache() {}
uint64_t DeviceAllocator::begin_pool() {
  throw NotImplementedError(
      "the allocator of " + name() +
      " has no memory pools for graphs; capture with one that has them, such as CachingAllocator");
}
void DeviceAllocator::retain_pool(uint64_t pool) {
  throw InvalidArgument("memory pool " + std::to_string(pool) + " does not exist on " + name());
}
void DeviceAllocator::release_pool(uint64_t) noexcept {}
AllocatorFigures DeviceAllocator::figures() const { return {}; }
std::map<std::string, int64_t> DeviceAllocator::stats() const { return {}; }
void DeviceAllocator::reset_peaks(Peak) {}

AllocatorAdaptor::AllocatorAdaptor(std::unique_ptr<DeviceAllocator> upstream) : upstream_(std::move(upstream)) {
  if (!upstream_) throw InvalidArgument("an allocator's adaptor was made without the allocator below it");
}
std::string AllocatorAdaptor::name() const { return upstream_->name(); }
Allocation AllocatorAdaptor::allocate(size_t bytes, const void* stream, uint64_t pool) {
  return upstream_->allocate(bytes, stream, pool);
}
void AllocatorAdaptor::deallocate(Allocation allocation, size_t bytes, const void* stream) noexcept {
  upstream_->deallocate(allocation, bytes, stream);
}
void AllocatorAdaptor::record_stream(Allocation allocation, const void* stream) {
  upstream_->record_stream(allocation, stream);
}
void AllocatorAdaptor::forget_stream(const void* stream) noexcept { upstream_->forget_stream(stream); }
void AllocatorAdaptor::empty_cache() { upstream_->empty_cache(); }
uint64_t AllocatorAdaptor::begin_pool() { return upstream_->begin_pool(); }
void AllocatorAdaptor::retain_pool(uint64_t pool) { upstream_->retain_pool(pool); }
void AllocatorAdaptor::release_pool(uint64_t pool) noexcept { upstream_->release_pool(pool); }
AllocatorFigures AllocatorAdaptor::figures() const { return upstream_->figures(); }
std::map<std::string, int64_t> AllocatorAdaptor::stats() const { return upstream_->stats(); }
void AllocatorAdaptor::reset_peaks(Peak which) { upstream_->reset_peaks(which); }

LimitingAllocator::LimitingAllocator(std::unique_ptr<DeviceAllocator> upstream, int64_t limit_bytes)
    : AllocatorAdaptor(std::move(upstream)), limit_(limit_bytes) {
  if (limit_bytes < 0) {
    throw InvalidArgument("the limit of an allocator is " + std::to_string(limit_bytes) +
                          " bytes, expected at least 0");
  }
}

Allocation LimitingAllocator::allocate(size_t bytes, const void* stream, uint64_t pool) {
  // As much as is left, in one step, so that threads together do not go above the limit.
  int64_t before = asked_.load(std::memory_order_relaxed);
  do {
    if (bytes > static_cast<size_t>(limit_ - before)) {
      throw OutOfMemoryError(name() + " out of memory: " + format_bytes(static_cast<double>(bytes)) + " asked, " +
                             format_bytes(static_cast<double>(before)) +
                             " allocated, and its allocator is limited to " +
                             format_bytes(static_cast<double>(limit_)) +
                             "; raise the limit, or try a smaller batch, a shorter context or a smaller dtype");
    }
  } while (!asked_.compare_exchange_weak(before, before + static_cast<int64_t>(bytes), std::memory_order_relaxed));
  try {
    return upstream().allocate(bytes, stream, pool);
  } catch (...) {
    asked_.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed);
    throw;
  }
}

void LimitingAllocator::deallocate(Allocation allocation, size_t bytes, const void* stream) noexcept {
  upstream().deallocate(allocation, bytes, stream);
  asked_.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed);
}

AllocatorFigures LimitingAllocator::figures() const {
  AllocatorFigures figures = upstream().figures();
  figures.available = std::min(figures.available, limit_ - asked_.load(std::memory_order_relaxed));
  return figures;
}

void StatisticsAllocator::Counter::add(int64_t amount) noexcept {
  current += amount;
  if (amount > 0) total += amount;
  peak = std::max(peak, current);
}

Allocation StatisticsAllocator::allocate(size_t bytes, const void* stream, uint64_t pool) {
  const Allocation allocation = upstream().allocate(bytes, stream, pool);
  const std::lock_guard lock(mutex_);
  bytes_.add(static_cast<int64_t>(bytes));
  count_.add(1);
  return allocation;
}

void StatisticsAllocator::deallocate(Allocation allocation, size_t bytes, const void* stream) noexcept {
  upstream().deallocate(allocation, bytes, stream);
  const std::lock_guard lock(mutex_);
  bytes_.add(-static_cast<int64_t>(bytes));
  count_.add(-1);
}

AllocatorFigures StatisticsAllocator::figures() const {
  AllocatorFigures figures = upstream().figures();
  const std::lock_guard lock(mutex_);
  figures.allocated = bytes_.current;
  figures.max_allocated = bytes_.peak;
  return figures;
}

std::map<std::string, int64_t> StatisticsAllocator::stats() const {
  std::map<std::string, int64_t> stats = upstream().stats();
  const std::lock_guard lock(mutex_);
  for (const auto& [name, counter] : {std::pair("requested_bytes.all", bytes_), std::pair("allocation.all", count_)}) {
    const std::string key = name;
    stats[key + ".current"] = counter.current;
    stats[key + ".peak"] = counter.peak;
    stats[key + ".allocated"] = counter.total;
    stats[key + ".freed"] = counter.total - counter.current;
  }
  return stats;
}

void StatisticsAllocator::reset_peaks(Peak which) {
  upstream().reset_peaks(which);
  if (which == Peak::Reserved) return;
  const std::lock_guard lock(mutex_);
  bytes_.peak = bytes_.current;
  count_.peak = count_.current;
}

LoggingAllocator::LoggingAllocator(std::unique_ptr<DeviceAllocator> upstream,
                                   std::function<void(std::string_view)> write)
    : AllocatorAdaptor(std::move(upstream)),
      write_(write ? std::move(write) : [](std::string_view line) { log_debug(line); }) {}

Allocation LoggingAllocator::allocate(size_t bytes, const void* stream, uint64_t pool) {
  const Allocation allocation = upstream().allocate(bytes, stream, pool);
  char line[160];
  std::snprintf(line, sizeof(line), ": allocate %zu bytes for stream %p%s: %p", bytes, stream,
                pool ? (" in pool " + std::to_string(pool)).c_str() : "", allocation.pointer);
  try {
    write_(name() + line);
  } catch (...) {
    upstream().deallocate(allocation, bytes, stream);
    throw;
  }
  return allocation;
}

void LoggingAllocator::deallocate(Allocation allocation, size_t bytes, const void* stream) noexcept {
  // The line first: afterwards another thread may have been given the memory, and its line would stand before this one.
  try {
    char line[160];
    std::snprintf(line, sizeof(line), ": deallocate %zu bytes for stream %p: %p", bytes, stream, allocation.pointer);
    write_(name() + line);
  } catch (...) {
    // The error is ignored: memory must be freed even if its line cannot be written.
  }
  upstream().deallocate(allocation, bytes, stream);
}

}  // namespace anyaccel
