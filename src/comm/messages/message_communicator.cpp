// Implements the calls and the wire protocol. The reductions are in message_reductions.cpp.
#include "comm/messages/message_communicator.h"

#include <algorithm>
#include <cstring>

#include "anyaccel/error.h"
#include "base/copy_bytes.h"
#include "comm/messages/message_frame.h"

namespace anyaccel::comm {
namespace {

// Broadcasts use pieces of this size, so that a member forwards one while it receives the next.
constexpr size_t kBroadcastPiece = size_t{4} << 20;
// The largest message of a transport (MessageTransport::send).
constexpr size_t kLargestMessage = size_t{1} << 30;

std::byte* bytes_of(void* memory) { return static_cast<std::byte*>(memory); }
// Parts are used for both directions; sent memory is never written.
std::byte* bytes_of(const void* memory) { return const_cast<std::byte*>(static_cast<const std::byte*>(memory)); }

}  // namespace

MessageCommunicator::MessageCommunicator(std::string name, Membership membership,
                                         std::unique_ptr<MessageTransport> transport)
    : name_(std::move(name)),
      members_(std::move(membership)),
      transport_(std::move(transport)),
      outgoing_(static_cast<size_t>(members_.size)),
      incoming_(static_cast<size_t>(members_.size)) {
  for (int i = static_cast<int>(members_.names.size()); i < members_.size; ++i) {
    members_.names.push_back("rank " + std::to_string(i));
  }
}

// Leaving is not a failure: connections are closed after all sent data has arrived.
MessageCommunicator::~MessageCommunicator() = default;

// -- failures --

void MessageCommunicator::abort(const std::string& why) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (failed_) return;
    failed_ = true;
    failure_ = why;
  }
  transport_->interrupt();
}

// The first member that fails writes its error message to the store before its connections close, so that the others,
// which see only closed connections, can report the cause.
std::string MessageCommunicator::root_cause(const std::string& why) noexcept {
  try {
    if (members_.watch && members_.watch->failed()) members_.watch->check();
    if (!members_.store) return why;
    if (members_.store->add("failures", 1) == 1) {
      members_.store->set("failure", why);
      return why;
    }
    return members_.store->get("failure", std::chrono::seconds(1));
  } catch (const std::exception& error) {
    return members_.watch && members_.watch->failed() ? error.what() : why;
  }
}

void MessageCommunicator::fail(const std::string& why, aa_code code) {
  std::unique_lock lock(mutex_);
  if (!failed_) {
    lock.unlock();
    const std::string cause = root_cause(why);
    lock.lock();
    if (!failed_) {
      failed_ = true;
      failure_ = cause;
    }
  }
  const std::string failure = failure_;
  lock.unlock();
  transport_->close();
  pending_.clear();
  throw CommunicationError(failure, code);
}

void MessageCommunicator::run(const Call& call, const std::function<void()>& body) {
  {
    const std::lock_guard lock(mutex_);
    if (failed_) throw CommunicationError(failure_);
  }
  limit_ = WaitLimit(members_.timeout);
  try {
    body();
  } catch (const Error& error) {
    fail(name_ + ", " + call.text() + ", " + member(members_.rank) + ": " + error.what(), error.code());
  } catch (const std::exception& error) {
    fail(name_ + ", " + call.text() + ", " + member(members_.rank) + ": " + error.what(), AA_INTERNAL);
  }
}

// -- messages --

MessageCommunicator::Frame& MessageCommunicator::frame(std::vector<std::unique_ptr<Frame>>& frames, int peer) {
  std::unique_ptr<Frame>& frame = frames[static_cast<size_t>(peer)];
  if (!frame) frame = std::make_unique<Frame>();
  return *frame;
}

void MessageCommunicator::expect(const Call& call, const Part& part, const Frame& frame) const {
  if (frame.call == call && frame.caller == caller_ && frame.bytes == part.bytes) return;
  std::string detail;
  if (frame.call == call && frame.caller == caller_) {
    detail =
        "; the message has " + std::to_string(frame.bytes) + " bytes, " + std::to_string(part.bytes) + " were expected";
  }
  const bool callers = frame.caller != caller_;
  throw CommunicationError("the members disagree: " + member(part.peer) + " calls " +
                               (callers ? frame.caller : frame.call).text() + ", " + member(members_.rank) + " calls " +
                               (callers ? caller_ : call).text() + detail,
                           AA_FAILED_PRECONDITION);
}

