// The worker pool: every index runs once, regions nest and follow each other, barriers hold, exceptions arrive,
// denormals are flushed inside regions only, and a forked child gets threads of its own.
#include "accelerators/cpu/worker_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "anyaccel/error.h"
#include "base/process/processors.h"
#include "refuse_system_calls.h"
#include "this_build.h"

namespace anyaccel::cpu {
namespace {

class WorkerPoolTest : public ::testing::Test {
 protected:
  void TearDown() override { pool_.set_size(before_); }

  WorkerPool& pool_ = WorkerPool::instance();
  const int before_ = pool_.size();
};

TEST_F(WorkerPoolTest, EveryIndexRunsOnceOnItsOwnThread) {
  for (int threads : {1, 2, 3, 8}) {
    pool_.set_size(threads);
    EXPECT_EQ(pool_.size(), threads);
    for (int round = 0; round < 200; ++round) {
      std::vector<std::thread::id> ids(static_cast<size_t>(threads));
      std::atomic<int> calls{0};
      pool_.run([&](int index, int count) {
        EXPECT_EQ(count, threads);
        ids[static_cast<size_t>(index)] = std::this_thread::get_id();
        calls.fetch_add(1);
      });
      EXPECT_EQ(calls.load(), threads);
      EXPECT_EQ(ids[0], std::this_thread::get_id());
      std::sort(ids.begin(), ids.end());
      EXPECT_EQ(std::unique(ids.begin(), ids.end()), ids.end());
    }
  }
}

TEST_F(WorkerPoolTest, WritesOfARegionAreSeenAfterItAndByTheNext) {
  pool_.set_size(3);
  std::array<int, 3> cells = {};  // not atomic: the thread sanitizer would object if regions were not ordered
  for (int round = 1; round <= 500; ++round) {
    pool_.run([&](int index, int count) { cells[static_cast<size_t>((index + round) % count)] += 1; });
    for (int cell : cells) ASSERT_EQ(cell, round);
  }
}

TEST_F(WorkerPoolTest, WakesAfterSleeping) {
  pool_.set_size(2);
  for (int round = 0; round < 5; ++round) {
    std::atomic<int> calls{0};
    pool_.run([&](int, int) { calls.fetch_add(1); });
    EXPECT_EQ(calls.load(), 2);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

TEST_F(WorkerPoolTest, BarrierSeparatesPhases) {
  for (int threads : {2, 3, 9}) {
    pool_.set_size(threads);
    std::vector<int> left(static_cast<size_t>(threads)), right(static_cast<size_t>(threads));
    std::atomic<int> wrong{0};
    pool_.run([&](int index, int count) {
      for (int phase = 1; phase <= 300; ++phase) {
        left[static_cast<size_t>(index)] = phase;
        pool_.barrier(index);
        if (left[static_cast<size_t>((index + 1) % count)] != phase) wrong.fetch_add(1);
        right[static_cast<size_t>(index)] = phase;
        pool_.barrier(index);
        if (right[static_cast<size_t>((index + count - 1) % count)] != phase) wrong.fetch_add(1);
      }
    });
    EXPECT_EQ(wrong.load(), 0);
  }
}

TEST_F(WorkerPoolTest, BarrierWaitsForASlowThread) {
  pool_.set_size(2);
  int value = 0;
  pool_.run([&](int index, int) {
    if (index == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));  // longer than a wait spins
      value = 7;
    }
    pool_.barrier(index);
    EXPECT_EQ(value, 7);
  });
}

TEST_F(WorkerPoolTest, NestedRegionsRunOnTheirThread) {
  pool_.set_size(3);
  std::atomic<int> inner{0};
  pool_.run([&](int index, int) {
    const auto thread = std::this_thread::get_id();
    pool_.run([&](int nested_index, int nested_count) {
      EXPECT_EQ(nested_index, 0);
      EXPECT_EQ(nested_count, 1);
      EXPECT_EQ(std::this_thread::get_id(), thread);
      pool_.barrier(nested_index);  // of a region of one thread
      inner.fetch_add(1);
    });
    pool_.barrier(index);
  });
  EXPECT_EQ(inner.load(), 3);
}

TEST_F(WorkerPoolTest, ExceptionsAreRethrownAfterAllBodies) {
  for (int threads : {1, 2, 4}) {
    pool_.set_size(threads);
    for (int thrower = 0; thrower < threads; ++thrower) {
      std::atomic<int> calls{0};
      EXPECT_THROW(pool_.run([&](int index, int) {
        calls.fetch_add(1);
        if (index == thrower) throw std::out_of_range("from a body");
      }),
                   std::out_of_range);
      EXPECT_EQ(calls.load(), threads);
    }
    std::atomic<int> calls{0};
    pool_.run([&](int, int) { calls.fetch_add(1); });
    EXPECT_EQ(calls.load(), threads);
  }
}

TEST_F(WorkerPoolTest, AThrowingBodyDoesNotLeaveOthersAtABarrier) {
  pool_.set_size(3);
  EXPECT_THROW(pool_.run([&](int index, int) {
    if (index == 1) throw std::runtime_error("before the barrier");
    pool_.barrier(index);
    pool_.barrier(index);
  }),
               std::runtime_error);
}

TEST_F(WorkerPoolTest, ExceptionInANestedRegion) {
  pool_.set_size(2);
  for (int round = 0; round < 3; ++round) {
    EXPECT_THROW(pool_.run([&](int, int) { pool_.run([](int, int) { throw std::runtime_error("inner"); }); }),
                 std::runtime_error);
  }
}

TEST_F(WorkerPoolTest, CallersTakeTurns) {
  pool_.set_size(2);
  int running = 0, most = 0, total = 0;  // guarded by the pool's own exclusion
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < 100; ++round) {
        pool_.run([&](int index, int) {
          if (index == 0) most = std::max(most, ++running);
          pool_.barrier(index);
          if (index == 1) ++total;
          pool_.barrier(index);
          if (index == 0) --running;
        });
      }
    });
  }
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(most, 1);
  EXPECT_EQ(total, 300);
}

