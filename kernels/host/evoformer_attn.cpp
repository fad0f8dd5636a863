// The kernels of kernels/portable behind ops::EvoformerAttn, compiled for the host's processor.
#include "portable_language.h"

#include "../portable/dense.cl"
#include "../portable/evoformer.cl"
