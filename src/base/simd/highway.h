// Highway's operations for the instruction set that is being compiled: include it where a kernel file would include
// hwy/highway.h (see dispatch.h).
//
// No include guard: a kernel file includes it once for each instruction set.

#if defined(AA_HIGHWAY_PRECOMPILED)  // highway_precompiled.h has declared the operations of all instruction sets
#include "hwy/ops/set_macros-inl.h"  // HWY_NAMESPACE and the other macros of this one
#else
#include "hwy/highway.h"
#endif
