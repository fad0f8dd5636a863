// The trace layer: one line for each call of a driver.
//
//     anyaccel: call [4711] cpu.copy_async(stream=0x55.., destination=0x7f.., source=0x7f.., size=4096, direction=0)
//     = OK, 3.2 us                                                                    (on the same line)
//
// The number in brackets is the thread; after a successful call its results follow the arrow "->". Lines go to standard
// error, or are appended to the file that ANYACCEL_TRACE_CALLS names. Lines that cannot be written (a full disk) are
// lost, with one error in the log.
#pragma once

#include "anyaccel/abi/table_calls.hpp"

namespace anyaccel::layers {

// Opens the file: InvalidArgument when that is not possible.
const abi::DriverCalls* wrap_trace(const abi::DriverCalls* table);

// InvalidArgument when the file that ANYACCEL_TRACE_CALLS names cannot be written.
void check_trace_calls_file();

// Returns true if every line so far was written.
bool all_calls_traced() noexcept;

}  // namespace anyaccel::layers
