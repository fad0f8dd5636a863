// Implements call_graph.h: products, norms, activations and sums with Synapse's graphs; other ops are in graph_ops.cpp.
//
// Ops compute in fp32, with conversions before and after, so that a result is rounded once; the exception is a product
// of 16-bit matrices with a 16-bit result of the same type and nothing to add.
#include "accelerators/hpu/call_graph.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "runtime/ops/op_params.h"

namespace anyaccel::hpu {
namespace {

using Tensor = Graph::Tensor;

bool is_silu(const aa_op_call& call) { return params_of<aa_activation_params>(call).kind == AA_ACTIVATION_SILU; }

// ---- graphs of calls -------------------------------------------------------------------------------------------------

Tensor product(Graph& graph, const Tensor& x, const Tensor& w) {
  const SynGemm transposed{false, true};
  Tensor out = graph.between(syn_f32, {x.sizes[0], w.sizes[0]});
  graph.node("gemm", {graph.in_f32(x), graph.in_f32(w)}, {out}, &transposed, sizeof(transposed));
  return out;
}

// Applies a node to two tensors in fp32.
Tensor both(Graph& graph, const char* guid, const Tensor& a, const Tensor& b) {
  Tensor out = graph.between(syn_f32, a.sizes);
  graph.node(guid, {a, b}, {out});
  return out;
}
Tensor silu(Graph& graph, const Tensor& x) {
  Tensor out = graph.between(syn_f32, x.sizes);
  graph.node("silu_fwd_f32", {x}, {out});
  return out;
}

void linear(Graph& graph, const Tensor& out, const Tensor& x, const Tensor& w, const Tensor& bias,
            const Tensor& residual) {
  if (!bias.handle && !residual.handle && out.type == x.type && x.type == w.type) {
    const SynGemm transposed{false, true};
    return graph.node("gemm", {x, w}, {out}, &transposed, sizeof(transposed));
  }
  Tensor sum = product(graph, x, w);
  if (bias.handle) sum = both(graph, "add_fwd_f32", sum, graph.in_f32(bias));
  if (residual.handle) sum = both(graph, "add_fwd_f32", sum, graph.in_f32(residual));
  graph.convert(out, sum);
}

// `sum`: the new value of the residual, if there is one.
void rms_norm(Graph& graph, const Tensors& t, const Tensor& sum, float eps) {
  Tensor x = graph.in_f32(t[1]);
  if (sum.handle) {
    const Tensor added = both(graph, "add_fwd_f32", graph.in_f32(t[3]), x);
    const Tensor rounded = graph.between(sum.type, sum.sizes);  // the norm uses the values as they are stored
    graph.convert(rounded, added);
    graph.node("memcpy", {rounded}, {sum});
    x = graph.in_f32(rounded);
  }
  Sizes rows = x.sizes;
  rows.back() = 1;
  const Tensor result = graph.between(syn_f32, x.sizes), root = graph.between(syn_f32, rows);
  SynNorm params;
  std::memset(&params, 0, sizeof(params));  // recipes are compared by their bytes
  params.has_eps = true;
  params.eps = eps;
  graph.node("rms_norm_ex_fwd_f32", {x, graph.in_f32(t[2])}, {result, root}, &params, sizeof(params));
  graph.convert(t[0], result);
}

void build_plain(Graph& graph, const aa_op_call& call, const Tensors& t, const Tensors& after) {
  const Tensor none{};
  switch (static_cast<Op>(call.op)) {
    case Op::Linear: return linear(graph, t[0], t[1], t[2], t[3], t[4]);
    case Op::LinearMulti:
      for (size_t i = 1; i < t.size(); i += 3) linear(graph, t[i], t[0], t[i + 1], t[i + 2], none);
      return;
    case Op::GatedLinear:
      return graph.convert(
          t[0], both(graph, "mult_fwd_f32", silu(graph, product(graph, t[1], t[2])), product(graph, t[1], t[3])));
    case Op::RmsNorm: return rms_norm(graph, t, after[3], params_of<aa_norm_params>(call).eps);
    case Op::Activation: return graph.convert(t[0], silu(graph, graph.in_f32(t[1])));
    case Op::GatedActivation:
      return graph.convert(t[0], both(graph, "mult_fwd_f32", silu(graph, graph.in_f32(t[1])), graph.in_f32(t[2])));
    case Op::Add: return graph.convert(t[0], both(graph, "add_fwd_f32", graph.in_f32(t[1]), graph.in_f32(t[2])));
    default: throw abi::Failure(AA_INVALID_ARGUMENT, "hpu has no op with the number " + std::to_string(call.op));
  }
}

}  // namespace

Use use_of(const aa_op_call& call, uint32_t tensor) {
  if (!is_there(call.tensors[tensor])) return Use::absent;
  const Op op = static_cast<Op>(call.op);
  if (const GraphOp* row = graph_op(op)) {
    const auto& replaced = row->replaced;
    if (std::find(replaced.begin(), replaced.end(), tensor) != replaced.end()) return Use::in_and_out;
  }
  if (op == Op::RmsNorm && tensor == 3) return Use::in_and_out;  // the residual
  if (op == Op::Sample && tensor == 2) return Use::absent;       // a greedy choice needs no random numbers
  const bool is_written = op == Op::LinearMulti ? tensor % 3 == 1 : tensor == 0 || (op == Op::RopeTable && tensor == 1);
  return is_written ? Use::out : Use::in;
}

bool has_graph(Op op) {
  switch (op) {
    case Op::Linear:
    case Op::LinearMulti:
    case Op::GatedLinear:
    case Op::RmsNorm:
    case Op::Activation:
    case Op::GatedActivation:
    case Op::Add: return true;
    default: return graph_op(op) != nullptr;
  }
}

bool supports_call(const aa_op_call& call) {
  if (const GraphOp* row = graph_op(static_cast<Op>(call.op))) return row->supports(call);
  for (uint32_t i = 0; i < call.tensor_count; ++i) {
    if (is_there(call.tensors[i]) && !is_plain(call.tensors[i])) return false;
  }
  switch (static_cast<Op>(call.op)) {
    case Op::Linear:
    case Op::LinearMulti:
    case Op::Add: return true;
    case Op::RmsNorm: return is_there(call.tensors[2]);
    case Op::GatedLinear: return is_silu(call) && !is_there(call.tensors[4]) && !is_there(call.tensors[5]);
    case Op::Activation:
    case Op::GatedActivation: return is_silu(call);
    default: return false;
  }
}

std::vector<Sizes> graph_sizes(const aa_op_call& call) {
  if (const GraphOp* row = graph_op(static_cast<Op>(call.op))) return row->sizes(call);
  std::vector<Sizes> sizes;
  for (uint32_t i = 0; i < call.tensor_count; ++i) {
    const aa_tensor& tensor = call.tensors[i];
    sizes.emplace_back(tensor.shape, tensor.shape + (is_there(tensor) ? tensor.ndim : 0));
  }
  return sizes;
}

void add_to_key(const aa_op_call& call, std::vector<int64_t>& key) {
  // The name, because recipes in files outlive the numbers of this version.
  for (const char* c = op_name(static_cast<Op>(call.op)); *c; ++c) key.push_back(*c);
  key.push_back(0);
  for (uint32_t i = 0; i < call.tensor_count; ++i) {
    const aa_tensor& tensor = call.tensors[i];
    key.push_back(tensor.dtype);
    if (!is_there(tensor)) continue;
    key.push_back(tensor.ndim);
    key.insert(key.end(), tensor.shape, tensor.shape + tensor.ndim);
  }
  if (static_cast<Op>(call.op) == Op::RmsNorm) {
    key.push_back(std::bit_cast<int32_t>(params_of<aa_norm_params>(call).eps));
  }
  const GraphOp* row = graph_op(static_cast<Op>(call.op));
  if (row && row->settings) row->settings(call, key);
}

void build_call(Graph& graph, const aa_op_call& call, const Tensors& t, const Tensors& after) {
  if (const GraphOp* row = graph_op(static_cast<Op>(call.op))) {
    row->build(graph, call, t, after);
  } else {
    build_plain(graph, call, t, after);
  }
}

}  // namespace anyaccel::hpu
