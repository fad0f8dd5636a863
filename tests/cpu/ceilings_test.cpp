// The measurements of what the machine can do at most: bad arguments are refused, and a forked child can measure whatever other
// threads of its parent did.
#include "accelerators/cpu/ceilings.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "anyaccel/error.h"

namespace anyaccel::cpu {
namespace {

constexpr size_t kBytes = size_t{1} << 20;

TEST(Ceilings, NothingToMeasureIsRefused) {
  EXPECT_THROW(best_read_bandwidth(0, 1), InvalidArgument);
  EXPECT_THROW(best_copy_bandwidth(kBytes, 0), InvalidArgument);
  EXPECT_THROW(fma_rate(-1), InvalidArgument);
}

#ifndef __SANITIZE_THREAD__  // which does not support threads in the child of a threaded process
// In the child nobody goes on with the measurement that another thread has begun, or would unlock what it holds.
TEST(Ceilings, AForkedChildMeasuresWhileItsParentDoes) {
  std::atomic<bool> begun{false}, ends{false};
  std::thread other([&] {
    // Of both sizes in turn, so that memory is also replaced.
    for (size_t bytes = kBytes; !ends; bytes = 3 * kBytes - bytes) {
      best_copy_bandwidth(bytes, 0.05);
      begun = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // fork() waits for a moment in which no region runs
    }
  });
  while (!begun) std::this_thread::yield();
  for (int i = 0; i < 8; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);  // ends a child that waits for ever
      const bool measured = best_copy_bandwidth(kBytes, 1e-3) > 0 && best_read_bandwidth(2 * kBytes, 1e-3) > 0;
      _exit(measured ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "child " << i << (WIFSIGNALED(status) ? " was ended by a signal" : " failed");
    if (status != 0) break;
  }
  ends = true;
  other.join();
  EXPECT_GT(best_read_bandwidth(kBytes, 1e-3), 0);
}

// What was kept is used on where nobody measured.
TEST(Ceilings, AForkedChildMeasuresAfterItsParent) {
  EXPECT_GT(best_read_bandwidth(kBytes, 1e-3), 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(best_read_bandwidth(kBytes, 1e-3) > 0 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}
#endif

}  // namespace
}  // namespace anyaccel::cpu
