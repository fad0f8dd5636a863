// "attention" of anyaccel/abi/ops.h over caches of floats: AA_X is q's element type, AA_W that of the keys; values of another
// type are read element by element.
#include "dialect.h"
#include "arguments.h"
#include "attention_arguments.h"

typedef AA_STORAGE(AA_X) aa_q_type;
typedef AA_STORAGE(AA_W) aa_key_type;

#define AA_KEY_WIDE(k, row, d) AA_LOAD_WIDE(AA_W, k, (row) + (d))
#define AA_KEY_AT(k, row, d) AA_LOAD(AA_W, k, (row) + (d) * a.k_stride[3])
#define AA_CACHED_WIDE(v, row, d) AA_LOAD_WIDE(AA_W, AA_AS_IN(aa_key_type, v), (row) + (d))
#define AA_CACHED_AT(v, row, d) aa_load(v, a.v_dtype, (row) + (d) * a.v_stride[3])
#define AA_ATTENTION AA_NAME_XW(attention)

#include "attention_rows.h"
