// Sends and receives lines of text over a TCP connection, without blocking.
#pragma once

#include <string>

namespace anyaccel::launcher {

class ControlLines {
 public:
  // Owns the connected socket; probes are sent over it while it is silent, and it ends when they stay unanswered for 8
  // s.
  explicit ControlLines(int descriptor);
  ~ControlLines();
  ControlLines(const ControlLines&) = delete;
  ControlLines& operator=(const ControlLines&) = delete;

  int descriptor() const noexcept { return descriptor_; }
  // Sends the line, or closes the connection: lines are short, and a peer that accepts none has ended.
  void send(const std::string& line);
  // Reads available data. Returns false if the connection has ended; end_reason() says why.
  bool receive();
  // Returns the next complete line.
  bool next(std::string& line);
  const std::string& end_reason() const noexcept { return reason_; }
  // Returns whether both ends have the same address: the peer is on this machine.
  bool same_machine() const noexcept;

 private:
  int descriptor_;
  std::string text_;
  std::string reason_;
};

}  // namespace anyaccel::launcher
