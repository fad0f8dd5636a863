// The limit on open files: raised as far as it may be, and named where it may not. Each test is a process of its own, since
// a hard limit once lowered stays.
#include "base/files/open_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <string>

namespace anyaccel {
namespace {

void set_limits(rlim_t soft, rlim_t hard) {
  const rlimit limit{soft, hard};
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(2);
}

std::string with_soft_limit(const std::string& text) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return text + std::to_string(limit.rlim_cur);
}

// Runs the body in a process of its own and returns its result.
std::string in_child(const std::function<std::string()>& body) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    const std::string text = body();
    _exit(write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char buffer[512];
  for (ssize_t got = 0; (got = read(ends[0], buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return text;
}

TEST(OpenFiles, ALimitWithRoomIsLeftAlone) {
  EXPECT_EQ(in_child([] {
              set_limits(200, 300);
              return with_soft_limit(make_room_for_files(50));
            }),
            "200");
}

TEST(OpenFiles, TheSoftLimitIsRaisedByWhatIsNeeded) {
  EXPECT_EQ(in_child([] {
              set_limits(60, 1000);
              return with_soft_limit(make_room_for_files(100));
            }),
            "160");
  // As far as the hard one.
  EXPECT_EQ(in_child([] {
              set_limits(60, 130);
              return with_soft_limit(make_room_for_files(100));
            }),
            "130");
}

TEST(OpenFiles, WhatTheHardLimitForbidsIsSaid) {
  const std::string text = in_child([] {
    set_limits(60, 80);
    return make_room_for_files(100);
  });
  EXPECT_NE(
      text.find(" files open of at most 80 (ulimit -n; the hard limit is 80), and needs 100 more: raise the limit on "
                "open files to 1"),
      std::string::npos)
      << text;
}

TEST(OpenFiles, AnErrorOfTheLimitNamesIt) {
  const std::string text = in_child([] {
    set_limits(20, 20);
    while (open("/dev/null", O_RDONLY) >= 0) {
    }
    return system_error_text(errno);
  });
  EXPECT_EQ(
      text,
      "Too many open files: this process has 20 files open of at most 20 (ulimit -n; the hard limit is 20); raise the "
      "limit on open files before it starts");
  EXPECT_EQ(system_error_text(ENOENT), "No such file or directory");
}

}  // namespace
}  // namespace anyaccel
