// Captures and the graphs that result from them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "accelerators/cuda/stream.h"

namespace anyaccel::cuda {

// A capture in progress: the stream that began it, and those that joined it by waiting for one of its events.
struct Capture {
  static std::shared_ptr<Capture> begin(const std::shared_ptr<StreamCore>& origin);
  // The stream takes part from now on.
  static void join(const std::shared_ptr<Capture>& capture, const std::shared_ptr<StreamCore>& stream);
  // No stream takes part any more.
  void end();
  // Returns true if this stream may end it.
  bool began_on(const StreamCore& stream) const noexcept { return origin == &stream; }

  const uint64_t id;
  const StreamCore* const origin;

 private:
  friend struct StreamCore;
  explicit Capture(const StreamCore* stream);
  std::vector<std::shared_ptr<StreamCore>> streams_;
};

class Graph final : public abi::Graph {
 public:
  // Takes ownership of the vendor's graph, even on failure.
  Graph(DeviceState& device, GraphHandle graph, uint64_t capture);
  ~Graph() override;

  void launch(abi::Stream& stream) override;
  int64_t node_count() const override { return nodes_; }

 private:
  DeviceState& device_;
  const uint64_t capture_;
  GraphExecHandle exec_ = nullptr;
  int64_t nodes_ = 0;
};

}  // namespace anyaccel::cuda