void MessageCommunicator::exchange(const Call& call, std::span<const Part> sends, std::span<const Part> receives,
                                   int tag) {
  const Lane frames{.tag = tag}, bulk{.tag = tag, .bulk = true};
  const auto pieces = [&](const Part& part, const auto& start) {
    for (size_t at = 0; part.bytes > Frame::kInline && at < part.bytes; at += kLargestMessage) {
      pending_.push_back(start(bytes_of(part.data) + at, std::min(kLargestMessage, part.bytes - at)));
    }
  };
  for (const Part& part : receives) {  // the frames first, so that they can be checked first
    pending_.push_back(transport_->receive(part.peer, frames, &frame(incoming_, part.peer), sizeof(Frame)));
  }
  for (const Part& part : receives) {
    pieces(part, [&](void* at, size_t bytes) { return transport_->receive(part.peer, bulk, at, bytes); });
  }
  for (const Part& part : sends) {
    Frame& head = frame(outgoing_, part.peer);
    head.call = call;
    head.caller = caller_;
    head.bytes = part.bytes;
    const size_t here = part.bytes > Frame::kInline ? 0 : part.bytes;
    if (here > 0) std::memcpy(head.payload, part.data, here);
    pending_.push_back(transport_->send(part.peer, frames, &head, offsetof(Frame, payload) + here));
    pieces(part, [&](void* at, size_t bytes) { return transport_->send(part.peer, bulk, at, bytes); });
  }
  for (size_t i = 0; i < pending_.size(); ++i) {
    pending_[i]->wait(limit_);
    if (i >= receives.size()) continue;
    const Part& part = receives[i];
    const Frame& head = frame(incoming_, part.peer);
    expect(call, part, head);
    if (part.bytes > 0 && part.bytes <= Frame::kInline) std::memcpy(part.data, head.payload, part.bytes);
  }
  pending_.clear();
}

void MessageCommunicator::meet(const Call& call) {
  // After round i each member knows that the 2^(i+1) members up to itself have made the call.
  for (int distance = 1; distance < members_.size; distance *= 2) {
    const Part to{(members_.rank + distance) % members_.size, nullptr, 0};
    const Part from{(members_.rank - distance + members_.size) % members_.size, nullptr, 0};
    exchange(call, {&to, 1}, {&from, 1});
  }
}

void MessageCommunicator::run_rooted(const Call& call, const std::function<void()>& body) {
  run(call, [&] {
    meet(call);
    body();
  });
}

// -- calls that move bytes --

void MessageCommunicator::barrier() {
  const Call call{.kind = Call::kBarrier, .sequence = ++sequence_};
  run(call, [&] { meet(call); });
}

void MessageCommunicator::broadcast(void* data, Amount amount, int root) {
  const size_t bytes = amount.bytes;
  const Call call{.kind = Call::kBroadcast,
                  .dtype = static_cast<int32_t>(amount.dtype),
                  .root = root,
                  .sequence = ++sequence_,
                  .amount = bytes};
  run_rooted(call, [&] {
    // A binomial tree over places counted from the root: the parent of place p is p without its lowest bit.
    const int place = (members_.rank - root + members_.size) % members_.size;
    const int reach = place == 0 ? members_.size : place & -place;
    std::vector<int> children;
    for (int step = 1; step < reach; step *= 2) {
      if (place + step < members_.size) children.push_back((place + step + root) % members_.size);
    }
    std::reverse(children.begin(), children.end());  // the deepest subtree first
    const int parent = ((place & (place - 1)) + root) % members_.size;
    const size_t pieces = std::max<size_t>(1, (bytes + kBroadcastPiece - 1) / kBroadcastPiece);
    const auto piece = [&](size_t i, int peer) {
      const size_t at = i * kBroadcastPiece;
      return Part{peer, bytes_of(data) + at, std::min(kBroadcastPiece, bytes - at)};
    };
    // The root sends piece i in round i; the others receive it then and pass it on in the next.
    std::vector<Part> sends, receives;
    const size_t delay = place == 0 ? 0 : 1;
    for (size_t round = 0; round < pieces + delay; ++round) {
      sends.clear();
      receives.clear();
      if (place != 0 && round < pieces) receives.push_back(piece(round, parent));
      if (round >= delay) {
        for (const int child : children) sends.push_back(piece(round - delay, child));
      }
      exchange(call, sends, receives);
    }
  });
}

void MessageCommunicator::all_gather(void* recv, const void* send, Amount amount) {
  const size_t bytes = amount.bytes;
  const Call call{
      .kind = Call::kAllGather, .dtype = static_cast<int32_t>(amount.dtype), .sequence = ++sequence_, .amount = bytes};
  run(call, [&] {
    std::byte* own = bytes_of(recv) + static_cast<size_t>(members_.rank) * bytes;
    if (own != send && bytes > 0) copy_bytes(own, send, bytes);
    std::vector<Part> sends, receives;
    for (int step = 1; step < members_.size; ++step) {
      const int to = (members_.rank + step) % members_.size;
      const int from = (members_.rank - step + members_.size) % members_.size;
      sends.push_back({to, own, bytes});
      receives.push_back({from, bytes_of(recv) + static_cast<size_t>(from) * bytes, bytes});
    }
    exchange(call, sends, receives);
  });
}

void MessageCommunicator::gather(void* recv, const void* send, Amount amount, int root) {
  const size_t bytes = amount.bytes;
  const Call call{.kind = Call::kGather,
                  .dtype = static_cast<int32_t>(amount.dtype),
                  .root = root,
                  .sequence = ++sequence_,
                  .amount = bytes};
  run_rooted(call, [&] {
    if (members_.rank != root) {
      const Part part{root, bytes_of(send), bytes};
      return exchange(call, {&part, 1}, {});
    }
    std::vector<Part> receives;
    for (int peer = 0; peer < members_.size; ++peer) {
      std::byte* place = bytes_of(recv) + static_cast<size_t>(peer) * bytes;
      if (peer != root)
        receives.push_back({peer, place, bytes});
      else if (place != send && bytes > 0)
        copy_bytes(place, send, bytes);
    }
    exchange(call, {}, receives);
  });
}

