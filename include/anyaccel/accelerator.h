// The accelerator object: everything a program asks of the hardware it runs on.
//
// get_accelerator() returns the one accelerator of the process, found on the first call. Programs use nothing else, and
// so run unchanged on every accelerator. The names are those of DeepSpeed's accelerator interface; return types are the
// same on every accelerator.
//
// In methods that take `index`, current_device_index (the default) means the calling thread's current device. All
// methods may be called from any thread and by several at once; the current device, the current stream, amp() and a
// capture belong to the calling thread, and guards end on the thread that made them. Threads that have not chosen a
// stream share the default one, where their work is in the order of the calls. A thread that captures a graph must have
// the stream to itself: another thread that enqueues there meanwhile gets an InvalidArgument (AA_FAILED_PRECONDITION),
// and is never recorded. Sizes are in bytes, times in milliseconds. Methods throw the exceptions of anyaccel/error.h.
//
// An accelerator that was get_accelerator()'s is kept until the process ends, also after set_accelerator() and
// reset_accelerator(). So pointers to it, and tensors, streams, events, graphs, generators, op builders, ops, models
// and process groups made on it stay good on every thread, and go on working there: only new calls of get_accelerator()
// give the new one. Streams, events and graphs of one accelerator are refused by another (InvalidArgument). At the end
// of the process nothing is destroyed, so objects with static lifetime may release theirs in their destructors, and use
// them as far as the vendor's runtime has not ended by then; calls that come later throw UnavailableError.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "anyaccel/abi/ops.h"
#include "anyaccel/device.h"
#include "anyaccel/dtype.h"
#include "anyaccel/generator.h"
#include "anyaccel/package_path.h"
#include "anyaccel/stream.h"
#include "anyaccel/tensor.h"

struct aa_collectives_table;  // anyaccel/abi/collectives.h

namespace anyaccel {

namespace abi {
template <class Table>
struct Calls;  // anyaccel/abi/table_calls.hpp
}

class OpBuilder;

// Makes a builder; what get_op_builder returns. Empty for an unknown name.
using OpBuilderFactory = std::function<std::unique_ptr<OpBuilder>()>;

// The recipe by which a user's own op is compiled for this accelerator; build_extension returns it.
struct BuildExtension {
  std::string compiler;                   // the driver's, else CXX, or "c++"
  std::vector<std::string> flags;         // language, position-independent code, and the driver's
  std::vector<std::string> include_dirs;  // the driver's, and where anyaccel's headers lie
  std::vector<std::string> link_flags;    // the driver's
};

// The handles that calls of a driver's own collectives need; collectives returns them.
struct CollectivesAccess {
  const abi::Calls<aa_collectives_table>* table = nullptr;  // null: the accelerator has none
  aa_instance* instance = nullptr;
  aa_device* device = nullptr;
  aa_stream* stream = nullptr;  // the calling thread's current stream of the device
  bool capturing = false;       // which records a graph now
  std::shared_ptr<void> use;    // while it lives, no other thread's capture begins on the stream
};

// The implementation that runs a call of an op: the accelerator's driver, or the host's portable kernels.
struct OpHandle {
  int32_t own = -1;       // the driver's number of the op
  int32_t portable = -1;  // the host's
  explicit operator bool() const noexcept { return own >= 0 || portable >= 0; }
};

// A kind of memory that a device has beside its ordinary one; memory_kinds returns them. Sizes in bytes.
struct MemoryKind {
  std::string name;
  int64_t free = 0;  // now, for any process
  int64_t total = 0;
  int64_t allocated = 0;     // of this accelerator's tensors
  bool host_access = false;  // the host may read and write it through Tensor::data(), after synchronizing
  bool for_ops = false;      // ops take tensors that lie there; else they can be copied and filled only
  int numa_node = -1;        // of the host, where the memory is near one
};

class Accelerator {
 public:
  static constexpr int current_device_index = -1;

  Accelerator() = default;
  virtual ~Accelerator() = default;
  Accelerator(const Accelerator&) = delete;
  Accelerator& operator=(const Accelerator&) = delete;

  // "cuda", "cpu", ...: what DS_ACCELERATOR names.
  virtual const std::string& name() const noexcept = 0;

