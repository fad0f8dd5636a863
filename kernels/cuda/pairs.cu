// "gated_activation" and "add" of anyaccel/abi/ops.h by 16 bytes at a time. Element types are chosen when running: what counts
// is memory.
#include "dialect.h"
#include "warp.h"

#include "activations.h"
#include "row_arguments.h"
#include "vectors.h"

// out = act(a) * b, or a + b with kind -1, over `count` neighbours; the last vector may be incomplete.
AA_TUNED_KERNEL(pairs_tuned, AA_PAIR_THREADS, 4)
(AA_OUT(void) out, AA_IN(void) a, AA_IN(void) b, aa_i64 count, aa_i32 out_dtype, aa_i32 a_dtype, aa_i32 b_dtype,
 aa_i32 kind) {
  aa_grid_launch_next();
  aa_grid_wait();
  const aa_i64 i = (AA_GROUP_ID(0) * AA_PAIR_THREADS + AA_LOCAL_ID) * AA_VECTOR;
  if (i + AA_VECTOR <= count) {
    float u[AA_VECTOR], v[AA_VECTOR];
    aa_load8(u, a, a_dtype, i);
    aa_load8(v, b, b_dtype, i);
    AA_PRAGMA_UNROLL for (aa_i32 j = 0; j < AA_VECTOR; ++j) v[j] = kind < 0 ? u[j] + v[j] : aa_activate(u[j], kind) * v[j];
    aa_store8(out, out_dtype, i, v);
  } else {
    for (aa_i64 k = i; k < count; ++k) {
      const float u = aa_load(a, a_dtype, k), v = aa_load(b, b_dtype, k);
      aa_store(out, out_dtype, k, kind < 0 ? u + v : aa_activate(u, kind) * v);
    }
  }
}
AA_REGISTER_TUNED(pairs_tuned, AA_PAIR_THREADS)
