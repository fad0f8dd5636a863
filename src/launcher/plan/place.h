// Which rank this process is, as MPI or Slurm tell it.
#pragma once

#include "launcher/plan/environment.h"
#include "launcher/plan/job_plan.h"

namespace anyaccel::launcher {

struct Place {
  int node = 0;
  int local_rank = 0;
};

// The place in `job` of a process that job.runner started with these variables. With Slurm, which orders hosts as it likes,
// job.hosts becomes what Slurm did, and where the job has no meeting place its first host is that.
// CommunicationError when the variables are missing or tell of another job: ranks were started by another MPI, or placed
// otherwise than they were asked to be.
Place read_place(JobPlan& job, const Variables& environment);

}  // namespace anyaccel::launcher
