// Passes bytes and file descriptors between the members of a group, through member 0.
//
// Member 0 listens on an abstract unix socket; its unguessable name and a secret are passed through the store. A
// connection is accepted if its user is ours and it knows the secret. The connections stay open for later exchanges.
// Used when a group is created and when it shares a block, never for a collective's data.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/host_communicator.h"
#include "comm/store/socket.h"

namespace anyaccel::comm::shm {

struct Parcel {
  std::string bytes;  // at most kMostBytes
  std::vector<FileDescriptor> fds;

  static constexpr size_t kMostBytes = 4096;
  static constexpr size_t kMostFds = 3;
};

class Exchange {
 public:
  // Called every few milliseconds during waits; throws to give up.
  using Check = std::function<void()>;

  // Connects the members; blocks. CommunicationError names the members that did not connect or were rejected. The names
  // in `membership` are kept by reference.
  Exchange(const Membership& membership, const Check& check);

  // Receives another member's parcel; its descriptors are closed when the call returns, unless it keeps them.
  using Take = std::function<void(int member, Parcel parcel)>;

  // Collective: sends each member's parcel to every other, in rank order. Only one member's descriptors are in flight
  // at a time, whatever the number of members.
  void all_gather(Parcel own, const Check& check, const Take& take);

  // Random and the same on every member.
  const std::string& secret() const noexcept { return secret_; }

 private:
  void listen_and_accept(const Membership& membership, const Check& check);
  void connect_to_first(const Membership& membership, const Check& check);
  void send_parcel(int member, const Parcel& parcel, const Check& check);
  Parcel receive_parcel(int member, const Check& check);

  int rank_;
  int size_;
  const std::vector<std::string>& names_;
  std::string secret_;
  std::vector<FileDescriptor> sockets_;  // member 0: by rank; others: [0] alone
};

}  // namespace anyaccel::comm::shm
