// Implements what a decoder keeps for each sequence: its keys and values, and frequencies.
#include <algorithm>
#include <cstddef>
#include <vector>

#include "llm/generate/decoder_step.h"

namespace anyaccel::llm {

uint64_t DecoderStep::cache_bytes() const noexcept {
  uint64_t bytes = 0;
  for (const Tensor& tensor : key_cache_) bytes += 2 * tensor.nbytes();
  return bytes;
}

std::vector<Tensor> DecoderStep::caches() const {
  std::vector<Tensor> all = key_cache_;
  all.insert(all.end(), value_cache_.begin(), value_cache_.end());
  return all;
}

void DecoderStep::copy_sequence(int32_t from, int32_t to, int64_t begin, int64_t end) {
  products_.copy_sequence(from, to);
  if (dynamic_rope_) {
    longest_[static_cast<size_t>(to)] = longest_[static_cast<size_t>(from)];
    inv_freq_views_[static_cast<size_t>(to)].copy_from(inv_freq_views_[static_cast<size_t>(from)]);
  }
  if (begin >= end) return;
  for (const auto* caches : {&key_cache_, &value_cache_}) {
    for (const Tensor& cache : *caches) {
      const auto part = [&](int32_t sequence) { return cache.select(0, sequence).slice(1, begin, end); };
      ops_->copy(part(to), part(from));
    }
  }
}

void DecoderStep::set_sequence_length(int32_t sequence, int64_t length, bool restart) {
  if (!dynamic_rope_) return;
  // As in transformers, frequencies follow the longest length seen, starting from the trained one, and are recomputed
  // when a step makes the sequence longer. Keys already in the cache keep the rotation they were stored with.
  int64_t& longest = longest_[static_cast<size_t>(sequence)];
  const ModelConfig& config = model_->config();
  const bool two_lists = config.rope.type == RopeType::Longrope;  // one up to the trained length, one beyond
  const int64_t trained = two_lists ? config.rope.original_max_position_embeddings : config.max_position_embeddings;
  if (restart || longest == 0) longest = -1;
  const int64_t wanted = two_lists ? std::min(std::max(length, trained), trained + 1) : std::max(length, trained);
  if (wanted <= longest) return;
  longest = wanted;
  const std::vector<float> inv_freq = rope_inv_freq(config, wanted).inv_freq;
  inv_freq_views_[static_cast<size_t>(sequence)].copy_from(
      Tensor::from_host(inv_freq.data(), {static_cast<int64_t>(inv_freq.size())}, DType::F32));
}

}  // namespace anyaccel::llm
