// How the launchers of a job's hosts tell the one that a person started what happens, and are told to end.
//
// One TCP connection from each; who does not know the secret of the job is sent away. Lines: "hello SECRET HOST" first, then
// "failed CODE TEXT" when a rank failed and "bye" before a good end; the other way "signal NUMBER MILLISECONDS" (until
// SIGKILL). A connection that is lost
// without "bye", or whose host is silent for 8 s (the kernel's keep-alive probes), is a failure of that host; a launcher that
// loses the connection ends its ranks. Where no connection can be made (a firewall) the job runs without: the exit code is
// then what ssh, MPI or Slurm make of it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "launcher/job.h"
#include "launcher/supervisor.h"

namespace anyaccel::launcher {

// Listens on a port of its own on all interfaces; point() tells where. Error when there is no port.
class ControlServer final : public Companion {
 public:
  explicit ControlServer(std::string secret);
  ~ControlServer() override;
  const ControlPoint& point() const noexcept { return point_; }

  void wait_for(std::vector<pollfd>& descriptors) override;
  int step(int& grace_ms) override;
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
  void fail(int exit_code, const std::string& text);
  void tell_all(int signal, int grace_ms);

  ControlPoint point_;
  int listener_ = -1;
  std::vector<std::unique_ptr<Peer>> peers_;
  int exit_code_ = 0;
  bool ending_ = false;
  int64_t end_at_ms_ = 0;  // steady clock; 0: not yet
};

// The other side, for the launcher of one host or rank; null where point.port is 0. It also notices that whoever reads our
// output has gone. Takes 5 s at most.
std::unique_ptr<Companion> connect_to_launcher(const ControlPoint& point, const std::string& host,
                                               const std::vector<ProcessSpec>& processes);

}  // namespace anyaccel::launcher
