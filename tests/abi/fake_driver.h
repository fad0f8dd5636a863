// A driver for tests of what stands above drivers: two devices, every extension, and switches to misbehave with.
//
// Work runs at once, but an event completes only when `events_complete` is set. Memory is the host's though the driver
// does not say so, so that a validating layer must treat it as out of reach.
#pragma once

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "anyaccel/abi/driver_class.hpp"
#include "runtime/driver/driver_table.h"
#include "runtime/driver/host_services.h"

namespace fake {

namespace abi = anyaccel::abi;

inline bool events_complete = true;
// Runs inside mem_alloc; throws what a test wants to see translated.
inline std::function<void()> on_alloc;
inline int destroyed_streams = 0;
// Runs inside stream_synchronize, event_synchronize, the launch of a graph, and all_reduce.
inline std::function<void()> on_call;
inline void call_hook() {
  if (const auto hook = on_call) hook();
}

class Event final : public abi::Event {
 public:
  void record(abi::Stream&) override {}
  bool query() override { return events_complete; }
  void synchronize() override { call_hook(); }
  double elapsed(abi::Event&) override { return 1.5; }
};

class Kernel final : public abi::Kernel {};

class Module final : public abi::Module {
 public:
  abi::Kernel* kernel_get(const char* name, aa_kernel_info& info) override {
    info.max_threads_per_block = 64;
    return std::strcmp(name, "known") == 0 ? &kernel_ : nullptr;
  }

 private:
  Kernel kernel_;
};

class Graph final : public abi::Graph {
 public:
  explicit Graph(std::vector<std::function<void()>> work) : work_(std::move(work)) {}
  void launch(abi::Stream&) override {
    call_hook();
    for (const auto& item : work_) item();
  }
  int64_t node_count() const override { return static_cast<int64_t>(work_.size()); }

 private:
  std::vector<std::function<void()>> work_;
};

class Stream final : public abi::Stream {
 public:
  ~Stream() override { ++destroyed_streams; }
  void copy(const aa_copy& what) override {
    run([=] { std::memcpy(what.destination, what.source, what.size); });
  }
  void fill(const aa_fill& what) override {
    std::vector<unsigned char> bytes(what.size);
    for (size_t i = 0; i < what.size; ++i) bytes[i] = what.pattern[i % what.pattern_size];
    run([destination = what.destination, bytes] { std::memcpy(destination, bytes.data(), bytes.size()); });
  }
  bool query() override { return true; }
  void synchronize() override {
    if (capturing_) throw abi::Failure(AA_FAILED_PRECONDITION, "the stream is capturing");
    call_hook();
  }
  void wait_event(abi::Event&) override {}
  void host_call(void (*function)(void*), void* user) override {
    run([=] { function(user); });
  }
  void launch(abi::Kernel&, const aa_launch&) override {}
  bool enqueue_op(const aa_op_call&) override { return true; }
  void capture_begin() override {
    if (capturing_) throw abi::Failure(AA_FAILED_PRECONDITION, "the stream is capturing already");
    capturing_ = true;
  }
  std::unique_ptr<abi::Graph> capture_end() override {
    if (!capturing_) throw abi::Failure(AA_FAILED_PRECONDITION, "the stream is not capturing");
    capturing_ = false;
    return std::make_unique<Graph>(std::exchange(work_, {}));
  }
  bool capturing() override { return capturing_; }
  void flush() override {}
  void step_begin(const aa_step&) override {}
  void step_end() override {}

