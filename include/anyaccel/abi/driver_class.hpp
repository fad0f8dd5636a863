// Classes for writing an accelerator in C++: derive from them, and one line emits the C table of driver.h.
//
// Header-only; includes the C headers of this folder and the standard library, nothing else of anyaccel.
//
//     class MyStream : public anyaccel::abi::Stream { ... };
//     class MyDevice : public anyaccel::abi::Device { ... };
//     class MyDriver : public anyaccel::abi::Driver {
//      public:
//       static constexpr anyaccel::abi::DriverFacts facts{.name = "mine", .vendor = "Me", .version = "1.0"};
//       static void probe(aa_probe& probe);                                              // see aa_driver::probe
//       static std::unique_ptr<Driver> initialize(const aa_initialize_params& params);   // see aa_driver::initialize
//       ...
//     };
//     ANYACCEL_DEFINE_DRIVER_QUERY(MyDriver)                                // in one source file of the plugin
//
// A function fails by throwing: Failure carries the code and the vendor's own number, std::bad_alloc becomes
// AA_RESOURCE_EXHAUSTED, any other exception AA_INTERNAL. Every entry of the table catches everything, so nothing
// crosses the boundary. Functions that are not overridden throw AA_UNIMPLEMENTED, which is what a clear capability flag
// promises, unless this header gives a default. driver.h and the extension headers define what each function does; the
// names are the same.
//
// Objects are passed to the table as std::unique_ptr, and the table deletes them; close() runs before the destructor
// and is the place for a last call that may fail. A call costs one virtual call more than with a hand-written table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "anyaccel/abi/ceilings.h"
#include "anyaccel/abi/collectives.h"
#include "anyaccel/abi/compiler.h"
#include "anyaccel/abi/driver.h"
#include "anyaccel/abi/fault.h"
#include "anyaccel/abi/files.h"
#include "anyaccel/abi/graph.h"
#include "anyaccel/abi/host_memory.h"
#include "anyaccel/abi/lazy.h"
#include "anyaccel/abi/memory_kinds.h"
#include "anyaccel/abi/ops.h"
#include "anyaccel/abi/peer.h"
#include "anyaccel/abi/profiler.h"
#include "anyaccel/abi/sized.hpp"

namespace anyaccel::abi {

// An error with a code from base.h and, if there is one, the vendor's own error number.
class Failure : public std::exception {
 public:
  Failure(aa_code code, std::string message, int64_t native_code = 0)
      : code_(code), native_code_(native_code), message_(std::make_shared<const std::string>(std::move(message))) {}

  const char* what() const noexcept override { return message_->c_str(); }
  aa_code code() const noexcept { return code_; }
  int64_t native_code() const noexcept { return native_code_; }

 private:
  aa_code code_;
  int64_t native_code_;
  std::shared_ptr<const std::string> message_;  // shared, so that copying the exception cannot throw
};

[[noreturn]] inline void unimplemented(const char* function) {
  throw Failure(AA_UNIMPLEMENTED, std::string(function) + " is not implemented by this driver");
}

// The constant members of the table; see aa_driver. All must be literals, and the objects pointed to must live until
// the process ends. `sanitizer` is filled in when left null.
struct DriverFacts {
  const char* name = nullptr;
  const char* vendor = "";
  const char* version = "";
  const char* sanitizer = nullptr;
  const char* communication_backend = "";
  const char* visible_devices_env = "";
  const char* export_env_prefixes = "";
  const aa_option_info* options = nullptr;
  uint32_t option_count = 0;
  int32_t priority = 100;  // above those that are built into anyaccel
  uint32_t flags = 0;
  const aa_op_builder* const* op_builders = nullptr;
  const aa_toolchain* toolchain = nullptr;
};

// The extension tables that a driver offers; Driver::extensions returns them, joined with |.
enum Extension : uint32_t {
  no_extensions = 0,
  graph_extension = 1u << 0,
  host_memory_extension = 1u << 1,
  ops_extension = 1u << 2,
  compiler_extension = 1u << 3,
  profiler_extension = 1u << 4,
  ceilings_extension = 1u << 5,
  collectives_extension = 1u << 6,
  lazy_extension = 1u << 7,
  fault_extension = 1u << 8,
  peer_extension = 1u << 9,
  memory_kinds_extension = 1u << 10,
  files_extension = 1u << 11,
};

class Stream;

// A loaded kernel. Its Module owns it and destroys it.
class Kernel {
 public:
  Kernel() = default;
  virtual ~Kernel() = default;
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
};

// Loaded device code.
class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  virtual void close() {}
  // Returns the kernel called `name` and fills `info` (zeros, with argument_count -1, before the call). Returns null if
  // there is none, which the table reports as AA_NOT_FOUND.
  virtual Kernel* kernel_get(const char* name, aa_kernel_info& info) = 0;
};

