// Implements device_context.h: opening a device, memory for its allocator, services for its driver.
#include "runtime/core/device_context.h"

#include <algorithm>

#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "runtime/core/streams.h"

namespace anyaccel {

DeviceContext::DeviceContext(std::shared_ptr<DriverInstance> holder, const aa_device_props& device_props,
                             int device_index, const MakeAllocator& make)
    : instance(std::move(holder)), props(device_props), index(device_index) {
  const std::vector<aa_option> options = instance->options.for_device(index);
  auto params = abi::sized<aa_device_open_params>();
  params.index = index;
  params.host_device = this;
  params.options = options.data();
  params.option_count = static_cast<uint32_t>(options.size());
  check(driver().device_open(instance->instance, &params, &device), "device_open");
  check_made(device, "device_open");
  std::shared_ptr<DriverStream> state;
  try {
    allocator = make ? make(*this, *this) : std::make_unique<CachingAllocator>(*this, *this);
    if (!allocator) {
      throw InvalidArgument(name() + ": the function that was given to set_allocator() made no allocator");
    }
    state = std::make_shared<DriverStream>(*this, nullptr, 0, AA_STREAM_DEFAULT);
  } catch (...) {
    allocator.reset();
    release_status(driver().device_close(device));
    throw;
  }
  default_stream_state = state;
  default_stream = anyaccel::Stream(std::move(state));
}

DeviceContext::~DeviceContext() {
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

std::string DeviceContext::refusal() const { return latest_refusal; }

void* DeviceContext::allocate(size_t bytes) {
  void* pointer = nullptr;
  aa_status* status = driver().mem_alloc(device, AA_MEMORY_DEVICE, bytes, &pointer);
  if (status && status_code(status) == AA_RESOURCE_EXHAUSTED) {
    latest_refusal = status_message(status);
    release_status(status);
    return nullptr;
  }
  check(status, "mem_alloc");
  check_made(pointer, "mem_alloc");
  return pointer;
}

void DeviceContext::free(void* pointer, size_t bytes) noexcept {
  release_status(driver().mem_free(device, AA_MEMORY_DEVICE, pointer, bytes));
}

void DeviceContext::info(int64_t& free_bytes, int64_t& total_bytes) noexcept {
  free_bytes = 0;
  total_bytes = props.total_memory;
  release_status(driver().device_memory_info(device, &free_bytes, &total_bytes));
}

std::string DeviceContext::name() const {
  return props.caps & AA_CAP_IS_HOST ? instance->name : instance->name + ":" + std::to_string(index);
}

void DeviceContext::set_capturing(const void* stream, bool captures) {
  const std::lock_guard lock(capturing_mutex_);
  if (captures) {
    capturing_.push_back(stream);
  } else {
    std::erase(capturing_, stream);
  }
}

aa_status* DeviceContext::after_failure(aa_status* status, const std::function<aa_status*()>& again) {
  // The allocator's own calls do not retry here: the allocator releases memory by itself.
  if (status_code(status) != AA_RESOURCE_EXHAUSTED || inside_allocator > 0 || !allocator) return status;
  const StatusRef first(status);
  log_info(instance->name + ": out of a resource (" + std::string(first.message()) +
           "); cached memory is given back, and the call is made once more");
  allocator->empty_cache();
  return again();
}

// ---- services for the driver ----------------------------------------------------------------------------------------

void DeviceContext::acquire_scratch(aa_scratch& scratch) {
  scratch.owner = nullptr;
  if (inside_allocator > 0) {
    // The allocator called the driver and holds its own lock, so it cannot be called here.
    scratch.pointer = allocate(scratch.size);
    if (!scratch.pointer) throw OutOfMemoryError(name() + ": no scratch memory: " + refusal());
    return;
  }
  // Memory that is ordered by no stream has its own list of free blocks, whose key is the device's address.
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

void DeviceContext::release_scratch(aa_scratch& scratch) noexcept {
  if (!scratch.owner) {
    free(scratch.pointer, scratch.size);
    return;
  }
  const bool idle = (scratch.flags & AA_SCRATCH_IDLE) != 0;
  const void* key = idle ? static_cast<const void*>(this) : static_cast<const HostStream*>(scratch.stream)->stream;
  allocator->deallocate({scratch.pointer, scratch.owner == this ? nullptr : scratch.owner}, scratch.size, key);
}

size_t DeviceContext::reclaim() {
  if (inside_allocator > 0) return 0;
  const int64_t before = allocator->figures().reserved;
  allocator->empty_cache();
  return static_cast<size_t>(std::max<int64_t>(0, before - allocator->figures().reserved));
}

// ---- points in streams, for the allocator ----------------------------------------------------------------------------

void* DeviceContext::record(const void* stream) {
  if (stream == this) return nullptr;  // memory that is ordered by no stream is idle when it is freed
  const InsideAllocator inside;
  if (props.caps & AA_CAP_SYNCHRONOUS) return nullptr;
  // An event recorded inside a capture cannot be waited for; the allocator asks again later.
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
  check_made(event, "event_create");
  if (aa_status* status = driver().event_record(event, marked)) {
    release_status(driver().event_destroy(event));
    check(status, "event_record");
  }
  return event;
}

bool DeviceContext::done(void* fence) {
  if (!fence) return true;
  const InsideAllocator inside;
  int32_t finished = 0;
  check(driver().event_query(static_cast<aa_event*>(fence), &finished), "event_query");
  return finished != 0;
}

void DeviceContext::wait(void* fence) {
  if (!fence) return;
  const InsideAllocator inside;
  check(driver().event_synchronize(static_cast<aa_event*>(fence)), "event_synchronize");
}

void DeviceContext::destroy(void* fence) noexcept {
  if (fence) release_status(driver().event_destroy(static_cast<aa_event*>(fence)));
}

std::shared_ptr<detail::EventState> DeviceContext::make_event(bool timing) {
  if (timing && !(props.caps & AA_CAP_EVENT_TIMING)) return std::make_shared<HostEvent>();
  const uint32_t flags = timing ? AA_EVENT_TIMING : AA_EVENT_DEFAULT;
  aa_event* raw = nullptr;
  aa_status* status = driver().event_create(device, flags, &raw);
  if (status && status_code(status) == AA_UNIMPLEMENTED) [[unlikely]] {
    release_status(status);
    return std::make_shared<HostEvent>();
  }
  if (status) status = after_failure(status, [&] { return driver().event_create(device, flags, &raw); });
  check(status, "event_create");
  check_made(raw, "event_create");
  return std::make_shared<DriverEvent>(shared_from_this(), raw);
}

}  // namespace anyaccel
