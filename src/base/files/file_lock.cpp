// Implements a lock between processes that records its owner and cannot outlive it.
#include "base/files/file_lock.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "anyaccel/log.h"

namespace anyaccel {
namespace {

// Field 22 of /proc/<pid>/stat: clock ticks after boot at which the process started. Empty when there is no such
// process.
std::string start_time(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  const size_t name_end = text.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return {};
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  return field;
}

// Identifies where a process number has its meaning: containers and cloned machines may share a host name and a cache
// folder.
std::string host_identity() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat space {};
  stat("/proc/self/ns/pid", &space);
  return std::string(*name ? name : "localhost") + "." + boot.substr(0, 8) + "." + std::to_string(space.st_ino);
}

std::string read_owner(int descriptor) {
  char text[512];
  const ssize_t got = pread(descriptor, text, sizeof(text) - 1, 0);
  if (got <= 0) return {};
  std::string owner(text, static_cast<size_t>(got));
  return owner.substr(0, owner.find('\n'));
}

}  // namespace

std::string process_identity() {
  const std::string pid = std::to_string(getpid());
  return host_identity() + " " + pid + " " + start_time(pid);
}

bool is_gone(const std::string& identity) {
  std::istringstream fields(identity);
  std::string host, pid, start;
  if (!(fields >> host >> pid >> start) || host != host_identity()) return false;
  return start_time(pid) != start;
}

FileLock::FileLock(const std::filesystem::path& file, std::chrono::milliseconds patience, const std::string& what) {
  descriptor_ = open(file.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
  if (descriptor_ < 0) return;
  struct stat info {};
  if (fstat(descriptor_, &info) != 0 || !S_ISREG(info.st_mode)) {
    log_debug(file.string() + ": no lock: it is not a file");
    return;
  }
  // Any user who can read the file could hold the lock, so only the owner can.
  if (info.st_mode & 077) fchmod(descriptor_, 0600);
  const auto begin = std::chrono::steady_clock::now();
  auto pause = std::chrono::milliseconds(2);
  bool said = false;
  for (;;) {
    if (flock(descriptor_, LOCK_EX | LOCK_NB) == 0) {
      held_ = true;
      const std::string owner = process_identity() + "\n";
      if (ftruncate(descriptor_, 0) != 0 ||
          pwrite(descriptor_, owner.data(), owner.size(), 0) != static_cast<ssize_t>(owner.size())) {
        log_debug(file.string() + ": the lock's owner could not be written: " + std::strerror(errno));
      }
      return;
    }
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) {
      log_debug(file.string() + ": no lock: " + std::strerror(errno));
      return;
    }
    const std::string owner = read_owner(descriptor_);
    if (is_gone(owner)) {
      log_debug(file.string() + ": the lock's owner (" + owner + ") is gone; going on without the lock");
      return;
    }
    const auto waited = std::chrono::steady_clock::now() - begin;
    if (waited >= patience) {
      log_warning(what + ": gave up waiting for \"" + owner + "\" (host, process, start), which holds " +
                  file.string() + "; doing the work here as well");
      return;
    }
    if (!said && waited > std::chrono::seconds(5)) {
      log_info(what + ": waiting for \"" + owner + "\" (host, process, start), which holds " + file.string());
      said = true;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(50));
  }
}

FileLock::~FileLock() {
  if (descriptor_ >= 0) close(descriptor_);  // drops the lock
}

}  // namespace anyaccel
