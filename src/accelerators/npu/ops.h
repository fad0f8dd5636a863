// Ops by CANN's operator libraries (aclnn): libnnopbase.so and libopapi.so, or the parts into which newer releases split it.
#pragma once

#include <string>

#include "accelerators/queue_runtime/ops.h"

namespace anyaccel::npu {

// Opened at the first call, once a process. Null where the libraries are missing; `problem` then says what was looked for and
// where.
const queue_runtime::OpSet* op_set(std::string& problem);

}  // namespace anyaccel::npu
