// LAMB on one parameter, and the sums of squares for clipping by a norm: the arithmetic of kernels/host/optimizers.h, bit
// for bit.
#include "dialect.h"
#include "arguments.h"
#include "strips.h"
#include "optimizer_arguments.h"

// ---- sums of squares ---------------------------------------------------------------------------------------------------
// A segment of AA_SUM_SEGMENT elements is summed in binary64, in AA_SUM_LANES sums of which sum j takes elements j,
// j + AA_SUM_LANES, ...; then those are added in halves. That is what the host does, so the bits are the same. Devices
// without binary64 add by integers: squares are never negative, which makes it short.
#if AA_HAS_F64
typedef double square_sum;
#define square_sum_add(a, b) ((a) + (b))
#define square_of(x) ((double)(x) * (double)(x))
#define square_sum_bits(a) aa_bits_f64(a)
#else
typedef aa_u64 square_sum; /* the bits of a binary64 */
#define square_sum_bits(a) (a)
AA_FN square_sum square_sum_add(square_sum a, square_sum b) {
  const aa_u64 hidden = (aa_u64)1 << 52;
  const aa_u64 most = a > b ? a : b, least = a > b ? b : a;
  const aa_u64 exponent = most >> 52, apart = exponent - (least >> 52);
  // Zeros, infinities, NaNs; what is too small to matter.
  if (least == 0 || exponent == 0x7ff || apart > 54) return most;
  // Three more bits: two that round and one for all that is shifted out.
  const aa_u64 shifted = ((least & (hidden - 1)) | hidden) << 3;
  aa_u64 sum = (((most & (hidden - 1)) | hidden) << 3) + (shifted >> apart);
  if ((shifted >> apart << apart) != shifted) sum |= 1;
  aa_u64 result_exponent = exponent;
  if (sum >> 56) {
    sum = (sum >> 1) | (sum & 1);
    ++result_exponent;
  }
  sum = (sum + 3 + ((sum >> 3) & 1)) >> 3;
  return (result_exponent << 52) + (sum - hidden);
}
// The square of a normal number or of zero is one of binary64, exactly.
AA_FN square_sum square_of(float x) {
  const aa_u32 bits = aa_bits(x) & 0x7fffffffu;
  if (bits == 0) return 0;
  if (bits >= 0x7f800000u) return bits > 0x7f800000u ? (aa_u64)0x7ff8 << 48 : (aa_u64)0x7ff0 << 48;
  const aa_u64 mantissa = (bits & 0x7fffffu) | 0x800000u;
  const aa_u64 square = mantissa * mantissa; /* from 2^46 on, below 2^48 */
  const aa_u64 carry = square >> 47;
  const aa_u64 exponent = 2 * (aa_u64)(bits >> 23) + 1023 - 254 + carry;
  return (exponent << 52) + ((square << (6 - carry)) - ((aa_u64)1 << 52));
}
#endif

// The division of segments within a group: every item has LANES lanes of one.
#if AA_GROUP_SIZE >= AA_SUM_LANES
#define LANES 1
#define SEGMENTS (AA_GROUP_SIZE / AA_SUM_LANES)
#else
#define LANES (AA_SUM_LANES / AA_GROUP_SIZE)
#define SEGMENTS 1
#endif
#define ITEMS_PER_SEGMENT (AA_SUM_LANES / LANES)

#if AA_GROUP_SIZE > 1
#define SYNC() AA_BARRIER()
#else
#define SYNC()
#endif

// The segment of an item, and the first of its elements.
#define SEGMENT_OF(group, id) ((group) * SEGMENTS + (aa_i64)((id) / ITEMS_PER_SEGMENT))
#define FIRST_OF(segment, id) ((segment) * AA_SUM_SEGMENT + (aa_i64)((id) % ITEMS_PER_SEGMENT * LANES))
AA_FN aa_i64 segment_end(aa_i64 segment, aa_i64 count) {
  const aa_i64 end = (segment + 1) * AA_SUM_SEGMENT;
  return end < count ? end : count;
}

// Adds the lanes of the group's segments; the first item of each writes its sum, if the segment has elements. `lanes`: of
// the group, in local memory.
AA_FN void add_lanes(AA_LOCAL square_sum* lanes, aa_u32 id, AA_PRIVATE const square_sum* mine, AA_OUT(aa_u64) sums,
                     aa_i64 segment, aa_i64 count) {
  const aa_u32 item = id % ITEMS_PER_SEGMENT, base = id / ITEMS_PER_SEGMENT * AA_SUM_LANES;
  for (aa_u32 k = 0; k < LANES; ++k) lanes[base + item * LANES + k] = mine[k];
  SYNC();
  for (aa_u32 d = AA_SUM_LANES / 2; d > 0; d /= 2) {
    for (aa_u32 j = item; j < d; j += ITEMS_PER_SEGMENT) {
      lanes[base + j] = square_sum_add(lanes[base + j], lanes[base + j + d]);
    }
    SYNC();
  }
  if (item == 0 && segment * AA_SUM_SEGMENT < count) sums[segment] = square_sum_bits(lanes[base]);
  SYNC();
}