// A recorded graph (extension "graph").
class Graph {
 public:
  Graph() = default;
  virtual ~Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  virtual void close() {}
  virtual void launch(Stream& stream) = 0;
  virtual int64_t node_count() const = 0;
};

// A weight in the driver's own layout (extension "ops").
class Packed {
 public:
  Packed() = default;
  virtual ~Packed() = default;
  Packed(const Packed&) = delete;
  Packed& operator=(const Packed&) = delete;

  virtual void close() {}
};

// A point in a stream.
class Event {
 public:
  Event() = default;
  virtual ~Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  virtual void close() {}
  virtual void record(Stream& stream) = 0;
  virtual bool query() = 0;
  virtual void synchronize() = 0;
  // Returns the milliseconds from this event to `end`.
  virtual double elapsed(Event& /*end*/) { unimplemented("event_elapsed"); }
};

// An in-order queue of work. The destructor, or close(), waits for the work.
class Stream {
 public:
  Stream() = default;
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  virtual void close() {}
  // The table has checked that the size is not 0 and the direction exists.
  virtual void copy(const aa_copy& what) = 0;
  // The table has checked that the pattern has 1, 2, 4 or 8 bytes and that the size is a positive multiple of it.
  virtual void fill(const aa_fill& /*what*/) { unimplemented("fill_async"); }
  virtual bool query() { unimplemented("stream_query"); }
  virtual void synchronize() = 0;
  virtual void wait_event(Event& /*event*/) { unimplemented("stream_wait_event"); }
  virtual void* native() { return nullptr; }
  virtual void host_call(void (* /*function*/)(void* user), void* /*user*/) { unimplemented("stream_host_call"); }
  virtual void launch(Kernel& /*kernel*/, const aa_launch& /*launch*/) { unimplemented("kernel_launch"); }

  // -- extension "ops" --
  // Returns false, with nothing done, where supports_op() is false.
  virtual bool enqueue_op(const aa_op_call& /*call*/) { unimplemented("ops enqueue"); }
  virtual std::unique_ptr<Packed> pack(const aa_pack& /*what*/, const aa_tensor& /*weight*/,
                                       const aa_allocation& /*into*/) {
    unimplemented("ops pack");
  }
  virtual void unpack(Packed& /*packed*/, const aa_tensor& /*out_weight*/) { unimplemented("ops unpack"); }

  // -- extension "lazy" --
  virtual void flush() { unimplemented("flush"); }
  virtual void step_begin(const aa_step& /*step*/) { unimplemented("step_begin"); }
  virtual void step_end() { unimplemented("step_end"); }

  // -- extension "peer" --
  // The table has checked that the size is not 0 and the devices differ.
  virtual void copy_peer(const aa_peer_copy& /*what*/) { unimplemented("peer copy_async"); }

  // -- extension "fault" --
  virtual void inject_fault(int32_t /*code*/, int64_t /*native_code*/) { unimplemented("inject"); }
  virtual int64_t executed_items() { unimplemented("executed"); }

  // -- extension "graph" --
  virtual void capture_begin() { unimplemented("capture_begin"); }
  // Never null; the graph of an abandoned capture is deleted at once.
  virtual std::unique_ptr<Graph> capture_end() { unimplemented("capture_end"); }
  virtual bool capturing() { return false; }
};

// The result of a compilation (extension "compiler"). If `succeeded` is false, the image is ignored and `log` says why.
struct CompileOutput {
  bool succeeded = false;
  std::vector<unsigned char> image;
  std::string format;
  std::string log;
};

