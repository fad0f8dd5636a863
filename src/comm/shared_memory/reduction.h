// Combines arrays element by element, in the given order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "anyaccel/comm/process_group.h"
#include "anyaccel/dtype.h"

namespace anyaccel::comm {

// Returns whether the operation exists for the dtype: bits of floats and the average of bools do not.
bool reduction_exists(DType dtype, ReduceOp op) noexcept;

// target[i] = sources[0][i] op sources[1][i] op ..., from left to right. `target` may be one of the sources, and
// overlaps no other memory of them. Floats of 16 and 8 bits are combined in fp32 and rounded once; integers wrap, and
// their average is rounded toward zero; bools are added by "or" and multiplied by "and"; a NaN wins both minimum and
// maximum. The result does not depend on the instruction set.
void reduce(void* target, const void* const* sources, int count_of_sources, int64_t elements, DType dtype, ReduceOp op);

// The same, written to every target.
void reduce_to_all(void* const* targets, int count_of_targets, const void* const* sources, int count_of_sources,
                   int64_t elements, DType dtype, ReduceOp op);

}  // namespace anyaccel::comm
