// Groups of ops: each is one source file that turns calls of abi/ops.h into launches of a few kernels, or into calls of a
// vendor's library. The portable ops and an accelerator's tuned ones are made of such groups.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "anyaccel/abi/ops.h"
#include "runtime/ops/op_list.h"

namespace anyaccel {

// Device is the type that supports() is given, Queue the type that enqueue() puts work on.
template <class Device, class Queue>
class OpGroup {
 public:
  virtual ~OpGroup() = default;
  virtual std::span<const Op> ops() const = 0;
  // Returns true if the group runs this call better than the groups after it. Data pointers may be null. The host has
  // checked the call (ops/dispatch/op_schema.h). Cheap: asked for before every call.
  virtual bool supports(Op op, const aa_op_call& call, Device& device) = 0;
  // Blocks only to compile and load kernels at first use. Also while the queue is being captured into a graph. A call
  // with nothing to do enqueues nothing. Allocates nothing on the heap.
  virtual void enqueue(Op op, const aa_op_call& call, Queue& queue) = 0;
};

// The groups of one device, in order of preference.
template <class Device, class Queue>
class OpGroups {
 public:
  using Group = OpGroup<Device, Queue>;

  void add(std::unique_ptr<Group> group) {
    for (const Op op : group->ops()) of_op_[static_cast<size_t>(op)].push_back(group.get());
    groups_.push_back(std::move(group));
  }
  bool has(Op op) const noexcept { return !of_op_[static_cast<size_t>(op)].empty(); }
  // The first group that runs the call; null when none does.
  Group* choose(Op op, const aa_op_call& call, Device& device) const {
    for (Group* group : of_op_[static_cast<size_t>(op)]) {
      if (group->supports(op, call, device)) return group;
    }
    return nullptr;
  }
  // The group that is asked first; null when no group has the op.
  Group* first(Op op) const noexcept { return has(op) ? of_op_[static_cast<size_t>(op)].front() : nullptr; }
  void clear() {
    for (auto& groups : of_op_) groups.clear();
    groups_.clear();
  }

 private:
  std::vector<std::unique_ptr<Group>> groups_;
  std::array<std::vector<Group*>, op_form_count> of_op_;
};

}  // namespace anyaccel
