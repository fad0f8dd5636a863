// Holds what products of a few rows of x share, whatever the format of their weights: see decode_products.h and decode_tiles.h.
#ifndef ANYACCEL_KERNELS_DECODE_UNITS_H_
#define ANYACCEL_KERNELS_DECODE_UNITS_H_

#include "../portable/dialect.h"
#include "../portable/arguments.h"
#include "decode_arguments.h"
#include "warp.h"
#include "quads.h"

// The facts about a token that the end of a unit needs: the factor of its sums, and two numbers of the kind of product.
struct aa_decode_token {
  float scale;
  aa_i32 first, second;
};

#endif  // ANYACCEL_KERNELS_DECODE_UNITS_H_
