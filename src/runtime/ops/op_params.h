// Reads the parameters of an op's call as the op's own struct.
#pragma once

#include "anyaccel/abi/ops.h"

namespace anyaccel {

// `Params`: the struct that abi/ops.h names for the op, or one that begins with the same members. The host has checked that
// the call's parameters have its size.
template <class Params>
const Params& params_of(const aa_op_call& call) {
  return *static_cast<const Params*>(call.params);
}

}  // namespace anyaccel
