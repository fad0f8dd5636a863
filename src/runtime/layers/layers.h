// Layers: tables between the host and a driver that check or log its calls.
//
//   validate   refuses wrong calls (dead or foreign handles, ranges outside allocations, wrong order) before the driver
//              sees them; see validate.h for the rules
//   trace      writes one line for each call
//
// ANYACCEL_LAYERS=validate,trace puts them in. A layer is itself an aa_driver table, and its extension tables come
// through its query_extension, so nothing above or below knows of it. Without layers nothing costs anything.
#pragma once

#include <string_view>

#include "anyaccel/abi/table_calls.hpp"

namespace anyaccel {

// Puts the layers named in `spec` (comma-separated, blanks allowed) around a completed table (see complete_table); the
// first named is the first to see a call. The result lives until the process ends, and is the same for the same table
// and layers. An empty spec gives `table`. Throws InvalidArgument for an unknown name.
// Thread-safe.
const abi::DriverCalls* apply_layers(const abi::DriverCalls* table, std::string_view spec);

// Returns the table through which the host uses a driver: the driver's table behind the memories layer (memories.h), if
// the driver wants it, and the layers in ANYACCEL_LAYERS.
const abi::DriverCalls* apply_needed_layers(const abi::DriverCalls* table);

// InvalidArgument when ANYACCEL_LAYERS names a layer that is not known.
void check_layers_variable();

// Checks an op call's tensors and parameters against the definition of the op: returns null or a status that says what
// is wrong. `op` is the name that was passed to the driver's `find`.
using OpValidator = aa_status* (*)(const char* op, const aa_op_call* call);

// Sets the validate layer's checker of op calls; null removes it. The op library sets it, because the runtime does not
// know what ops mean.
void set_op_validator(OpValidator validator) noexcept;
// The checker, or null.
OpValidator op_validator() noexcept;

}  // namespace anyaccel
