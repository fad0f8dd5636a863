// Files read into a device's memory and written from it: the library that "GDSBuilder" loads, under DeepSpeed's names.
//
// A handle has everything that AioHandle has (anyaccel/ops/async_io.h), with the same meaning, and device memory that is kept
// ready for transfers. Transfers take the way of AsyncIO on every accelerator: memory that the host reaches is read and written in
// place, an accelerator's own goes through page-locked host memory. The direct way between a disk and a device that one vendor's
// library offers is not used: is_direct() says so.
#pragma once

#include <cstdint>
#include <memory>

#include "anyaccel/op_builder.h"
#include "anyaccel/ops/async_io.h"
#include "anyaccel/tensor.h"

namespace anyaccel::ops {

class GdsHandle : public AioHandle {
 public:
  GdsHandle(GdsHandle&&) noexcept;
  GdsHandle& operator=(GdsHandle&&) noexcept;
  ~GdsHandle();

  // Returns whether transfers of pinned device tensors go between disk and device without passing through host memory.
  bool is_direct() const noexcept { return false; }

  // One-dimensional, uninitialized, of the example's dtype, pinned; on the example's device where that is one of the
  // accelerator's, else on the current device.
  Tensor new_pinned_device_tensor(int64_t num_elem, const Tensor& example);
  // Unpins the tensor and empties the handle; its memory is released with the last tensor on it. InvalidArgument if it
  // is not pinned.
  bool free_pinned_device_tensor(Tensor& tensor);
  // Keeps the memory of a contiguous tensor of the accelerator for transfers until it is unpinned, by every tensor of
  // the same address and size. InvalidArgument if it lies elsewhere, or is pinned already. Returns true.
  bool pin_device_tensor(const Tensor& tensor);
  // InvalidArgument where it is not pinned. Returns true.
  bool unpin_device_tensor(const Tensor& tensor);
  // Returns whether the tensor lies in a pinned tensor's memory.
  bool is_pinned_device_tensor(const Tensor& tensor) const;

 private:
  friend class GDS;
  struct Pins;
  GdsHandle(AioHandle handle, Accelerator& accelerator);
  std::unique_ptr<Pins> pins_;
};

class GDS : public OpLibrary {
 public:
  explicit GDS(Accelerator& accelerator) : accelerator_(accelerator) {}

  // Arguments as those of AsyncIO::aio_handle(), with its errors.
  GdsHandle gds_handle(int64_t block_size = int64_t{1} << 20, int queue_depth = 128, bool single_submit = false,
                       bool overlap_events = false, int intra_op_parallelism = 1) const;

 private:
  Accelerator& accelerator_;
};

}  // namespace anyaccel::ops
