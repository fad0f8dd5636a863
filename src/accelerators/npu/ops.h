// Provides ops with CANN's operator libraries (aclnn): libnnopbase.so and libopapi.so, or the parts into which newer
// releases split the latter.
#pragma once

#include <string>

#include "accelerators/queue_runtime/ops.h"

namespace anyaccel::npu {

// The first call opens the libraries, once per process, for processors of this name (aclrtGetSocName). Returns null if
// they are missing; `problem` then says what was looked for and where.
const queue_runtime::OpSet* op_set(const std::string& processor, std::string& problem);

}  // namespace anyaccel::npu
