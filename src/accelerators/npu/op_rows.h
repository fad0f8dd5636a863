// Lists the ops of this accelerator, each implemented with operators of aclnn.
#pragma once

#include <span>

#include "accelerators/npu/aclnn.h"
#include "runtime/ops/op_list.h"

namespace anyaccel::npu {

struct OpRow {
  Op op;
  // Returns whether the operators that it always needs are available.
  bool (*is_there)(const Functions& f);
  bool (*supports)(const Functions& f, const aa_op_call& call);
  // Enqueues a call that is supported.
  void (*run)(const aa_op_call& call, Work& work);
};

std::span<const OpRow> product_ops();    // products.cpp: products, norms, activations, sums
std::span<const OpRow> position_ops();   // positions.cpp: embeddings, rotary embeddings, writes to the cache, counters
std::span<const OpRow> attention_ops();  // attention.cpp

}  // namespace anyaccel::npu
