// Tables as the suite calls them: of full size, with a stub that answers AA_UNIMPLEMENTED for each function the driver
// leaves out. This is what a host does, written again here because the suite knows nothing but the interface.
#pragma once

#include "anyaccel/abi/compiler.h"
#include "anyaccel/abi/driver.h"
#include "anyaccel/abi/graph.h"
#include "anyaccel/abi/host_memory.h"
#include "anyaccel/abi/ops.h"
#include "anyaccel/abi/profiler.h"

namespace anyaccel::conformance {

// Where the stubs' statuses come from; set before the first stub is called.
void set_stub_host(const aa_host* host) noexcept;

// Copies of what `raw` has, completed.
aa_driver completed(const aa_driver& raw) noexcept;
aa_graph_table completed(const aa_graph_table& raw) noexcept;
aa_host_memory_table completed(const aa_host_memory_table& raw) noexcept;
aa_ops_table completed(const aa_ops_table& raw) noexcept;
aa_compiler_table completed(const aa_compiler_table& raw) noexcept;
aa_profiler_table completed(const aa_profiler_table& raw) noexcept;

}  // namespace anyaccel::conformance
