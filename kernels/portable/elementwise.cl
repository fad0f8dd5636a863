// Ops of single elements: activation, gated_activation, add, copy and increment.
#include "dialect.h"

#include "activations.h"
#include "arguments.h"
#include "elementwise_arguments.h"
#include "formats.h"
#include "views.h"

// The elements of an item; see elementwise_arguments.h.
#define AA_FOR_ELEMENTS(i, count)                                                                                      \
  for (aa_i64 i = AA_GROUP_ID(0) * (AA_ITEMS * AA_ELEMENTS) + AA_LOCAL_ID, end_ = aa_group_end(AA_GROUP_ID(0), count); \
       i < end_; i += AA_ITEMS)
AA_FN aa_i64 aa_group_end(aa_i64 group, aa_i64 count) {
  const aa_i64 end = (group + 1) * (AA_ITEMS * AA_ELEMENTS);
  return end < count ? end : count;
}

// In all of these a tensor whose elements are neighbours has a view of one dimension and stride 1. out may be an input.

AA_KERNEL(activation, AA_ITEMS)
(AA_OUT(void) out, AA_VALUE(aa_view) out_view, AA_IN(void) x, AA_VALUE(aa_view) x_view, AA_VALUE(aa_i64) count,
 AA_VALUE(aa_i32) kind) {
  AA_FOR_ELEMENTS(i, count) {
    const float v = aa_load(x, x_view.dtype, aa_view_offset(x_view, i));
    aa_store(out, out_view.dtype, aa_view_offset(out_view, i), aa_activate(v, kind));
  }
}
AA_REGISTER(activation, AA_ITEMS)

AA_KERNEL(gated_activation, AA_ITEMS)
(AA_OUT(void) out, AA_VALUE(aa_view) out_view, AA_IN(void) gate, AA_VALUE(aa_view) gate_view, AA_IN(void) up,
 AA_VALUE(aa_view) up_view, AA_VALUE(aa_i64) count, AA_VALUE(aa_i32) kind) {
  AA_FOR_ELEMENTS(i, count) {
    const float g = aa_load(gate, gate_view.dtype, aa_view_offset(gate_view, i));
    const float u = aa_load(up, up_view.dtype, aa_view_offset(up_view, i));
    aa_store(out, out_view.dtype, aa_view_offset(out_view, i), aa_activate(g, kind) * u);
  }
}
AA_REGISTER(gated_activation, AA_ITEMS)

AA_KERNEL(add, AA_ITEMS)
(AA_OUT(void) out, AA_VALUE(aa_view) out_view, AA_IN(void) a, AA_VALUE(aa_view) a_view, AA_IN(void) b,
 AA_VALUE(aa_view) b_view, AA_VALUE(aa_i64) count) {
  AA_FOR_ELEMENTS(i, count) {
    const float sum =
        aa_load(a, a_view.dtype, aa_view_offset(a_view, i)) + aa_load(b, b_view.dtype, aa_view_offset(b_view, i));
    aa_store(out, out_view.dtype, aa_view_offset(out_view, i), sum);
  }
}
AA_REGISTER(add, AA_ITEMS)

// Copy between equal dtypes, as bits: elements of `width` bytes, 1, 2, 4 or 8.
AA_KERNEL(copy_bits, AA_ITEMS)
(AA_OUT(void) out, AA_VALUE(aa_view) out_view, AA_IN(void) x, AA_VALUE(aa_view) x_view, AA_VALUE(aa_i64) count,
 AA_VALUE(aa_i32) width) {
  AA_FOR_ELEMENTS(i, count) {
    const aa_i64 to = aa_view_offset(out_view, i);
    const aa_i64 from = aa_view_offset(x_view, i);
    if (width == 8) {
      AA_AS_OUT(aa_u64, out)[to] = AA_AS_IN(aa_u64, x)[from];
    } else if (width == 4) {
      AA_AS_OUT(aa_u32, out)[to] = AA_AS_IN(aa_u32, x)[from];
    } else if (width == 2) {
      AA_AS_OUT(aa_u16, out)[to] = AA_AS_IN(aa_u16, x)[from];
    } else {
      AA_AS_OUT(aa_u8, out)[to] = AA_AS_IN(aa_u8, x)[from];
    }
  }
}
AA_REGISTER(copy_bits, AA_ITEMS)

// Copy from F32, F16, BF16 and the 8-bit floats; from integers and BOOL; from F64.
AA_KERNEL(copy_floats, AA_ITEMS)
(AA_OUT(void) out, AA_VALUE(aa_view) out_view, AA_IN(void) x, AA_VALUE(aa_view) x_view, AA_VALUE(aa_i64) count) {
  AA_FOR_ELEMENTS(i, count) {
    const float v = aa_load_float(x, x_view.dtype, aa_view_offset(x_view, i));
    aa_store_float(out, out_view.dtype, aa_view_offset(out_view, i), v);
  }
}
AA_REGISTER(copy_floats, AA_ITEMS)

AA_KERNEL(copy_integers, AA_ITEMS)
(AA_OUT(void) out, AA_VALUE(aa_view) out_view, AA_IN(void) x, AA_VALUE(aa_view) x_view, AA_VALUE(aa_i64) count) {
  AA_FOR_ELEMENTS(i, count) {
    const aa_i64 v = aa_load_integer(x, x_view.dtype, aa_view_offset(x_view, i));
    aa_store_integer(out, out_view.dtype, aa_view_offset(out_view, i), v);
  }
}
AA_REGISTER(copy_integers, AA_ITEMS)

#if AA_HAS_F64
AA_KERNEL(copy_f64, AA_ITEMS)
(AA_OUT(void) out, AA_VALUE(aa_view) out_view, AA_IN(double) x, AA_VALUE(aa_view) x_view, AA_VALUE(aa_i64) count) {
  AA_FOR_ELEMENTS(i, count) {
    aa_store_f64(out, out_view.dtype, aa_view_offset(out_view, i), x[aa_view_offset(x_view, i)]);
  }
}
AA_REGISTER(copy_f64, AA_ITEMS)
#endif

AA_KERNEL(increment, AA_ITEMS)
(AA_OUT(void) x, AA_VALUE(aa_view) view, AA_VALUE(aa_i64) count, AA_VALUE(aa_i64) amount) {
  AA_FOR_ELEMENTS(i, count) {
    const aa_i64 at = aa_view_offset(view, i);
    const aa_u64 sum = (aa_u64)aa_load_index(x, view.dtype, at) + (aa_u64)amount;
    aa_store_index(x, view.dtype, at, (aa_i64)sum);
  }
}
AA_REGISTER(increment, AA_ITEMS)
