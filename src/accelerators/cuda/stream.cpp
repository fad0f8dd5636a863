// Implements stream.h: streams.
#include "accelerators/cuda/stream.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "accelerators/cuda/device.h"
#include "accelerators/cuda/event.h"
#include "accelerators/cuda/graph.h"
#include "accelerators/cuda/module.h"
#include "accelerators/cuda/ops/op_library.h"

namespace anyaccel::cuda {
namespace {

DevicePointer address(const void* pointer) { return reinterpret_cast<DevicePointer>(pointer); }

std::string dimensions(const uint32_t (&size)[3]) {
  return std::to_string(size[0]) + "x" + std::to_string(size[1]) + "x" + std::to_string(size[2]);
}

}  // namespace

StreamCore::~StreamCore() {
  if (is_forked_child()) return;
  try {
    device.bind_surely();
  } catch (const abi::Failure&) {
    // The handle of a lost device is released too.
  }
  const RelaxedCaptureMode relaxed(device.api());
  device.api().stream_destroy(handle);
}

Stream::Stream(DeviceState& device, OpLibrary* ops, const aa_stream_params& params)
    : device_(device), api_(device.api()), ops_(ops) {
  device.bind_surely();
  const RelaxedCaptureMode relaxed(api_);
  device.check(api_.stream_create(&handle_, params.flags & AA_STREAM_NON_BLOCKING ? stream_non_blocking : 0,
                                  device.clamp_priority(params.priority)),
               "cuStreamCreateWithPriority");
  try {
    core_ = std::make_shared<StreamCore>(device, handle_);
  } catch (...) {
    api_.stream_destroy(handle_);
    throw;
  }
  device.add(core_);
}

void Stream::close() {
  if (is_forked_child()) return;
  if (const std::shared_ptr<Capture> capture = core_->capture()) {
    // A capture ends with its stream, and a capture begun by another stream cannot continue without it.
    GraphHandle graph = nullptr;
    if (capture->began_on(*core_)) {
      api_.capture_end(handle_, &graph);
      capture->end();
    }
    if (graph) api_.graph_destroy(graph);
  }
  if (captures() || device_.lost()) return;
  synchronize();
  device_.release_stream(handle_);
}

// ---- copies and fills ------------------------------------------------------------------------------------------------

void Stream::copy(const aa_copy& what) {
  forget_writes();
  // The vendor derives the direction from the addresses. It waits for pageable memory itself.
  device_.enqueue("cuMemcpyAsync",
                  [&] { return api_.copy_async(address(what.destination), address(what.source), what.size, handle_); });
}

void Stream::copy_peer(const aa_peer_copy& what) {
  const DeviceState& to = static_cast<Device&>(abi::object(what.destination_device)).state();
  const DeviceState& from = static_cast<Device&>(abi::object(what.source_device)).state();
  if (&device_ != &to && &device_ != &from) {
    throw abi::Failure(AA_INVALID_ARGUMENT, "a copy from " + from.label() + " to " + to.label() + " on a stream of " +
                                                device_.label() + ", which is neither");
  }
  if (!to.copies_from(from)) {
    throw abi::Failure(AA_UNIMPLEMENTED, to.label() + " and " + from.label() + " cannot reach each other's memory");
  }
  to.usable();
  from.usable();
  forget_writes();
  if (to.context() == from.context()) {  // shares of one GPU
    device_.enqueue("cuMemcpyAsync", [&] {
      return api_.copy_async(address(what.destination), address(what.source), what.size, handle_);
    });
    return;
  }
  device_.enqueue("cuMemcpyPeerAsync", [&] {
    return api_.copy_peer_async(address(what.destination), to.context(), address(what.source), from.context(),
                                what.size, handle_);
  });
}

void Stream::fill(const aa_fill& what) {
  forget_writes();
  const DevicePointer to = address(what.destination);
  const unsigned char(&bytes)[8] = what.pattern;
  const size_t pattern_size = what.pattern_size, size = what.size;
  // The vendor wants elements aligned to their size, and has none of 8 bytes.
  if (to % std::min<size_t>(pattern_size, 4) != 0) {
    fill_by_doubling(to, bytes, pattern_size, size);
  } else if (pattern_size == 1) {
    device_.enqueue("cuMemsetD8Async", [&] { return api_.fill_8_async(to, bytes[0], size, handle_); });
  } else if (pattern_size == 2) {
    unsigned short value = 0;
    std::memcpy(&value, bytes, sizeof(value));
    device_.enqueue("cuMemsetD16Async", [&] { return api_.fill_16_async(to, value, size / 2, handle_); });
  } else if (pattern_size == 4 || std::memcmp(bytes, bytes + 4, 4) == 0) {
    unsigned value = 0;
    std::memcpy(&value, bytes, sizeof(value));
    device_.enqueue("cuMemsetD32Async", [&] { return api_.fill_32_async(to, value, size / 4, handle_); });
  } else {
    fill_wide(to, bytes, size);
  }
}

// Eight different bytes: each half as a column of a table whose rows are 8 bytes.
void Stream::fill_wide(DevicePointer to, const unsigned char* pattern, size_t size) {
  for (size_t half = 0; half < 2; ++half) {
    unsigned value = 0;
    std::memcpy(&value, pattern + 4 * half, sizeof(value));
    device_.enqueue("cuMemsetD2D32Async",
                    [&] { return api_.fill_2d_32_async(to + 4 * half, 8, value, 1, size / 8, handle_); });
  }
}

void Stream::fill_by_doubling(DevicePointer to, const unsigned char* pattern, size_t pattern_size, size_t size) {
  for (size_t i = 0; i < pattern_size; ++i) {
    device_.enqueue("cuMemsetD8Async", [&] { return api_.fill_8_async(to + i, pattern[i], 1, handle_); });
  }
  for (size_t done = pattern_size; done < size;) {
    const size_t step = std::min(done, size - done);
    device_.enqueue("cuMemcpyAsync", [&] { return api_.copy_async(to + done, to, step, handle_); });
    done += step;
  }
}

// ---- waiting ---------------------------------------------------------------------------------------------------------

void Stream::refuse_while_capturing(const char* what) const {
  if (!captures()) return;
  throw abi::Failure(AA_FAILED_PRECONDITION,
                     "the stream is capturing a graph: its work does not run, and it cannot be " + std::string(what) +
                         " before the capture has ended");
}

bool Stream::query() {
  device_.usable();
  refuse_while_capturing("queried");
  const RelaxedCaptureMode relaxed(api_);
  const Result result = device_.enqueue_result([&] { return api_.stream_query(handle_); });
  if (result == error_not_ready) return false;
  device_.check(result, "cuStreamQuery");
  return true;
}

void Stream::synchronize() {
  device_.usable();
  refuse_while_capturing("waited for");
  const RelaxedCaptureMode relaxed(api_);
  device_.enqueue("cuStreamSynchronize", [&] { return api_.stream_synchronize(handle_); });
}

void Stream::wait_event(abi::Event& awaited) {
  auto& event = static_cast<Event&>(awaited);
  device_.usable();
  if (!event.recorded()) return;
  std::shared_ptr<Capture> joined;
  if (event.captured()) {
    joined = event.capture();
    if (!joined) {
      throw abi::Failure(AA_FAILED_PRECONDITION,
                         "the event was recorded last in a capture that has ended; record it again before a stream "
                         "waits for it");
    }
    // The runtime would refuse that too, but make both captures invalid.
    if (captures() && core_->capture() != joined) {
      throw abi::Failure(AA_FAILED_PRECONDITION,
                         "the stream and the event belong to two captures; end the capture of the event's stream "
                         "first, or record both streams in one capture");
    }
  } else if (captures()) {
    // Work outside of the graph cannot be waited for at every replay; if it is complete, there is nothing to wait for.
    if (event.query()) return;
    throw abi::Failure(
        AA_FAILED_PRECONDITION,
        "the stream is capturing a graph and cannot wait for an event of work outside of it: wait for that "
        "work before the capture begins");
  }
  forget_writes();
  std::unique_lock lock(core_->waiting, std::defer_lock);
  if (joined) lock.lock();
  device_.enqueue("cuStreamWaitEvent", [&] { return api_.stream_wait_event(handle_, event.handle(), 0); });
  if (joined && !captures()) Capture::join(joined, core_);
}

void Stream::host_call(void (*function)(void* user), void* user) {
  if (!api_.has_host_call) {
    throw abi::Failure(AA_UNIMPLEMENTED, device_.label() + ": the driver has no cuLaunchHostFunc");
  }
  forget_writes();
  device_.enqueue("cuLaunchHostFunc", [&] { return api_.launch_host_function(handle_, function, user); });
}

// ---- kernels and ops -------------------------------------------------------------------------------------------------

void Stream::launch(abi::Kernel& launched, const aa_launch& launch) {
  auto& kernel = static_cast<Kernel&>(launched);
  device_.bind();
  forget_writes();
  kernel.allow_shared(launch.shared_bytes);
  const auto call = [&] {
    return api_.launch_kernel(kernel.function(), launch.grid[0], launch.grid[1], launch.grid[2], launch.block[0],
                              launch.block[1], launch.block[2], launch.shared_bytes, handle_,
                              const_cast<void**>(launch.arguments), nullptr);
  };
  Result result = call();
  if (result == success) [[likely]]
    return;
  if (device_.rebound(result)) result = call();
  if (result == error_invalid_value || result == error_launch_out_of_resources) {
    throw abi::Failure(AA_INVALID_ARGUMENT,
                       device_.label() + ": cuLaunchKernel gave " + result_text(api_, result) + " for kernel \"" +
                           kernel.name() + "\" with a grid of " + dimensions(launch.grid) + ", blocks of " +
                           dimensions(launch.block) + " and " + std::to_string(launch.shared_bytes) +
                           " bytes of shared memory",
                       result);
  }
  device_.check(result, ("cuLaunchKernel of \"" + kernel.name() + "\"").c_str());
}

bool Stream::enqueue_op(const aa_op_call& call) {
  if (!ops_) throw abi::Failure(AA_UNIMPLEMENTED, device_.label() + " has no tuned ops");
  device_.bind_surely();
  const std::lock_guard lock(ops_mutex_);
  const uint64_t added = pending_writes_.added();
  try {
    if (!ops_->enqueue(call.op, call, *this)) return false;
  } catch (...) {
    pending_writes_.forget();
    throw;
  }
  if (pending_writes_.added() == added) pending_writes_.forget();
  return true;
}

}  // namespace anyaccel::cuda
