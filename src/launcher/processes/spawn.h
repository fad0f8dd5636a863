// Starts one program; the child process itself sets its cores, memory, files and signals.
#pragma once

#include <string>

#include "launcher/processes/supervisor.h"

namespace anyaccel::launcher {

// The ends of pipes that a child writes its output to; -1: none, it uses our standard output and error.
struct ChildOutput {
  int out = -1;
  int err = -1;
};

struct Child {
  int pid = -1;
  int status = -1;  // pipe: see finish_start()
};

// Forks a child that becomes the program, in a separate process group (unless it reads a terminal), with default signal
// handling; it is killed when this process ends. Does not wait until it runs. Error if no child can be created.
Child start_process(const ProcessSpec& process, const ChildOutput& output);

// Waits until the program runs. Error says what failed in the child, which has then ended; a memory policy that the
// kernel rejects (as in some containers) is a warning. Closes `child.status`.
void finish_start(const ProcessSpec& process, Child& child);

}  // namespace anyaccel::launcher
