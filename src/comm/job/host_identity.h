// Identifies the host of a process: processes on one host can share memory and reach each other's loopback.
#pragma once

#include <string>

namespace anyaccel::comm {

// Equal for processes of one running system with the same host name (UTS namespace) and the same network namespace, so
// that namespaces of one machine count as hosts. Only meaningful for comparison.
std::string host_identity();
// gethostname(), for messages.
std::string host_name();

}  // namespace anyaccel::comm
