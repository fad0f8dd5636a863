// Starts processes and makes sure that all of them end: the first that fails ends all, signals are forwarded, and no
// descendant is left.
//
// Two processes supervise the programs: the one that the user started (the guard) waits for its child (the supervisor),
// which starts them. Both adopt orphans below them, so when either is killed the other ends everything.
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
  std::string log_file;     // file for standard output and error; empty: same as ours
  std::string prefix;       // added before each line of its output; empty: output is unchanged
  bool stdin_open = false;  // gets our standard input; the others get an empty one
};

// The end of a process.
struct Ending {
  size_t index = 0;  // of the process
  int pid = 0;
  int exit_code = 0;  // 128 + signal if it was killed by a signal
  int signal = 0;
  bool out_of_memory = false;  // killed, and the control group's OOM kill count increased meanwhile
};

// "rank 3 on node2 (process 4711) was killed by signal 9 (SIGKILL); the job is ended"
std::string describe_ending(const std::string& name, const Ending& ending);

// Connects a supervisor to other launchers (control.h).
class Companion {
 public:
  virtual ~Companion() = default;
  // Adds descriptors to wait for; called before every wait, which lasts at most a second.
  virtual void wait_for(std::vector<pollfd>& descriptors) = 0;
  // Called after every wait. Returns the signal to end all processes with, 0 for none, and sets their grace period if
  // it is not SupervisorOptions::grace_ms.
  virtual int step(int& grace_ms) = 0;
  // Reports to the other launchers that a rank has ended with exit code 0. `store`: address of the job's store.
  virtual void ended(int rank, const std::string& name, const comm::StorePlace& store, int ranks) = 0;
  // Reports the first failure here. Returns false if no other process reports it to the user.
  virtual bool failed(const Ending& ending) = 0;
  // Requests that all processes get a signal and have this long to end. Returns true if the launchers that run them
  // elsewhere were told and will do it, so that the processes below us end by themselves and get no signal yet.
  virtual bool ending(int signal, int grace_ms) = 0;
  // Returns the exit code reported by another launcher; 0: none.
  virtual int exit_code() const = 0;
  // Reports that all processes have ended; `good`: with exit code 0.
  virtual void finished(bool good) = 0;
};

struct SupervisorOptions {
  // After a process failed the others get SIGTERM, and SIGKILL this much later.
  int grace_ms = 1000;
  // Grace period after an external signal, which they get too.
  int signal_grace_ms = 5000;
  Companion* companion = nullptr;
  // Called when a process has ended with exit code 0 while the job continues, with the index of the process.
  std::function<void(size_t index)> ended;
};

// Blocks until all have ended, with all their descendants. Returns the exit code: 0, the code of the first process that
// failed, 128 + signal if a signal killed it or an external signal ended the job. Call it while the process has only
// one thread. Error if processes cannot be created.
int supervise(const std::vector<ProcessSpec>& processes, const SupervisorOptions& options);

}  // namespace anyaccel::launcher
