// DriverAccelerator: device memory through the device's allocator, page-locked host memory, copies and fills.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "base/process_memory.h"
#include "runtime/driver/driver_accelerator_impl.h"
#include "runtime/tensor/tensor_layout.h"

namespace anyaccel {

DriverAccelerator::DeviceContext::DeviceContext(std::shared_ptr<InstanceHolder> holder,
                                                const aa_device_props& device_props, int device_index,
                                                const MakeAllocator& make)
    : instance(std::move(holder)), props(device_props), index(device_index) {
  const std::vector<aa_option> options = instance->options.for_device(index);
  auto params = abi::sized<aa_device_open_params>();
  params.index = index;
  params.host_device = this;
  params.options = options.data();
  params.option_count = static_cast<uint32_t>(options.size());
  check(driver().device_open(instance->instance, &params, &device), "device_open");
  std::shared_ptr<StreamImpl> state;
  try {
    allocator = make ? make(*this, *this) : std::make_unique<CachingAllocator>(*this, *this);
    if (!allocator) {
      throw InvalidArgument(name() + ": the function that was given to set_allocator() made no allocator");
    }
    state = std::make_shared<StreamImpl>(*this, nullptr, 0, AA_STREAM_DEFAULT);
  } catch (...) {
    allocator.reset();
    release_status(driver().device_close(device));
    throw;
  }
  default_stream_state = state;
  default_stream = anyaccel::Stream(std::move(state));
}

DriverAccelerator::DeviceContext::~DeviceContext() {
  // Work of other streams may still use memory that is about to be freed.
  release_status(driver().device_synchronize(device));
  allocator.reset();
  default_stream = {};
  release_status(driver().device_close(device));
}

namespace {

thread_local std::string latest_refusal;

// The depth of this thread's calls from the allocator to its sources, in which a driver may ask for scratch memory.
thread_local int inside_allocator = 0;
struct InsideAllocator {
  InsideAllocator() { ++inside_allocator; }
  ~InsideAllocator() { --inside_allocator; }
  InsideAllocator(const InsideAllocator&) = delete;
  InsideAllocator& operator=(const InsideAllocator&) = delete;
};

}  // namespace

std::string DriverAccelerator::DeviceContext::refusal() const { return latest_refusal; }

void* DriverAccelerator::DeviceContext::allocate(size_t bytes) {
  void* pointer = nullptr;
  aa_status* status = driver().mem_alloc(device, AA_MEMORY_DEVICE, bytes, &pointer);
  if (status && status_code(status) == AA_RESOURCE_EXHAUSTED) {
    latest_refusal = status_message(status);
    release_status(status);
    return nullptr;
  }
  check(status, "mem_alloc");
  return pointer;
}

void DriverAccelerator::DeviceContext::free(void* pointer, size_t bytes) noexcept {
  release_status(driver().mem_free(device, AA_MEMORY_DEVICE, pointer, bytes));
}

void DriverAccelerator::DeviceContext::info(int64_t& free_bytes, int64_t& total_bytes) noexcept {
  free_bytes = 0;
  total_bytes = props.total_memory;
  release_status(driver().device_memory_info(device, &free_bytes, &total_bytes));
}

std::string DriverAccelerator::DeviceContext::name() const {
  return props.caps & AA_CAP_IS_HOST ? instance->name : instance->name + ":" + std::to_string(index);
}

void DriverAccelerator::DeviceContext::set_capturing(const void* stream, bool captures) {
  const std::lock_guard lock(capturing_mutex_);
  if (captures) {
    capturing_.push_back(stream);
  } else {
    std::erase(capturing_, stream);
  }
}

aa_status* DriverAccelerator::DeviceContext::after_failure(aa_status* status,
                                                           const std::function<aa_status*()>& again) {
  // Inside the allocator its own calls come through here no second time: it releases memory by itself.
  if (status_code(status) != AA_RESOURCE_EXHAUSTED || inside_allocator > 0 || !allocator) return status;
  const StatusRef first(status);
  log_info(instance->name + ": out of a resource (" + std::string(first.message()) +
           "); cached memory is given back, and the call is made once more");
  allocator->empty_cache();
  return again();
}

// ---- services for the driver ----------------------------------------------------------------------------------------

void DriverAccelerator::DeviceContext::acquire_scratch(aa_scratch& scratch) {
  scratch.owner = nullptr;
  if (inside_allocator > 0) {
    // The driver was called by the allocator, which holds its lock: it cannot be asked.
    scratch.pointer = allocate(scratch.size);
    if (!scratch.pointer) throw OutOfMemoryError(name() + ": no scratch memory: " + refusal());
    return;
  }
  // Memory that no stream orders has a list of free blocks of its own, under the device's address.
  const void* key = this;
  uint64_t pool = 0;
  if (!(scratch.flags & AA_SCRATCH_IDLE)) {
    const auto* stream = static_cast<const HostStream*>(scratch.stream);
    key = stream->stream;
    if (!key) throw InvalidArgument("scratch memory was asked for before the stream was made");
    if (stream->gate && stream->gate->closed()) {
      if (const auto owner = stream->gate->owner()) pool = static_cast<const CaptureScope&>(*owner).pool;
    }
  }
  const Allocation given = allocator->allocate(scratch.size, key, pool);
  scratch.owner = given.handle;
  scratch.pointer = given.pointer;
  if (!scratch.owner) scratch.owner = this;  // an allocator without handles
}

void DriverAccelerator::DeviceContext::release_scratch(aa_scratch& scratch) noexcept {
  if (!scratch.owner) {
    free(scratch.pointer, scratch.size);
    return;
  }
  const bool idle = (scratch.flags & AA_SCRATCH_IDLE) != 0;
  const void* key = idle ? static_cast<const void*>(this) : static_cast<const HostStream*>(scratch.stream)->stream;
  allocator->deallocate({scratch.pointer, scratch.owner == this ? nullptr : scratch.owner}, scratch.size, key);
}

size_t DriverAccelerator::DeviceContext::reclaim() {
  if (inside_allocator > 0) return 0;
  const int64_t before = allocator->figures().reserved;
  allocator->empty_cache();
  return static_cast<size_t>(std::max<int64_t>(0, before - allocator->figures().reserved));
}

// ---- points in streams, for the allocator ----------------------------------------------------------------------------

void* DriverAccelerator::DeviceContext::record(const void* stream) {
  if (stream == this) return nullptr;  // memory that no stream orders is idle when it is freed
  const InsideAllocator inside;
  if (props.caps & AA_CAP_SYNCHRONOUS) return nullptr;
  // A point of a capture is none that can be waited for; the allocator asks again later.
  const std::lock_guard lock(capturing_mutex_);
  if (std::find(capturing_.begin(), capturing_.end(), stream) != capturing_.end()) {
    throw InvalidArgument("the stream is capturing a graph", AA_FAILED_PRECONDITION);
  }
  auto* const marked = static_cast<aa_stream*>(const_cast<void*>(stream));
  aa_event* event = nullptr;
  if (aa_status* status = driver().event_create(device, AA_EVENT_DEFAULT, &event)) {
    if (status_code(status) != AA_UNIMPLEMENTED) check(status, "event_create");
    release_status(status);
    check(driver().stream_synchronize(marked), "stream_synchronize");  // then there is nothing to wait for
    return nullptr;
  }
  if (aa_status* status = driver().event_record(event, marked)) {
    release_status(driver().event_destroy(event));
    check(status, "event_record");
  }
  return event;
}

bool DriverAccelerator::DeviceContext::done(void* fence) {
  if (!fence) return true;
  const InsideAllocator inside;
  int32_t finished = 0;
  check(driver().event_query(static_cast<aa_event*>(fence), &finished), "event_query");
  return finished != 0;
}

void DriverAccelerator::DeviceContext::wait(void* fence) {
  if (!fence) return;
  const InsideAllocator inside;
  check(driver().event_synchronize(static_cast<aa_event*>(fence)), "event_synchronize");
}

void DriverAccelerator::DeviceContext::destroy(void* fence) noexcept {
  if (fence) release_status(driver().event_destroy(static_cast<aa_event*>(fence)));
}

// Memory of the device's allocator.
class DriverAccelerator::DriverStorage final : public Storage {
 public:
  DriverStorage(std::shared_ptr<DeviceContext> context, Allocation allocation, size_t bytes, const void* stream,
                Device device)
      : Storage(allocation.pointer, bytes, device),
        context_(std::move(context)),
        allocation_(allocation),
        stream_(stream) {}
  ~DriverStorage() override { context_->allocator->deallocate(allocation_, bytes(), stream_); }
  void record_stream(const anyaccel::Stream& stream) override {
    aa_stream* recorded = handle(stream);
    const DeviceContext& other = static_cast<const StreamImpl&>(*stream.state()).context();
    if (&other != context_.get()) {
      throw InvalidArgument("record_stream: the tensor belongs to " + context_->name() + ", the stream to " +
                            other.name() +
                            (other.instance != context_->instance
                                 ? " of another accelerator"
                                 : "; let a stream of the tensor's device wait for an event of it instead"));
    }
    context_->allocator->record_stream(allocation_, recorded);
  }

