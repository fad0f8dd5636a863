// The kernels behind ops::InferenceCutlass for the host's processor.
#include "portable_language.h"

#include "../portable/grouped.cl"
