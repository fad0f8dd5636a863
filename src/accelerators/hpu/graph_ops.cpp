// Implements embeddings, rotary embeddings, writes to the cache, attention, counters and the choice of the likeliest token
// with Synapse's graphs. Names and parameters of the nodes are those that Habana's bridge for PyTorch uses
// (HabanaAI/gaudi-pytorch-bridge, hpu_ops/backend and habana_kernels), with the structs of perf_lib_layer_params.h.
//
// Positions and sequences are tensors on the device, so that a recipe depends on the number of tokens and slots, and
// not on how full the cache is. Row indices are clamped first, because the behavior of a node for an index out of range
// is not documented.
#include "accelerators/hpu/graph_ops.h"

#include <algorithm>
#include <bit>
#include <climits>
#include <limits>

#include "runtime/ops/op_params.h"

namespace anyaccel::hpu {
namespace {

using Tensor = Graph::Tensor;

// ---- nodes -----------------------------------------------------------------------------------------------------------

// Converts the index of a dimension to Synapse's order, in which the last dimension is 0.
SynAxis axis_of(const Sizes& sizes, size_t dimension) { return {static_cast<int>(sizes.size() - 1 - dimension)}; }

// Creates a single number with `rank` dimensions of size 1, to be broadcast over a tensor of that rank.
Tensor constant(Graph& graph, float value, size_t rank) {
  SynConstant params;
  params.value.f = value;
  return graph.result("constant", syn_f32, Sizes(rank, 1), {}, &params, sizeof(params));
}
Tensor constant(Graph& graph, int32_t value, size_t rank) {
  SynConstant params;
  params.value.i = value;
  return graph.result("constant", syn_i32, Sizes(rank, 1), {}, &params, sizeof(params));
}

// Creates a vector of `count` numbers, beginning with `first`, in steps of `step`.
Tensor range(Graph& graph, int64_t first, int64_t step, int64_t count) {
  SynRange params;
  params.start.i = static_cast<int32_t>(first);
  params.limit.i = static_cast<int32_t>(first + step * count);
  params.delta.i = static_cast<int32_t>(step);
  return graph.result("range", syn_i32, {count}, {}, &params, sizeof(params));
}

// Swaps the first two of four dimensions.
Tensor swapped(Graph& graph, const Tensor& x) {
  SynTranspose params{};
  params.dimensions = 4;
  for (uint32_t d = 0; d < most_dimensions; ++d) params.permutation[d] = d;
  std::swap(params.permutation[2], params.permutation[3]);
  const Tensor out = graph.between(x.type, {x.sizes[1], x.sizes[0], x.sizes[2], x.sizes[3]});
  graph.node("transpose", {x}, {out}, &params, sizeof(params));
  return out;
}

Tensor clamped(Graph& graph, const Tensor& numbers, int64_t least, int64_t most) {
  SynClamp params;
  params.lower.i = static_cast<int32_t>(least);
  params.upper.i = static_cast<int32_t>(most);
  return graph.result("clamp_pt_fwd", syn_i32, numbers.sizes, {numbers}, &params, sizeof(params));
}

Sizes spread_sizes(const Tensor& a, const Tensor& b) {
  Sizes sizes = a.sizes;
  for (size_t d = 0; d < sizes.size(); ++d) sizes[d] = std::max(sizes[d], b.sizes[d]);
  return sizes;
}
// Applies a binary node to tensors of one type and rank; dimensions of size 1 are broadcast.
Tensor spread(Graph& graph, const char* guid, const Tensor& a, const Tensor& b) {
  return graph.result(guid, a.type, spread_sizes(a, b), {a, b});
}
// Compares elements; the results are booleans of type i8, but the guid names the type of the operands.
Tensor compared(Graph& graph, const char* guid, const Tensor& a, const Tensor& b) {
  const Tensor out = graph.between(syn_i8, spread_sizes(a, b));
  graph.node(std::string(guid) + "_" + suffix_of(a.type), {a, b}, {out});
  return out;
}
// Returns a where the condition holds, else b: fp32, of `sizes`.
Tensor chosen(Graph& graph, const Tensor& condition, const Tensor& a, const Tensor& b, const Sizes& sizes) {
  return graph.result("where_fwd", syn_f32, sizes, {condition, a, b});
}
// Sums over the dimension, whose size becomes 1.
Tensor summed(Graph& graph, const Tensor& x, size_t dimension) {
  Sizes sizes = x.sizes;
  sizes[dimension] = 1;
  const SynAxis axis = axis_of(x.sizes, dimension);
  return graph.result("reduce_sum_fwd", syn_f32, sizes, {x}, &axis, sizeof(axis));
}
Tensor gathered(Graph& graph, const Tensor& table, const Tensor& rows) {
  const SynAxis axis = axis_of(table.sizes, 0);
  return graph.result("gather_fwd", table.type, {rows.sizes[0], table.sizes[1]}, {table, rows}, &axis, sizeof(axis));
}
Tensor converted(Graph& graph, const Tensor& x, int type) {
  if (x.type == type) return x;
  const Tensor out = graph.between(type, x.sizes);
  graph.convert(out, x);
  return out;
}

std::vector<Sizes> own_sizes(const aa_op_call& call) {
  std::vector<Sizes> sizes;
  for (uint32_t i = 0; i < call.tensor_count; ++i) {
    const aa_tensor& tensor = call.tensors[i];
    sizes.emplace_back(tensor.shape, tensor.shape + (is_there(tensor) ? tensor.ndim : 0));
  }
  return sizes;
}

bool are_i32(const aa_tensor& a) { return a.dtype == AA_DTYPE_I32 && is_dense(a); }

// ---- embedding -------------------------------------------------------------------------------------------------------

bool supports_embedding(const aa_op_call& call) {
  const aa_tensor* t = call.tensors;
  return is_plain(t[0]) && is_plain(t[1]) && are_i32(t[2]) && t[1].shape[0] <= INT32_MAX;
}
// An id out of range is replaced by that of the first or last row.
void embedding(Graph& graph, const aa_op_call&, const Tensors& t, const Tensors&) {
  graph.convert(t[0], gathered(graph, t[1], clamped(graph, t[2], 0, t[1].sizes[0] - 1)));
}

// ---- rotary embeddings -----------------------------------------------------------------------------------------------

bool is_f32(const aa_tensor& a) { return a.dtype == AA_DTYPE_F32 && is_dense(a); }

bool supports_rope_table(const aa_op_call& call) {
  const aa_tensor* t = call.tensors;
  return is_f32(t[0]) && is_f32(t[1]) && is_f32(t[2]) && are_i32(t[3]);
}
std::vector<Sizes> rope_table_sizes(const aa_op_call& call) {
  const int64_t tokens = call.tensors[0].shape[0], pairs = call.tensors[0].shape[1];
  return {{tokens, pairs}, {tokens, pairs}, {1, pairs}, {tokens, 1}};
}
// How exact the nodes for cosine and sine are for large angles is not documented, so whole turns are taken off first. 2 pi is
// the sum of three numbers, of which the first two have 8 bits: times a number of turns below 2^16 they are exact.
void rope_table(Graph& graph, const aa_op_call& call, const Tensors& t, const Tensors&) {
  constexpr float turn_parts[] = {6.28125F, 253.0F / 131072, 5.0703631804769e-06F};
  constexpr float turns_of_angle = 0.15915494309189535F;
  const Tensor angle = spread(graph, "mult_fwd", graph.in_f32(t[3]), t[2]);
  // Which way the conversion rounds does not matter: the rest is less than a turn in either direction.
  const Tensor turns =
      graph.in_f32(converted(graph, spread(graph, "mult_fwd", angle, constant(graph, turns_of_angle, 2)), syn_i32));
  Tensor rest = angle;
  for (const float part : turn_parts) {
    rest = spread(graph, "add_fwd", rest, spread(graph, "mult_fwd", turns, constant(graph, -part, 2)));
  }
  const Tensor scale = constant(graph, params_of<aa_rope_table_params>(call).scale, 2);
  const char* const guids[] = {"cos_fwd", "sin_fwd"};
  for (const size_t i : {0, 1}) {
    const Tensor value = graph.result(guids[i], syn_f32, rest.sizes, {rest});
    graph.node("mult_fwd_f32", {value, scale}, {t[i]});
  }
}

bool is_interleaved(const aa_op_call& call) { return params_of<aa_rope_params>(call).interleaved != 0; }

// Only supports rotating the whole head, because the behavior of the node with more elements than angles is not public.
bool supports_rope(const aa_op_call& call) {
  const aa_tensor* t = call.tensors;
  for (const size_t i : {0, 1, 2, 3}) {
    if (is_there(t[i]) && !is_plain(t[i])) return false;
  }
  return 2 * t[2].shape[1] == t[0].shape[2];
}

// Returns the shapes that Habana's tests use for the node's two modes (test_hpu_rotary_pos_embedding_helper.py):
// [tokens, 1, heads, width] with angles for [tokens, 1, 1], and [1, tokens, heads, width] with angles for [1, tokens,
// 1]. Here the angles have one more dimension at first, for the pair.
std::vector<Sizes> rope_sizes(const aa_op_call& call) {
  std::vector<Sizes> sizes = own_sizes(call);
  for (const size_t i : {0, 1}) {
    if (sizes[i].empty()) continue;
    sizes[i].insert(is_interleaved(call) ? sizes[i].begin() : sizes[i].begin() + 1, 1);
  }
  for (const size_t i : {2, 3}) {
    const int64_t tokens = sizes[i][0], pairs = sizes[i][1];
    sizes[i] = is_interleaved(call) ? Sizes{1, tokens, pairs, 1} : Sizes{tokens, 1, 1, pairs};
  }
  return sizes;
}

// Expands the angles to one for each element: both elements of a pair get the same.
Tensor angles(Graph& graph, const Tensor& of_pairs, bool interleaved) {
  Sizes sizes = of_pairs.sizes;
  sizes[3] *= 2;
  const Tensor twice = graph.between(syn_f32, sizes);
  const SynAxis axis{0};
  graph.node("concat", {of_pairs, of_pairs}, {twice}, &axis, sizeof(axis));
  return interleaved ? graph.reshaped(twice, {1, sizes[1], 1, sizes[2] * 2}) : twice;
}

void rope(Graph& graph, const aa_op_call& call, const Tensors& t, const Tensors& after) {
  const bool interleaved = is_interleaved(call);
  const Tensor cosines = angles(graph, t[2], interleaved), sines = angles(graph, t[3], interleaved);
  const SynRope params{0, interleaved ? 1 : 0};
  for (const size_t i : {0, 1}) {
    if (!t[i].handle) continue;
    graph.convert(after[i], graph.result("rotary_pos_embedding_fwd", syn_f32, t[i].sizes,
                                         {graph.in_f32(t[i]), sines, cosines}, &params, sizeof(params)));
  }
}

// ---- writes to the cache ---------------------------------------------------------------------------------------------

constexpr int64_t most_written = 4096;  // tokens of a call, since each is compared with all others

bool supports_cache_write(const aa_op_call& call) {
  const aa_tensor* t = call.tensors;
  for (const size_t i : {0, 1, 2, 3}) {
    if (!is_plain(t[i])) return false;
  }
  const int64_t rows = t[0].shape[0] * t[0].shape[1] * t[0].shape[2];
  return are_i32(t[4]) && are_i32(t[5]) && t[4].shape[0] <= most_written && rows <= INT32_MAX;
}

// Views the cache as a matrix with a row for each slot of each head and sequence.
std::vector<Sizes> cache_write_sizes(const aa_op_call& call) {
  std::vector<Sizes> sizes = own_sizes(call);
  for (const size_t i : {0, 1}) sizes[i] = {sizes[i][0] * sizes[i][1] * sizes[i][2], sizes[i][3]};
  for (const size_t i : {2, 3}) sizes[i] = {sizes[i][0], sizes[i][1] * sizes[i][2]};
  return sizes;
}

// If several rows have the same index, the node does not promise which one remains, and here it must be the last.
// Therefore every token writes the row of the last token with its slot; this function returns that token's number,
// [tokens].
Tensor last_of_slot(Graph& graph, const Tensor& slots) {
  const int64_t tokens = slots.sizes[0];
  const Tensor same =
      compared(graph, "equal_fwd", graph.reshaped(slots, {tokens, 1}), graph.reshaped(slots, {1, tokens}));
  const Tensor numbers = graph.in_f32(graph.reshaped(range(graph, 0, 1, tokens), {1, tokens}));
  const Tensor those = chosen(graph, same, numbers, constant(graph, 0.0F, 2), {tokens, tokens});
  const Tensor last = graph.between(syn_f32, {tokens, 1}), where = graph.between(syn_i32, {tokens, 1});
  const SynAxis axis{0};
  graph.node("reduce_max_fwd_f32", {those}, {last, where}, &axis, sizeof(axis));
  return graph.reshaped(converted(graph, last, syn_i32), {tokens});
}

void cache_write(Graph& graph, const aa_op_call& call, const Tensors& t, const Tensors& after) {
  const int64_t* const size = call.tensors[0].shape;
  const int64_t sequences = size[0], heads = size[1], slots = size[2], tokens = t[4].sizes[0];
  const Tensor sequence = clamped(graph, t[4], 0, sequences - 1), position = clamped(graph, t[5], 0, slots - 1);
  const Tensor of_sequence =
      spread(graph, "mult_fwd", sequence, constant(graph, static_cast<int32_t>(heads * slots), 1));
  const Tensor first = spread(graph, "add_fwd", of_sequence, position);
  const Tensor of_heads = graph.reshaped(range(graph, 0, slots, heads), {1, heads});
  const Tensor rows =
      graph.reshaped(spread(graph, "add_fwd", graph.reshaped(first, {tokens, 1}), of_heads), {tokens * heads});
  const Tensor last = tokens > 1 ? last_of_slot(graph, first) : Tensor{};
  for (const size_t i : {0, 1}) {
    Tensor values = converted(graph, t[i + 2], t[i].type);
    if (tokens > 1) values = gathered(graph, values, last);
    values = graph.reshaped(values, {tokens * heads, t[i].sizes[1]});
    const SynAxis axis{0};
    graph.node(std::string("index_copy_fwd_") + suffix_of(t[i].type), {t[i], rows, values}, {after[i]}, &axis,
               sizeof(axis));
  }
}

// ---- attention -------------------------------------------------------------------------------------------------------

constexpr int64_t most_scores = int64_t{1} << 26;  // scores of a call: 256 MiB

// Returns the attention window; 0 if there is none, or if it leaves every slot visible.
int64_t window_of(const aa_op_call& call) {
  const int64_t window = params_of<aa_attention_params>(call).window;
  return window >= call.tensors[2].shape[2] ? 0 : window;
}

bool supports_attention(const aa_op_call& call) {
  const aa_tensor* t = call.tensors;
  for (const size_t i : {0, 1, 2, 3}) {
    if (!is_plain(t[i])) return false;
  }
  if (t[6].dtype != AA_DTYPE_NONE || t[7].dtype != AA_DTYPE_NONE) return false;  // slopes and sinks
  const int64_t scores = t[1].shape[0] * t[1].shape[1] * t[2].shape[2] * t[2].shape[0];
  return are_i32(t[4]) && are_i32(t[5]) && params_of<aa_attention_params>(call).softcap == 0 && scores <= most_scores;
}

// Views queries and results by key/value head: [tokens, heads, queries of a head, width].
std::vector<Sizes> attention_sizes(const aa_op_call& call) {
  std::vector<Sizes> sizes = own_sizes(call);
  const int64_t heads = sizes[2][1];
  for (const size_t i : {0, 1}) sizes[i] = {sizes[i][0], heads, sizes[i][1] / heads, sizes[i][2]};
  return sizes;
}

void attention_settings(const aa_op_call& call, std::vector<int64_t>& key) {
  key.push_back(std::bit_cast<int32_t>(params_of<aa_attention_params>(call).scale));
  key.push_back(window_of(call));
}

Tensor products(Graph& graph, const Tensor& a, const Tensor& b, bool transposed) {
  const SynGemm params{false, transposed};
  const Tensor out = graph.between(syn_f32, {a.sizes[0], a.sizes[1], a.sizes[2], b.sizes[transposed ? 2 : 3]});
  graph.node("batch_gemm", {a, b}, {out}, &params, sizeof(params));
  return out;
}

// Sets the scores of the slots that a token does not see to -infinity, whatever they were.
Tensor masked(Graph& graph, const Tensor& scores, const Tensor& positions, int64_t window) {
  const int64_t tokens = scores.sizes[2], slots = scores.sizes[4];
  const Tensor position = graph.reshaped(positions, {tokens, 1});
  const Tensor nothing = constant(graph, -std::numeric_limits<float>::infinity(), 5);
  const auto without = [&](const Tensor& from, const Tensor& unseen) {
    return chosen(graph, graph.reshaped(unseen, {1, 1, tokens, 1, slots}), nothing, from, scores.sizes);
  };
  const Tensor numbers = graph.reshaped(range(graph, 0, 1, slots), {1, slots});
  const Tensor seen = without(scores, compared(graph, "greater_fwd", numbers, position));
  if (window == 0) return seen;
  const Tensor ends = graph.reshaped(range(graph, window, 1, slots), {1, slots});
  return without(seen, compared(graph, "less_equal_fwd", ends, position));
}

// Every sequence's part of the cache is combined with all tokens, and results for tokens of other sequences are zeroed
// before they are added. The weights of slots that are not seen are 0, but 0 times an infinity or NaN there would be
// NaN. Therefore values are made finite, and a slot with a value that was not finite gets NaN scores for the tokens
// that do see it.
void attention(Graph& graph, const aa_op_call& call, const Tensors& t, const Tensors&) {
  const int64_t tokens = t[1].sizes[0], heads = t[1].sizes[1], group = t[1].sizes[2], width = t[1].sizes[3];
  const int64_t sequences = t[2].sizes[0], slots = t[2].sizes[2];
  const Tensor zero = constant(graph, 0.0F, 4);
  const Tensor scaled =
      spread(graph, "mult_fwd", graph.in_f32(t[1]), constant(graph, params_of<aa_attention_params>(call).scale, 4));
  Tensor queries = graph.reshaped(swapped(graph, scaled), {1, heads, tokens * group, width});
  if (sequences > 1) {
    const Tensor all = graph.between(syn_f32, {sequences, heads, tokens * group, width});
    graph.node("broadcast", {queries}, {all});
    queries = all;
  }
  const Tensor given = graph.in_f32(t[3]);
  const Tensor nulls = spread(graph, "mult_fwd", given, zero);  // NaN where a value is not finite
  const Tensor values = chosen(graph, compared(graph, "equal_fwd", nulls, zero), given, zero, given.sizes);
  const Tensor poison = graph.reshaped(summed(graph, nulls, 3), {sequences, heads, 1, slots});
  const Tensor scores = spread(graph, "add_fwd", products(graph, queries, graph.in_f32(t[2]), true), poison);
  const Tensor seen =
      masked(graph, graph.reshaped(scores, {sequences, heads, tokens, group, slots}), t[5], window_of(call));
  const SynAxis innermost{0};
  const Tensor weights = graph.result("softmax_fwd", syn_f32, seen.sizes, {seen}, &innermost, sizeof(innermost));
  Tensor result = products(graph, graph.reshaped(weights, scores.sizes), values, false);
  if (sequences > 1) {
    const Tensor own = compared(graph, "equal_fwd", graph.reshaped(range(graph, 0, 1, sequences), {sequences, 1}),
                                graph.reshaped(t[4], {1, tokens}));
    const Sizes sizes = {sequences, heads, tokens, group, width};
    result = summed(graph,
                    chosen(graph, graph.reshaped(own, {sequences, 1, tokens, 1, 1}), graph.reshaped(result, sizes),
                           constant(graph, 0.0F, 5), sizes),
                    0);
  }
  graph.convert(t[0], swapped(graph, graph.reshaped(result, {heads, tokens, group, width})));
}

// ---- counters --------------------------------------------------------------------------------------------------------

bool supports_increment(const aa_op_call& call) {
  const int64_t amount = params_of<aa_increment_params>(call).amount;
  return are_i32(call.tensors[0]) && amount >= INT32_MIN && amount <= INT32_MAX;
}
void increment(Graph& graph, const aa_op_call& call, const Tensors& t, const Tensors& after) {
  const auto amount = static_cast<int32_t>(params_of<aa_increment_params>(call).amount);
  graph.node("add_fwd_i32", {t[0], constant(graph, amount, t[0].sizes.size())}, {after[0]});
}

// ---- the likeliest token ---------------------------------------------------------------------------------------------

constexpr int64_t most_tokens = int64_t{1} << 24;  // numbers up to here are exact in fp32

bool supports_argmax(const aa_op_call& call) {
  const aa_tensor* t = call.tensors;
  return are_i32(t[0]) && is_plain(t[1]) && t[1].shape[1] <= most_tokens &&
         t[1].shape[0] * t[1].shape[1] <= most_scores;
}
// Greedy choices that mark nothing use no random numbers.
bool supports_sample(const aa_op_call& call) {
  return params_of<aa_sample_params>(call).temperature == 0 && !is_there(call.tensors[3]) && supports_argmax(call);
}
std::vector<Sizes> argmax_sizes(const aa_op_call& call) {
  std::vector<Sizes> sizes(call.tensor_count);
  const int64_t rows = call.tensors[1].shape[0];
  sizes[0] = {rows, 1};
  sizes[1] = {rows, call.tensors[1].shape[1]};
  return sizes;
}

Tensor largest(Graph& graph, const Tensor& x) {
  const Tensor value = graph.between(syn_f32, {x.sizes[0], 1}), place = graph.between(syn_i32, {x.sizes[0], 1});
  const SynAxis innermost{0};
  graph.node("reduce_max_fwd_f32", {x}, {value, place}, &innermost, sizeof(innermost));
  return value;
}

// Each of them fp32, [rows, 1].
struct Likeliest {
  Tensor value;    // the largest number that is no NaN; -infinity if there is none
  Tensor index;    // its lowest index
  Tensor nan;      // the lowest index of a NaN
  Tensor has_nan;  // whether there is one
};

// Which of several equal numbers the node for the maximum names is not documented: lowest indices are largest negative numbers.
Likeliest likeliest(Graph& graph, const Tensor& given) {
  const Tensor x = graph.in_f32(given);
  const Sizes row_sizes = {x.sizes[0], 1};
  const Tensor nothing = constant(graph, -std::numeric_limits<float>::infinity(), 2);
  const Tensor far = constant(graph, -2.0F * static_cast<float>(most_tokens), 2);
  const Tensor minus_one = constant(graph, -1.0F, 2);
  const Tensor numbers = graph.in_f32(graph.reshaped(range(graph, 0, 1, x.sizes[1]), {1, x.sizes[1]}));
  const Tensor negative = spread(graph, "mult_fwd", numbers, minus_one);
  const Tensor is_number = compared(graph, "equal_fwd", x, x);
  const Tensor finite = chosen(graph, is_number, x, nothing, x.sizes);
  Likeliest result;
  result.value = largest(graph, finite);
  const Tensor best = chosen(graph, compared(graph, "equal_fwd", finite, result.value), negative, far, x.sizes);
  result.index = spread(graph, "mult_fwd", largest(graph, best), minus_one);
  const Tensor nan = largest(graph, chosen(graph, is_number, far, negative, x.sizes));
  result.has_nan = compared(graph, "greater_fwd", nan, far);
  result.nan = spread(graph, "mult_fwd", nan, minus_one);
  return result;
}

void argmax(Graph& graph, const aa_op_call&, const Tensors& t, const Tensors&) {
  const Likeliest found = likeliest(graph, t[1]);
  graph.convert(t[0], chosen(graph, found.has_nan, found.nan, found.index, t[0].sizes));
}

// A row whose largest number is not finite has no token, -1.
void sample(Graph& graph, const aa_op_call&, const Tensors& t, const Tensors&) {
  const Likeliest found = likeliest(graph, t[1]);
  const Tensor none = constant(graph, -1.0F, 2), zero = constant(graph, 0.0F, 2);
  const Tensor is_finite = compared(graph, "equal_fwd", spread(graph, "mult_fwd", found.value, zero), zero);
  const Tensor token = chosen(graph, is_finite, found.index, none, t[0].sizes);
  graph.convert(t[0], chosen(graph, found.has_nan, none, token, t[0].sizes));
}

}  // namespace

int syn_type(int32_t dtype) {
  switch (dtype) {
    case AA_DTYPE_F32: return syn_f32;
    case AA_DTYPE_BF16: return syn_bf16;
    case AA_DTYPE_F16: return syn_f16;
    case AA_DTYPE_I32: return syn_i32;
    default: return 0;
  }
}

bool is_dense(const aa_tensor& tensor) {
  int64_t step = 1;
  for (int32_t d = tensor.ndim - 1; d >= 0; --d) {
    if (tensor.shape[d] == 0 || (tensor.shape[d] > 1 && tensor.strides[d] != step)) return false;
    step *= tensor.shape[d];
  }
  return tensor.ndim > 0 && tensor.ndim <= 5;
}

bool is_plain(const aa_tensor& tensor) {
  return syn_type(tensor.dtype) != 0 && tensor.dtype != AA_DTYPE_I32 && is_dense(tensor);
}

const GraphOp* graph_op(Op op) {
  static const GraphOp rows[] = {
      {Op::Embedding, supports_embedding, own_sizes, {}, embedding, nullptr},
      {Op::RopeTable,
       supports_rope_table,
       rope_table_sizes,
       {},
       rope_table,
       [](const aa_op_call& call, std::vector<int64_t>& key) {
         key.push_back(std::bit_cast<int32_t>(params_of<aa_rope_table_params>(call).scale));
       }},
      {Op::Rope,
       supports_rope,
       rope_sizes,
       {0, 1},
       rope,
       [](const aa_op_call& call, std::vector<int64_t>& key) { key.push_back(is_interleaved(call) ? 1 : 0); }},
      {Op::CacheWrite, supports_cache_write, cache_write_sizes, {0, 1}, cache_write, nullptr},
      {Op::Attention, supports_attention, attention_sizes, {}, attention, attention_settings},
      {Op::Increment,
       supports_increment,
       own_sizes,
       {0},
       increment,
       [](const aa_op_call& call, std::vector<int64_t>& key) {
         key.push_back(params_of<aa_increment_params>(call).amount);
       }},
      {Op::Argmax, supports_argmax, argmax_sizes, {}, argmax, nullptr},
      {Op::Sample, supports_sample, argmax_sizes, {}, sample, nullptr},
  };
  for (const GraphOp& row : rows) {
    if (row.op == op) return &row;
  }
  return nullptr;
}

}  // namespace anyaccel::hpu