 private:
  std::shared_ptr<DeviceContext> context_;
  Allocation allocation_;
  const void* stream_;
};

// Page-locked host memory, straight from the driver.
class DriverAccelerator::PinnedStorage final : public Storage {
 public:
  PinnedStorage(std::shared_ptr<DeviceContext> context, void* pointer, size_t bytes)
      : Storage(pointer, bytes, Device{}), context_(std::move(context)) {}
  ~PinnedStorage() override {
    if (ordinary_) return;
    // A copy to or from it may still be under way.
    if (!(context_->props.caps & AA_CAP_SYNCHRONOUS)) {
      release_status(context_->driver().device_synchronize(context_->device));
    }
    release_status(context_->driver().mem_free(context_->device, AA_MEMORY_PINNED, data(), bytes()));
  }
  bool pinned() const noexcept override { return !ordinary_; }
  bool unpin() override {
    if (ordinary_) return false;
    std::shared_ptr<Storage> ordinary = Tensor::empty(Shape{static_cast<int64_t>(bytes())}, DType::U8).storage();
    context_->check(context_->driver().device_synchronize(context_->device), "unpin_memory");
    std::memcpy(ordinary->data(), data(), bytes());
    void* const locked = data();
    move_to(ordinary->data());
    ordinary_ = std::move(ordinary);
    context_->check(context_->driver().mem_free(context_->device, AA_MEMORY_PINNED, locked, bytes()), "unpin_memory");
    return true;
  }