 private:
  void run(std::function<void()> work) {
    if (capturing_) {
      work_.push_back(std::move(work));
    } else {
      work();
    }
  }
  bool capturing_ = false;
  std::vector<std::function<void()>> work_;
};

// Alone in its group, so that a sum is what was sent.
class Communicator final : public abi::Communicator {
 public:
  void all_reduce(abi::Stream&, const void*, void*, size_t, int32_t, int32_t) override { call_hook(); }
};

class Device final : public abi::Device {
 public:
  void synchronize() override {}
  void memory_info(int64_t& free, int64_t& total) override { free = total = 1 << 30; }
  void mem_alloc(const aa_alloc& what, aa_allocation& out) override {
    if (on_alloc) on_alloc();
    if (what.kind > AA_MEMORY_PINNED) abi::unimplemented("mem_alloc");
    out.pointer = std::aligned_alloc(64, (what.size + 63) / 64 * 64);
  }
  void mem_free(const aa_allocation& what) override { std::free(what.pointer); }
  std::unique_ptr<abi::Stream> stream_create(const aa_stream_params&) override { return std::make_unique<Stream>(); }
  std::unique_ptr<abi::Event> event_create(const aa_event_params&) override { return std::make_unique<Event>(); }
  std::unique_ptr<abi::Module> module_load(const aa_module_params&) override { return std::make_unique<Module>(); }
  void register_range(const aa_register& what, aa_registration& out) override { out.device_address = what.pointer; }
  void unregister_range(void*) override {}
  bool supports_op(const aa_op_call&) override { return true; }
  const char* compile_languages() override { return "c"; }
  std::string compile_fingerprint() override { return "fake 1"; }
  abi::CompileOutput compile(const aa_compile& what) override {
    abi::CompileOutput output;
    output.succeeded = std::string_view(what.source, what.source_size) != "error";
    output.image = {1, 2, 3};
    output.format = "fake";
    output.log = output.succeeded ? "" : "line 1: wrong";
    return output;
  }
  std::unique_ptr<abi::Communicator> comm_create(const void*, int32_t, int32_t) override {
    return std::make_unique<Communicator>();
  }
};

class Driver : public abi::Driver {
 public:
  static constexpr abi::DriverFacts facts{.name = "fake", .vendor = "tests", .version = "1"};
  static void probe(aa_probe& probe) {
    probe.state = AA_PROBE_USABLE;
    probe.device_count = 2;
    abi::copy_text(probe.reason, "always");
  }
  static std::unique_ptr<abi::Driver> initialize(const aa_initialize_params&) { return std::make_unique<Driver>(); }
  uint32_t extensions() const override {
    return abi::graph_extension | abi::host_memory_extension | abi::ops_extension | abi::compiler_extension |
           abi::profiler_extension;
  }
  int32_t device_count() override { return 2; }
  void device_props(int32_t index, aa_device_props& props) override {
    if (index < 0 || index > 1) throw abi::Failure(AA_OUT_OF_RANGE, "no such device", 7);
    abi::copy_text(props.name, "fake device");
    props.caps = AA_CAP_EVENT_TIMING | AA_CAP_PINNED_HOST | AA_CAP_HOST_CALL | AA_CAP_KERNELS;
    props.total_memory = 1 << 30;
    props.alignment = 64;
    props.queue_depth = 1000;
    props.dtypes_storable = 1u << AA_DTYPE_F32;
  }
  std::unique_ptr<abi::Device> device_open(const aa_device_open_params&) override { return std::make_unique<Device>(); }
  int32_t find_op(const char* name) override { return std::strcmp(name, "add") == 0 ? 5 : -1; }
  void range_push(const char*, const char*, const char*) override {}
  void range_pop(const char*) override {}
  void mark(const char*, const char*) override {}
};

// The driver's own table, as a plugin would give it.
inline const aa_driver* raw_table() {
  return abi::driver_query<Driver>(AA_ABI_VERSION(2, 0), AA_ABI_CURRENT, anyaccel::host_services());
}

// The same with steps and communicators.
class GroupDriver final : public Driver {
 public:
  static std::unique_ptr<abi::Driver> initialize(const aa_initialize_params&) {
    return std::make_unique<GroupDriver>();
  }
  uint32_t extensions() const override {
    return Driver::extensions() | abi::lazy_extension | abi::collectives_extension;
  }
  size_t collectives_id_size() override { return 8; }
  void collectives_id_create(void*) override {}
};
inline const aa_driver* raw_group_table() {
  return abi::driver_query<GroupDriver>(AA_ABI_VERSION(2, 0), AA_ABI_CURRENT, anyaccel::host_services());
}

}  // namespace fake
