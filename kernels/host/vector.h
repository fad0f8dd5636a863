// Vectors of floats for the host ops, as wide as the instruction set the file is compiled for: 16 with AVX-512, 8 with
// AVX2, 4 on plain x86-64, 1 elsewhere.
//
//   using namespace anyaccel::op;
//   int64_t i = 0;
//   for (; i + Vec::width <= n; i += Vec::width) store(y + i, load(x + i) * Vec(a));
//   if (i < n) store_n(y + i, load_n(x + i, n - i) * Vec(a), n - i);
//
// Addresses need no alignment (except for stream()). Including this header forbids the compiler to contract a * b + c, so
// that an op that uses operators only, and not multiply_add(), gives the same bits with every instruction set; sqrt and
// division are rounded correctly everywhere. Rounding is to nearest even throughout. Flushing denormals is the caller's
// choice (FlushDenormals), the conversions are right under either.
//
// The header of each instruction set (vector_avx512.h and so on) defines Vec, the Mask that comparisons give, and functions
// of which the names say enough but for these: min(a, b) and max(a, b) give b when one of them is a NaN. round() is to
// nearest even. multiply_add(a, b, c) is a * b + c, rounded once where the processor can, else twice: its results differ
// between instruction sets. So is multiply_sub_from(a, b, c), c - a * b. stream() goes past the caches: the address must be a
// multiple of the bytes written (Vec::width elements), and stream_fence() must come before another thread reads.
// store_integers() rounds and clamps to [-128, 127] the elements of one vector, or of four; they must be below 2^31 in
// magnitude.
#pragma once

#include "processor.h"
#include "vector_base.h"
#include "vector_lanes.h"
#include "vector_pairs.h"
#include "vector_words.h"
