// Implements core.h: memory of devices through their allocators, memory of named kinds, page-locked host memory.
#include <algorithm>
#include <cstring>
#include <vector>

#include "anyaccel/driver_accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "runtime/core/core.h"
#include "runtime/core/storages.h"

namespace anyaccel {

namespace {

// Calls visit(info) for each kind of memory of the device until it returns true.
template <class Visit>
void visit_memory_kinds(const DriverInstance& instance, aa_device* device, Visit&& visit) {
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

std::vector<MemoryKind> DriverCore::memory_kinds(int index) {
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

std::shared_ptr<Storage> DriverCore::allocate_kind(std::string_view kind, size_t bytes, int index) {
  DeviceContext& c = context(index);
  int32_t number = -1;
  visit_memory_kinds(*c.instance, c.device, [&](const aa_memory_kind_info& info) {
    if (name_of(info) == kind) number = info.kind;
    return number >= 0;
  });
  if (number < 0) return nullptr;
  void* pointer = nullptr;
  c.call("mem_alloc", [&] { return driver_->mem_alloc(c.device, number, bytes, &pointer); });
  c.check_made(pointer, "mem_alloc");
  try {
    return std::make_shared<NamedStorage>(shared(c), number, pointer, bytes, Device{&accelerator_, c.index});
  } catch (...) {
    release_status(driver_->mem_free(c.device, number, pointer, bytes));
    throw;
  }
}

std::shared_ptr<Storage> DriverCore::allocate(size_t bytes, int index) {
  DeviceContext& c = context(index);
  const void* stream = current(c).stream();
  const Allocation allocation = c.allocator->allocate(bytes, stream, thread().pool);
  try {
    return std::make_shared<DriverStorage>(shared(c), allocation, bytes, stream, Device{&accelerator_, c.index});
  } catch (...) {
    c.allocator->deallocate(allocation, bytes, stream);
    throw;
  }
}

void DriverCore::release_cached_memory() noexcept {
  try {
    std::vector<std::shared_ptr<DeviceContext>> open;
    {
      std::lock_guard lock(mutex_);
      open = contexts_;
    }
    for (const auto& c : open) {
      if (c) c->allocator->empty_cache();
    }
  } catch (const std::exception& error) {
    log_warning(name_ + ": cached memory was not given back: " + error.what());
  }
}

int64_t DriverCore::living_objects() const {
  std::lock_guard lock(mutex_);
  int64_t living = 0;
  for (const auto& c : contexts_) {
    if (c) living += c.use_count() - 1 + c->default_stream_state.use_count() - 1;
  }
  return living;
}

void DriverCore::set_allocator(MakeAllocator make) {
  std::lock_guard lock(mutex_);
  for (const auto& c : contexts_) {
    if (!c) continue;
    throw InvalidArgument("set_allocator: " + c->name() +
                              " is open already, with an allocator of its own; set one before " +
                              "the accelerator's first device is used",
                          AA_FAILED_PRECONDITION);
  }
  make_allocator_ = std::move(make);
}

int64_t DriverCore::available_memory(int index) {
  DeviceContext& c = context(index);
  const AllocatorFigures figures = c.allocator->figures();
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
  aa_status* status = driver_->device_memory_info(c.device, &free_bytes, &total_bytes);
  if (status && status_code(status) == AA_UNIMPLEMENTED) {
    // In that case the total minus this process's share is the best available answer.
    release_status(status);
    return std::min(figures.available, std::max<int64_t>(0, c.props.total_memory - figures.reserved));
  }
  c.check(status, "device_memory_info");
  return std::min(figures.available, free_bytes);
}

std::shared_ptr<Storage> DriverCore::allocate_pinned(size_t bytes, bool required) {
  DeviceContext& c = context(current_device_index);
  void* pointer = nullptr;
  // Not repeated if it fails: what the operating system lets a process lock does not grow with the device's free memory.
  aa_status* status = driver_->mem_alloc(c.device, AA_MEMORY_PINNED, bytes, &pointer);
  if (!status) {
    c.check_made(pointer, "mem_alloc");
    return std::make_shared<PinnedStorage>(shared(c), pointer, bytes);
  }
  const bool lacks = status_code(status) == AA_UNIMPLEMENTED;
  if (required && !lacks) c.check(status, "pin_memory");
  const std::string text = name_ + ": pin_memory goes on with ordinary memory: " + status_message(status);
  release_status(status);
  // A function that the driver lacks will be missing the next time too.
  if (!lacks || !lacks_pinned_.exchange(true)) log_warning(text);
  return nullptr;
}

bool DriverCore::is_pinned(const void* pointer) {
  auto info = abi::sized<aa_memory_info>();
  aa_status* status = driver_->mem_query(instance().instance, pointer, &info);
  release_status(status);
  return status == nullptr && info.kind == AA_MEMORY_PINNED;
}

bool DriverCore::register_host_memory(void* address, size_t bytes) {
  if (!address || bytes == 0) throw InvalidArgument("register_host_memory: no memory was given");
  if (reinterpret_cast<uintptr_t>(address) + bytes < bytes) {
    throw InvalidArgument("register_host_memory: the range of " + std::to_string(bytes) +
                          " bytes goes beyond the end of the address space");
  }
  const auto* table = instance().host_memory;
  if (!table) return false;
  DeviceContext& c = context(current_device_index);
  auto what = abi::sized<aa_register>();
  what.pointer = address;
  what.size = bytes;
  auto registration = abi::sized<aa_registration>();
  StatusRef status(table->register_range(c.device, &what, &registration));
  if (status.code() == AA_UNIMPLEMENTED) return false;
  c.check(status.release(), "register_host_memory");
  std::lock_guard lock(mutex_);
  registered_[address] = c.index;
  return true;
}

void DriverCore::unregister_host_memory(void* address) {
  const auto* table = instance().host_memory;
  if (!table) return;
  int index = current_device_index;
  {
    std::lock_guard lock(mutex_);
    const auto found = registered_.find(address);
    if (found != registered_.end()) index = found->second;
  }
  DeviceContext& c = context(index);
  // Copies to or from the memory may still be in progress.
  c.check(driver_->device_synchronize(c.device), "unregister_host_memory");
  StatusRef status(table->unregister_range(c.device, address));
  if (status.code() == AA_UNIMPLEMENTED) return;
  c.check(status.release(), "unregister_host_memory");
  std::lock_guard lock(mutex_);
  registered_.erase(address);
}

}  // namespace anyaccel
