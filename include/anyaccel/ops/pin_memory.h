// Page-locked host memory: the library that "PinMemoryBuilder" loads.
//
// The memory is the accelerator's own (Accelerator::pin_memory), so that copies from and to it do not block, and it is
// shared by all op libraries that allocate it: this class also knows a tensor that ops::AsyncIO locked, on any thread.
// It is released when the last tensor on it is destroyed; free_cpu_locked_tensor() gives up one tensor, and can never
// leave another one dangling. All functions may be called from any thread.
#pragma once

#include <cstdint>

#include "anyaccel/accelerator.h"
#include "anyaccel/op_builder.h"
#include "anyaccel/tensor.h"

namespace anyaccel::ops {

class PinMemory : public OpLibrary {
 public:
  explicit PinMemory(Accelerator& accelerator) : accelerator_(accelerator) {}

  // Returns a one-dimensional, uninitialized, page-locked tensor. On an accelerator whose driver has no page-locked
  // memory it is in ordinary memory, and is_pinned() is false for it. Throws InvalidArgument for a negative number of
  // elements; OutOfMemoryError, which names `ulimit -l`, beyond the limit of the operating system.
  Tensor new_cpu_locked_tensor(int64_t num_elem, DType dtype);
  // The same, with the example's dtype.
  Tensor new_cpu_locked_tensor(int64_t num_elem, const Tensor& example);

  // Returns true, and empties the handle, if the tensor starts at the beginning of a region that
  // new_cpu_locked_tensor() allocated and that has not been freed; else returns false and changes nothing. The region
  // is no longer managed; its memory is released now, or with the last other tensor on it.
  bool free_cpu_locked_tensor(Tensor& tensor);
  // The same for a region's address. The memory is released with the last tensor on it.
  bool free_cpu_locked_tensor_by_ptr(const void* address);

  // True when every byte of the tensor, a view included, lies inside one region of new_cpu_locked_tensor().
  bool is_managed(const Tensor& tensor) const;
  // True when it is managed, or when the accelerator reports it as page-locked.
  bool is_pinned(const Tensor& tensor) const;

 private:
  Accelerator& accelerator_;
};

}  // namespace anyaccel::ops
