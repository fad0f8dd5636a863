// Implements ops.h: products, norms, activations and sums with Synapse's graphs, and the ops of graph_ops.h. For a call
// with new shapes or types a graph is built and compiled into a recipe; recipes are kept in files (recipe_files.h) and
// in memory, where all are discarded when there are too many.
//
// Ops compute in fp32, with conversions before and after, so that a result is rounded once; the exception is a product
// of 16-bit matrices with a 16-bit result of the same type and nothing to add.
#include "accelerators/hpu/ops.h"

#include <bit>
#include <cstring>
#include <map>
#include <mutex>

#include "accelerators/hpu/graph_ops.h"
#include "accelerators/hpu/recipe.h"
#include "accelerators/hpu/recipe_files.h"

namespace anyaccel::hpu {
namespace {

constexpr size_t most_recipes = 512;
using Tensor = Graph::Tensor;

bool is_silu(const aa_op_call& call) { return params<aa_activation_params>(call).kind == AA_ACTIVATION_SILU; }

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

void build(Graph& graph, const aa_op_call& call, const Tensors& t, const Tensor& sum) {
  const Tensor none{};
  switch (static_cast<Op>(call.op)) {
    case Op::Linear: return linear(graph, t[0], t[1], t[2], t[3], t[4]);
    case Op::LinearMulti:
      for (size_t i = 1; i < t.size(); i += 3) linear(graph, t[i], t[0], t[i + 1], t[i + 2], none);
      return;
    case Op::GatedLinear:
      return graph.convert(
          t[0], both(graph, "mult_fwd_f32", silu(graph, product(graph, t[1], t[2])), product(graph, t[1], t[3])));
    case Op::RmsNorm: return rms_norm(graph, t, sum, params<aa_norm_params>(call).eps);
    case Op::Activation: return graph.convert(t[0], silu(graph, graph.in_f32(t[1])));
    case Op::GatedActivation:
      return graph.convert(t[0], both(graph, "mult_fwd_f32", silu(graph, graph.in_f32(t[1])), graph.in_f32(t[2])));
    case Op::Add: return graph.convert(t[0], both(graph, "add_fwd_f32", graph.in_f32(t[1]), graph.in_f32(t[2])));
    default: throw abi::Failure(AA_INVALID_ARGUMENT, "hpu has no op with the number " + std::to_string(call.op));
  }
}

// Returns the tensor of a call that is both read and written, or null; its new value is a separate tensor in the graph.
const aa_tensor* replaced(const aa_op_call& call) {
  return static_cast<Op>(call.op) == Op::RmsNorm && is_there(call.tensors[3]) ? &call.tensors[3] : nullptr;
}

uint64_t bytes_of(const aa_tensor& tensor) {
  uint64_t bytes = tensor.dtype == AA_DTYPE_F32 ? 4 : 2;
  for (int32_t d = 0; d < tensor.ndim; ++d) bytes *= static_cast<uint64_t>(tensor.shape[d]);
  return bytes;
}

// Returns whether the call writes this tensor without reading it.
bool is_output(const aa_op_call& call, uint32_t tensor) {
  return static_cast<Op>(call.op) == Op::LinearMulti ? tensor % 3 == 1 : tensor == 0;
}

class SynapseOps final : public queue_runtime::OpSet {
 public:
  SynapseOps(const Api& api, SynDevice device, int type) : api_(api), device_(device), type_(type), files_(api, type) {}

  int find(const char* name) const override;
  bool supports(const aa_op_call& call) const override;
  void run(const aa_op_call& call, void* stream, queue_runtime::Workspace& workspace) const override;

 private:
  void* compile(const aa_op_call& call) const;
  Recipe& recipe_of(const aa_op_call& call) const;