TEST_F(WorkerPoolTest, FlushesDenormalsInsideOnly) {
  for (int threads : {1, 2}) {
    pool_.set_size(threads);
    const uint32_t before = _mm_getcsr();
    std::atomic<int> flushed{0};
    pool_.run([&](int, int) {
      volatile float smallest = std::numeric_limits<float>::min();
      volatile float denormal = smallest * 0.5f;
      if (denormal == 0.0f) flushed.fetch_add(1);
    });
    EXPECT_EQ(flushed.load(), threads);
    EXPECT_EQ(_mm_getcsr() & 0xffc0u, before & 0xffc0u);
    volatile float smallest = std::numeric_limits<float>::min();
    EXPECT_NE(smallest * 0.5f, 0.0f);
  }
}

TEST_F(WorkerPoolTest, RefusesSizesOutOfRange) {
  EXPECT_THROW(pool_.set_size(0), InvalidArgument);
  EXPECT_THROW(pool_.set_size(-3), InvalidArgument);
  EXPECT_THROW(pool_.set_size(1 << 20), InvalidArgument);
  EXPECT_EQ(pool_.size(), before_);
}

TEST_F(WorkerPoolTest, SaysWhyAThreadIsRefusedAndGoesOnAfterIt) {
  struct Refusal {
    int error;
    const char* advice;
  };
  for (const Refusal& refusal : {Refusal{EPERM, "seccomp"}, Refusal{EAGAIN, "ulimit -u"}}) {
    pool_.set_size(3);  // which ends the threads of before
    std::string message = "no filter";
    std::thread([&] {  // whose system calls are filtered
      if (!test::refuse_threads(refusal.error)) return;
      try {
        pool_.run([](int, int) {});
        message = "nothing was thrown";
      } catch (const Error& thrown) {
        message = thrown.what();
      }
    })
        .join();
    if (message == "no filter") GTEST_SKIP() << "the system takes no filter of system calls";
    EXPECT_NE(message.find("no thread can be started: "), std::string::npos) << message;
    EXPECT_NE(message.find(refusal.advice), std::string::npos) << message;
    EXPECT_NE(message.find("OMP_NUM_THREADS"), std::string::npos) << message;
    std::atomic<int> calls{0};
    pool_.run([&](int, int) { ++calls; });
    EXPECT_EQ(calls, 3);
  }
}

