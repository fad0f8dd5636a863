// The accelerator object: the interface through which a program uses the hardware it runs on.
//
// get_accelerator() returns the one accelerator of the process, detected on the first call. Programs that use nothing
// else run unchanged on every accelerator. The names are those of DeepSpeed's accelerator interface; return types are
// the same on every accelerator.
//
// In methods that take `index`, current_device_index (the default) means the calling thread's current device. All
// methods may be called by any threads at once; the current device, the current stream, amp() and a capture belong to
// the calling thread, and a guard must be destroyed on the thread that created it. Threads that have not chosen a
// stream share the default one, on which their work runs in the order of the calls. A thread that captures a graph must
// be the only one to use the stream: a call of another thread that enqueues there meanwhile throws InvalidArgument
// (AA_FAILED_PRECONDITION), and is never recorded. Sizes are in bytes, times in milliseconds. Methods throw the
// exceptions of anyaccel/error.h.
//
// An accelerator that get_accelerator() has returned is kept until the process ends, even after set_accelerator() and
// reset_accelerator(). Pointers to it, and tensors, streams, events, graphs, generators, op builders, ops, models and
// process groups created on it therefore stay valid and keep working on every thread: only new calls of
// get_accelerator() return the new one. An accelerator rejects streams, events and graphs of another (InvalidArgument).
// Accelerators are not destroyed at the end of the process, so the destructors of static objects may release such
// objects, and use them as long as the vendor's runtime has not shut down; later calls throw UnavailableError.
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
#include "anyaccel/stream.h"
#include "anyaccel/tensor.h"

struct aa_collectives_table;  // anyaccel/abi/collectives.h

namespace anyaccel {

namespace abi {
template <class Table>
struct Calls;  // anyaccel/abi/table_calls.hpp
}

class OpBuilder;

// A function that creates a builder; get_op_builder returns it. Empty for an unknown name.
using OpBuilderFactory = std::function<std::unique_ptr<OpBuilder>()>;

// The recipe by which a user's own op is compiled for this accelerator; build_extension returns it.
struct BuildExtension {
  std::string compiler;                   // the driver's, else CXX, or "c++"
  std::vector<std::string> flags;         // language, position-independent code, and the driver's
  std::vector<std::string> include_dirs;  // the driver's, and the folder of anyaccel's headers
  std::vector<std::string> link_flags;    // the driver's
};

// The handles that are needed to call a driver's own collectives; collectives returns them.
struct CollectivesAccess {
  const abi::Calls<aa_collectives_table>* table = nullptr;  // null: the accelerator has none
  aa_instance* instance = nullptr;
  aa_device* device = nullptr;
  aa_stream* stream = nullptr;  // the calling thread's current stream of the device
  bool capturing = false;       // the stream is capturing a graph
  std::shared_ptr<void> use;    // while it lives, no other thread can begin a capture on the stream
};

// The implementation that runs a call of an op: the accelerator's driver, or the host's portable kernels.
struct OpHandle {
  int32_t own = -1;       // the driver's number of the op; -1: it does not run the call
  int32_t portable = -1;  // that of the portable kernels
  explicit operator bool() const noexcept { return own >= 0 || portable >= 0; }
};

// A kind of memory that a device has in addition to its ordinary one; memory_kinds returns them. Sizes are in bytes.
struct MemoryKind {
  std::string name;
  int64_t free = 0;  // now, for any process
  int64_t total = 0;
  int64_t allocated = 0;     // by this accelerator's tensors
  bool host_access = false;  // the host may read and write it through Tensor::data(), after synchronizing
  bool for_ops = false;      // ops accept tensors in it; else they can only be copied and filled
  int numa_node = -1;        // NUMA node of the host that the memory is near; -1: none
};

class Accelerator {
 public:
  static constexpr int current_device_index = -1;

  Accelerator() = default;
  virtual ~Accelerator() = default;
  Accelerator(const Accelerator&) = delete;
  Accelerator& operator=(const Accelerator&) = delete;

  // Returns the name for DS_ACCELERATOR: "cuda", "cpu", ...
  virtual const std::string& name() const noexcept = 0;

