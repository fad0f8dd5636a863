// Recorded graphs: closed command lists that run again without being appended again, with the host calls, event records and
// waits between them.
#pragma once

#include <memory>
#include <vector>

#include "accelerators/xpu/level_zero/command_list.h"
#include "accelerators/xpu/level_zero/event.h"

namespace anyaccel::xpu::level_zero {

class Stream;

// A command list to be run by Stream::run(). It begins by waiting for `started` and ends by signaling `finished`, which
// orders it between the commands of a stream; both are unsignaled again when the stream has passed it.
class RecordedList {
 public:
  explicit RecordedList(const std::shared_ptr<DeviceState>& device);
  ~RecordedList();
  RecordedList(const RecordedList&) = delete;
  RecordedList& operator=(const RecordedList&) = delete;

  CommandList& commands() noexcept { return *commands_; }
  void close();
  EventHandle started() const noexcept { return started_; }
  EventHandle finished() const noexcept { return finished_; }

  // The events are in use from take() until the end of the launch is known. A launch that was refused halfway may leave one of
  // them signaled, or to be signaled later: then nothing uses them again, neither a launch nor, from the pool, something else.
  void refuse_if_taken() const;
  void take() noexcept { events_ = Events::taken; }
  void lose() noexcept { events_ = Events::lost; }
  void give_back() noexcept {
    if (events_ == Events::taken) events_ = Events::free;
  }

 private:
  enum class Events { free, taken, lost };

  std::shared_ptr<DeviceState> device_;
  EventHandle started_;
  EventHandle finished_;
  Events events_ = Events::free;
  std::unique_ptr<CommandList> commands_;
};

// One of these at a time.
struct GraphStep {
  std::unique_ptr<RecordedList> list;
  void (*function)(void* user) = nullptr;  // a host call
  void* user = nullptr;
  std::shared_ptr<EventCore> record;
  std::shared_ptr<EventCore> wait;
};

class Graph final : public abi::Graph {
 public:
  explicit Graph(std::shared_ptr<DeviceState> device) : device_(std::move(device)) {}
  ~Graph() override;
  const DeviceState& device() const noexcept { return *device_; }

  // -- while it is recorded --
  // The list that takes the next command.
  CommandList& commands();
  void add(GraphStep step);
  void finish();

  // -- then --
  void launch(abi::Stream& stream) override;
  int64_t node_count() const override { return nodes_; }

 private:
  void close_list();
  void follow_last_launch(Stream& stream);
  // The next launch follows this point.
  void keep_end(Stream& stream);

  std::shared_ptr<DeviceState> device_;
  std::shared_ptr<GraphQueue> queue_;  // runs the lists
  std::vector<GraphStep> steps_;
  bool list_is_open_ = false;  // the last step's
  int64_t nodes_ = 0;
  std::shared_ptr<Record> last_launch_;
};

}  // namespace anyaccel::xpu::level_zero
