// Which of its own addresses a process shows to the other hosts of its job.
#pragma once

#include <string>

namespace anyaccel::comm {

// The numeric address from which this host reaches `peer` (a name or an address): that of the interface on the way there.
// CommunicationError when the name does not resolve or there is no way.
std::string local_address_towards(const std::string& peer);

// Whether a numeric address means this host only.
bool is_loopback(const std::string& address);

}  // namespace anyaccel::comm
