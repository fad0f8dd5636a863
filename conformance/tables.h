// Tables as the suite calls them: of full size, with a stub that answers AA_UNIMPLEMENTED for each function the driver
// leaves out (this is what a host does, written again here because the suite knows nothing but the interface), with every call
// counted, and with a host's services (services.h) for what is opened without them.
#pragma once

#include <vector>

#include "anyaccel/abi/table_calls.hpp"
#include "conformance/services.h"
#include "conformance/suite.h"

namespace anyaccel::conformance {

// A table whose functions count and go on to `raw`; its query_extension gives tables of the same kind. There is one for
// the process, valid until the next call; counts begin at zero.
const abi::DriverCalls* counted(const aa_driver& raw, const aa_host* host, const OpenedWith& with = {}) noexcept;

// The driver's own ops since, as bits in the order of op_names (runtime/ops/op_list.h): those that it gave a number for, and those of
// which it took a call.
uint64_t ops_found();
uint64_t ops_run();

// Returns the calls since then.
std::vector<FunctionCoverage> coverage();

}  // namespace anyaccel::conformance
