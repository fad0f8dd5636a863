// Implements streams, events and recorded graphs with Metal's queues.
//
// Copies within memory that Metal knows are blits, and so are fills; the CPU does what a blit cannot do (offsets that
// are not multiples of 4, patterns) and copies of pageable memory, in the same memory, at their place in the stream.
//
// A graph is the list of the items that were enqueued on the capturing streams, in the order of the calls; a replay
// encodes them again, because Metal's own recorded commands (indirect command buffers) support neither copies nor
// values.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <variant>
#include <vector>

#include "accelerators/mps/kernels.h"
#include "accelerators/mps/queue.h"
#include "accelerators/streams/captures.h"

namespace anyaccel::mps {

struct BlitCopyNode {
  Place destination;
  Place source;
  uint64_t size;
};
struct BlitFillNode {
  Place destination;
  uint64_t size;
  uint8_t value;
};
// A copy that the CPU does at its place in the stream.
struct HostCopyNode {
  void* destination;
  const void* source;
  size_t size;
};
struct HostFillNode {
  unsigned char* destination;
  std::array<unsigned char, 8> pattern;
  uint32_t pattern_size;
  size_t size;
};
struct HostCallNode {
  void (*function)(void* user);
  void* user;
};
struct KernelNode {
  const Kernel* kernel;
  Size3 grid;
  Size3 block;
  Arguments arguments;
};
using Node = std::variant<BlitCopyNode, BlitFillNode, HostCopyNode, HostFillNode, HostCallNode, KernelNode>;

using Capture = streams::Capture<Node>;

class Event final : public abi::Event {
 public:
  // Events whose `device` differs are of two devices.
  Event(const abi::Device* device, bool timed) : device_(device), timed_(timed) {}

  void record(abi::Stream& stream) override;
  bool query() override;
  void synchronize() override;
  double elapsed(abi::Event& end) override;
  // Whether the latest record is complete or has failed; there must be none on a capturing stream.
  bool ended();

  struct Latest {
    Point point;                       // of no submission: never recorded
    std::shared_ptr<Capture> capture;  // instead: it was recorded on a capturing stream
  };
  Latest latest();

 private:
  double end_time();  // seconds

  const abi::Device* const device_;
  const bool timed_;
  std::mutex mutex_;
  Latest latest_;
};

class Stream final : public abi::Stream {
 public:
  // `absent` is the buffer that kernels get for null pointers.
  Stream(std::shared_ptr<Queue> queue, Id device, Id absent)
      : queue_(std::move(queue)), device_(device), absent_(absent) {}

  void close() override;
  void copy(const aa_copy& what) override;
  void fill(const aa_fill& what) override;
  bool query() override;
  void synchronize() override;
  void wait_event(abi::Event& event) override;
  void* native() override { return queue_->get(); }
  void host_call(void (*function)(void* user), void* user) override;
  void launch(abi::Kernel& kernel, const aa_launch& launch) override;
  void flush() override;
  void step_begin(const aa_step& step) override;
  void step_end() override;
  void capture_begin() override;
  std::unique_ptr<abi::Graph> capture_end() override;
  bool capturing() override { return captures_.current() != nullptr; }

  const std::shared_ptr<Queue>& queue() const noexcept { return queue_; }
  // Returns the capture that records this stream; null if the stream is not capturing.
  const std::shared_ptr<Capture>& capture() { return captures_.current(); }
  // Encodes the node, or records it while the stream is capturing.
  void submit(const Node& node);

 private:
  void enqueue(const Node& node);
  void copy_pageable(const aa_copy& what, void* destination, const void* source);

  const std::shared_ptr<Queue> queue_;
  const Id device_;
  const Id absent_;
  streams::CaptureOf<Capture> captures_{this};
  std::mutex step_mutex_;
  bool in_step_ = false;
};

}  // namespace anyaccel::mps
