// Starts processes and makes sure that all of them end.
#include "launcher/processes/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>

#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "launcher/processes/memory_kills.h"
#include "launcher/processes/output_lines.h"
#include "launcher/processes/process_tree.h"
#include "launcher/processes/signals.h"
#include "launcher/processes/spawn.h"

namespace anyaccel::launcher {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A process that lost its peer may be reaped before the peer is: the error must name the peer.
constexpr milliseconds settle_time{30};
// The interval for checking the process tree while it ends: orphans that we adopted are reaped, other processes end
// without notification.
constexpr milliseconds ending_pause{5};
constexpr int kill_limit_ms = 10000;
constexpr int flush_limit_ms = 60000;

class Supervisor {
 public:
  Supervisor(const std::vector<ProcessSpec>& processes, const SupervisorOptions& options, int signals, pid_t guard)
      : processes_(processes),
        options_(options),
        signals_(signals),
        guard_(guard),
        kills_before_(count_memory_kills()) {}

  int run() {
    try {
      start();
    } catch (const std::exception& error) {
      log_error(error.what());
      kill_descendants(kill_limit_ms);
      return 1;
    }
    while (!done()) {
      wait();
      take_signals();
      reap();
      output_.step();
      if (options_.companion && phase_ != Phase::Ending) {
        int grace_ms = options_.grace_ms;
        if (const int signal = options_.companion->step(grace_ms)) end(signal, grace_ms);
      }
    }
    if (!kill_descendants(kill_limit_ms)) {
      std::string pids;
      for (const int pid : descendants(getpid())) pids += " " + std::to_string(pid);
      log_error("these processes of the job do not end:" + pids);
    }
    output_.finish(flush_limit_ms);
    if (!output_.problem().empty()) log_error("writing to standard output failed: " + output_.problem());
    if (options_.companion) options_.companion->finished(exit_code() == 0);
    return exit_code();
  }

 private:
  enum class Phase { Running, Settling, Ending };

  void start() {
    for (const ProcessSpec& process : processes_) {
      ChildOutput ends;
      if (!process.prefix.empty()) {
        ends.out = add_pipe(process, 1);
        ends.err = add_pipe(process, 2);
      }
      children_.push_back(start_process(process, ends));
      ++running_;
      if (ends.out >= 0) close(ends.out);
      if (ends.err >= 0) close(ends.err);
    }
    for (size_t i = 0; i < children_.size(); ++i) {
      finish_start(processes_[i], children_[i]);
      log_debug(processes_[i].name + ": pid " + std::to_string(children_[i].pid) + ", " +
                describe(processes_[i].binding));
    }
  }

  int add_pipe(const ProcessSpec& process, int target) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw Error(process.name + ": no pipe: " + std::strerror(errno));
    output_.add(ends[0], target, process.prefix);
    return ends[1];
  }

  bool done() {
    if (running_ > 0 && phase_ != Phase::Ending) return false;
    if (phase_ == Phase::Settling) return false;
    // All ranks have ended by themselves; processes that they left behind have not.
    if (descendants(getpid()).empty()) return true;
    if (phase_ == Phase::Running) end(SIGTERM, options_.grace_ms);
    if (Clock::now() < deadline_) return false;
    if (!others_end_it_) return true;
    others_end_it_ = false;  // the others have not ended it
    deadline_ = Clock::now() + milliseconds(options_.grace_ms);
    signal_descendants(getpid(), SIGTERM);
    return false;
  }

  void wait() {
    std::vector<pollfd> descriptors = {{signals_, POLLIN, 0}};
    output_.wait_for(descriptors);
    if (options_.companion) options_.companion->wait_for(descriptors);
    milliseconds time{-1};
    if (phase_ == Phase::Ending) time = ending_pause;
    if (phase_ == Phase::Settling) {
      time = std::max(milliseconds(0),
                      std::chrono::duration_cast<milliseconds>(deadline_ - Clock::now()) + milliseconds(1));
    }
    if (options_.companion && time.count() < 0) time = milliseconds(1000);
    poll(descriptors.data(), descriptors.size(), static_cast<int>(time.count()));
  }

  void take_signals() {
    signalfd_siginfo info{};
    while (read(signals_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal == SIGCHLD) continue;
      if (getppid() != guard_) {  // the guard has ended: no process waits for us
        kill_descendants(kill_limit_ms);
        _exit(128 + SIGKILL);
      }
      if (!outside_signal_) outside_signal_ = signal;
      if (phase_ == Phase::Ending) {
        deadline_ = Clock::now();  // a second signal: kill at once
        others_end_it_ = false;
        continue;
      }
      log_debug(signal_name(signal) + " received");
      end(signal, options_.signal_grace_ms);
    }
  }

