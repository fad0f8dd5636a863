// Recorded graphs, with the pool of memory that captured work uses.
#pragma once

#include <memory>

#include "anyaccel/stream.h"
#include "runtime/core/streams.h"

namespace anyaccel {

class DriverGraph final : public detail::GraphState {
 public:
  explicit DriverGraph(std::shared_ptr<DeviceContext> context) : context_(std::move(context)) {}
  ~DriverGraph() override;

  bool ready() const noexcept override { return graph_ != nullptr; }
  uint64_t pool() const noexcept override { return pool_; }

  // Discards the previous capture.
  void clear();
  // Takes one ownership share of the pool.
  void set(aa_graph* graph, uint64_t pool, std::unique_ptr<HostCalls> calls);

  aa_graph* graph() const noexcept { return graph_; }
  const std::shared_ptr<DeviceContext>& context() const noexcept { return context_; }

 private:
  std::shared_ptr<DeviceContext> context_;
  aa_graph* graph_ = nullptr;
  uint64_t pool_ = 0;
  std::unique_ptr<HostCalls> calls_;
};

}  // namespace anyaccel
