// Provides ops with Cambricon's library of operators, CNNL.
#pragma once

#include "accelerators/mlu/mlu_api.h"
#include "accelerators/queue_runtime/ops.h"

namespace anyaccel::mlu {

// The first call opens the library, once per process. `has_bf16`: all devices compute with bfloat16. Returns null if
// the library or one of its functions is missing: ops then run on the CPU.
const queue_runtime::OpSet* op_set(const Api& api, bool has_bf16);

// Destroys the objects that the ops keep for a device, which is current on this thread.
void release_ops(int ordinal);

}  // namespace anyaccel::mlu
