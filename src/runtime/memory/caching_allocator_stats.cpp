// The caching allocator: its figures, under PyTorch's names, and the text of its out-of-memory error.
#include <algorithm>

#include "anyaccel/error.h"
#include "anyaccel/format_bytes.h"
#include "runtime/memory/caching_allocator_lists.h"

namespace anyaccel {

namespace {

void put(std::map<std::string, int64_t>& out, const std::string& key, int64_t current, int64_t peak, int64_t total) {
  out[key + ".current"] = current;
  out[key + ".peak"] = peak;
  out[key + ".allocated"] = total;
  out[key + ".freed"] = total - current;
}

constexpr const char* kDomains[] = {"large_pool", "small_pool", "all"};

}  // namespace

void CachingAllocator::Impl::throw_out_of_memory(size_t bytes) {
  int64_t allocated = 0;
  int64_t reserved = 0;
  int64_t other_pools = 0;
  {
    std::lock_guard guard(lock);
    ++statistics.out_of_memory;
    allocated = statistics.domains[0].bytes + statistics.domains[1].bytes;
    reserved = statistics.reserved[2].current;
    for (const Segment* s = segments; s; s = s->next) {
      if (s->pool != 0) other_pools += static_cast<int64_t>(s->bytes);
    }
  }
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
  memory.info(free_bytes, total_bytes);
  std::string message = memory.name() + " out of memory: " + format_bytes(static_cast<double>(bytes)) + " asked, " +
                        format_bytes(static_cast<double>(allocated)) + " allocated, " +
                        format_bytes(static_cast<double>(reserved)) + " reserved by this process, " +
                        format_bytes(static_cast<double>(free_bytes)) + " free of " +
                        format_bytes(static_cast<double>(total_bytes)) + "; ";
  if (other_pools > reserved / 4) message += format_bytes(static_cast<double>(other_pools)) + " are held by graphs; ";
  message += "try a smaller batch, a shorter context or a smaller dtype, or stop other programs on the device";
  if (bytes <= size_classes::kMaxRequest) {  // else the source was not asked
    if (const std::string refusal = memory.refusal(); !refusal.empty()) message += " (" + refusal + ")";
  }
  throw OutOfMemoryError(message);
}

std::map<std::string, int64_t> CachingAllocator::stats() const {
  Impl::Statistics s;
  {
    std::lock_guard guard(impl_->lock);
    s = impl_->statistics;
  }
  std::map<std::string, int64_t> out;
  for (size_t i = 0; i < 3; ++i) {
    const std::string suffix = std::string(".") + kDomains[i];
    Impl::Statistics::Domain d = s.domains[i == 2 ? 0 : i];
    if (i == 2) {
      const Impl::Statistics::Domain& o = s.domains[1];
      d.bytes += o.bytes;
      d.requested += o.requested;
      d.count += o.count;
      d.total_bytes += o.total_bytes;
      d.total_requested += o.total_requested;
      d.total_count += o.total_count;
      d.idle_bytes += o.idle_bytes;
      d.idle_count += o.idle_count;
      d.total_idle_bytes += o.total_idle_bytes;
      d.total_idle_count += o.total_idle_count;
      d.pending_bytes += o.pending_bytes;
      d.pending_count += o.pending_count;
    }
    const Impl::Statistics::Peaks& p = s.peaks[i];
    put(out, "allocated_bytes" + suffix, d.bytes, p.bytes, d.total_bytes);
    put(out, "requested_bytes" + suffix, d.requested, p.requested, d.total_requested);
    put(out, "allocation" + suffix, d.count, p.count, d.total_count);
    put(out, "active_bytes" + suffix, d.bytes + d.pending_bytes, std::max(p.active_bytes, p.bytes), d.total_bytes);
    put(out, "active" + suffix, d.count + d.pending_count, std::max(p.active_count, p.count), d.total_count);
    const auto counter = [&](const char* name, const Impl::Counter& c) {
      put(out, name + suffix, c.current, c.peak, c.total);
    };
    counter("reserved_bytes", s.reserved[i]);
    counter("segment", s.segments[i]);
    put(out, "inactive_split_bytes" + suffix, d.idle_bytes, p.idle_bytes, d.total_idle_bytes);
    put(out, "inactive_split" + suffix, d.idle_count, p.idle_count, d.total_idle_count);
  }
  // Blocks of every size may be split, so none is oversize.
  put(out, "oversize_allocations", 0, 0, 0);
  put(out, "oversize_segments", 0, 0, 0);
  out["max_split_size"] = -1;
  out["num_alloc_retries"] = s.retries;
  out["num_ooms"] = s.out_of_memory;
  out["num_device_alloc"] = s.source_allocations;
  out["num_device_free"] = s.source_frees;
  out["num_sync_all_streams"] = s.stream_waits;
  return out;
}

AllocatorFigures CachingAllocator::figures() const {
  std::lock_guard guard(impl_->lock);
  const Impl::Statistics& s = impl_->statistics;
  return {.allocated = s.domains[0].bytes + s.domains[1].bytes,
          .max_allocated = s.peaks[2].bytes,
          .reserved = s.reserved[2].current,
          .max_reserved = s.reserved[2].peak};
}

int64_t CachingAllocator::source_calls() const {
  std::lock_guard guard(impl_->lock);
  return impl_->statistics.source_calls;
}

void CachingAllocator::reset_peaks(Peak which) {
  std::lock_guard guard(impl_->lock);
  Impl::Statistics& s = impl_->statistics;
  switch (which) {
    case Peak::Both:
      s.peaks = {};
      for (const bool small : {false, true}) {
        impl_->raise_peaks(small);
        impl_->raise_idle_peaks(small);
      }
      for (auto* counters : {&s.reserved, &s.segments}) {
        for (Impl::Counter& c : *counters) c.peak = c.current;
      }
      break;
    case Peak::Allocated:
      for (size_t i = 0; i < 2; ++i) s.peaks[i].bytes = s.domains[i].bytes;
      s.peaks[2].bytes = s.domains[0].bytes + s.domains[1].bytes;
      break;
    case Peak::Reserved:
      for (Impl::Counter& c : s.reserved) c.peak = c.current;
      break;
  }
}

}  // namespace anyaccel
