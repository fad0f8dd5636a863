// Passes bytes and file descriptors between the members of a group, through member 0.
#include "comm/shared_memory/exchange.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "anyaccel/error.h"
#include "base/files/open_files.h"

namespace anyaccel::comm::shm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kKey[] = "shared_memory";
constexpr int kSliceMs = 5;
constexpr uint32_t kVersion = 2;
constexpr size_t kSecretBytes = 32;  // hexadecimal digits

// The first message of a connection.
struct Hello {
  uint32_t version;
  int32_t rank;
  int32_t size;
  char secret[kSecretBytes];
};

std::string system_error(const std::string& what) { return what + ": " + system_error_text(errno); }

std::string random_hex() {
  unsigned char bytes[kSecretBytes / 2];
  if (getrandom(bytes, sizeof(bytes), 0) != static_cast<ssize_t>(sizeof(bytes))) {
    throw CommunicationError(system_error("the system gave no random numbers for a group's secret"));
  }
  std::string text;
  for (const unsigned char byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

FileDescriptor make_socket() {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) throw CommunicationError(system_error("cannot make a unix socket"));
  return socket;
}

// Returns an abstract address, a name without a file: it disappears with the socket.
std::pair<sockaddr_un, socklen_t> abstract_address(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::copy(name.begin(), name.end(), address.sun_path + 1);
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

// Returns whether the other end is a process of our user.
bool is_ours(int socket) noexcept {
  ucred peer{};
  socklen_t length = sizeof(peer);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

void wait_for(int fd, short events, const Exchange::Check& check) {
  pollfd entry{fd, events, 0};
  while (poll(&entry, 1, kSliceMs) <= 0) check();
}

}  // namespace

Exchange::Exchange(const Membership& membership, const Check& check)
    : rank_(membership.rank), size_(membership.size), names_(membership.names) {
  // Descriptors needed: one connection (member 0 has one to every member, and a listener), this member's parcel and that of
  // one other member during the exchange, this process's tensors, and the processes of all others.
  const auto others = static_cast<size_t>(size_ - 1);
  const std::string room = make_room_for_files((rank_ == 0 ? others + 1 : 1) + 1 + 2 * Parcel::kMostFds + others);
  if (!room.empty()) {
    const std::string with = others == 0   ? "for the group of one rank"
                             : others == 1 ? "with the other rank of this host"
                                           : "with the " + std::to_string(others) + " other ranks of this host";
    throw CommunicationError("no shared memory can be made " + with + ": " + room);
  }
  if (size_ == 1) {
    secret_ = random_hex();
  } else if (rank_ == 0) {
    listen_and_accept(membership, check);
  } else {
    connect_to_first(membership, check);
  }
}

void Exchange::listen_and_accept(const Membership& membership, const Check& check) {
  secret_ = random_hex();
  const std::string name = "anyaccel-" + random_hex();
  const FileDescriptor listener = make_socket();
  const auto [address, length] = abstract_address(name);
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      listen(listener.get(), size_) != 0) {
    throw CommunicationError(system_error("cannot listen for the group's members on a unix socket"));
  }
  membership.store->set(kKey, name + ' ' + secret_);
  sockets_.resize(static_cast<size_t>(size_));
  std::vector<FileDescriptor> unknown;  // connections that have not identified themselves
  int missing = size_ - 1;
  const auto deadline = Clock::now() + membership.timeout;
  while (missing > 0) {
    check();
    if (Clock::now() > deadline) {
      std::string absent;
      for (int r = 1; r < size_; ++r) {
        if (!sockets_[static_cast<size_t>(r)]) absent += (absent.empty() ? "" : ", ") + names_[static_cast<size_t>(r)];
      }
      throw CommunicationError("did not come to the group's shared memory within " +
                                   std::to_string(membership.timeout.count()) + " ms: " + absent,
                               AA_DEADLINE_EXCEEDED);
    }
    std::vector<pollfd> entries{{listener.get(), POLLIN, 0}};
    for (const FileDescriptor& socket : unknown) entries.push_back({socket.get(), POLLIN, 0});
    if (poll(entries.data(), entries.size(), kSliceMs) <= 0) continue;
    for (size_t i = unknown.size(); i-- > 0;) {
      if (entries[i + 1].revents == 0) continue;
      FileDescriptor socket = std::move(unknown[i]);
      unknown.erase(unknown.begin() + static_cast<std::ptrdiff_t>(i));
      Hello hello{};
      const ssize_t got = recv(socket.get(), &hello, sizeof(hello), 0);
      if (got != static_cast<ssize_t>(sizeof(hello)) || !is_ours(socket.get()) ||
          secret_.compare(0, kSecretBytes, hello.secret, kSecretBytes) != 0) {
        continue;  // an unrelated process
      }
      if (hello.version != kVersion || hello.size != size_ || hello.rank <= 0 || hello.rank >= size_ ||
          sockets_[static_cast<size_t>(hello.rank)]) {
        throw CommunicationError("a member of the group's shared memory says it is rank " + std::to_string(hello.rank) +
                                 " of " + std::to_string(hello.size) + ", version " + std::to_string(hello.version) +
                                 "; expected is a rank of " + std::to_string(size_) +
                                 " that is not there yet, version " + std::to_string(kVersion));
      }
      sockets_[static_cast<size_t>(hello.rank)] = std::move(socket);
      --missing;
    }
    if (entries[0].revents != 0) {
      FileDescriptor socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket && errno == EMFILE) {
        throw CommunicationError(system_error("the group's members cannot be connected with each other"));
      }
      if (socket) unknown.push_back(std::move(socket));
    }
  }
  membership.store->remove(kKey);
}

