// Reads a model's weights through and tells which are damaged: values that are no numbers, infinite, or too large for the
// dtype that the model is to be computed in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "anyaccel/dtype.h"

namespace anyaccel::llm {

struct TensorFinding {
  std::string tensor;  // its name in the file
  std::string file;    // path
  std::vector<int64_t> shape;
  DType dtype = DType::None;   // in the file
  DType wanted = DType::None;  // that the model holds it in; None: the model does not use the tensor
  uint64_t nan_count = 0;
  uint64_t infinite_count = 0;
  uint64_t overflow_count = 0;  // finite in the file, infinite in `wanted`
  double largest = 0;           // magnitude of the largest finite value
  bool all_zero = false;
  std::vector<int64_t> first;  // index of the first value that is counted; empty when none is

  // Whether the model computes with it and cannot make sense of it. What is only zero may be meant.
  bool damaged() const noexcept { return wanted != DType::None && nan_count + infinite_count + overflow_count > 0; }
  // One line: what, where, and for overflows what would hold the values.
  std::string to_string() const;
};

struct TensorCheck {
  // Tensors with values that are counted, and matrices and norms that are all zero. In the order of the files' names.
  std::vector<TensorFinding> findings;
  uint64_t tensors = 0;
  uint64_t bytes = 0;
  double seconds = 0;

  size_t damaged() const noexcept;
};

// Reads every floating-point tensor of the model in `directory` once, on the host and by several threads, without keeping
// any. `dtype` is that of LoadOptions: None is what Model::load would choose on the accelerator of get_accelerator().
// Blocks. Throws as Model::load does for a directory, configuration or file that could not be loaded.
TensorCheck check_tensors(const std::string& directory, DType dtype = DType::None);

}  // namespace anyaccel::llm
