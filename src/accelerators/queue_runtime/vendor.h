// The description of a vendor's runtime from which this folder makes a complete driver.
//
// This folder serves runtimes with a current device for each thread, in-order queues of work (streams), events, and
// copies with a direction argument. They differ in names, numbers and a few rules, which are a Vendor and a list of
// DeviceFacts. The rest is here, once: the current device, order, errors that stay with their stream, pageable memory,
// fills of any pattern, queries about pointers, recorded graphs, and children made by fork().
//
// To give another such accelerator its driver: write a Vendor, derive from Driver (device.h), add probe and initialize. The
// npu accelerator is the example.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "anyaccel/abi/driver_class.hpp"

namespace anyaccel::queue_runtime {

class OpSet;

// The result of one call of the vendor.
struct Answer {
  int result = 0;         // the vendor's number; 0: success
  const char* call = "";  // the vendor's function, for the error message
};

using StreamHandle = void*;
using EventHandle = void*;
using CapturedHandle = void*;

// The properties of a device that are known without opening it.
struct DeviceFacts {
  int ordinal = 0;  // the vendor's number
  std::string name;
  std::string arch;
  std::string pci_bus_id;          // "0000:18:00.0", or empty
  size_t total_memory = 0;         // bytes
  int compute_units = 0;           // 0: unknown
  int alignment = 1;               // bytes: the alignment that the vendor guarantees for every allocation
  uint64_t dtypes_computable = 0;  // as in aa_device_props
  uint64_t dtypes_matrix = 0;
};

// The vendor's functions. Those that name a stream, an event or memory are called with the device current on the thread. All
// may be called from several threads at once, though no two enqueue on the same stream.
class Vendor {
 public:
  Vendor() = default;
  virtual ~Vendor() = default;
  Vendor(const Vendor&) = delete;
  Vendor& operator=(const Vendor&) = delete;

  // -- names and errors --
  virtual const char* accelerator() const = 0;  // "npu"
  virtual const char* vendor_name() const = 0;  // "Huawei"
  // "ACL_ERROR_RT_CONTEXT_NULL (107002): ...", with the vendor's message for the latest error of this thread.
  virtual std::string text(int result) = 0;
  // AA_DEVICE_LOST: the device and the contents of its memory are lost.
  virtual aa_code code(int result) const = 0;
  // Returns whether a call was rejected, without effect, because another device is current on this thread.
  virtual bool is_wrong_device(int result) const = 0;

  // -- devices --
  virtual Answer set_device(int ordinal) = 0;
  // The current one of this thread.
  virtual Answer get_device(int& ordinal) = 0;
  // Called after the last use of a device whose use set_device() began.
  virtual Answer release_device(int ordinal) = 0;
  // Bytes, of the current device, for all processes.
  virtual Answer memory_info(size_t& free, size_t& total) = 0;

  // -- memory --
  virtual Answer allocate(void*& pointer, size_t size) = 0;
  virtual Answer free(void* pointer) = 0;
  virtual Answer allocate_pinned(void*& pointer, size_t size) = 0;
  virtual Answer free_pinned(void* pointer) = 0;
  // `direction` is an aa_copy_direction. A host side is pinned, unless copies_pageable(): then the caller may also wait for the
  // stream before and after.
  virtual Answer copy_async(void* to, const void* from, size_t size, int32_t direction, StreamHandle stream) = 0;
  virtual bool copies_pageable() const { return true; }
  // Sets every byte.
  virtual Answer fill_async(void* to, unsigned char value, size_t size, StreamHandle stream) = 0;

  // -- streams --
  // `priority` as in aa_stream_params; clamped to what the device has.
  virtual Answer stream_create(StreamHandle& stream, int32_t priority) = 0;
  virtual Answer stream_destroy(StreamHandle stream) = 0;
  virtual Answer stream_query(StreamHandle stream, bool& done) = 0;
  virtual Answer stream_synchronize(StreamHandle stream) = 0;
  virtual Answer stream_wait(StreamHandle stream, EventHandle event) = 0;
  // Only called if the vendor offers it.
  virtual bool has_host_call() const = 0;
  virtual Answer host_call(StreamHandle stream, void (*function)(void* user), void* user) = 0;

  // -- events --
  // An event is recorded again only when its last record is complete and no stream waits for it.
  virtual Answer event_create(EventHandle& event, bool timed) = 0;
  virtual Answer event_destroy(EventHandle event) = 0;
  virtual Answer event_record(EventHandle event, StreamHandle stream) = 0;
  // Only after it was recorded.
  virtual Answer event_query(EventHandle event, bool& done) = 0;
  virtual Answer event_synchronize(EventHandle event) = 0;
  // The time between two complete events that were created with timing.
  virtual Answer event_elapsed(float& milliseconds, EventHandle start, EventHandle end) = 0;

  // -- graphs --
  // Whether the vendor captures what a stream gets, to run it again as one piece of work. What was captured holds the
  // addresses and sizes, and no contents.
  virtual bool captures() const { return false; }
  // Only called where it is offered. Until the end, nothing but copies of locked memory, fills and ops comes to the stream,
  // from one thread. Any of these may fail: the work is then enqueued piece by piece.
  virtual Answer capture_begin(StreamHandle /*stream*/) { return {-1, "capture_begin"}; }
  virtual Answer capture_end(StreamHandle /*stream*/, CapturedHandle& /*captured*/) { return {-1, "capture_end"}; }
  virtual Answer captured_launch(CapturedHandle /*captured*/, StreamHandle /*stream*/) {
    return {-1, "captured_launch"};
  }
  virtual Answer captured_destroy(CapturedHandle /*captured*/) { return {}; }

  // -- ops --
  // Null: none; they run on the CPU. The same at each call.
  virtual const OpSet* ops() { return nullptr; }
};

}  // namespace anyaccel::queue_runtime
