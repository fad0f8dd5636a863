// The number of file descriptors that the ranks of one host need for their shared memory, at most and in the end, and
// the error where the limit on open files (ulimit -n) is lower. Ranks are processes, each with a limit of its own.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "comm/shared_memory_ranks.h"

namespace anyaccel::comm {
namespace {

using test::Report;
using test::run_processes;
using test::run_threads;

constexpr int kRanks = 24;

int open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<int>(std::distance(begin(files), end(files))) - 1;
}

void set_limits(int soft, int hard) {
  const rlimit limit{static_cast<rlim_t>(soft), static_cast<rlim_t>(hard)};
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) throw std::runtime_error("the limit cannot be set");
}

void add_up(HostCommunicator& group) {
  float value = 1;
  group.all_reduce(&value, 1, DType::F32, ReduceOp::Sum);
  if (value != static_cast<float>(group.size())) throw std::runtime_error("a wrong sum");
}

TEST(SharedMemoryFiles, ARankNeedsOneForEachOtherAndRankZeroTwoAndOneForTensors) {
  const std::vector<Report> reports = run_processes(kRanks, [](const Membership& membership) {
    const int before = open_files();
    // While it is made: three of another member's, four of its own, and member 0 listens.
    const int needed = (membership.rank == 0 ? 2 : 1) * (kRanks - 1) + 9;
    set_limits(before + needed, before + needed);
    const auto group = make_shared_memory_communicator(membership);
    add_up(*group);
    const int kept = open_files() - before;
    const int expected = (membership.rank == 0 ? 2 * (kRanks - 1) : kRanks) + 1;
    if (kept > expected) throw std::runtime_error("keeps " + std::to_string(kept));
    const SharedBlock block = group->share(4096);
    if (!block.data) throw std::runtime_error("no block");
    add_up(*group);
    if (open_files() - before > expected) throw std::runtime_error("a block keeps descriptors");
    group->barrier();
  });
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(reports[static_cast<size_t>(rank)].text, "") << "rank " << rank;
}

TEST(SharedMemoryFiles, FurtherGroupsShareWhatTellsOfAPeersEnd) {
  const std::vector<Report> reports = run_processes(4, [](const Membership& membership) {
    const auto first = make_shared_memory_communicator(membership);
    first->barrier();
    const int before = open_files();
    const auto second = make_shared_memory_communicator(membership);
    add_up(*second);
    const int more = open_files() - before;
    first->barrier();
    if (more > (membership.rank == 0 ? 3 : 1)) throw std::runtime_error("a second group keeps " + std::to_string(more));
  });
  for (const Report& report : reports) EXPECT_EQ(report.text, "");
}

TEST(SharedMemoryFiles, TheSoftLimitIsRaisedWhereTheHardOneAllows) {
  const std::vector<Report> reports = run_processes(kRanks, [](const Membership& membership) {
    const int before = open_files();
    set_limits(before + 4, before + 400);
    const auto group = make_shared_memory_communicator(membership);
    add_up(*group);
    group->barrier();
  });
  for (const Report& report : reports) EXPECT_EQ(report.text, "");
}

TEST(SharedMemoryFiles, TooLowALimitIsNamed) {
  for (const auto& [ranks, with] : {std::pair(8, "with the 7 other ranks of this host"),
                                    {2, "with the other rank of this host"},
                                    {1, "for the group of one rank"}}) {
    const std::vector<Report> reports = run_processes(ranks, [](const Membership& membership) {
      const int before = open_files();
      set_limits(before + 5, before + 5);
      make_shared_memory_communicator(membership);
    });
    for (const Report& report : reports) {
      EXPECT_NE(report.text.find("no shared memory can be made " + std::string(with) + ": this process has "),
                std::string::npos)
          << report.text;
      EXPECT_NE(report.text.find(" files open of at most "), std::string::npos) << report.text;
      EXPECT_NE(report.text.find("raise the limit on open files to "), std::string::npos) << report.text;
    }
  }
}

// The usual limit of an ordinary user, and as many ranks as tests have, all in one process.
TEST(SharedMemoryFiles, ManyRanksOfOneProcessAtTheUsualLimit) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit usual = before;
  usual.rlim_cur = std::min<rlim_t>(256, before.rlim_max);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &usual), 0);
  run_threads(kRanks, [](const Membership& membership) {
    const auto group = make_shared_memory_communicator(membership);
    add_up(*group);
  });
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace
}  // namespace anyaccel::comm
