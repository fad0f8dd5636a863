// What all files of CPU kernels include, for the compiler to read once instead of in each of them: the standard library's
// headers, and Highway's operations for all instruction sets, which are half of the time that a short file takes.
// Only src/CMakeLists.txt names this header; without it a kernel file compiles too.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/simd/dispatch.h"

// The operations alone: "kernel files" without kernels.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hwy/highway.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

// A kernel file begins as if nothing had been included (the guard of highway.h has another name in later versions), but
// AA_HIGHWAY_PRECOMPILED keeps it from including the operations again.
#undef HIGHWAY_HWY_FOREACH_TARGET_H_
#undef HWY_HIGHWAY_INCLUDED
#undef HIGHWAY_HWY_HIGHWAY_INCLUDED
#undef HWY_TARGET_INCLUDE
#undef HWY_TARGET_TOGGLE
#define AA_HIGHWAY_PRECOMPILED