  void reap() {
    int status = 0;
    for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      const auto child =
          std::find_if(children_.begin(), children_.end(), [pid](const Child& c) { return c.pid == pid; });
      if (child == children_.end()) continue;  // an orphan that we adopted
      child->pid = -1;
      --running_;
      ended(static_cast<size_t>(child - children_.begin()), static_cast<int>(pid), status);
    }
    if (phase_ == Phase::Settling && Clock::now() >= deadline_) name_failure();
  }

  void ended(size_t index, int pid, int status) {
    Ending ending{index, pid, 0, 0, false};
    if (WIFSIGNALED(status)) {
      ending.signal = WTERMSIG(status);
      ending.exit_code = 128 + ending.signal;
    } else {
      ending.exit_code = WEXITSTATUS(status);
    }
    if (ending.exit_code == 0 && phase_ == Phase::Running && options_.ended) options_.ended(index);
    if (phase_ == Phase::Ending || ending.exit_code == 0) return;
    if (!has_failure_ || (failure_.signal == 0 && ending.signal != 0)) failure_ = ending;
    has_failure_ = true;
    if (phase_ == Phase::Running) {
      phase_ = Phase::Settling;
      deadline_ = Clock::now() + settle_time;
    }
    if (ending.signal != 0) deadline_ = Clock::now();  // it did not fail because of another process
  }

  void name_failure() {
    failure_.out_of_memory = failure_.signal == SIGKILL && count_memory_kills() > kills_before_;
    const bool told = options_.companion && options_.companion->failed(failure_);
    if (!told) log_error(describe_ending(processes_[failure_.index].name, failure_));
    end(SIGTERM, options_.grace_ms);
  }

  // Everything gets the signal and, after `grace_ms`, SIGKILL.
  void end(int signal, int grace_ms) {
    phase_ = Phase::Ending;
    deadline_ = Clock::now() + milliseconds(grace_ms);
    others_end_it_ = options_.companion && options_.companion->ending(signal, grace_ms);
    if (!others_end_it_) signal_descendants(getpid(), signal);
  }

  int exit_code() const {
    if (options_.companion && options_.companion->exit_code()) return options_.companion->exit_code();
    if (has_failure_) return failure_.exit_code;
    if (outside_signal_) return 128 + outside_signal_;
    return output_.problem().empty() ? 0 : 1;
  }

  const std::vector<ProcessSpec>& processes_;
  const SupervisorOptions& options_;
  int signals_;  // signalfd
  pid_t guard_;
  int64_t kills_before_;
  std::vector<Child> children_;
  int running_ = 0;
  OutputLines output_;
  Phase phase_ = Phase::Running;
  Clock::time_point deadline_;
  bool has_failure_ = false;
  Ending failure_;
  int outside_signal_ = 0;
  bool others_end_it_ = false;
};

// Waits for the supervisor and passes signals on to it. If it was killed, we adopt its orphans.
int guard(pid_t supervisor, int signals) {
  while (true) {
    // Threads that a vendor's runtime has started here do not block SIGCHLD, and one of them may receive and ignore it:
    // therefore the supervisor is also polled without a signal.
    constexpr int longest_wait_ms = 500;
    pollfd entry = {signals, POLLIN, 0};
    poll(&entry, 1, longest_wait_ms);
    signalfd_siginfo info{};
    if (read(signals, &info, sizeof info) == static_cast<ssize_t>(sizeof info) && info.ssi_signo != SIGCHLD) {
      // Signals from the terminal's keys also reach the supervisor, which is in our group. A terminal that is closed tells
      // the leader of its session alone.
      const bool closed = info.ssi_signo == SIGHUP && getsid(0) == getpid();
      if (info.ssi_code != SI_KERNEL || closed) kill(supervisor, static_cast<int>(info.ssi_signo));
      continue;
    }
    int status = 0;
    for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      if (pid != supervisor) continue;
      kill_descendants(kill_limit_ms);
      if (WIFEXITED(status)) return WEXITSTATUS(status);
      log_error("the launcher's own process was killed by " + signal_name(WTERMSIG(status)) + "; the job was ended");
      return 128 + WTERMSIG(status);
    }
  }
}

}  // namespace

std::string describe_ending(const std::string& name, const Ending& ending) {
  std::string text = name + " (process " + std::to_string(ending.pid) + ")";
  if (ending.signal) {
    text += " was killed by " + signal_name(ending.signal);
    if (ending.out_of_memory) text += ", killed for memory: the kernel counted such a kill in its control group";
  } else {
    text += " exited with code " + std::to_string(ending.exit_code);
  }
  return text + "; the job is ended";
}

int supervise(const std::vector<ProcessSpec>& processes, const SupervisorOptions& options) {
  if (!processes_are_listed()) {
    throw UnavailableError(
        "the launcher finds the processes of a job in /proc, which is not mounted here, or is that of another PID "
        "namespace; mount it: mount -t proc proc /proc");
  }
  // From here on we adopt orphans below us.
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) throw Error("orphaned processes cannot be adopted on this system");
  const SignalQueue queue;
  const pid_t guard_pid = getpid();
  const pid_t pid = fork();
  if (pid < 0) throw Error(std::string("no process can be made: ") + std::strerror(errno));
  if (pid > 0) return guard(pid, queue.descriptor());
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != guard_pid) _exit(128 + SIGKILL);
  _exit(Supervisor(processes, options, queue.descriptor(), guard_pid).run());
}

}  // namespace anyaccel::launcher