  // -- execution model --
  // Work is complete when the enqueuing call returns: side streams and waits are of no use.
  virtual bool is_synchronized_device() const = 0;
  // The host clock times better than events.
  virtual bool use_host_timers() const = 0;
  // Streams see each other's work in program order without waits.
  virtual bool resolves_data_dependency() const = 0;
  // The runtime blocks the host while device memory is full.
  virtual bool handles_memory_backpressure() const = 0;

  // -- device --
  // Without an index the kind ("cuda"), with one the device ("cuda:1"); the CPU always says "cpu".
  virtual std::string device_name(int index = current_device_index) const = 0;
  virtual Device device(int index = current_device_index) = 0;
  // Sets the calling thread's current device. InvalidArgument if the index is out of range.
  virtual void set_device(int index) = 0;
  virtual int current_device() const = 0;
  virtual std::string current_device_name() const = 0;
  virtual int device_count() const = 0;
  // Blocks until all work on the device is complete. Throws asynchronous errors.
  virtual void synchronize(int index = current_device_index) = 0;
  virtual bool is_available() const = 0;
  // Static facts of a device, as the driver gives them.
  virtual const aa_device_props& device_properties(int index = current_device_index) const = 0;
  // Major and minor version of the device's architecture where its name carries them ("sm_90": 9 and 0); else 0 and 0.
  virtual std::pair<int, int> compute_capability(int index = current_device_index) const;

  // -- random numbers --
  // The generator of the current device.
  virtual Generator& random() = 0;
  virtual void set_rng_state(const RngState& state, int index = current_device_index) = 0;
  virtual RngState get_rng_state(int index = current_device_index) = 0;
  // The current device, and all devices.
  virtual void manual_seed(uint64_t seed) = 0;
  virtual void manual_seed_all(uint64_t seed) = 0;
  virtual uint64_t initial_seed() = 0;
  virtual Generator& default_generator(int index) = 0;

  // -- streams and events --
  // A new stream on the current device; priority 0 is normal, negative is higher.
  virtual anyaccel::Stream Stream(int priority = 0) = 0;
  // Makes `s` current on the calling thread until the guard is destroyed.
  virtual ScopeGuard stream(const anyaccel::Stream& s) = 0;
  virtual const anyaccel::Stream& current_stream(int index = current_device_index) = 0;
  virtual const anyaccel::Stream& default_stream(int index = current_device_index) = 0;
  // A new event on the current device. Where its driver has none, recording it waits until the stream's work is complete.
  virtual anyaccel::Event Event(bool enable_timing = false) = 0;
  // True while the calling thread's current stream of the device records a graph, or has joined in by waiting for an
  // event of a stream that does. By default never.
  virtual bool is_current_stream_capturing(int index = current_device_index);
  // For accelerators that hold work back to compile or submit it as a whole; others do nothing, which is the default.
  // flush: what the calling thread's current stream of the device holds makes progress without further calls. Needed
  // before a thread waits for something that depends on that work and that this interface does not know, such as
  // another process: process groups do it by themselves, and so does making another stream current. Does not wait.
  virtual void flush(int index = current_device_index);
  // A pass that is likely to be made again with the same calls (a decode step) runs on the current stream until the
  // guard is destroyed; `key` stands for those calls. Meanwhile no other thread may enqueue on the stream, and no other
  // step may begin there.
  virtual ScopeGuard step(uint64_t key);

  // -- memory (bytes) --
  // Gives all cached memory that is not in use back to the device.
  virtual void empty_cache() = 0;
  virtual int64_t memory_allocated(int index = current_device_index) = 0;
  virtual int64_t max_memory_allocated(int index = current_device_index) = 0;
  virtual void reset_max_memory_allocated(int index = current_device_index) = 0;
  virtual int64_t memory_cached(int index = current_device_index) = 0;  // the same as memory_reserved
  virtual int64_t max_memory_cached(int index = current_device_index) = 0;
  virtual void reset_max_memory_cached(int index = current_device_index) = 0;
  virtual int64_t memory_reserved(int index = current_device_index) = 0;
  virtual int64_t max_memory_reserved(int index = current_device_index) = 0;
  // PyTorch's keys ("allocated_bytes.all.current", ...). On the CPU also "process_rss.current" and ".peak".
  virtual std::map<std::string, int64_t> memory_stats(int index = current_device_index) = 0;
  virtual void reset_peak_memory_stats(int index = current_device_index) = 0;
  virtual int64_t total_memory(int index = current_device_index) = 0;
  // Free now, for any process; cached memory of this process does not count as free.
  virtual int64_t available_memory(int index = current_device_index) = 0;
  // Both of them: available, then total.
  virtual std::pair<int64_t, int64_t> mem_get_info(int index = current_device_index);

