// Matrix products with several rows of x; one program for each AA_X and AA_W. See linear_tiles.h.
#include "linear_tiles.h"

AA_REGISTER_TILES(4, linear_rows4, linear_multi_rows4, gated_linear_rows4)
