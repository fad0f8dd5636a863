// Streams: the vendor's, with the state that makes errors sticky and copies of pageable memory possible.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "accelerators/queue_runtime/event.h"
#include "accelerators/queue_runtime/graph.h"
#include "accelerators/queue_runtime/ops.h"
#include "accelerators/streams/captures.h"

namespace anyaccel::queue_runtime {

// The living streams of a device, for Device::synchronize. Thread-safe.
class StreamList {
 public:
  void add(const std::shared_ptr<StreamCore>& stream);
  std::vector<std::shared_ptr<StreamCore>> all();

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<StreamCore>> streams_;
};

// A copy of the arguments of an op call.
struct KeptCall;

class Stream final : public abi::Stream {
 public:
  Stream(const std::shared_ptr<DeviceState>& device, StreamList& siblings, const aa_stream_params& params);
  ~Stream() override;

  void close() override;
  void copy(const aa_copy& what) override;
  void fill(const aa_fill& what) override;
  bool query() override;
  void synchronize() override;
  void wait_event(abi::Event& event) override;
  // Rejected while a graph is captured: work that others enqueue with the handle would not be recorded.
  void* native() override;
  void host_call(void (*function)(void* user), void* user) override;
  bool enqueue_op(const aa_op_call& call) override;
  std::unique_ptr<abi::Packed> pack(const aa_pack& what, const aa_tensor& weight, const aa_allocation& into) override;
  void unpack(abi::Packed& packed, const aa_tensor& out_weight) override;
  void capture_begin() override;
  std::unique_ptr<abi::Graph> capture_end() override;
  bool capturing() override;
  void flush() override { release_held(); }
  void step_begin(const aa_step& step) override;
  void step_end() override;

  // The ops that a stream holds at most.
  static constexpr int most_held = 1024;
  // Enqueues the ops that the step has held back until now. Whatever else comes to the stream does so first. Any thread;
  // a failure stays with the stream.
  void release_held();

  // Runs the step, or adds it to the captured graph.
  void enqueue(const GraphStep& step);
  // Records the event, or adds the record to the captured graph. Thread-safe, as are the following.
  void record(const std::shared_ptr<EventCore>& event);
  // Returns a record of the point after all work so far.
  std::shared_ptr<Record> end_of_work();
  // Later work waits for the record.
  void wait_for(const std::shared_ptr<Record>& record);
  bool made(const Record& record) const noexcept { return record.is_of(*core_); }
  // Enqueues what the vendor captured.
  void launch_captured(CapturedHandle captured);
  StreamHandle handle() const noexcept { return core_->handle(); }

 private:
  struct Kept {
    std::shared_ptr<Record> record;
    bool own;  // recorded on this stream: once it is complete, this and all before it were passed
  };

  DeviceState& device() const noexcept { return core_->device(); }
  using Capture = streams::GraphCapture<Graph>;
  // Null while the stream does not capture.
  Graph* capture() {
    const auto& open = captures_.current();
    return open ? &open->graph() : nullptr;
  }
  // Records a step if a graph is captured; returns false if it must be run now.
  bool captured(GraphStep step);
  void join(const EventCore& event);
  void refuse_while_capturing();
  // A locked staging buffer for copies of pageable memory, for vendors that copy locked memory only.
  struct Staging {
    void* memory = nullptr;
    std::shared_ptr<Record> last;  // after the last copy from or to it
  };
  bool is_pageable(const void* host, size_t size) const;
  void copy_captured(Graph& graph, const aa_copy& what);
  void copy_staged_locked(const aa_copy& what);
  void stage_locked(const aa_copy& what);
  void copy_locked(const aa_copy& what);
  void fill_locked(const aa_fill& what);
  std::shared_ptr<Record> mark_locked(bool timed);
  bool take_over_faults(bool (*ask)(Point& point));
  void release_passed();
  const OpSet& ops() const;
  // Returns false if the call must be made now: outside of a step, or if the vendor's ops are not made together.
  bool hold(const OpSet& set, const aa_op_call& call);
  void release_held_locked();
  class StepWorkspace;
  // Enqueues work of a vendor's library.
  using LibraryWork = std::function<void(StreamHandle stream, Workspace& workspace)>;
  void enqueue_library(const LibraryWork& run);
  // Adds what `make` returns to the captured graph; false, without having called it, if none is captured.
  bool record_library(const std::function<LibraryWork()>& make);
  template <class Run>
  void run_library(const Run& run);

  std::shared_ptr<StreamCore> core_;
  aa_host_stream* const host_stream_;
  std::mutex held_mutex_;  // guards the next three
  bool in_step_ = false;
  std::vector<std::shared_ptr<KeptCall>> held_;
  std::vector<void*> step_memory_;  // workspaces of steps, each twice as large as the one before; the last is used
  size_t step_bytes_ = 0;
  std::mutex ops_mutex_;   // one thread enqueues an op at a time
  std::mutex mutex_;       // one thread enqueues at a time; guards the next four
  std::deque<Kept> kept_;  // records that the device may still use
  Waits waits_;            // of all work so far, as far as it is not known to have passed
  streams::CaptureOf<Capture> captures_{this};
  std::array<Staging, 2> staging_;  // while one is filled or read, the other is being copied
};

}  // namespace anyaccel::queue_runtime
