// Implements stream.h: streams, events, copies, and recorded graphs.
#include "accelerators/mps/stream.h"

#include <algorithm>
#include <cstring>

#include "accelerators/mps/metal.h"
#include "base/copy_bytes.h"

namespace anyaccel::mps {
namespace {

// If the stream is busy, a copy of pageable memory up to this size goes through a separate buffer; the caller of a
// larger copy waits.
constexpr size_t largest_staged = size_t{1} << 20;

bool blits(const Place& place, size_t size) { return place.offset % blit_alignment == 0 && size % blit_alignment == 0; }

void encode(Queue& queue, const BlitCopyNode& node) {
  queue.blit([&](Id encoder) {
    send(encoder, sel.copyFromBuffer, node.source.buffer, node.source.offset, node.destination.buffer,
         node.destination.offset, node.size);
  });
}

void encode(Queue& queue, const BlitFillNode& node) {
  queue.blit([&](Id encoder) {
    send(encoder, sel.fillBuffer, node.destination.buffer, Range{node.destination.offset, node.size}, node.value);
  });
}

void work(const HostCopyNode& node) { copy_bytes(node.destination, node.source, node.size); }

void work(const HostFillNode& node) {
  for (size_t done = 0; done < node.size; done += node.pattern_size) {
    std::memcpy(node.destination + done, node.pattern.data(), node.pattern_size);
  }
}

// Copies the node, and calls `work` on the copy at its place in the stream.
template <class HostNode>
void encode_on_host(Queue& queue, const HostNode& node) {
  auto own = std::make_unique<HostNode>(node);
  queue.host_call(
      [](void* user) {
        const std::unique_ptr<HostNode> mine(static_cast<HostNode*>(user));
        work(*mine);
      },
      own.get());
  static_cast<void>(own.release());
}

void encode(Queue& queue, const HostCopyNode& node) { encode_on_host(queue, node); }
void encode(Queue& queue, const HostFillNode& node) { encode_on_host(queue, node); }
void encode(Queue& queue, const HostCallNode& node) { queue.host_call(node.function, node.user); }

void encode(Queue& queue, const KernelNode& node) {
  queue.compute([&](Id encoder) { node.kernel->encode(encoder, node.arguments, node.grid, node.block); });
}

Size3 size3(const uint32_t (&sizes)[3]) { return {sizes[0], sizes[1], sizes[2]}; }

}  // namespace

// ---- events ----------------------------------------------------------------------------------------------------------

Event::Latest Event::latest() {
  const std::lock_guard lock(mutex_);
  return latest_;
}

void Event::record(abi::Stream& stream) {
  auto& target = static_cast<Stream&>(stream);
  Latest now;
  if (const auto& capture = target.capture()) {
    now.capture = capture;
  } else {
    now.point = target.queue()->record(timed_);
  }
  const std::lock_guard lock(mutex_);
  std::swap(latest_, now);
}

bool Event::query() {
  const Latest now = latest();
  if (now.capture && now.capture->is_open()) {
    throw abi::Failure(AA_FAILED_PRECONDITION, "the event was recorded on a stream that is capturing");
  }
  return !now.point.submission || now.point.submission->complete();
}

bool Event::ended() {
  const Latest now = latest();
  return !now.point.submission || now.point.submission->ended();
}

void Event::synchronize() {
  if (query()) return;
  if (const Latest now = latest(); now.point.submission) now.point.submission->wait();
}

double Event::end_time() {
  if (!timed_) throw abi::Failure(AA_FAILED_PRECONDITION, "the event was made without AA_EVENT_TIMING");
  const Latest now = latest();
  if (!now.point.submission) throw abi::Failure(AA_FAILED_PRECONDITION, "the event was not recorded");
  if (!now.point.submission->complete()) {
    throw abi::Failure(AA_FAILED_PRECONDITION, "the event is not complete yet");
  }
  return now.point.submission->end_time();
}

double Event::elapsed(abi::Event& end) {
  if (static_cast<Event&>(end).device_ != device_) {
    throw abi::Failure(AA_FAILED_PRECONDITION, "the events are of two devices, whose clocks have nothing in common");
  }
  const double from = end_time();
  return (static_cast<Event&>(end).end_time() - from) * 1000;
}

// ---- streams ---------------------------------------------------------------------------------------------------------

void Stream::close() { queue_->finish(); }

void Stream::enqueue(const Node& node) {
  std::visit([&](const auto& item) { encode(*queue_, item); }, node);
}

void Stream::submit(const Node& node) {
  if (const auto& open = capture()) {
    open->add(node);
  } else {
    enqueue(node);
  }
}

// ---- copies and fills ------------------------------------------------------------------------------------------------

void Stream::copy(const aa_copy& what) {
  const bool from_host = what.direction == AA_COPY_HOST_TO_DEVICE;
  const bool to_host = what.direction == AA_COPY_DEVICE_TO_HOST;
  const bool pageable = (from_host && !what.source_memory) || (to_host && !what.destination_memory);
  Place source;
  Place destination;
  if (!from_host || !pageable) source = place_of(what.source_memory, what.source, what.size, "the source of a copy");
  if (!to_host || !pageable) {
    destination = place_of(what.destination_memory, what.destination, what.size, "the destination of a copy");
  }
  if (pageable) return copy_pageable(what, what.destination, what.source);
  if (blits(source, what.size) && blits(destination, what.size)) {
    submit(BlitCopyNode{destination, source, what.size});
  } else {
    submit(HostCopyNode{what.destination, what.source, what.size});
  }
}

// The host can access the device's side too. Work that was enqueued before is done first.
void Stream::copy_pageable(const aa_copy& what, void* destination, const void* source) {
  const HostCopyNode node{destination, source, what.size};
  if (const auto& open = capture()) return open->add(node);
  if (what.direction == AA_COPY_HOST_TO_DEVICE && what.size <= largest_staged && !queue_->idle()) {
    const Place place = place_of(what.destination_memory, destination, what.size, "the destination of a copy");
    if (blits(place, what.size)) {
      const Pool pool;
      const Owned staging = Owned::given(
          send<Id>(device_, sel.newBufferWithBytes, source, static_cast<uint64_t>(what.size), storage_shared));
      if (staging) return enqueue(BlitCopyNode{place, {staging.get(), 0}, what.size});
    }
  }
  queue_->finish();
  work(node);
}

void Stream::fill(const aa_fill& what) {
  const Place place = place_of(what.memory, what.destination, what.size, "the range of a fill");
  const bool bytes = std::all_of(what.pattern, what.pattern + what.pattern_size,
                                 [&](uint8_t byte) { return byte == what.pattern[0]; });
  if (bytes && blits(place, what.size)) return submit(BlitFillNode{place, what.size, what.pattern[0]});
  HostFillNode node{static_cast<unsigned char*>(what.destination), {}, what.pattern_size, what.size};
  std::memcpy(node.pattern.data(), what.pattern, what.pattern_size);
  submit(node);
}

// ---- work ------------------------------------------------------------------------------------------------------------

void Stream::host_call(void (*function)(void* user), void* user) { submit(HostCallNode{function, user}); }

void Stream::launch(abi::Kernel& kernel, const aa_launch& launch) {
  const auto& own = static_cast<const Kernel&>(kernel);
  own.check(launch);
  if (const auto& open = capture()) {
    KernelNode node{&own, size3(launch.grid), size3(launch.block), {}};
    own.read_arguments(launch, absent_, node.arguments);
    return open->add(std::move(node));
  }
  thread_local Arguments arguments;  // kept, so that a launch allocates nothing
  own.read_arguments(launch, absent_, arguments);
  queue_->compute([&](Id encoder) { own.encode(encoder, arguments, size3(launch.grid), size3(launch.block)); });
}

bool Stream::query() {
  captures_.refuse("stream_query");
  return queue_->idle();
}

void Stream::synchronize() {
  captures_.refuse("stream_synchronize");
  queue_->finish();
}

void Stream::wait_event(abi::Event& event) {
  const Event::Latest now = static_cast<Event&>(event).latest();
  if (captures_.join(now.capture)) return;
  if (!capture()) return queue_->wait_for(now.point);
  if (now.point.submission && !now.point.submission->ended()) captures_.refuse_outside();
}

// ---- holding work back -----------------------------------------------------------------------------------------------

void Stream::flush() { queue_->flush(); }

void Stream::step_begin(const aa_step& step) {
  if (step.flags != 0) abi::unimplemented("step_begin with an unknown flag");
  const std::lock_guard lock(step_mutex_);
  if (in_step_) throw abi::Failure(AA_FAILED_PRECONDITION, "the stream is inside of a step already");
  in_step_ = true;
}

void Stream::step_end() {
  {
    const std::lock_guard lock(step_mutex_);
    if (!in_step_) throw abi::Failure(AA_FAILED_PRECONDITION, "the stream is not inside of a step");
    in_step_ = false;
  }
  queue_->flush();
}

// ---- graphs ----------------------------------------------------------------------------------------------------------

void Stream::capture_begin() { captures_.begin(); }

std::unique_ptr<abi::Graph> Stream::capture_end() {
  return std::make_unique<streams::NodeGraph<Node, Stream, Event>>(captures_.end(),
                                                                   std::make_unique<Event>(nullptr, /*timed=*/false));
}

}  // namespace anyaccel::mps
