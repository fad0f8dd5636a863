// Softmax of attention scores with a bias for each key and one for each pair, and its gradients (anyaccel/ops/evoformer_attn.h),
// on a part of the scores at a time; the products around them are those of dense.cl.
#include "dialect.h"
#include "evoformer_arguments.h"
#include "products.h"
#include "pieces.h"

#if AA_GROUP_SIZE == 1
#define AA_EACH_PIECE(call)                                                     \
  {                                                                             \
    aa_i64 j = 0;                                                               \
    for (; j + AA_PIECE <= s.length; j += AA_PIECE) call(at + j, j, AA_PIECE);  \
    if (j < s.length) call(at + j, j, s.length - j);                            \
  }
#else
#define AA_EACH_PIECE(call) \
  for (aa_i64 j = id; j < s.length; j += AA_GROUP_SIZE) call(at + j, j, 1);
#endif

// The row of a group: its matrix and number, and where it begins in the scores.
#define AA_EVOFORMER_ROW                                   \
  const aa_i32 id = AA_LOCAL_ID;                           \
  const aa_i64 part_row = AA_GROUP_ID(0) % s.row_count;    \
  const aa_i64 part_matrix = AA_GROUP_ID(0) / s.row_count; \
  const aa_i64 matrix = s.first + part_matrix;             \
  const aa_i64 row = s.first_row + part_row;               \
  const aa_i64 at = (part_matrix * s.row_count + part_row) * s.pitch;

// x = softmax(x + biases) by rows, in place; lse is the logarithm of a row's sum of exponentials, -infinity for a row that sees
// nothing, which becomes zeros.
AA_KERNEL(evoformer_softmax, AA_GROUP_SIZE)
(AA_OUT(float) x, AA_IN(void) keys, AA_IN(void) pairs, AA_OUT(float) lse, AA_VALUE(aa_evoformer) s) {
  AA_SCRATCH(scratch);
  AA_EVOFORMER_ROW
  const aa_i64 head = matrix % s.heads;
  const aa_i64 key_row = matrix / s.heads * s.length;
  const aa_i64 pair_row = ((matrix / s.heads / s.group * s.heads + head) * s.length + row) * s.length;
#define AA_PIECE_WORK(place, column, n)                                                  \
  {                                                                                      \
    if (s.has_keys) aa_add_piece(n, x, place, keys, s.dtype, key_row + (column));        \
    if (s.has_pairs) aa_add_piece(n, x, place, pairs, s.dtype, pair_row + (column));     \
  }
  if (s.has_keys || s.has_pairs) AA_EACH_PIECE(AA_PIECE_WORK)
#undef AA_PIECE_WORK
  const aa_i64 lse_at = matrix * s.lse_row + row;
  float largest = 0.0f;
  float factor = 1.0f;
  if (s.known) {
    largest = lse[lse_at];
    if (largest == AA_NEGATIVE_INFINITY) {
      largest = 0.0f;
      factor = 0.0f;
    }
  } else {
    aa_maxima maxima = aa_no_maxima();
#define AA_PIECE_WORK(place, column, n) maxima = aa_more_maxima(maxima, x, place, n)
    AA_EACH_PIECE(AA_PIECE_WORK)
#undef AA_PIECE_WORK
    largest = aa_group_max(aa_largest(maxima), scratch, id);
    if (largest == AA_NEGATIVE_INFINITY) largest = 0.0f;
  }
  aa_running sums = aa_running_from(0.0f);
#define AA_PIECE_WORK(place, column, n)       \
  {                                           \
    aa_exp_piece(n, x, place, largest);       \
    sums = aa_running_add(sums, x, place, n); \
  }
  AA_EACH_PIECE(AA_PIECE_WORK)
#undef AA_PIECE_WORK
  if (!s.known) {
    const float total = aa_group_sum(aa_total_sum(sums), scratch, id);
    factor = total == 0.0f ? 0.0f : 1.0f / total;
    if (id == 0) lse[lse_at] = total == 0.0f ? AA_NEGATIVE_INFINITY : largest + aa_log(total);
  }
#define AA_PIECE_WORK(place, column, n) aa_scale_piece(n, x, place, factor)
  if (factor != 1.0f) AA_EACH_PIECE(AA_PIECE_WORK)
#undef AA_PIECE_WORK
}
AA_REGISTER(evoformer_softmax, AA_GROUP_SIZE)

// delta = the sum of go * o over the elements of a head; go and o [matrices, L, d], of all rows of all matrices.
AA_KERNEL(evoformer_delta, AA_ITEMS)(AA_OUT(float) delta, AA_IN(float) go, AA_IN(float) o, AA_VALUE(aa_evoformer) s) {
  const aa_i64 number = AA_ITEM_ID;
  if (number < s.count * s.length) {
    float sum = 0.0f;
    for (aa_i64 i = number * s.size; i < (number + 1) * s.size; ++i) sum = aa_fma(go[i], o[i], sum);
    delta[number / s.length * s.lse_row + number % s.length] = sum;
  }
}
AA_REGISTER(evoformer_delta, AA_ITEMS)

