// Reads all weights of a model and reports which tensors are damaged: values that are NaN, infinite, or too large for
// the dtype that the model is to be computed in.
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
  DType wanted = DType::None;  // in the model, once loaded; None: the model does not use the tensor
  uint64_t nan_count = 0;
  uint64_t infinite_count = 0;
  uint64_t overflow_count = 0;  // finite in the file, infinite in `wanted`
  double largest = 0;           // largest magnitude of a finite value
  bool all_zero = false;
  std::vector<int64_t> first;  // index of the first damaged value; empty if there is none

  // True if the model uses the tensor and its values are damaged. A tensor that is all zero may be intended.
  bool damaged() const noexcept { return wanted != DType::None && nan_count + infinite_count + overflow_count > 0; }
  // One line of text: the damage, its position, and for overflows a dtype that could represent the values.
  std::string to_string() const;
};

struct TensorCheck {
  // Tensors with damaged values, and matrices and norms that are all zero. In the order of the files' names.
  std::vector<TensorFinding> findings;
  uint64_t tensors = 0;
  uint64_t bytes = 0;
  double seconds = 0;

  size_t damaged() const noexcept;
};

// Reads every floating-point tensor of the model in `directory` once, on the host and by several threads, without
// keeping any. `dtype` is as in LoadOptions: None stands for the dtype that Model::load would choose on the accelerator
// of get_accelerator(). Blocks. Throws as Model::load does for a directory, configuration or file that could not be
// loaded.
TensorCheck check_tensors(const std::string& directory, DType dtype = DType::None);

}  // namespace anyaccel::llm
