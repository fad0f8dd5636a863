// Looks for what a runner needs before anything is started.
#pragma once

#include <string>
#include <vector>

#include "launcher/launch.h"
#include "launcher/plan/job_plan.h"

namespace anyaccel::launcher {

// The program of a runner, as one would type it: "mpirun.mpich" where "mpirun" is another MPI's. UnavailableError that
// names what is missing and the Debian package that has it.
std::string find_runner(Runner runner);

// Tries ssh to every host, many at once. UnavailableError with ssh's error message for the first that cannot be reached.
void check_ssh(const std::vector<Host>& hosts, int ssh_port);

// Whether a name is this host's.
bool is_this_host(const std::string& name);

}  // namespace anyaccel::launcher
