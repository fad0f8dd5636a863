// The kernels behind ops::RaggedOps for the host's processor.
#include "portable_language.h"

#include "../portable/ragged.cl"
