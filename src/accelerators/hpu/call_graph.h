// Describes the graphs of op calls, one by one or joined (step.h): how a call uses its tensors, their sizes in the graph, and the
// nodes that compute them.
#pragma once

#include <cstdint>
#include <vector>

#include "accelerators/hpu/graph_ops.h"

namespace anyaccel::hpu {

enum class Use { absent, in, out, in_and_out };
Use use_of(const aa_op_call& call, uint32_t tensor);

// Returns whether hpu has the op, and whether it takes exactly this call.
bool has_graph(Op op);
bool supports_call(const aa_op_call& call);

// Returns the sizes of each tensor in the graph; empty for an absent tensor.
std::vector<Sizes> graph_sizes(const aa_op_call& call);
// Adds to `key` everything on which the call's nodes depend.
void add_to_key(const aa_op_call& call, std::vector<int64_t>& key);
// Adds the call's nodes. `t`: what is read, and what is written without being read. `after`: the new values of tensors that are
// read and written, by the same index.
void build_call(Graph& graph, const aa_op_call& call, const Tensors& t, const Tensors& after);

}  // namespace anyaccel::hpu
