// Graphs and recipes of the simulated libSynapse.so: a graph of nodes over tensors is compiled into a recipe, which is
// launched on streams with an address for every persistent tensor, and computes by plain loops in fp32, with one
// rounding to each tensor's type. Sizes are in Habana's order: the dimension whose elements are neighbours comes first.
#include "simulators/habana/graph.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "simulators/habana/habana.h"
#include "simulators/habana/node.h"

namespace sim::habana {

using namespace queue_face;  // NOLINT: the functions below are a layer over it

namespace {

enum : Result { kNameIsAlreadyUsed = 21, kInvalidTensorDimensions = 25, kInvalidSectionsDefinition = 38 };
constexpr std::size_t kMostDimensions = 25;
constexpr std::uint64_t kWorkspaceAlignment = 128;

struct SynapseGraph : Object {
  SynapseGraph() : Object("Synapse graph") {}
  std::vector<std::shared_ptr<TensorFacts>> tensors;
  std::vector<OpNode> nodes;
  std::uint64_t sections = 0;  // that were made
};
struct SynapseSection : Object {
  SynapseSection() : Object("Synapse section") {}
  std::shared_ptr<SynapseGraph> graph;
  bool persistent = false;
  std::uint64_t number = 0;  // from 1
};
struct SynapseTensor : Object {
  SynapseTensor() : Object("Synapse tensor") {}
  std::shared_ptr<SynapseGraph> graph;
  std::size_t index = 0;
  std::shared_ptr<SynapseSection> section;
};
// ---- nodes
// ------------------------------------------------------------------------------------------------------------

// synGEMMParams
struct GemmParams {
  bool transpose_a = false, transpose_b = false;
};
GemmParams gemm_params(const OpNode& node) {
  GemmParams params;
  if (node.params.size() == sizeof params) std::memcpy(&params, node.params.data(), sizeof params);
  return params;
}

std::string check_product(const OpNode& node, const TensorFacts& a, const TensorFacts& b, const TensorFacts& c) {
  const std::size_t rank = a.sizes.size();
  if (!node.params.empty() && node.params.size() != sizeof(GemmParams)) return "the parameters have another size";
  const bool one = node.guid == "gemm";
  if (one != (rank == 2) || rank < 2 || b.sizes.size() != rank || c.sizes.size() != rank) {
    return "gemm takes matrices, batch_gemm batches of them";
  }
  const GemmParams params = gemm_params(node);
  const std::uint64_t m = a.sizes[params.transpose_a ? 0 : 1], k = a.sizes[params.transpose_a ? 1 : 0];
  const std::uint64_t n = b.sizes[params.transpose_b ? 1 : 0], other = b.sizes[params.transpose_b ? 0 : 1];
  if (k != other || c.sizes[0] != n || c.sizes[1] != m) return "the sizes of the matrices do not fit";
  for (std::size_t d = 2; d < rank; ++d) {
    if (a.sizes[d] != c.sizes[d] || b.sizes[d] != c.sizes[d]) return "the batches differ";
  }
  for (const TensorFacts* tensor : {&a, &b, &c}) {
    if (number_type(tensor->type) < 0) return "products are of floats";
  }
  return {};
}

void multiply(const Operands& on) {
  const GemmParams params = gemm_params(on.node);
  const auto matrix = [](const TensorFacts& tensor, bool transposed) {
    const auto columns = static_cast<std::int64_t>(tensor.sizes[0]);
    const auto rows = static_cast<std::int64_t>(tensor.sizes[1]);
    return sim_library::Strided{number_type(tensor.type), transposed ? 1 : columns, transposed ? columns : 1,
                                rows * columns};
  };
  sim_library::Product product;
  const TensorFacts& c = on.out();
  product.m = static_cast<std::int64_t>(c.sizes[1]);
  product.n = static_cast<std::int64_t>(c.sizes[0]);
  product.k = static_cast<std::int64_t>(on.in(0).sizes[params.transpose_a ? 1 : 0]);
  product.batch = static_cast<std::int64_t>(c.elements()) / product.m / product.n;
  product.a = matrix(on.in(0), params.transpose_a);
  product.b = matrix(on.in(1), params.transpose_b);
  product.c = product.d = matrix(c, false);
  sim_library::compute(product, on.bytes[on.node.inputs[0]], on.bytes[on.node.inputs[1]], nullptr, nullptr,
                       on.bytes[on.node.outputs[0]]);
}

using Binary = double (*)(double, double);
using Unary = float (*)(float);
Binary binary(const std::string& name) {
  static const std::map<std::string, Binary> all = {{"add_fwd", [](double a, double b) { return a + b; }},
                                                    {"sub_fwd", [](double a, double b) { return a - b; }},
                                                    {"mult_fwd", [](double a, double b) { return a * b; }}};
  const auto found = all.find(name);
  return found == all.end() ? nullptr : found->second;
}
Unary unary(const std::string& name) {
  static const std::map<std::string, Unary> all = {{"relu_fwd", [](float a) { return a > 0 ? a : 0; }},
                                                   {"silu_fwd", [](float a) { return a / (1 + std::exp(-a)); }},
                                                   {"cos_fwd", [](float a) { return std::cos(a); }},
                                                   {"sin_fwd", [](float a) { return std::sin(a); }},
                                                   {"memcpy", [](float a) { return a; }}};
  const auto found = all.find(name);
  return found == all.end() ? nullptr : found->second;
}

// ns_LayerNormKernel::Params
struct NormParams {
  bool has_eps;
  float eps;
};
const char* const kNorm = "rms_norm_ex_fwd";

// Of x and the weight: the norm of each row, and the inverse of its root, which is fp32. As Habana's bridge for PyTorch calls it
// (hpu_ops/rms_norm.cpp); here all types are the guid's but that of the root.
std::string check_norm(const OpNode& node, const std::vector<TensorFacts>& tensors) {
  if (node.inputs.size() != 2 || node.outputs.size() != 2)
    return "it takes a tensor and weights, and gives two tensors";
  const TensorFacts &x = tensors[node.inputs[0]], &weight = tensors[node.inputs[1]];
  const TensorFacts &out = tensors[node.outputs[0]], &root = tensors[node.outputs[1]];
  if (x.type != out.type || weight.type != out.type || root.type != 4) return "the tensors' types differ";
  std::vector<std::uint64_t> rows = x.sizes;
  rows[0] = 1;
  if (out.sizes != x.sizes || root.sizes != rows || weight.sizes != std::vector{x.sizes[0]})
    return "the sizes do not fit";
  NormParams params;
  if (node.params.size() != sizeof params) return "the parameters have another size";
  std::memcpy(&params, node.params.data(), sizeof params);
  return params.has_eps ? "" : "the simulator has no epsilon of its own";
}

void normalize(const Operands& on) {
  NormParams params;
  std::memcpy(&params, on.node.params.data(), sizeof params);
  const std::uint64_t length = on.in(0).sizes[0], rows = on.in(0).elements() / length;
  for (std::uint64_t row = 0; row < rows; ++row) {
    double sum = 0;
    for (std::uint64_t i = 0; i < length; ++i) {
      const double value = on.load(0, row * length + i);
      sum += value * value;
    }
    const float root = 1 / std::sqrt(static_cast<float>(sum / static_cast<double>(length)) + params.eps);
    for (std::uint64_t i = 0; i < length; ++i) {
      on.store(row * length + i,
               static_cast<float>(on.load(0, row * length + i)) * root * static_cast<float>(on.load(1, i)));
    }
    sim_library::store_number(on.bytes[on.node.outputs[1]] + row * sizeof(float), sim_library::kF32, root);
  }
}

// "cast_bf16_to_f32" for tensors of these types (the page of Habana's guids names "cast_f32_to_bf16").
std::string cast_guid(int from, int to) { return std::string("cast_") + suffix_of(from) + "_to_" + suffix_of(to); }

// The guid without the type that it ends with, which must be the tensors'; empty: it is another type's.
std::string base_of(const std::string& guid, int type) {
  const std::string suffix = std::string("_") + suffix_of(type);
  return guid.ends_with(suffix) ? guid.substr(0, guid.size() - suffix.size()) : "";
}

// Returns what is wrong with a node, as one sentence; empty: nothing.
std::string check_node(const OpNode& node, const std::vector<TensorFacts>& tensors) {
  const auto count = [&](std::size_t in) { return node.inputs.size() == in && node.outputs.size() == 1; };
  const auto same_types = [&] {
    return std::all_of(node.inputs.begin(), node.inputs.end(),
                       [&](std::size_t i) { return tensors[i].type == tensors[node.outputs[0]].type; });
  };
  if (node.outputs.empty()) return "a node has an output at least";
  for (const auto* list : {&node.inputs, &node.outputs}) {
    for (const std::size_t i : *list) {
      if (tensors[i].sizes.empty() || tensors[i].type == 0) return "a tensor has no sizes or no type";
    }
  }
  const TensorFacts& out = tensors[node.outputs[0]];
  if (const auto said = check_tensor_node(node, tensors)) return *said;
  if (node.inputs.empty()) return "a node of this guid has an input at least";
  if (node.guid == "gemm" || node.guid == "batch_gemm") {
    if (!count(2)) return "it takes two matrices and gives one";
    return check_product(node, tensors[node.inputs[0]], tensors[node.inputs[1]], out);
  }
  if (node.guid.starts_with("cast_")) {
    const TensorFacts& in = tensors[node.inputs[0]];
    if (!count(1) || in.sizes != out.sizes) return "it takes one tensor and gives one of its sizes";
    return in.type != out.type && node.guid == cast_guid(in.type, out.type) ? "" : "it is not the cast of these types";
  }
  const std::string base = node.guid == "memcpy" ? node.guid : base_of(node.guid, out.type);
  if (base == kNorm) return check_norm(node, tensors);
  if (!node.params.empty()) return "the simulator knows no parameters of this guid";
  if (!same_types()) return "the tensors' types differ";
  if (binary(base) != nullptr) {
    if (!count(2)) return "it takes two tensors and gives one";
    for (const std::size_t i : node.inputs) {
      if (!broadcasts(tensors[i], out)) return "the sizes do not fit";
    }
    return {};
  }
  if (unary(base) != nullptr) {
    if (!count(1)) return "it takes one tensor and gives one";
    return tensors[node.inputs[0]].sizes == out.sizes ? "" : "the sizes differ";
  }
  return "the simulator has no kernel of this guid for tensors of this type";
}

void run_node(const Operands& on) {
  if (run_tensor_node(on)) return;
  if (on.node.guid == "gemm" || on.node.guid == "batch_gemm") return multiply(on);
  const TensorFacts& out = on.out();
  if (on.node.guid.starts_with("cast_")) {
    for (std::uint64_t i = 0; i < out.elements(); ++i) on.store(i, on.load(0, i));
    return;
  }
  const std::string base = on.node.guid == "memcpy" ? on.node.guid : base_of(on.node.guid, out.type);
  if (base == kNorm) return normalize(on);
  const Binary two = binary(base);
  const Unary one = unary(base);
  for (std::uint64_t i = 0; i < out.elements(); ++i) {
    on.store(i, two == nullptr ? one(static_cast<float>(on.load(0, i)))
                               : two(on.load(0, broadcast_index(on.in(0), out, i)),
                                     on.load(1, broadcast_index(on.in(1), out, i))));
  }
}

// Whether a result lies in the memory of a tensor that another node is still to read: operators in place of Habana's bridge for
// PyTorch rely on it that a tensor's readers come before what is written over it (duplicate_tensor_in_memory_section).
bool overwrites(const OpNode& node, const std::vector<OpNode>& left, const std::vector<TensorFacts>& tensors) {
  for (const std::size_t out : node.outputs) {
    for (const OpNode& other : left) {
      for (const std::size_t in : other.inputs) {
        if (&other != &node && in != out && tensors[out].section != 0 && tensors[in].section == tensors[out].section) {
          return true;
        }
      }
    }
  }
  return false;
}

Result collect(const SynapseGraph& graph, const Handle* handles, std::uint32_t count, std::vector<std::size_t>* into) {
  for (std::uint32_t i = 0; i < count; ++i) {
    std::shared_ptr<SynapseTensor> tensor;
    FACE_TRY(find(handles[i], "tensor", &tensor));
    FACE_REQUIRE(tensor->graph.get() == &graph, kInvalidArgument, "wrong-owner", "the tensor is another graph's");
    into->push_back(tensor->index);
  }
  return kSuccess;
}

}  // namespace

// ---- graphs
// -----------------------------------------------------------------------------------------------------------

FACE_FUNCTION(synGraphCreate, Need::started, (Handle * graph, int type), (graph, type)) {
  FACE_REQUIRE(graph != nullptr && type == kGaudi2, kInvalidArgument, "bad-argument",
               "the result is null, or the device is not a Gaudi2");
  *graph = handle_of(std::make_shared<SynapseGraph>(), true);
  return kSuccess;
}

// Its tensors and sections go with it; their handles are destroyed by their own functions before.
FACE_FUNCTION(synGraphDestroy, Need::started, (Handle graph), (graph)) {
  std::shared_ptr<SynapseGraph> object;
  FACE_TRY(find(graph, "graph", &object));
  engine().handles().remove(*object);
  return kSuccess;
}

FACE_FUNCTION(synSectionCreate, Need::started, (Handle * section, std::uint64_t descriptor, Handle graph),
              (section, descriptor, graph)) {
  FACE_REQUIRE(section != nullptr && descriptor == 0, kInvalidArgument, "bad-argument",
               "the result is null, or the descriptor is not 0");
  auto made = std::make_shared<SynapseSection>();
  FACE_TRY(find(graph, "graph", &made->graph));
  made->number = ++made->graph->sections;
  *section = handle_of(made, true);
  return kSuccess;
}

FACE_FUNCTION(synSectionSetPersistent, Need::started, (Handle section, bool persistent), (section, persistent)) {
  std::shared_ptr<SynapseSection> object;
  FACE_TRY(find(section, "section", &object));
  object->persistent = persistent;
  return kSuccess;
}

FACE_FUNCTION(synSectionDestroy, Need::started, (Handle section), (section)) {
  std::shared_ptr<SynapseSection> object;
  FACE_TRY(find(section, "section", &object));
  engine().handles().remove(*object);
  return kSuccess;
}

FACE_FUNCTION(synTensorHandleCreate, Need::started, (Handle * tensor, Handle graph, int type, const char* name),
              (tensor, graph, type, name)) {
  FACE_REQUIRE(tensor != nullptr && name != nullptr && type == 0, kInvalidArgument, "bad-argument",
               "the result or the name is null, or the tensor is no DATA_TENSOR, which is all that is simulated");
  auto made = std::make_shared<SynapseTensor>();
  FACE_TRY(find(graph, "graph", &made->graph));
  auto& tensors = made->graph->tensors;
  FACE_REQUIRE(std::none_of(tensors.begin(), tensors.end(), [&](const auto& other) { return other->name == name; }),
               kNameIsAlreadyUsed, "bad-argument", std::string("the graph has a tensor named ") + name);
  made->index = tensors.size();
  tensors.push_back(std::make_shared<TensorFacts>());
  tensors.back()->name = name;
  *tensor = handle_of(made, true);
  return kSuccess;
}

FACE_FUNCTION(synTensorDestroy, Need::started, (Handle tensor), (tensor)) {
  std::shared_ptr<SynapseTensor> object;
  FACE_TRY(find(tensor, "tensor", &object));
  engine().handles().remove(*object);
  return kSuccess;
}

// synTensorGeometryExt
struct Geometry {
  std::uint64_t sizes[kMostDimensions];
  std::uint32_t dimensions;
};
FACE_FUNCTION(synTensorSetGeometryExt, Need::started, (Handle tensor, const Geometry* geometry, int type),
              (tensor, geometry, type)) {
  std::shared_ptr<SynapseTensor> object;
  FACE_TRY(find(tensor, "tensor", &object));
  FACE_REQUIRE(geometry != nullptr && type == 1, kInvalidArgument, "bad-argument",
               "the geometry is null, or not the sizes, which are all that is simulated");
  FACE_REQUIRE(geometry->dimensions >= 1 && geometry->dimensions <= 5, kInvalidTensorDimensions, "bad-argument",
               std::to_string(geometry->dimensions) + " dimensions");
  const std::vector<std::uint64_t> sizes(geometry->sizes, geometry->sizes + geometry->dimensions);
  FACE_REQUIRE(std::find(sizes.begin(), sizes.end(), 0) == sizes.end(), kInvalidTensorDimensions, "bad-argument",
               "a size is 0");
  object->graph->tensors[object->index]->sizes = sizes;
  return kSuccess;
}

FACE_FUNCTION(synTensorSetDeviceDataType, Need::started, (Handle tensor, int type), (tensor, type)) {
  std::shared_ptr<SynapseTensor> object;
  FACE_TRY(find(tensor, "tensor", &object));
  FACE_REQUIRE(element_bytes(type) != 0, kInvalidArgument, "bad-argument",
               "type " + std::to_string(type) + " is none of bf16, f16, f32, i32 and i8, which are simulated");
  object->graph->tensors[object->index]->type = type;
  return kSuccess;
}

FACE_FUNCTION(synTensorAssignToSection, Need::started, (Handle tensor, Handle section, std::uint64_t offset),
              (tensor, section, offset)) {
  std::shared_ptr<SynapseTensor> object;
  FACE_TRY(find(tensor, "tensor", &object));
  std::shared_ptr<SynapseSection> place;
  FACE_TRY(find(section, "section", &place));
  FACE_REQUIRE(place->graph == object->graph, kInvalidArgument, "wrong-owner", "the section is another graph's");
  FACE_REQUIRE(offset == 0, kInvalidArgument, "bad-argument",
               "other places of a section than its start are not simulated");
  TensorFacts& tensor_facts = *object->graph->tensors[object->index];
  for (const auto& other : object->graph->tensors) {
    FACE_REQUIRE(other.get() == &tensor_facts || other->section != place->number ||
                     (other->sizes == tensor_facts.sizes && other->type == tensor_facts.type),
                 kInvalidArgument, "bad-argument",
                 "tensors of one section that differ in sizes or type are not simulated");
  }
  tensor_facts.persistent = place->persistent;
  tensor_facts.section = place->number;
  return kSuccess;
}

FACE_FUNCTION(synNodeCreate, Need::started,
              (Handle graph, const Handle* inputs, const Handle* outputs, std::uint32_t input_count,
               std::uint32_t output_count, const void* params, unsigned params_bytes, const char* guid,
               const char* name, const char** input_layouts, const char** output_layouts),
              (graph, inputs, outputs, input_count, output_count, params, params_bytes, guid, name, input_layouts,
               output_layouts)) {
  std::shared_ptr<SynapseGraph> object;
  FACE_TRY(find(graph, "graph", &object));
  FACE_REQUIRE(guid != nullptr && name != nullptr && (params != nullptr || params_bytes == 0), kInvalidArgument,
               "bad-argument", "the guid, the name or the parameters are null");
  FACE_REQUIRE(input_layouts == nullptr && output_layouts == nullptr, kInvalidArgument, "bad-argument",
               "layouts are not simulated");
  OpNode node;
  node.guid = guid;
  FACE_TRY(collect(*object, inputs, input_count, &node.inputs));
  FACE_TRY(collect(*object, outputs, output_count, &node.outputs));
  const auto* bytes = static_cast<const char*>(params);
  node.params.assign(bytes, bytes + params_bytes);
  std::vector<TensorFacts> tensors;
  for (const auto& tensor : object->tensors) tensors.push_back(*tensor);
  const std::string wrong = check_node(node, tensors);
  FACE_REQUIRE(wrong.empty(), kFail, "bad-argument", std::string(name) + " (" + guid + "): " + wrong);
  object->nodes.push_back(std::move(node));
  return kSuccess;
}

// ---- recipes
// -----------------------------------------------------------------------------------------------------------

// Tensors that are not persistent get a place in the workspace.
FACE_FUNCTION(synGraphCompile, Need::started, (Handle * recipe, Handle graph, const char* name, const char*),
              (recipe, graph, name, nullptr)) {
  FACE_REQUIRE(recipe != nullptr && name != nullptr, kInvalidArgument, "bad-argument", "the result or name is null");
  std::shared_ptr<SynapseGraph> object;
  FACE_TRY(find(graph, "graph", &object));
  auto made = std::make_shared<SynapseRecipe>();
  for (const auto& tensor : object->tensors) made->tensors.push_back(*tensor);
  std::set<std::size_t> unwritten;  // results of nodes that have no place in the order yet
  for (const OpNode& node : object->nodes) {
    for (const std::size_t i : node.outputs) {
      FACE_REQUIRE(unwritten.insert(i).second, kFail, "bad-argument",
                   "two nodes write tensor " + made->tensors[i].name);
    }
  }
  for (const OpNode& node : object->nodes) {
    for (const std::size_t i : node.inputs) {
      FACE_REQUIRE(made->tensors[i].persistent || unwritten.count(i) != 0, kFail, "bad-argument",
                   "no node writes tensor " + made->tensors[i].name + ", which is not persistent");
    }
  }
  std::vector<OpNode> left = object->nodes;
  while (!left.empty()) {
    const auto next = std::find_if(left.begin(), left.end(), [&](const OpNode& node) {
      return std::none_of(node.inputs.begin(), node.inputs.end(),
                          [&](std::size_t i) { return unwritten.count(i) != 0; }) &&
             !overwrites(node, left, made->tensors);
    });
    FACE_REQUIRE(next != left.end(), kFail, "bad-argument", "the nodes wait for each other's results");
    for (const std::size_t i : next->outputs) unwritten.erase(i);
    made->nodes.push_back(*next);
    left.erase(next);
  }
  for (TensorFacts& tensor : made->tensors) {
    if (tensor.persistent) continue;
    tensor.offset = made->workspace;
    made->workspace += (bytes_of(tensor) + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
  }
  *recipe = handle_of(made, true);
  return kSuccess;
}

FACE_FUNCTION(synRecipeDestroy, Need::started, (Handle recipe), (recipe)) {
  std::shared_ptr<SynapseRecipe> object;
  FACE_TRY(find(recipe, "recipe", &object));
  engine().handles().remove(*object);
  return kSuccess;
}

FACE_FUNCTION(synWorkspaceGetSize, Need::started, (std::uint64_t * bytes, Handle recipe), (bytes, recipe)) {
  FACE_REQUIRE(bytes != nullptr, kInvalidArgument, "bad-argument", "the result is null");
  std::shared_ptr<SynapseRecipe> object;
  FACE_TRY(find(recipe, "recipe", &object));
  *bytes = object->workspace;
  return kSuccess;
}

FACE_FUNCTION(synTensorRetrieveIds, Need::started,
              (Handle recipe, const char** names, std::uint64_t* ids, std::uint32_t count),
              (recipe, names, ids, count)) {
  std::shared_ptr<SynapseRecipe> object;
  FACE_TRY(find(recipe, "recipe", &object));
  FACE_REQUIRE(names != nullptr && ids != nullptr, kInvalidArgument, "bad-argument", "the names or results are null");
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto found = std::find_if(object->tensors.begin(), object->tensors.end(),
                                    [&](const TensorFacts& t) { return t.persistent && t.name == names[i]; });
    FACE_REQUIRE(found != object->tensors.end(), kFail, "bad-argument",
                 std::string("the recipe has no persistent tensor named ") + names[i]);
    // Identifiers that are no positions, so that a program must query them.
    ids[i] = (std::uint64_t{0x1D} << 32) + static_cast<std::uint64_t>(found - object->tensors.begin());
  }
  return kSuccess;
}

// synLaunchTensorInfoExt
struct LaunchTensor {
  const char* name;
  std::uint64_t address;
  int type;
  std::uint64_t sizes[kMostDimensions];
  std::uint64_t id;
};
FACE_FUNCTION(synLaunchExt, Need::healthy,
              (Handle stream, const LaunchTensor* list, std::uint32_t count, std::uint64_t workspace, Handle recipe,
               std::uint32_t flags),
              (stream, list, count, workspace, recipe, flags)) {
  std::shared_ptr<SynapseRecipe> object;
  FACE_TRY(find(recipe, "recipe", &object));
  FACE_REQUIRE(flags == 0 && (list != nullptr || count == 0), kInvalidArgument, "bad-argument",
               "the flags are not 0, or the tensors are null");
  std::vector<std::uint64_t> addresses(object->tensors.size());
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint64_t index = list[i].id - (std::uint64_t{0x1D} << 32);
    FACE_REQUIRE(index < addresses.size() && object->tensors[index].persistent, kInvalidArgument, "bad-argument",
                 "tensor " + std::to_string(i) + " of the launch has an id that is none of the recipe's");
    const TensorFacts& tensor = object->tensors[index];
    FACE_REQUIRE(list[i].name == nullptr || tensor.name == list[i].name, kInvalidArgument, "bad-argument",
                 "the id of tensor " + tensor.name + " has another name in the launch");
    addresses[index] = list[i].address;
  }
  std::map<std::uint64_t, std::uint64_t> places;  // of sections
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    if (object->tensors[i].persistent) {
      const auto place = places.emplace(object->tensors[i].section, addresses[i]).first;
      FACE_REQUIRE(place->second == addresses[i], kInvalidSectionsDefinition, "bad-argument",
                   "tensor " + object->tensors[i].name + " is not where another tensor of its section is");
    }
    if (!object->tensors[i].persistent) addresses[i] = workspace + object->tensors[i].offset;
    FACE_REQUIRE(!object->tensors[i].persistent || addresses[i] != 0, kInvalidSectionsDefinition, "bad-argument",
                 "the launch gives no address of tensor " + object->tensors[i].name);
  }
  FACE_REQUIRE(
      object->workspace == 0 || workspace != 0, kInvalidSectionsDefinition, "bad-argument",
      "the launch gives no workspace, of which the recipe wants " + std::to_string(object->workspace) + " bytes");
  Node node;
  node.what = current_function();
  node.run = [object, addresses](Execution& execution) {
    for (const OpNode& one : object->nodes) {
      std::vector<char*> bytes(addresses.size());
      for (const bool writes : {false, true}) {
        for (const std::size_t i : writes ? one.outputs : one.inputs) {
          auto* pointer = reinterpret_cast<char*>(addresses[i]);
          if (engine().memory().find(pointer) == nullptr) {
            engine().report().violation(
                "bad-pointer", "synLaunchExt: tensor " + object->tensors[i].name + " is at no memory of the device");
            return execution.fail(sim::Status::bad_access);
          }
          const std::uint64_t size = bytes_of(object->tensors[i]);
          bytes[i] = writes ? execution.write(pointer, size) : const_cast<char*>(execution.read(pointer, size));
          if (bytes[i] == nullptr) return;
        }
      }
      // What is written over an input is computed from all of it.
      std::map<std::size_t, std::vector<char>> kept;
      for (const std::size_t in : one.inputs) {
        for (const std::size_t out : one.outputs) {
          if (in == out || bytes[in] != bytes[out] || kept.count(in) != 0) continue;
          kept[in].assign(bytes[in], bytes[in] + bytes_of(object->tensors[in]));
          bytes[in] = kept[in].data();
        }
      }
      run_node({object->tensors, one, bytes});
    }
  };
  const std::lock_guard lock(face_lock());
  Result bad = kSuccess;
  const auto target = get_stream(stream, &bad);
  return target == nullptr ? bad : submit(*target, std::move(node));
}

}  // namespace sim::habana
