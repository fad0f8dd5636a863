// Gives a group's operations access to tensors: directly, or in order with a stream, with copies through page-locked
// memory if the host cannot access the accelerator's memory; and asynchronously.
//
// Uncaptured operations share two staging buffers, which is safe because all of a group's operations on a device are
// ordered: when the current stream changes, the new one waits for the old one. A captured operation has its own
// buffers, which its graph owns.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/driver_accelerator.h"
#include "comm/group/operation_runner.h"

namespace anyaccel::comm {

// The tensors of one operation; either may be null. In place: only `output`, with reads_output.
struct Operands {
  const Tensor* output = nullptr;
  const Tensor* input = nullptr;
  bool reads_output = false;
  bool writes_output = true;
};

// The collective on host memory (null if there is no tensor).
using OperationBody = std::function<void(HostCommunicator&, void* output, const void* input)>;

class TensorPath {
 public:
  TensorPath(Accelerator& accelerator, std::shared_ptr<OperationRunner> runner);

  struct Place {
    bool in_stream = false;  // ordered by the current stream of `device`
    bool capturing = false;  // which records a graph
    bool on_device = false;  // device of a tensor
    int device = 0;
  };
  // Throws InvalidArgument for tensors of another accelerator or of two devices.
  Place place(const Operands& operands) const;

  // Enqueues the operation on the current stream. On an accelerator whose calls complete at once, failures are thrown.
  void enqueue(const Place& place, OperationLabel label, const Operands& operands, OperationBody body);
  // Blocks until what was enqueued is complete, and the results of operations whose turn has passed are where their tensors are.
  void finish() const;
  // Passes the operation to the group's thread, after the work of the current stream if a tensor is on a device.
  Work start(const Place& place, OperationLabel label, const Operands& operands, OperationBody body);

 private:
  class AsyncWork;
  class StagingPool;

  bool needs_staging(const Tensor& tensor) const { return !host_reachable_ && !tensor.device().is_host(); }
  bool capturing(int device) const;
  void order_after_last_stream(int device);
  Tensor new_staging(size_t bytes) const;
  Tensor staging(const Tensor& tensor, bool captured, Tensor& shared);

  Accelerator& accelerator_;
  std::shared_ptr<OperationRunner> runner_;
  const abi::Calls<aa_graph_table>* graphs_ = nullptr;  // null: nothing is ever captured
  bool is_host_ = false;                                // the accelerator is the CPU: host tensors are its own
  bool host_reachable_ = false;                         // the host may use its memory
  bool synchronous_ = false;                            // its work is complete when a call returns
  bool stream_calls_ = false;                           // Stream::host_call and page-locked memory work

  Stream last_stream_;
  Tensor staged_output_;
  Tensor staged_input_;
  std::vector<Tensor> outgrown_;       // earlier ones of the two, which were too small
  std::shared_ptr<StagingPool> pool_;  // for asynchronous operations
  Stream copy_stream_;                 // carries results of asynchronous operations to the device
};

}  // namespace anyaccel::comm
