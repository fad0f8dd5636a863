// How often the processes of a job tell each other that they are there, and when silence is a failure.
#pragma once

#include <chrono>

namespace anyaccel::comm {

struct JobTimes {
  std::chrono::milliseconds beat{1000};
  std::chrono::milliseconds silence{5000};
  // A connection that has not proved by then that it belongs to the job is closed.
  std::chrono::milliseconds handshake{10000};
};

}  // namespace anyaccel::comm