// sums[s]: the bits of the sum of the squares of segment s.
AA_KERNEL(square_sums, AA_GROUP_SIZE)
(AA_IN(void) x, AA_VALUE(aa_i64) dtype, AA_VALUE(aa_i64) count, AA_OUT(aa_u64) sums) {
  AA_LOCAL_ARRAY(square_sum, lanes, SEGMENTS * AA_SUM_LANES);
  const aa_u32 id = (aa_u32)AA_LOCAL_ID;
  const aa_i64 segment = SEGMENT_OF(AA_GROUP_ID(0), id);
  const aa_i64 end = segment_end(segment, count);
  square_sum mine[LANES];
  for (aa_i32 k = 0; k < LANES; ++k) mine[k] = 0;
  for (aa_i64 i = FIRST_OF(segment, id); i < end; i += AA_SUM_LANES) {
    const aa_i32 n = aa_strip_length(end - i, LANES);
    float values[LANES];
    aa_load_strip(values, x, (aa_i32)dtype, i, n);
    for (aa_i32 k = 0; k < n; ++k) mine[k] = square_sum_add(mine[k], square_of(values[k]));
  }
  add_lanes(lanes, id, mine, sums, segment, count);
}
AA_REGISTER(square_sums, AA_GROUP_SIZE)

// ---- LAMB --------------------------------------------------------------------------------------------------------------

AA_FN float update_of(float p, float m, float v, aa_lamb_numbers a) {
  const float corrected = aa_div_ftz(v, a.correction2);
  const float denominator = a.eps_inside ? aa_sqrt_ftz(aa_add_ftz(corrected, a.eps))
                                         : aa_add_ftz(aa_sqrt_ftz(corrected), a.eps);
  const float step = aa_div_ftz(aa_div_ftz(m, a.correction1), denominator);
  return aa_add_ftz(step, aa_mul_ftz(a.weight_decay, p));
}

// The new moments; the sums of squares of the parameters and of their updates, as square_sums has them.
AA_KERNEL(lamb_moments, AA_GROUP_SIZE)
(AA_IN(void) param, AA_IN(void) grad, AA_OUT(void) exp_avg, AA_OUT(void) exp_avg_sq, AA_VALUE(aa_optimizer_types) types,
 AA_VALUE(aa_lamb_numbers) a, AA_VALUE(aa_i64) count, AA_OUT(aa_u64) param_sums, AA_OUT(aa_u64) update_sums) {
  AA_LOCAL_ARRAY(square_sum, lanes, SEGMENTS * AA_SUM_LANES);
  const aa_u32 id = (aa_u32)AA_LOCAL_ID;
  const aa_i64 segment = SEGMENT_OF(AA_GROUP_ID(0), id);
  const aa_i64 end = segment_end(segment, count);
  square_sum params[LANES], updates[LANES];
  for (aa_i32 k = 0; k < LANES; ++k) params[k] = updates[k] = 0;
  for (aa_i64 i = FIRST_OF(segment, id); i < end; i += AA_SUM_LANES) {
    const aa_i32 n = aa_strip_length(end - i, LANES);
    float p[LANES], g[LANES], m[LANES], v[LANES];
    aa_load_strip(p, param, types.param, i, n);
    aa_load_strip(g, grad, types.grad, i, n);
    aa_load_strip(m, exp_avg, types.state, i, n);
    aa_load_strip(v, exp_avg_sq, types.state, i, n);
    for (aa_i32 k = 0; k < n; ++k) {
      const float x = aa_mul_ftz(g[k], a.grad_scale);
      m[k] = aa_add_ftz(aa_mul_ftz(a.beta1, m[k]), aa_mul_ftz(a.one_minus_beta1, x));
      v[k] = aa_add_ftz(aa_mul_ftz(a.beta2, v[k]), aa_mul_ftz(a.one_minus_beta2, aa_mul_ftz(x, x)));
    }
    aa_store_strip(exp_avg, types.state, i, m, n);
    aa_store_strip(exp_avg_sq, types.state, i, v, n);
    // The update is made of the moments as they are kept.
    aa_load_strip(m, exp_avg, types.state, i, n);
    aa_load_strip(v, exp_avg_sq, types.state, i, n);
    for (aa_i32 k = 0; k < n; ++k) {
      params[k] = square_sum_add(params[k], square_of(p[k]));
      updates[k] = square_sum_add(updates[k], square_of(update_of(p[k], m[k], v[k], a)));
    }
  }
  add_lanes(lanes, id, params, param_sums, segment, count);
  add_lanes(lanes, id, updates, update_sums, segment, count);
}
AA_REGISTER(lamb_moments, AA_GROUP_SIZE)

AA_KERNEL(lamb_apply, AA_ITEMS)
(AA_OUT(void) param, AA_IN(void) exp_avg, AA_IN(void) exp_avg_sq, AA_OUT(void) copy, AA_VALUE(aa_optimizer_types) types,
 AA_VALUE(aa_lamb_numbers) a, AA_VALUE(aa_i64) count, AA_VALUE(aa_i64) per_item) {
  const float rate = aa_mul_ftz(a.lr, a.coefficient);
  const aa_i64 begin = AA_ITEM_ID * per_item;
  const aa_i64 end = begin + per_item < count ? begin + per_item : count;
  for (aa_i64 i = begin; i < end; i += AA_STRIP) {
    const aa_i32 n = aa_strip_length(end - i, AA_STRIP);
    float p[AA_STRIP], m[AA_STRIP], v[AA_STRIP];
    aa_load_strip(p, param, types.param, i, n);
    aa_load_strip(m, exp_avg, types.state, i, n);
    aa_load_strip(v, exp_avg_sq, types.state, i, n);
    for (aa_i32 k = 0; k < n; ++k) p[k] = aa_sub_ftz(p[k], aa_mul_ftz(rate, update_of(p[k], m[k], v[k], a)));
    aa_store_strip(param, types.param, i, p, n);
    if (types.copy != 0) aa_store_strip(copy, types.copy, i, p, n);
  }
}
AA_REGISTER(lamb_apply, AA_ITEMS)
