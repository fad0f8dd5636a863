// Opens and authenticates connections to the job's store.
#include "comm/store/store_connect.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "anyaccel/error.h"
#include "comm/job/job_times.h"
#include "comm/store/handshake.h"
#include "comm/store/wire.h"

namespace anyaccel::comm {

namespace {

using Clock = std::chrono::steady_clock;

std::string place(const std::string& address, int port) { return address + ":" + std::to_string(port); }

// Reads exactly `count` bytes; returns false and the reason on failure.
bool read_exactly(int socket, size_t count, Clock::time_point deadline, std::string& bytes, std::string& why) {
  bytes.clear();
  while (bytes.size() < count) {
    char buffer[256];
    const ssize_t got = ::recv(socket, buffer, std::min(sizeof(buffer), count - bytes.size()), 0);
    if (got > 0) {
      bytes.append(buffer, static_cast<size_t>(got));
      continue;
    }
    if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
      why = got == 0 ? "the connection was closed" : std::strerror(errno);
      return false;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd entry{socket, POLLIN, 0};
    if (left.count() <= 0 || ::poll(&entry, 1, static_cast<int>(left.count())) == 0) {
      why = "something accepts connections there and says nothing";
      return false;
    }
  }
  return true;
}

enum class Outcome { Accepted, TryAgain };

// One attempt on an open connection.
Outcome prove(int socket, const std::string& at, const std::string& token, Clock::time_point deadline,
              std::string& why) {
  std::string greeting;
  if (!read_exactly(socket, wire::greeting_size, deadline, greeting, why)) {
    const std::string start = greeting.substr(0, wire::magic.size());
    if (start == wire::magic.substr(0, start.size())) return Outcome::TryAgain;
  }
  if (greeting.substr(0, wire::magic.size()) != wire::magic) {
    if (greeting.substr(0, wire::magic.size() - 1) == wire::magic.substr(0, wire::magic.size() - 1)) {
      throw CommunicationError("the job's store at " + at +
                               " is of another version of anyaccel: run the same version on every host");
    }
    throw CommunicationError("what answers at " + at +
                             " is not the store of a job: another program uses the port. Set MASTER_PORT to a free one "
                             "on every rank");
  }
  const bool server_has_token = greeting[wire::magic.size()] != 0;
  const std::string server_nonce = greeting.substr(wire::magic.size() + 1);
  const std::string nonce = wire::random_nonce();
  const std::string answer = wire::greeting(!token.empty(), nonce) + wire::proof(token, "client", server_nonce, nonce);
  if (::send(socket, answer.data(), answer.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(answer.size())) {
    why = std::strerror(errno);
    return Outcome::TryAgain;
  }
  std::string verdict;
  if (!read_exactly(socket, wire::verdict_size, deadline, verdict, why)) return Outcome::TryAgain;
  if (verdict[0] == 0) {
    std::string reason;
    if (token.empty()) {
      reason = "ANYACCEL_JOB_TOKEN is not set in this process, and the job has a token";
    } else if (!server_has_token) {
      reason = "ANYACCEL_JOB_TOKEN is set in this process, but not in that of rank 0";
    } else {
      reason = "ANYACCEL_JOB_TOKEN of this process is not the job's: it belongs to another job, or was set differently";
    }
    throw CommunicationError("the job's store at " + at + " refused this process: " + reason, AA_PERMISSION_DENIED);
  }
  if (!wire::proofs_equal(std::string_view(verdict).substr(1), wire::proof(token, "server", server_nonce, nonce))) {
    throw CommunicationError(
        "what answers at " + at + " does not know the job's token (ANYACCEL_JOB_TOKEN): it is not rank 0 of this job",
        AA_PERMISSION_DENIED);
  }
  return Outcome::Accepted;
}

}  // namespace

FileDescriptor connect_to_store(const std::string& address, int port, const std::string& token,
                                std::chrono::milliseconds timeout) {
  const std::string at = place(address, port);
  const Clock::time_point deadline = Clock::now() + timeout;
  std::string why = "the name cannot be looked up";
  auto pause = std::chrono::milliseconds(5);
  while (true) {
    for (const SocketAddress& candidate : resolve(address, port)) {
      // A lost packet or a half-open listener must not use up the whole time limit.
      const Clock::time_point attempt = std::min(deadline, Clock::now() + std::chrono::seconds(5));
      FileDescriptor socket = connect_to(candidate, attempt, why);
      if (!socket && candidate.is_loopback() && why.ends_with(std::strerror(ENETUNREACH))) {
        throw CommunicationError(
            "the job's store at " + at + " cannot be reached: " + why +
            ". The loopback interface of this network namespace is down or lacks this address: ip link "
            "set lo up, or give one that it has, such as --master_addr ::1");
      }
      if (socket && prove(socket.get(), at, token, attempt, why) == Outcome::Accepted) return socket;
    }
    if (Clock::now() + pause >= deadline) break;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(200));
  }
  throw CommunicationError("the job's store at " + at + " (MASTER_ADDR:MASTER_PORT) was not reached within " +
                               seconds_text(timeout) + ": " + why +
                               ". Rank 0 serves it: is it running, and may this host connect to that port?",
                           AA_DEADLINE_EXCEEDED);
}

}  // namespace anyaccel::comm
