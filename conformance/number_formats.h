// Converts elements of every dtype to doubles and back: the suite's own definition of rounding, against which results
// are judged.
#pragma once

#include <cstdint>

#include "anyaccel/abi/base.h"

namespace anyaccel::conformance {

// "f32", "bf16", ...
const char* dtype_text(int32_t dtype) noexcept;
int64_t dtype_size(int32_t dtype) noexcept;  // bytes
bool is_float(int32_t dtype) noexcept;

// Half the relative distance of neighbouring numbers: the error of rounding once. 0 for integers and F64.
double unit_roundoff(int32_t dtype) noexcept;
// Half the smallest positive number: the error of rounding once near zero.
double smallest_roundoff(int32_t dtype) noexcept;

// Reads the element at `data`. I64 beyond 2^53 rounds.
double load(const void* data, int32_t dtype) noexcept;
// Stores by the rules of the op "copy": floats round once to nearest even, floats to integers truncate and saturate.
void store(void* data, int32_t dtype, double value) noexcept;
// The value after store() and load().
double rounded(double value, int32_t dtype) noexcept;

}  // namespace anyaccel::conformance
