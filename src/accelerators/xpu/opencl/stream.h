// Streams, events and recorded graphs over command queues.
//
// A graph is a list of what was enqueued on the capturing streams, in the order of the calls; a replay enqueues it again on
// one stream. Each kernel of it has a cl_kernel of its own with its arguments set, so that a replay costs one
// clEnqueueNDRangeKernel a kernel and 10 ns of ours. Command buffers (cl_khr_command_buffer) were measured on PoCL 3.1 with
// 400 small kernels: 3.9 to 15 us a kernel, against 2.9 to 10 us for enqueuing again on the same busy machine.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <variant>
#include <vector>

#include "accelerators/streams/captures.h"
#include "accelerators/xpu/opencl/kernels.h"
#include "accelerators/xpu/opencl/queue.h"

namespace anyaccel::xpu::opencl {

struct CopyNode {
  void* destination;
  const void* source;
  size_t size;
};

struct FillNode {
  unsigned char* destination;
  std::array<unsigned char, 8> pattern;
  size_t pattern_size;
  size_t size;
};

struct KernelNode {
  std::shared_ptr<const OwnedKernel> kernel;
  std::array<size_t, 3> global;  // items
  std::array<size_t, 3> local;   // items of a group
};

struct HostCallNode {
  void (*function)(void* user);
  void* user;
};

using Node = std::variant<CopyNode, FillNode, KernelNode, HostCallNode>;

using Capture = streams::Capture<Node>;

class Event final : public abi::Event {
 public:
  // Events whose `device` differs are of two devices.
  Event(const Api& api, const abi::Device* device, bool timed) : api_(api), device_(device), timed_(timed) {}

  void record(abi::Stream& stream) override;
  bool query() override;
  void synchronize() override;
  double elapsed(abi::Event& end) override;
  // Whether the latest record is complete or has failed; there must be none on a capturing stream.
  bool ended();

  // The latest record: a reference to its event (empty when there was none), and its queue.
  struct Point {
    OwnedEvent event;
    std::shared_ptr<Queue> queue;
    std::shared_ptr<Capture> capture;  // instead of both: it was recorded on a capturing stream
  };
  Point point();

 private:
  uint64_t end_time();  // nanoseconds

  const Api& api_;
  const abi::Device* const device_;
  const bool timed_;
  std::mutex mutex_;
  Point point_;
};

class Stream final : public abi::Stream {
 public:
  explicit Stream(std::shared_ptr<Queue> queue) : queue_(std::move(queue)) {}
  ~Stream() override;

  void close() override;
  void copy(const aa_copy& what) override;
  void fill(const aa_fill& what) override;
  bool query() override;
  void synchronize() override;
  void wait_event(abi::Event& event) override;
  void* native() override { return queue_->get(); }
  void host_call(void (*function)(void* user), void* user) override;
  void launch(abi::Kernel& kernel, const aa_launch& launch) override;
  void capture_begin() override;
  std::unique_ptr<abi::Graph> capture_end() override;
  bool capturing() override { return captures_.current() != nullptr; }

  const std::shared_ptr<Queue>& queue() const noexcept { return queue_; }
  // The capture that records this stream; null when it runs.
  const std::shared_ptr<Capture>& capture() { return captures_.current(); }
  // Enqueues the item, or records it while capturing.
  void submit(const Node& node);

 private:
  std::shared_ptr<Queue> queue_;
  streams::CaptureOf<Capture> captures_{this};
};

}  // namespace anyaccel::xpu::opencl
