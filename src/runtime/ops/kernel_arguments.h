// The structs of kernels/portable/arguments.h on the host, and how tensors become them.
#pragma once

#include <cstdint>

#include "anyaccel/abi/base.h"

namespace anyaccel::ops::portable {

using aa_i32 = int32_t;
using aa_i64 = int64_t;
#include "kernels/portable/arguments.h"

static_assert(AA_VIEW_DIMS == AA_MAX_DIMS);

// The rows of a tensor of at least one dimension; an absent tensor gives dtype 0.
aa_rows rows_of(const aa_tensor& tensor);
// All elements of a tensor.
aa_view view_of(const aa_tensor& tensor);

// Number of elements; of rows (all dimensions but the last).
int64_t element_count_of(const aa_tensor& tensor);
int64_t row_count_of(const aa_tensor& tensor);

// ceil(a / b) as a grid size. Grids hold 2^31 - 1 groups in their first dimension.
uint32_t groups_for(int64_t work, int64_t per_group);

}  // namespace anyaccel::ops::portable
