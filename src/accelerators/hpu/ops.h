// Provides ops with Synapse's graphs.
#pragma once

#include <memory>

#include "accelerators/hpu/hpu_api.h"
#include "accelerators/queue_runtime/ops.h"

namespace anyaccel::hpu {

// Creates the ops for the device that this process has acquired. Returns null if the library has no graphs.
std::unique_ptr<queue_runtime::OpSet> make_ops(const Api& api, SynDevice device);

}  // namespace anyaccel::hpu
