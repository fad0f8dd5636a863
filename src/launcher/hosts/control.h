// Implements the control connections: launchers on a job's hosts report to the launcher that the user started, which
// tells them when to end.
//
// Each host has one TCP connection; a client that does not know the secret of the job is disconnected. Lines: "hello
// SECRET HOST" first, then "rank N" for each of its ranks, "ended N RANKS ADDRESS PORT NAME" when one has ended with
// exit code 0 (for MPI and Slurm; the store is at ADDRESS and PORT), "failed CODE TEXT" when one, or ssh to a host, failed,
// and "bye" before a good end; the other way "signal NUMBER MILLISECONDS" (until SIGKILL). A connection that is lost without
// "bye", or whose host is silent for 8 s (the kernel's keep-alive probes), is a failure of that host; a launcher that
// loses the connection ends its ranks. If no connection can be made (a firewall), the job runs without it: the exit
// code is then that of ssh, MPI or Slurm.
//
// If no launcher reports some ranks within the time limit for joining, they were not started: the job ends with an
// error that lists them and their hosts. If they may be running behind a firewall (no launcher of another host has
// connected at all), that is a warning instead.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "launcher/plan/job_plan.h"
#include "launcher/processes/ended_ranks.h"
#include "launcher/processes/supervisor.h"

namespace anyaccel::launcher {

// Listens on a port chosen by the kernel on all interfaces; point() returns it. Error if no port is available.
class ControlServer final : public Companion {
 public:
  // `job`: the job whose ranks are expected. `others_wait`: the time limit begins with the first rank (Slurm's queue).
  ControlServer(std::string secret, const JobPlan& job, bool others_wait);
  ~ControlServer() override;
  const ControlPoint& point() const noexcept { return point_; }

  void wait_for(std::vector<pollfd>& descriptors) override;
  int step(int& grace_ms) override;
  void ended(int rank, const std::string& name, const comm::StorePlace& store, int ranks) override;
  bool failed(const Ending& ending) override;
  bool ending(int signal, int grace_ms) override;
  int exit_code() const override { return exit_code_; }
  void finished(bool) override {}

 private:
  struct Peer;
  void serve();
  void accept_peers();
  bool read_peer(Peer& peer);  // false: it is disconnected
  void take_line(Peer& peer, const std::string& line);
  void look_for_missing();
  void fail(int exit_code, const std::string& text);
  void tell_all(int signal, int grace_ms);

  ControlPoint point_;
  int listener_ = -1;
  std::vector<std::unique_ptr<Peer>> peers_;
  int exit_code_ = 0;
  bool ending_ = false;
  int64_t end_at_ms_ = 0;  // steady clock; 0: not yet

  std::string token_;
  std::vector<std::string> hosts_;  // of every rank
  std::vector<bool> came_;          // of every rank: its launcher has reported it
  bool far_ = false;                // a launcher on another machine has connected
  int limit_s_ = 0;
  int64_t missing_at_ms_ = 0;  // when unreported ranks count as missing; 0: not yet, or never
  std::unique_ptr<EndedRanks> ended_;
};

// Creates the other side, for the launcher of one host or rank; null if point.port is 0. It also detects that the
// reader of our output has closed it. `ranks`: the numbers of `processes`. Takes 5 s at most.
std::unique_ptr<Companion> connect_to_launcher(const ControlPoint& point, const std::string& host,
                                               const std::vector<int>& ranks,
                                               const std::vector<ProcessSpec>& processes);

// Reports once that a host has failed, for a process without ranks. Does nothing if the launcher cannot be reached.
void report_failure(const ControlPoint& point, const std::string& host, int exit_code, const std::string& text);

}  // namespace anyaccel::launcher