  // The named kinds of memory of the device, by default none.
  virtual std::vector<MemoryKind> memory_kinds(int index = current_device_index);
  // An uninitialized, contiguous tensor in memory of that kind. It comes from the driver at each call, and its end waits for
  // the device's work. InvalidArgument that lists the kinds for another name; OutOfMemoryError.
  virtual Tensor empty_in(std::string_view memory_kind, const Shape& shape, DType dtype,
                          int index = current_device_index);

  // -- number formats --
  virtual bool is_bf16_supported() const = 0;
  virtual bool is_fp16_supported() const = 0;
  virtual bool is_fp64_supported() const = 0;
  // float32 first.
  virtual std::vector<DType> supported_dtypes() const = 0;
  virtual bool is_triton_supported() const = 0;
  // True when Triton's product of grouped matrices (of a mixture of experts) is the faster one here, for programs that
  // bring one: this library has none. By default false.
  virtual bool prefer_triton_grouped_mm() const { return false; }

  // -- mixed precision --
  // In the guard's scope, on this thread, matrix products take their inputs as `dtype` (bf16 or fp16); results and
  // reductions stay as they are. Nests. None switches it off inside an outer scope.
  virtual ScopeGuard amp(DType dtype) = 0;
  // The dtype of the innermost amp scope of this thread; None outside of all.
  virtual DType amp_dtype() const noexcept = 0;

  // -- graphs --
  // NotImplementedError where the accelerator has no graphs.
  virtual Graph create_graph() = 0;
  // Until the guard is destroyed, work of this thread on `stream` (default: the current stream) is recorded instead of
  // run, and memory comes from the graph's pool (`pool`: share another graph's). Waits for calls of other threads that
  // are enqueuing on the stream just then; later ones are refused, as said above. The guard's end, on this thread,
  // completes the graph, or throws it away when an exception is on its way. Capturing into a graph that is ready
  // replaces what it held.
  virtual ScopeGuard capture_to_graph(Graph& graph, std::optional<uint64_t> pool = {},
                                      const anyaccel::Stream& stream = {}) = 0;
  // Enqueues the recorded work on the current stream. InvalidArgument for a graph that is not ready.
  virtual void replay_graph(const Graph& graph) = 0;
  virtual bool supports_graphs() const = 0;

  // -- tensors on the current device: uninitialized of a shape, or one-dimensional from values --
  Tensor BFloat16Tensor(const Shape& shape) { return Tensor::empty(shape, DType::BF16, device()); }
  Tensor ByteTensor(const Shape& shape) { return Tensor::empty(shape, DType::U8, device()); }
  Tensor DoubleTensor(const Shape& shape) { return Tensor::empty(shape, DType::F64, device()); }
  Tensor FloatTensor(const Shape& shape) { return Tensor::empty(shape, DType::F32, device()); }
  Tensor HalfTensor(const Shape& shape) { return Tensor::empty(shape, DType::F16, device()); }
  Tensor IntTensor(const Shape& shape) { return Tensor::empty(shape, DType::I32, device()); }
  Tensor LongTensor(const Shape& shape) { return Tensor::empty(shape, DType::I64, device()); }
  Tensor BFloat16Tensor(std::span<const double> values) { return tensor_of(values, DType::BF16); }
  Tensor ByteTensor(std::span<const double> values) { return tensor_of(values, DType::U8); }
  Tensor DoubleTensor(std::span<const double> values) { return tensor_of(values, DType::F64); }
  Tensor FloatTensor(std::span<const double> values) { return tensor_of(values, DType::F32); }
  Tensor HalfTensor(std::span<const double> values) { return tensor_of(values, DType::F16); }
  Tensor IntTensor(std::span<const double> values) { return tensor_of(values, DType::I32); }
  Tensor LongTensor(std::span<const double> values) { return tensor_of(values, DType::I64); }

