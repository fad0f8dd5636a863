// Reads files into device memory and writes them from it: the library that "GDSBuilder" loads, with DeepSpeed's names.
//
// A handle has all functions of AioHandle (anyaccel/ops/async_io.h), with the same meaning, and device memory that is
// kept ready for transfers. Contiguous tensors of the accelerator go directly between disk and device where its driver
// offers that (anyaccel/abi/files.h; is_direct() reports it) and supports the file; the driver then decides how a
// transfer is split, and block_size and queue_depth do not count. Everything else works as in AsyncIO: memory that the
// host can access is read and written in place, and other memory goes through page-locked host memory.
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

  // Returns whether the accelerator can transfer device tensors without passing through host memory. It may still
  // refuse single files, by their file system for example, which then go through host memory.
  bool is_direct() const noexcept;

  // Returns a one-dimensional, uninitialized, pinned tensor with the example's dtype; on the example's device if that
  // is one of the accelerator's, else on the current device.
  Tensor new_pinned_device_tensor(int64_t num_elem, const Tensor& example);
  // Unpins the tensor and empties the handle; its memory is released with the last tensor on it. InvalidArgument if it
  // is not pinned.
  bool free_pinned_device_tensor(Tensor& tensor);
  // Keeps the memory of a contiguous tensor of the accelerator ready for transfers, with any tensor of the same address
  // and size, until it is unpinned. Throws InvalidArgument if it lies elsewhere, or is already pinned; the driver's
  // error (OutOfMemoryError) if it can prepare no more memory. Returns true.
  bool pin_device_tensor(const Tensor& tensor);
  // Unpins the tensor, when the transfers that were started are done. Throws InvalidArgument if it is not pinned.
  // Returns true.
  bool unpin_device_tensor(const Tensor& tensor);
  // Returns whether the tensor lies in a pinned tensor's memory.
  bool is_pinned_device_tensor(const Tensor& tensor) const;

 private:
  friend class GDS;
  struct Pins;
  GdsHandle(AioHandle handle, Accelerator& accelerator, std::shared_ptr<aio::DeviceFiles> files);
  std::unique_ptr<Pins> pins_;
};

class GDS : public OpLibrary {
 public:
  explicit GDS(Accelerator& accelerator) : accelerator_(accelerator) {}

  // Arguments and errors are those of AsyncIO::aio_handle().
  GdsHandle gds_handle(int64_t block_size = int64_t{1} << 20, int queue_depth = 128, bool single_submit = false,
                       bool overlap_events = false, int intra_op_parallelism = 1) const;

 private:
  Accelerator& accelerator_;
};

}  // namespace anyaccel::ops
