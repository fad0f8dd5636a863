// Makes process groups over communicators: what init_process_group() and new_group() use, and tests whose ranks are
// threads of one process (each with a group object of its own; one store and one accelerator for all).
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

// What a group knows beyond its communicator; its subgroups are made from it.
struct GroupSetup {
  Membership membership;
  std::vector<int> world_ranks;  // of each member; empty: 0, 1, ...
  std::vector<int> hosts;        // of each member, a number; equal ones share a host. Empty: one host for all.
  std::string backend;           // as InitOptions::backend
  // Whether some member's accelerator has collectives of its own, so that all of them try to join their devices.
  bool device_library = false;
  Accelerator* accelerator = nullptr;
  std::shared_ptr<CommsLog> log;  // null: nothing is logged
  // Told once of the failure that ended the group, unless it came from membership.watch. Must not throw. May be empty.
  std::function<void(const std::string&)> on_failure;
};

// The communicator for host memory that fits backend and hosts; see InitOptions::backend. Collective.
std::unique_ptr<HostCommunicator> make_communicator(const GroupSetup& setup);

// A group over `communicator`, which has the membership's rank and size, else InvalidArgument. With device_library:
// collective; UnavailableError when `backend` names the accelerator's library and it cannot serve the group.
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