#ifndef __SANITIZE_THREAD__  // which does not support threads in the child of a threaded process
TEST_F(WorkerPoolTest, AForkedChildStartsItsOwnWorkers) {
  pool_.set_size(2);
  pool_.run([](int, int) {});
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::atomic<int> calls{0};
    for (int round = 0; round < 10; ++round) pool_.run([&](int, int) { calls.fetch_add(1); });
    _exit(calls.load() == 20 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  std::atomic<int> calls{0};
  pool_.run([&](int, int) { calls.fetch_add(1); });
  EXPECT_EQ(calls.load(), 2);
}

// A child has no threads but the one that forked: it must not find a region of another one half run.
TEST_F(WorkerPoolTest, AForkWaitsForTheRegionOfAnotherThread) {
  pool_.set_size(2);
  std::atomic<bool> begun{false}, ended{false};
  std::thread other([&] {
    pool_.run([&](int index, int) {
      if (index != 0) return;
      begun = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ended = true;
    });
  });
  while (!begun) std::this_thread::yield();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (!ended) _exit(2);
    std::atomic<int> calls{0};
    pool_.run([&](int, int) { calls.fetch_add(1); });
    _exit(calls.load() == 2 ? 0 : 1);
  }
  other.join();
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

// Runs in a child, whose addresses suffice for the stacks of some of the threads.
int use_a_pool_without_room_for_threads(WorkerPool& pool) {
  alarm(60);
  long pages = 0;
  std::FILE* const statm = std::fopen("/proc/self/statm", "r");
  if (statm == nullptr || std::fscanf(statm, "%ld", &pages) != 1) return 77;
  std::fclose(statm);
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  const rlimit tight{static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE)) + (rlim_t{64} << 20), limit.rlim_max};
  constexpr int kThreads = 128;
  pool.set_size(kThreads);
  if (setrlimit(RLIMIT_AS, &tight) != 0) return 77;
  try {
    pool.run([](int, int) {});
    return 1;
  } catch (const Error& error) {
    if (error.code() != AA_RESOURCE_EXHAUSTED) return 2;
  }
  if (setrlimit(RLIMIT_AS, &limit) != 0) return 3;
  std::atomic<int> calls{0};
  pool.run([&](int, int) { calls.fetch_add(1); });
  return calls.load() == kThreads ? 0 : 4;
}

TEST_F(WorkerPoolTest, RunsEveryIndexAfterTheSystemRefusedThreads) {
  if (test::sanitizer() != test::Sanitizer::none) GTEST_SKIP() << "sanitizers map more than any limit";
  pool_.set_size(1);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(use_a_pool_without_room_for_threads(pool_));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "the addresses of this process cannot be limited";
  EXPECT_EQ(status, 0);
}
#endif

// The test below reads this line from processes of their own.
TEST(WorkerPoolSize, IsPrinted) {
  EXPECT_GE(WorkerPool::instance().size(), 1);
  std::printf("size=%d\n", WorkerPool::instance().size());
}

int size_with(const std::string& value) {
  std::array<char, 4096> path = {};
  if (readlink("/proc/self/exe", path.data(), path.size() - 1) < 0) return -1;
  const std::string command =
      "OMP_NUM_THREADS='" + value + "' '" + path.data() + "' --gtest_filter=WorkerPoolSize.IsPrinted";
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return -1;
  int size = -1;
  for (std::array<char, 256> line; fgets(line.data(), line.size(), pipe) != nullptr;) {
    if (std::sscanf(line.data(), "size=%d", &size) == 1) break;
  }
  while (fgetc(pipe) != EOF) {
  }
  pclose(pipe);
  return size;
}

TEST(WorkerPoolSize, FollowsOmpNumThreadsTheAffinityMaskAndControlGroups) {
  const std::vector<int> processors = allowed_processors();
  EXPECT_EQ(size_with("1"), 1);
  EXPECT_EQ(size_with(" 1 , 4"), 1);
  EXPECT_EQ(size_with("1000000"), static_cast<int>(processors.size()));
  const int threads = threads_within(count_cores(processors), processor_quota());
  for (const char* ignored : {"", "0", "-2", "many", "1x", "99999999999999999999"}) {
    EXPECT_EQ(size_with(ignored), threads) << '"' << ignored << '"';
  }
}

}  // namespace
}  // namespace anyaccel::cpu
