// The kernels of kernels/portable behind ops::InferenceCutlass, compiled for the host's processor.
#include "portable_language.h"

#include "../portable/grouped.cl"
