// How the launchers of a job's hosts tell the one that a person started what happens, and are told to end.
//
// One TCP connection from each; who does not know the secret of the job is sent away. Lines: "hello SECRET HOST" first, then
// "rank N" for each of its ranks, "ended N RANKS ADDRESS PORT NAME" when one has ended with exit code 0 (for MPI and Slurm;
// the store is at ADDRESS and PORT), "failed CODE TEXT" when one failed and "bye" before a good end; the other way "signal
// NUMBER MILLISECONDS" (until SIGKILL). A connection that is lost without "bye", or whose host is silent for 8 s (the kernel's
// keep-alive probes), is a failure of that host; a launcher that loses the connection ends its ranks. Where no connection can
// be made (a firewall) the job runs without: the exit code is then what ssh, MPI or Slurm make of it.
//
// Ranks of which no launcher has told within the time for joining were not started: the job ends with their numbers and hosts.
// Where they may be running behind a firewall (no launcher of another host has come at all) that is a warning.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "launcher/plan/job_plan.h"
#include "launcher/processes/ended_ranks.h"
#include "launcher/processes/supervisor.h"

namespace anyaccel::launcher {

// Listens on a port of its own on all interfaces; point() tells where. Error when there is no port.
class ControlServer final : public Companion {
 public:
  // `job`: whose ranks are to come. `others_wait`: the time for that begins with the first (Slurm's queue).
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
  bool read_peer(Peer& peer);  // false: it is gone
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
  std::vector<bool> came_;          // every rank: its launcher has told of it
  bool far_ = false;                // a launcher on another machine has come
  int limit_s_ = 0;
  int64_t missing_at_ms_ = 0;  // when those that have not come are missing; 0: not yet, or never
  std::unique_ptr<EndedRanks> ended_;
};

// The other side, for the launcher of one host or rank; null where point.port is 0. It also notices that whoever reads our
// output has gone. `ranks`: the numbers of `processes`. Takes 5 s at most.
std::unique_ptr<Companion> connect_to_launcher(const ControlPoint& point, const std::string& host,
                                               const std::vector<int>& ranks,
                                               const std::vector<ProcessSpec>& processes);

}  // namespace anyaccel::launcher
