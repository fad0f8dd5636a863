// Opens a connection to the job's store and proves both ways that the token is known.
#pragma once

#include <chrono>
#include <string>

#include "comm/store/socket.h"

namespace anyaccel::comm {

// Tries again until `timeout` has passed. CommunicationError: nothing answers there, the token was refused, or what
// answers is no store.
FileDescriptor connect_to_store(const std::string& address, int port, const std::string& token,
                                std::chrono::milliseconds timeout);

}  // namespace anyaccel::comm
