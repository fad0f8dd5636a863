// Lets tests count the work of sampling.cpp.
#pragma once

#include <cstdint>

namespace anyaccel::cpu {

// Returns how many candidates "sample" has put into buckets since the process began: the part of its work that is not a
// pass over the row by vectors.
int64_t drawn_candidates() noexcept;

}  // namespace anyaccel::cpu
