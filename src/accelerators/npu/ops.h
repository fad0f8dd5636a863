// Ops by CANN's operator libraries (aclnn): libnnopbase.so and libopapi.so, or the parts into which newer releases split it.
#pragma once

#include <string>

#include "accelerators/queue_runtime/ops.h"

namespace anyaccel::npu {

// Opened at the first call, once a process, for processors of this name (aclrtGetSocName). Null where the libraries are missing; `problem` then says what was looked for and
// where.
const queue_runtime::OpSet* op_set(const std::string& processor, std::string& problem);

}  // namespace anyaccel::npu
