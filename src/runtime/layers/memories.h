// The memories layer: fills the members `memory` and `memories` of calls for drivers that have AA_DRIVER_WANTS_MEMORY.
//
// It records the results of mem_alloc and register_range for each range of each device, and looks up every address of a
// call before it passes the call on. For an address that lies in no range the member is NULL.
#pragma once

#include "anyaccel/abi/table_calls.hpp"

namespace anyaccel::layers {

const abi::DriverCalls* wrap_memories(const abi::DriverCalls* table);

}  // namespace anyaccel::layers
