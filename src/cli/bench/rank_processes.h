// Runs a small job of this program on this host: ranks bound to cores, which read commands line by line.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace anyaccel::cli::bench {

class RankProcesses {
 public:
  // Starts this program with `arguments` once for each element of `cores`, which lists the cores of that rank, with the
  // environment that comm::init_process_group() reads. Does not wait for them. Error when it cannot.
  RankProcesses(const std::vector<std::vector<int>>& cores, const std::vector<std::string>& arguments);
  // Ends the ranks by closing their input, or after five seconds with a signal.
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  // Sends every rank the line `command` and returns the line that each answers, by rank. Blocks. Error if a rank has
  // ended; its own message is on standard error.
  std::vector<std::string> ask(const std::string& command);

 private:
  struct Process {
    pid_t pid = -1;
    int commands = -1;  // the end of a pipe that is written to
    int answers = -1;
  };
  void end();
  void start(int rank, const std::vector<int>& cores, const std::vector<std::string>& arguments,
             const std::vector<std::string>& environment);

  std::vector<Process> processes_;
};

}  // namespace anyaccel::cli::bench
