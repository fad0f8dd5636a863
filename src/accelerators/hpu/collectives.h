// Habana's HCCL: the hccl functions of libSynapse.so as a library of collectives.
#pragma once

#include "accelerators/collective_library/library.h"

namespace anyaccel::hpu {

extern const collectives::LibraryTable hccl_table;

// Opened once a process, where the runtime's library is looked for. Throws AA_UNAVAILABLE with what was looked for and where.
const collectives::Library& collective_library();

}  // namespace anyaccel::hpu
