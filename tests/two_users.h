// For tests in which one user attacks another: the users are ids that no machine assigns to real accounts, so acting as
// them requires root.
#pragma once

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

namespace anyaccel::test {

constexpr uid_t victim = 1999000001;
constexpr uid_t attacker = 1999000002;
constexpr gid_t shared_group = 1999000003;  // both are in it

// Becomes the user for good; false when that is not allowed.
inline bool become(uid_t user) {
  const gid_t groups[] = {shared_group};
  return setgroups(1, groups) == 0 && setresgid(user, user, user) == 0 && setresuid(user, user, user) == 0;
}

// Runs `body` in a process of another user; its exit code, or 128 and the signal that ended it.
inline int as_user(uid_t user, mode_t mask, const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    if (!become(user)) _exit(99);
    umask(mask);
    int result = 98;
    try {
      result = body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "user %u: %s\n", static_cast<unsigned>(user), error.what());
    }
    _exit(result);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// A process of the attacker's that makes `name` a link to the one and the other in turns, as fast as it can.
class Swapper {
 public:
  // `count` is a file that says how often.
  Swapper(const std::filesystem::path& name, const std::filesystem::path& one, const std::filesystem::path& other,
          std::filesystem::path count)
      : count_(std::move(count)) {
    child_ = fork();
    if (child_ == 0) swap_for_ever(name, one, other);
    for (int tries = 0; tries < 5000 && swaps() == 0; ++tries)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ~Swapper() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  Swapper(const Swapper&) = delete;
  Swapper& operator=(const Swapper&) = delete;

  uint64_t swaps() const {
    uint64_t swaps = 0;
    std::ifstream(count_, std::ios::binary).read(reinterpret_cast<char*>(&swaps), sizeof(swaps));
    return swaps;
  }

 private:
  [[noreturn]] void swap_for_ever(const std::filesystem::path& name, const std::filesystem::path& one,
                                  const std::filesystem::path& other) const {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!become(attacker)) _exit(99);
    const int counter = open(count_.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
    const std::string fresh = name.string() + ".next";
    for (uint64_t swaps = 0;; ++swaps) {
      unlink(fresh.c_str());
      if (symlink((swaps % 2 ? one : other).c_str(), fresh.c_str()) != 0) _exit(98);
      if (std::rename(fresh.c_str(), name.c_str()) != 0) _exit(97);
      if (pwrite(counter, &swaps, sizeof(swaps), 0) != sizeof(swaps)) _exit(96);
    }
  }
  std::filesystem::path count_;
  pid_t child_ = -1;
};

}  // namespace anyaccel::test
