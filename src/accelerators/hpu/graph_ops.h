// Declares the ops of graph_ops.cpp, whose graphs use tensors in other shapes than the call's, or write into a tensor
// that they read.
#pragma once

#include <span>
#include <vector>

#include "accelerators/hpu/recipe.h"
#include "anyaccel/abi/driver_class.hpp"
#include "runtime/ops/op_list.h"

namespace anyaccel::hpu {

// The tensors of a call in its graph, by their index; an absent tensor has no handle.
using Tensors = std::vector<Graph::Tensor>;

struct GraphOp {
  Op op;
  bool (*supports)(const aa_op_call& call);
  // Returns the sizes of each tensor in the graph; empty for an absent tensor.
  std::vector<Sizes> (*sizes)(const aa_op_call& call);
  std::vector<uint32_t> replaced;  // indices of the tensors that are both read and written
  // Builds the graph. `after`: the new values of the replaced tensors, by their index.
  void (*build)(Graph& graph, const aa_op_call& call, const Tensors& t, const Tensors& after);
  // Adds to `key` the settings on which the recipe depends besides types and shapes; may be null.
  void (*settings)(const aa_op_call& call, std::vector<int64_t>& key);
};

// Returns null for an op that is not in the table.
const GraphOp* graph_op(Op op);

// ---- what ops require of their tensors ------------------------------------------------------------------------------

// Returns 0 for a dtype that these ops do not compute with.
int syn_type(int32_t dtype);
inline bool is_there(const aa_tensor& tensor) { return tensor.dtype != AA_DTYPE_NONE; }
// True for a tensor that is not empty, has no gaps, and has no more dimensions than tensors in a graph may have.
bool is_dense(const aa_tensor& tensor);
// True if is_dense() is true and the type is a float type.
bool is_plain(const aa_tensor& tensor);

}  // namespace anyaccel::hpu
