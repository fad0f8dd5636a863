// Tests of failures between the ranks of one host: ranks that die, leave, come late, disagree, or are told to stop.
// Everything ends with an error that names the rank, soon; and nothing is left behind.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <fstream>
#include <vector>

#include "comm/shared_memory/exchange.h"
#include "comm/shared_memory/peer_process.h"
#include "comm/shared_memory/segment.h"
#include "comm/shared_memory_ranks.h"
#include "comm/store/socket.h"
#include "comm/wait_limit.h"

namespace anyaccel::comm {
namespace {

using namespace std::chrono_literals;
using test::Report;
using test::run_processes;
using test::run_threads;
using Clock = std::chrono::steady_clock;

// Far more than it takes, far less than the time limit of an operation.
constexpr auto kSoon = 20s;

std::string text_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const CommunicationError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(SharedMemoryFailure, ADeadRankIsNamedByTheOthers) {
  // In each kind of waiting: for an opening, within an operation, for a message.
  for (int kind = 0; kind < 3; ++kind) {
    const auto start = Clock::now();
    const std::vector<Report> reports = run_processes(3, [&](const Membership& membership) {
      const auto group = make_shared_memory_communicator(membership);
      group->barrier();
      if (membership.rank == 1) raise(SIGKILL);
      std::vector<float> data(1000000, 1.0f);
      if (kind == 0) group->barrier();
      if (kind == 1) group->all_reduce(data.data(), 1000000, DType::F32, ReduceOp::Sum);
      if (kind == 2) group->recv(data.data(), 8, 1, 3);
    });
    EXPECT_LT(Clock::now() - start, kSoon);
    EXPECT_TRUE(WIFSIGNALED(reports[1].status));
    for (const int r : {0, 2}) {
      const std::string& text = reports[static_cast<size_t>(r)].text;
      EXPECT_TRUE(contains(text, "rank 1 on here died")) << r << ": " << text;
      EXPECT_TRUE(contains(text, kind == 0   ? "barrier"
                                 : kind == 1 ? "all_reduce of 1000000 float32 (sum)"
                                             : "recv of 8"))
          << text;
    }
  }
}

TEST(WaitLimit, DoesNotCountTimeInWhichTheProcessWasStopped) {
  const Clock::time_point begin{1h};
  WaitLimit limit(5s, begin);
  EXPECT_FALSE(limit.passed(begin + 1s));
  EXPECT_FALSE(limit.passed(begin + 30min));  // nobody looked
  for (int i = 1; i < 4; ++i) EXPECT_FALSE(limit.passed(begin + 30min + i * 1s));
  EXPECT_TRUE(limit.passed(begin + 30min + 4s));
  EXPECT_TRUE(limit.passed(begin + 40min));
}

TEST(SharedMemoryFailure, AStoppedRankWaitsOnWhenItIsResumed) {
  const std::vector<Report> reports = run_processes(2, [&](Membership membership) {
    membership.timeout = 3s;
    const auto group = make_shared_memory_communicator(membership);
    if (membership.rank == 0) membership.store->set("process", std::to_string(getpid()));
    group->barrier();
    if (membership.rank == 1) {
      const int peer = std::stoi(membership.store->get("process", 10s));
      std::this_thread::sleep_for(100ms);  // it waits in its second barrier
      kill(peer, SIGSTOP);
      std::this_thread::sleep_for(4s);
      kill(peer, SIGCONT);
      std::this_thread::sleep_for(100ms);
    }
    group->barrier();
  });
  for (const Report& report : reports) EXPECT_EQ(report.text, "");
}

TEST(SharedMemoryFailure, KilledAtRandomMoments) {
  // The number of ranks that have made their group.
  void* const memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto& ready = *new (memory) std::atomic<int>(0);
  for (int round = 0; round < 10; ++round) {
    ready = 0;
    const std::vector<Report> reports = run_processes(
        3,
        [&](const Membership& membership) {
          const auto group = make_shared_memory_communicator(membership);
          ++ready;
          std::vector<float> data(300000, 1.0f);
          for (int64_t i = 0;; ++i) group->all_reduce(data.data(), 1 + i * 7919 % 300000, DType::F32, ReduceOp::Max);
        },
        [&](const std::vector<pid_t>& children) {
          while (ready < 3) usleep(100);
          usleep(static_cast<useconds_t>(1717 * round));
          kill(children[2], SIGKILL);
        });
    EXPECT_TRUE(WIFSIGNALED(reports[2].status));
    for (const int r : {0, 1}) {
      const std::string& text = reports[static_cast<size_t>(r)].text;
      EXPECT_TRUE(contains(text, "all_reduce of") && contains(text, "rank 2 on here died")) << text;
    }
  }
  munmap(memory, 4096);
}

TEST(SharedMemoryFailure, ARankThatLeavesIsNamed) {
  run_threads(2, [&](const Membership& membership) {
    auto group = make_shared_memory_communicator(membership);
    if (membership.rank == 0) return;
    const std::string text = text_of([&] { group->barrier(); });
    EXPECT_TRUE(contains(text, "rank 0 on here has left")) << text;
    EXPECT_EQ(text_of([&] { group->barrier(); }), text);  // every time after that
  });
}

TEST(SharedMemoryFailure, WhatALeavingRankSentStillArrives) {
  run_threads(2, [&](const Membership& membership) {
    const auto group = make_shared_memory_communicator(membership);
    int number = 7;
    if (membership.rank == 0) {
      group->send(&number, sizeof(number), 1, 0);
      return;
    }
    usleep(50000);
    number = 0;
    group->recv(&number, sizeof(number), 0, 0);
    EXPECT_EQ(number, 7);
    EXPECT_TRUE(contains(text_of([&] { group->recv(&number, sizeof(number), 0, 0); }), "rank 0 on here has left"));
  });
}

TEST(SharedMemoryFailure, DisagreementIsToldToEverybody) {
  using Call = std::function<void(HostCommunicator&, float*)>;
  const struct {
    Call odd, others;
    std::vector<std::string> parts;
  } cases[] = {
      {[](HostCommunicator& g, float* d) { g.all_reduce(d, 5, DType::F32, ReduceOp::Sum); },
       [](HostCommunicator& g, float* d) { g.all_reduce(d, 4, DType::F32, ReduceOp::Sum); },
       {"rank 1 on here calls all_reduce of 5 float32 (sum)", "calls all_reduce of 4 float32 (sum)"}},
      {[](HostCommunicator& g, float* d) { g.all_reduce(d, 100000, DType::F32, ReduceOp::Sum); },
       [](HostCommunicator& g, float* d) { g.all_reduce(d, 50000, DType::F64, ReduceOp::Sum); },
       {"all_reduce of 100000 float32 (sum)", "all_reduce of 50000 float64 (sum)"}},
      {[](HostCommunicator& g, float* d) { g.all_reduce(d, 100, DType::F32, ReduceOp::Max); },
       [](HostCommunicator& g, float* d) { g.all_reduce(d, 100, DType::F32, ReduceOp::Min); },
       {"(max)", "(min)"}},
      {[](HostCommunicator& g, float* d) { g.broadcast(d, 100, 0); },
       [](HostCommunicator& g, float* d) { g.broadcast(d, 100, 1); },
       {"broadcast of 100 bytes from rank 0", "broadcast of 100 bytes from rank 1"}},
      {[](HostCommunicator& g, float* d) {
         g.broadcast(d, {100, DType::I32}, 0);
       },
       [](HostCommunicator& g, float* d) {
         g.broadcast(d, {100, DType::F32}, 0);
       },
       {"broadcast of 25 int32 from rank 0", "broadcast of 25 float32 from rank 0"}},
      {[](HostCommunicator& g, float* d) {
         g.all_to_all(d, d + 50000, {8000, DType::F16});
       },
       [](HostCommunicator& g, float* d) {
         g.all_to_all(d, d + 50000, {8000, DType::BF16});
       },
       {"all_to_all of 4000 float16", "all_to_all of 4000 bfloat16"}},
      {[](HostCommunicator& g, float*) { g.barrier(); },
       [](HostCommunicator& g, float* d) { g.all_gather(d, d + 50000, 100); },
       {"rank 1 on here calls barrier", "calls all_gather of 100 bytes"}},
      {[](HostCommunicator& g, float*) { g.share(4096); },
       [](HostCommunicator& g, float*) { g.share(8192); },
       {"share of 4096 bytes", "share of 8192 bytes"}},
  };
  for (const auto& c : cases) {
    run_threads(3, [&](const Membership& membership) {
      const auto group = make_shared_memory_communicator(membership);
      std::vector<float> data(200000, 1.0f);
      const std::string text = text_of([&] { (membership.rank == 1 ? c.odd : c.others)(*group, data.data()); });
      for (const std::string& part : c.parts) EXPECT_TRUE(contains(text, part)) << part << " in " << text;
      EXPECT_TRUE(contains(text_of([&] { group->barrier(); }), "different operations"));
    });
  }
}

TEST(SharedMemoryFailure, AMessageOfAnotherSize) {
  run_threads(2, [&](const Membership& membership) {
    const auto group = make_shared_memory_communicator(membership);
    char data[32] = {};
    if (membership.rank == 0) {
      group->send(data, 16, 1, 5);
      // The receiver's failure is the group's.
      EXPECT_TRUE(contains(text_of([&] { group->barrier(); }), "it sent 16 bytes"));
      return;
    }
    const std::string text = text_of([&] { group->recv(data, 32, 0, 5); });
    EXPECT_TRUE(contains(text, "recv of 32 bytes from rank 0 on here (tag 5): it sent 16 bytes")) << text;
  });
}

TEST(SharedMemoryFailure, TheTimeLimit) {
  run_threads(2, [&](const Membership& given) {
    Membership membership = given;
    const auto group = [&] {
      if (membership.rank == 0) membership.timeout = 300ms;
      return make_shared_memory_communicator(membership);
    }();
    if (membership.rank == 1) {
      // Comes when rank 0 has given up, and hears why.
      std::string text;
      usleep(1500000);
      text = text_of([&] { group->barrier(); });
      EXPECT_TRUE(contains(text, "did not come within 300 ms") || text == "nothing was thrown") << text;
      return;
    }
    const std::string text = text_of([&] { group->barrier(); });
    EXPECT_EQ(text, "barrier: rank 1 on here did not come within 300 ms");
  });
}

TEST(SharedMemoryFailure, WhoDoesNotComeAtAll) {
  Membership membership = test::member(0, 3, make_local_store());
  membership.timeout = 200ms;
  const std::string text = text_of([&] { make_shared_memory_communicator(membership); });
  EXPECT_TRUE(contains(text, "rank 1 on here, rank 2 on here")) << text;
}

TEST(SharedMemoryFailure, WhoComesAndSaysNothing) {
  const auto store = make_local_store();
  std::atomic<bool> given_up{false};
  std::thread silent([&] {
    const Membership membership = test::member(1, 2, store);
    try {
      const shm::Exchange connected(membership, [] {});
      while (!given_up) usleep(1000);
    } catch (const CommunicationError&) {  // too late: see below
    }
  });
  Membership membership = test::member(0, 2, store);
  membership.timeout = 1s;
  const std::string text = text_of([&] { make_shared_memory_communicator(membership); });
  EXPECT_TRUE(contains(text, "making the group's shared memory: not all members came within 1000 ms") ||
              contains(text, "did not come"))  // a machine so loaded that the thread came too late
      << text;
  given_up = true;
  silent.join();
}

TEST(SharedMemoryFailure, AbortFromAnotherThread) {
  run_threads(2, [&](const Membership& membership) {
    const auto group = make_shared_memory_communicator(membership);
    std::thread other;
    if (membership.rank == 0) {
      other = std::thread([&] {
        usleep(100000);
        group->abort("the user pressed a button");
      });
    }
    char data = 0;
    const auto start = Clock::now();
    // Neither message comes.
    const std::string text = text_of([&] { group->recv(&data, 1, 1 - membership.rank, 0); });
    EXPECT_TRUE(contains(text, "the user pressed a button")) << text;
    EXPECT_LT(Clock::now() - start, kSoon);
    if (other.joinable()) other.join();
  });
}

class TestWatch final : public FailureWatch {
 public:
  bool failed() const noexcept override { return failed_.load(std::memory_order_relaxed); }
  void check() const override {
    if (failed()) throw CommunicationError("node7 went silent");
  }
  void set() { failed_ = true; }

