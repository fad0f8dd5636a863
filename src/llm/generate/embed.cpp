// Implements embed.h: runs a text in chunks and adds up the hidden states on the host.
#include "anyaccel/llm/embed.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string>

#include "anyaccel/error.h"
#include "anyaccel/llm/session.h"

namespace anyaccel::llm {

std::vector<float> embed(const std::shared_ptr<const Model>& model, std::span<const int32_t> ids, Pooling pooling,
                         std::string_view adapter) {
  constexpr int64_t tokens_at_once = 512;
  const auto count = static_cast<int64_t>(ids.size());
  const int64_t vocabulary = model->config().vocab_size, limit = model->config().max_position_embeddings;
  if (count < 1 || count > limit) {
    throw InvalidArgument("embed: the text has " + std::to_string(count) + " tokens; expected 1 to " +
                          std::to_string(limit) + ", the model's limit");
  }
  for (const int32_t id : ids) {
    if (id >= 0 && id < vocabulary) continue;
    throw InvalidArgument("embed: the text has the token " + std::to_string(id) + "; the model has " +
                          std::to_string(vocabulary));
  }
  SessionOptions options;
  options.context = count;
  options.chunk = tokens_at_once;
  const std::array<int32_t, 1> chosen = {model->find_adapter(adapter)};
  Session session(model, options);
  session.set_adapters(chosen);
  const auto width = static_cast<size_t>(model->config().hidden_size);
  std::vector<double> sum(width);
  for (int64_t begin = 0; begin < count; begin += tokens_at_once) {
    const int64_t end = std::min(begin + tokens_at_once, count);
    std::vector<int32_t> sequence(static_cast<size_t>(end - begin), 0), positions(sequence.size()),
        rows(sequence.size());
    std::iota(positions.begin(), positions.end(), static_cast<int32_t>(begin));
    std::iota(rows.begin(), rows.end(), 0);
    if (pooling == Pooling::Last) rows = end == count ? std::vector<int32_t>{rows.back()} : std::vector<int32_t>();
    const auto part = ids.subspan(static_cast<size_t>(begin), sequence.size());
    const std::vector<float> states = session.hidden_states({part, sequence, positions}, rows).to_vector<float>();
    for (size_t i = 0; i < states.size(); ++i) sum[i % width] += static_cast<double>(states[i]);
  }
  std::vector<float> result;
  for (const double value : sum) {
    result.push_back(static_cast<float>(pooling == Pooling::Mean ? value / static_cast<double>(count) : value));
    if (!std::isfinite(result.back())) throw NumericalError("embed: the model's hidden states are NaN or infinite");
  }
  return result;
}

}  // namespace anyaccel::llm