void Exchange::connect_to_first(const Membership& membership, const Check& check) {
  const std::string value = membership.store->get(kKey, membership.timeout);
  const size_t space = value.find(' ');
  sockaddr_un probe{};
  if (space == std::string::npos || space + 1 >= sizeof(probe.sun_path) || value.size() - space - 1 != kSecretBytes) {
    throw CommunicationError("the store's entry of " + names_[0] +
                             " for the group's shared memory is damaged; do all ranks run the same version?");
  }
  secret_ = value.substr(space + 1);
  sockets_.push_back(make_socket());
  const int socket = sockets_[0].get();
  const auto [address, length] = abstract_address(value.substr(0, space));
  while (connect(socket, reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    if (errno != EAGAIN && errno != EINTR) {
      throw CommunicationError(system_error("cannot reach " + names_[0] +
                                            " by a unix socket; are all ranks in one network namespace of one host?"));
    }
    check();  // the queue of connections is full
    poll(nullptr, 0, 1);
  }
  if (!is_ours(socket)) throw CommunicationError("the unix socket of " + names_[0] + " belongs to another user");
  Hello hello{.version = kVersion, .rank = rank_, .size = size_, .secret = {}};
  secret_.copy(hello.secret, kSecretBytes);
  if (send(socket, &hello, sizeof(hello), MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof(hello))) {
    throw CommunicationError(system_error("cannot speak to " + names_[0]));
  }
}

// A member sends after it has received the data of all members with lower ranks. If all sent at once there would be as
// many descriptors in flight as members, and the kernel limits that number: once it is reached, no member could send,
// and member 0 might wait for one of them.
void Exchange::all_gather(Parcel own, const Check& check, const Take& take) {
  if (rank_ != 0) {
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) {
        send_parcel(0, own, check);
        own.fds.clear();
      } else {
        take(r, receive_parcel(0, check));
      }
    }
    return;
  }
  const auto pass_on = [&](int from, const Parcel& parcel) {
    for (int member = 1; member < size_; ++member) {
      if (member != from) send_parcel(member, parcel, check);
    }
  };
  pass_on(0, own);
  own.fds.clear();
  for (int r = 1; r < size_; ++r) {
    Parcel parcel = receive_parcel(r, check);
    pass_on(r, parcel);
    take(r, std::move(parcel));
  }
}

void Exchange::send_parcel(int member, const Parcel& parcel, const Check& check) {
  iovec piece{const_cast<char*>(parcel.bytes.data()), parcel.bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(Parcel::kMostFds * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  int fds[Parcel::kMostFds] = {};
  const size_t count = std::min(parcel.fds.size(), Parcel::kMostFds);
  for (size_t i = 0; i < count; ++i) fds[i] = parcel.fds[i].get();
  if (count > 0) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    auto* const header = reinterpret_cast<cmsghdr*>(control);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof(int));
    std::memcpy(CMSG_DATA(header), fds, count * sizeof(int));
  }
  const int socket = sockets_[static_cast<size_t>(member)].get();
  while (sendmsg(socket, &message, MSG_NOSIGNAL) < 0) {
    if (errno == ETOOMANYREFS || errno == ENOBUFS) {  // too many descriptors in flight in the system
      check();
      poll(nullptr, 0, 1);
    } else if (errno == EAGAIN) {
      wait_for(socket, POLLOUT, check);
    } else if (errno != EINTR) {
      throw CommunicationError(system_error(names_[static_cast<size_t>(member)] + " left while memory was shared"));
    }
  }
}

Parcel Exchange::receive_parcel(int member, const Check& check) {
  const int socket = sockets_[static_cast<size_t>(member)].get();
  Parcel parcel;
  parcel.bytes.resize(Parcel::kMostBytes);
  iovec piece{parcel.bytes.data(), parcel.bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(Parcel::kMostFds * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t got = 0;
  while ((got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC)) < 0 && (errno == EAGAIN || errno == EINTR)) {
    wait_for(socket, POLLIN, check);
    message.msg_controllen = sizeof(control);
  }
  for (cmsghdr* header = got > 0 ? CMSG_FIRSTHDR(&message) : nullptr; header; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = 0; CMSG_LEN(at + sizeof(int)) <= header->cmsg_len; at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + at, sizeof(int));
      parcel.fds.emplace_back(fd);
    }
  }
  if (got <= 0) {
    throw CommunicationError(names_[static_cast<size_t>(member)] + " left while memory was shared" +
                             (got < 0 ? std::string(": ") + std::strerror(errno) : std::string()));
  }
  // The buffer has room for all descriptors of a parcel; if some were dropped, this process's limit was reached.
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    throw CommunicationError("the shared memory of " + names_[static_cast<size_t>(member)] +
                             " could not be received: " + system_error_text(EMFILE));
  }
  if ((message.msg_flags & MSG_TRUNC) != 0) {
    throw CommunicationError("a message of " + names_[static_cast<size_t>(member)] +
                             " was cut off while memory was shared: it is longer than " +
                             std::to_string(Parcel::kMostBytes) + " bytes; do all ranks run the same version?");
  }
  parcel.bytes.resize(static_cast<size_t>(got));
  return parcel;
}

}  // namespace anyaccel::comm::shm
