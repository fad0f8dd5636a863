// The kernels behind ops::SparseAttn for the host's processor.
#include "portable_language.h"

#include "../portable/block_sparse.cl"
#include "../portable/dense.cl"
