// Ops by a vendor's libraries.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "accelerators/queue_runtime/vendor.h"
#include "anyaccel/abi/driver_class.hpp"
#include "anyaccel/abi/ops.h"

namespace anyaccel::queue_runtime {

// Provides device memory for the work of one call.
class Workspace {
 public:
  virtual ~Workspace() = default;
  // At least `bytes` (> 0), for work that is enqueued on the call's stream before the call ends. Contents are undefined.
  virtual void* take(size_t bytes) = 0;
};

// One object per process. Thread-safe.
class OpSet {
 public:
  virtual ~OpSet() = default;
  // As aa_ops_table's find; -1: there is none.
  virtual int find(const char* name) const = 0;
  // As aa_ops_table's supports.
  virtual bool supports(const aa_op_call& call) const = 0;
  // Enqueues a supported call. Calls for one stream are made one at a time.
  virtual void run(const aa_op_call& call, StreamHandle stream, Workspace& workspace) const = 0;

  // Returns whether run_all() does better than run() call by call. The calls of a step are then held back until something else
  // needs their stream, and made together.
  virtual bool merges() const { return false; }
  // Enqueues supported calls in their order. Takes memory at most once, before it has enqueued anything; the memory is used
  // again by the next call for the stream.
  virtual void run_all(std::span<const aa_op_call* const> calls, StreamHandle stream, Workspace& workspace) const {
    for (const aa_op_call* call : calls) run(*call, stream, workspace);
  }

  // Weights in the vendor's own layout: as aa_ops_table's packed_size, pack and unpack. The last two are called only for
  // weights for which packed_size() gave bytes.
  virtual size_t packed_size(const aa_pack& /*what*/) const { return 0; }
  virtual std::unique_ptr<abi::Packed> pack(const aa_tensor& /*weight*/, const aa_allocation& /*into*/,
                                            StreamHandle /*stream*/, Workspace& /*workspace*/) const {
    abi::unimplemented("pack");
  }
  virtual void unpack(const abi::Packed& /*packed*/, const aa_tensor& /*out_weight*/, StreamHandle /*stream*/,
                      Workspace& /*workspace*/) const {
    abi::unimplemented("unpack");
  }
};

}  // namespace anyaccel::queue_runtime