  // True when the tensor lies in memory that this accelerator computes on.
  virtual bool on_accelerator(const Tensor& tensor) const = 0;
  // A copy (or, with make_copy false, an uninitialized tensor) in page-locked host memory, of the same shape, or with
  // match_shape false of one dimension, the elements in row-major order. Over the limit of the operating system: OutOfMemoryError
  // that names `ulimit -l`. With `required` false, or where the driver has none: ordinary memory, for which is_pinned() is false.
  virtual Tensor pin_memory(const Tensor& tensor, bool make_copy = true, bool match_shape = true,
                            bool required = true) = 0;
  // Uninitialized, contiguous, in page-locked host memory: of a shape, or of a tensor's shape and, unless another is
  // given, its dtype. Errors as of pin_memory().
  virtual Tensor pin_empty(const Shape& shape, DType dtype);
  virtual Tensor pin_empty_like(const Tensor& tensor, DType dtype = DType::None);
  virtual bool is_pinned(const Tensor& tensor) const = 0;
  // Gives the page-locked memory that the tensor lies in back now, and returns true: every tensor on the same storage
  // keeps its values, in ordinary memory, and is_pinned() is false for it. Waits for enqueued work that uses it.
  // Addresses taken before are no longer valid, graphs that recorded copies from or to it must not be replayed, and no
  // other thread may use the storage meanwhile. False, and nothing is changed, for memory that does not come from
  // pin_memory() or pin_empty().
  virtual bool unpin_memory(const Tensor& tensor);
  // Locks `bytes` of the program's own memory and makes it known to the current device, so that copies to and from it
  // need no staging. False, and nothing is done, where the accelerator has no such thing; that is the default.
  // OutOfMemoryError that names `ulimit -l` over the limit of the operating system; InvalidArgument (AA_ALREADY_EXISTS)
  // for memory of which a part is registered. It stays registered until unregister_host_memory(), before which it must
  // not be freed.
  virtual bool register_host_memory(void* address, size_t bytes);
  // The address that was registered, whatever device is current now. InvalidArgument (AA_NOT_FOUND) for another one;
  // nothing where register_host_memory() is false.
  virtual void unregister_host_memory(void* address);
  // The address and the size of memory to be registered are best a multiple of this: the size of a page, since of two
  // ranges that share a page the first to be unregistered unlocks it for both. 1 where nothing can be registered.
  virtual size_t pin_memory_alignment() const { return 1; }

  // -- profiler ranges: to the vendor's profiler where there is one, and to ANYACCEL_TRACE --
  virtual void range_push(std::string_view message, std::string_view domain = {}, std::string_view category = {}) = 0;
  virtual void range_pop(std::string_view domain = {}) = 0;

  // -- communication --
  virtual std::string communication_backend_name() const = 0;
  // "2.27.3"; empty when the library is not there.
  virtual std::string communication_backend_version() const = 0;

  // -- op builders --
  // The folder of this accelerator's op sources.
  virtual std::string op_builder_dir() const = 0;
  // The names that create_op_builder() knows: known_op_builders(), and those that the driver brings.
  virtual std::vector<std::string> op_builder_names() const;
  // A builder for a known name (one whose load() explains itself when the accelerator lacks the op); null for an
  // unknown.
  virtual std::unique_ptr<OpBuilder> create_op_builder(std::string_view builder_name) = 0;
  virtual OpBuilderFactory get_op_builder(std::string_view builder_name) = 0;
  virtual BuildExtension build_extension() const = 0;

  // -- processes --
  // Runs `callback` now if the device is open, else right after it is opened.
  virtual void lazy_call(std::function<void()> callback) = 0;
  // Prefixes of the environment variables that a launcher passes on.
  virtual std::vector<std::string> export_envs() const = 0;
  virtual std::vector<std::string> visible_devices_envs() const = 0;
  // Writes the ids, joined by commas, to each of those variables in `env`.
  virtual void set_visible_devices_envs(std::map<std::string, std::string>& env,
                                        const std::vector<std::string>& ids) const = 0;

