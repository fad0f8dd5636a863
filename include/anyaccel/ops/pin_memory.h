// Page-locked host memory: the library that "PinMemoryBuilder" loads.
//
// The memory is the accelerator's own (Accelerator::pin_memory), so that copies from and to it do not block, and it is
// shared by every op library that hands some out: a tensor that ops::AsyncIO locked is known here too, in every thread.
// It is released when the last tensor on it is destroyed; free_cpu_locked_tensor() gives up one tensor, and can never
// leave another dangling. All functions may be called from any thread.
#pragma once

#include <cstdint>

#include "anyaccel/accelerator.h"
#include "anyaccel/op_builder.h"
#include "anyaccel/tensor.h"

namespace anyaccel::ops {

class PinMemory : public OpLibrary {
 public:
  explicit PinMemory(Accelerator& accelerator) : accelerator_(accelerator) {}

  // One-dimensional, uninitialized, page-locked, at a page's boundary. InvalidArgument for a negative number of
  // elements; OutOfMemoryError that names `ulimit -l` over the limit of the operating system.
  Tensor new_cpu_locked_tensor(int64_t num_elem, DType dtype);
  // The same, of the example's dtype.
  Tensor new_cpu_locked_tensor(int64_t num_elem, const Tensor& example);

  // True, and the handle is empty afterwards, when it starts at the beginning of a region that new_cpu_locked_tensor()
  // made and nobody freed yet; else false, and nothing is changed. The region is no longer managed; its memory is given
  // back now, or with the last other tensor on it.
  bool free_cpu_locked_tensor(Tensor& tensor);
  // The same for a region's address. The memory is given back with the last tensor on it.
  bool free_cpu_locked_tensor_by_ptr(const void* address);

  // True when every byte of the tensor, a view included, lies inside one region of new_cpu_locked_tensor().
  bool is_managed(const Tensor& tensor) const;
  // True when it is managed, or the accelerator knows it as page-locked.
  bool is_pinned(const Tensor& tensor) const;

 private:
  Accelerator& accelerator_;
};

}  // namespace anyaccel::ops
