// Runs jobs on several hosts: the side of the user's command, and the commands that it starts on the hosts.
#pragma once

#include <string>

#include "launcher/launch.h"
#include "launcher/plan/plan.h"

namespace anyaccel::launcher {

// Starts the job by its runner and returns the exit code. UnavailableError when the runner or a host is missing.
int run_remote(const LaunchOptions& options, Plan plan, const std::string& self);

}  // namespace anyaccel::launcher
