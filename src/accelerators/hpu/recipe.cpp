// Implements recipe.h: builds Synapse's graphs and launches their recipes.
#include "accelerators/hpu/recipe.h"

#include <algorithm>
#include <utility>

#include "anyaccel/abi/driver_class.hpp"

namespace anyaccel::hpu {
namespace {

// Names a tensor by its index among the graph's tensors.
std::string name_of(size_t tensor) { return "t" + std::to_string(tensor); }

}  // namespace

const char* suffix_of(int type) {
  switch (type) {
    case syn_f32: return "f32";
    case syn_bf16: return "bf16";
    case syn_i32: return "i32";
    case syn_i8: return "i8";
    default: return "f16";
  }
}

std::string status_text(const Api& api, SynStatus status) {
  char said[description_bytes] = {};
  if (api.synStatusGetBriefDescription) api.synStatusGetBriefDescription(status, said, sizeof(said) - 1);
  return "status " + std::to_string(status) + (said[0] ? std::string(" (") + said + ")" : std::string());
}

void check(const Api& api, SynStatus status, const char* call) {
  if (status != 0) {
    throw abi::Failure(AA_INTERNAL, "hpu: " + std::string(call) + " gave " + status_text(api, status), status);
  }
}

// ---- recipes ---------------------------------------------------------------------------------------------------------

Recipe::Recipe(const Api& api, void* handle, const std::vector<Sizes>& persistent) : api_(api), handle_(handle) {
  try {
    for (const Sizes& sizes : persistent) {
      names_.push_back(name_of(names_.size()));
      SynLaunchTensor& tensor = tensors_.emplace_back();
      tensor.type = data_tensor;
      std::reverse_copy(sizes.begin(), sizes.end(), tensor.sizes);
    }
    std::vector<const char*> asked;
    for (const std::string& name : names_) asked.push_back(name.c_str());
    std::vector<uint64_t> ids(asked.size());
    check(api, api.synTensorRetrieveIds(handle, asked.data(), ids.data(), static_cast<uint32_t>(ids.size())),
          "synTensorRetrieveIds");
    for (size_t i = 0; i < ids.size(); ++i) {
      tensors_[i].name = names_[i].c_str();
      tensors_[i].id = ids[i];
    }
    check(api, api.synWorkspaceGetSize(&workspace_, handle), "synWorkspaceGetSize");
  } catch (...) {
    api.synRecipeDestroy(handle);
    throw;
  }
}

Recipe::~Recipe() { api_.synRecipeDestroy(handle_); }

void Recipe::launch(SynStream stream, const std::vector<uint64_t>& addresses, uint64_t workspace) {
  for (size_t i = 0; i < tensors_.size(); ++i) tensors_[i].address = addresses[i];
  check(api_, api_.synLaunchExt(stream, tensors_.data(), static_cast<uint32_t>(tensors_.size()), workspace, handle_, 0),
        "synLaunchExt");
}

// ---- graphs ----------------------------------------------------------------------------------------------------------

Graph::Graph(const Api& api, int device_type) : api_(api) {
  check(api, api.synGraphCreate(&graph_, device_type), "synGraphCreate");
}

Graph::~Graph() {
  for (void* tensor : tensors_) api_.synTensorDestroy(tensor);
  for (void* section : sections_) api_.synSectionDestroy(section);
  api_.synGraphDestroy(graph_);
}

Graph::Tensor Graph::add(int type, const Sizes& sizes) {
  void* tensor = nullptr;
  const std::string name = name_of(tensors_.size());
  check(api_, api_.synTensorHandleCreate(&tensor, graph_, data_tensor, name.c_str()), "synTensorHandleCreate");
  tensors_.push_back(tensor);
  SynGeometry geometry{};
  geometry.dimensions = static_cast<uint32_t>(sizes.size());
  std::reverse_copy(sizes.begin(), sizes.end(), geometry.sizes);
  check(api_, api_.synTensorSetGeometryExt(tensor, &geometry, geometry_sizes), "synTensorSetGeometryExt");
  check(api_, api_.synTensorSetDeviceDataType(tensor, type), "synTensorSetDeviceDataType");
  return {tensor, type, sizes};
}

Graph::Tensor Graph::between(int type, const Sizes& sizes) { return add(type, sizes); }

Graph::Tensor Graph::in_section(int type, const Sizes& sizes, void* section) {
  const Tensor made = add(type, sizes);
  check(api_, api_.synTensorAssignToSection(made.handle, section, 0), "synTensorAssignToSection");
  return made;
}

Graph::Tensor Graph::persistent(int type, const Sizes& sizes) {
  void* section = nullptr;
  check(api_, api_.synSectionCreate(&section, 0, graph_), "synSectionCreate");
  sections_.push_back(section);
  check(api_, api_.synSectionSetPersistent(section, true), "synSectionSetPersistent");
  return in_section(type, sizes, section);
}

Graph::Tensor Graph::replacing(const Tensor& old) {
  const auto at = std::find(tensors_.begin(), tensors_.end(), old.handle) - tensors_.begin();
  return in_section(old.type, old.sizes, sections_[static_cast<size_t>(at)]);
}

void Graph::node(const std::string& guid, std::initializer_list<Tensor> inputs, std::initializer_list<Tensor> outputs,
                 const void* params, size_t params_size) {
  std::vector<void*> handles, results;
  for (const Tensor& input : inputs) handles.push_back(input.handle);
  for (const Tensor& output : outputs) results.push_back(output.handle);
  check(api_,
        api_.synNodeCreate(graph_, handles.data(), results.data(), static_cast<uint32_t>(handles.size()),
                           static_cast<uint32_t>(results.size()), params, static_cast<unsigned>(params_size),
                           guid.c_str(), guid.c_str(), nullptr, nullptr),
        "synNodeCreate");
}

Graph::Tensor Graph::result(const std::string& guid, int type, const Sizes& sizes, std::initializer_list<Tensor> inputs,
                            const void* params, size_t params_size) {
  Tensor made = between(type, sizes);
  node(guid + "_" + suffix_of(type), inputs, {made}, params, params_size);
  return made;
}

void Graph::convert(const Tensor& to, const Tensor& from) {
  node(to.type == from.type ? "memcpy" : std::string("cast_") + suffix_of(from.type) + "_to_" + suffix_of(to.type),
       {from}, {to});
}

Graph::Tensor Graph::reshaped(const Tensor& tensor, const Sizes& sizes) {
  if (tensor.sizes == sizes) return tensor;
  Tensor made = between(tensor.type, sizes);
  node("reshape", {tensor}, {made});
  return made;
}

Graph::Tensor Graph::in_f32(const Tensor& tensor) {
  if (tensor.type == syn_f32) return tensor;
  Tensor wide = between(syn_f32, tensor.sizes);
  convert(wide, tensor);
  return wide;
}

void* Graph::compile() {
  void* recipe = nullptr;
  check(api_, api_.synGraphCompile(&recipe, graph_, "anyaccel", nullptr), "synGraphCompile");
  return recipe;
}

}  // namespace anyaccel::hpu
