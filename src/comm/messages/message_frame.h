// Defines the header of every message.
#pragma once

#include "comm/messages/message_communicator.h"

namespace anyaccel::comm {

struct MessageCommunicator::Frame {
  // A message of up to this many bytes travels inside the frame. 16 KiB is a row of 4096 fp32 values, which a decode
  // step of a large model reduces.
  static constexpr size_t kInline = size_t{16} << 10;

  Call call;
  Call caller;         // of which the call is a part; see HostCommunicator::set_caller
  uint64_t bytes = 0;  // of the whole message
  std::byte payload[kInline] = {};
};

}  // namespace anyaccel::comm
