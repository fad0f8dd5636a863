// What carries messages between the members of one group: the part in which Gloo and MPI differ. MessageCommunicator makes
// collectives of it.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

namespace anyaccel::comm {

// A lane on which the messages of one pair arrive in the order in which they were sent, and wait for no other lane.
struct Lane {
  int tag = -1;       // of send() and recv(); -1: collectives
  bool bulk = false;  // long parts, whose length both sides know; else frames, which may be shorter than the receive
};

// Used by one thread at a time, but for interrupt(). Members are numbered as in the group. Errors are CommunicationError
// with what the library said; after one only close() may follow.
class MessageTransport {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  // A message on its way. Its memory stays as it is until wait() has returned or the transport was closed; a handle is
  // destroyed after either.
  class Pending {
   public:
    virtual ~Pending() = default;
    Pending(const Pending&) = delete;
    Pending& operator=(const Pending&) = delete;
    // Blocks until it is complete. Polls the group's failure watch.
    virtual void wait(Deadline deadline) = 0;

   protected:
    Pending() = default;
  };

  virtual ~MessageTransport() = default;
  MessageTransport(const MessageTransport&) = delete;
  MessageTransport& operator=(const MessageTransport&) = delete;

  // Start and return. Not to the member itself. At most 1 GiB.
  virtual std::unique_ptr<Pending> send(int peer, Lane lane, const void* data, size_t bytes) = 0;
  virtual std::unique_ptr<Pending> receive(int peer, Lane lane, void* data, size_t bytes) = 0;
  // The largest tag of a lane.
  virtual int largest_tag() const noexcept = 0;

  // Makes the wait that is under way, and every later one, fail soon; any thread.
  virtual void interrupt() noexcept = 0;
  // Gives up what is on its way: no memory of it is read or written any more. Peers that wait for this member fail.
  virtual void close() noexcept = 0;

 protected:
  MessageTransport() = default;
};

}  // namespace anyaccel::comm
