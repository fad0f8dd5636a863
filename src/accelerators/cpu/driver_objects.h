// The objects behind the CPU driver's handles.
//
// Work runs on the calling thread (and the worker pool) before the enqueuing call returns, so a stream has nothing in
// flight; what it keeps is the error of a failed call and, while a graph is captured, the recorded work.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "anyaccel/abi/ceilings.h"
#include "anyaccel/abi/driver.h"
#include "anyaccel/abi/graph.h"
#include "anyaccel/abi/host_code.h"
#include "anyaccel/abi/host_memory.h"
#include "anyaccel/abi/ops.h"
#include "runtime/driver/host_services.h"

namespace anyaccel::cpu {

// Turns the exceptions of a body into a status: nothing may be thrown across the table.
template <class Body>
aa_status* guarded(Body&& body) noexcept {
  try {
    body();
    return nullptr;
  } catch (...) {
    return status_from_current_exception();
  }
}

struct Instance {};

struct DeviceObject {
  int index = 0;
};

// One recorded piece of work.
struct Node {
  enum class Kind { Op, Copy, Fill, HostCall, EventRecord } kind;
  // Op
  int32_t op = 0;
  std::vector<aa_tensor> tensors;
  std::vector<uint64_t> params;  // 8-byte aligned copy of the params struct
  uint32_t params_size = 0;
  // Copy and Fill: destination, source, size; a fill keeps its pattern
  void* destination = nullptr;
  const void* source = nullptr;
  size_t size = 0;
  uint8_t pattern[8] = {};
  size_t pattern_size = 0;
  // HostCall
  void (*function)(void*) = nullptr;
  void* user = nullptr;
  // EventRecord
  std::shared_ptr<struct EventCore> event;
};

struct GraphObject {
  std::vector<Node> nodes;
};

// What the streams of one capture record into.
struct CaptureObject {
  const struct StreamObject* origin = nullptr;  // where it began and must end
  std::unique_ptr<GraphObject> graph = std::make_unique<GraphObject>();
  std::atomic<bool> open{true};
};

struct StreamObject {
  StreamObject() = default;
  ~StreamObject() {
    if (capture && capture->origin == this) capture->open = false;
  }
  StreamObject(const StreamObject&) = delete;
  StreamObject& operator=(const StreamObject&) = delete;

  // Null while the stream does not capture.
  GraphObject* recorded() {
    if (!capture) [[likely]]
      return nullptr;
    if (!capture->open) capture.reset();  // it ended on the stream where it began
    return capture ? capture->graph.get() : nullptr;
  }

  DeviceObject* device = nullptr;
  std::shared_ptr<CaptureObject> capture;
};

// The part of an event that recorded graphs share.
struct EventCore {
  std::atomic<int64_t> nanoseconds{-1};  // steady clock at the latest record; -1: never recorded
};

struct EventObject {
  DeviceObject* device = nullptr;
  uint32_t flags = 0;
  std::shared_ptr<EventCore> core = std::make_shared<EventCore>();
  // The capture in which it was recorded last; null: in none. The flag tells whether there is one.
  std::atomic<bool> captured{false};
  std::mutex mutex;
  std::shared_ptr<CaptureObject> capture;
};

// Runs a node now. Throws the exceptions of its work.
void run_node(const Node& node);

// Records the node when the stream captures, else runs it.
void submit(StreamObject& stream, Node&& node);

// memcpy, on all threads when it is worth it.
void copy_with_workers(void* destination, const void* source, size_t size);

const aa_graph_table* graph_table();
const aa_ops_table* ops_table();
const aa_host_memory_table* host_memory_extension();
const aa_ceilings_table* ceilings_table();
const aa_host_code_table* host_code_table();

// The objects behind the table's handles.
inline DeviceObject& object(aa_device* device) { return *reinterpret_cast<DeviceObject*>(device); }
inline StreamObject& object(aa_stream* stream) { return *reinterpret_cast<StreamObject*>(stream); }
inline EventObject& object(aa_event* event) { return *reinterpret_cast<EventObject*>(event); }
inline GraphObject& object(aa_graph* graph) { return *reinterpret_cast<GraphObject*>(graph); }

}  // namespace anyaccel::cpu
