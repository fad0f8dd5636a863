// Memory between the ops that a call is made of. It comes from the accelerator's allocator, for the stream that the ops
// run on, and the next call on that stream takes the same memory again: work on a stream is in order. In steady state a
// call allocates nothing, neither device memory nor on the heap.
//
// During a capture it comes from the graph's own pool instead, which lives as long as the graph.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/tensor.h"

namespace anyaccel::ops {

class Workspace {
 public:
  explicit Workspace(Accelerator& accelerator) : accelerator_(accelerator) {}
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  // Tensors of one call; nobody else has their memory while it lives. Contents are undefined.
  class Scratch {
   public:
    // For the calling thread's current stream of the device that `like` lies on, or of the current device where that is
    // the host. `bytes`: the sum of bytes() of the tensors to come.
    Scratch(Workspace& workspace, const Tensor& like, size_t bytes);
    ~Scratch();
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

    // A contiguous tensor.
    Tensor tensor(const Shape& shape, DType dtype);

   private:
    Workspace& workspace_;
    Tensor memory_;
    const void* stream_ = nullptr;  // null: the memory is a graph's and is not kept
    size_t used_ = 0;
  };

  // The memory that a tensor takes up: its bytes, rounded up to the alignment of the next one.
  static size_t bytes(const Shape& shape, DType dtype) noexcept;

 private:
  struct Piece {
    Tensor memory;
    const void* stream;  // the address of its state
  };
  static constexpr size_t kMostPieces = 8;  // more than the streams that use one object at a time

  Accelerator& accelerator_;
  std::mutex mutex_;
  std::vector<Piece> idle_;  // the latest last
};

}  // namespace anyaccel::ops
