// Queries a vendor's driver (usually for its number of devices) in a child process if it must be started for that: a
// started driver does not survive fork(), and after a probe the process must still be able to fork.
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace anyaccel {

struct ChildAnswer {
  std::string problem;  // why there is no answer; empty if there is one
  std::string text;
};

// Creates a child that answers with the result of `ask`, of at most 4 GiB, and ends. It prints nothing and runs no exit
// handlers. If the child crashes, or takes longer than `limit`, the answer has a problem; the child has been reaped
// when this returns.
ChildAnswer ask_child(const std::function<std::string()>& ask, std::chrono::milliseconds limit);

struct ChildCount {
  std::string problem;  // why there is no answer; empty if the members below are set
  int init = 0;         // the result of starting the driver
  int counted = 0;      // the result of counting, if it was started
  int count = 0;
};

// Does the same with a child that starts the driver and counts devices; `ask` sets the three numbers.
ChildCount count_in_child(const std::function<void(ChildCount& answer)>& ask, std::chrono::milliseconds limit);

}  // namespace anyaccel
