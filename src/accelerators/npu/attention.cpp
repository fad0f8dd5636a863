// Computes attention over a cache: by aclnnFlashAttentionScore where that rounds no more than the op allows, else with
// aclnn's products and softmax, in fp32.
//
// The positions stay on the device: slots that a token does not see are masked. (aclnn's incremental attention has
// lengths that are host values, which a recorded step cannot change, and rounds weights to 16 bits.) Every sequence's
// part of the cache is combined with all tokens, and results for tokens of other sequences are zeroed before they are
// added, so that a step costs as many passes as it has sequences.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>

#include "accelerators/npu/op_rows.h"
#include "runtime/ops/op_params.h"

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
  const int64_t window = params_of<aa_attention_params>(call).window;
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
  if (params_of<aa_attention_params>(call).softcap != 0) return false;
  if (t[6].dtype != AA_DTYPE_NONE || t[7].dtype != AA_DTYPE_NONE) return false;  // slopes and sinks
  if (window_of(call) > 0 && !(f.at_most.is_there() && f.either.is_there())) return false;
  return t[2].shape[0] == 1 || f.differs.is_there();
}

// The keys and values of one sequence, in one type.
struct CachePart {
  Shaped keys;    // [heads, slots, width]
  Shaped values;  // likewise, with 0 where a number was not finite
  Shaped poison;  // [heads, slots]: NaN for slots with a value that is not finite, else 0
};

