// Provides Tecorigin's TCCL (libtccl.so) as a library of collectives.
#pragma once

#include "accelerators/collective_library/library.h"

namespace anyaccel::sdaa {

extern const collectives::LibraryTable tccl_table;

// Opens the library once per process, looking in the same places as for the runtime's library. Throws AA_UNAVAILABLE
// with what was looked for and where.
const collectives::Library& collective_library();

}  // namespace anyaccel::sdaa