  // -- execution model --
  // True when work is complete as soon as the enqueuing call returns, so that side streams and waits are useless.
  virtual bool is_synchronized_device() const = 0;
  // True when the host clock measures time better than events. This and the other properties without an index are those
  // of device 0.
  virtual bool use_host_timers() const = 0;
  // True when streams see each other's work in program order without waits.
  virtual bool resolves_data_dependency() const = 0;
  // True when the runtime blocks the host while device memory is full.
  virtual bool handles_memory_backpressure() const = 0;

  // -- device --
  // Returns the kind of device ("cuda") without an index, also for current_device_index, and the device ("cuda:1") with
  // one; the CPU always returns "cpu".
  virtual std::string device_name(int index = current_device_index) const = 0;
  virtual Device device(int index = current_device_index) = 0;
  // Sets the calling thread's current device. Throws InvalidArgument (AA_OUT_OF_RANGE) if the index is out of range, as
  // every method that takes an index does.
  virtual void set_device(int index) = 0;
  virtual int current_device() const = 0;
  virtual std::string current_device_name() const = 0;  // with an index: device_name(current_device())
  virtual int device_count() const = 0;
  // Blocks until all work on the device is complete. Throws asynchronous errors.
  virtual void synchronize(int index = current_device_index) = 0;
  // True when there is at least one device. Does not throw.
  virtual bool is_available() const = 0;
  // Returns the properties of a device, as the driver reports them.
  virtual const aa_device_props& device_properties(int index = current_device_index) const = 0;
  // Returns the major and minor version of the device's architecture if its name contains them ("sm_90": 9 and 0); else
  // 0 and 0.
  virtual std::pair<int, int> compute_capability(int index = current_device_index) const;

  // -- random numbers --
  // Returns the generator of the current device.
  virtual Generator& random() = 0;
  virtual void set_rng_state(const RngState& state, int index = current_device_index) = 0;
  virtual RngState get_rng_state(int index = current_device_index) = 0;
  // Seed the generator of the current device, and those of all devices.
  virtual void manual_seed(uint64_t seed) = 0;
  virtual void manual_seed_all(uint64_t seed) = 0;
  virtual uint64_t initial_seed() = 0;  // of the current device's generator
  virtual Generator& default_generator(int index) = 0;

  // -- streams and events --
  // Creates a stream on the current device; priority 0 is normal, negative is higher, and a priority outside the
  // device's range is clamped to it.
  virtual anyaccel::Stream Stream(int priority = 0) = 0;
  // Makes `s` the current stream of its device, and that device the current one, on the calling thread until the guard
  // is destroyed.
  virtual ScopeGuard stream(const anyaccel::Stream& s) = 0;
  virtual const anyaccel::Stream& current_stream(int index = current_device_index) = 0;
  virtual const anyaccel::Stream& default_stream(int index = current_device_index) = 0;
  // Creates an event on the current device. If the driver has no events, recording it waits until the stream's work is
  // complete.
  virtual anyaccel::Event Event(bool enable_timing = false) = 0;
  // True while the calling thread's current stream of the device captures a graph, or has joined the capture by waiting
  // for an event of a stream that captures. By default never.
  virtual bool is_current_stream_capturing(int index = current_device_index);
  // The next two are for accelerators that hold work back to compile or submit it as a whole; on others they do
  // nothing, which is the default. flush: submits the work that the calling thread's current stream of the device holds
  // back, so that it makes progress without further calls. Needed before a thread waits, in a way that this interface
  // does not see, for something that depends on that work, such as another process. Process groups call it by
  // themselves, and so does making another stream current. Does not wait.
  virtual void flush(int index = current_device_index);
  // Marks a pass on the current stream, until the guard is destroyed, that is likely to be repeated with the same calls
  // (a decode step); `key` identifies those calls. Meanwhile no other thread may enqueue on the stream, and no other
  // step may begin there.
  virtual ScopeGuard step(uint64_t key);

