// Joins the members of a group to a communicator of their devices: through the group's store, they check that all of
// them can join, agree on an id, join, and check that all of them did.
#pragma once

#include <string>

#include "anyaccel/accelerator.h"
#include "comm/host_communicator.h"

struct aa_comm;

namespace anyaccel::comm {

struct DeviceJoin {
  std::string library;      // "nccl"
  std::string version;      // "2.28.9"
  aa_comm* comm = nullptr;  // null: the library cannot serve the group, on any member
  std::string why;          // the reason why it cannot
};

// Collective. `access` is that of this member's device. CommunicationError if a member does not join.
DeviceJoin join_devices(const CollectivesAccess& access, const Membership& membership);

}  // namespace anyaccel::comm
