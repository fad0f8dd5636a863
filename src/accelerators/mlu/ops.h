// Ops by Cambricon's library of operators, CNNL.
#pragma once

#include "accelerators/mlu/mlu_api.h"
#include "accelerators/queue_runtime/ops.h"

namespace anyaccel::mlu {

// Opened at the first call, once a process. `has_bf16`: all devices compute with bfloat16. Null where the library or one of its
// functions is missing: ops then run on the CPU.
const queue_runtime::OpSet* op_set(const Api& api, bool has_bf16);

// Ends what the ops keep for a device, which is current on this thread.
void release_ops(int ordinal);

}  // namespace anyaccel::mlu
