// Implements --dry_run: prints the commands that would be started, in shell syntax.
#pragma once

#include <string>

#include "launcher/launch.h"
#include "launcher/plan/plan.h"

namespace anyaccel::launcher {

// The runner's command line with its environment (none for this host alone), then every rank with its cores, memory,
// environment and command. Cores of other hosts are assigned there and not known here, unless HWLOC_SYNTHETIC or
// HWLOC_XMLFILE describes a machine: then the assignment for that machine is shown.
std::string dry_run_text(const LaunchOptions& options, const Plan& plan, const std::string& self);

}  // namespace anyaccel::launcher
