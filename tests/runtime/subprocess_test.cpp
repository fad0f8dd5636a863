// Programs that the library runs: their exit codes are known whatever the calling program does with SIGCHLD.
#include "base/process/subprocess.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

namespace anyaccel {
namespace {

// Sets what SIGCHLD does, until the end of the test.
class OnChild {
 public:
  explicit OnChild(void (*handler)(int)) {
    struct sigaction action = {};
    action.sa_handler = handler;
    sigaction(SIGCHLD, &action, &before_);
  }
  ~OnChild() { sigaction(SIGCHLD, &before_, nullptr); }
  OnChild(const OnChild&) = delete;
  OnChild& operator=(const OnChild&) = delete;

 private:
  struct sigaction before_ = {};
};

void wait_for_all(int /*signal*/) {
  const int error = errno;
  while (waitpid(-1, nullptr, WNOHANG) > 0) {
  }
  errno = error;
}

void expect_results() {
  const ProcessResult good = run_program({"sh", "-c", "printf said"});
  EXPECT_EQ(good.exit_code, 0);
  EXPECT_EQ(good.output, "said");
  const ProcessResult bad = run_program({"sh", "-c", "echo said; exit 3"});
  EXPECT_EQ(bad.exit_code, 3);
  EXPECT_EQ(bad.output, "said\n");
  EXPECT_EQ(run_program({"sh", "-c", "kill -9 $$"}).exit_code, 128 + SIGKILL);
  EXPECT_EQ(run_program({"/no/such/program"}).exit_code, 127);
}

TEST(Subprocess, ReportsExitCodes) { expect_results(); }

TEST(Subprocess, ReportsExitCodesWhereChildrenAreIgnored) {
  const OnChild ignored(SIG_IGN);
  expect_results();
}

TEST(Subprocess, RunsOnceWhereChildrenAreIgnored) {
  const OnChild ignored(SIG_IGN);
  char file[] = "/tmp/anyaccel-subprocess-XXXXXX";
  const int descriptor = mkstemp(file);
  ASSERT_GE(descriptor, 0);
  run_program({"sh", "-c", "echo run >>\"$0\"", file});
  char text[64];
  EXPECT_EQ(std::string(text, static_cast<size_t>(read(descriptor, text, sizeof text))), "run\n");
  close(descriptor);
  unlink(file);
}

TEST(Subprocess, OutputThatFollowsTheExitCodeIsNoExitCode) {
  const OnChild ignored(SIG_IGN);
  const ProcessResult result = run_program({"sh", "-c", "(sleep 0.5; printf late) & exit 3"});
  EXPECT_EQ(result.exit_code, -1);
  EXPECT_EQ(result.output, "\n3late");
}

TEST(Subprocess, ReportsExitCodesWhereTheProgramWaitsForEveryChild) {
  const OnChild handled(wait_for_all);
  expect_results();
}

TEST(Subprocess, ProgramsHaveTheDefaultActionsOfSignals) {
  const OnChild ignored(SIG_IGN);
  const std::string text = run_program({"sh", "-c", "grep SigIgn /proc/self/status"}).output;
  ASSERT_EQ(text.substr(0, 8), "SigIgn:\t");
  EXPECT_EQ(std::stoull(text.substr(8), nullptr, 16) >> (SIGCHLD - 1) & 1u, 0u) << text;
}

}  // namespace
}  // namespace anyaccel
