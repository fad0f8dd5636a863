// Names, addresses and ports of hosts.
#pragma once

#include <string>
#include <vector>

namespace anyaccel::launcher {

// Whether nothing listens at a TCP port of this host; a free one, chosen by the kernel. Error when there is none.
bool port_is_free(int port);
int free_port();

// The addresses of this host, without those of the host to itself; IPv4 first.
std::vector<std::string> own_addresses();

// The address that a name stands for, as text; empty when it stands for none. May take as long as the resolver does.
std::string resolve(const std::string& name);

// Whether an address is a host's own to itself: 127.x.y.z or ::1.
bool is_loopback(const std::string& address);

// The address of this host on the way to `address`; empty when there is no way.
std::string source_address(const std::string& address);

}  // namespace anyaccel::launcher
