// Implements importance.h: sums the squares of the inputs of products while perplexity() reads the text.
#include "llm/quantize/importance.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>

#include "anyaccel/error.h"
#include "anyaccel/llm/model.h"
#include "anyaccel/llm/perplexity.h"
#include "anyaccel/llm/tokenizer.h"
#include "anyaccel/ops/product_observer.h"
#include "llm/model/decoder_tensors.h"

namespace anyaccel::llm {
namespace {

struct Squares {
  std::vector<double> sums;  // of each column
  int64_t rows = 0;
};

// Tells the weights of products apart.
const void* key_of(const Tensor& w) { return w.is_packed() ? static_cast<const void*>(w.storage().get()) : w.data(); }

class InputSquares final : public ops::ProductObserver {
 public:
  void product(const Tensor& x, const Tensor& w) override {
    Squares& squares = of_weight_[key_of(w)];
    const auto columns = static_cast<size_t>(x.size(1));
    squares.sums.resize(columns);
    squares.rows += x.size(0);
    const std::vector<float> values = x.to_vector<float>();
    for (size_t i = 0; i < values.size(); ++i) {
      squares.sums[i % columns] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    }
  }

  const Squares* of(const Tensor& w) const {
    const auto found = of_weight_.find(key_of(w));
    return found == of_weight_.end() ? nullptr : &found->second;
  }

 private:
  std::map<const void*, Squares> of_weight_;
};

// Returns the means of the squares as factors whose mean is 1. A column that the text hardly used keeps a ten-thousandth of
// that, since other texts may use it.
std::vector<float> factors(const Squares& squares) {
  double mean = 0;
  for (const double sum : squares.sums) mean += sum;
  mean /= static_cast<double>(squares.sums.size());
  std::vector<float> result(squares.sums.size());
  std::ranges::transform(squares.sums, result.begin(),
                         [&](double sum) { return static_cast<float>(std::max(sum / mean, 1e-4)); });
  return result;
}

}  // namespace

Importance Importance::measure(const std::string& model_path, const std::string& text) {
  LoadOptions load;
  load.activations = Activations::F32;
  const std::shared_ptr<const Model> model = Model::load(model_path, load);
  const std::vector<int32_t> ids = Tokenizer::load(model_path)->encode(text);
  if (ids.size() < 2) {
    throw InvalidArgument("quantize: the text for the importance of weights has " + std::to_string(ids.size()) +
                          " tokens; expected at least 2, and better some thousands");
  }
  constexpr int64_t longest = 512;
  PerplexityOptions options;
  options.window = std::min({longest, model->config().max_position_embeddings, static_cast<int64_t>(ids.size())});
  Importance importance;
  InputSquares squares;
  perplexity(model, ids, options);
  ModelWeights weights = model->weights();
  for (const TensorSlot& slot : decoder_tensors(model->config())) {
    const bool is_output = slot.is_lm_head() || slot.is_embedding();
    if (slot.kind != TensorKind::Matrix) continue;
    const Tensor& weight = is_output && model->config().tie_word_embeddings ? weights.lm_head : slot.in(weights);
    if (!weight) continue;
    const Squares* found = squares.of(weight);
    if (found == nullptr) continue;
    const bool good = std::ranges::all_of(found->sums, [](double sum) { return std::isfinite(sum); }) &&
                      std::ranges::any_of(found->sums, [](double sum) { return sum > 0; });
    if (good) importance.of_matrix_.emplace(slot.name, factors(*found));
  }
  return importance;
}

Importance measured_importance(const std::string& model, const QuantizeOptions& options) {
  return options.importance_text.empty() ? Importance() : Importance::measure(model, options.importance_text);
}

std::span<const float> Importance::of(const std::string& name) const {
  const auto found = of_matrix_.find(name);
  return found == of_matrix_.end() ? std::span<const float>() : std::span<const float>(found->second);
}

}  // namespace anyaccel::llm
