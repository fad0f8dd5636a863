// Graphs of Synapse and the recipes that they are compiled into.
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

using Sizes = std::vector<int64_t>;  // the last dimension's elements are neighbours

// A compiled graph. Launched any number of times, from one thread at a time.
class Recipe {
 public:
  // Takes the handle. `persistent`: the sizes of the graph's persistent tensors.
  Recipe(const Api& api, void* handle, const std::vector<Sizes>& persistent);
  ~Recipe();
  Recipe(const Recipe&) = delete;
  Recipe& operator=(const Recipe&) = delete;

  uint64_t workspace_bytes() const { return workspace_; }
  // `addresses`: of the graph's persistent tensors.
  void launch(SynStream stream, const std::vector<uint64_t>& addresses, uint64_t workspace);

 private:
  const Api& api_;
  void* handle_;
  std::vector<std::string> names_;
  std::vector<SynLaunchTensor> tensors_;
  uint64_t workspace_ = 0;
};

// "f32" and so on: what the guids of nodes over tensors of this type end with.
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

  // A tensor that each launch gives an address of. They come before all others.
  Tensor persistent(int type, const Sizes& sizes);
  // A tensor in the memory of `old`, a persistent one of these sizes: what `old` becomes. Each launch gives both the same address. Nodes
  // that read `old` come first, as Habana's bridge for PyTorch relies on for its operators in place
  // (duplicate_tensor_in_memory_section).
  Tensor replacing(const Tensor& old);
  // A tensor between two nodes.
  Tensor between(int type, const Sizes& sizes);
  void node(const std::string& guid, std::initializer_list<Tensor> inputs, std::initializer_list<Tensor> outputs,
            const void* params = nullptr, size_t params_size = 0);
  // A new tensor that the node writes; `guid` is without the type, which is that of the result.
  Tensor result(const std::string& guid, int type, const Sizes& sizes, std::initializer_list<Tensor> inputs,
                const void* params = nullptr, size_t params_size = 0);
  // The tensor in fp32: itself, or a conversion.
  Tensor in_f32(const Tensor& tensor);
  // The conversion of `from` to the type of `to`; of two tensors of one type, a copy.
  void convert(const Tensor& to, const Tensor& from);
  // A recipe's handle, which is the caller's.
  void* compile();

 private:
  Tensor add(int type, const Sizes& sizes);
  Tensor in_section(int type, const Sizes& sizes, void* section);

  const Api& api_;
  void* graph_ = nullptr;
  std::vector<void*> tensors_,
      sections_;  // persistent tensors come first, and the first of them have sections of their own
};

}  // namespace anyaccel::hpu
