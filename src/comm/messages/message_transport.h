// Declares the interface that sends messages between the members of one group; it is implemented for Gloo and MPI.
// MessageCommunicator implements collectives on top.
#pragma once

#include <cstddef>
#include <memory>

#include "comm/wait_limit.h"

namespace anyaccel::comm {

// A lane on which the messages of one pair arrive in the order in which they were sent, independently of other lanes.
struct Lane {
  int tag = -1;       // of send() and recv(); -1: collectives
  bool bulk = false;  // long data, whose length both sides know; else frames, which may be shorter than the receive
};

// Used by one thread at a time, except interrupt(). Members are numbered as in the group. Errors are CommunicationError
// with the library's message; after one only close() may be called.
class MessageTransport {
 public:
  // A message in progress. Its memory must remain valid until wait() has returned or the transport was closed; destroy
  // a handle after either.
  class Pending {
   public:
    virtual ~Pending() = default;
    Pending(const Pending&) = delete;
    Pending& operator=(const Pending&) = delete;
    // Blocks until it is complete or `limit`, which other waits of the same operation may share, has passed. Polls the
    // group's failure watch.
    virtual void wait(WaitLimit& limit) = 0;

   protected:
    Pending() = default;
  };

  virtual ~MessageTransport() = default;
  MessageTransport(const MessageTransport&) = delete;
  MessageTransport& operator=(const MessageTransport&) = delete;

  // Start the transfer and return. Not for the member itself. At most 1 GiB.
  virtual std::unique_ptr<Pending> send(int peer, Lane lane, const void* data, size_t bytes) = 0;
  virtual std::unique_ptr<Pending> receive(int peer, Lane lane, void* data, size_t bytes) = 0;
  // The largest tag of a lane.
  virtual int largest_tag() const noexcept = 0;

  // Makes the current wait, and every later one, fail soon; any thread.
  virtual void interrupt() noexcept = 0;
  // Abandons messages in progress: their memory is no longer read or written. Peers that wait for this member fail.
  virtual void close() noexcept = 0;

 protected:
  MessageTransport() = default;
};

}  // namespace anyaccel::comm
