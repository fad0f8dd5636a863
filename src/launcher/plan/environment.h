// Builds the environment variables of ranks.
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

// Parses lines "NAME=value", with literal values; blank lines and lines that begin with # are skipped. InvalidArgument
// quotes any other line with its number; `file` is for messages.
Variables parse_env_file(std::string_view text, const std::string& file);

// Reads ~/.deepspeed_env, then ./.deepspeed_env, which has precedence; DS_ENV_FILE replaces the file name. Missing
// files count as empty. The path and variable names of each file are logged. A file that another user could change
// (base/files/trusted_path.h), or that is not a regular file, is skipped with a warning, because variables can inject code
// into a rank (LD_PRELOAD), and the current folder may belong to another user.
Variables read_env_files();

// Returns the variables to pass to other hosts: names that begin with one of the prefixes (the accelerator's own, and
// those that DeepSpeed forwards).
Variables forwarded(const Variables& environment, const std::vector<std::string>& prefixes);

// Seconds that the ranks of the job have to start and to join: --join_timeout, ANYACCEL_JOIN_TIMEOUT, or 300.
int join_limit_s(const JobPlan& job);

// Returns the variables that a rank gets in addition to the environment of the process that starts it: RANK and the
// like, OMP_NUM_THREADS, the token, and job.environment. `omp_threads` is the user's value of OMP_NUM_THREADS (empty:
// not set).
Variables rank_environment(const JobPlan& job, int node, int local_rank, int threads, const std::string& omp_threads);

// Merges both as "NAME=value"; those of `over` take precedence.
std::vector<std::string> merged(const Variables& base, const Variables& over);

}  // namespace anyaccel::launcher
