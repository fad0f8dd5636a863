// Declares the op builders of this folder.
#pragma once

#include <memory>

#include "anyaccel/op_builder.h"

namespace anyaccel::ops {

// "CCLCommBuilder": loads ops::CCLComm.
std::unique_ptr<OpBuilder> make_ccl_comm_builder(Accelerator& accelerator);
// "ShareMemCommBuilder": loads ops::ShareMemComm.
std::unique_ptr<OpBuilder> make_share_mem_comm_builder(Accelerator& accelerator);

}  // namespace anyaccel::ops
