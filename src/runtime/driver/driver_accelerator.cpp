// DriverAccelerator: the names and number formats of the Accelerator interface over DriverCore, which does the work.
#include "anyaccel/driver_accelerator.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "anyaccel/error.h"
#include "base/files/install_paths.h"
#include "base/process/process_memory.h"
#include "base/text/text.h"
#include "runtime/core/core.h"
#include "runtime/core/streams.h"
#include "runtime/driver/driver_op_builders.h"
#include "runtime/ops/op_builder_registry.h"
#include "runtime/range_trace.h"
#include "runtime/tensor/tensor_layout.h"

namespace anyaccel {

DriverAccelerator::DriverAccelerator(const abi::DriverCalls* driver, std::string origin)
    : core_(std::make_unique<DriverCore>(*this, driver, std::move(origin))),
      builds_(std::make_unique<DriverBuilds>(read_driver_builds(*driver, core_->origin()))) {}
DriverAccelerator::~DriverAccelerator() { core_->unload_portable_ops(); }

// ---- the driver, and handles of it -----------------------------------------------------------------------------------

int64_t DriverAccelerator::living_objects() const { return core_->living_objects(); }
void DriverAccelerator::set_allocator(MakeAllocator make) { core_->set_allocator(std::move(make)); }
void DriverAccelerator::release_cached_memory() noexcept { core_->release_cached_memory(); }
const abi::DriverCalls& DriverAccelerator::driver() const noexcept { return core_->driver(); }
const std::string& DriverAccelerator::origin() const noexcept { return core_->origin(); }
const std::string& DriverAccelerator::name() const noexcept { return core_->name(); }
aa_instance* DriverAccelerator::instance() const { return core_->instance().instance; }
aa_device* DriverAccelerator::device_handle(int index) { return core_->context(index).device; }
aa_stream* DriverAccelerator::handle(const anyaccel::Stream& stream) { return driver_stream(stream).stream(); }
aa_event* DriverAccelerator::handle(const anyaccel::Event& event) { return driver_event(event).event(); }

DriverAccelerator::StreamUse::StreamUse(const anyaccel::Stream& stream) : handle_(DriverAccelerator::handle(stream)) {
  StreamGate& gate = driver_stream(stream).gate();
  outer_ = gate.enter();
  gate_ = &gate;
}

DriverAccelerator::StreamUse::~StreamUse() { static_cast<StreamGate*>(gate_)->leave(outer_); }

const void* DriverAccelerator::extension(const char* extension_name, uint32_t min_version) const {
  const DriverInstance& runtime = core_->instance();
#define ANYACCEL_KNOWN(field, table, known_name, known_version, functions)                   \
  if (std::strcmp(extension_name, known_name) == 0) {                                        \
    return runtime.field && runtime.field->version >= min_version ? runtime.field : nullptr; \
  }
  ANYACCEL_EXTENSIONS(ANYACCEL_KNOWN)
#undef ANYACCEL_KNOWN
  const void* raw = nullptr;
  aa_status* status = driver().query_extension(runtime.instance, extension_name, min_version, &raw);
  release_status(status);
  return status ? nullptr : raw;
}

// ---- execution model, devices ----------------------------------------------------------------------------------------

uint64_t DriverAccelerator::caps() const { return device_properties(0).caps; }
bool DriverAccelerator::is_synchronized_device() const { return caps() & AA_CAP_SYNCHRONOUS; }
bool DriverAccelerator::use_host_timers() const { return caps() & AA_CAP_HOST_TIMERS; }
bool DriverAccelerator::resolves_data_dependency() const { return caps() & AA_CAP_RESOLVES_DEPENDENCIES; }
bool DriverAccelerator::handles_memory_backpressure() const { return caps() & AA_CAP_MEMORY_BACKPRESSURE; }
bool DriverAccelerator::is_host_coherent() const { return caps() & AA_CAP_HOST_COHERENT; }

std::string DriverAccelerator::device_name(int index) const {
  if (index == current_device_index) return name();
  const int resolved = core_->resolve(index);
  return core_->props(resolved).caps & AA_CAP_IS_HOST ? name() : name() + ":" + std::to_string(resolved);
}

Device DriverAccelerator::device(int index) { return Device{this, core_->resolve(index)}; }
void DriverAccelerator::set_device(int index) { core_->thread().device = core_->resolve(index); }
int DriverAccelerator::current_device() const { return core_->thread().device; }
std::string DriverAccelerator::current_device_name() const { return device_name(current_device()); }
int DriverAccelerator::device_count() const { return core_->device_count(); }

void DriverAccelerator::synchronize(int index) {
  DeviceContext& c = core_->context(index);
  c.call("device_synchronize", [&] { return c.driver().device_synchronize(c.device); });
}

void DriverAccelerator::call_driver(int index, const char* what, const std::function<aa_status*()>& function) {
  core_->context(index).call(what, function);
}

bool DriverAccelerator::is_available() const {
  try {
    return device_count() > 0;
  } catch (const Error&) {
    return false;
  }
}

const aa_device_props& DriverAccelerator::device_properties(int index) const { return core_->props(index); }

// ---- random numbers --------------------------------------------------------------------------------------------------

Generator& DriverAccelerator::random() { return core_->context(current_device_index).generator; }
Generator& DriverAccelerator::default_generator(int index) { return core_->context(index).generator; }
void DriverAccelerator::set_rng_state(const RngState& state, int index) { default_generator(index).set_state(state); }
RngState DriverAccelerator::get_rng_state(int index) { return default_generator(index).get_state(); }
void DriverAccelerator::manual_seed(uint64_t seed) { random().manual_seed(seed); }
void DriverAccelerator::manual_seed_all(uint64_t seed) {
  for (int i = 0; i < device_count(); ++i) default_generator(i).manual_seed(seed);
}
uint64_t DriverAccelerator::initial_seed() { return random().initial_seed(); }

// ---- streams, graphs -------------------------------------------------------------------------------------------------

Stream DriverAccelerator::Stream(int priority) { return core_->make_stream(priority); }
ScopeGuard DriverAccelerator::stream(const anyaccel::Stream& s) { return core_->use_stream(s); }
const Stream& DriverAccelerator::current_stream(int index) { return core_->current_stream(index); }
const Stream& DriverAccelerator::default_stream(int index) { return core_->context(index).default_stream; }
Event DriverAccelerator::Event(bool enable_timing) { return core_->make_event(enable_timing); }
bool DriverAccelerator::is_current_stream_capturing(int index) { return core_->capturing(index); }
void DriverAccelerator::flush(int index) { core_->flush(index); }
ScopeGuard DriverAccelerator::step(uint64_t key) { return core_->step(key); }

Graph DriverAccelerator::create_graph() { return core_->create_graph(); }
ScopeGuard DriverAccelerator::capture_to_graph(Graph& graph, std::optional<uint64_t> pool,
                                               const anyaccel::Stream& stream) {
  return core_->capture(graph, pool, stream);
}
void DriverAccelerator::replay_graph(const Graph& graph) { core_->replay(graph); }
bool DriverAccelerator::supports_graphs() const { return core_->instance().graph != nullptr; }

// ---- memory ----------------------------------------------------------------------------------------------------------

std::shared_ptr<Storage> DriverAccelerator::allocate(size_t bytes, int index) { return core_->allocate(bytes, index); }
int64_t DriverAccelerator::total_memory(int index) { return core_->props(index).total_memory; }
int64_t DriverAccelerator::available_memory(int index) { return core_->available_memory(index); }
std::vector<MemoryKind> DriverAccelerator::memory_kinds(int index) { return core_->memory_kinds(index); }

namespace {

DeviceAllocator& allocator(DriverCore& core, int index) { return *core.context(index).allocator; }

Tensor contiguous_tensor(std::shared_ptr<Storage> storage, DType dtype, const Shape& shape) {
  const Strides strides = contiguous_strides(shape);
  return Tensor(std::move(storage), dtype, shape,
                std::span<const int64_t>(strides).first(static_cast<size_t>(shape.ndim())));
}

}  // namespace

void DriverAccelerator::empty_cache() { allocator(*core_, current_device_index).empty_cache(); }
int64_t DriverAccelerator::memory_allocated(int index) { return allocator(*core_, index).figures().allocated; }
int64_t DriverAccelerator::max_memory_allocated(int index) { return allocator(*core_, index).figures().max_allocated; }
void DriverAccelerator::reset_max_memory_allocated(int index) {
  allocator(*core_, index).reset_peaks(DeviceAllocator::Peak::Allocated);
}
int64_t DriverAccelerator::memory_cached(int index) { return memory_reserved(index); }
int64_t DriverAccelerator::max_memory_cached(int index) { return max_memory_reserved(index); }
void DriverAccelerator::reset_max_memory_cached(int index) {
  allocator(*core_, index).reset_peaks(DeviceAllocator::Peak::Reserved);
}
int64_t DriverAccelerator::memory_reserved(int index) { return allocator(*core_, index).figures().reserved; }
int64_t DriverAccelerator::max_memory_reserved(int index) { return allocator(*core_, index).figures().max_reserved; }
void DriverAccelerator::reset_peak_memory_stats(int index) {
  allocator(*core_, index).reset_peaks(DeviceAllocator::Peak::Both);
}

std::map<std::string, int64_t> DriverAccelerator::memory_stats(int index) {
  const DeviceContext& c = core_->context(index);
  auto stats = c.allocator->stats();
  if (c.props.caps & AA_CAP_IS_HOST) {
    const ProcessMemory memory = process_memory();
    stats["process_rss.current"] = memory.resident;
    stats["process_rss.peak"] = memory.peak_resident;
  }
  return stats;
}

Tensor DriverAccelerator::empty_in(std::string_view memory_kind, const Shape& shape, DType dtype, int index) {
  if (dtype_size(dtype) == 0) throw InvalidArgument("empty_in: elements of the dtype have no size");
  const size_t bytes = std::max<size_t>(static_cast<size_t>(shape.numel()) * dtype_size(dtype), 1);
  std::shared_ptr<Storage> storage = core_->allocate_kind(memory_kind, bytes, index);
  if (!storage) return Accelerator::empty_in(memory_kind, shape, dtype, index);  // throws
  return contiguous_tensor(std::move(storage), dtype, shape);
}

bool DriverAccelerator::on_accelerator(const Tensor& tensor) const {
  if (!tensor) return false;
  const Device place = tensor.device();
  return place.accelerator == this || (place.is_host() && (caps() & AA_CAP_IS_HOST));
}

Tensor DriverAccelerator::pin_memory(const Tensor& tensor, bool make_copy, bool match_shape, bool required) {
  if (!tensor) throw InvalidArgument("pin_memory: the tensor is empty");
  const Shape shape = match_shape ? tensor.shape() : Shape{tensor.numel()};
  std::shared_ptr<Storage> storage = core_->allocate_pinned(std::max<size_t>(tensor.nbytes(), 1), required);
  Tensor pinned =
      storage ? contiguous_tensor(std::move(storage), tensor.dtype(), shape) : Tensor::empty(shape, tensor.dtype());
  if (make_copy) pinned.view(tensor.shape()).copy_from(tensor);
  return pinned;
}

bool DriverAccelerator::is_pinned(const Tensor& tensor) const {
  if (!tensor || !tensor.storage()) return false;
  return tensor.storage()->pinned() || (tensor.device().is_host() && core_->is_pinned(tensor.data()));
}

bool DriverAccelerator::register_host_memory(void* address, size_t bytes) {
  return core_->register_host_memory(address, bytes);
}
void DriverAccelerator::unregister_host_memory(void* address) { core_->unregister_host_memory(address); }
size_t DriverAccelerator::pin_memory_alignment() const {
  return core_->instance().host_memory ? static_cast<size_t>(sysconf(_SC_PAGESIZE)) : 1;
}

// ---- work ------------------------------------------------------------------------------------------------------------

void DriverAccelerator::copy(void* destination, const void* source, size_t bytes, aa_copy_direction direction,
                             int index) {
  core_->copy(destination, source, bytes, direction, index);
}
bool DriverAccelerator::copy_between(void* destination, int to, const void* source, int from, size_t bytes) {
  return core_->copy_between(destination, to, source, from, bytes);
}
void DriverAccelerator::fill(void* destination, const void* pattern, size_t pattern_size, size_t bytes, int index) {
  core_->fill(destination, pattern, pattern_size, bytes, index);
}
int32_t DriverAccelerator::find_op(const char* op_name) { return core_->find_op(op_name); }
OpHandle DriverAccelerator::resolve_op(const aa_op_call& call, int index) { return core_->resolve_op(call, index); }
void DriverAccelerator::enqueue_op(OpHandle op, const aa_op_call& call, int index) {
  core_->enqueue_op(op, call, index);
}
Tensor DriverAccelerator::pack_weight(const aa_op_call& example, uint32_t tensor, const Tensor& weight) {
  return core_->pack_weight(example, tensor, weight);
}
CollectivesAccess DriverAccelerator::collectives(int index) { return core_->collectives(index); }
void DriverAccelerator::lazy_call(std::function<void()> callback) { core_->when_open(std::move(callback)); }

// ---- number formats, mixed precision --------------------------------------------------------------------------------

bool DriverAccelerator::is_bf16_supported() const {
  return device_properties(0).dtypes_computable >> AA_DTYPE_BF16 & 1;
}
bool DriverAccelerator::is_fp16_supported() const { return device_properties(0).dtypes_computable >> AA_DTYPE_F16 & 1; }
bool DriverAccelerator::is_fp64_supported() const { return device_properties(0).dtypes_computable >> AA_DTYPE_F64 & 1; }
bool DriverAccelerator::is_triton_supported() const { return caps() & AA_CAP_TRITON; }

bool DriverAccelerator::prefer_triton_grouped_mm() const {
  // From architecture 9.0 on the vendor's own product of grouped matrices is faster; before that it is a loop.
  const int major = is_triton_supported() ? compute_capability().first : 0;
  return major >= 7 && major < 9;
}

std::vector<DType> DriverAccelerator::supported_dtypes() const {
  std::vector<DType> dtypes{DType::F32};
  if (is_bf16_supported()) dtypes.push_back(DType::BF16);
  if (is_fp16_supported()) dtypes.push_back(DType::F16);
  return dtypes;
}

ScopeGuard DriverAccelerator::amp(DType dtype) {
  if (dtype != DType::None && dtype != DType::BF16 && dtype != DType::F16) {
    throw InvalidArgument("amp takes bfloat16 or float16 (or none, to switch it off), not " +
                          std::string(dtype_name(dtype)));
  }
  ThreadState& state = core_->thread();
  const DType previous = state.amp;
  state.amp = dtype;
  return ScopeGuard([this, previous](bool) { core_->thread().amp = previous; });
}

DType DriverAccelerator::amp_dtype() const noexcept { return core_->thread().amp; }

// ---- profiler, communication, builders, processes, compiling ---------------------------------------------------------

void DriverAccelerator::range_push(std::string_view message, std::string_view domain, std::string_view category) {
  trace_range_push(message, domain, category);
  // A profiler range must not open the device.
  const DriverInstance* runtime = core_->opened();
  if (!runtime || !runtime->profiler) return;
  release_status(runtime->profiler->range_push(runtime->instance, std::string(message).c_str(),
                                               std::string(domain).c_str(), std::string(category).c_str()));
}

void DriverAccelerator::range_pop(std::string_view domain) {
  trace_range_pop(domain);
  const DriverInstance* runtime = core_->opened();
  if (!runtime || !runtime->profiler) return;
  release_status(runtime->profiler->range_pop(runtime->instance, std::string(domain).c_str()));
}

std::string DriverAccelerator::communication_backend_name() const { return driver().communication_backend; }

std::string DriverAccelerator::communication_backend_version() const {
  if (!is_available()) return {};
  const DriverInstance& holder = core_->instance();
  if (!holder.collectives) return {};
  const char* library = nullptr;
  const char* version = nullptr;
  const StatusRef status(holder.collectives->library(holder.instance, &library, &version));
  return status.ok() ? version : "";
}

std::string DriverAccelerator::op_builder_dir() const {
  return builds_->ops_dir.empty() ? install_kernels_dir() : builds_->ops_dir;
}

std::vector<std::string> DriverAccelerator::op_builder_names() const {
  std::vector<std::string> names = known_op_builders();
  for (const DriverOpBuilder& builder : builds_->builders) {
    if (std::find(names.begin(), names.end(), builder.name) == names.end()) names.push_back(builder.name);
  }
  return names;
}

std::unique_ptr<OpBuilder> DriverAccelerator::create_op_builder(std::string_view builder_name) {
  if (const DriverOpBuilder* own = builds_->find(builder_name)) {
    if (auto builder = make_driver_op_builder(*own, *this)) return builder;
  }
  return make_op_builder(builder_name, *this);
}

OpBuilderFactory DriverAccelerator::get_op_builder(std::string_view builder_name) {
  if (!builds_->find(builder_name) && !is_known_op_builder(builder_name)) return {};
  return [this, name = std::string(builder_name)] { return create_op_builder(name); };
}

BuildExtension DriverAccelerator::build_extension() const {
  return builds_->toolchain ? *builds_->toolchain : host_build_extension();
}

std::vector<std::string> DriverAccelerator::export_envs() const { return split_list(driver().export_env_prefixes); }
std::vector<std::string> DriverAccelerator::visible_devices_envs() const {
  return split_list(driver().visible_devices_env);
}

void DriverAccelerator::set_visible_devices_envs(std::map<std::string, std::string>& env,
                                                 const std::vector<std::string>& ids) const {
  std::string joined;
  for (const std::string& id : ids) joined += (joined.empty() ? "" : ",") + id;
  for (const std::string& variable : visible_devices_envs()) env[variable] = joined;
}

std::string DriverAccelerator::get_compile_backend() const {
  const std::lock_guard lock(compile_mutex_);
  return compile_backend_;
}

void DriverAccelerator::set_compile_backend(const std::string& backend) {
  if (backend != "graph" && backend != "eager") {
    throw InvalidArgument("\"" + backend + "\" not supported by " + device_name() +
                          ". Supported Backends are graph, eager");
  }
  const std::lock_guard lock(compile_mutex_);
  compile_backend_ = backend;
}

}  // namespace anyaccel
