// Streams: immediate command lists, and the state that keeps their work in order and their errors sticky.
#pragma once

#include <deque>
#include <memory>
#include <mutex>

#include "accelerators/streams/captures.h"
#include "accelerators/streams/host_calls.h"
#include "accelerators/xpu/level_zero/command_list.h"
#include "accelerators/xpu/level_zero/event.h"
#include "accelerators/xpu/level_zero/graph.h"

namespace anyaccel::xpu::level_zero {

// The streams of a device, for Device::synchronize. Thread-safe.
class StreamList;

class Stream final : public abi::Stream {
 public:
  Stream(std::shared_ptr<DeviceState> device, std::shared_ptr<StreamList> siblings, const QueueDesc& desc);
  ~Stream() override;

  void close() override;
  void copy(const aa_copy& what) override;
  void copy_peer(const aa_peer_copy& what) override;
  void fill(const aa_fill& what) override;
  bool query() override;
  void synchronize() override;
  void wait_event(abi::Event& event) override;
  void* native() override;
  void host_call(void (*function)(void* user), void* user) override;
  void launch(abi::Kernel& kernel, const aa_launch& launch) override;
  void capture_begin() override;
  std::unique_ptr<abi::Graph> capture_end() override;
  bool capturing() override;

  // Returns a record of a point after all work so far (also while a graph is captured, which does not include it); null
  // if there was no work. Thread-safe, as are the following.
  std::shared_ptr<Record> end_of_work();
  // Records the event, or adds the record to the captured graph.
  void record(const std::shared_ptr<EventCore>& event);
  // Later work waits for the record; null: for nothing.
  void wait_for(std::shared_ptr<Record> record);
  bool made(const Record& record) const noexcept { return record.fault() == fault_; }
  // Runs the list on the queue, after all work so far and before later work.
  void run(RecordedList& list, const std::shared_ptr<GraphQueue>& queue);

 private:
  struct Kept {
    std::shared_ptr<Record> record;
    bool own;  // recorded on this stream: once it is complete, this and all before it were passed
  };

  using Capture = streams::GraphCapture<Graph>;
  // Null while the stream does not capture.
  Graph* capture() {
    const auto& open = captures_.current();
    return open ? &open->graph() : nullptr;
  }
  void join(const EventCore& event);
  // Waits for all work, as far as that is possible after an error.
  void settle() noexcept;
  void begin_work();
  struct HostCall {
    std::shared_ptr<Record> ready;     // signaled when the stream has reached the call
    std::shared_ptr<Record> returned;  // signaled by the thread; the stream waits for it
    void (*function)(void* user);
    void* user;
  };
  static void carry_out(DeviceState& device, const HostCall& call);
  // Returns the target of the next command: the captured graph, or the device.
  CommandList& target();
  std::shared_ptr<Record> mark_locked(bool timed);
  void wait_locked(const std::shared_ptr<Record>& record);
  void release_passed();
  std::shared_ptr<Record> end_of_work_locked();
  std::shared_ptr<Record> end_to_wait_for();

  std::shared_ptr<DeviceState> device_;
  std::shared_ptr<StreamList> siblings_;
  std::shared_ptr<StreamFault> fault_ = std::make_shared<StreamFault>();
  std::mutex mutex_;
  std::unique_ptr<CommandList> list_;
  std::deque<Kept> kept_;        // records that the device may still use
  Waits waits_;                  // what work from now on waits for
  std::shared_ptr<Record> end_;  // the latest of this stream
  bool worked_since_end_ = false;
  streams::CaptureOf<Capture> captures_{this};
  std::unique_ptr<streams::HostCalls<HostCall>> host_calls_;  // created at first use
};

class StreamList {
 public:
  void add(Stream* stream);
  void remove(Stream* stream) noexcept;
  // Returns records of the points after all work so far of every stream.
  std::vector<std::shared_ptr<Record>> ends_of_work();

 private:
  std::mutex mutex_;
  std::vector<Stream*> streams_;
};

}  // namespace anyaccel::xpu::level_zero
