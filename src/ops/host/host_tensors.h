// Gives ops that run on the host, whatever accelerator is active, access to their tensors: in place if the host can
// reach them, else by copying them there and back.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/tensor.h"

namespace anyaccel::ops {

enum class HostUse { In, Out, InOut };

struct HostTensor {
  const Tensor* tensor;  // an empty one stays empty
  HostUse use;
};

// Returns whether the host can access the tensor's memory directly: it is host memory, or memory of an accelerator that
// is host-coherent.
bool host_reaches(const Tensor& tensor);

// Waits for the accelerator's current stream, calls `body` with the tensors as the host reaches them (same order, same
// shapes; strides may differ), and copies back what it wrote. Tensors on the host or on a host-coherent accelerator are
// passed as they are. Copying anything logs one warning per `op_name` and is an error (NotImplementedError) under
// ANYACCEL_FALLBACK=error. Blocks. InvalidArgument while the stream captures a graph.
void run_on_host(Accelerator& accelerator, const char* op_name, std::span<const HostTensor> tensors,
                 const std::function<void(std::span<Tensor>)>& body);

}  // namespace anyaccel::ops