  // -- memory (bytes) --
  // Returns the cached memory of the current device that is not in use to the driver.
  virtual void empty_cache() = 0;
  virtual int64_t memory_allocated(int index = current_device_index) = 0;
  virtual int64_t max_memory_allocated(int index = current_device_index) = 0;
  virtual void reset_max_memory_allocated(int index = current_device_index) = 0;
  virtual int64_t memory_cached(int index = current_device_index) = 0;  // the same as memory_reserved
  virtual int64_t max_memory_cached(int index = current_device_index) = 0;
  virtual void reset_max_memory_cached(int index = current_device_index) = 0;
  virtual int64_t memory_reserved(int index = current_device_index) = 0;
  virtual int64_t max_memory_reserved(int index = current_device_index) = 0;
  // Returns statistics with PyTorch's keys ("allocated_bytes.all.current", ...). On the CPU also "process_rss.current"
  // and ".peak".
  virtual std::map<std::string, int64_t> memory_stats(int index = current_device_index) = 0;
  virtual void reset_peak_memory_stats(int index = current_device_index) = 0;
  virtual int64_t total_memory(int index = current_device_index) = 0;
  // Returns the bytes that are free now, for any process; cached memory of this process does not count as free. If the
  // driver cannot tell, it is the total memory less what this process holds. At most what the device's allocator may
  // still allocate (device_allocator.h).
  virtual int64_t available_memory(int index = current_device_index) = 0;
  // Returns both: available, then total.
  virtual std::pair<int64_t, int64_t> mem_get_info(int index = current_device_index);

  // Returns the named kinds of memory of the device, by default none.
  virtual std::vector<MemoryKind> memory_kinds(int index = current_device_index);
  // Returns an uninitialized, contiguous tensor in memory of that kind. Each call allocates from the driver, and
  // freeing the tensor waits for the device's work. Throws InvalidArgument, which lists the kinds, for another name;
  // OutOfMemoryError.
  virtual Tensor empty_in(std::string_view memory_kind, const Shape& shape, DType dtype,
                          int index = current_device_index);

  // -- number formats --
  virtual bool is_bf16_supported() const = 0;
  virtual bool is_fp16_supported() const = 0;
  virtual bool is_fp64_supported() const = 0;
  // Returns the supported ones of the ops' float types: float32 first, then bfloat16 and float16. Not float64.
  virtual std::vector<DType> supported_dtypes() const = 0;
  virtual bool is_triton_supported() const = 0;
  // True when Triton's grouped matrix product (for mixtures of experts) is faster here than the vendor's. It is a hint
  // for programs that bring such a product; this library has none. By default false.
  virtual bool prefer_triton_grouped_mm() const { return false; }

  // -- mixed precision --
  // Until the guard is destroyed, on this thread, the inputs of matrix products are converted to `dtype` (bf16 or
  // fp16); the dtypes of results and reductions do not change. Scopes may be nested; None switches it off inside an
  // outer scope. Throws InvalidArgument for another dtype.
  virtual ScopeGuard amp(DType dtype) = 0;
  // Returns the dtype of the innermost amp scope of this thread; None outside of any.
  virtual DType amp_dtype() const noexcept = 0;

  // -- graphs --
  // Creates an empty graph on the current device. Throws NotImplementedError if the accelerator has no graphs.
  virtual Graph create_graph() = 0;
  // Until the guard is destroyed, work of this thread on `stream` (default: the current stream of the graph's device),
  // which becomes the current stream, is recorded instead of run, and memory comes from the graph's pool (`pool`:
  // shares that of another graph). Waits for calls of other threads that are enqueuing on the stream at that moment;
  // later ones are rejected, as described above. The guard's destructor, on this thread, completes the graph, or
  // discards the recording while an exception is unwinding the stack. Capturing into a graph that is ready replaces its
  // contents. Throws InvalidArgument for an empty graph, a stream of another device, and (AA_FAILED_PRECONDITION) if
  // this thread is capturing already: captures do not nest.
  virtual ScopeGuard capture_to_graph(Graph& graph, std::optional<uint64_t> pool = {},
                                      const anyaccel::Stream& stream = {}) = 0;
  // Enqueues the recorded work on the current stream of the graph's device. Throws InvalidArgument
  // (AA_FAILED_PRECONDITION) for a graph that is not ready.
  virtual void replay_graph(const Graph& graph) = 0;
  virtual bool supports_graphs() const = 0;

