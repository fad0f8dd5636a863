// The memories layer: fills the members `memory` and `memories` of calls for drivers that have AA_DRIVER_WANTS_MEMORY.
//
// It remembers what mem_alloc and register_range gave for each range of each device, and looks every address of a call up
// before the driver sees the call. An address that lies in no range is passed on with NULL.
#pragma once

#include "anyaccel/abi/table_calls.hpp"

namespace anyaccel::layers {

const abi::DriverCalls* wrap_memories(const abi::DriverCalls* table);

}  // namespace anyaccel::layers
