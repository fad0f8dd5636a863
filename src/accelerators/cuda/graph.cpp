// Implements graph.h: captures and the graphs that result from them.
#include "accelerators/cuda/graph.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>

namespace anyaccel::cuda {
namespace {

// Guards StreamCore::capture_ and Capture::streams_ of every device: events of one may take part in another's capture.
std::mutex captures_mutex;
std::atomic<uint64_t> next_capture{1};

constexpr Result error_capture_unmatched = 903, error_capture_unjoined = 904, error_capture_wrong_thread = 908;

// Returns advice for the error message of a capture that the vendor refused to end.
const char* advice(Result result) {
  switch (result) {
    case error_capture_unjoined:
      return "; work that was forked to another stream was not joined: record an event there and let the stream that "
             "began the capture wait for it";
    case error_capture_wrong_thread: return "; a capture has to be ended by the thread that began it";
    case error_stream_capture_invalidated:
    case error_capture_unmatched:
      return "; a call that a capture does not allow was made meanwhile on one of its streams by other code of the "
             "process (a wait, or work on the vendor's default stream)";
    default: return "";
  }
}

}  // namespace

// ---- captures --------------------------------------------------------------------------------------------------------

Capture::Capture(const StreamCore* stream) : id(next_capture.fetch_add(1)), origin(stream) {}

std::shared_ptr<Capture> Capture::begin(const std::shared_ptr<StreamCore>& origin) {
  std::shared_ptr<Capture> capture(new Capture(origin.get()));
  join(capture, origin);
  return capture;
}

void Capture::join(const std::shared_ptr<Capture>& capture, const std::shared_ptr<StreamCore>& stream) {
  stream->device.set_capture(stream->handle, capture->id);
  const std::lock_guard lock(captures_mutex);
  capture->streams_.push_back(stream);
  stream->capture_ = capture;
  stream->capturing.store(true, std::memory_order_release);
}

void Capture::end() {
  std::vector<std::shared_ptr<StreamCore>> streams;
  {
    const std::lock_guard lock(captures_mutex);
    streams.swap(streams_);
    for (const std::shared_ptr<StreamCore>& stream : streams) {
      stream->capturing.store(false, std::memory_order_release);
      stream->capture_.reset();
    }
  }
  for (const std::shared_ptr<StreamCore>& stream : streams) stream->device.set_capture(stream->handle, 0);
}

std::shared_ptr<Capture> StreamCore::capture() const {
  if (!capturing.load(std::memory_order_acquire)) return nullptr;
  const std::lock_guard lock(captures_mutex);
  return capture_;
}

void Stream::capture_begin() {
  device_.usable();
  if (captures()) throw abi::Failure(AA_FAILED_PRECONDITION, "the stream is capturing a graph already");
  forget_writes();
  const std::lock_guard lock(core_->waiting);
  device_.enqueue("cuStreamBeginCapture", [&] { return api_.capture_begin(handle_, capture_mode_thread_local); });
  Capture::begin(core_);
}

bool Stream::capturing() {
  if (captures() || !api_.has_graphs) return captures();
  // Other code may have begun a capture on the vendor's handle.
  int status = capture_status_none;
  device_.enqueue("cuStreamIsCapturing", [&] { return api_.capture_status(handle_, &status); });
  return status != capture_status_none;
}

std::unique_ptr<abi::Graph> Stream::capture_end() {
  const std::shared_ptr<Capture> capture = core_->capture();
  if (!capture) throw abi::Failure(AA_FAILED_PRECONDITION, "the stream is not capturing a graph");
  if (!capture->began_on(*core_)) {
    throw abi::Failure(AA_FAILED_PRECONDITION,
                       "the stream takes part in a capture that another stream began; only that one can end it");
  }
  forget_writes();
  GraphHandle graph = nullptr;
  Result result = success;
  try {
    result = device_.enqueue_result([&] { return api_.capture_end(handle_, &graph); });
  } catch (const abi::Failure&) {
    capture->end();
    throw;
  }
  if (result == error_capture_wrong_thread) {  // the capture goes on
    throw abi::Failure(AA_FAILED_PRECONDITION, "cuStreamEndCapture gave " + result_text(api_, result) + advice(result),
                       result);
  }
  capture->end();
  if (result != success) {
    if (graph) api_.graph_destroy(graph);
    device_.release_capture(capture->id);
    if (*advice(result)) {
      throw abi::Failure(AA_FAILED_PRECONDITION,
                         "cuStreamEndCapture gave " + result_text(api_, result) + advice(result), result);
    }
    device_.check(result, "cuStreamEndCapture");
  }
  return std::make_unique<Graph>(device_, graph, capture->id);
}

// ---- graphs ----------------------------------------------------------------------------------------------------------

Graph::Graph(DeviceState& device, GraphHandle graph, uint64_t capture) : device_(device), capture_(capture) {
  const Api& api = device.api();
  size_t nodes = 0;
  const RelaxedCaptureMode relaxed(api);
  Result result = api.graph_nodes(graph, nullptr, &nodes);
  const char* call = "cuGraphGetNodes";
  if (result == success) {
    call = "cuGraphInstantiate";
    result = api.graph_instantiate(&exec_, graph, 0);
  }
  api.graph_destroy(graph);
  if (result != success) {
    device.release_capture(capture);
    device.check(result, call);
  }
  nodes_ = static_cast<int64_t>(nodes);
}

Graph::~Graph() {
  if (is_forked_child()) return;
  try {
    device_.bind();
  } catch (const abi::Failure&) {
    // The handle of a lost device is released too.
  }
  const RelaxedCaptureMode relaxed(device_.api());
  device_.api().graph_exec_destroy(exec_);
  device_.release_capture(capture_);
}

void Graph::launch(abi::Stream& target) {
  auto& stream = static_cast<Stream&>(target);
  stream.forget_writes();
  device_.enqueue("cuGraphLaunch", [&] { return device_.api().graph_launch(exec_, stream.handle()); });
}

}  // namespace anyaccel::cuda
