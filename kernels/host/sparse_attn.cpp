// The kernels of kernels/portable behind ops::SparseAttn, compiled for the host's processor.
#include "portable_language.h"

#include "../portable/block_sparse.cl"
#include "../portable/dense.cl"
