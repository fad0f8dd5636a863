// Defines heartbeat intervals and time limits of the processes of a job.
#pragma once

#include <chrono>
#include <cstdio>
#include <string>

namespace anyaccel::comm {

struct JobTimes {
  std::chrono::milliseconds beat{1000};
  std::chrono::milliseconds silence{5000};
  // A connection that has not authenticated by then is closed.
  std::chrono::milliseconds handshake{10000};
};

// Whether a thread that looks at the clock after every beat at the latest, and did not for `away`, was stopped meanwhile.
inline bool was_stopped(std::chrono::steady_clock::duration away, const JobTimes& times) {
  return away >= 2 * times.beat;
}

// "30 s", "0.5 s": for messages.
inline std::string seconds_text(std::chrono::milliseconds time) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.*f s", time.count() % 1000 == 0 ? 0 : 1,
                static_cast<double>(time.count()) / 1000);
  return text;
}

}  // namespace anyaccel::comm
