// Parses hostfiles, and the options that select among their hosts and devices.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/job_plan.h"

namespace anyaccel::launcher {

// Lines "host slots=N" or "user@host slots=N", N from 1; a # begins a comment. Devices of a host are 0..N-1. InvalidArgument that quotes file,
// line number and line for anything else, a duplicate host, and a file without hosts.
std::vector<Host> parse_hostfile(std::string_view text, const std::string& file);

// "NODE[:SLOT[,SLOT...]][@NODE...]": the hosts and slots that --include keeps, or that --exclude removes; at most one
// of the texts is not empty. The hostfile's order is kept, and hosts without remaining slots are removed.
// InvalidArgument for unknown hosts or slots, for malformed texts, and if nothing is left.
std::vector<Host> filter_hosts(const std::vector<Host>& hosts, std::string_view include, std::string_view exclude);

// Slurm's short form of host lists: "node[01-03,7],other" is node01, node02, node03, node7, other. InvalidArgument for
// another form.
std::vector<std::string> expand_host_list(std::string_view text);

}  // namespace anyaccel::launcher
