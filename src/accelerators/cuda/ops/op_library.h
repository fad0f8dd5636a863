// The extension "ops" of one opened device: which group of tuned ops (op_group.h) runs a call.
#pragma once

#include <mutex>

#include "accelerators/cuda/ops/op_group.h"

namespace anyaccel::cuda {

class OpLibrary {
 public:
  explicit OpLibrary(DeviceState& device) : device_(device) {}

  // The number of an op of abi/ops.h that some group may run, the same for all devices; -1 when there is none.
  static int find(const char* name);

  // Returns true if a group runs the call on this device. `op` is a result of find().
  bool supports(int op, const aa_op_call& call);
  // Enqueues it by the first group that supports it. The device's context is current. False, and nothing done, when
  // there is none.
  bool enqueue(int op, const aa_op_call& call, Stream& stream);

 private:
  OpGroup* choose(Op op, const aa_op_call& call);
  void make_groups();

  DeviceState& device_;
  std::once_flag made_;  // guards the making of the groups
  OpGroups groups_;
};

}  // namespace anyaccel::cuda