 private:
  std::shared_ptr<DeviceContext> context_;
  std::shared_ptr<Storage> ordinary_;  // what holds the bytes once they are unpinned
};

// Memory of a named kind, straight from the driver.
class DriverAccelerator::NamedStorage final : public Storage {
 public:
  NamedStorage(std::shared_ptr<DeviceContext> context, int32_t kind, void* pointer, size_t bytes, Device device)
      : Storage(pointer, bytes, device), context_(std::move(context)), kind_(kind) {
    count(static_cast<int64_t>(bytes));
  }
  ~NamedStorage() override {
    release_status(context_->driver().device_synchronize(context_->device));
    release_status(context_->driver().mem_free(context_->device, kind_, data(), bytes()));
    count(-static_cast<int64_t>(bytes()));
  }

 private:
  void count(int64_t bytes) {
    const std::lock_guard lock(context_->named_mutex);
    context_->named_bytes[kind_] += bytes;
  }

  std::shared_ptr<DeviceContext> context_;
  int32_t kind_;
};

std::shared_ptr<Storage> DriverAccelerator::allocate(size_t bytes, int index) {
  DeviceContext& c = context(index);
  const void* stream = handle(current_stream(c.index));
  const Allocation allocation = c.allocator->allocate(bytes, stream, thread_state().pool);
  try {
    return std::make_shared<DriverStorage>(shared_->contexts[static_cast<size_t>(c.index)], allocation, bytes, stream,
                                           Device{this, c.index});
  } catch (...) {
    c.allocator->deallocate(allocation, bytes, stream);
    throw;
  }
}

void DriverAccelerator::copy(void* destination, const void* source, size_t bytes, aa_copy_direction direction,
                             int index) {
  if (bytes == 0) return;
  DeviceContext& c = context(index);
  const StreamUse use(current_stream(c.index));
  c.call("copy_async", [&] { return driver_->copy_async(use.handle(), destination, source, bytes, direction); });
}

bool DriverAccelerator::copy_between(void* destination, int to, const void* source, int from, size_t bytes) {
  instance();
  const auto* peer = shared_->instance->peer;
  if (!peer) return false;
  DeviceContext& there = context(to);
  DeviceContext& here = context(from);
  int32_t possible = 0;
  there.check(peer->can_copy(there.device, here.device, &possible), "can_copy");
  if (!possible) return false;
  if (bytes == 0) return true;
  const anyaccel::Stream& source_stream = current_stream(here.index);
  const anyaccel::Stream& stream = current_stream(there.index);
  stream.wait_event(source_stream.record_event());
  auto what = abi::sized<aa_peer_copy>();
  what.destination_device = there.device;
  what.source_device = here.device;
  what.destination = destination;
  what.source = source;
  what.size = bytes;
  {
    const StreamUse use(stream);
    there.call("peer copy_async", [&] { return peer->copy_async(use.handle(), &what); });
  }
  source_stream.wait_event(stream.record_event());
  return true;
}

void DriverAccelerator::fill(void* destination, const void* pattern, size_t pattern_size, size_t bytes, int index) {
  if (bytes == 0) return;
  DeviceContext& c = context(index);
  const StreamUse use(current_stream(c.index));
  if (!c.lacks_fill.load(std::memory_order_relaxed)) {
    aa_status* status = driver_->fill_async(use.handle(), destination, pattern, pattern_size, bytes);
    if (status_code(status) != AA_UNIMPLEMENTED) {
      if (status) {
        status = c.after_failure(
            status, [&] { return driver_->fill_async(use.handle(), destination, pattern, pattern_size, bytes); });
      }
      c.check(status, "fill_async");
      return;
    }
    release_status(status);
    c.lacks_fill.store(true, std::memory_order_relaxed);
  }
  if (is_current_stream_capturing(c.index)) {
    throw NotImplementedError(c.name() +
                              ": a fill cannot be captured in a graph: the driver has none, and memory is filled by "
                              "copies that the host waits for");
  }
  // Copies of the pattern. Their source is complete when they are, so the host waits.
  if (pattern_size == 0 || bytes % pattern_size != 0) {
    throw InvalidArgument("fill: " + std::to_string(bytes) + " bytes are no multiple of a pattern of " +
                          std::to_string(pattern_size));
  }
  const size_t piece = std::min(bytes, (size_t{1} << 20) / pattern_size * pattern_size);
  std::vector<unsigned char> repeated(piece);
  for (size_t i = 0; i < piece; ++i) repeated[i] = static_cast<const unsigned char*>(pattern)[i % pattern_size];
  for (size_t done = 0; done < bytes; done += piece) {
    c.call("copy_async", [&] {
      return driver_->copy_async(use.handle(), static_cast<unsigned char*>(destination) + done, repeated.data(),
                                 std::min(piece, bytes - done), AA_COPY_HOST_TO_DEVICE);
    });
  }
  c.check(driver_->stream_synchronize(use.handle()), "stream_synchronize");
}

void DriverAccelerator::release_cached_memory() noexcept {
  try {
    std::vector<std::shared_ptr<DeviceContext>> open;
    {
      std::lock_guard lock(shared_->mutex);
      open = shared_->contexts;
    }
    for (const auto& c : open) {
      if (c) c->allocator->empty_cache();
    }
  } catch (const std::exception& error) {
    log_warning(name_ + ": cached memory was not given back: " + error.what());
  }
}

int64_t DriverAccelerator::living_objects() const {
  std::lock_guard lock(shared_->mutex);
  int64_t living = 0;
  for (const auto& c : shared_->contexts) {
    if (c) living += c.use_count() - 1 + c->default_stream_state.use_count() - 1;
  }
  return living;
}

void DriverAccelerator::set_allocator(MakeAllocator make) {
  std::lock_guard lock(shared_->mutex);
  for (const auto& c : shared_->contexts) {
    if (!c) continue;
    throw InvalidArgument("set_allocator: " + c->name() +
                              " is open already, with an allocator of its own; set one before " +
                              "the accelerator's first device is used",
                          AA_FAILED_PRECONDITION);
  }
  shared_->make_allocator = std::move(make);
}

// ---- statistics ----------------------------------------------------------------------------------------------------

void DriverAccelerator::empty_cache() { context(current_device_index).allocator->empty_cache(); }
int64_t DriverAccelerator::memory_allocated(int index) { return context(index).allocator->figures().allocated; }
int64_t DriverAccelerator::max_memory_allocated(int index) { return context(index).allocator->figures().max_allocated; }
void DriverAccelerator::reset_max_memory_allocated(int index) {
  context(index).allocator->reset_peaks(DeviceAllocator::Peak::Allocated);
}
int64_t DriverAccelerator::memory_cached(int index) { return memory_reserved(index); }
int64_t DriverAccelerator::max_memory_cached(int index) { return max_memory_reserved(index); }
void DriverAccelerator::reset_max_memory_cached(int index) {
  context(index).allocator->reset_peaks(DeviceAllocator::Peak::Reserved);
}
int64_t DriverAccelerator::memory_reserved(int index) { return context(index).allocator->figures().reserved; }
int64_t DriverAccelerator::max_memory_reserved(int index) { return context(index).allocator->figures().max_reserved; }

std::map<std::string, int64_t> DriverAccelerator::memory_stats(int index) {
  const DeviceContext& c = context(index);
  auto stats = c.allocator->stats();
  if (c.props.caps & AA_CAP_IS_HOST) {
    const ProcessMemory memory = process_memory();
    stats["process_rss.current"] = memory.resident;
    stats["process_rss.peak"] = memory.peak_resident;
  }
  return stats;
}

void DriverAccelerator::reset_peak_memory_stats(int index) {
  context(index).allocator->reset_peaks(DeviceAllocator::Peak::Both);
}
int64_t DriverAccelerator::total_memory(int index) { return device_properties(index).total_memory; }

int64_t DriverAccelerator::available_memory(int index) {
  DeviceContext& c = context(index);
  const AllocatorFigures figures = c.allocator->figures();
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
  aa_status* status = driver_->device_memory_info(c.device, &free_bytes, &total_bytes);
  if (status && status_code(status) == AA_UNIMPLEMENTED) {
    // The total minus this process's share is the best answer then.
    release_status(status);
    return std::min(figures.available, std::max<int64_t>(0, c.props.total_memory - figures.reserved));
  }
  c.check(status, "device_memory_info");
  return std::min(figures.available, free_bytes);
}

// ---- named kinds of memory -------------------------------------------------------------------------------------------

namespace {

// Calls visit(info) for each kind of the device until it is true.
template <class Visit>
void visit_memory_kinds(const InstanceHolder& instance, aa_device* device, Visit&& visit) {
  const auto* table = instance.memory_kinds;
  if (!table) return;
  int32_t count = 0;
  check(table->count(device, &count), "memory_kinds count", instance.name.c_str());
  for (int32_t i = 0; i < count; ++i) {
    auto info = abi::sized<aa_memory_kind_info>();
    check(table->info(device, i, &info), "memory_kinds info", instance.name.c_str());
    if (visit(info)) return;
  }
}

std::string name_of(const aa_memory_kind_info& info) { return {info.name, strnlen(info.name, sizeof(info.name))}; }

}  // namespace

std::vector<MemoryKind> DriverAccelerator::memory_kinds(int index) {
  DeviceContext& c = context(index);
  std::vector<MemoryKind> kinds;
  visit_memory_kinds(*c.instance, c.device, [&](const aa_memory_kind_info& info) {
    MemoryKind kind;
    kind.name = name_of(info);
    kind.host_access = (info.access & AA_ACCESS_HOST) != 0;
    kind.for_ops = (info.access & AA_ACCESS_KERNELS) != 0;
    kind.numa_node = info.numa_node;
    c.check(c.instance->memory_kinds->usage(c.device, info.kind, &kind.free, &kind.total), "memory_kinds usage");
    {
      const std::lock_guard lock(c.named_mutex);
      const auto found = c.named_bytes.find(info.kind);
      if (found != c.named_bytes.end()) kind.allocated = found->second;
    }
    kinds.push_back(std::move(kind));
    return false;
  });
  return kinds;
}

Tensor DriverAccelerator::empty_in(std::string_view memory_kind, const Shape& shape, DType dtype, int index) {
  DeviceContext& c = context(index);
  int32_t number = -1;
  visit_memory_kinds(*c.instance, c.device, [&](const aa_memory_kind_info& info) {
    if (name_of(info) == memory_kind) number = info.kind;
    return number >= 0;
  });
  if (number < 0) return Accelerator::empty_in(memory_kind, shape, dtype, index);  // throws
  if (dtype_size(dtype) == 0) throw InvalidArgument("empty_in: elements of the dtype have no size");
  const size_t bytes = std::max<size_t>(static_cast<size_t>(shape.numel()) * dtype_size(dtype), 1);
  void* pointer = nullptr;
  c.call("mem_alloc", [&] { return driver_->mem_alloc(c.device, number, bytes, &pointer); });
  std::shared_ptr<Storage> storage;
  try {
    storage = std::make_shared<NamedStorage>(shared_->contexts[static_cast<size_t>(c.index)], number, pointer, bytes,
                                             Device{this, c.index});
  } catch (...) {
    release_status(driver_->mem_free(c.device, number, pointer, bytes));
    throw;
  }
  const Strides strides = contiguous_strides(shape);
  return Tensor(std::move(storage), dtype, shape,
                std::span<const int64_t>(strides).first(static_cast<size_t>(shape.ndim())));
}

// ---- page-locked host memory -----------------------------------------------------------------------------------------

bool DriverAccelerator::on_accelerator(const Tensor& tensor) const {
  if (!tensor) return false;
  const Device place = tensor.device();
  return place.accelerator == this || (place.is_host() && (caps() & AA_CAP_IS_HOST));
}

Tensor DriverAccelerator::pin_memory(const Tensor& tensor, bool make_copy, bool match_shape, bool required) {
  if (!tensor) throw InvalidArgument("pin_memory: the tensor is empty");
  const Shape shape = match_shape ? tensor.shape() : Shape{tensor.numel()};
  DeviceContext& c = context(current_device_index);
  const size_t bytes = std::max<size_t>(tensor.nbytes(), 1);
  void* pointer = nullptr;
  aa_status* status = driver_->mem_alloc(c.device, AA_MEMORY_PINNED, bytes, &pointer);
  Tensor pinned;
  if (status == nullptr) {
    auto storage = std::make_shared<PinnedStorage>(shared_->contexts[static_cast<size_t>(c.index)], pointer, bytes);
    const Strides strides = contiguous_strides(shape);
    pinned = Tensor(std::move(storage), tensor.dtype(), shape,
                    std::span<const int64_t>(strides).first(static_cast<size_t>(shape.ndim())));
  } else if (required && status_code(status) != AA_UNIMPLEMENTED) {
    c.check(status, "pin_memory");
  } else {
    const std::string text = name_ + ": pin_memory goes on with ordinary memory: " + status_message(status);
    const bool lacks = status_code(status) == AA_UNIMPLEMENTED;
    release_status(status);
    // What the driver does not have, it will not have the next time either.
    if (!lacks || !shared_->lacks_pinned.exchange(true)) log_warning(text);
    pinned = Tensor::empty(shape, tensor.dtype());
  }
  if (make_copy) pinned.view(tensor.shape()).copy_from(tensor);
  return pinned;
}

bool DriverAccelerator::is_pinned(const Tensor& tensor) const {
  if (!tensor || !tensor.storage()) return false;
  if (tensor.storage()->pinned()) return true;
  if (!tensor.device().is_host()) return false;
  instance();
  aa_memory_info info{};
  info.struct_size = sizeof(info);
  aa_status* status = driver_->mem_query(instance(), tensor.data(), &info);
  release_status(status);
  return status == nullptr && info.kind == AA_MEMORY_PINNED;
}

bool DriverAccelerator::register_host_memory(void* address, size_t bytes) {
  if (!address || bytes == 0) throw InvalidArgument("register_host_memory: no memory was given");
  instance();
  const auto* table = shared_->instance->host_memory;
  if (!table) return false;
  DeviceContext& c = context(current_device_index);
  auto what = abi::sized<aa_register>();
  what.pointer = address;
  what.size = bytes;
  auto registration = abi::sized<aa_registration>();
  StatusRef status(table->register_range(c.device, &what, &registration));
  if (status.code() == AA_UNIMPLEMENTED) return false;
  c.check(status.release(), "register_host_memory");
  std::lock_guard lock(shared_->mutex);
  shared_->registered[address] = c.index;
  return true;
}

void DriverAccelerator::unregister_host_memory(void* address) {
  instance();
  const auto* table = shared_->instance->host_memory;
  if (!table) return;
  int index = current_device();
  {
    std::lock_guard lock(shared_->mutex);
    const auto found = shared_->registered.find(address);
    if (found != shared_->registered.end()) index = found->second;
  }
  DeviceContext& c = context(index);
  // Copies to or from it may still be under way.
  c.check(driver_->device_synchronize(c.device), "unregister_host_memory");
  StatusRef status(table->unregister_range(c.device, address));
  if (status.code() == AA_UNIMPLEMENTED) return;
  c.check(status.release(), "unregister_host_memory");
  std::lock_guard lock(shared_->mutex);
  shared_->registered.erase(address);
}

size_t DriverAccelerator::pin_memory_alignment() const {
  instance();
  return shared_->instance->host_memory ? static_cast<size_t>(sysconf(_SC_PAGESIZE)) : 1;
}

}  // namespace anyaccel
