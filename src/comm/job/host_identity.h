// Which processes share a host: those that can share memory and see each other's loopback.
#pragma once

#include <string>

namespace anyaccel::comm {

// Equal for processes of one running system with the same host name (UTS namespace) and the same network namespace, so
// that namespaces of one machine count as hosts. Of no meaning beyond comparison.
std::string host_identity();
// gethostname(), for messages.
std::string host_name();

}  // namespace anyaccel::comm
