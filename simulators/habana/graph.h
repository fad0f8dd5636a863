// Declares the parts of the simulated Synapse's graphs and recipes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "simulators/habana/habana.h"

namespace sim::habana {

struct TensorFacts {
  std::string name;
  std::vector<std::uint64_t> sizes;  // fastest first; empty: not set
  int type = 0;                      // synDataType
  bool persistent = false;
  std::uint64_t section = 0;  // of persistent tensors: those of one number are in one memory
  std::uint64_t offset = 0;   // in the workspace, of tensors that are not persistent

  std::uint64_t elements() const {
    std::uint64_t count = 1;
    for (const std::uint64_t size : sizes) count *= size;
    return count;
  }
};

struct OpNode {
  std::string guid;
  std::vector<std::size_t> inputs, outputs;  // among the graph's tensors
  std::vector<char> params;
};

// Holds what was compiled; a graph that changes later does not change it.
struct SynapseRecipe : Object {
  SynapseRecipe() : Object("Synapse recipe") {}
  std::vector<TensorFacts> tensors;
  std::vector<OpNode> nodes;  // each after those whose results it uses
  std::uint64_t workspace = 0;
};

template <typename T>
queue_face::Result find(queue_face::Handle handle, const char* what, std::shared_ptr<T>* object) {
  *object = queue_face::get<T>(handle, what);
  return *object == nullptr ? queue_face::Result{kInvalidArgument} : queue_face::Result{queue_face::kSuccess};
}

}  // namespace sim::habana
