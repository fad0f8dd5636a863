// Measures which columns of a model's matrices a text uses most.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "anyaccel/llm/quantize.h"

namespace anyaccel::llm {

// For each column of a matrix, the mean square of the inputs that it is multiplied with. If inputs of different columns are
// uncorrelated, the mean squared error of a product is the sum over columns of this times the squared error of the column's
// weights, so that weighted least squares make products most precise. llama.cpp calls the same an importance matrix.
class Importance {
 public:
  // All columns alike.
  Importance() = default;
  // Runs the model at `model` (a directory or a GGUF file) over the text, in windows of at most 512 tokens. Uses the current
  // accelerator. Blocks. InvalidArgument for a text of less than 2 tokens, and the errors of Model::load().
  static Importance measure(const std::string& model, const std::string& text);

  bool is_measured() const noexcept { return !of_matrix_.empty(); }
  // Returns factors above 0, 1 on average, for the columns of the matrix of this name (TensorSlot::name); empty if all are
  // alike, or if the text did not use the matrix, as with an expert that no token chose.
  std::span<const float> of(const std::string& name) const;

 private:
  std::map<std::string, std::vector<float>> of_matrix_;
};

// Returns what QuantizeOptions::importance_text asks for.
Importance measured_importance(const std::string& model, const QuantizeOptions& options);

}  // namespace anyaccel::llm
