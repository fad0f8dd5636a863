// Streams, events and recorded graphs over command queues.
#include "accelerators/xpu/opencl/stream.h"

#include <algorithm>
#include <cstring>

namespace anyaccel::xpu::opencl {
namespace {

void enqueue(Queue& queue, const CopyNode& node) {
  queue.check_enqueue(
      queue.api().EnqueueSVMMemcpy(queue.get(), 0, node.destination, node.source, node.size, 0, nullptr, nullptr),
      "clEnqueueSVMMemcpy");
}

void enqueue_aligned_fill(Queue& queue, unsigned char* destination, const unsigned char* pattern, size_t pattern_size,
                          size_t size) {
  if (size == 0) return;
  queue.check_enqueue(
      queue.api().EnqueueSVMMemFill(queue.get(), destination, pattern, pattern_size, size, 0, nullptr, nullptr),
      "clEnqueueSVMMemFill");
}

// OpenCL fills only addresses that are aligned to the pattern. For others: single bytes up to the first aligned
// address, the pattern rotated by as many bytes, and single bytes again.
void enqueue(Queue& queue, const FillNode& node) {
  const size_t period = node.pattern_size;
  const size_t off = reinterpret_cast<uintptr_t>(node.destination) % period;
  const size_t head = off == 0 ? 0 : std::min(node.size, period - off);
  const size_t middle = (node.size - head) / period * period;
  std::array<unsigned char, 8> turned{};
  for (size_t i = 0; i < period; ++i) turned[i] = node.pattern[(head + i) % period];
  const auto single = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      enqueue_aligned_fill(queue, node.destination + i, &node.pattern[i % period], 1, 1);
    }
  };
  single(0, head);
  enqueue_aligned_fill(queue, node.destination + head, turned.data(), period, middle);
  single(head + middle, node.size);
}

void enqueue_kernel(Queue& queue, cl_kernel kernel, const size_t* global, const size_t* local) {
  queue.check_enqueue(
      queue.api().EnqueueNDRangeKernel(queue.get(), kernel, 3, nullptr, global, local, 0, nullptr, nullptr),
      "clEnqueueNDRangeKernel");
}

void enqueue(Queue& queue, const KernelNode& node) {
  enqueue_kernel(queue, node.kernel->get(), node.global.data(), node.local.data());
}

void enqueue(Queue& queue, const HostCallNode& node) { queue.host_call(node.function, node.user); }

}  // namespace

// ---- events ----------------------------------------------------------------------------------------------------------

Event::Point Event::point() {
  std::lock_guard lock(mutex_);
  return {share(api_, point_.event.get()), point_.queue, point_.capture};
}

void Event::record(abi::Stream& stream) {
  auto& target = static_cast<Stream&>(stream);
  Point point;
  if (const auto& capture = target.capture()) {
    point.capture = capture;
  } else {
    point.event = target.queue()->marker();
    point.queue = target.queue();
    point.queue->touch();  // a wait for the stream includes the record
  }
  std::lock_guard lock(mutex_);
  point_ = std::move(point);
}

bool Event::query() {
  const Point latest = point();
  if (latest.capture && latest.capture->is_open()) {
    throw abi::Failure(AA_FAILED_PRECONDITION, "the event was recorded on a stream that is capturing");
  }
  if (!latest.event) return true;
  latest.queue->raise();
  return latest.queue->is_complete(latest.event.get());
}

bool Event::ended() {
  const Point latest = point();
  return !latest.event || latest.queue->has_ended(latest.event.get());
}

void Event::synchronize() {
  if (query()) return;
  const Point latest = point();
  if (latest.event) latest.queue->wait(latest.event.get());
}

uint64_t Event::end_time() {
  if (!timed_) throw abi::Failure(AA_FAILED_PRECONDITION, "the event was made without AA_EVENT_TIMING");
  const Point latest = point();
  if (!latest.event) throw abi::Failure(AA_FAILED_PRECONDITION, "the event was not recorded");
  if (!latest.queue->is_complete(latest.event.get())) {
    throw abi::Failure(AA_FAILED_PRECONDITION, "the event is not complete yet");
  }
  cl_ulong time = 0;
  check(api_.GetEventProfilingInfo(latest.event.get(), CL_PROFILING_COMMAND_END, sizeof(time), &time, nullptr),
        "clGetEventProfilingInfo");
  return time;
}

double Event::elapsed(abi::Event& end) {
  if (static_cast<Event&>(end).device_ != device_) {
    throw abi::Failure(AA_FAILED_PRECONDITION, "the events are of two devices, whose clocks have nothing in common");
  }
  const uint64_t from = end_time();
  const uint64_t to = static_cast<Event&>(end).end_time();
  return static_cast<double>(static_cast<int64_t>(to - from)) * 1e-6;
}

// ---- streams ---------------------------------------------------------------------------------------------------------

Stream::~Stream() { queue_->close(); }

void Stream::close() { queue_->finish(); }

void Stream::submit(const Node& node) {
  if (const auto& open = capture()) {
    open->add(node);
  } else {
    std::visit([&](const auto& item) { enqueue(*queue_, item); }, node);
    queue_->touch();
  }
}

void Stream::copy(const aa_copy& what) { submit(CopyNode{what.destination, what.source, what.size}); }

void Stream::fill(const aa_fill& what) {
  FillNode node{static_cast<unsigned char*>(what.destination), {}, what.pattern_size, what.size};
  std::memcpy(node.pattern.data(), what.pattern, what.pattern_size);
  submit(node);
}

void Stream::host_call(void (*function)(void* user), void* user) { submit(HostCallNode{function, user}); }

void Stream::launch(abi::Kernel& kernel, const aa_launch& launch) {
  auto& own = static_cast<Kernel&>(kernel);
  if (launch.shared_bytes != 0) {
    throw abi::Failure(AA_INVALID_ARGUMENT,
                       "kernel " + own.name() + ": shared_bytes must be 0; OpenCL kernels declare their local memory");
  }
  std::array<size_t, 3> global{};
  std::array<size_t, 3> local{};
  for (size_t i = 0; i < 3; ++i) {
    local[i] = launch.block[i];
    global[i] = local[i] * launch.grid[i];
    if (global[i] == 0) {
      throw abi::Failure(AA_INVALID_ARGUMENT, "kernel " + own.name() + ": a dimension of the grid or block is 0");
    }
  }
  if (const auto& open = capture()) {
    open->add(KernelNode{std::make_shared<const OwnedKernel>(own.bind(launch)), global, local});
    return;
  }
  std::lock_guard lock(own.mutex());
  own.set_arguments(own.get(), launch);
  enqueue_kernel(*queue_, own.get(), global.data(), local.data());
  queue_->touch();
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
  const Event::Point point = static_cast<Event&>(event).point();
  if (captures_.join(point.capture)) return;
  if (!point.event || point.queue->is_complete(point.event.get())) return;
  captures_.refuse_outside();
  if (point.queue == queue_) return;
  queue_->wait_for(point.event.get(), point.queue->context());
  queue_->touch();
}

void Stream::capture_begin() { captures_.begin(); }

std::unique_ptr<abi::Graph> Stream::capture_end() {
  return std::make_unique<streams::NodeGraph<Node, Stream, Event>>(
      captures_.end(), std::make_unique<Event>(queue_->api(), nullptr, /*timed=*/false));
}

}  // namespace anyaccel::xpu::opencl
