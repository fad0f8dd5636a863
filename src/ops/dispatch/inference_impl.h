// The dispatch behind ops::Inference: it finds what runs a call, runs it, and goes to the CPU and back where nothing
// does.
#pragma once

#include <atomic>
#include <initializer_list>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/ops/inference.h"
#include "ops/dispatch/op_schema.h"
#include "ops/dispatch/resolved_calls.h"
#include "ops/dispatch/workspace.h"
#include "runtime/ops/op_list.h"

namespace anyaccel::ops {

template <class Params>
Params make_params() {
  Params params{};
  params.struct_size = sizeof(Params);
  return params;
}

struct Inference::Impl {
  explicit Impl(Accelerator& active);

  // Checks the call and runs it on the accelerator, or on the CPU when the accelerator lacks it.
  void run(Op op, std::span<const Tensor* const> tensors, const void* params = nullptr, uint32_t params_size = 0);
  // The same, but false (and nothing done) when the accelerator itself cannot run the call.
  bool run_native(Op op, std::span<const Tensor* const> tensors, const void* params, uint32_t params_size);

  bool has(Op op) const noexcept { return number_of(op) >= 0; }
  // The accelerator's number of the op, or of its form by rows within ByRow; -1: it lacks it.
  int32_t number_of(Op op) const noexcept {
    const Slot& slot = slots[static_cast<size_t>(op)];
    return by_row() && form_by_row(op) ? slot.by_row : slot.native;
  }
  static bool by_row() noexcept { return by_row_scopes > 0; }
  // A fused op may be asked for when the accelerator has it and F32 stands between the ops that it is made of.
  bool may_fuse(Op op, DType between) const {
    return has(op) && !by_row() && between == DType::F32 && accelerator.amp_dtype() == DType::None;
  }
  // True for an op that the accelerator lacks and that is made of others of the table.
  bool is_sequence(Op op) const noexcept {
    return !has(op) && (is_fused(op) || ((op == Op::LinearMulti || op == Op::GatedLinear) && has(Op::Linear)));
  }

  Accelerator& accelerator;
  Workspace workspace{accelerator};

  struct Slot {
    int32_t native = -1;  // the accelerator's number; -1: it lacks the op
    int32_t by_row = -1;  // that of its form by rows
    std::atomic<uint64_t> fallbacks{0};
    std::atomic<bool> unpacks{false};
  };
  std::array<Slot, op_count> slots;

  static thread_local constinit int by_row_scopes;  // of ByRow

 private:
  struct Call;
  // Finds the implementation that runs the call on the accelerator; an empty handle when there is none. `call.op` is
  // the accelerator's number. Checks the call first, unless one of its class has been checked.
  OpHandle resolve(Op op, const Call& call);
  void fall_back(Op op, std::span<const Tensor* const> tensors, Call& call);
  // Runs the call on the ordinary forms of packed weights, which are kept from now on.
  void run_unpacked(Op op, std::span<const Tensor* const> tensors, const void* params, uint32_t params_size);
  void note_fallback(Op op);

  ResolvedCalls resolved_;
  bool fallback_forbidden = false;
};

}  // namespace anyaccel::ops
