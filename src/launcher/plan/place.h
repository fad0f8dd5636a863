// Determines this process's rank from the variables of MPI or Slurm.
#pragma once

#include "launcher/plan/environment.h"
#include "launcher/plan/job_plan.h"

namespace anyaccel::launcher {

struct Place {
  int node = 0;
  int local_rank = 0;
};

// Returns the place in `job` of a process that job.runner started with these variables. With Slurm, which chooses the
// order of hosts, job.hosts is set to Slurm's order, and if the job has no master address its first host becomes it.
// CommunicationError if the variables are missing or contradict the job: ranks were started by another MPI, or placed
// differently than requested.
Place read_place(JobPlan& job, const Variables& environment);

}  // namespace anyaccel::launcher
