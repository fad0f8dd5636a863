// Determines a process's rank and job from options and environment variables only, so that it can be tested as a pure
// function.
//
// The sources are, in this order: the options; RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_SIZE (what `anyaccel launch` sets);
// OpenMPI (OMPI_COMM_WORLD_*); MVAPICH (MV2_COMM_WORLD_*); MPICH, Intel MPI and others with PMI (PMI_RANK, PMI_SIZE,
// MPI_LOCALRANKID, MPI_LOCALNRANKS, PALS_LOCAL_RANKID); PMIx (PMIX_RANK, without a size); Slurm (SLURM_PROCID,
// SLURM_STEP_NUM_TASKS or SLURM_NTASKS, SLURM_LOCALID). Those that are set must agree, except for Slurm, whose
// variables are inherited by the daemons of an mpirun inside a job, and which is used only if no other source is set.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "anyaccel/comm/process_group.h"

namespace anyaccel::comm {

using Environment = std::map<std::string, std::string, std::less<>>;

struct JobPlace {
  int rank = 0;
  int size = 1;
  int local_rank = -1;  // -1: unknown
  int local_size = -1;
  std::string master_addr;  // empty for a job of one
  int master_port = 29500;
  std::string token;  // ANYACCEL_JOB_TOKEN
  std::chrono::milliseconds timeout{0};
  std::chrono::milliseconds join_timeout{0};
  // The hosts of all ranks, if the launcher provides them (ANYACCEL_JOB_HOSTS); else empty. For messages.
  std::vector<std::string> hosts;
};

// InvalidArgument quotes the invalid or contradictory values.
JobPlace discover(const Environment& environment, const InitOptions& options);

// The variables of this process.
Environment process_environment();

// The first host of a Slurm list: "node01" of "node[01-03,7],other". InvalidArgument for a malformed list.
std::string first_slurm_host(const std::string& hosts);

}  // namespace anyaccel::comm
