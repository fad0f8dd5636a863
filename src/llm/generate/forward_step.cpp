// Implements a session's forward steps: checks a ragged batch of tokens and runs it through the model in chunks.
#include <algorithm>
#include <limits>
#include <string>

#include "anyaccel/error.h"
#include "llm/generate/session_impl.h"

namespace anyaccel::llm {

void Session::Impl::check_batch(const TokenBatch& tokens, std::span<const int32_t> wanted) const {
  const size_t count = tokens.ids.size();
  if (count == 0 || tokens.sequence.size() != count || tokens.positions.size() != count) {
    throw InvalidArgument("forward: " + std::to_string(count) + " ids, " + std::to_string(tokens.sequence.size()) +
                          " sequence numbers and " + std::to_string(tokens.positions.size()) +
                          " positions; expected as many of each, and at least one");
  }
  const auto check_range = [](std::span<const int32_t> values, int64_t end, const char* what) {
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] >= 0 && values[i] < end) continue;
      throw InvalidArgument(std::string("forward: ") + what + " " + std::to_string(values[i]) + " of token " +
                            std::to_string(i) + " is out of range; expected 0 to " + std::to_string(end - 1));
    }
  };
  check_range(tokens.ids, model->config().vocab_size, "id");
  check_range(tokens.sequence, options.sequences, "sequence");
  check_range(tokens.positions, options.context, "position");
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] >= (i == 0 ? 0 : wanted[i - 1] + 1) && wanted[i] < static_cast<int64_t>(count)) continue;
    throw InvalidArgument("forward: row " + std::to_string(wanted[i]) + " is out of range or out of order; expected " +
                          "rising rows from 0 to " + std::to_string(count - 1));
  }
}

void Session::Impl::renew_frequencies(const TokenBatch& tokens) {
  if (!decoder.dynamic_rope()) return;
  // A prompt uses the frequencies of its full length, however it is split into chunks.
  std::vector<int64_t> length(static_cast<size_t>(options.sequences), 0);
  std::vector<bool> restart(length.size(), false);
  for (size_t i = 0; i < tokens.ids.size(); ++i) {
    const auto index = static_cast<size_t>(tokens.sequence[i]);
    length[index] = std::max<int64_t>(length[index], tokens.positions[i] + 1);
    if (tokens.positions[i] == 0) restart[index] = true;
  }
  for (size_t i = 0; i < length.size(); ++i) {
    if (length[i] > 0) decoder.set_sequence_length(static_cast<int32_t>(i), length[i], restart[i]);
  }
}

void Session::Impl::run(const TokenBatch& tokens, std::span<const int32_t> wanted, const Tensor& result,
                        Output output) {
  const auto compute = [&](const Tensor& out, const Tensor& chosen) {
    output == Output::Logits ? decoder.logits(out, chosen) : decoder.hidden_states(out, chosen);
  };
  renew_frequencies(tokens);
  std::ranges::fill(common, 0);
  const size_t total = tokens.ids.size();
  const auto chunk = static_cast<size_t>(std::min(options.chunk, ids.numel()));
  size_t first_row = 0;
  for (size_t begin = 0; begin < total; begin += chunk) {
    const size_t end = std::min(total, begin + chunk);
    const auto count = static_cast<int64_t>(end - begin);
    const StepInput input = {ids.slice(0, 0, count), sequence.slice(0, 0, count), positions.slice(0, 0, count)};
    const auto part = [&](std::span<const int32_t> values) {
      return std::vector<int32_t>(values.begin() + static_cast<ptrdiff_t>(begin),
                                  values.begin() + static_cast<ptrdiff_t>(end));
    };
    upload(input.ids, part(tokens.ids));
    upload(input.sequence, part(tokens.sequence));
    upload(input.positions, part(tokens.positions));

    std::vector<SequenceRange> ranges;
    if (decoder.dynamic_rope()) {
      for (size_t i = begin; i < end; ++i) {
        const auto at = static_cast<int64_t>(i - begin);
        if (ranges.empty() || ranges.back().sequence != tokens.sequence[i])
          ranges.push_back({at, at, tokens.sequence[i]});
        ranges.back().end = at + 1;
      }
    }
    decoder.forward(input, ranges);

    size_t last_row = first_row;
    while (last_row < wanted.size() && static_cast<size_t>(wanted[last_row]) < end) ++last_row;
    if (last_row == first_row) continue;
    const auto row_count = static_cast<int64_t>(last_row - first_row);
    const Tensor out = result.slice(0, static_cast<int64_t>(first_row), static_cast<int64_t>(last_row));
    if (row_count == count) {
      compute(out, {});
    } else {
      std::vector<int32_t> chunk_rows;
      for (size_t i = first_row; i < last_row; ++i) chunk_rows.push_back(wanted[i] - static_cast<int32_t>(begin));
      const Tensor device_rows = rows.slice(0, 0, row_count);
      upload(device_rows, chunk_rows);
      compute(out, device_rows);
    }
    first_row = last_row;
  }
}

Tensor Session::Impl::forward(const TokenBatch& tokens, std::span<const int32_t> wanted, Output output, Tensor& result,
                              int64_t width) {
  check_batch(tokens, wanted);
  model->check_files();
  model->use_large_pages();
  Turn turn(*this);
  turn.follow_caller();
  const auto count = static_cast<int64_t>(wanted.size());
  if (!result || result.size(0) < count) {
    result = Tensor();  // free it first
    result = summed_tensor({std::max<int64_t>(count, 1), width}, DType::F32);
  }
  run(tokens, wanted, result, output);
  turn.lead_caller(result);
  return result.slice(0, 0, count);
}

Tensor Session::forward(const TokenBatch& tokens, std::span<const int32_t> rows) {
  const RangeScope range(model().accelerator(), "forward");
  return impl_->forward(tokens, rows, Impl::Output::Logits, impl_->logits, model().config().vocab_size);
}

Tensor Session::hidden_states(const TokenBatch& tokens, std::span<const int32_t> rows) {
  const RangeScope range(model().accelerator(), "hidden states");
  return impl_->forward(tokens, rows, Impl::Output::HiddenStates, impl_->hidden, model().config().hidden_size);
}

}  // namespace anyaccel::llm
