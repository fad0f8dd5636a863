// Implements child.h: runs a part of a case in a child process.
#include "conformance/child.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>

namespace anyaccel::conformance {
namespace {

constexpr int patience_ms = 60000;

// One letter for the outcome and the message.
std::string outcome_of(const std::function<void()>& body) {
  try {
    body();
    return "p";
  } catch (const Failed& failed) {
    return "f" + failed.message;
  } catch (const Unsupported& unsupported) {
    return "s" + unsupported.message;
  } catch (const Unavailable& unavailable) {
    return "a" + unavailable.message;
  } catch (const std::exception& exception) {
    return std::string("fan exception: ") + exception.what();
  }
}

}  // namespace

void in_child(const std::string& what, const std::function<void()>& body) {
  int ends[2];
  if (pipe(ends) != 0) throw Unavailable{std::string("pipe: ") + std::strerror(errno)};
  std::fflush(nullptr);  // otherwise the child would write buffered output a second time
  const pid_t child = fork();
  if (child < 0) {
    close(ends[0]);
    close(ends[1]);
    throw Unavailable{std::string("fork: ") + std::strerror(errno)};
  }
  if (child == 0) {
    close(ends[0]);
    const std::string outcome = outcome_of(body);
    const ssize_t written = write(ends[1], outcome.data(), outcome.size());
    _exit(written < 0 ? 1 : 0);  // no destructors: they belong to the parent
  }
  close(ends[1]);
  std::string outcome;
  bool hangs = false;
  for (;;) {
    pollfd ready{ends[0], POLLIN, 0};
    const int answer = poll(&ready, 1, patience_ms);
    if (answer < 0 && errno == EINTR) continue;
    if (answer <= 0) {
      hangs = true;
      break;
    }
    char buffer[512];
    const ssize_t size = read(ends[0], buffer, sizeof(buffer));
    if (size <= 0) break;
    outcome.append(buffer, static_cast<size_t>(size));
  }
  close(ends[0]);
  if (hangs) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (hangs) throw Failed{what + ": the child hung and was killed"};
  if (WIFSIGNALED(status)) {
    throw Failed{what + ": the child died of signal " + std::to_string(WTERMSIG(status))};
  }
  if (outcome.empty()) {
    throw Failed{what + ": the child ended by itself with code " + std::to_string(WEXITSTATUS(status))};
  }
  const std::string message = what + ": " + outcome.substr(1);
  if (outcome[0] == 'f') throw Failed{message};
  if (outcome[0] == 's') throw Unsupported{message};
  if (outcome[0] == 'a') throw Unavailable{message};
}

}  // namespace anyaccel::conformance
