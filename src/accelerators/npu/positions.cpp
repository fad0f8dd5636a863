// Implements embeddings, rotary embeddings, writes to the cache, and counters with aclnn.
#include <algorithm>
#include <climits>
#include <optional>

#include "accelerators/npu/op_rows.h"
#include "runtime/ops/op_params.h"

namespace anyaccel::npu {
namespace {

// ---- embedding -------------------------------------------------------------------------------------------------------

bool has_embedding(const Functions& f) { return f.embedding.is_there() && f.clamp.is_there() && f.cast.is_there(); }

bool supports_embedding(const Functions&, const aa_op_call& call) {
  const int32_t ids = call.tensors[2].dtype;
  return is_float(call.tensors[0]) && is_float(call.tensors[1]) && (ids == AA_DTYPE_I32 || ids == AA_DTYPE_I64) &&
         is_viewable(call.tensors[2]);
}

// The operator's behavior for an id out of range is not documented: such ids are replaced by that of the first or last
// row.
void embedding(const aa_op_call& call, Work& work) {
  const Shaped out(call.tensors[0]), table(call.tensors[1]), ids(call.tensors[2]);
  const Shaped rows = work.temporary(ids.type, ids.shape);
  work.call(work.f.clamp, work.tensor(ids), work.integer(0), work.integer(table.shape[0] - 1), work.tensor(rows));
  const Shaped found = out.type == table.type ? out : work.temporary(table.type, out.shape);
  work.call(work.f.embedding, work.tensor(table), work.tensor(rows), work.tensor(found));
  if (out.type != table.type) work.cast(out, found);
}

// ---- rotary embeddings -----------------------------------------------------------------------------------------------

// The operator's limits: it rotates fewer than 896 elements, and takes fewer than 1000 heads.
constexpr int64_t most_turned = 894, most_heads = 999;

bool supports_rope(const Functions&, const aa_op_call& call) {
  const aa_tensor* t = call.tensors;
  for (const size_t i : {0, 1, 2, 3}) {
    if (is_there(t[i]) && (t[i].dtype != AA_DTYPE_F32 || !is_viewable(t[i]))) return false;
  }
  if (is_there(t[1]) && t[1].shape[1] > most_heads) return false;
  return 2 * t[2].shape[1] <= most_turned && t[0].shape[1] <= most_heads;
}

// The operator needs an angle for each element; both elements of a pair have the same.
Shaped angles_of_elements(const Shaped& angles, bool interleaved, Work& work) {
  const int64_t tokens = angles.shape[0], pairs = angles.shape[1];
  const Shaped all = work.temporary(type_f32, {tokens, 2 * pairs});
  const int64_t step = interleaved ? 2 : 1;
  for (const int64_t from : {int64_t{0}, interleaved ? 1 : pairs}) {
    work.copy(all.seen_as({tokens, pairs}, {2 * pairs, step}, from), angles);
  }
  return all.seen_as({1, tokens, 1, 2 * pairs});
}

void rope(const aa_op_call& call, Work& work) {
  const aa_tensor* t = call.tensors;
  const int64_t tokens = t[2].shape[0], turned = 2 * t[2].shape[1];
  const bool interleaved = params_of<aa_rope_params>(call).interleaved != 0;
  const Shaped cosines = angles_of_elements(Shaped(t[2]), interleaved, work);
  const Shaped sines = angles_of_elements(Shaped(t[3]), interleaved, work);
  for (const aa_tensor* heads : {&t[0], &t[1]}) {
    if (!is_there(*heads)) continue;
    const int64_t count = heads->shape[1];
    const int64_t* const step = heads->strides;
    const Shaped x = Shaped(*heads).seen_as({1, tokens, count, turned}, {tokens * step[0], step[0], step[1], step[2]});
    const Shaped out = work.temporary(type_f32, {1, tokens, count, turned});
    work.call(work.f.rotate, work.tensor(x), work.tensor(cosines), work.tensor(sines), int64_t{interleaved ? 1 : 0},
              work.tensor(out));
    work.copy(x, out);
  }
}

// ---- writes to the cache ---------------------------------------------------------------------------------------------

// If several rows have the same index, the operator does not promise which one remains, and here it must be the last.
// Therefore, within a part of the call, every token writes the row of the last token with its slot; parts run one after
// the other.
constexpr int64_t part_tokens = 256;

bool has_cache_write(const Functions& f) {
  return f.put.is_there() && f.range.is_there() && f.scale.is_there() && f.add.is_there() && f.cast.is_there() &&
         f.clamp.is_there() && f.copy.is_there();
}

// Returns whether the cache is a matrix with a row for each slot of each head and sequence: its rows have equal
// distances.
bool has_rows(const aa_tensor& cache) {
  const int64_t* const step = cache.strides;
  const int64_t* const size = cache.shape;
  return (size[3] == 1 || step[3] == 1) && step[2] >= size[3] && (size[1] == 1 || step[1] == size[2] * step[2]) &&
         (size[0] == 1 || step[0] == size[1] * size[2] * step[2]);
}

bool supports_cache_write(const Functions& f, const aa_op_call& call) {
  const aa_tensor* t = call.tensors;
  const bool several = t[2].shape[0] > 1;
  if (several && !(f.equal.is_there() && f.multiply.is_there() && f.maximum.is_there() && f.select.is_there())) {
    return false;
  }
  for (const size_t i : {0, 1}) {
    if (!is_float(t[i]) || !is_float(t[i + 2]) || !has_rows(t[i]) || elements(t[i]) / t[i].shape[3] > INT32_MAX)
      return false;
  }
  return t[4].dtype == AA_DTYPE_I32 && is_viewable(t[4]) && t[5].dtype == AA_DTYPE_I32 && is_viewable(t[5]);
}

// Which tokens of a part write to the same slots. Every part of a call uses it again, in the stream's order: the memory of a
// call would grow with the square of a part for each of them.
struct Pairs {
  Pairs(int64_t most_tokens, Work& work)
      : same(work.temporary(type_bool, {most_tokens, most_tokens})),
        chosen(work.temporary(type_f32, {most_tokens, most_tokens})) {}
  Shaped same, chosen;
};

// Returns, for each token, the last token that writes to the same slot: [tokens], int32.
Shaped last_of_slot(const Shaped& slots, const Pairs& pairs, Work& work) {
  const int64_t tokens = slots.shape[0];
  const Shaped same(pairs.same.data, type_bool, {tokens, tokens});
  work.call(work.f.equal, work.tensor(slots.seen_as({tokens, 1})), work.tensor(slots.seen_as({1, tokens})),
            work.tensor(same));
  const Shaped numbers = work.temporary(type_f32, {1, tokens});
  work.range(0, 1, numbers);
  const Shaped chosen(pairs.chosen.data, type_f32, {tokens, tokens});
  work.cast(chosen, same);
  work.call(work.f.multiply, work.tensor(chosen), work.tensor(numbers), work.tensor(chosen));
  const Shaped last = work.temporary(type_f32, {tokens}), result = work.temporary(type_i32, {tokens});
  work.maximum_last(chosen, last);
  work.cast(result, last);
  return result;
}

void cache_write(const aa_op_call& call, Work& work) {
  const aa_tensor* t = call.tensors;
  const int64_t tokens = t[4].shape[0];
  const int64_t sequences = t[0].shape[0], heads = t[0].shape[1], slots = t[0].shape[2];
  // The first row of each head within a sequence's part of the cache; the cache's rows are [sequence][head][slot].
  const Shaped heads_at = work.temporary(type_i32, {1, heads});
  work.range(0, slots, heads_at);
  std::optional<Pairs> pairs;
  if (tokens > 1) pairs.emplace(std::min(part_tokens, tokens), work);
  for (int64_t begin = 0; begin < tokens; begin += part_tokens) {
    const int64_t count = std::min(part_tokens, tokens - begin);
    // An index out of range is replaced by the nearest valid slot: the operator must never see it.
    const auto within = [&](const aa_tensor& numbers, int64_t size) {
      const Shaped safe = work.temporary(type_i32, {count});
      work.call(work.f.clamp, work.tensor(Shaped(numbers).rows(begin, count)), work.integer(0), work.integer(size - 1),
                work.tensor(safe));
      return safe;
    };
    const Shaped sequence = within(t[4], sequences), position = within(t[5], slots);
    const Shaped first = work.temporary(type_i32, {count});
    work.call(work.f.scale, work.tensor(sequence), work.integer(heads * slots), work.tensor(first));
    work.add(first, position, first);
    const Shaped rows = work.temporary(type_i32, {count, heads});
    work.add(first.seen_as({count, 1}), heads_at, rows);
    const Shaped last = count > 1 ? last_of_slot(first, *pairs, work) : Shaped();
    for (const size_t i : {0, 1}) {
      const Shaped cache(t[i]);
      const int64_t width = t[i].shape[3];
      const Shaped given = Shaped(t[i + 2]).rows(begin, count);
      Shaped values = given;
      if (given.type != cache.type || !is_dense(t[i + 2])) {
        values = work.temporary(cache.type, given.shape);
        given.type == cache.type ? work.copy(values, given) : work.cast(values, given);
      }
      values = values.seen_as({count, heads * width});
      if (count > 1) {
        const Shaped of_last = work.temporary(cache.type, values.shape);
        work.call(work.f.select, work.tensor(values), int64_t{0}, work.tensor(last), work.tensor(of_last));
        values = of_last;
      }
      work.call(work.f.put, work.tensor(cache.seen_as({sequences * heads * slots, width}, {cache.strides[2], 1})),
                int64_t{0}, work.tensor(rows.seen_as({count * heads})),
                work.tensor(values.seen_as({count * heads, width})));
    }
  }
}

// ---- counters --------------------------------------------------------------------------------------------------------

bool supports_increment(const Functions&, const aa_op_call& call) {
  const aa_tensor& x = call.tensors[0];
  const int64_t amount = params_of<aa_increment_params>(call).amount;
  if (!is_viewable(x)) return false;
  return x.dtype == AA_DTYPE_I64 || (x.dtype == AA_DTYPE_I32 && amount >= INT32_MIN && amount <= INT32_MAX);
}
void increment(const aa_op_call& call, Work& work) {
  work.call(work.f.advance, work.tensor(Shaped(call.tensors[0])),
            work.integer(params_of<aa_increment_params>(call).amount), work.integer(1));
}

}  // namespace

std::span<const OpRow> position_ops() {
  static constexpr OpRow rows[] = {
      {Op::Embedding, has_embedding, supports_embedding, embedding},
      {Op::Rope, [](const Functions& f) { return f.rotate.is_there() && f.copy.is_there(); }, supports_rope, rope},
      {Op::CacheWrite, has_cache_write, supports_cache_write, cache_write},
      {Op::Increment, [](const Functions& f) { return f.advance.is_there(); }, supports_increment, increment},
  };
  return rows;
}

}  // namespace anyaccel::npu
