// Implements the ranks' side of control.h: reports events on this host to the launcher that the user started.
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <sstream>

#include "anyaccel/log.h"
#include "launcher/hosts/control.h"
#include "launcher/hosts/control_lines.h"

namespace anyaccel::launcher {
namespace {

constexpr int connect_limit_ms = 5000;
constexpr int longest_grace_ms = 60000;
// Owns the descriptors of the connection attempts, and closes those that are left at the end.
struct Attempts {
  std::vector<pollfd> sockets;
  ~Attempts() {
    for (const pollfd& entry : sockets) {
      if (entry.fd >= 0) close(entry.fd);
    }
  }
};

int begin_connect(const std::string& address, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* target = nullptr;
  if (getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &target) != 0) return -1;
  int descriptor = socket(target->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor >= 0 && connect(descriptor, target->ai_addr, target->ai_addrlen) != 0 && errno != EINPROGRESS) {
    close(descriptor);
    descriptor = -1;
  }
  freeaddrinfo(target);
  return descriptor;
}

bool is_connected(int descriptor) {
  int error = 0;
  socklen_t length = sizeof error;
  return getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0;
}

// Returns a connection to the first address that answers; -1 if none did in time. All are tried at once.
int connect_any(const ControlPoint& point) {
  Attempts attempts;
  for (const std::string& address : point.addresses) {
    const int descriptor = begin_connect(address, point.port);
    if (descriptor >= 0) attempts.sockets.push_back({descriptor, POLLOUT, 0});
  }
  const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(connect_limit_ms);
  while (true) {
    bool pending = false;
    for (pollfd& entry : attempts.sockets) {
      if (entry.fd < 0) continue;
      if (entry.revents == 0) {
        pending = true;
      } else if (is_connected(entry.fd)) {
        const int descriptor = entry.fd;
        entry.fd = -1;
        return descriptor;
      } else {
        close(entry.fd);
        entry.fd = -1;
      }
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(limit - std::chrono::steady_clock::now());
    if (!pending || left.count() <= 0) return -1;
    poll(attempts.sockets.data(), attempts.sockets.size(), static_cast<int>(left.count()));
  }
}

class ControlClient final : public Companion {
 public:
  ControlClient(int descriptor, const ControlPoint& point, std::string host, const std::vector<int>& ranks,
                const std::vector<ProcessSpec>& processes)
      : host_(std::move(host)), processes_(processes) {
    if (descriptor < 0) return;
    lines_ = std::make_unique<ControlLines>(descriptor);
    lines_->send("hello " + point.secret + " " + host_);
    for (const int rank : ranks) lines_->send("rank " + std::to_string(rank));
  }

  ~ControlClient() override = default;

  void wait_for(std::vector<pollfd>& descriptors) override {
    if (lines_) descriptors.push_back({lines_->descriptor(), POLLIN, 0});
    descriptors.push_back({STDERR_FILENO, 0, 0});  // detects only that the reader has closed it
  }

  int step(int& grace_ms) override {
    pollfd output = {STDERR_FILENO, 0, 0};
    if (poll(&output, 1, 0) == 1 && (output.revents & (POLLERR | POLLHUP))) return SIGTERM;
    if (!lines_) return 0;
    const bool open = lines_->receive();
    std::string line;
    while (lines_->next(line)) {
      std::istringstream words(line);
      std::string word;
      int signal = 0;
      int time_ms = 0;
      if (!(words >> word >> signal >> time_ms) || word != "signal") continue;
      if (signal < 1 || signal > 31 || time_ms < 0 || time_ms > longest_grace_ms) continue;
      grace_ms = time_ms;
      return ended_by(signal);
    }
    if (open) return 0;
    log_error(host_ + ": the launcher that started this one has ended (" + lines_->end_reason() +
              "); the job is ended");
    lines_.reset();
    return ended_by(SIGTERM);
  }

  void ended(int rank, const std::string& name, const comm::StorePlace& store, int ranks) override {
    if (!lines_) return;
    lines_->send("ended " + std::to_string(rank) + " " + std::to_string(ranks) + " " + store.address + " " +
                 std::to_string(store.port) + " " + name);
  }

  bool failed(const Ending& ending) override {
    if (!lines_) return false;
    lines_->send("failed " + std::to_string(ending.exit_code) + " " +
                 describe_ending(processes_[ending.index].name, ending));
    return true;
  }

  bool ending(int, int) override { return false; }
  int exit_code() const override { return exit_code_; }
  void finished(bool good) override {
    if (lines_ && good) lines_->send("bye");
  }

 private:
  int ended_by(int signal) {
    exit_code_ = 128 + signal;
    return signal;
  }

  std::string host_;
  const std::vector<ProcessSpec>& processes_;
  std::unique_ptr<ControlLines> lines_;
  int exit_code_ = 0;
};

}  // namespace

std::unique_ptr<Companion> connect_to_launcher(const ControlPoint& point, const std::string& host,
                                               const std::vector<int>& ranks,
                                               const std::vector<ProcessSpec>& processes) {
  if (point.port == 0) return nullptr;
  const int descriptor = connect_any(point);
  if (descriptor < 0) {
    log_warning(host + ": the launcher cannot be reached at port " + std::to_string(point.port) +
                " (a firewall?); what happens on this host is told by the runner alone");
  }
  return std::make_unique<ControlClient>(descriptor, point, host, ranks, processes);
}

void report_failure(const ControlPoint& point, const std::string& host, int exit_code, const std::string& text) {
  const int descriptor = point.port == 0 ? -1 : connect_any(point);
  if (descriptor < 0) return;
  ControlLines lines(descriptor);
  lines.send("hello " + point.secret + " " + host);
  lines.send("failed " + std::to_string(exit_code) + " " + text);
}

}  // namespace anyaccel::launcher
