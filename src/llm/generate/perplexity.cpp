// Computes the perplexity of a text over windows.
#include "anyaccel/llm/perplexity.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "anyaccel/error.h"
#include "llm/generate/log_probabilities.h"

namespace anyaccel::llm {
Perplexity perplexity(const std::shared_ptr<const Model>& model, std::span<const int32_t> ids,
                      const PerplexityOptions& options) {
  // The number of rows of logits that are computed and read back at once.
  constexpr int64_t rows_at_once = 128;
  const auto count = static_cast<int64_t>(ids.size());
  const int64_t vocabulary = model->config().vocab_size;
  const int64_t limit = model->config().max_position_embeddings;
  if (count < 2) {
    throw InvalidArgument("perplexity: the text has " + std::to_string(count) + " tokens; expected at least 2");
  }
  for (const int32_t id : ids) {
    if (id >= 0 && id < vocabulary) continue;
    throw InvalidArgument("perplexity: the text has the token " + std::to_string(id) + "; the model has " +
                          std::to_string(vocabulary));
  }
  const int64_t window = options.window != 0 ? options.window : std::min<int64_t>({2048, limit, count});
  if (window < 2 || window > limit) {
    throw InvalidArgument("perplexity: the window is " + std::to_string(window) + " tokens; expected 2 to " +
                          std::to_string(limit) + ", the model's limit");
  }
  const int64_t stride = options.stride != 0 ? options.stride : std::max<int64_t>(window / 2, 1);
  if (stride < 1 || stride >= window) {
    throw InvalidArgument("perplexity: the stride is " + std::to_string(stride) + " tokens; expected 1 to " +
                          std::to_string(window - 1) + ", below the window");
  }
  SessionOptions session_options;
  session_options.context = std::min(window, count);
  session_options.cache = options.cache;
  const std::array<int32_t, 1> adapter = {model->find_adapter(options.adapter)};
  Session session(model, session_options);
  session.set_adapters(adapter);
  double sum = 0;
  double squares = 0;
  int64_t predicted = 0;
  std::vector<float> logits;
  for (int64_t begin = 0, next = 1; next < count; begin += stride) {
    const int64_t end = std::min(begin + window, count);
    // Tokens up to `next` are scored already; the logits of a token predict the next one.
    for (int64_t first = begin; first < end - 1; first += rows_at_once) {
      const int64_t last = std::min(first + rows_at_once, end - 1);
      std::vector<int32_t> sequence(static_cast<size_t>(last - first), 0), positions(sequence.size());
      std::iota(positions.begin(), positions.end(), static_cast<int32_t>(first - begin));
      std::vector<int32_t> rows(static_cast<size_t>(std::max<int64_t>(last - std::max(first, next - 1), 0)));
      std::iota(rows.begin(), rows.end(), static_cast<int32_t>(std::max<int64_t>(next - 1 - first, 0)));
      const auto tokens = ids.subspan(static_cast<size_t>(first), sequence.size());
      const Tensor result = session.forward({tokens, sequence, positions}, rows);
      if (rows.empty()) continue;
      logits = result.to_vector<float>();
      for (size_t i = 0; i < rows.size(); ++i) {
        const auto token = ids[static_cast<size_t>(first + rows[i] + 1)];
        const double loss = -log_probability(
            {logits.data() + i * static_cast<size_t>(vocabulary), static_cast<size_t>(vocabulary)}, token);
        if (!std::isfinite(loss)) {
          throw NumericalError("perplexity: the logits before token " + std::to_string(first + rows[i] + 1) +
                               " are NaN or infinite");
        }
        sum += loss;
        squares += loss * loss;
        ++predicted;
      }
    }
    next = end;
    if (options.progress) options.progress(end, count);
  }
  const auto n = static_cast<double>(predicted);
  const double mean = sum / n;
  Perplexity result;
  result.value = std::exp(mean);
  result.bits = mean / std::log(2.0);
  result.predicted = predicted;
  result.mean_error = std::sqrt(std::max(squares / n - mean * mean, 0.0) / n);
  return result;
}

}  // namespace anyaccel::llm
