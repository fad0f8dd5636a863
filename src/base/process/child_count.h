// Asking a child process, of devices above all, where the vendor's driver can only be asked by starting it: a started one does not
// survive fork(), and a probe must leave the process able to.
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace anyaccel {

struct ChildAnswer {
  std::string problem;  // why there is no answer; empty when there is one
  std::string text;
};

// Makes a child that answers with what `ask` returns, of at most 4 GiB, and ends. It prints nothing, and leaves no exit
// handler run. A child that crashes, or takes longer than `limit`, gives a problem and has been reaped when this
// returns.
ChildAnswer ask_child(const std::function<std::string()>& ask, std::chrono::milliseconds limit);

struct ChildCount {
  std::string problem;  // why there is no answer; empty when the members below were told
  int init = 0;         // what starting the driver gave
  int counted = 0;      // what counting gave, if it was started
  int count = 0;
};

// The same with a child that starts the driver and counts; `ask` sets the three numbers.
ChildCount count_in_child(const std::function<void(ChildCount& answer)>& ask, std::chrono::milliseconds limit);

}  // namespace anyaccel
