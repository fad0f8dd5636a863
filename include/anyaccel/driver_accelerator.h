// DriverAccelerator implements the whole Accelerator interface on top of one driver table.
//
// Everything that is the same on every accelerator (caching, current device and stream, generators, graphs' memory,
// trace ranges) is here, once. A program may derive from it to change what differs. Some functions call others of the
// interface (manual_seed() calls random(); those about capabilities and dtypes call device_properties()), so an
// override changes them too.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "anyaccel/abi/table_calls.hpp"
#include "anyaccel/accelerator.h"
#include "anyaccel/device_allocator.h"

namespace anyaccel {

class DriverCore;
struct DriverBuilds;

class DriverAccelerator : public Accelerator {
 public:
  // `driver` is a completed table (see load_plugin). The vendor's runtime is opened by the first call that needs it, so
  // that constructing one leaves the process able to fork.
  explicit DriverAccelerator(const abi::DriverCalls* driver, std::string origin = "built in");
  ~DriverAccelerator() override;
  // Returns the number of tensors' storages, streams, events and graphs that still exist.
  int64_t living_objects() const;
  // Sets the function that creates the allocator of each device when the device is opened (device_allocator.h); an
  // empty function stands for the caching allocator. Throws InvalidArgument (AA_FAILED_PRECONDITION) if a device is
  // open.
  void set_allocator(MakeAllocator make);
  // Releases the cached memory of every open device, and opens none. Errors are logged.
  void release_cached_memory() noexcept;

  const abi::DriverCalls& driver() const noexcept;
  const std::string& origin() const noexcept;
  // Initializes on first use. Throws UnavailableError.
  aa_instance* instance() const;
  // Opens the device on first use.
  aa_device* device_handle(int index = current_device_index);
  // Returns the driver's handle of a stream or event that a DriverAccelerator created. It belongs to that accelerator's
  // driver.
  static aa_stream* handle(const anyaccel::Stream& stream);
  static aa_event* handle(const anyaccel::Event& event);
  // Reserves a stream during a call that enqueues work with the driver's own functions: while the object lives, no
  // other thread can begin a capture on the stream. The constructor throws InvalidArgument if another thread captures
  // on the stream (AA_FAILED_PRECONDITION), or if another kind of accelerator created it. Belongs to one thread; the
  // stream must outlive it.
  class StreamUse {
   public:
    explicit StreamUse(const anyaccel::Stream& stream);
    ~StreamUse();
    StreamUse(const StreamUse&) = delete;
    StreamUse& operator=(const StreamUse&) = delete;
    aa_stream* handle() const noexcept { return handle_; }

   private:
    aa_stream* handle_;
    void* gate_;
    void* outer_;
  };
  // Returns an extension table; null if the driver does not have it in that version. Tables of anyaccel/abi are
  // complete: they have full size, with stubs that return AA_UNIMPLEMENTED for functions that the driver lacks. For
  // another name it returns the driver's own table unchanged.
  const void* extension(const char* name, uint32_t min_version) const;

  const std::string& name() const noexcept override;
  bool is_synchronized_device() const override;
  bool use_host_timers() const override;
  bool resolves_data_dependency() const override;
  bool handles_memory_backpressure() const override;

  std::string device_name(int index = current_device_index) const override;
  Device device(int index = current_device_index) override;
  void set_device(int index) override;
  int current_device() const override;
  std::string current_device_name() const override;
  int device_count() const override;
  void synchronize(int index = current_device_index) override;
  bool is_available() const override;
  const aa_device_props& device_properties(int index = current_device_index) const override;

  Generator& random() override;
  void set_rng_state(const RngState& state, int index = current_device_index) override;
  RngState get_rng_state(int index = current_device_index) override;
  void manual_seed(uint64_t seed) override;
  void manual_seed_all(uint64_t seed) override;
  uint64_t initial_seed() override;
  Generator& default_generator(int index) override;

  anyaccel::Stream Stream(int priority = 0) override;
  ScopeGuard stream(const anyaccel::Stream& s) override;
  const anyaccel::Stream& current_stream(int index = current_device_index) override;
  const anyaccel::Stream& default_stream(int index = current_device_index) override;
  anyaccel::Event Event(bool enable_timing = false) override;
  bool is_current_stream_capturing(int index = current_device_index) override;
  void flush(int index = current_device_index) override;
  ScopeGuard step(uint64_t key) override;

