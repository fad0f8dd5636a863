// Vectors of floats for the host ops, as wide as the instruction set that the file is compiled for: 16 lanes with AVX-512, 8 with
// AVX2, 4 with SSE2 only, 1 elsewhere. Elements of bf16, fp16 and 8-bit integers are converted as they are loaded and stored.
//
//   using namespace anyaccel::op;
//   int64_t i = 0;
//   for (; i + Vec::width <= n; i += Vec::width) store(y + i, load(x + i) * Vec(a));
//   if (i < n) store_n(y + i, load_n(x + i, n - i) * Vec(a), n - i);
//
// Addresses need no alignment (except for stream()). Including this header keeps the compiler from contracting a * b + c to a
// fused multiply-add. So an op that uses operators, but not multiply_add(), gives the same bits with every instruction set:
// sqrt and division are rounded correctly everywhere, and all rounding is to nearest even. Flushing denormals is the caller's
// choice (FlushDenormals); conversions between floats are right either way.
//
// The header of each instruction set (vector_avx512.h and so on) defines Vec, the Mask that comparisons return, and functions.
// Where their names do not say enough:
//   min(a, b), max(a, b)          return b if either one is NaN, as the instructions do
//   round(a)                      rounds to nearest even
//   multiply_add(a, b, c)         is a * b + c, rounded once where there is FMA, else twice: results differ
//   multiply_sub_from(a, b, c)    is c - a * b, likewise
//   stream(p, a)                  is a non-temporal store; p is a multiple of the bytes that are written, and stream_fence()
//                                 must precede reads by other threads
//   store_integers(p, a...)       rounds one or four vectors and clamps them to [-128, 127]; magnitudes must be below 2^31
//   load_n(p, n), store_n(p, a, n)    access the first n elements only, 0 < n < Vec::width
#pragma once

#include "processor.h"
#include "vector_base.h"
#include "vector_lanes.h"
#include "vector_pairs.h"
#include "vector_words.h"
