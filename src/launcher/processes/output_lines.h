// Output of several processes with a prefix before each line, so that lines never mix.
#pragma once

#include <poll.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace anyaccel::launcher {

// Reads pipes without blocking and writes whole lines to descriptors 1 and 2, never blocking either: the caller waits for
// the descriptors with poll(). A line longer than 1 MiB goes out in pieces, each a line.
class OutputLines {
 public:
  OutputLines() = default;
  ~OutputLines();
  OutputLines(const OutputLines&) = delete;
  OutputLines& operator=(const OutputLines&) = delete;

  // A pipe's reading end, which is closed in the end, and where its lines go (1 or 2).
  void add(int pipe, int target, std::string prefix);
  // What to wait for.
  void wait_for(std::vector<pollfd>& descriptors) const;
  // Reads and writes what can be. False when nothing happened.
  bool step();
  // Until everything is written that is in the pipes, or `limit_ms` passed. Unfinished lines get an end.
  void finish(int limit_ms);

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
};

}  // namespace anyaccel::launcher
