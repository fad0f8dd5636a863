// Lists the ops of this accelerator, each implemented with operators of aclnn.
#pragma once

#include <span>

#include "accelerators/npu/aclnn.h"
#include "runtime/ops/op_list.h"

namespace anyaccel::npu {

// Adam's step (abi/optimizer_ops.h) is no op of the list: its number follows theirs.
inline constexpr Op adam_step{static_cast<int>(op_form_count)};

struct OpRow {
  Op op;
  // Returns whether the operators that it always needs are available.
  bool (*is_there)(const Functions& f);
  bool (*supports)(const Functions& f, const aa_op_call& call);
  // Prepares the operators of a call that is supported.
  void (*run)(const aa_op_call& call, Work& work);
};

// Returns the bytes that the weight w of linear calls with x takes in blocks; 0: it stays in rows.
size_t bytes_in_blocks(const Functions& f, const aa_tensor& x, const aa_tensor& w);
// Returns whether this tensor of the op's calls may be a packed weight.
bool takes_packed(Op op, uint32_t tensor);

std::span<const OpRow> product_ops();    // products.cpp: products, norms, activations, sums
std::span<const OpRow> position_ops();   // positions.cpp: embeddings, rotary embeddings, writes to the cache, counters
std::span<const OpRow> attention_ops();  // attention.cpp
std::span<const OpRow> optimizer_ops();  // adam.cpp

}  // namespace anyaccel::npu
