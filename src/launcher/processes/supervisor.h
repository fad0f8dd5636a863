// Starts processes and sees to their end: the first that fails ends all, signals are passed on, and no descendant is left.
//
// Two processes stand above the programs: the one that a person started (the guard) waits for a child of its own (the
// supervisor), which starts them. Both adopt what is orphaned below them, so when either is killed the other ends everything.
#pragma once

#include <poll.h>

#include <functional>
#include <string>
#include <vector>

#include "comm/store/store_report.h"
#include "launcher/plan/binding.h"

namespace anyaccel::launcher {

struct ProcessSpec {
  std::string name;  // "rank 3 on node2", for messages
  std::string file;  // the program's file
  std::vector<std::string> argv;
  std::vector<std::string> environment;  // "NAME=value", all of it
  Binding binding;
  std::string log_file;     // standard output and error go there; empty: where ours go
  std::string prefix;       // stands before each line of its output; empty: output is not touched
  bool stdin_open = false;  // it reads our standard input; the others an empty one
};

// How a process ended.
struct Ending {
  size_t index = 0;  // of the process
  int pid = 0;
  int exit_code = 0;  // 128 + signal when it was killed by one
  int signal = 0;
  bool out_of_memory = false;  // killed while the control group's count of such kills rose
};

// "rank 3 on node2 (process 4711) was killed by signal 9 (SIGKILL); the job is ended"
std::string describe_ending(const std::string& name, const Ending& ending);

// What else a supervisor listens to, and tells (control.h).
class Companion {
 public:
  virtual ~Companion() = default;
  // Adds what to wait for; before every wait, which lasts a second at most.
  virtual void wait_for(std::vector<pollfd>& descriptors) = 0;
  // After every wait. Returns the signal to end all processes with, 0 for none, and sets how long they have then where that
  // is not SupervisorOptions::grace_ms.
  virtual int step(int& grace_ms) = 0;
  // A rank has ended with exit code 0, and whoever runs the others is to know it. `store`: where ranks meet.
  virtual void ended(int rank, const std::string& name, const comm::StorePlace& store, int ranks) = 0;
  // The first failure here. False: nobody else tells the person.
  virtual bool failed(const Ending& ending) = 0;
  // All processes are to get a signal and have so long to end. True: those who run them elsewhere were told and will see to
  // it, so what is below us ends by itself and gets no signal yet.
  virtual bool ending(int signal, int grace_ms) = 0;
  // The exit code that was learned from elsewhere; 0: none.
  virtual int exit_code() const = 0;
  // All have ended and nothing is left; `good`: with exit code 0.
  virtual void finished(bool good) = 0;
};

struct SupervisorOptions {
  // After a process failed the others get SIGTERM, and SIGKILL this much later.
  int grace_ms = 1000;
  // After a signal from outside, which they get too.
  int signal_grace_ms = 5000;
  Companion* companion = nullptr;
  // A process has ended with exit code 0 while the job goes on; the index is that of the process.
  std::function<void(size_t index)> ended;
};

// Blocks until all have ended, with everything they started. Returns the exit code: 0, the code of the first process that
// failed, 128 + signal when it was killed by one or when a signal from outside ended the job. Call it while the process
// has one thread. Error when processes cannot be made.
int supervise(const std::vector<ProcessSpec>& processes, const SupervisorOptions& options);

}  // namespace anyaccel::launcher