  const Api& api_;
  const SynDevice device_;
  const int type_;
  const RecipeFiles files_;
  mutable std::mutex mutex_;  // also held during launches: a recipe is used by one thread at a time
  // Recipes by op and by the types and shapes of its tensors.
  mutable std::map<std::pair<int32_t, std::vector<int64_t>>, std::unique_ptr<Recipe>> recipes_;
};

int SynapseOps::find(const char* name) const {
  const std::optional<Op> op = find_op_by_name(name);
  if (!op) return -1;
  switch (*op) {
    case Op::Linear:
    case Op::LinearMulti:
    case Op::GatedLinear:
    case Op::RmsNorm:
    case Op::Activation:
    case Op::GatedActivation:
    case Op::Add: return static_cast<int>(*op);
    default: return graph_op(*op) ? static_cast<int>(*op) : -1;
  }
}

bool SynapseOps::supports(const aa_op_call& call) const {
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

Sizes sizes_of(const aa_tensor& tensor) { return {tensor.shape, tensor.shape + tensor.ndim}; }

// Returns the sizes of the graph's persistent tensors: the call's tensors that are not absent, then the new values of
// those that are read and written.
std::vector<Sizes> persistent_sizes(const aa_op_call& call) {
  std::vector<Sizes> sizes;
  if (const GraphOp* row = graph_op(static_cast<Op>(call.op))) {
    const std::vector<Sizes> all = row->sizes(call);
    for (const Sizes& one : all) {
      if (!one.empty()) sizes.push_back(one);
    }
    for (const uint32_t i : row->replaced) {
      if (!all[i].empty()) sizes.push_back(all[i]);
    }
    return sizes;
  }
  for (uint32_t i = 0; i < call.tensor_count; ++i) {
    if (is_there(call.tensors[i])) sizes.push_back(sizes_of(call.tensors[i]));
  }
  if (const aa_tensor* both_ways = replaced(call)) sizes.push_back(sizes_of(*both_ways));
  return sizes;
}

void* SynapseOps::compile(const aa_op_call& call) const {
  Graph graph(api_, type_);
  const std::vector<Sizes> sizes = persistent_sizes(call);
  Tensors tensors;
  size_t next = 0;
  for (uint32_t i = 0; i < call.tensor_count; ++i) {
    const aa_tensor& tensor = call.tensors[i];
    tensors.push_back(is_there(tensor) ? graph.persistent(syn_type(tensor.dtype), sizes[next++]) : Tensor{});
  }
  if (const GraphOp* row = graph_op(static_cast<Op>(call.op))) {
    Tensors after(tensors.size());
    for (const uint32_t i : row->replaced) {
      if (tensors[i].handle) after[i] = graph.replacing(tensors[i]);
    }
    row->build(graph, call, tensors, after);
    return graph.compile();
  }
  const aa_tensor* both_ways = replaced(call);
  const Tensor sum = both_ways ? graph.persistent(syn_type(both_ways->dtype), sizes[next]) : Tensor{};
  build(graph, call, tensors, sum);
  return graph.compile();
}

// Call it with the lock held.
Recipe& SynapseOps::recipe_of(const aa_op_call& call) const {
  std::vector<int64_t> key;
  for (uint32_t i = 0; i < call.tensor_count; ++i) {
    const aa_tensor& tensor = call.tensors[i];
    key.push_back(tensor.dtype);
    if (!is_there(tensor)) continue;
    key.push_back(tensor.ndim);
    key.insert(key.end(), tensor.shape, tensor.shape + tensor.ndim);
  }
  if (static_cast<Op>(call.op) == Op::RmsNorm) {
    key.push_back(std::bit_cast<int32_t>(params<aa_norm_params>(call).eps));
  }
  const GraphOp* row = graph_op(static_cast<Op>(call.op));
  if (row && row->settings) row->settings(call, key);
  const auto found = recipes_.find({call.op, key});
  if (found != recipes_.end()) return *found->second;
  if (recipes_.size() >= most_recipes) {
    check(api_, api_.synDeviceSynchronize(device_), "synDeviceSynchronize");  // none is in use then
    recipes_.clear();
  }
  void* handle = files_.get(op_name(static_cast<Op>(call.op)), key, [&] { return compile(call); });
  auto recipe = std::make_unique<Recipe>(api_, handle, persistent_sizes(call));
  return *recipes_.emplace(std::pair(call.op, std::move(key)), std::move(recipe)).first->second;
}

// An output that is also an input gets separate memory and is copied at the end, because a graph may write it before
// everything has been read.
void SynapseOps::run(const aa_op_call& call, void* stream, queue_runtime::Workspace& workspace) const {
  struct Copy {
    uint64_t from, to, bytes;
  };
  std::vector<Copy> copies;
  std::vector<uint64_t> addresses;
  const std::lock_guard lock(mutex_);
  Recipe& recipe = recipe_of(call);
  const GraphOp* row = graph_op(static_cast<Op>(call.op));
  for (uint32_t i = 0; i < call.tensor_count; ++i) {
    const aa_tensor& tensor = call.tensors[i];
    if (!is_there(tensor)) continue;
    uint64_t address = reinterpret_cast<uint64_t>(tensor.data);
    bool is_input_too = false;
    for (uint32_t k = 0; k < call.tensor_count; ++k) {
      is_input_too |= k != i && is_there(call.tensors[k]) && call.tensors[k].data == tensor.data;
    }
    if (is_output(call, i) && is_input_too) {
      const uint64_t bytes = bytes_of(tensor);
      const auto own = reinterpret_cast<uint64_t>(workspace.take(bytes));
      copies.push_back({own, address, bytes});
      address = own;
    }
    addresses.push_back(address);
  }
  if (row) {
    for (const uint32_t i : row->replaced) {
      if (is_there(call.tensors[i])) addresses.push_back(reinterpret_cast<uint64_t>(call.tensors[i].data));
    }
  }
  if (const aa_tensor* both_ways = replaced(call)) {
    const uint64_t bytes = bytes_of(*both_ways);
    addresses.push_back(reinterpret_cast<uint64_t>(workspace.take(bytes)));
    copies.push_back({addresses.back(), reinterpret_cast<uint64_t>(both_ways->data), bytes});
  }
  const uint64_t bytes = recipe.workspace_bytes();
  recipe.launch(stream, addresses, bytes ? reinterpret_cast<uint64_t>(workspace.take(bytes)) : 0);
  for (const Copy& copy : copies) {
    check(api_, api_.synMemCopyAsync(stream, copy.from, copy.bytes, copy.to, directions[AA_COPY_DEVICE_TO_DEVICE]),
          "synMemCopyAsync");
  }
}

}  // namespace

std::unique_ptr<queue_runtime::OpSet> make_ops(const Api& api, SynDevice device) {
  bool complete = true;
#define ANYACCEL_TEST(name, parameters) complete &= api.name != nullptr;
  ANYACCEL_HPU_GRAPH_FUNCTIONS(ANYACCEL_TEST)
#undef ANYACCEL_TEST
  SynDeviceInfo info{};
  if (!complete || api.synDeviceGetInfoV2(device, &info) != 0) return nullptr;
  return std::make_unique<SynapseOps>(api, device, info.type);
}

}  // namespace anyaccel::hpu
