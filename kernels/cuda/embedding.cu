// "embedding" of anyaccel/abi/ops.h by 16 bytes at a time. Element types are chosen when running: what counts is memory.
// Rows begin at multiples of 16 bytes, their elements are neighbours, and their size is a multiple of 8.
#include "dialect.h"
#include "warp.h"

#include "formats.h"
#include "row_arguments.h"
#include "vectors.h"

// out[t] = table[ids[t]], zeros where the id is outside of the table. Blocks: AA_EMBEDDING_THREADS vectors of a row, tokens.
AA_TUNED_KERNEL(embedding_rows, AA_EMBEDDING_THREADS, 4)
(AA_OUT(void) out, aa_i64 out_row, AA_IN(void) table, aa_i64 table_row, AA_IN(void) ids, aa_i64 id_step, aa_i64 table_rows,
 aa_i64 size, aa_i32 out_dtype, aa_i32 table_dtype, aa_i32 id_dtype) {
  aa_grid_launch_next();
  aa_grid_wait();
  const aa_i64 t = AA_GROUP_ID(1);
  const aa_i64 i = (AA_GROUP_ID(0) * AA_EMBEDDING_THREADS + AA_LOCAL_ID) * AA_VECTOR;
  if (i < size) {
    const aa_i64 id = aa_load_index(ids, id_dtype, t * id_step);
    float v[AA_VECTOR] = {0, 0, 0, 0, 0, 0, 0, 0};
    if (id >= 0 && id < table_rows) aa_load8(v, table, table_dtype, id * table_row + i);
    aa_store8(out, out_dtype, t * out_row + i, v);
  }
}
AA_REGISTER_TUNED(embedding_rows, AA_EMBEDDING_THREADS)