 private:
  std::atomic<bool> failed_{false};
};

TEST(SharedMemoryFailure, TheJobsFailureIsNoticed) {
  const auto watch = std::make_shared<TestWatch>();
  run_threads(2, [&](const Membership& given) {
    Membership membership = given;
    membership.watch = watch;
    const auto group = make_shared_memory_communicator(membership);
    if (membership.rank == 1) {
      usleep(100000);
      watch->set();
      return;
    }
    // Rank 1 leaves right afterwards, so either may be seen first; the watch comes first.
    const std::string text = text_of([&] { group->barrier(); });
    EXPECT_EQ(text, "node7 went silent");
  });
}

TEST(SharedMemoryFailure, NothingIsLeftBehind) {
  const auto files_of = [](const char* folder) {
    std::vector<std::string> names;
    if (DIR* directory = opendir(folder)) {
      while (const dirent* entry = readdir(directory)) names.emplace_back(entry->d_name);
      closedir(directory);
    }
    std::sort(names.begin(), names.end());
    return names;
  };
  const auto open_files = files_of("/proc/self/fd");
  const std::vector<Report> reports = run_processes(2, [&](const Membership& membership) {
    const auto group = make_shared_memory_communicator(membership);
    const SharedBlock block = group->share(1 << 20);
    // Shared objects have no names that could outlive the processes.
    std::ifstream maps("/proc/self/maps");
    bool shares = false;
    for (std::string line; std::getline(maps, line);) {
      if (contains(line, "/dev/shm/")) throw std::runtime_error("a file with a name is mapped: " + line);
      shares = shares || contains(line, "/memfd:anyaccel");
    }
    if (!shares) throw std::runtime_error("no shared memory is mapped");
    group->barrier();
    raise(SIGKILL);
  });
  for (const Report& report : reports) EXPECT_EQ(report.text, "");
  run_threads(3, [&](const Membership& membership) {
    const auto group = make_shared_memory_communicator(membership);
    const SharedBlock block = group->share(1 << 20);
  });
  EXPECT_EQ(files_of("/proc/self/fd").size(), open_files.size());
}

// The abstract unix socket that the group's entry in the store names.
struct GroupAddress {
  explicit GroupAddress(const std::string& entry) {
    const std::string name = entry.substr(0, entry.find(' '));
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path + 1, sizeof(address.sun_path) - 1);
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  bool connects(const FileDescriptor& fd) const {
    return connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0;
  }
  sockaddr_un address{};
  socklen_t length = 0;
};

// What a member says first, as in exchange.cpp.
struct Hello {
  uint32_t version;
  int32_t rank, size;
  char secret[32];
};

// Connects to a group of which the store has this entry, and says it is a member; with another secret unless `knows`.
FileDescriptor say_hello(const std::string& entry, Hello hello, bool knows) {
  FileDescriptor fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  EXPECT_TRUE(GroupAddress(entry).connects(fd));
  std::string secret = entry.substr(entry.find(' ') + 1);
  if (!knows) std::reverse(secret.begin(), secret.end());
  secret.copy(hello.secret, sizeof(hello.secret));
  EXPECT_EQ(write(fd.get(), &hello, sizeof(hello)), static_cast<ssize_t>(sizeof(hello)));
  return fd;
}

TEST(SharedMemoryFailure, AMemberThatDoesNotFitIsAnError) {
  struct Wrong {
    std::vector<Hello> hellos;
    std::string said;
  };
  for (const Wrong& wrong : {Wrong{{{3, 1, 3, {}}}, "rank 1 of 3, version 3"}, Wrong{{{2, 1, 4, {}}}, "rank 1 of 4"},
                             Wrong{{{2, 3, 3, {}}}, "rank 3 of 3"}, Wrong{{{2, 0, 3, {}}}, "rank 0 of 3"},
                             Wrong{{{2, 1, 3, {}}, {2, 1, 3, {}}}, "rank 1 of 3, version 2"}}) {
    const auto store = make_local_store();
    Membership membership = test::member(0, 3, store);
    membership.timeout = kSoon;
    std::string said;
    std::thread first([&] { said = text_of([&] { make_shared_memory_communicator(membership); }); });
    const std::string entry = store->get("shared_memory", 20s);
    std::vector<FileDescriptor> members;
    for (const Hello& hello : wrong.hellos) members.push_back(say_hello(entry, hello, true));
    first.join();
    EXPECT_TRUE(contains(said, wrong.said)) << said;
  }
}

TEST(SharedMemoryFailure, StrangersAreTurnedAway) {
  // Something connects to the socket and says nonsense, or that it is a member, without the secret; the group is made all the same.
  const auto store = make_local_store();
  std::thread first([&] {
    const auto group = make_shared_memory_communicator(test::member(0, 2, store));
    group->barrier();
  });
  const std::string entry = store->get("shared_memory", 20s);
  const FileDescriptor liar = say_hello(entry, {2, 1, 2, {}}, false);
  const GroupAddress address(entry);
  const FileDescriptor silent(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const FileDescriptor loud(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  EXPECT_TRUE(address.connects(silent));
  EXPECT_TRUE(address.connects(loud));
  const char nonsense[] = "GET / HTTP/1.1";
  EXPECT_EQ(write(loud.get(), nonsense, sizeof(nonsense)), static_cast<ssize_t>(sizeof(nonsense)));
  const auto group = make_shared_memory_communicator(test::member(1, 2, store));
  group->barrier();
  first.join();
  // Nobody can join any more, nor find the name.
  EXPECT_FALSE(address.connects(FileDescriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0))));
  EXPECT_THROW(store->get("shared_memory", 1ms), CommunicationError);
}

TEST(Segment, RefusesMemoryThatMayShrink) {
  const FileDescriptor fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(fd.get(), 8192), 0);
  EXPECT_TRUE(contains(text_of([&] { shm::map_segment(fd.get(), 8192, "rank 3"); }), "rank 3 is not sealed"));
  EXPECT_TRUE(contains(text_of([&] { shm::map_segment(fd.get(), 8193, "rank 3"); }), "8193 were announced"));
  const shm::Segment segment = shm::create_segment("test", 5000, false);
  EXPECT_EQ(segment.mapping->bytes(), 8192u);
  EXPECT_NE(ftruncate(segment.fd.get(), 4096), 0);
  EXPECT_EQ(shm::map_segment(segment.fd.get(), 8192, "rank 3"), segment.mapping);  // of the same process
}

TEST(PeerProcess, LivesAndDies) {
  for (const bool with_pidfd : {true, false}) {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    struct Sent {
      shm::ProcessIdentity identity;
    };
    const pid_t child = fork();
    if (child == 0) {
      const Sent sent{shm::own_identity()};
      // Devices that a process uses afterwards do not change its identity.
      void* const more = mmap(nullptr, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      const ssize_t written = more == MAP_FAILED ? 0 : write(ends[1], &sent, sizeof(sent));
      pause();
      _exit(written > 0 ? 0 : 1);
    }
    Sent sent{};
    ASSERT_EQ(read(ends[0], &sent, sizeof(sent)), static_cast<ssize_t>(sizeof(sent)));
    EXPECT_EQ(sent.identity.pid, child);
    EXPECT_NE(sent.identity.start_time, 0u);
    FileDescriptor pidfd;
    if (with_pidfd) pidfd = FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, child, 0)));
    if (with_pidfd && !pidfd) GTEST_SKIP() << "this kernel has no pidfd_open";
    const shm::PeerProcess peer(sent.identity, std::move(pidfd));
    EXPECT_TRUE(peer.alive());
    // A process with the same number that started at another time is another one.
    shm::ProcessIdentity other = sent.identity;
    ++other.start_time;
    EXPECT_FALSE(shm::PeerProcess(other, {}).alive());
    kill(child, SIGKILL);
    siginfo_t info{};
    waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
    EXPECT_FALSE(peer.alive());  // a zombie
    waitpid(child, nullptr, 0);
    EXPECT_FALSE(peer.alive());
    close(ends[0]);
    close(ends[1]);
  }
}

}  // namespace
}  // namespace anyaccel::comm