  // -- compiling --
  // "graph": repeated steps are captured once and replayed where the accelerator has graphs; "eager": never.
  virtual std::string get_compile_backend() const = 0;
  // InvalidArgument that lists the known names for any other.
  virtual void set_compile_backend(const std::string& backend) = 0;

  // -- for Tensor and the op libraries: raw services, on the calling thread's current stream of the device --
  // Memory for that stream; OutOfMemoryError with numbers.
  virtual std::shared_ptr<Storage> allocate(size_t bytes, int index) = 0;
  // True when the host may use device pointers directly (after synchronizing).
  virtual bool is_host_coherent() const = 0;
  // direction: aa_copy_direction. Does not block for device memory and pinned memory.
  virtual void copy(void* destination, const void* source, size_t bytes, aa_copy_direction direction, int index) = 0;
  // Copies from memory of device `from` into memory of another device `to`, on the current stream of `to` and behind the work
  // of that of `from`, whose later work comes after the copy: memory of that stream may be freed at once. False, and
  // nothing is done, where the devices have no such copies; that is the default. Does not block.
  virtual bool copy_between(void* destination, int to, const void* source, int from, size_t bytes);
  virtual void fill(void* destination, const void* pattern, size_t pattern_size, size_t bytes, int index) = 0;
  // The accelerator's number for an op of abi/ops.h; -1 when it lacks it.
  virtual int32_t find_op(const char* op_name) = 0;
  // Finds the implementation that runs this call on the device; an empty handle when there is none. The handle holds
  // for calls with the same op, shapes, dtypes, strides, alignment and parameters.
  virtual OpHandle resolve_op(const aa_op_call& call, int index) = 0;
  // A weight in the layout that the driver computes fastest with, for calls like `example` (pointers to data in it do not
  // count), in which it is tensor number `tensor`; `weight` itself where that is as good, which is the default. The packed
  // one does not share the memory of `weight`.
  virtual Tensor pack_weight(const aa_op_call& example, uint32_t tensor, const Tensor& weight);
  // Enqueues a call by what resolve_op() gave for it. NotImplementedError for an empty handle.
  virtual void enqueue_op(OpHandle op, const aa_op_call& call, int index) = 0;
  // Returns the driver's collectives, between memory of devices, for process groups. Opens the device.
  virtual CollectivesAccess collectives(int /*index*/) { return {}; }

 private:
  Tensor tensor_of(std::span<const double> values, DType dtype);
};

// A profiler range for the scope it lives in.
class [[nodiscard]] RangeScope {
 public:
  RangeScope(Accelerator& accelerator, std::string_view message, std::string_view domain = {},
             std::string_view category = {})
      : accelerator_(accelerator), domain_(domain) {
    accelerator_.range_push(message, domain, category);
  }
  ~RangeScope() { accelerator_.range_pop(domain_); }
  RangeScope(const RangeScope&) = delete;
  RangeScope& operator=(const RangeScope&) = delete;

 private:
  Accelerator& accelerator_;
  std::string_view domain_;  // text that lives as long as the scope
};

// The accelerator of the process. The first call detects it (see docs/architecture.md) and throws when DS_ACCELERATOR
// names one that is unknown or cannot be used; later calls only read a pointer. Never null.
Accelerator* get_accelerator();

// Replaces it; ownership passes. The earlier one is kept (see the top of this file) and gives its cached memory back;
// the resources that its tensors use are released with them. A null pointer is an InvalidArgument. Thread-safe.
void set_accelerator(std::unique_ptr<Accelerator> accelerator);

// Forgets the accelerator, so that the next get_accelerator() detects again. It is kept likewise. Thread-safe.
void reset_accelerator();

// For the end of a program that wants its devices closed in order (calling it is optional): destroys the accelerator
// and all earlier ones. Nothing of theirs may be used afterwards, and no other thread may use them now. InvalidArgument
// with code AA_FAILED_PRECONDITION, which says how many there are, while tensors, streams, events or graphs of theirs
// live: nothing is destroyed then.
void shutdown_accelerators();

// True when the current accelerator is one of those that detection knows (a built-in or a loaded plugin).
bool is_current_accelerator_supported();

}  // namespace anyaccel
