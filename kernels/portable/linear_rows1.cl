// Matrix products with one row of x: decoding; one program for each AA_X and AA_W. See linear_tiles.h.
#include "linear_tiles.h"

AA_REGISTER_TILES(1, linear_rows1, linear_multi_rows1, gated_linear_rows1)
