// Finds the local address that other hosts of the job can reach.
#pragma once

#include <string>

namespace anyaccel::comm {

// Returns the numeric address from which this host reaches `peer` (a name or an address): that of the interface on the
// route. CommunicationError if the name does not resolve or there is no route.
std::string local_address_towards(const std::string& peer);

// Returns whether a numeric address is a loopback address.
bool is_loopback(const std::string& address);

}  // namespace anyaccel::comm
