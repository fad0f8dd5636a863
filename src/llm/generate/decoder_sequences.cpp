// Implements what a decoder keeps for each sequence: its keys and values, frequencies and adapter.
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

bool DecoderStep::set_adapters(std::span<const int32_t> adapters) {
  if (!adapter_columns_) return false;
  const bool before = adapting_;
  adapting_ = false;
  const int64_t rank = adapter_columns_.size(1);
  std::vector<float> columns(static_cast<size_t>(adapter_columns_.numel()), 0.0f);
  for (size_t i = 0; i < adapters.size(); ++i) {
    if (adapters[i] < 0) continue;
    adapting_ = true;
    const Slice& of = model_->adapter_ranks()[static_cast<size_t>(adapters[i])];
    const auto row = columns.begin() + static_cast<ptrdiff_t>(i) * rank;
    std::fill(row + of.begin, row + of.end, 1.0f);
  }
  adapter_columns_.copy_from(Tensor::from_host(columns.data(), adapter_columns_.shape(), DType::F32));
  return adapting_ != before;
}

// A row of the batch takes the columns of its own adapter; those of the others are multiplied by 0, so that one product
// serves rows with different adapters.
void DecoderStep::add_adapters(const Tensor& out, const Tensor& x, const LowRank& factors) {
  if (!adapting_ || !factors.a) return;
  const Views& views = views_[current_];
  ops_->linear(views.low_rank, x, factors.a);
  ops_->gated_activation(views.chosen_rank, views.adapter_columns, views.low_rank, ops::Activation::Relu);
  ops_->linear(out, views.chosen_rank, factors.b, {}, out);
}

void DecoderStep::copy_sequence(int32_t from, int32_t to, int64_t begin, int64_t end) {
  if (adapter_columns_) adapter_columns_.select(0, to).copy_from(adapter_columns_.select(0, from));
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
