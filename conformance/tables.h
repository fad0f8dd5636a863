// Tables as the suite calls them: of full size, with a stub that answers AA_UNIMPLEMENTED for each function the driver
// leaves out (this is what a host does, written again here because the suite knows nothing but the interface), and with
// every call counted.
#pragma once

#include <vector>

#include "anyaccel/abi/table_calls.hpp"
#include "conformance/suite.h"

namespace anyaccel::conformance {

// A table whose functions count and go on to `raw`; its query_extension gives tables of the same kind. There is one for
// the process, valid until the next call; counts begin at zero.
const abi::DriverCalls* counted(const aa_driver& raw, const aa_host* host) noexcept;

// Returns the calls since then.
std::vector<FunctionCoverage> coverage();

}  // namespace anyaccel::conformance
