// Kernels of the simulated Synapse that move, choose, compare or reduce elements. Their guids, inputs and parameters are those that
// Habana's bridge for PyTorch (HabanaAI/gaudi-pytorch-bridge, commit 5a56187e) gives in the files that are named below, the structs
// those of perf_lib_layer_params.h and synapse_common_types.hpp. Where the sources leave open what a kernel does, it is refused:
// indices out of range, several rows of one number, other broadcasts than of sizes of 1.
#include <functional>
#include <map>

#include "simulators/habana/node.h"

namespace sim::habana {
namespace {

using queue_face::engine;

constexpr std::size_t kMostSizes = 25;  // HABANA_DIM_MAX

using Tensors = std::vector<TensorFacts>;
using Sizes = std::vector<std::uint64_t>;

template <typename Params>
Params params_of(const OpNode& node) {
  Params params{};
  std::memcpy(&params, node.params.data(), std::min(node.params.size(), sizeof params));
  return params;
}

union Number {  // fint_t: of the node's type
  float f;
  std::int32_t i;
  double of(int type) const { return type == kI32 ? i : f; }
};
struct AxisParams {
  std::int32_t axis;
};
struct RopeParams {  // ns_RoPESt2::ParamsV2
  std::uint32_t offset;
  std::int32_t mode;
};
struct TransposeParams {  // synTransposeParamsNDims
  std::uint32_t dimensions;
  std::uint32_t permutation[kMostSizes];
};
struct RangeParams {
  Number start, limit, delta;
};
struct ClampParams {
  Number upper, lower;
};

// The steps of a walk along one dimension: elements before it, its size, elements behind it.
struct Walk {
  Walk(const Sizes& sizes, std::size_t axis) : size(sizes[axis]) {
    for (std::size_t d = 0; d < sizes.size(); ++d) (d < axis ? inner : outer) *= d == axis ? 1 : sizes[d];
  }
  std::uint64_t at(std::uint64_t inside, std::uint64_t along, std::uint64_t outside) const {
    return inside + inner * (along + size * outside);
  }
  std::uint64_t inner = 1, size, outer = 1;
};

struct Kernel {
  const char* name;             // without the type
  int typed;                    // the suffix is of: -1 nothing, else the input of this number, or 9: the output
  std::size_t inputs, outputs;  // 0 inputs: none
  std::size_t params;           // bytes
  std::string (*check)(const OpNode& node, const Tensors& tensors);
  void (*run)(const Operands& on);
};

const TensorFacts& in(const OpNode& node, const Tensors& tensors, std::size_t i) { return tensors[node.inputs[i]]; }
const TensorFacts& out(const OpNode& node, const Tensors& tensors) { return tensors[node.outputs[0]]; }

// ---- gather_gen.cpp, index_select_gen.cpp: a table, indices (i32, one dimension), rows of the table along the axis

std::string check_gather(const OpNode& node, const Tensors& tensors) {
  const auto axis = params_of<AxisParams>(node).axis;
  const TensorFacts &table = in(node, tensors, 0), &index = in(node, tensors, 1);
  if (axis < 0 || static_cast<std::size_t>(axis) >= table.sizes.size()) return "the axis is none of the table's";
  if (index.type != kI32 || index.sizes.size() != 1) return "the indices are not i32 of one dimension";
  Sizes sizes = table.sizes;
  sizes[static_cast<std::size_t>(axis)] = index.sizes[0];
  return out(node, tensors).sizes == sizes && out(node, tensors).type == table.type ? "" : "the result does not fit";
}
void run_gather(const Operands& on) {
  const auto axis = static_cast<std::size_t>(params_of<AxisParams>(on.node).axis);
  const Walk from(on.in(0).sizes, axis), to(on.out().sizes, axis);
  for (std::uint64_t i = 0; i < to.size; ++i) {
    const double index = on.load(1, i);
    const bool is_row = index >= 0 && index < static_cast<double>(from.size);
    if (!is_row) engine().report().violation("bad-index", "gather: index " + std::to_string(index) + " is no row");
    for (std::uint64_t o = 0; o < to.outer; ++o) {
      for (std::uint64_t k = 0; k < to.inner; ++k) {
        on.store(to.at(k, i, o), is_row ? on.load(0, from.at(k, static_cast<std::uint64_t>(index), o)) : 0);
      }
    }
  }
}

// ---- index_copy_gen.cpp: a tensor, indices, what its rows of these numbers become; the axis is PyTorch's

std::size_t copy_axis(const OpNode& node, const TensorFacts& self) {
  return self.sizes.size() - 1 - static_cast<std::size_t>(params_of<AxisParams>(node).axis);
}
std::string check_index_copy(const OpNode& node, const Tensors& tensors) {
  const TensorFacts &self = in(node, tensors, 0), &index = in(node, tensors, 1), &rows = in(node, tensors, 2);
  const auto axis = params_of<AxisParams>(node).axis;
  if (axis < 0 || static_cast<std::size_t>(axis) >= self.sizes.size()) return "the axis is none of the tensor's";
  if (index.type != kI32 || index.sizes.size() != 1) return "the indices are not i32 of one dimension";
  Sizes sizes = self.sizes;
  sizes[copy_axis(node, self)] = index.sizes[0];
  if (rows.sizes != sizes || out(node, tensors).sizes != self.sizes) return "the sizes do not fit";
  return rows.type == self.type && out(node, tensors).type == self.type ? "" : "the tensors' types differ";
}
void run_index_copy(const Operands& on) {
  const std::size_t axis = copy_axis(on.node, on.in(0));
  const Walk to(on.in(0).sizes, axis), from(on.in(2).sizes, axis);
  for (std::uint64_t i = 0; i < on.out().elements(); ++i) on.store(i, on.load(0, i));
  std::map<std::uint64_t, std::uint64_t> written;  // rows, by the index that wrote them
  for (std::uint64_t i = 0; i < from.size; ++i) {
    const double index = on.load(1, i);
    if (index < 0 || index >= static_cast<double>(to.size)) {
      engine().report().violation("bad-index", "index_copy: index " + std::to_string(index) + " is no row");
      continue;
    }
    const auto [first, is_new] = written.emplace(static_cast<std::uint64_t>(index), i);
    for (std::uint64_t o = 0; o < to.outer; ++o) {
      for (std::uint64_t k = 0; k < to.inner; ++k) {
        const double value = on.load(2, from.at(k, i, o));
        const double before = on.load(2, from.at(k, first->second, o));
        if (!is_new && value != before && !(std::isnan(value) && std::isnan(before))) {
          engine().report().violation("bad-index", "index_copy: two rows that differ go to one place, in no order");
          return;
        }
        on.store(to.at(k, first->first, o), value);
      }
    }
  }
}

// ---- rotary_pos_embedding.cpp: a tensor, sines, cosines, of one rank and innermost size, the angles' other sizes being 1 or the
// tensor's; what the modes compute is the text of RotaryPosEmbeddingHelper.py

std::string check_rope(const OpNode& node, const Tensors& tensors) {
  const auto params = params_of<RopeParams>(node);
  const TensorFacts& x = in(node, tensors, 0);
  if (params.offset != 0 || params.mode < 0 || params.mode > 1) return "the simulator knows no such offset or mode";
  if (x.sizes.size() != 4 || x.sizes[0] % 2 != 0) return "the tensor has not four dimensions, or an odd width";
  // The two tests' layouts: [tokens, 1, heads, width] by halves, [1, tokens, heads, width] by pairs.
  const Sizes sizes = params.mode == 0 ? Sizes{x.sizes[0], 1, 1, x.sizes[3]} : Sizes{x.sizes[0], 1, x.sizes[2], 1};
  for (const std::size_t i : {1, 2}) {
    if (in(node, tensors, i).sizes != sizes || in(node, tensors, i).type != x.type) return "the angles do not fit";
  }
  return out(node, tensors).sizes == x.sizes && out(node, tensors).type == x.type ? "" : "the result does not fit";
}
void run_rope(const Operands& on) {
  const bool by_pairs = params_of<RopeParams>(on.node).mode == 1;
  const std::uint64_t width = on.in(0).sizes[0], half = width / 2;
  for (std::uint64_t i = 0; i < on.out().elements(); ++i) {
    const std::uint64_t place = i % width;
    const bool first = by_pairs ? place % 2 == 0 : place < half;
    const std::uint64_t step = by_pairs ? 1 : half;
    const auto x = static_cast<float>(on.load(0, i));
    const auto other = static_cast<float>(on.load(0, first ? i + step : i - step));
    const std::uint64_t angle = broadcast_index(on.in(1), on.out(), i);
    const auto sine = static_cast<float>(on.load(1, angle)), cosine = static_cast<float>(on.load(2, angle));
    on.store(i, x * cosine + (first ? -other : other) * sine);
  }
}

// ---- softmax_gen.cpp: the dimension in Synapse's order

std::string check_softmax(const OpNode& node, const Tensors& tensors) {
  const TensorFacts& x = in(node, tensors, 0);
  const auto axis = params_of<AxisParams>(node).axis;
  if (axis < 0 || static_cast<std::size_t>(axis) >= x.sizes.size()) return "the axis is none of the tensor's";
  return out(node, tensors).sizes == x.sizes && out(node, tensors).type == x.type ? "" : "the result does not fit";
}
void run_softmax(const Operands& on) {
  const Walk walk(on.in(0).sizes, static_cast<std::size_t>(params_of<AxisParams>(on.node).axis));
  for (std::uint64_t o = 0; o < walk.outer; ++o) {
    for (std::uint64_t k = 0; k < walk.inner; ++k) {
      float most = -INFINITY;
      for (std::uint64_t i = 0; i < walk.size; ++i) {
        most = std::max(most, static_cast<float>(on.load(0, walk.at(k, i, o))));
      }
      const auto weight = [&](std::uint64_t i) {
        return std::exp(static_cast<float>(on.load(0, walk.at(k, i, o))) - most);
      };
      double sum = 0;
      for (std::uint64_t i = 0; i < walk.size; ++i) sum += weight(i);
      for (std::uint64_t i = 0; i < walk.size; ++i) on.store(walk.at(k, i, o), weight(i) / static_cast<float>(sum));
    }
  }
}

// ---- reduction_kernels.cpp: the reduced dimension keeps a size of 1; of a maximum also its place (i32)

std::string check_reduction(const OpNode& node, const Tensors& tensors) {
  const TensorFacts& x = in(node, tensors, 0);
  const auto axis = params_of<AxisParams>(node).axis;
  if (axis < 0 || static_cast<std::size_t>(axis) >= x.sizes.size()) return "the axis is none of the tensor's";
  Sizes sizes = x.sizes;
  sizes[static_cast<std::size_t>(axis)] = 1;
  for (const std::size_t i : node.outputs) {
    if (tensors[i].sizes != sizes) return "the sizes do not fit";
  }
  if (node.outputs.size() == 2 && tensors[node.outputs[1]].type != kI32) return "the places are not i32";
  return out(node, tensors).type == x.type ? "" : "the tensors' types differ";
}
void run_sum(const Operands& on) {
  const Walk walk(on.in(0).sizes, static_cast<std::size_t>(params_of<AxisParams>(on.node).axis));
  for (std::uint64_t o = 0; o < walk.outer; ++o) {
    for (std::uint64_t k = 0; k < walk.inner; ++k) {
      double sum = 0;
      for (std::uint64_t i = 0; i < walk.size; ++i) sum += on.load(0, walk.at(k, i, o));
      on.store(k + walk.inner * o, sum);
    }
  }
}
void run_max(const Operands& on) {
  const Walk walk(on.in(0).sizes, static_cast<std::size_t>(params_of<AxisParams>(on.node).axis));
  for (std::uint64_t o = 0; o < walk.outer; ++o) {
    for (std::uint64_t k = 0; k < walk.inner; ++k) {
      std::uint64_t place = 0;
      for (std::uint64_t i = 1; i < walk.size; ++i) {
        if (on.load(0, walk.at(k, i, o)) > on.load(0, walk.at(k, place, o))) place = i;
      }
      on.store(k + walk.inner * o, on.load(0, walk.at(k, place, o)));
      on.store(k + walk.inner * o, static_cast<double>(place), 1);
    }
  }
}

// ---- compare_gen.cpp, where_gen.cpp: truths are i8 (create_tensor.cpp: Bool is syn_type_int8)

std::string check_compare(const OpNode& node, const Tensors& tensors) {
  if (in(node, tensors, 0).type != in(node, tensors, 1).type) return "the tensors' types differ";
  if (out(node, tensors).type != kI8) return "the result is not i8";
  for (const std::size_t i : node.inputs) {
    if (!broadcasts(tensors[i], out(node, tensors))) return "the sizes do not fit";
  }
  return {};
}
template <typename Holds>
void run_compare(const Operands& on) {
  for (std::uint64_t i = 0; i < on.out().elements(); ++i) {
    const double a = on.load(0, broadcast_index(on.in(0), on.out(), i));
    const double b = on.load(1, broadcast_index(on.in(1), on.out(), i));
    on.store(i, Holds{}(a, b) ? 1 : 0);
  }
}
std::string check_where(const OpNode& node, const Tensors& tensors) {
  if (in(node, tensors, 0).type != kI8) return "the condition is not i8";
  for (const std::size_t i : node.inputs) {
    if (!broadcasts(tensors[i], out(node, tensors))) return "the sizes do not fit";
    if (i != node.inputs[0] && tensors[i].type != out(node, tensors).type) return "the tensors' types differ";
  }
  return {};
}
void run_where(const Operands& on) {
  for (std::uint64_t i = 0; i < on.out().elements(); ++i) {
    const std::size_t from = on.load(0, broadcast_index(on.in(0), on.out(), i)) != 0 ? 1 : 2;
    on.store(i, on.load(from, broadcast_index(on.in(from), on.out(), i)));
  }
}

// ---- arange_gen.cpp, OpBackend::BuildConstant, clamp_gen.cpp

std::string check_constant(const OpNode& node, const Tensors& tensors) {
  const int type = out(node, tensors).type;
  return type == kI32 || type == kF32 ? "" : "the simulator knows no constants of this type";
}
void run_constant(const Operands& on) {
  for (std::uint64_t i = 0; i < on.out().elements(); ++i) on.store(i, params_of<Number>(on.node).of(on.out().type));
}
std::string check_range(const OpNode& node, const Tensors& tensors) {
  const auto params = params_of<RangeParams>(node);
  const TensorFacts& result = out(node, tensors);
  if (result.type != kI32 || params.delta.i <= 0) return "the simulator knows ranges that rise, of i32, alone";
  const std::int64_t length = std::int64_t{params.limit.i} - params.start.i;
  const std::int64_t count = (length + params.delta.i - 1) / params.delta.i;
  return result.sizes == Sizes{static_cast<std::uint64_t>(std::max<std::int64_t>(count, 0))} ? ""
                                                                                             : "the sizes do not fit";
}
void run_range(const Operands& on) {
  const auto params = params_of<RangeParams>(on.node);
  for (std::uint64_t i = 0; i < on.out().elements(); ++i) {
    on.store(i, params.start.i + static_cast<double>(i) * params.delta.i);
  }
}
std::string check_clamp(const OpNode& node, const Tensors& tensors) {
  const TensorFacts& x = in(node, tensors, 0);
  if (x.type != kI32 && x.type != kF32) return "the simulator knows no bounds of this type";
  return out(node, tensors).sizes == x.sizes && out(node, tensors).type == x.type ? "" : "the result does not fit";
}
void run_clamp(const Operands& on) {
  const auto params = params_of<ClampParams>(on.node);
  const int type = on.out().type;
  for (std::uint64_t i = 0; i < on.out().elements(); ++i) {
    on.store(i, std::min(std::max(on.load(0, i), params.lower.of(type)), params.upper.of(type)));
  }
}

// ---- tensor_shape_kernels.cpp, cat_gen.cpp: without a type in the guid

std::string check_reshape(const OpNode& node, const Tensors& tensors) {
  const TensorFacts& x = in(node, tensors, 0);
  return x.elements() == out(node, tensors).elements() && x.type == out(node, tensors).type ? ""
                                                                                            : "the result does not fit";
}
std::string check_broadcast(const OpNode& node, const Tensors& tensors) {
  const TensorFacts& x = in(node, tensors, 0);
  return broadcasts(x, out(node, tensors)) && x.type == out(node, tensors).type ? "" : "the result does not fit";
}
void run_broadcast(const Operands& on) {
  for (std::uint64_t i = 0; i < on.out().elements(); ++i)
    on.store(i, on.load(0, broadcast_index(on.in(0), on.out(), i)));
}
void run_reshape(const Operands& on) {
  for (std::uint64_t i = 0; i < on.out().elements(); ++i) on.store(i, on.load(0, i));
}
std::string check_transpose(const OpNode& node, const Tensors& tensors) {
  const auto params = params_of<TransposeParams>(node);
  const TensorFacts &x = in(node, tensors, 0), &result = out(node, tensors);
  if (params.dimensions != x.sizes.size() || result.sizes.size() != x.sizes.size()) return "the dimensions differ";
  std::vector<bool> there(x.sizes.size());
  for (std::size_t d = 0; d < x.sizes.size(); ++d) {
    const std::uint32_t from = params.permutation[d];
    if (from >= x.sizes.size() || there[from]) return "it is no permutation";
    there[from] = true;
    if (result.sizes[d] != x.sizes[from]) return "the sizes do not fit";
  }
  return result.type == x.type ? "" : "the tensors' types differ";
}
void run_transpose(const Operands& on) {
  const auto params = params_of<TransposeParams>(on.node);
  const Sizes &from = on.in(0).sizes, &to = on.out().sizes;
  std::vector<std::uint64_t> steps(from.size(), 1);
  for (std::size_t d = 1; d < from.size(); ++d) steps[d] = steps[d - 1] * from[d - 1];
  for (std::uint64_t i = 0; i < on.out().elements(); ++i) {
    std::uint64_t left = i, at = 0;
    for (std::size_t d = 0; d < to.size(); ++d) {
      at += left % to[d] * steps[params.permutation[d]];
      left /= to[d];
    }
    on.store(i, on.load(0, at));
  }
}
std::string check_concat(const OpNode& node, const Tensors& tensors) {
  const auto axis = static_cast<std::size_t>(params_of<AxisParams>(node).axis);
  Sizes sizes = in(node, tensors, 0).sizes;
  if (axis >= sizes.size() || in(node, tensors, 1).sizes.size() != sizes.size())
    return "the axis is none of the tensors'";
  sizes[axis] += in(node, tensors, 1).sizes[axis];
  Sizes second = in(node, tensors, 1).sizes;
  second[axis] = sizes[axis];
  if (out(node, tensors).sizes != sizes || second != sizes) return "the sizes do not fit";
  const int type = out(node, tensors).type;
  return in(node, tensors, 0).type == type && in(node, tensors, 1).type == type ? "" : "the tensors' types differ";
}
void run_concat(const Operands& on) {
  const auto axis = static_cast<std::size_t>(params_of<AxisParams>(on.node).axis);
  const Walk to(on.out().sizes, axis);
  for (std::size_t part = 0; part < 2; ++part) {
    const Walk from(on.in(part).sizes, axis);
    const std::uint64_t begin = part == 0 ? 0 : on.in(0).sizes[axis];
    for (std::uint64_t o = 0; o < from.outer; ++o) {
      for (std::uint64_t i = 0; i < from.size; ++i) {
        for (std::uint64_t k = 0; k < from.inner; ++k)
          on.store(to.at(k, begin + i, o), on.load(part, from.at(k, i, o)));
      }
    }
  }
}

constexpr int kUntyped = -1, kOfResult = 9;

// The kernel of a guid. Null: none of these.
const Kernel* kernel_of(const OpNode& node, const Tensors& tensors) {
  static const Kernel all[] = {
      {"gather_fwd", kOfResult, 2, 1, sizeof(AxisParams), check_gather, run_gather},
      {"index_copy_fwd", kOfResult, 3, 1, sizeof(AxisParams), check_index_copy, run_index_copy},
      {"rotary_pos_embedding_fwd", kOfResult, 3, 1, sizeof(RopeParams), check_rope, run_rope},
      {"softmax_fwd", kOfResult, 1, 1, sizeof(AxisParams), check_softmax, run_softmax},
      {"reduce_sum_fwd", kOfResult, 1, 1, sizeof(AxisParams), check_reduction, run_sum},
      {"reduce_max_fwd", kOfResult, 1, 2, sizeof(AxisParams), check_reduction, run_max},
      {"equal_fwd", 0, 2, 1, 0, check_compare, run_compare<std::equal_to<>>},
      {"greater_fwd", 0, 2, 1, 0, check_compare, run_compare<std::greater<>>},
      {"less_equal_fwd", 0, 2, 1, 0, check_compare, run_compare<std::less_equal<>>},
      {"where_fwd", kOfResult, 3, 1, 0, check_where, run_where},
      {"constant", kOfResult, 0, 1, sizeof(Number), check_constant, run_constant},
      {"range", kOfResult, 0, 1, sizeof(RangeParams), check_range, run_range},
      {"clamp_pt_fwd", kOfResult, 1, 1, sizeof(ClampParams), check_clamp, run_clamp},
      {"reshape", kUntyped, 1, 1, 0, check_reshape, run_reshape},
      {"broadcast", kUntyped, 1, 1, 0, check_broadcast, run_broadcast},
      {"transpose", kUntyped, 1, 1, sizeof(TransposeParams), check_transpose, run_transpose},
      {"concat", kUntyped, 2, 1, sizeof(AxisParams), check_concat, run_concat},
  };
  for (const Kernel& kernel : all) {
    std::string guid = kernel.name;
    if (kernel.typed != kUntyped) {
      if (kernel.typed == 0 && node.inputs.empty()) continue;
      guid += std::string("_") + suffix_of(kernel.typed == 0 ? in(node, tensors, 0).type : out(node, tensors).type);
    }
    if (node.guid == guid) return &kernel;
  }
  return nullptr;
}

}  // namespace

std::optional<std::string> check_tensor_node(const OpNode& node, const Tensors& tensors) {
  const Kernel* kernel = kernel_of(node, tensors);
  if (kernel == nullptr) return {};
  if (node.inputs.size() != kernel->inputs || node.outputs.size() != kernel->outputs) {
    return "it takes " + std::to_string(kernel->inputs) + " tensors and gives " + std::to_string(kernel->outputs);
  }
  if (node.params.size() != kernel->params) return "the parameters have another size";
  return kernel->check(node, tensors);
}

bool run_tensor_node(const Operands& on) {
  const Kernel* kernel = kernel_of(on.node, on.tensors);
  if (kernel != nullptr) kernel->run(on);
  return kernel != nullptr;
}

}  // namespace sim::habana
