// Manages the memory for values between the ops that a call consists of. It comes from the accelerator's allocator, for
// the stream on which the ops run, and the next call on that stream reuses it, since work on a stream runs in order. In
// steady state, a call allocates nothing, neither on the device nor on the heap.
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

  // The tensors of one call, which has exclusive use of their memory while this object lives. Their contents are
  // undefined at first.
  class Scratch {
   public:
    // Uses the calling thread's current stream of the device of `like`, or of the current device if that is the host.
    // `bytes` is the sum of bytes() of all tensors that will be created.
    Scratch(Workspace& workspace, const Tensor& like, size_t bytes);
    ~Scratch();
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

    // Returns a contiguous tensor.
    Tensor tensor(const Shape& shape, DType dtype);

   private:
    Workspace& workspace_;
    Tensor memory_;
    const void* stream_ = nullptr;  // null: the memory is a graph's and is not kept
    size_t used_ = 0;
  };

  // Returns the memory that a tensor needs: its size in bytes, rounded up to the alignment of the next one.
  static size_t bytes(const Shape& shape, DType dtype) noexcept;

 private:
  struct Piece {
    Tensor memory;
    const void* stream;  // the address of its state
  };
  static constexpr size_t kMostPieces = 8;  // more than the number of streams that use one object at a time

  Accelerator& accelerator_;
  std::mutex mutex_;
  std::vector<Piece> idle_;  // the most recently used is last
};

}  // namespace anyaccel::ops