  // -- tensors on the current device: uninitialized with a shape, or one-dimensional from values --
  //    Values are converted as the op "copy" (abi/ops.h) does it; these functions block until they have arrived.
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
  // Returns a copy (or, with make_copy false, an uninitialized tensor) in page-locked host memory, with the same shape
  // or, with match_shape false, with one dimension and the elements in row-major order. The copy from a device does not
  // block: synchronize the current stream before the host reads it. Beyond the limit of the operating system it throws
  // OutOfMemoryError, which names `ulimit -l`; with `required` false, or if the driver has no page-locked memory, it
  // uses ordinary memory, for which is_pinned() is false.
  virtual Tensor pin_memory(const Tensor& tensor, bool make_copy = true, bool match_shape = true,
                            bool required = true) = 0;
  // Return an uninitialized, contiguous tensor in page-locked host memory, with a given shape, or with a tensor's shape
  // and, unless another is given, its dtype. Errors are those of pin_memory().
  virtual Tensor pin_empty(const Shape& shape, DType dtype);
  virtual Tensor pin_empty_like(const Tensor& tensor, DType dtype = DType::None);
  // True for a tensor in page-locked memory of this accelerator, from whichever function it came.
  virtual bool is_pinned(const Tensor& tensor) const = 0;
  // Moves the tensor's storage from page-locked to ordinary memory, releases the page-locked memory now, and returns
  // true: every tensor on the storage keeps its values, and is_pinned() is false for it. Waits for the device's work.
  // Addresses taken before become invalid, graphs that recorded copies from or to it must not be replayed, and no other
  // thread may use the storage meanwhile. Returns false, without changing anything, for memory that does not come from
  // pin_memory() or pin_empty().
  virtual bool unpin_memory(const Tensor& tensor);
  // Locks `bytes` of the program's own memory and registers it with the current device, so that copies to and from it
  // need no staging. Returns false, having done nothing, if the accelerator cannot do this, which is the default.
  // Throws OutOfMemoryError, which names `ulimit -l`, beyond the limit of the operating system; InvalidArgument
  // (AA_ALREADY_EXISTS) for memory of which a part is already registered. It stays registered until
  // unregister_host_memory(), and must not be freed before.
  virtual bool register_host_memory(void* address, size_t bytes);
  // Unregisters the memory at an address that was registered, whatever device is current now, after waiting for that
  // device's work. Throws InvalidArgument (AA_NOT_FOUND) for another address; does nothing if register_host_memory()
  // returns false.
  virtual void unregister_host_memory(void* address);
  // The address and the size of memory to be registered should be multiples of this, the size of a page: if two ranges
  // share a page, unregistering the first unlocks it for both. 1 if nothing can be registered.
  virtual size_t pin_memory_alignment() const { return 1; }

  // -- profiler ranges: passed to the vendor's profiler if the runtime is open and has one, and to ANYACCEL_TRACE. A
  //    range belongs to the calling thread; range_pop() closes the innermost one of its domain, if there is one --
  virtual void range_push(std::string_view message, std::string_view domain = {}, std::string_view category = {}) = 0;
  virtual void range_pop(std::string_view domain = {}) = 0;

  // -- communication --
  // Returns the name of the driver's collectives library ("nccl"); empty if it has none.
  virtual std::string communication_backend_name() const = 0;
  // Returns a version such as "2.27.3"; empty if the library is not installed.
  virtual std::string communication_backend_version() const = 0;

  // -- op builders --
  // Returns the folder of this accelerator's op sources.
  virtual std::string op_builder_dir() const = 0;
  // Returns the names that create_op_builder() knows: known_op_builders(), and those that the driver provides.
  virtual std::vector<std::string> op_builder_names() const;
  // Creates a builder for a known name (if the accelerator lacks the op, its load() throws an explanation); null for an
  // unknown name.
  virtual std::unique_ptr<OpBuilder> create_op_builder(std::string_view builder_name) = 0;
  // Returns a function that calls create_op_builder() with this name; empty for an unknown name.
  virtual OpBuilderFactory get_op_builder(std::string_view builder_name) = 0;
  // Returns the compiler and flags for an op of your own.
  virtual BuildExtension build_extension() const = 0;

  // -- processes --
  // Runs `callback` now if a device of this accelerator is open, else on the thread that opens the first one, as soon
  // as it is open.
  virtual void lazy_call(std::function<void()> callback) = 0;
  // Returns the prefixes of the environment variables that a launcher passes on.
  virtual std::vector<std::string> export_envs() const = 0;
  // Returns the vendor's variables that limit the visible devices ("CUDA_VISIBLE_DEVICES").
  virtual std::vector<std::string> visible_devices_envs() const = 0;
  // Writes the ids, joined by commas, to each of those variables in `env`.
  virtual void set_visible_devices_envs(std::map<std::string, std::string>& env,
                                        const std::vector<std::string>& ids) const = 0;

