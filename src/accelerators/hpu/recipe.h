// Builds Synapse's graphs, and launches the recipes into which they are compiled.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "accelerators/hpu/hpu_api.h"

namespace anyaccel::hpu {

// Throws abi::Failure unless the status is success.
void check(const Api& api, SynStatus status, const char* call);

using Sizes = std::vector<int64_t>;  // the last dimension's elements are adjacent

// A compiled graph. It can be launched any number of times, from one thread at a time.
class Recipe {
 public:
  // Takes ownership of the handle. `persistent`: the sizes of the graph's persistent tensors.
  Recipe(const Api& api, void* handle, const std::vector<Sizes>& persistent);
  ~Recipe();
  Recipe(const Recipe&) = delete;
  Recipe& operator=(const Recipe&) = delete;

  uint64_t workspace_bytes() const { return workspace_; }
  // `addresses` are those of the graph's persistent tensors.
  void launch(SynStream stream, const std::vector<uint64_t>& addresses, uint64_t workspace);

 private:
  const Api& api_;
  void* handle_;
  std::vector<std::string> names_;
  std::vector<SynLaunchTensor> tensors_;
  uint64_t workspace_ = 0;
};

// Returns the suffix of guids of nodes on tensors of this type: "f32" and so on.
const char* suffix_of(int type);

class Graph {
 public:
  struct Tensor {
    void* handle;
    int type;
    Sizes sizes;
  };

  // `device_type`: a synDeviceType.
  Graph(const Api& api, int device_type);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Adds a tensor whose address is an argument of each launch. Add these before all other tensors.
  Tensor persistent(int type, const Sizes& sizes);
  // Adds a tensor in the memory of `old`, a persistent tensor, with the same sizes: the new value of `old`. Each launch
  // gives both the same address. Nodes that read `old` run first; Habana's bridge for PyTorch relies on this for its
  // in-place operators (duplicate_tensor_in_memory_section).
  Tensor replacing(const Tensor& old);
  // Adds a tensor between two nodes.
  Tensor between(int type, const Sizes& sizes);
  void node(const std::string& guid, std::initializer_list<Tensor> inputs, std::initializer_list<Tensor> outputs,
            const void* params = nullptr, size_t params_size = 0);
  // Adds a node and a new tensor that it writes; `guid` lacks the suffix for the type, which is that of the result.
  Tensor result(const std::string& guid, int type, const Sizes& sizes, std::initializer_list<Tensor> inputs,
                const void* params = nullptr, size_t params_size = 0);
  // Returns the tensor if it has these sizes, else a new one with its elements.
  Tensor reshaped(const Tensor& tensor, const Sizes& sizes);
  // Returns the tensor if it is in fp32, else a conversion.
  Tensor in_f32(const Tensor& tensor);
  // Adds the conversion of `from` to the type of `to`; if both have one type, a copy.
  void convert(const Tensor& to, const Tensor& from);
  // Compiles the graph and returns the recipe's handle, which the caller owns.
  void* compile();

 private:
  Tensor add(int type, const Sizes& sizes);
  Tensor in_section(int type, const Sizes& sizes, void* section);

  const Api& api_;
  void* graph_ = nullptr;
  std::vector<void*> tensors_,
      sections_;  // persistent tensors come first; the first of them have separate sections
};

}  // namespace anyaccel::hpu
