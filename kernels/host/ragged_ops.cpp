// The kernels of kernels/portable behind ops::RaggedOps, compiled for the host's processor.
#include "portable_language.h"

#include "../portable/ragged.cl"
