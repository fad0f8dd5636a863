// Environment variables of ranks.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/job_plan.h"

namespace anyaccel::launcher {

using Variables = std::map<std::string, std::string>;

// The variables of this process.
Variables own_environment();

// Lines "NAME=value", values as they are; blank lines and lines that begin with # are skipped. InvalidArgument that quotes
// another line with its number; `file` is for messages.
Variables parse_env_file(std::string_view text, const std::string& file);

// ~/.deepspeed_env, and over it ./.deepspeed_env; DS_ENV_FILE is another name for them. Missing files are empty. For each one
// that is read its path and the names that it sets go to the log. One that another user could change (base/trusted_path.h),
// or that is no file, is not read: a warning says why. Variables are code to a rank (LD_PRELOAD), and the current folder may
// be anybody's.
Variables read_env_files();

// What goes along to other hosts: names that begin with one of the prefixes (the accelerator's own, and those that
// DeepSpeed forwards).
Variables forwarded(const Variables& environment, const std::vector<std::string>& prefixes);

// Seconds that the ranks of the job have to start and to join: --join_timeout, ANYACCEL_JOIN_TIMEOUT, or 300.
int join_limit_s(const JobPlan& job);

// RANK and its like, OMP_NUM_THREADS, the token, and job.environment: what the rank has beside the environment of the
// process that starts it. `omp_threads` is what a person set OMP_NUM_THREADS to (empty: nothing).
Variables rank_environment(const JobPlan& job, int node, int local_rank, int threads, const std::string& omp_threads);

// "NAME=value" of all, those of `over` winning.
std::vector<std::string> merged(const Variables& base, const Variables& over);

}  // namespace anyaccel::launcher
