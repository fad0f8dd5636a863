// Implements the `null` driver: the smallest complete driver, meant to be copied. README.md says how.
//
// It has one device whose memory is host memory. Allocating, copying and filling really work, immediately and on the
// calling thread; streams and events are therefore always complete when queried. It computes nothing: no ops, no
// kernels, no graphs. Comments that begin with "Yours:" say what a real driver does differently.
#include "accelerators/null/null_driver.h"

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>

#include "anyaccel/abi/driver_class.hpp"

namespace anyaccel::null {
namespace {

constexpr int32_t device_total = 1;
constexpr size_t alignment = 64;

int64_t pages_in_bytes(int what) {
  const int64_t pages = sysconf(what);
  return pages < 0 ? 0 : pages * sysconf(_SC_PAGESIZE);
}

// Yours: the vendor's event. Synchronous work is complete before it can be recorded.
class Event final : public abi::Event {
 public:
  void record(abi::Stream&) override {}
  bool query() override { return true; }
  void synchronize() override {}
  // elapsed: not overridden, because AA_CAP_EVENT_TIMING is not promised.
};

// Yours: holds the vendor's queue, binds the device in every function, and enqueues. An asynchronous error must stay
// with the stream: every later query and synchronize throws it.
class Stream final : public abi::Stream {
 public:
  void copy(const aa_copy& what) override { std::memcpy(what.destination, what.source, what.size); }

  void fill(const aa_fill& what) override {
    auto* bytes = static_cast<unsigned char*>(what.destination);
    for (size_t i = 0; i < what.size; i += what.pattern_size) std::memcpy(bytes + i, what.pattern, what.pattern_size);
  }

  bool query() override { return true; }
  void synchronize() override {}
  void wait_event(abi::Event&) override {}
  void host_call(void (*function)(void* user), void* user) override { function(user); }
};

// Keeps data for mem_query. Yours: most vendors' runtimes can identify a pointer themselves; then no data is needed.
class Allocations {
 public:
  void add(void* base, size_t size) {
    std::lock_guard lock(mutex_);
    sizes_[reinterpret_cast<uintptr_t>(base)] = size;
  }
  // Returns the size, or 0 if the pointer is not an allocation.
  size_t remove(void* base) {
    std::lock_guard lock(mutex_);
    const auto found = sizes_.find(reinterpret_cast<uintptr_t>(base));
    if (found == sizes_.end()) return 0;
    const size_t size = found->second;
    sizes_.erase(found);
    return size;
  }
  bool find(const void* pointer, void*& base, size_t& size) {
    std::lock_guard lock(mutex_);
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    auto next = sizes_.upper_bound(address);
    if (next == sizes_.begin()) return false;
    --next;
    if (address - next->first >= next->second) return false;
    base = reinterpret_cast<void*>(next->first);
    size = next->second;
    return true;
  }

 private:
  std::mutex mutex_;
  std::map<uintptr_t, size_t> sizes_;
};

// Yours: holds the vendor's context.
class Device final : public abi::Device {
 public:
  explicit Device(Allocations& allocations) : allocations_(allocations) {}

  void synchronize() override {}

  void memory_info(int64_t& free, int64_t& total) override {
    free = pages_in_bytes(_SC_AVPHYS_PAGES);
    total = pages_in_bytes(_SC_PHYS_PAGES);
  }

  void mem_alloc(const aa_alloc& what, aa_allocation& out) override {
    const size_t size = what.size;
    // Yours: pinned and managed memory too, and then the flags that promise them.
    if (what.kind != AA_MEMORY_DEVICE) abi::unimplemented("mem_alloc of this kind of memory");
    // Checked first, because an operating system that overcommits grants every request.
    if (size > static_cast<uint64_t>(pages_in_bytes(_SC_PHYS_PAGES))) {
      throw abi::Failure(AA_RESOURCE_EXHAUSTED, std::to_string(size) + " bytes were asked for; the device has " +
                                                    std::to_string(pages_in_bytes(_SC_PHYS_PAGES)));
    }
    void* pointer = ::operator new(size, std::align_val_t(alignment));
    try {
      allocations_.add(pointer, size);
    } catch (...) {
      ::operator delete(pointer, std::align_val_t(alignment));
      throw;
    }
    out.pointer = pointer;
  }

  void mem_free(const aa_allocation& what) override {
    if (allocations_.remove(what.pointer) == 0) throw abi::Failure(AA_INVALID_ARGUMENT, "mem_free: no such allocation");
    ::operator delete(what.pointer, std::align_val_t(alignment));
  }

  std::unique_ptr<abi::Stream> stream_create(const aa_stream_params&) override { return std::make_unique<Stream>(); }
  std::unique_ptr<abi::Event> event_create(const aa_event_params&) override { return std::make_unique<Event>(); }

 private:
  Allocations& allocations_;
};

class Driver final : public abi::Driver {
 public:
  static constexpr abi::DriverFacts facts{.name = "null", .vendor = "anyaccel", .version = "1"};

  // Yours: looks for the device node and the vendor's library, and says what it looked for when one is missing.
  static void probe(aa_probe& probe) {
    probe.state = AA_PROBE_USABLE;
    probe.device_count = device_total;
    abi::copy_text(probe.reason, "the null accelerator is always there and computes nothing");
  }

  // Yours: opens the vendor's library; throws AA_UNAVAILABLE when it cannot.
  static std::unique_ptr<abi::Driver> initialize(const aa_initialize_params&) { return std::make_unique<Driver>(); }

  int32_t device_count() override { return device_total; }

  void device_props(int32_t index, aa_device_props& props) override {
    check_index(index);
    abi::copy_text(props.name, "null device");
    abi::copy_text(props.vendor, facts.vendor);
    abi::copy_text(props.arch, "null");
    props.caps = AA_CAP_SYNCHRONOUS | AA_CAP_HOST_TIMERS | AA_CAP_RESOLVES_DEPENDENCIES | AA_CAP_HOST_COHERENT |
                 AA_CAP_HOST_CALL;
    props.total_memory = pages_in_bytes(_SC_PHYS_PAGES);
    props.alignment = alignment;
    props.compute_units = 1;
    props.queue_depth = INT32_MAX;
    // The device can store every dtype that the header defines, and can compute with none.
    props.dtypes_storable = ((uint64_t{1} << (AA_DTYPE_F8_E5M2 + 1)) - 1) & ~(uint64_t{1} << AA_DTYPE_NONE);
    props.dlpack_device_type = 1;  // kDLCPU
  }

  std::unique_ptr<abi::Device> device_open(const aa_device_open_params& params) override {
    check_index(params.index);
    return std::make_unique<Device>(allocations_);
  }

  bool mem_query(const void* pointer, aa_memory_info& info) override {
    if (!allocations_.find(pointer, info.base, info.size)) return false;
    info.device_address = const_cast<void*>(pointer);
    info.kind = AA_MEMORY_DEVICE;
    info.device_index = 0;
    return true;
  }

  // Yours: extensions() with the tables of graph.h, ops.h, ... that you implement.

 private:
  static void check_index(int32_t index) {
    if (index >= 0 && index < device_total) return;
    throw abi::Failure(AA_OUT_OF_RANGE, "device " + std::to_string(index) + " was asked for; there is only device 0");
  }

  Allocations allocations_;
};

}  // namespace
}  // namespace anyaccel::null

extern "C" const aa_driver* anyaccel_null_driver_query(uint32_t host_abi_min, uint32_t host_abi_max,
                                                       const aa_host* host) {
  return anyaccel::abi::driver_query<anyaccel::null::Driver>(host_abi_min, host_abi_max, host);
}
