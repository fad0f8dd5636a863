// Creates the communicator for a group's host memory.
#include <algorithm>

#include "anyaccel/error.h"
#include "comm/group/group.h"

namespace anyaccel::comm {

namespace {

bool one_host(const std::vector<int>& hosts) {
  return std::all_of(hosts.begin(), hosts.end(), [&](int host) { return host == hosts[0]; });
}

bool shares_hosts(std::vector<int> hosts) {
  std::sort(hosts.begin(), hosts.end());
  return std::adjacent_find(hosts.begin(), hosts.end()) != hosts.end();
}

std::unique_ptr<HostCommunicator> make_transport(const GroupSetup& setup, const std::string& backend) {
  const Membership& membership = setup.membership;
  const bool near = one_host(setup.hosts);
  if (backend == "shm" && !near) {
    throw InvalidArgument(
        "the backend \"shm\" was requested for a group on several hosts: shared memory reaches one host "
        "only. Ask for \"gloo\" or \"mpi\", or for none");
  }
  const bool message_passing = backend == "gloo" || backend == "mpi";
  if (near && !message_passing) return make_shared_memory_communicator(membership);
  const auto between = backend == "mpi" ? make_mpi_communicator : make_gloo_communicator;
  // On one host, an explicitly requested library is used instead of shared memory.
  if (near || !shares_hosts(setup.hosts)) return between(membership);
  return make_hierarchical_communicator(membership, setup.hosts, between);
}

}  // namespace

std::unique_ptr<HostCommunicator> make_communicator(const GroupSetup& setup) {
  if (setup.backend != "ccl") return make_transport(setup, setup.backend);
  return make_ccl_communicator(setup.membership, make_transport(setup, ""));
}

}  // namespace anyaccel::comm
