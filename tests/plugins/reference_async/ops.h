// Own ops of the reference driver: enough of them that the suite sees ops run by workers in memory which the host
// cannot read.
#pragma once

#include <functional>

#include "anyaccel/abi/ops.h"

namespace reference {

class Device;

// The driver's number of an op, or -1.
int32_t find_op(const char* name);
bool supports(const aa_op_call& call);
// Bytes of device memory that the call needs while it runs.
size_t scratch_bytes(const aa_op_call& call);
// An op as a worker runs it: nothing of `call` is used after this returned. `scratch` is memory of so many bytes;
// null: the call finds its own. Throws abi::Failure for a number that find_op never gave.
std::function<void()> prepare_op(Device& device, const aa_op_call& call, void* scratch);

}  // namespace reference
