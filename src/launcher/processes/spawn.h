// Starts one program with its cores, memory, files and signals set in the child itself.
#pragma once

#include <string>

#include "launcher/processes/supervisor.h"

namespace anyaccel::launcher {

// The ends of pipes that a child writes its output to; -1: it has none and writes where we do.
struct ChildOutput {
  int out = -1;
  int err = -1;
};

struct Child {
  int pid = -1;
  int status = -1;  // pipe: see finish_start()
};

// Forks a child that becomes the program, in a process group of its own (unless it reads a terminal), killed when this
// process ends, with default signals. Does not wait until it runs. Error when there can be no child.
Child start_process(const ProcessSpec& process, const ChildOutput& output);

// Waits until the program runs. Error that says what failed in the child, which is gone then; a memory policy that the
// kernel refuses (as in some containers) is a warning. Closes `child.status`.
void finish_start(const ProcessSpec& process, Child& child);

}  // namespace anyaccel::launcher
