// Memory behind tensors: the device's, page-locked, of a named kind, and weights in the driver's own layout. Each
// shares ownership of its device's context and frees the memory when it is destroyed.
#pragma once

#include <memory>
#include <mutex>

#include "anyaccel/error.h"
#include "anyaccel/tensor.h"
#include "base/copy_bytes.h"
#include "runtime/core/streams.h"

namespace anyaccel {

// Memory of the device's allocator.
class DriverStorage final : public Storage {
 public:
  DriverStorage(std::shared_ptr<DeviceContext> context, Allocation allocation, size_t bytes, const void* stream,
                Device device)
      : Storage(allocation.pointer, bytes, device),
        context_(std::move(context)),
        allocation_(allocation),
        stream_(stream) {}
  ~DriverStorage() override { context_->allocator->deallocate(allocation_, bytes(), stream_); }
  void record_stream(const anyaccel::Stream& stream) override {
    DriverStream& recorded = driver_stream(stream);
    const DeviceContext& other = recorded.context();
    if (&other != context_.get()) {
      throw InvalidArgument("record_stream: the tensor belongs to " + context_->name() + ", the stream to " +
                            other.name() +
                            (other.instance != context_->instance
                                 ? " of another accelerator"
                                 : "; let a stream of the tensor's device wait for an event of it instead"));
    }
    context_->allocator->record_stream(allocation_, recorded.stream());
  }

 private:
  std::shared_ptr<DeviceContext> context_;
  Allocation allocation_;
  const void* stream_;
};

// Page-locked host memory, straight from the driver.
class PinnedStorage final : public Storage {
 public:
  PinnedStorage(std::shared_ptr<DeviceContext> context, void* pointer, size_t bytes)
      : Storage(pointer, bytes, Device{}), context_(std::move(context)) {}
  ~PinnedStorage() override {
    if (ordinary_) return;
    // A copy to or from the memory may still be in progress.
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
    copy_bytes(ordinary->data(), data(), bytes());
    void* const locked = data();
    move_to(ordinary->data());
    ordinary_ = std::move(ordinary);
    context_->check(context_->driver().mem_free(context_->device, AA_MEMORY_PINNED, locked, bytes()), "unpin_memory");
    return true;
  }

 private:
  std::shared_ptr<DeviceContext> context_;
  std::shared_ptr<Storage> ordinary_;  // the storage of the bytes after they were unpinned
};

// Memory of a named kind, straight from the driver.
class NamedStorage final : public Storage {
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

class PackedStorage final : public Storage {
 public:
  // `memory` holds the packed form.
  PackedStorage(std::shared_ptr<DeviceContext> context, aa_packed* packed, Tensor memory, const Tensor& weight)
      : Storage(nullptr, weight.nbytes(), weight.device()),
        context_(std::move(context)),
        memory_(std::move(memory)),
        dtype_(weight.dtype()),
        shape_(weight.shape()) {
    set_packed(packed);
  }
  ~PackedStorage() override {
    // Ops that use the memory may still be running.
    if (!(context_->props.caps & AA_CAP_SYNCHRONOUS)) {
      release_status(context_->driver().device_synchronize(context_->device));
    }
    release_status(context_->instance->ops->packed_destroy(packed()));
  }
  void record_stream(const anyaccel::Stream& stream) override { memory_.storage()->record_stream(stream); }
  bool is_all_of(const Tensor& tensor) const noexcept override {
    return tensor.storage_offset() == 0 && tensor.dtype() == dtype_ && tensor.shape() == shape_ &&
           tensor.is_contiguous();
  }
  Tensor unpacked(bool keep) const override {
    std::unique_lock lock(mutex_, std::defer_lock);
    if (keep) {
      lock.lock();
      if (kept_) return kept_;
    }
    Accelerator& accelerator = *device().accelerator;
    Tensor plain = Tensor::empty(shape_, dtype_, device());
    const aa_tensor view = plain.view_for_driver();
    const anyaccel::Stream& current = accelerator.current_stream(device().index);
    memory_.storage()->record_stream(current);
    {
      const StreamUse use(driver_stream(current));
      context_->call("ops.unpack", [&] { return context_->instance->ops->unpack(use.handle(), packed(), &view); });
    }
    if (keep && !accelerator.is_current_stream_capturing(device().index)) {
      current.synchronize();  // other streams will use it
      kept_ = plain;
    }
    return plain;
  }

 private:
  std::shared_ptr<DeviceContext> context_;
  Tensor memory_;
  DType dtype_;
  Shape shape_;
  mutable std::mutex mutex_;
  mutable Tensor kept_;  // mutex_
};

}  // namespace anyaccel
