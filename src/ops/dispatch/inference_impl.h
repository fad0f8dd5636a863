// Declares the dispatch behind ops::Inference: it finds the implementation that runs a call and runs it, or falls back
// to the CPU if there is none.
#pragma once

#include <atomic>
#include <initializer_list>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/ops/inference.h"
#include "anyaccel/ops/product_observer.h"
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

  // Checks the call and runs it on the accelerator, or on the CPU if the accelerator lacks the op.
  void run(Op op, std::span<const Tensor* const> tensors, const void* params = nullptr, uint32_t params_size = 0);
  // Does the same, but returns false without doing anything if the accelerator itself cannot run the call.
  bool run_native(Op op, std::span<const Tensor* const> tensors, const void* params, uint32_t params_size);

  // Checks the memory of a call that is to run as a sequence of ops, each of which sees only some of its tensors.
  void check_sequence(Op op, std::span<const Tensor* const> tensors) const;

  bool has(Op op) const noexcept { return number_of(op) >= 0; }
  // Returns the accelerator's number of the op or, within ByRow, of its form by rows; -1 if the accelerator lacks it.
  int32_t number_of(Op op) const noexcept {
    const Slot& slot = slots[static_cast<size_t>(op)];
    return by_row() && form_by_row(op) ? slot.by_row : slot.native;
  }
  static bool by_row() noexcept { return by_row_scopes > 0; }
  // Returns whether a fused op may be called: the accelerator has it, and nobody observes the ops that it consists of.
  bool may_fuse(Op op) const {
    return has(op) && !by_row() && ProductObserver::active == nullptr && accelerator.amp_dtype() == DType::None;
  }
  // Returns an input of a matrix product, converted to the scope's dtype under amp. Other dtypes than floats stay, for the
  // check to reject.
  Tensor amp_input(const Tensor& tensor) const {
    const DType dtype = accelerator.amp_dtype();
    return dtype == DType::None || !is_op_float(tensor.dtype()) ? tensor : tensor.to(dtype);
  }
  // Returns true for an op that the accelerator lacks and that can be composed of other ops of the table.
  bool is_sequence(Op op) const noexcept {
    return !has(op) && (is_fused(op) || ((op == Op::LinearMulti || op == Op::GatedLinear) && has(Op::Linear)));
  }

  Accelerator& accelerator;
  Workspace workspace{accelerator};

  struct Slot {
    int32_t native = -1;  // the accelerator's number; -1: it lacks the op
    int32_t by_row = -1;  // the number of its form by rows
    std::atomic<uint64_t> fallbacks{0};
    std::atomic<bool> unpacks{false};
  };
  std::array<Slot, op_count> slots;

  static thread_local constinit int by_row_scopes;  // of ByRow

 private:
  struct Call;
  // Finds the implementation that runs the call on the accelerator; returns an empty handle if there is none. `call.op`
  // is the accelerator's number. Checks the call first, unless one of its class has been checked.
  OpHandle resolve(Op op, const Call& call);
  void fall_back(Op op, std::span<const Tensor* const> tensors, Call& call);
  // Runs the call with the ordinary forms of packed weights, which are kept from now on.
  void run_unpacked(Op op, std::span<const Tensor* const> tensors, const void* params, uint32_t params_size);
  void note_fallback(Op op);

  ResolvedCalls resolved_;
  bool fallback_forbidden = false;
};

}  // namespace anyaccel::ops
