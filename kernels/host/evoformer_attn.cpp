// The kernels behind ops::EvoformerAttn for the host's processor.
#include "portable_language.h"

#include "../portable/dense.cl"
#include "../portable/evoformer.cl"