// One member's handle to a communicator (extension "collectives"). close() is called when its work is complete or it
// was aborted. Counts of 0 reach these functions too: see aa_collectives_table.
class Communicator {
 public:
  Communicator() = default;
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  virtual void close() {}
  virtual void abort() { unimplemented("comm_abort"); }
  // Throws if earlier work failed.
  virtual void async_error() {}
  virtual void all_reduce(Stream& /*stream*/, const void* /*send*/, void* /*recv*/, size_t /*count*/, int32_t /*dtype*/,
                          int32_t /*op*/) {
    unimplemented("all_reduce");
  }
  virtual void reduce(Stream& /*stream*/, const void* /*send*/, void* /*recv*/, size_t /*count*/, int32_t /*dtype*/,
                      int32_t /*op*/, int32_t /*root*/) {
    unimplemented("reduce");
  }
  virtual void broadcast(Stream& /*stream*/, const void* /*send*/, void* /*recv*/, size_t /*count*/, int32_t /*dtype*/,
                         int32_t /*root*/) {
    unimplemented("broadcast");
  }
  virtual void all_gather(Stream& /*stream*/, const void* /*send*/, void* /*recv*/, size_t /*count*/,
                          int32_t /*dtype*/) {
    unimplemented("all_gather");
  }
  virtual void reduce_scatter(Stream& /*stream*/, const void* /*send*/, void* /*recv*/, size_t /*count*/,
                              int32_t /*dtype*/, int32_t /*op*/) {
    unimplemented("reduce_scatter");
  }
  virtual void send(Stream& /*stream*/, const void* /*data*/, size_t /*count*/, int32_t /*dtype*/, int32_t /*peer*/) {
    unimplemented("send");
  }
  virtual void recv(Stream& /*stream*/, void* /*data*/, size_t /*count*/, int32_t /*dtype*/, int32_t /*peer*/) {
    unimplemented("recv");
  }
};

// A file that is prepared for transfers with a device (extension "files").
class DirectFile {
 public:
  DirectFile() = default;
  virtual ~DirectFile() = default;
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;

  virtual void close() {}
  // Return the number of bytes that were transferred. The table has checked that the size is not 0.
  virtual size_t read(const aa_file_transfer& /*what*/) { unimplemented("files read"); }
  virtual size_t write(const aa_file_transfer& /*what*/) { unimplemented("files write"); }
};

// One opened device.
class Device {
 public:
  Device() = default;
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  virtual void close() {}
  virtual void synchronize() = 0;
  // In bytes.
  virtual void memory_info(int64_t& /*free*/, int64_t& /*total*/) { unimplemented("device_memory_info"); }

  // `what.kind` is an aa_memory_kind or a number that this header does not know yet: call unimplemented() for such a
  // number. In `out` kind and size are set; set the pointer, and the driver's object if it has one.
  virtual void mem_alloc(const aa_alloc& what, aa_allocation& out) = 0;
  virtual void mem_free(const aa_allocation& what) = 0;
  // Null: the table returns AA_NOT_FOUND.
  virtual void* native(const char* /*what*/) { return nullptr; }

  virtual std::unique_ptr<Stream> stream_create(const aa_stream_params& params) = 0;
  virtual std::unique_ptr<Event> event_create(const aa_event_params& /*params*/) { unimplemented("event_create"); }
  virtual std::unique_ptr<Module> module_load(const aa_module_params& /*params*/) { unimplemented("module_load"); }

  // -- extension "host_memory" --
  // `out` is zeroed before the call.
  virtual void register_range(const aa_register& /*what*/, aa_registration& /*out*/) {
    unimplemented("register_range");
  }
  virtual void unregister_range(void* /*pointer*/) { unimplemented("unregister_range"); }

  // -- extension "ops" --
  virtual bool supports_op(const aa_op_call& /*call*/) { unimplemented("ops supports"); }
  virtual size_t packed_size(const aa_pack& /*what*/) { return 0; }

