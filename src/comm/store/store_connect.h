// Opens a connection to the job's store, with mutual authentication by the job's token.
#pragma once

#include <chrono>
#include <string>

#include "comm/store/socket.h"

namespace anyaccel::comm {

// Retries until `timeout` has passed. CommunicationError: nothing answers, the token was rejected, or the peer is not a
// store.
FileDescriptor connect_to_store(const std::string& address, int port, const std::string& token,
                                std::chrono::milliseconds timeout);

}  // namespace anyaccel::comm
