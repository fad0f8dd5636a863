// Implements the side of control.h that runs in the launcher that the user started: it listens, and tracks which rank
// runs where.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <limits>
#include <sstream>

#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "launcher/hosts/control.h"
#include "launcher/hosts/control_lines.h"
#include "launcher/hosts/probe.h"
#include "launcher/plan/addresses.h"
#include "launcher/plan/environment.h"

namespace anyaccel::launcher {
namespace {

constexpr size_t max_peers = 65536;
// After a failure the hosts and the runner are informed and end by themselves, so that the ranks' last output arrives;
// processes that have not ended by then are ended here. (Open MPI crashes if it is told to end while it is ending.)
constexpr int64_t last_words_ms = 700;

// The grace period for the ranks of other hosts after a failure.
constexpr int end_grace_ms = 1000;

std::string signal_line(int signal, int grace_ms) {
  return "signal " + std::to_string(signal) + " " + std::to_string(grace_ms);
}

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Compares in constant time, so that a partly correct secret is not rejected later than a wrong one.
bool same_secret(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace

struct ControlServer::Peer {
  explicit Peer(int descriptor) : lines(descriptor) {}
  ControlLines lines;
  std::string host;  // empty: has not sent the secret yet
  bool said_bye = false;
};

ControlServer::ControlServer(std::string secret, const JobPlan& job, bool others_wait) : token_(job.token) {
  for (const Host& host : job.hosts) hosts_.insert(hosts_.end(), host.slots.size(), host.name);
  came_.resize(hosts_.size());
  limit_s_ = join_limit_s(job);
  if (!others_wait) missing_at_ms_ = now_ms() + 1000 * int64_t{limit_s_};
  // Listens with both families if IPv6 exists, else with IPv4 only.
  listener_ = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_storage address{};
  socklen_t length = sizeof(sockaddr_in6);
  if (listener_ >= 0) {
    const int off = 0;
    setsockopt(listener_, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    auto* any = reinterpret_cast<sockaddr_in6*>(&address);
    any->sin6_family = AF_INET6;
    any->sin6_addr = in6addr_any;
  } else {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    length = sizeof(sockaddr_in);
    auto* any = reinterpret_cast<sockaddr_in*>(&address);
    any->sin_family = AF_INET;
  }
  if (listener_ < 0 || bind(listener_, reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      listen(listener_, SOMAXCONN) != 0 ||
      getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    const std::string why = std::strerror(errno);
    if (listener_ >= 0) close(listener_);
    throw Error("the launcher cannot listen for its hosts: " + why);
  }
  point_.port = ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                                                    : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
  point_.addresses = own_addresses();
  // A host without a network can reach itself. On other hosts this address would be their own.
  if (point_.addresses.empty()) point_.addresses.push_back("127.0.0.1");
  point_.secret = std::move(secret);
}

ControlServer::~ControlServer() {
  if (listener_ >= 0) close(listener_);
}

void ControlServer::wait_for(std::vector<pollfd>& descriptors) {
  descriptors.push_back({listener_, POLLIN, 0});
  for (const auto& peer : peers_) descriptors.push_back({peer->lines.descriptor(), POLLIN, 0});
}

void ControlServer::accept_peers() {
  while (peers_.size() < max_peers) {
    const int descriptor = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (descriptor < 0) return;
    peers_.push_back(std::make_unique<Peer>(descriptor));
  }
}

void ControlServer::fail(int exit_code, const std::string& text) {
  if (exit_code_ != 0 || ending_) return;
  exit_code_ = exit_code;
  end_at_ms_ = now_ms() + last_words_ms;
  log_error(text);
  tell_all(SIGTERM, end_grace_ms);
}

void ControlServer::tell_all(int signal, int grace_ms) {
  for (const auto& peer : peers_) {
    if (!peer->host.empty()) peer->lines.send(signal_line(signal, grace_ms));
  }
}

void ControlServer::take_line(Peer& peer, const std::string& line) {
  const size_t blank = line.find(' ');
  const std::string word = line.substr(0, blank);
  const std::string rest = blank == std::string::npos ? std::string() : line.substr(blank + 1);
  int rank = -1;
  if (word == "rank" || word == "ended") std::from_chars(rest.data(), rest.data() + rest.size(), rank);
  if (word == "rank" && rank >= 0 && rank < static_cast<int>(came_.size())) {
    came_[static_cast<size_t>(rank)] = true;
    if (!missing_at_ms_) missing_at_ms_ = now_ms() + 1000 * int64_t{limit_s_};
  } else if (word == "ended") {
    std::istringstream words(rest);
    int ranks = 0;
    comm::StorePlace store;
    std::string name;
    if (words >> rank >> ranks >> store.address >> store.port && std::getline(words >> std::ws, name)) {
      store.token = token_;
      ended(rank, name, store, ranks);
    }
  } else if (word == "bye") {
    peer.said_bye = true;
  } else if (word == "failed") {
    int code = 0;
    const auto result = std::from_chars(rest.data(), rest.data() + rest.size(), code);
    const size_t text = static_cast<size_t>(result.ptr - rest.data());
    peer.said_bye = true;  // it ends now
    fail(std::clamp(code, 1, 255), text < rest.size() ? rest.substr(text + 1) : peer.host + " failed");
  }
}

bool ControlServer::read_peer(Peer& peer) {
  const bool open = peer.lines.receive();
  std::string line;
  while (peer.lines.next(line)) {
    if (!peer.host.empty()) {
      take_line(peer, line);
      continue;
    }
    const std::string hello = "hello " + point_.secret + " ";
    if (!same_secret(line.substr(0, hello.size()), hello)) {
      log_warning("a client that does not know the job's secret connected to the launcher and was disconnected");
      return false;
    }
    peer.host = line.substr(hello.size());
    far_ = far_ || !peer.lines.same_machine();
    log_debug("the launcher of " + peer.host + " is connected");
    if (exit_code_ || ending_) peer.lines.send(signal_line(SIGTERM, end_grace_ms));
  }
  if (!open && !peer.host.empty() && !peer.said_bye) {
    fail(1, peer.host + " is gone: the connection to its launcher was lost (" + peer.lines.end_reason() +
                "); the job is ended");
  }
  return open;
}

void ControlServer::serve() {
  accept_peers();
  for (size_t i = 0; i < peers_.size();) {
    if (read_peer(*peers_[i])) {
      ++i;
    } else {
      peers_.erase(peers_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
}

void ControlServer::ended(int rank, const std::string& name, const comm::StorePlace& store, int ranks) {
  if (!ended_) ended_ = std::make_unique<EndedRanks>(store, ranks);
  ended_->add(rank, name);
}

void ControlServer::look_for_missing() {
  if (!missing_at_ms_ || now_ms() < missing_at_ms_) return;
  missing_at_ms_ = std::numeric_limits<int64_t>::max();
  std::string missing;
  std::string host;
  bool near = false;  // on this machine; no firewall separates its processes
  for (size_t rank = 0; rank < came_.size(); ++rank) {
    if (came_[rank]) continue;
    const std::string& own = hosts_[rank];
    if (!missing.empty()) missing += own == host ? ", " : " on " + host + "; ";
    if (own != host) near = near || is_this_host(own);
    missing += std::to_string(rank);
    host = own;
  }
  if (missing.empty()) return;
  const std::string text =
      "these ranks were not started within " + std::to_string(limit_s_) + " s: " + missing + " on " + host;
  if (near || far_) {
    fail(1, text + "; the job is ended (--join_timeout gives them longer)");
  } else {
    log_warning(text + ", or their launchers cannot reach this one at port " + std::to_string(point_.port) +
                " (a firewall?)");
  }
}

int ControlServer::step(int&) {
  serve();
  look_for_missing();
  return end_at_ms_ && now_ms() >= end_at_ms_ ? SIGTERM : 0;
}

bool ControlServer::failed(const Ending&) {
  // The runner ends when its ranks have ended. The report of the failed rank may still arrive.
  for (int i = 0; i < 20 && !exit_code_ && !peers_.empty(); ++i) {
    serve();
    if (!exit_code_) usleep(10000);
  }
  return exit_code_ != 0;
}

bool ControlServer::ending(int signal, int grace_ms) {
  ending_ = true;
  tell_all(signal, grace_ms);
  // After a failure they were already informed, and had last_words_ms to end.
  return exit_code_ == 0 &&
         std::any_of(peers_.begin(), peers_.end(), [](const auto& peer) { return !peer->host.empty(); });
}

}  // namespace anyaccel::launcher
