// Merges the output of several processes line by line, with a prefix before each line.
#pragma once

#include <poll.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace anyaccel::launcher {

// Reads pipes without blocking and writes whole lines to descriptors 1 and 2, never blocking either: the caller waits
// for the descriptors with poll(). A line longer than 1 MiB is written in pieces, each as a line.
class OutputLines {
 public:
  OutputLines() = default;
  ~OutputLines();
  OutputLines(const OutputLines&) = delete;
  OutputLines& operator=(const OutputLines&) = delete;

  // Adds a pipe's reading end, which is closed at the end, and the descriptor for its lines (1 or 2).
  void add(int pipe, int target, std::string prefix);
  // The descriptors to wait for.
  void wait_for(std::vector<pollfd>& descriptors) const;
  // Reads and writes as much as possible without blocking. Returns false if nothing happened.
  bool step();
  // Writes everything that is in the pipes, for at most `limit_ms`. Incomplete lines get a line end.
  void finish(int limit_ms);
  // Why lines were lost that belonged on standard output, such as a full disk; empty if none were, or nobody reads them.
  const std::string& problem() const { return problem_; }

 private:
  struct Source {
    int pipe;
    int target;
    std::string prefix;
    std::string line;
  };
  void take(Source& source, std::string_view text);
  void close_source(Source& source);
  bool read_some(Source& source);
  bool write_some(int target);

  std::vector<Source> sources_;
  std::string queues_[3];  // by descriptor
  std::string problem_;
};

}  // namespace anyaccel::launcher
