// Computes attention over a cache with aclnn's products and softmax, in fp32.
//
// aclnn's own attention (FlashAttentionScore, IncreFlashAttention) takes queries and cache of one type and rounds
// weights to 16 bits, and its lengths are host values, which a recorded step cannot change. Here the positions stay on
// the device: slots that a token does not see are masked. Every sequence's part of the cache is combined with all
// tokens, and results for tokens of other sequences are zeroed before they are added, so that a step costs as many
// passes as it has sequences.
#include <algorithm>
#include <limits>

#include "accelerators/npu/op_rows.h"

namespace anyaccel::npu {
namespace {

constexpr int64_t scores_bytes = int64_t{32} << 20;  // at most, of the tokens that are computed together

bool has_attention(const Functions& f) {
  return f.matmul.is_there() && f.softmax.is_there() && f.scale.is_there() && f.copy.is_there() && f.cast.is_there() &&
         f.range.is_there() && f.greater.is_there() && f.fill_where.is_there() && f.replace_nan.is_there() &&
         f.sum.is_there() && f.add.is_there();
}

// Returns the attention window; 0 if there is none, or if it leaves every slot visible.
int64_t window_of(const aa_op_call& call) {
  const int64_t window = params<aa_attention_params>(call).window;
  return window >= call.tensors[2].shape[2] ? 0 : window;
}

bool supports_attention(const Functions& f, const aa_op_call& call) {
  const aa_tensor* t = call.tensors;
  for (const size_t i : {0, 1, 2, 3}) {
    if (!is_float(t[i])) return false;
  }
  for (const size_t i : {4, 5}) {
    if (t[i].dtype != AA_DTYPE_I32 || !is_viewable(t[i])) return false;
  }
  if (params<aa_attention_params>(call).softcap != 0) return false;
  if (window_of(call) > 0 && !(f.at_most.is_there() && f.either.is_there())) return false;
  return t[2].shape[0] == 1 || f.differs.is_there();
}

// The keys and values of one sequence, in fp32.
struct CachePart {
  Shaped keys;    // [heads, slots, width]
  Shaped values;  // likewise, with 0 where a number was not finite
  Shaped poison;  // [heads, 1, slots]: NaN for slots with a value that is not finite, else 0
};

// The weights of slots that are not seen are 0, but 0 times an infinity or NaN there would be NaN. Therefore values are
// made finite, and a slot with a value that was not finite gets NaN scores for the tokens that do see it.
CachePart part_of(const aa_tensor& keys, const aa_tensor& values, int64_t sequence, Work& work) {
  const int64_t heads = keys.shape[1], slots = keys.shape[2], width = keys.shape[3];
  const auto of_sequence = [&](const aa_tensor& cache) {
    const int64_t* const step = cache.strides;
    return work.in_f32(Shaped(cache).seen_as({heads, slots, width}, {step[1], step[2], step[3]}, sequence * step[0]));
  };
  CachePart part;
  part.keys = of_sequence(keys);
  const Shaped given = of_sequence(values);
  part.values = work.temporary(type_f32, given.shape);
  work.scale(given, 0, part.values);
  const Shaped sums = work.temporary(type_f32, {heads, slots});
  work.sum_last(part.values, sums);
  part.poison = sums.seen_as({heads, 1, slots});
  work.call(work.f.replace_nan, work.tensor(given), 0.0F, 0.0F, 0.0F, work.tensor(part.values));
  return part;
}

// Returns [tokens, slots]: true for the slots that a token does not see, leaving sequences aside.
Shaped unseen_slots(const Shaped& positions, int64_t slots, int64_t window, Work& work) {
  const int64_t tokens = positions.shape[0];
  const Shaped position = positions.seen_as({tokens, 1}, {positions.strides[0], 1});
  const Shaped numbers = work.temporary(type_i32, {1, slots});
  const Shaped unseen = work.temporary(type_bool, {tokens, slots});
  work.range(0, 1, numbers);
  work.call(work.f.greater, work.tensor(numbers), work.tensor(position), work.tensor(unseen));
  if (window == 0) return unseen;
  const Shaped passed = work.temporary(type_bool, {tokens, slots});
  work.range(window, 1, numbers);
  work.call(work.f.at_most, work.tensor(numbers), work.tensor(position), work.tensor(passed));
  work.call(work.f.either, work.tensor(unseen), work.tensor(passed), work.tensor(unseen));
  return unseen;
}

void attention(const aa_op_call& call, Work& work) {
  const aa_tensor* t = call.tensors;
  const int64_t tokens = t[1].shape[0], query_heads = t[1].shape[1], width = t[1].shape[2];
  const int64_t sequences = t[2].shape[0], heads = t[2].shape[1], slots = t[2].shape[2];
  const int64_t group = query_heads / heads;  // queries of one key/value head
  const int64_t together = std::clamp<int64_t>(scores_bytes / (query_heads * slots * 4), 1, tokens);
  // Views the queries or results of some tokens by key/value head: [heads, tokens, group, width].
  const auto by_head = [&](const Shaped& tensor, int64_t begin, int64_t count) {
    const std::vector<int64_t>& step = tensor.strides;
    return tensor.seen_as({heads, count, group, width}, {group * step[1], step[0], step[1], step[2]}, begin * step[0]);
  };
  const Shaped all_given = work.in_f32(Shaped(t[1]));
  const Shaped result = work.f32_for(Shaped(t[0]));
  const Shaped all_queries = work.temporary(type_f32, {heads * together * group * width});
  const Shaped all_scores = work.temporary(type_f32, {query_heads * together * slots});
  const Shaped all_weights = work.temporary(type_f32, {query_heads * together * slots});
  const Shaped all_results = work.temporary(type_f32, {heads * together * group * width});
  for (int64_t sequence = 0; sequence < sequences; ++sequence) {
    const CachePart part = part_of(t[2], t[3], sequence, work);
    for (int64_t begin = 0; begin < tokens; begin += together) {
      const int64_t count = std::min(together, tokens - begin);
      const Shaped queries = all_queries.seen_as({heads, count, group, width});
      const Shaped scores = all_scores.seen_as({heads, count * group, slots});
      const Shaped weights = all_weights.seen_as({heads, count * group, slots});
      const Shaped results = all_results.seen_as({heads, count * group, width});
      work.scale(by_head(all_given, begin, count), params<aa_attention_params>(call).scale, queries);
      work.product(
          queries.seen_as({heads, count * group, width}),
          part.keys.seen_as({heads, width, slots}, {part.keys.strides[0], part.keys.strides[2], part.keys.strides[1]}),
          scores);
      work.add(scores, part.poison, scores);
      const Shaped unseen = unseen_slots(Shaped(t[5]).rows(begin, count), slots, window_of(call), work);
      work.fill_where(scores.seen_as({heads, count, group, slots}), unseen.seen_as({1, count, 1, slots}),
                      -std::numeric_limits<float>::infinity());
      work.call(work.f.softmax, work.tensor(scores), int64_t{-1}, work.tensor(weights));
      work.product(weights, part.values, results);
      const Shaped own = results.seen_as({heads, count, group, width});
      if (sequences > 1) {
        const Shaped of_others = work.temporary(type_bool, {count});
        work.call(work.f.differs, work.tensor(Shaped(t[4]).rows(begin, count)), work.integer(sequence),
                  work.tensor(of_others));
        work.fill_where(own, of_others.seen_as({1, count, 1, 1}), 0);
      }
      const Shaped out = by_head(result, begin, count);
      sequence == 0 ? work.copy(out, own) : work.add(out, own, out);
    }
  }
  work.finish(Shaped(t[0]), result);
}

}  // namespace

std::span<const OpRow> attention_ops() {
  static constexpr OpRow rows[] = {{Op::Attention, has_attention, supports_attention, attention}};
  return rows;
}

}  // namespace anyaccel::npu