// The weights of slots that are not seen are 0, but 0 times an infinity or NaN there would be NaN. Therefore values are
// made finite, and a slot with a value that was not finite gets NaN scores for the tokens that do see it.
CachePart part_of(const aa_tensor& keys, const aa_tensor& values, int64_t sequence, bool in_f32, Work& work) {
  const int64_t heads = keys.shape[1], slots = keys.shape[2], width = keys.shape[3];
  const auto of_sequence = [&](const aa_tensor& cache) {
    const int64_t* const step = cache.strides;
    const Shaped part = Shaped(cache).seen_as({heads, slots, width}, {step[1], step[2], step[3]}, sequence * step[0]);
    return in_f32 ? work.in_f32(part) : part;
  };
  CachePart part;
  part.keys = of_sequence(keys);
  const Shaped given = of_sequence(values);
  part.values = work.temporary(given.type, given.shape);
  work.scale(given, 0, part.values);
  part.poison = work.temporary(given.type, {heads, slots});
  work.sum_last(part.values, part.poison);
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

// Views the queries or results of some tokens by head: [heads, tokens, queries of a head, width].
Shaped by_head(const Shaped& tensor, int64_t heads, int64_t begin, int64_t count) {
  const std::vector<int64_t>& step = tensor.strides;
  const int64_t group = tensor.shape[1] / heads;
  return tensor.seen_as({heads, count, group, tensor.shape[2]}, {group * step[1], step[0], step[1], step[2]},
                        begin * step[0]);
}

// Adds the results of some tokens for one sequence, viewed by head, to `out`, or replaces it by the first sequence's.
void add_results(int64_t sequence, const Shaped& results, const Shaped& out, Work& work) {
  sequence == 0 ? work.copy(out, results) : work.add(out, results, out);
}

// Zeroes the results of tokens of other sequences; `results` is [.., tokens, ..] without gaps, and `spread` its shape
// with 1 in all dimensions but that of the tokens.
void forget_others(const aa_op_call& call, int64_t sequence, int64_t begin, const Shaped& results,
                   std::vector<int64_t> spread, Work& work) {
  if (call.tensors[2].shape[0] == 1) return;
  const int64_t count = *std::max_element(spread.begin(), spread.end());
  const Shaped of_others = work.temporary(type_bool, {count});
  work.call(work.f.differs, work.tensor(Shaped(call.tensors[4]).rows(begin, count)), work.integer(sequence),
            work.tensor(of_others));
  work.fill_where(results, of_others.seen_as(std::move(spread)), 0);
}

// ---- by aclnn's attention --------------------------------------------------------------------------------------------

// Limits of the operator: heads, and slots or tokens. Its documents differ in how wide a head may be: this is the least.
constexpr int64_t most_flash_heads = 256, most_flash_length = int64_t{1} << 20, most_flash_width = 512,
                  flash_width_step = 16;
constexpr int64_t rounded_tokens = 32;  // from so many on, queries and weights may be rounded to 16 bits (abi/ops.h)
constexpr int64_t all_tokens = INT32_MAX;
constexpr int64_t mask_of_all = 1;  // sparseMode: every score has an element of the mask

// Set when the library has refused a call, which it does on processors that lack the operator.
std::atomic<bool> flash_was_refused{false};

bool fits_flash(const Functions& f, const aa_op_call& call) {
  if (!f.flash_attention.is_there() || !f.clamp.is_there() || flash_was_refused) return false;
  const aa_tensor* t = call.tensors;
  const int64_t tokens = t[1].shape[0], heads = t[1].shape[1], width = t[1].shape[2], slots = t[2].shape[2];
  if (t[2].dtype != t[3].dtype) return false;
  const bool exact = t[2].dtype == AA_DTYPE_F32;
  if (!exact && (t[0].dtype != t[2].dtype || tokens < rounded_tokens)) return false;
  return heads <= most_flash_heads && tokens <= most_flash_length && slots <= most_flash_length &&
         width % flash_width_step == 0 && width <= most_flash_width;
}

// Returns false, without having written results, if the library refuses the call.
bool flash_attention(const aa_op_call& call, Work& work) {
  const aa_tensor* t = call.tensors;
  const int64_t tokens = t[1].shape[0], query_heads = t[1].shape[1], width = t[1].shape[2];
  const int64_t sequences = t[2].shape[0], heads = t[2].shape[1], slots = t[2].shape[2];
  const int64_t together = std::clamp<int64_t>(scores_bytes / slots, 1, tokens);  // elements of a mask are bytes
  const int type = acl_type(t[2].dtype);
  Shaped queries(t[1]);
  if (queries.type != type) {
    queries = work.temporary(type, queries.shape);
    work.cast(queries, Shaped(t[1]));
  }
  const Shaped result = type == type_f32 ? work.f32_for(Shaped(t[0])) : Shaped(t[0]);
  const Shaped all_results = work.temporary(type, {query_heads * together * width});
  const Shaped highest = work.temporary(type_f32, {query_heads * together * 8});
  const Shaped sums = work.temporary(type_f32, {query_heads * together * 8});
  for (int64_t sequence = 0; sequence < sequences; ++sequence) {
    const CachePart part = part_of(t[2], t[3], sequence, false, work);
    const Shaped keys = work.temporary(type, {heads, slots, width});
    work.add(part.keys, part.poison.seen_as({heads, slots, 1}), keys);
    for (int64_t begin = 0; begin < tokens; begin += together) {
      const int64_t count = std::min(together, tokens - begin);
      // A position out of range must not hide every slot, which the operator's documents leave open.
      const Shaped positions = work.temporary(type_i32, {count});
      work.call(work.f.clamp, work.tensor(Shaped(t[5]).rows(begin, count)), work.integer(0), work.integer(slots - 1),
                work.tensor(positions));
      const Shaped unseen = unseen_slots(positions, slots, window_of(call), work);
      const Shaped results = all_results.seen_as({1, query_heads, count, width});
      const std::vector<int64_t>& step = queries.strides;
      const Shaped some = queries.seen_as({1, query_heads, count, width}, {tokens * step[0], step[1], step[0], step[2]},
                                          begin * step[0]);
      char layout[] = "BNSD";
      const bool taken = work.offer(
          work.f.flash_attention, work.tensor(some), work.tensor(keys.seen_as({1, heads, slots, width})),
          work.tensor(part.values.seen_as({1, heads, slots, width})), nullptr, nullptr, nullptr, work.tensor(unseen),
          nullptr, static_cast<double>(params_of<aa_attention_params>(call).scale), 1.0, all_tokens, all_tokens,
          query_heads, layout, int64_t{0}, mask_of_all, work.tensor(highest.seen_as({1, query_heads, count, 8})),
          work.tensor(sums.seen_as({1, query_heads, count, 8})), nullptr, work.tensor(results));
      if (!taken) {
        flash_was_refused = true;
        return false;
      }
      forget_others(call, sequence, begin, results, {1, 1, count, 1}, work);
      const int64_t group = query_heads / heads;
      add_results(sequence,
                  results.seen_as({heads, count, group, width}, {group * count * width, width, count * width, 1}),
                  by_head(result, heads, begin, count), work);
    }
  }
  if (type == type_f32) work.finish(Shaped(t[0]), result);
  return true;
}

// ---- by products -----------------------------------------------------------------------------------------------------

void attention(const aa_op_call& call, Work& work) {
  if (fits_flash(work.f, call) && flash_attention(call, work)) return;
  const aa_tensor* t = call.tensors;
  const int64_t tokens = t[1].shape[0], query_heads = t[1].shape[1], width = t[1].shape[2];
  const int64_t sequences = t[2].shape[0], heads = t[2].shape[1], slots = t[2].shape[2];
  const int64_t group = query_heads / heads;  // queries of one key/value head
  const int64_t together = std::clamp<int64_t>(scores_bytes / (query_heads * slots * 4), 1, tokens);
  const Shaped all_given = work.in_f32(Shaped(t[1]));
  const Shaped result = work.f32_for(Shaped(t[0]));
  const Shaped all_queries = work.temporary(type_f32, {heads * together * group * width});
  const Shaped all_scores = work.temporary(type_f32, {query_heads * together * slots});
  const Shaped all_weights = work.temporary(type_f32, {query_heads * together * slots});
  const Shaped all_results = work.temporary(type_f32, {heads * together * group * width});
  for (int64_t sequence = 0; sequence < sequences; ++sequence) {
    const CachePart part = part_of(t[2], t[3], sequence, true, work);
    for (int64_t begin = 0; begin < tokens; begin += together) {
      const int64_t count = std::min(together, tokens - begin);
      const Shaped queries = all_queries.seen_as({heads, count, group, width});
      const Shaped scores = all_scores.seen_as({heads, count * group, slots});
      const Shaped weights = all_weights.seen_as({heads, count * group, slots});
      const Shaped results = all_results.seen_as({heads, count * group, width});
      work.scale(by_head(all_given, heads, begin, count), params_of<aa_attention_params>(call).scale, queries);
      work.product(
          queries.seen_as({heads, count * group, width}),
          part.keys.seen_as({heads, width, slots}, {part.keys.strides[0], part.keys.strides[2], part.keys.strides[1]}),
          scores);
      work.add(scores, part.poison.seen_as({heads, 1, slots}), scores);
      const Shaped unseen = unseen_slots(Shaped(t[5]).rows(begin, count), slots, window_of(call), work);
      work.fill_where(scores.seen_as({heads, count, group, slots}), unseen.seen_as({1, count, 1, slots}),
                      -std::numeric_limits<float>::infinity());
      work.call(work.f.softmax, work.tensor(scores), int64_t{-1}, work.tensor(weights));
      work.product(weights, part.values, results);
      const Shaped own = results.seen_as({heads, count, group, width});
      forget_others(call, sequence, begin, own, {1, count, 1, 1}, work);
      add_results(sequence, own, by_head(result, heads, begin, count), work);
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
