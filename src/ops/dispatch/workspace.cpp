// Implements workspace.h, the memory for values between the ops of a sequence.
#include "ops/dispatch/workspace.h"

#include <algorithm>
#include <array>
#include <utility>

namespace anyaccel::ops {
namespace {

constexpr size_t alignment = 256;  // the largest that kernels may require

}  // namespace

size_t Workspace::bytes(const Shape& shape, DType dtype) noexcept {
  return (static_cast<size_t>(shape.numel()) * dtype_size(dtype) + alignment - 1) / alignment * alignment;
}

Workspace::Scratch::Scratch(Workspace& workspace, const Tensor& like, size_t bytes) : workspace_(workspace) {
  Accelerator& accelerator = workspace.accelerator_;
  const Device place = like.device();
  const int index = place.accelerator == &accelerator ? place.index : accelerator.current_device();
  if (!accelerator.is_current_stream_capturing(index)) {
    stream_ = accelerator.current_stream(index).state();
    const std::lock_guard lock(workspace.mutex_);
    // The search begins at the back, because the memory that was used last is the likeliest to be in a cache.
    const auto found = std::find_if(workspace.idle_.rbegin(), workspace.idle_.rend(), [&](const Piece& piece) {
      return piece.stream == stream_ && piece.memory.nbytes() >= bytes;
    });
    if (found != workspace.idle_.rend()) {
      memory_ = std::move(found->memory);
      workspace.idle_.erase(std::next(found).base());
      return;
    }
    // A smaller piece of this stream is no longer useful: sizes grow to those of the longest prompt.
    std::erase_if(workspace.idle_, [&](const Piece& piece) { return piece.stream == stream_; });
    workspace.idle_.reserve(kMostPieces + 1);
  }
  memory_ = Tensor::empty({static_cast<int64_t>(bytes)}, DType::U8, accelerator.device(index));
}

Workspace::Scratch::~Scratch() {
  if (!stream_) return;
  Tensor oldest;  // destroyed after the lock is released
  const std::lock_guard lock(workspace_.mutex_);
  workspace_.idle_.push_back({std::move(memory_), stream_});  // room was reserved
  if (workspace_.idle_.size() <= kMostPieces) return;
  oldest = std::move(workspace_.idle_.front().memory);
  workspace_.idle_.erase(workspace_.idle_.begin());
}

Tensor Workspace::Scratch::tensor(const Shape& shape, DType dtype) {
  std::array<int64_t, AA_MAX_DIMS> strides{};
  int64_t stride = 1;
  for (int d = shape.ndim(); d-- > 0;) {
    strides[static_cast<size_t>(d)] = stride;
    stride *= std::max<int64_t>(shape[d], 1);
  }
  const size_t begin = std::exchange(used_, used_ + bytes(shape, dtype));
  return Tensor(memory_.storage(), dtype, shape, std::span(strides).first(static_cast<size_t>(shape.ndim())),
                static_cast<int64_t>(begin / dtype_size(dtype)));
}

}  // namespace anyaccel::ops