  void empty_cache() override;
  int64_t memory_allocated(int index = current_device_index) override;
  int64_t max_memory_allocated(int index = current_device_index) override;
  void reset_max_memory_allocated(int index = current_device_index) override;
  int64_t memory_cached(int index = current_device_index) override;
  int64_t max_memory_cached(int index = current_device_index) override;
  void reset_max_memory_cached(int index = current_device_index) override;
  int64_t memory_reserved(int index = current_device_index) override;
  int64_t max_memory_reserved(int index = current_device_index) override;
  std::map<std::string, int64_t> memory_stats(int index = current_device_index) override;
  void reset_peak_memory_stats(int index = current_device_index) override;
  int64_t total_memory(int index = current_device_index) override;
  int64_t available_memory(int index = current_device_index) override;
  std::vector<MemoryKind> memory_kinds(int index = current_device_index) override;
  Tensor empty_in(std::string_view memory_kind, const Shape& shape, DType dtype,
                  int index = current_device_index) override;

  bool is_bf16_supported() const override;
  bool is_fp16_supported() const override;
  bool is_fp64_supported() const override;
  std::vector<DType> supported_dtypes() const override;
  bool is_triton_supported() const override;
  bool prefer_triton_grouped_mm() const override;

  ScopeGuard amp(DType dtype) override;
  DType amp_dtype() const noexcept override;

  Graph create_graph() override;
  ScopeGuard capture_to_graph(Graph& graph, std::optional<uint64_t> pool = {},
                              const anyaccel::Stream& stream = {}) override;
  void replay_graph(const Graph& graph) override;
  bool supports_graphs() const override;

  bool on_accelerator(const Tensor& tensor) const override;
  Tensor pin_memory(const Tensor& tensor, bool make_copy = true, bool match_shape = true,
                    bool required = true) override;
  bool is_pinned(const Tensor& tensor) const override;
  bool register_host_memory(void* address, size_t bytes) override;
  void unregister_host_memory(void* address) override;
  size_t pin_memory_alignment() const override;

  void range_push(std::string_view message, std::string_view domain = {}, std::string_view category = {}) override;
  void range_pop(std::string_view domain = {}) override;

  std::string communication_backend_name() const override;
  std::string communication_backend_version() const override;

  std::string op_builder_dir() const override;
  std::vector<std::string> op_builder_names() const override;
  std::unique_ptr<OpBuilder> create_op_builder(std::string_view builder_name) override;
  OpBuilderFactory get_op_builder(std::string_view builder_name) override;
  BuildExtension build_extension() const override;

  void lazy_call(std::function<void()> callback) override;
  std::vector<std::string> export_envs() const override;
  std::vector<std::string> visible_devices_envs() const override;
  void set_visible_devices_envs(std::map<std::string, std::string>& env,
                                const std::vector<std::string>& ids) const override;

  std::string get_compile_backend() const override;
  void set_compile_backend(const std::string& backend) override;

  std::shared_ptr<Storage> allocate(size_t bytes, int index) override;
  bool is_host_coherent() const override;
  void copy(void* destination, const void* source, size_t bytes, aa_copy_direction direction, int index) override;
  bool copy_between(void* destination, int to, const void* source, int from, size_t bytes) override;
  void fill(void* destination, const void* pattern, size_t pattern_size, size_t bytes, int index) override;
  int32_t find_op(const char* op_name) override;
  OpHandle resolve_op(const aa_op_call& call, int index) override;
  Tensor pack_weight(const aa_op_call& example, uint32_t tensor, const Tensor& weight) override;
  void enqueue_op(OpHandle op, const aa_op_call& call, int index) override;
  CollectivesAccess collectives(int index) override;

  // Calls a function of the driver for device `index` (or current_device_index), as the host does with those that it
  // calls itself: if the function runs out of a resource, the device's cached memory is returned to the driver, and the
  // function is called once more, so it must be repeatable. Throws the exception that belongs to its status; `what`
  // names the function.
  void call_driver(int index, const char* what, const std::function<aa_status*()>& function);

 private:
  uint64_t caps() const;

  std::unique_ptr<DriverCore> core_;
  std::unique_ptr<DriverBuilds> builds_;  // constant
  mutable std::mutex compile_mutex_;
  std::string compile_backend_ = "graph";  // compile_mutex_
};

}  // namespace anyaccel
