// Hostfiles, and the parts of a command line that choose among their hosts and devices.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/job_plan.h"

namespace anyaccel::launcher {

// Lines "host slots=N", N from 1; a # begins a comment. Devices of a host are 0..N-1. InvalidArgument that quotes file,
// line number and line for anything else, a host that comes twice, and a file that names no host.
std::vector<Host> parse_hostfile(std::string_view text, const std::string& file);

// "NODE[:SLOT[,SLOT...]][@NODE...]": the hosts and slots that --include leaves, or that --exclude takes away; one of the
// texts at most is not empty. The hostfile's order stays, and hosts that lose all slots go. InvalidArgument for what is
// not there, for another form, and when nothing is left.
std::vector<Host> filter_hosts(const std::vector<Host>& hosts, std::string_view include, std::string_view exclude);

// Slurm's short form of host lists: "node[01-03,7],other" is node01, node02, node03, node7, other. InvalidArgument for
// another form.
std::vector<std::string> expand_host_list(std::string_view text);

}  // namespace anyaccel::launcher
