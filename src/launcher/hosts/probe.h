// Checks a runner's requirements before anything is started.
#pragma once

#include <string>
#include <vector>

#include "launcher/launch.h"
#include "launcher/plan/job_plan.h"

namespace anyaccel::launcher {

// Returns the program of a runner: "mpirun.mpich" if "mpirun" is another MPI's. UnavailableError names the missing
// program and its Debian package.
std::string find_runner(Runner runner);

// Tries ssh to every host, many at the same time. UnavailableError with ssh's error message for the first that cannot
// be reached.
void check_ssh(const std::vector<Host>& hosts, int ssh_port);

// Returns whether a name is this host's.
bool is_this_host(const std::string& name);

}  // namespace anyaccel::launcher
