// See attention_plan.h.
#include "accelerators/cpu/kernels/attention_plan.h"

#include <algorithm>
#include <new>

#include "accelerators/cpu/kernels/attention_token.h"
#include "accelerators/cpu/kernels/checks.h"
#include "accelerators/cpu/kernels/scratch.h"

namespace anyaccel::cpu {
namespace {

// The parts into which a context is cut, and the slots of a part: longer parts are read faster, but more tiles keep more
// threads busy. The parts do not depend on the number of key/value heads, so that results of a head are the same wherever
// the heads are shared out among ranks.
constexpr int64_t kSplits = 8;
constexpr int64_t kFewestSplitSlots = 256, kMostSplitSlots = 2048;

}  // namespace

// The tokens of a tile, and the slots that they see between them.
struct AttentionPlan::Span {
  int64_t token, tokens, sequence;
  SlotRange slots;
  bool may_split;
};

AttentionPlan::AttentionPlan(const AttentionCall& call, bool by_row, int64_t tile_rows)
    : call_(call), by_row_(by_row), tokens_per_tile_(std::max<int64_t>(1, tile_rows / call.group)) {
  const int64_t count = call.q->shape[0];
  spans_ = scratch<Span>(Scratch::Spans, static_cast<size_t>(count));
  int64_t span_count = 0;
  for (int64_t first = 0, end = 0; first < count; first = end) {
    const int64_t sequence = index_at(*call.sequence, first);
    for (end = first + 1; end < count && index_at(*call.sequence, end) == sequence;) ++end;
    span_count = cut_run(first, end, span_count);
  }
  // Twice over the same spans: first to count, then to fill in.
  for (const bool fill : {false, true}) {
    if (fill) {
      tiles = scratch<AttentionTile>(Scratch::Tasks, static_cast<size_t>(tile_count));
      merges = scratch<Merge>(Scratch::Candidates, static_cast<size_t>(merge_count));
      partials_ = scratch<float>(Scratch::Partials, static_cast<size_t>(partial_floats_));
      tile_count = merge_count = partial_floats_ = 0;
    }
    // The last tokens of a prompt see the most slots: begin with them, so that the threads end together.
    for (int64_t span = span_count - 1; span >= 0; --span) {
      for (int64_t head = 0; head < call.k->shape[1]; ++head) add(spans_[span], head, fill);
    }
  }
}

// Cuts the tokens [first, end), which are a run, into spans from number `span_count` on. Returns the number of spans.
int64_t AttentionPlan::cut_run(int64_t first, int64_t end, int64_t span_count) {
  const int64_t spans_before = span_count;
  for (int64_t token = first; token < end;) {
    SlotRange slots = call_.seen_by(token);
    int64_t fewest = slots.end - slots.begin, tokens = 1;
    for (; tokens < tokens_per_tile_ && token + tokens < end; ++tokens) {
      const SlotRange own = call_.seen_by(token + tokens);
      const SlotRange both{std::min(slots.begin, own.begin), std::max(slots.end, own.end)};
      // Positions that follow each other, or are equal, always pass.
      fewest = std::min(fewest, own.end - own.begin);
      if (both.end - both.begin > 2 * fewest + tokens_per_tile_) break;
      slots = both;
    }
    spans_[span_count++] = {token, tokens, index_at(*call_.sequence, token), slots, false};
    token += tokens;
  }
  spans_[spans_before].may_split = span_count == spans_before + 1 && !by_row_;
  return span_count;
}

void AttentionPlan::add(const Span& span, int64_t head, bool fill) {
  const int64_t begin = by_row_ ? span.slots.begin - span.slots.begin % kAttentionBlock : span.slots.begin;
  const int64_t end = span.slots.end;
  const int64_t part = std::clamp((end - begin) / kSplits, kFewestSplitSlots, kMostSplitSlots);
  const int64_t splits = span.may_split ? (end - begin + part - 1) / part : 1;
  const int64_t fewest = (end - begin + splits - 1) / splits;
  const bool by_token = !by_row_ && span.tokens == 1 && takes_attention_token(call_);
  const int64_t slots =
      by_token ? attention_token_part(fewest) : (fewest + kAttentionBlock - 1) / kAttentionBlock * kAttentionBlock;
  const int64_t room = span.tokens * call_.group * partial_row_floats(call_.head_size);
  int64_t parts = 0;
  float* partial = nullptr;
  if (fill && splits > 1) partial = partials_ + partial_floats_;
  for (int64_t from = begin; from < end; from += slots, ++parts) {
    if (!fill) continue;
    const int64_t to = std::min(end, from + slots);
    tiles[tile_count + parts] = {span.token,
                                 span.tokens,
                                 span.sequence,
                                 head,
                                 from,
                                 to,
                                 partial ? partial + parts * room : nullptr,
                                 splits > 1 ? static_cast<int32_t>(merge_count) : -1};
    work += (to - from) * call_.head_size * (span.tokens * call_.group + 4) / 8;
  }
  if (splits > 1) {
    if (fill) {
      Merge* merge = new (&merges[merge_count]) Merge{tiles[tile_count], parts, {}};
      merge->missing.store(parts, std::memory_order_relaxed);
    }
    ++merge_count;
    partial_floats_ += parts * room;
  }
  tile_count += parts;
}

}  // namespace anyaccel::cpu
