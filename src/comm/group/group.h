// Creates process groups over communicators, for init_process_group(), new_group(), and tests whose ranks are threads
// of one process (each has a separate group object; all share one store and one accelerator).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/comm/process_group.h"
#include "comm/comms_log.h"
#include "comm/host_communicator.h"

namespace anyaccel::comm {

// A group's data apart from its communicator; subgroups are created from it.
struct GroupSetup {
  Membership membership;
  std::vector<int> world_ranks;  // of each member; empty: 0, 1, ...
  std::vector<int> hosts;        // a number for each member, equal for members on one host. Empty: all on one host.
  std::string backend;           // as InitOptions::backend
  // True if some member's accelerator has its own collectives, so that all of them try to join their devices.
  bool device_library = false;
  Accelerator* accelerator = nullptr;
  std::shared_ptr<CommsLog> log;  // null: nothing is logged
  // Called once with the failure that ended the group, unless it came from membership.watch. Must not throw. May be
  // empty.
  std::function<void(const std::string&)> on_failure;
};

// Creates the communicator for host memory that suits backend and hosts; see InitOptions::backend. Collective.
std::unique_ptr<HostCommunicator> make_communicator(const GroupSetup& setup);

// Creates a group over `communicator`, which must have the membership's rank and size, else InvalidArgument. With
// device_library: collective; UnavailableError when `backend` names the accelerator's library and it cannot serve the
// group.
std::shared_ptr<ProcessGroup> make_process_group(std::unique_ptr<HostCommunicator> communicator, GroupSetup setup);

// The same with all members on one host and their ranks as world ranks.
inline std::shared_ptr<ProcessGroup> make_process_group(std::unique_ptr<HostCommunicator> communicator,
                                                        const Membership& membership, Accelerator& accelerator) {
  GroupSetup setup;
  setup.membership = membership;
  setup.accelerator = &accelerator;
  return make_process_group(std::move(communicator), std::move(setup));
}

}  // namespace anyaccel::comm
