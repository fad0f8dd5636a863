// Implements the reductions of MessageCommunicator.
#include <algorithm>

#include "comm/messages/message_communicator.h"
#include "comm/shared_memory/reduction.h"

namespace anyaccel::comm {
namespace {

// If a member would send at most this many bytes in total, all data is sent to all members: one exchange instead of
// two.
constexpr size_t kDirectBytes = size_t{256} << 10;
// Scratch memory of one step; longer reductions take several.
constexpr int64_t kScratchBytes = int64_t{32} << 20;

}  // namespace

std::byte* MessageCommunicator::scratch(size_t bytes) {
  if (scratch_.size() < bytes) scratch_.resize(bytes);
  return scratch_.data();
}

void MessageCommunicator::reduce_any(const Call& call, void* data, int64_t count, DType dtype, ReduceOp op, int root) {
  const int64_t size = members_.size;
  const auto width = static_cast<int64_t>(dtype_size(dtype));
  const bool direct = size <= 2 || static_cast<size_t>(count * width * (size - 1)) <= kDirectBytes;
  // Number of elements of a step: in both cases the scratch memory holds the received values of all members.
  const int64_t most = std::max<int64_t>(1, kScratchBytes / width / (direct ? size : 1));
  auto* at = static_cast<std::byte*>(data);
  for (int64_t begin = 0; begin == 0 || begin < count; begin += most) {
    const int64_t step = std::min(most, count - begin);
    if (direct)
      reduce_directly(call, at + begin * width, step, dtype, op, root);
    else
      reduce_in_parts(call, at + begin * width, step, dtype, op, root);
  }
}

void MessageCommunicator::reduce_directly(const Call& call, std::byte* data, int64_t count, DType dtype, ReduceOp op,
                                          int root) {
  const size_t bytes = static_cast<size_t>(count) * dtype_size(dtype);
  std::byte* others = scratch(static_cast<size_t>(members_.size) * bytes);
  std::vector<Part> sends, receives;
  std::vector<const void*> inputs;
  for (int peer = 0; peer < members_.size; ++peer) {
    std::byte* place = others + static_cast<size_t>(peer) * bytes;
    inputs.push_back(peer == members_.rank ? data : place);
    if (peer == members_.rank) continue;
    if (root < 0 || root == peer) sends.push_back({peer, data, bytes});
    if (root < 0 || root == members_.rank) receives.push_back({peer, place, bytes});
  }
  exchange(call, sends, receives);
  if (root < 0 || root == members_.rank) comm::reduce(data, inputs.data(), members_.size, count, dtype, op);
}

void MessageCommunicator::reduce_in_parts(const Call& call, std::byte* data, int64_t count, DType dtype, ReduceOp op,
                                          int root) {
  const auto size = static_cast<int64_t>(members_.size);
  const auto width = static_cast<int64_t>(dtype_size(dtype));
  const auto begin = [&](int64_t peer) { return count / size * peer + std::min(peer, count % size); };
  const auto part = [&](int peer) {
    return Part{peer, data + begin(peer) * width, static_cast<size_t>((begin(peer + 1) - begin(peer)) * width)};
  };
  // All members' values of this member's part, combined in place.
  const Part own = part(members_.rank);
  std::byte* others = scratch(static_cast<size_t>(size) * own.bytes);
  std::vector<Part> sends, receives;
  std::vector<const void*> inputs;
  for (int peer = 0; peer < members_.size; ++peer) {
    std::byte* place = others + static_cast<size_t>(peer) * own.bytes;
    inputs.push_back(peer == members_.rank ? static_cast<std::byte*>(own.data) : place);
    if (peer == members_.rank) continue;
    sends.push_back(part(peer));
    receives.push_back({peer, place, own.bytes});
  }
  exchange(call, sends, receives);
  comm::reduce(own.data, inputs.data(), members_.size, begin(members_.rank + 1) - begin(members_.rank), dtype, op);
  // Sends the combined parts to all members, or to the root.
  sends.clear();
  receives.clear();
  for (int peer = 0; peer < members_.size; ++peer) {
    if (peer == members_.rank) continue;
    if (root < 0 || root == peer) sends.push_back({peer, own.data, own.bytes});
    if (root < 0 || root == members_.rank) receives.push_back(part(peer));
  }
  exchange(call, sends, receives);
}

void MessageCommunicator::scatter_reduced(const Call& call, void* recv, const void* send, int64_t count, DType dtype,
                                          ReduceOp op) {
  const auto width = static_cast<int64_t>(dtype_size(dtype));
  const int64_t most = std::max<int64_t>(1, kScratchBytes / width / members_.size);
  auto* input = const_cast<std::byte*>(static_cast<const std::byte*>(send));
  std::vector<Part> sends, receives;
  std::vector<const void*> inputs;
  for (int64_t begin = 0; begin == 0 || begin < count; begin += most) {
    const int64_t step = std::min(most, count - begin);
    const auto bytes = static_cast<size_t>(step * width);
    std::byte* others = scratch(static_cast<size_t>(members_.size) * bytes);
    sends.clear();
    receives.clear();
    inputs.clear();
    for (int peer = 0; peer < members_.size; ++peer) {
      std::byte* place = others + static_cast<size_t>(peer) * bytes;
      std::byte* piece = input + (peer * count + begin) * width;
      inputs.push_back(peer == members_.rank ? piece : place);
      if (peer == members_.rank) continue;
      sends.push_back({peer, piece, bytes});
      receives.push_back({peer, place, bytes});
    }
    exchange(call, sends, receives);
    comm::reduce(static_cast<std::byte*>(recv) + begin * width, inputs.data(), members_.size, step, dtype, op);
  }
}

}  // namespace anyaccel::comm
