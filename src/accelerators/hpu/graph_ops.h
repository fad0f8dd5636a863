// Ops whose graphs see tensors in other shapes than the call's, or write into a tensor that they read: graph_ops.cpp.
#pragma once

#include <span>
#include <vector>

#include "accelerators/hpu/recipe.h"
#include "anyaccel/abi/driver_class.hpp"
#include "runtime/ops/op_list.h"

namespace anyaccel::hpu {

// The tensors of a call in its graph, by their numbers; those that are absent have no handle.
using Tensors = std::vector<Graph::Tensor>;

struct GraphOp {
  Op op;
  bool (*supports)(const aa_op_call& call);
  // Of each tensor in the graph; empty for one that is absent.
  std::vector<Sizes> (*sizes)(const aa_op_call& call);
  std::vector<uint32_t> replaced;  // the tensors that are read and written
  // `after`: what the replaced tensors become, by their numbers.
  void (*build)(Graph& graph, const aa_op_call& call, const Tensors& t, const Tensors& after);
  // What a recipe depends on besides types and shapes; may be null.
  void (*settings)(const aa_op_call& call, std::vector<int64_t>& key);
};

// Null for an op that has no row here.
const GraphOp* graph_op(Op op);

// ---- what ops ask of their tensors -----------------------------------------------------------------------------------

// 0: a type that is not computed with here.
int syn_type(int32_t dtype);
inline bool is_there(const aa_tensor& tensor) { return tensor.dtype != AA_DTYPE_NONE; }
// Without gaps, not empty, with as many dimensions as tensors have in a graph.
bool is_dense(const aa_tensor& tensor);
// The same, of a float type.
bool is_plain(const aa_tensor& tensor);

template <class Params>
const Params& params(const aa_op_call& call) {
  return *static_cast<const Params*>(call.params);
}

}  // namespace anyaccel::hpu
