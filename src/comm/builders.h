// The op builders of this folder.
#pragma once

#include <memory>

#include "anyaccel/op_builder.h"

namespace anyaccel::ops {

// "ShareMemCommBuilder": loads ops::ShareMemComm.
std::unique_ptr<OpBuilder> make_share_mem_comm_builder(Accelerator& accelerator);

}  // namespace anyaccel::ops
