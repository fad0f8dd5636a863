// --dry_run: what would be started, as text that a shell could run.
#pragma once

#include <string>

#include "launcher/launch.h"
#include "launcher/plan/plan.h"

namespace anyaccel::launcher {

// The runner's command line with its environment (none for this host alone), then every rank with its cores, memory,
// environment and command. Cores of other hosts are shared out there and not known here, unless HWLOC_SYNTHETIC or
// HWLOC_XMLFILE describes a machine: then they are what that one would give.
std::string dry_run_text(const LaunchOptions& options, const Plan& plan, const std::string& self);

}  // namespace anyaccel::launcher
