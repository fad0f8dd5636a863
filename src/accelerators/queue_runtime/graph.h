// Recorded graphs: the calls that a stream received while it captured, repeated at each launch. From the second launch on they
// are one piece of work, where the vendor captures streams and all calls are of kinds that it captures.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "accelerators/queue_runtime/event.h"

namespace anyaccel::queue_runtime {

class Stream;

// Enqueues one recorded item.
using GraphStep = std::function<void(Stream& stream)>;

class Graph final : public abi::Graph {
 public:
  explicit Graph(std::shared_ptr<DeviceState> device) : device_(std::move(device)) {}
  ~Graph() override;
  const DeviceState& device() const noexcept { return *device_; }

  // Only while the graph is recorded. `items`: the number of the caller's items that the step contains, 0 for a part of
  // one.
  void add(GraphStep step, int64_t items = 1);
  // The same for a copy of locked memory, a fill or an op, which a vendor may capture.
  void add_capturable(GraphStep step);
  // A copy between pageable memory and a locked buffer of the graph, made by a host function in stream order.
  struct HostCopy {
    void* to;
    const void* from;
    size_t size;
  };
  // The locked buffer of `size` bytes; lives as long as the graph.
  void* add_staging(size_t size);
  HostCopy* add_host_copy(const HostCopy& copy);

  void launch(abi::Stream& stream) override;
  int64_t node_count() const override { return items_; }

 private:
  void follow_last_launch(Stream& stream);
  void keep_end(Stream& stream, bool taken) noexcept;
  // Whether the launch is one piece of work.
  bool is_captured();
  void capture();

  std::shared_ptr<DeviceState> device_;
  std::vector<GraphStep> steps_;
  std::vector<void*> staging_;
  std::vector<std::unique_ptr<HostCopy>> host_copies_;
  int64_t items_ = 0;
  bool capturable_ = true;
  bool launched_ = false;  // so that all memory that ops want has been taken
  CapturedHandle captured_ = nullptr;
  std::shared_ptr<Record> last_launch_;
};

}  // namespace anyaccel::queue_runtime
