// Runs the ranks of one host.
#pragma once

#include <string>
#include <vector>

#include "launcher/plan/environment.h"
#include "launcher/plan/job_plan.h"
#include "launcher/plan/topology.h"
#include "launcher/processes/supervisor.h"

namespace anyaccel::launcher {

struct RankPlan {
  int rank = 0;
  int local_rank = 0;
  Binding binding;
  Variables environment;          // in addition to that of the launcher's own process
  std::vector<std::string> argv;  // "anyaccel" if the user wrote that
  std::string log_file;           // empty: none
};

// Decides cores, memory and environment of every rank of a host. `machine`: null if its cores are unknown; then none
// are assigned, and OMP_NUM_THREADS is not set. `base` is the environment that ranks inherit. InvalidArgument if cores
// cannot be assigned as requested, or if KMP_AFFINITY is set and cores are bound.
std::vector<RankPlan> plan_ranks(const JobPlan& job, int node, const Machine* machine, const Variables& base);

// Runs ranks of a host and returns the exit code (supervise()). `local_ranks`: those to run here; empty: all of the
// host. `self` is the file of `anyaccel`. Errors before anything runs are thrown.
int run_ranks(const JobPlan& job, int node, const std::vector<int>& local_ranks, const std::string& self);

// Returns the host's own name, for messages about a job on this host only.
std::string own_host_name();

}  // namespace anyaccel::launcher
