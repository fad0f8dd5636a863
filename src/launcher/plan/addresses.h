// Looks up names, addresses and ports of hosts.
#pragma once

#include <string>
#include <vector>

namespace anyaccel::launcher {

// Returns whether a TCP port of this host is free; returns a free one, if possible of those that the kernel gives to nobody who does
// not ask for them. Error if there is none.
bool port_is_free(int port);
int free_port();

// The addresses of this host, without loopback addresses; IPv4 first.
std::vector<std::string> own_addresses();

// Returns the address of a name, as text; empty if it cannot be resolved. May take as long as the resolver does.
std::string resolve(const std::string& name);

// Returns whether an address is a loopback address: 127.x.y.z or ::1.
bool is_loopback(const std::string& address);

// Returns the local address on the route to `address`; empty if there is no route.
std::string source_address(const std::string& address);

}  // namespace anyaccel::launcher
