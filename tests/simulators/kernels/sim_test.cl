// Small kernels that prove what the simulator's kernel runner must do: barriers, local arrays, sub-groups, structs, and the
// mistakes it must find.
#include "kernels/portable/dialect.h"

#include "kernels/portable/arguments.h"

AA_KERNEL(sim_scale, AA_ITEMS)(AA_OUT(float) y, AA_IN(float) x, float factor, aa_i64 count) {
  const aa_i64 i = AA_ITEM_ID;
  if (i < count) y[i] = x[i] * factor;
}
AA_REGISTER(sim_scale, AA_ITEMS)

// Each group reverses its AA_GROUP_SIZE elements through local memory.
AA_KERNEL(sim_reverse, AA_GROUP_SIZE)(AA_OUT(aa_i32) y, AA_IN(aa_i32) x) {
  AA_LOCAL_ARRAY(aa_i32, tile, AA_GROUP_SIZE);
  const aa_i64 first = AA_GROUP_ID(0) * AA_GROUP_SIZE;
  const aa_i32 id = AA_LOCAL_ID;
  tile[id] = x[first + id];
  AA_BARRIER();
  y[first + id] = tile[AA_GROUP_SIZE - 1 - id];
}
AA_REGISTER(sim_reverse, AA_GROUP_SIZE)

// out[4 * item + k]: sum over the item's lanes, sum and maximum over its group, of x; and its group id.
AA_KERNEL(sim_reduce, AA_GROUP_SIZE)(AA_OUT(float) out, AA_IN(float) x) {
  AA_SCRATCH(scratch);
  const aa_i32 id = AA_LOCAL_ID;
  const aa_i64 item = AA_GROUP_ID(0) * AA_GROUP_SIZE + id;
  const float v = x[item];
  out[4 * item] = aa_lanes_sum(v, scratch, id);
  out[4 * item + 1] = aa_group_sum(v, scratch, id);
  out[4 * item + 2] = aa_group_max(v, scratch, id);
  out[4 * item + 3] = (float)AA_GROUP_ID(0);
}
AA_REGISTER(sim_reduce, AA_GROUP_SIZE)

// out[i] = rows.stride[1] * i + rows.inner; a null `in` adds nothing.
AA_KERNEL(sim_struct, AA_ITEMS)(AA_OUT(float) out, AA_IN(float) in, aa_rows rows, aa_i32 count) {
  const aa_i64 i = AA_ITEM_ID;
  if (i >= count) return;
  float v = (float)(rows.stride[1] * i + rows.inner);
  if (in) v += in[i];
  out[i] = v;
}
AA_REGISTER(sim_struct, AA_ITEMS)

// Conversions: out[i] = in[i], both of a run-time type; f16 bits through AA_AS.
AA_KERNEL(sim_convert, AA_ITEMS)(AA_OUT(void) out, aa_i32 out_type, AA_IN(void) in, aa_i32 in_type, aa_i64 count) {
  const aa_i64 i = AA_ITEM_ID;
  if (i < count) aa_store(out, out_type, i, aa_load(in, in_type, i));
}
AA_REGISTER(sim_convert, AA_ITEMS)

// Wrong: only the first half of the group reaches the barrier.
AA_KERNEL(sim_diverge, AA_GROUP_SIZE)(AA_OUT(aa_i32) y) {
  const aa_i32 id = AA_LOCAL_ID;
  if (id < AA_GROUP_SIZE / 2) AA_BARRIER();
  y[id] = id;
}
AA_REGISTER(sim_diverge, AA_GROUP_SIZE)

// Adds up bytes of local memory: more than the device has in all.
AA_KERNEL(sim_greedy, AA_GROUP_SIZE)(AA_OUT(float) y) {
  AA_LOCAL_ARRAY(float, a, AA_LOCAL_BYTES / 4);
  AA_LOCAL_ARRAY(float, b, 4);
  const aa_i32 id = AA_LOCAL_ID;
  a[id] = 1.0f;
  if (id < 4) b[id] = 1.0f;
  AA_BARRIER();
  y[id] = a[id] + b[id % 4];
}
AA_REGISTER(sim_greedy, AA_GROUP_SIZE)
