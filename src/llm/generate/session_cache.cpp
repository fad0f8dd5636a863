// Copies keys and values of a session's sequences: to the host and back, and between sequences.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "anyaccel/error.h"
#include "llm/generate/session_impl.h"

namespace anyaccel::llm {

void Session::Impl::each_cache(int32_t sequence, int64_t tokens, const std::function<void(const Tensor&)>& use) const {
  if (model->group()) {
    throw NotImplementedError("prompt cache: the model is split over ranks; use one rank, or no prompt cache");
  }
  if (decoder.dynamic_rope()) {
    throw NotImplementedError(
        "prompt cache: the positions of this model depend on the length of the text (rope type dynamic or longrope), "
        "so that no keys can be kept; use no prompt cache");
  }
  if (sequence < 0 || sequence >= options.sequences || tokens < 0 || tokens > options.context) {
    throw InvalidArgument("prompt cache: " + std::to_string(tokens) + " tokens of sequence " +
                          std::to_string(sequence) + "; this session has " + std::to_string(options.sequences) +
                          " sequences of " + std::to_string(options.context) + " tokens");
  }
  for (const Tensor& cache : decoder.caches()) use(cache.select(0, sequence).slice(1, 0, tokens));
}

uint64_t Session::token_cache_bytes() const {
  uint64_t bytes = 0;
  impl_->each_cache(0, 1, [&](const Tensor& part) { bytes += part.nbytes(); });
  return bytes;
}

std::string Session::cache_contents(int32_t sequence, int64_t tokens) {
  const Impl::Turn turn(*impl_);
  std::string contents;
  impl_->each_cache(sequence, tokens, [&](const Tensor& part) {
    const Tensor host = part.to(Device{}).contiguous();
    contents.append(static_cast<const char*>(host.data()), host.nbytes());
  });
  return contents;
}

void Session::restore_cache(int32_t sequence, int64_t used, std::string_view contents, int64_t tokens) {
  const uint64_t expected = token_cache_bytes() * static_cast<uint64_t>(tokens);
  if (used < 1 || used > tokens || contents.size() != expected) {
    throw InvalidArgument("prompt cache: " + std::to_string(contents.size()) + " bytes of keys and values for " +
                          std::to_string(tokens) + " tokens; expected " + std::to_string(expected));
  }
  const Impl::Turn turn(*impl_);
  impl_->each_cache(sequence, used, [&](const Tensor& part) {
    const Tensor host = Tensor::from_host(contents.data(), {part.size(0), tokens, part.size(2)}, part.dtype());
    contents.remove_prefix(host.nbytes());
    part.copy_from(host.slice(1, 0, used).contiguous());
  });
  impl_->stream.synchronize();
}

void Session::Impl::copy_sequence(int32_t from, int32_t to, int64_t length) {
  const auto count = static_cast<size_t>(options.sequences);
  common.resize(count * count, 0);
  const auto shared = [&](int32_t a, int32_t b) -> int64_t& {
    return common[static_cast<size_t>(a) * count + static_cast<size_t>(b)];
  };
  decoder.copy_sequence(from, to, std::min(shared(from, to), length), length);
  for (int32_t other = 0; other < static_cast<int32_t>(count); ++other) {
    const int64_t same = other == from ? length : std::min(length, shared(from, other));
    shared(to, other) = shared(other, to) = same;
  }
}

void Session::continue_as(std::span<const int32_t> parents, std::span<const int32_t> tokens) {
  Impl& impl = *impl_;
  const size_t rows = parents.size();
  const auto sequences = static_cast<size_t>(impl.options.sequences);
  if (tokens.size() != rows || rows > sequences) {
    throw InvalidArgument("continue_as: " + std::to_string(rows) + " parents and " + std::to_string(tokens.size()) +
                          " tokens; expected as many of each, at most " + std::to_string(sequences));
  }
  if (impl.rules || impl.counts_tokens() || impl.sampling.repetition_penalty != 1.0f) {
    throw InvalidArgument("continue_as: the sequences have rules or penalties of their own; start them without");
  }
  const int64_t vocabulary = impl.model->config().vocab_size;
  for (size_t i = 0; i < rows; ++i) {
    if (parents[i] >= 0 && static_cast<size_t>(parents[i]) < impl.active.size() && tokens[i] >= 0 &&
        tokens[i] < vocabulary) {
      continue;
    }
    throw InvalidArgument("continue_as: row " + std::to_string(i) + " continues row " + std::to_string(parents[i]) +
                          " with token " + std::to_string(tokens[i]) + "; there are " +
                          std::to_string(impl.active.size()) + " rows and " + std::to_string(vocabulary) + " tokens");
  }
  const Impl::Turn turn(impl);
  impl.prompt_length.resize(sequences, 0);
  if (impl.may_renew_cache()) impl.history.resize(sequences);
  std::vector<bool> used(sequences, false);
  std::vector<int32_t> active(rows, -1);
  std::vector<int64_t> position(rows);
  for (size_t i = 0; i < rows; ++i) {
    const auto parent = static_cast<size_t>(parents[i]);
    const int32_t sequence = impl.active[parent];
    position[i] = impl.position[parent];
    if (used[static_cast<size_t>(sequence)]) continue;
    used[static_cast<size_t>(sequence)] = true;
    active[i] = sequence;
  }
  for (size_t i = 0; i < rows; ++i) {
    if (active[i] >= 0) continue;
    const int32_t from = impl.active[static_cast<size_t>(parents[i])];
    // The free sequence that differs least.
    int32_t to = -1;
    int64_t most = -1;
    for (size_t s = 0; s < sequences; ++s) {
      const int64_t same = impl.common.empty() ? 0 : impl.common[static_cast<size_t>(from) * sequences + s];
      if (used[s] || same <= most) continue;
      most = same;
      to = static_cast<int32_t>(s);
    }
    impl.copy_sequence(from, to, position[i]);
    impl.prompt_length[static_cast<size_t>(to)] = impl.prompt_length[static_cast<size_t>(from)];
    if (impl.may_renew_cache()) impl.history[static_cast<size_t>(to)] = impl.history[static_cast<size_t>(from)];
    used[static_cast<size_t>(to)] = true;
    active[i] = to;
  }
  impl.active = std::move(active);
  impl.position = std::move(position);
  impl.host_ids_fresh = false;
  if (rows == 0) return;
  // Captured steps contain the sequence of each row if frequencies depend on its length.
  if (impl.decoder.dynamic_rope()) impl.graphs.clear();
  upload(impl.decode_ids.slice(0, 0, static_cast<int64_t>(rows)), std::vector<int32_t>(tokens.begin(), tokens.end()));
  impl.write_active(/*drawn=*/true);
}

}  // namespace anyaccel::llm
