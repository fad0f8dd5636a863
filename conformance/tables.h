// Tables as the suite calls them: of full size, with a stub that returns AA_UNIMPLEMENTED for each function the driver
// leaves out (as a host does; it is written again here because the suite depends on the interface only), with every
// call counted, and with a host's services (services.h) for what is opened without them.
#pragma once

#include <vector>

#include "anyaccel/abi/table_calls.hpp"
#include "conformance/services.h"
#include "conformance/suite.h"

namespace anyaccel::conformance {

// Returns a table whose functions count calls and forward them to `raw`; its query_extension returns tables of the same
// kind. The process has only one, valid until the next call; counts begin at zero.
const abi::DriverCalls* counted(const aa_driver& raw, const aa_host* host, const OpenedWith& with = {}) noexcept;

// The driver's own ops since then, as bits in the order of op_names (runtime/ops/op_list.h): those for which it
// returned a number, and those of which it accepted a call.
uint64_t ops_found();
uint64_t ops_run();

// Returns the calls since then.
std::vector<FunctionCoverage> coverage();

}  // namespace anyaccel::conformance