  // -- extension "compiler" --
  // Returns a string that lives as long as the device.
  virtual const char* compile_languages() { unimplemented("compiler languages"); }
  virtual std::string compile_fingerprint() { unimplemented("compiler fingerprint"); }
  virtual CompileOutput compile(const aa_compile& /*what*/) { unimplemented("compile"); }
  // `tuning` is zeroed before the call, with struct_size set.
  virtual void kernel_tuning(aa_kernel_tuning& /*tuning*/) { unimplemented("compiler kernel_tuning"); }
  // The string lives as long as the device.
  virtual const char* dialect(const char* /*language*/) { return ""; }

  // -- extension "memory_kinds" --
  virtual int32_t memory_kind_count() { unimplemented("memory_kinds count"); }
  // `index` is in range; before the call `info` is zeroed, with numa_node -1 and struct_size set.
  virtual void memory_kind_info(int32_t /*index*/, aa_memory_kind_info& /*info*/) {
    unimplemented("memory_kinds info");
  }
  // In bytes; `kind` may be any number.
  virtual void memory_kind_usage(int32_t /*kind*/, int64_t& /*free*/, int64_t& /*total*/) {
    unimplemented("memory_kinds usage");
  }

  // -- extension "peer" --
  // Returns whether copies from memory of `source` into memory of this device can be made; `source` is another device.
  virtual bool can_copy_from(Device& /*source*/) { unimplemented("peer can_copy"); }

  // -- extension "files" --
  // `info` is zeroed before the call, with struct_size set.
  virtual void files_info(aa_files_info& /*info*/) { unimplemented("files info"); }
  virtual void file_memory_register(const aa_file_memory& /*what*/) { unimplemented("files memory_register"); }
  virtual void file_memory_unregister(void* /*pointer*/) { unimplemented("files memory_unregister"); }
  virtual std::unique_ptr<DirectFile> file_open(int /*descriptor*/) { unimplemented("files file_open"); }

  // -- extension "ceilings" --
  // `kind` is an aa_ceiling or a number that this header does not know yet: call unimplemented() for such a number.
  virtual double measure_ceiling(int32_t /*kind*/, size_t /*bytes*/, double /*seconds*/) {
    unimplemented("ceilings measure");
  }

  // -- extension "collectives" --
  virtual std::unique_ptr<Communicator> comm_create(const void* /*id*/, int32_t /*rank*/, int32_t /*size*/) {
    unimplemented("comm_create");
  }
};

// The initialized driver. A class that is emitted as a table must also have the static members `facts`, `probe` and
// `initialize` shown at the top of this file.
class Driver {
 public:
  Driver() = default;
  virtual ~Driver() = default;
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // shutdown().
  virtual void close() {}
  // Returns the extension tables that query_extension finds; constant for the lifetime of the driver.
  virtual uint32_t extensions() const { return no_extensions; }

  virtual int32_t device_count() = 0;
  // Before the call `props` is zeroed, with numa_node -1 and struct_size set.
  virtual void device_props(int32_t index, aa_device_props& props) = 0;
  virtual std::unique_ptr<Device> device_open(const aa_device_open_params& params) = 0;
  // Returns false for memory that this driver does not know. `info` is zeroed before the call, with struct_size set.
  virtual bool mem_query(const void* /*pointer*/, aa_memory_info& /*info*/) { unimplemented("mem_query"); }

  // -- extension "ops" --
  // Returns the driver's number for an op, or -1.
  virtual int32_t find_op(const char* /*name*/) { unimplemented("ops find"); }

  // -- extension "profiler" --
  virtual void range_push(const char* /*message*/, const char* /*domain*/, const char* /*category*/) {
    unimplemented("range_push");
  }
  virtual void range_pop(const char* /*domain*/) { unimplemented("range_pop"); }
  virtual void mark(const char* /*message*/, const char* /*domain*/) { unimplemented("mark"); }

  // -- extension "collectives" --
  // Strings that live as long as the driver.
  virtual void collectives_library(const char*& /*name*/, const char*& /*version*/) { unimplemented("library"); }
  virtual size_t collectives_id_size() { unimplemented("id_size"); }
  virtual void collectives_id_create(void* /*id*/) { unimplemented("id_create"); }
  virtual void collectives_group_begin() { unimplemented("group_begin"); }
  virtual void collectives_group_end() { unimplemented("group_end"); }
};

// Returns the table of a driver class, or null when host and driver have no version in common, as a query function
// must.
template <class DriverType>
const aa_driver* driver_query(uint32_t host_abi_min, uint32_t host_abi_max, const aa_host* host) noexcept;