  // -- compiling --
  // "graph": repeated steps are captured once and replayed where the accelerator has graphs; "eager": never.
  // It applies to the accelerator, on every thread.
  virtual std::string get_compile_backend() const = 0;
  // Throws InvalidArgument, which lists the known names, for any other name.
  virtual void set_compile_backend(const std::string& backend) = 0;

  // -- for Tensor and the op libraries: raw services, on the calling thread's current stream of the device --
  // Allocates memory for that stream. Throws OutOfMemoryError with the relevant numbers.
  virtual std::shared_ptr<Storage> allocate(size_t bytes, int index) = 0;
  // True when the host may use device pointers directly (after synchronizing).
  virtual bool is_host_coherent() const = 0;
  // Copies bytes. Does not block for device memory and pinned memory; may block for pageable host memory, which must
  // stay valid and unchanged until the stream has done the copy.
  virtual void copy(void* destination, const void* source, size_t bytes, aa_copy_direction direction, int index) = 0;
  // Copies from memory of device `from` into memory of another device `to`, on the current stream of `to`, ordered
  // after the work on the current stream of `from` and before later work there: memory of that stream may be freed at
  // once. Returns false, having done nothing, if the devices cannot copy directly, which is the default. Does not
  // block.
  virtual bool copy_between(void* destination, int to, const void* source, int from, size_t bytes);
  // Repeats a pattern of 1, 2, 4 or 8 bytes over `bytes`, a multiple of pattern_size. Does not block, unless the driver
  // has no fills and copies the pattern instead.
  virtual void fill(void* destination, const void* pattern, size_t pattern_size, size_t bytes, int index) = 0;
  // Returns the number that aa_op_call::op takes for an op of abi/ops.h; -1 if neither the driver nor the portable
  // kernels have it.
  virtual int32_t find_op(const char* op_name) = 0;
  // Finds the implementation that runs this call on the device; returns an empty handle if there is none. The handle is
  // valid for all calls with the same op, shapes, dtypes, strides, alignment and parameters.
  virtual OpHandle resolve_op(const aa_op_call& call, int index) = 0;
  // Returns the weight in the layout with which the driver computes fastest, for calls like `example` (whose data
  // pointers are ignored), in which it is tensor number `tensor`; `weight` itself if that is as good, which is the
  // default. The packed weight does not share the memory of `weight`.
  virtual Tensor pack_weight(const aa_op_call& example, uint32_t tensor, const Tensor& weight);
  // Enqueues a call with the handle that resolve_op() returned for it. Throws NotImplementedError for an empty handle.
  virtual void enqueue_op(OpHandle op, const aa_op_call& call, int index) = 0;
  // Returns the driver's collectives on device memory, for process groups. Opens the device.
  virtual CollectivesAccess collectives(int /*index*/) { return {}; }

 private:
  Tensor tensor_of(std::span<const double> values, DType dtype);
};

// Opens a profiler range and closes it in the destructor.
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
  std::string_view domain_;  // must live as long as the scope
};

// Returns the accelerator of the process, never null. The first call detects it (see detection.h): it throws
// InvalidArgument if DS_ACCELERATOR has an unknown name, and UnavailableError if that accelerator cannot be used, or if
// two plugins have the same name. Later calls only read a pointer.
Accelerator* get_accelerator();

// Replaces the accelerator and takes ownership of the new one. The earlier one is kept (see the top of this file) and
// releases its cached memory; the resources that its tensors use are released with them. Throws InvalidArgument for a
// null pointer. Thread-safe.
void set_accelerator(std::unique_ptr<Accelerator> accelerator);

// Resets the accelerator, so that the next get_accelerator() detects again. The earlier one is kept in the same way.
// Thread-safe.
void reset_accelerator();

// Destroys the accelerator and all earlier ones, for programs that want to close their devices before they end (calling
// it is optional); the next get_accelerator() detects again. None of their objects may be used afterwards, and no other
// thread may use them during the call. While tensors, streams, events or graphs of theirs exist, it destroys nothing
// and throws InvalidArgument with code AA_FAILED_PRECONDITION, which says how many there are.
void shutdown_accelerators();

// True when detection knows the name of the current accelerator: that of a built-in one or of a plugin that was found.
bool is_current_accelerator_supported();

}  // namespace anyaccel