void MessageCommunicator::scatter(void* recv, const void* send, Amount amount, int root) {
  const size_t bytes = amount.bytes;
  const Call call{.kind = Call::kScatter,
                  .dtype = static_cast<int32_t>(amount.dtype),
                  .root = root,
                  .sequence = ++sequence_,
                  .amount = bytes};
  run_rooted(call, [&] {
    if (members_.rank != root) {
      const Part part{root, recv, bytes};
      return exchange(call, {}, {&part, 1});
    }
    std::vector<Part> sends;
    for (int peer = 0; peer < members_.size; ++peer) {
      std::byte* place = bytes_of(send) + static_cast<size_t>(peer) * bytes;
      if (peer != root)
        sends.push_back({peer, place, bytes});
      else if (place != recv && bytes > 0)
        copy_bytes(recv, place, bytes);
    }
    exchange(call, sends, {});
  });
}

void MessageCommunicator::all_to_all(void* recv, const void* send, Amount amount) {
  const size_t bytes = amount.bytes;
  const Call call{
      .kind = Call::kAllToAll, .dtype = static_cast<int32_t>(amount.dtype), .sequence = ++sequence_, .amount = bytes};
  run(call, [&] {
    const auto place = [&](auto* memory, int peer) { return bytes_of(memory) + static_cast<size_t>(peer) * bytes; };
    if (bytes > 0) copy_bytes(place(recv, members_.rank), place(send, members_.rank), bytes);
    std::vector<Part> sends, receives;
    for (int step = 1; step < members_.size; ++step) {
      const int to = (members_.rank + step) % members_.size;
      const int from = (members_.rank - step + members_.size) % members_.size;
      sends.push_back({to, place(send, to), bytes});
      receives.push_back({from, place(recv, from), bytes});
    }
    exchange(call, sends, receives);
  });
}

void MessageCommunicator::send(const void* data, Amount amount, int peer, int tag) {
  const size_t bytes = amount.bytes;
  check_pair(peer, tag);
  const Call call{.kind = Call::kPair, .dtype = static_cast<int32_t>(amount.dtype), .amount = bytes};
  const Part part{peer, bytes_of(data), bytes};
  run(call, [&] { exchange(call, {&part, 1}, {}, tag); });
}

void MessageCommunicator::recv(void* data, Amount amount, int peer, int tag) {
  const size_t bytes = amount.bytes;
  check_pair(peer, tag);
  const Call call{.kind = Call::kPair, .dtype = static_cast<int32_t>(amount.dtype), .amount = bytes};
  const Part part{peer, data, bytes};
  run(call, [&] { exchange(call, {}, {&part, 1}, tag); });
}

void MessageCommunicator::check_pair(int peer, int tag) const {
  if (peer < 0 || peer >= members_.size || peer == members_.rank) {
    throw InvalidArgument(name_ + ": rank " + std::to_string(members_.rank) + " cannot exchange messages with rank " +
                          std::to_string(peer) + " in a group of " + std::to_string(members_.size));
  }
  if (tag < 0 || tag > transport_->largest_tag()) {
    throw InvalidArgument(name_ + ": tag " + std::to_string(tag) + "; tags go from 0 to " +
                          std::to_string(transport_->largest_tag()) + " here");
  }
}

// -- calls that combine --

void MessageCommunicator::all_reduce(void* data, int64_t count, DType dtype, ReduceOp op) {
  const Call call{.kind = Call::kAllReduce,
                  .dtype = static_cast<int32_t>(dtype),
                  .op = static_cast<int32_t>(op),
                  .sequence = ++sequence_,
                  .amount = static_cast<uint64_t>(count)};
  run(call, [&] { reduce_any(call, data, count, dtype, op, -1); });
}

void MessageCommunicator::reduce(void* data, int64_t count, DType dtype, ReduceOp op, int root) {
  const Call call{.kind = Call::kReduce,
                  .dtype = static_cast<int32_t>(dtype),
                  .op = static_cast<int32_t>(op),
                  .root = root,
                  .sequence = ++sequence_,
                  .amount = static_cast<uint64_t>(count)};
  run_rooted(call, [&] { reduce_any(call, data, count, dtype, op, root); });
}

void MessageCommunicator::reduce_scatter(void* recv, const void* send, int64_t count, DType dtype, ReduceOp op) {
  const Call call{.kind = Call::kReduceScatter,
                  .dtype = static_cast<int32_t>(dtype),
                  .op = static_cast<int32_t>(op),
                  .sequence = ++sequence_,
                  .amount = static_cast<uint64_t>(count)};
  run(call, [&] { scatter_reduced(call, recv, send, count, dtype, op); });
}

}  // namespace anyaccel::comm