// Copies a string into a fixed array of aa_probe or aa_device_props; truncated if too long, always terminated.
template <size_t Size>
void copy_text(char (&destination)[Size], std::string_view text) noexcept {
  destination[text.copy(destination, Size - 1)] = '\0';
}

// Writes one line to the host's log. Does nothing before the query function was called. In a program with several
// built-in driver classes, the line may carry the name of another of them.
inline void log(aa_log_level level, const std::string& message) noexcept;

// Device memory for the work that the current function of a Stream enqueues, from the host's caching allocator. Destroy
// it after the last item that uses it has been enqueued, while holding none of the driver's locks. For use only inside
// functions that driver.h marks S.
class Scratch {
 public:
  Scratch(aa_host_stream* stream, size_t size);
  // Idle memory (AA_SCRATCH_IDLE), for a driver that holds work back: destroy it when the work is complete.
  Scratch(aa_host_device* device, size_t size);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* pointer() const noexcept { return scratch_.pointer; }

 private:
  void acquire(size_t size);

  aa_scratch scratch_{};
};

// Convert between a handle that came through the table of a driver class and the C++ object behind it. Both have the
// same address; only a base class pointer may be converted, which these signatures ensure.
inline Device& object(aa_device* handle) noexcept { return *reinterpret_cast<Device*>(handle); }
inline Stream& object(aa_stream* handle) noexcept { return *reinterpret_cast<Stream*>(handle); }
inline Event& object(aa_event* handle) noexcept { return *reinterpret_cast<Event*>(handle); }
inline Module& object(aa_module* handle) noexcept { return *reinterpret_cast<Module*>(handle); }
inline Kernel& object(aa_kernel* handle) noexcept { return *reinterpret_cast<Kernel*>(handle); }
inline Graph& object(aa_graph* handle) noexcept { return *reinterpret_cast<Graph*>(handle); }
inline Packed& object(aa_packed* handle) noexcept { return *reinterpret_cast<Packed*>(handle); }
inline Communicator& object(aa_comm* handle) noexcept { return *reinterpret_cast<Communicator*>(handle); }
inline DirectFile& object(aa_file* handle) noexcept { return *reinterpret_cast<DirectFile*>(handle); }
inline Driver& object(aa_instance* handle) noexcept { return *reinterpret_cast<Driver*>(handle); }
inline aa_device* handle(Device* object) noexcept { return reinterpret_cast<aa_device*>(object); }
inline aa_stream* handle(Stream* object) noexcept { return reinterpret_cast<aa_stream*>(object); }
inline aa_event* handle(Event* object) noexcept { return reinterpret_cast<aa_event*>(object); }
inline aa_module* handle(Module* object) noexcept { return reinterpret_cast<aa_module*>(object); }
inline aa_kernel* handle(Kernel* object) noexcept { return reinterpret_cast<aa_kernel*>(object); }
inline aa_graph* handle(Graph* object) noexcept { return reinterpret_cast<aa_graph*>(object); }
inline aa_packed* handle(Packed* object) noexcept { return reinterpret_cast<aa_packed*>(object); }
inline aa_comm* handle(Communicator* object) noexcept { return reinterpret_cast<aa_comm*>(object); }
inline aa_file* handle(DirectFile* object) noexcept { return reinterpret_cast<aa_file*>(object); }
inline aa_instance* handle(Driver* object) noexcept { return reinterpret_cast<aa_instance*>(object); }

}  // namespace anyaccel::abi

// Defines the symbol that a plugin exports. Use it in one source file, outside any namespace.
#define ANYACCEL_DEFINE_DRIVER_QUERY(DriverType)                                            \
  extern "C" __attribute__((visibility("default"))) const aa_driver* anyaccel_driver_query( \
      uint32_t host_abi_min, uint32_t host_abi_max, const aa_host* host) {                  \
    return ::anyaccel::abi::driver_query<DriverType>(host_abi_min, host_abi_max, host);     \
  }                                                                                         \
  static_assert(true, "takes the semicolon")

#include "anyaccel/abi/driver_class_table.hpp"  // IWYU pragma: export