// dp = p * (dp - delta): the gradient of the scores, in place.
AA_KERNEL(evoformer_gradient, AA_GROUP_SIZE)(AA_OUT(float) dp, AA_IN(float) p, AA_IN(float) delta, AA_VALUE(aa_evoformer) s) {
  AA_EVOFORMER_ROW
  const float dot = delta[matrix * s.lse_row + row];
#define AA_PIECE_WORK(place, column, n) aa_gradient_piece(n, p, dp, place, dot, 1.0f)
  AA_EACH_PIECE(AA_PIECE_WORK)
#undef AA_PIECE_WORK
}
AA_REGISTER(evoformer_gradient, AA_GROUP_SIZE)

// The part of a row of a gradient that an item of the next two kernels computes.
#if AA_GROUP_SIZE == 1
#define AA_BIAS_COLUMNS 64
#else
#define AA_BIAS_COLUMNS 1
#endif

// keys[b, n, j] += the sum of ds over heads and rows. An item has a (b, n) and some columns.
AA_KERNEL(evoformer_keys_gradient, AA_ITEMS)(AA_OUT(float) keys, AA_IN(float) ds, AA_VALUE(aa_evoformer) s) {
  const aa_i64 per_row = (s.length + AA_BIAS_COLUMNS - 1) / AA_BIAS_COLUMNS;
  const aa_i64 first_sequence = s.first / s.heads;
  const aa_i64 sequences = (s.first + s.count - 1) / s.heads - first_sequence + 1;
  const aa_i64 item = AA_ITEM_ID;
  if (item < sequences * per_row) {
    const aa_i64 sequence = first_sequence + item / per_row;
    const aa_i64 begin = item % per_row * AA_BIAS_COLUMNS;
    const aa_i64 end = begin + AA_BIAS_COLUMNS < s.length ? begin + AA_BIAS_COLUMNS : s.length;
    const aa_i64 low = sequence * s.heads > s.first ? sequence * s.heads : s.first;
    const aa_i64 high = (sequence + 1) * s.heads < s.first + s.count ? (sequence + 1) * s.heads : s.first + s.count;
    float sums[AA_BIAS_COLUMNS];
    for (aa_i64 j = begin; j < end; ++j) sums[j - begin] = 0.0f;
    for (aa_i64 r = (low - s.first) * s.row_count; r < (high - s.first) * s.row_count; ++r) {
      for (aa_i64 j = begin; j < end; ++j) sums[j - begin] += ds[r * s.pitch + j];
    }
    for (aa_i64 j = begin; j < end; ++j) keys[sequence * s.length + j] += sums[j - begin];
  }
}
AA_REGISTER(evoformer_keys_gradient, AA_ITEMS)

// pairs[b, head, i, j] += the sum of ds over n. An item has a (b, head), a row and some columns.
AA_KERNEL(evoformer_pairs_gradient, AA_ITEMS)(AA_OUT(float) pairs, AA_IN(float) ds, AA_VALUE(aa_evoformer) s) {
  const aa_i64 per_row = (s.length + AA_BIAS_COLUMNS - 1) / AA_BIAS_COLUMNS;
  const aa_i64 per_pair = s.group * s.heads; /* matrices of a b */
  const aa_i64 first_b = s.first / per_pair;
  const aa_i64 batch = (s.first + s.count - 1) / per_pair - first_b + 1;
  const aa_i64 item = AA_ITEM_ID;
  if (item < batch * s.heads * s.row_count * per_row) {
    const aa_i64 begin = item % per_row * AA_BIAS_COLUMNS;
    const aa_i64 end = begin + AA_BIAS_COLUMNS < s.length ? begin + AA_BIAS_COLUMNS : s.length;
    const aa_i64 part_row = item / per_row % s.row_count;
    const aa_i64 head = item / per_row / s.row_count % s.heads;
    const aa_i64 b = first_b + item / per_row / s.row_count / s.heads;
    const aa_i64 out_at = ((b * s.heads + head) * s.length + s.first_row + part_row) * s.length;
    /* The first n whose matrix is one of the part's: most are not. */
    const aa_i64 before = s.first - b * per_pair - head;
    aa_i64 part_matrix = b * per_pair + head - s.first + (before > 0 ? (before + s.heads - 1) / s.heads * s.heads : 0);
    const aa_i64 of_b = (b + 1) * per_pair - s.first;
    const aa_i64 matrices = of_b < s.count ? of_b : s.count;
    for (; part_matrix < matrices; part_matrix += s.heads) {
      const aa_i64 at = (part_matrix * s.row_count + part_row) * s.pitch;
      for (aa_i64 j = begin; j < end; ++j) pairs[out_at + j] += ds[at + j];
    }
  }
}
AA_REGISTER(evoformer_pairs_gradient, AA_ITEMS)
