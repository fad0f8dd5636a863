// Passes bytes and file descriptors between the members of a group, through member 0.
//
// Member 0 listens on an abstract unix socket; its name, which nobody can guess, and a secret go through the store. A
// connection counts when its user is ours and it knows the secret. The connections stay open for later exchanges. Used
// while a group is made and when it shares a block, never by a collective's data.
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
  static constexpr size_t kMostFds = 2;
};

class Exchange {
 public:
  // Called every few milliseconds while something is waited for; throws to give up.
  using Check = std::function<void()>;

  // Connects the members; blocks. CommunicationError names who did not come or was refused. Of `membership`, names are kept
  // by reference.
  Exchange(const Membership& membership, const Check& check);

  // Takes what another member passed; its descriptors are closed when the call returns, unless it keeps them.
  using Take = std::function<void(int member, Parcel parcel)>;

  // Collective: what each member passes goes to every other, in the order of ranks. One member's descriptors are open and
  // under way at a time, whatever the number of members.
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
