// The simulated NCCL through its raw functions: results on ranks that are threads and ranks that are processes, and what it
// reports when ranks do not do the same.
#include <sys/wait.h>

#include <atomic>
#include <thread>

#include "tests/simulators/library_process.h"

namespace {

using namespace sim_test;

struct UniqueId {
  char bytes[128];
};
constexpr int kInvalidArgument = 4, kInvalidUsage = 5, kRemoteError = 6;  // ncclResult_t
constexpr int kInt32 = 2, kHalf = 6, kFloat = 7;
constexpr int kSum = 0, kMax = 2, kAverage = 4;

template <typename... Args>
int nccl(const char* name, Args... args) {
  return call("libnccl.so.2", name, args...);
}
const void* at(std::uint64_t pointer) { return reinterpret_cast<const void*>(pointer); }
void* out(std::uint64_t pointer) { return reinterpret_cast<void*>(pointer); }
UniqueId unique_id() {
  UniqueId id{};
  OK(nccl("ncclGetUniqueId", &id));
  return id;
}

// One rank of a communicator: its device current, a stream of its own.
struct Rank {
  Device device;
  void *stream = nullptr, *comm = nullptr;
  int rank, ranks;

  Rank(const UniqueId& id, int number, int count, int ordinal) : device(ordinal), rank(number), ranks(count) {
    stream = make_stream();
    OK(nccl("ncclCommInitRank", &comm, count, id, number));
  }
  void close() const {
    OK(nccl("ncclCommFinalize", comm));
    OK(nccl("ncclCommDestroy", comm));
    destroy_stream(stream);
    device.close();
  }
  int all_reduce(std::uint64_t from, std::uint64_t to, std::size_t count, int type = kFloat,
                 int reduction = kSum) const {
    return nccl("ncclAllReduce", at(from), out(to), count, type, reduction, comm, stream);
  }
  int async_error() const {
    int error = -1;
    OK(nccl("ncclCommGetAsyncError", comm, &error));
    return error;
  }
};

// Every rank's program on a thread of its own, each on its own device.
void on_threads(int ranks, const std::function<void(Rank&)>& program) {
  OK(cu("cuInit", 0U));
  const UniqueId id = unique_id();
  std::vector<std::thread> threads;
  for (int i = 0; i < ranks; ++i) {
    threads.emplace_back([&, i] {
      Rank rank(id, i, ranks, i);
      program(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// All collectives on more elements than one piece of the rendezvous holds.
void collectives(Rank& r) {
  constexpr std::size_t n = 70001;
  const auto ranks = static_cast<std::size_t>(r.ranks), rank = static_cast<std::size_t>(r.rank);
  const auto value = [](std::size_t who, std::size_t i) {
    return static_cast<float>(who + 1) * static_cast<float>(i % 97);
  };
  std::vector<float> own(n * ranks);
  for (std::size_t i = 0; i < own.size(); ++i) own[i] = value(rank, i);
  const std::uint64_t x = upload(own, r.stream), y = allocate(own.size() * 4);
  const float all = static_cast<float>(ranks * (ranks + 1)) / 2;

  OK(r.all_reduce(x, y, n));
  auto got = download<float>(y, n, r.stream);
  for (std::size_t i = 0; i < n; ++i) CHECK(got[i] == all * static_cast<float>(i % 97));
  OK(r.all_reduce(x, y, n, kFloat, kMax));
  got = download<float>(y, n, r.stream);
  for (std::size_t i = 0; i < n; ++i) CHECK(got[i] == value(ranks - 1, i));

  OK(nccl("ncclReduce", at(x), out(y), n, kFloat, kSum, 1, r.comm, r.stream));
  if (r.rank == 1) {
    got = download<float>(y, n, r.stream);
    for (std::size_t i = 0; i < n; ++i) CHECK(got[i] == all * static_cast<float>(i % 97));
  }
  OK(nccl("ncclBroadcast", at(x), out(y), n, kFloat, 1, r.comm, r.stream));
  got = download<float>(y, n, r.stream);
  for (std::size_t i = 0; i < n; ++i) CHECK(got[i] == value(1, i));

  OK(nccl("ncclAllGather", at(x), out(y), n, kFloat, r.comm, r.stream));
  got = download<float>(y, n * ranks, r.stream);
  for (std::size_t i = 0; i < n * ranks; ++i) CHECK(got[i] == value(i / n, i % n));

  // In place: the rank's own part of the larger buffer.
  OK(nccl("ncclReduceScatter", at(x), out(x + rank * n * 4), n, kFloat, kSum, r.comm, r.stream));
  got = download<float>(x + rank * n * 4, n, r.stream);
  for (std::size_t i = 0; i < n; ++i) CHECK(got[i] == all * static_cast<float>((rank * n + i) % 97));

  // Everybody to the next one, in a group so that nobody waits for himself.
  OK(cu("cuMemcpyHtoDAsync_v2", x, static_cast<const void*>(own.data()), n * 4, r.stream));
  OK(nccl("ncclGroupStart"));
  OK(nccl("ncclSend", at(x), n, kFloat, (r.rank + 1) % r.ranks, r.comm, r.stream));
  OK(nccl("ncclRecv", out(y), n, kFloat, (r.rank + r.ranks - 1) % r.ranks, r.comm, r.stream));
  OK(nccl("ncclGroupEnd"));
  got = download<float>(y, n, r.stream);
  for (std::size_t i = 0; i < n; ++i) CHECK(got[i] == value((rank + ranks - 1) % ranks, i));
  OK(r.async_error());
  release(x);
  release(y);
}

class NcclFace : public LibraryProcess {};

TEST_F(NcclFace, CollectivesAreRightOnThreads) {
  for (const int ranks : {2, 3}) {
    SCOPED_TRACE(ranks);
    expect_clean(
        [&] {
          on_threads(ranks, [](Rank& r) {
            collectives(r);
            r.close();
          });
        },
        {{"SIM_DEVICES", "3"}, {"SIM_SEED", "5"}});
  }
}

TEST_F(NcclFace, CollectivesAreRightOnProcesses) {
  expect_clean(
      [] {
        const UniqueId id = unique_id();
        const auto rank = [&](int number) {
          Rank r(id, number, 2, number);
          collectives(r);
          r.close();
        };
        const pid_t child = ::fork();
        if (child == 0) {
          ::setenv("SIM_REPORT", "", 1);
          rank(1);
          std::_Exit(0);
        }
        rank(0);
        int status = 0;
        ::waitpid(child, &status, 0);
        CHECK_EQUAL(0, status);
      },
      {{"SIM_STRICT", "abort"}});
}

TEST_F(NcclFace, OneThreadDrivesAllDevices) {
  expect_clean(
      [] {
        OK(cu("cuInit", 0U));
        void* comms[3] = {};
        OK(nccl("ncclCommInitAll", &comms[0], 3, static_cast<const int*>(nullptr)));
        std::vector<Device> devices;
        std::vector<void*> streams;
        std::vector<std::uint64_t> buffers;
        for (int i = 0; i < 3; ++i) {
          int rank = -1, count = -1, ordinal = -1;
          OK(nccl("ncclCommUserRank", comms[i], &rank));
          OK(nccl("ncclCommCount", comms[i], &count));
          OK(nccl("ncclCommCuDevice", comms[i], &ordinal));
          CHECK(rank == i && count == 3 && ordinal == i);
          devices.emplace_back(i);
          streams.push_back(make_stream());
          buffers.push_back(upload(std::vector<std::int32_t>(10, 3 * i), streams.back()));
        }
        // Nested groups end with the outermost one; any context may be current.
        OK(nccl("ncclGroupStart"));
        OK(nccl("ncclGroupStart"));
        for (std::size_t i = 0; i < 3; ++i) {
          OK(nccl("ncclAllReduce", at(buffers[i]), out(buffers[i]), std::size_t{10}, kInt32, kAverage, comms[i],
                  streams[i]));
        }
        OK(nccl("ncclGroupEnd"));
        OK(nccl("ncclGroupEnd"));
        for (std::size_t i = 0; i < 3; ++i) {
          devices[i].make_current();
          for (const std::int32_t value : download<std::int32_t>(buffers[i], 10, streams[i])) CHECK(value == 3);
          OK(nccl("ncclCommDestroy", comms[i]));
          release(buffers[i]);
          destroy_stream(streams[i]);
          devices[i].close();
        }
      },
      {{"SIM_DEVICES", "3"}});
}

TEST_F(NcclFace, HalvesAreAddedUpInFloatAndRoundedOnce) {
  expect_clean([] {
    on_threads(2, [](Rank& r) {
      // 2048 + 1 has no place in 11 bits; 2048 + 3 goes to 2052.
      const std::uint64_t x = upload(std::vector<std::uint16_t>{0x6800, 0x6800}, r.stream);
      const std::uint64_t odd = upload(std::vector<std::uint16_t>{0x3c00, 0x4200}, r.stream);
      OK(r.all_reduce(r.rank == 0 ? x : odd, x, 2, kHalf));
      const auto got = download<std::uint16_t>(x, 2, r.stream);
      CHECK(got[0] == 0x6800 && got[1] == 0x6802);
      release(x);
      release(odd);
      r.close();
    });
  });
}

TEST_F(NcclFace, ASplitMakesCommunicatorsByColor) {
  expect_clean(
      [] {
        on_threads(3, [](Rank& r) {
          void* part = nullptr;
          OK(nccl("ncclCommSplit", r.comm, r.rank == 1 ? 7 : 4, -r.rank, &part, static_cast<const void*>(nullptr)));
          int count = 0, rank = -1;
          OK(nccl("ncclCommCount", part, &count));
          OK(nccl("ncclCommUserRank", part, &rank));
          CHECK_EQUAL(r.rank == 1 ? 1 : 2, count);
          CHECK_EQUAL(r.rank == 0 ? 1 : 0, rank);  // by key: rank 2 comes before rank 0
          const std::uint64_t x = upload(std::vector<float>(4, static_cast<float>(r.rank + 1)), r.stream);
          OK(nccl("ncclAllReduce", at(x), out(x), std::size_t{4}, kFloat, kSum, part, r.stream));
          for (const float value : download<float>(x, 4, r.stream)) CHECK(value == (r.rank == 1 ? 2.0F : 4.0F));
          OK(nccl("ncclCommDestroy", part));
          release(x);
          r.close();
        });
      },
      {{"SIM_DEVICES", "3"}});
}

TEST_F(NcclFace, CapturedCollectivesRunAgain) {
  expect_clean([] {
    on_threads(2, [](Rank& r) {
      void *graph = nullptr, *exec = nullptr;
      const std::uint64_t x = upload(std::vector<float>(8, 1), r.stream);
      OK(cu("cuStreamBeginCapture_v2", r.stream, 1));
      OK(r.all_reduce(x, x, 8));
      OK(cu("cuStreamEndCapture", r.stream, &graph));
      OK(cu("cuGraphInstantiateWithFlags", &exec, graph, 0ULL));
      for (int i = 0; i < 3; ++i) OK(cu("cuGraphLaunch", exec, r.stream));
      for (const float value : download<float>(x, 8, r.stream)) CHECK(value == 8);
      OK(cu("cuGraphExecDestroy", exec));
      OK(cu("cuGraphDestroy", graph));
      release(x);
      r.close();
    });
  });
}

// A collective waits for the work before it on its stream, and other streams must wait for it.
TEST_F(NcclFace, RacesWithOtherStreamsAreFound) {
  const auto report = run([] {
    on_threads(2, [](Rank& r) {
      void* other = make_stream();
      const std::uint64_t x = upload(std::vector<float>(8, 1), r.stream);
      OK(r.all_reduce(x, x, 8));
      if (r.rank == 0) OK(cu("cuMemsetD8Async", x, static_cast<unsigned char>(0), std::size_t{32}, other));
      wait(r.stream);
      wait(other);
    });
  });
  // One report where the fill comes last, two where the collective does, which reads and writes.
  const std::string found = kinds(report);
  EXPECT_TRUE(found == "race" || found == "race,race") << found;
}

TEST_F(NcclFace, RanksThatDifferAreReported) {
  const std::function<void(Rank&, std::uint64_t)> mistakes[] = {
      [](Rank& r, std::uint64_t x) { OK(r.all_reduce(x, x, r.rank == 0 ? 8U : 4U)); },
      [](Rank& r, std::uint64_t x) { OK(r.all_reduce(x, x, 8, r.rank == 0 ? kFloat : kInt32)); },
      [](Rank& r, std::uint64_t x) { OK(r.all_reduce(x, x, 8, kFloat, r.rank == 0 ? kSum : kMax)); },
      [](Rank& r, std::uint64_t x) {
        OK(nccl("ncclBroadcast", at(x), out(x), std::size_t{8}, kFloat, r.rank, r.comm, r.stream));
      },
      [](Rank& r, std::uint64_t x) {
        if (r.rank == 0) {
          OK(r.all_reduce(x, x, 8));
        } else {
          OK(nccl("ncclBroadcast", at(x), out(x), std::size_t{8}, kFloat, 0, r.comm, r.stream));
        }
      },
  };
  for (const auto& mistake : mistakes) {
    const auto report = run([&] {
      on_threads(2, [&](Rank& r) {
        const std::uint64_t x = upload(std::vector<float>(8, 1), r.stream);
        mistake(r, x);
        wait(r.stream);
        CHECK_EQUAL(kInvalidUsage, r.async_error());
        CHECK_EQUAL(kInvalidUsage, r.all_reduce(x, x, 8));  // nothing works any more
      });
    });
    EXPECT_EQ(kinds(report), "collective-mismatch,collective-mismatch");
  }
}

TEST_F(NcclFace, ARankThatNeverComesIsReported) {
  const auto report = run(
      [] {
        on_threads(2, [](Rank& r) {
          const std::uint64_t x = upload(std::vector<float>(8, 1), r.stream);
          if (r.rank == 0) OK(r.all_reduce(x, x, 8));
          wait(r.stream);
          if (r.rank == 0) CHECK_EQUAL(kRemoteError, r.async_error());
        });
      },
      {{"SIM_HANG_SECONDS", "2"}});
  EXPECT_NE(kinds(report).find("hang"), std::string::npos) << kinds(report);
  EXPECT_NE(report.dump().find("ranks that have not come: 1"), std::string::npos) << report.dump();
}

TEST_F(NcclFace, AnAbortEndsTheWait) {
  expect_clean([] {
    on_threads(2, [](Rank& r) {
      const std::uint64_t x = upload(std::vector<float>(8, 1), r.stream);
      if (r.rank == 0) OK(r.all_reduce(x, x, 8));
      if (r.rank == 1) OK(nccl("ncclCommAbort", r.comm));
      wait(r.stream);
      if (r.rank == 0) {
        CHECK_EQUAL(kRemoteError, r.async_error());
        OK(nccl("ncclCommAbort", r.comm));
      }
      release(x);
      destroy_stream(r.stream);
      r.device.close();
    });
  });
}

TEST_F(NcclFace, MistakesOfOneRankAreRefused) {
  const auto with = [&](const std::function<void(Rank&)>& program) {
    return kinds(run([&] {
      const UniqueId id = unique_id();
      Rank rank(id, 0, 1, 0);
      program(rank);
    }));
  };
  EXPECT_EQ(with([](Rank& r) {
              static float host[8];
              CHECK_EQUAL(kInvalidArgument, r.all_reduce(reinterpret_cast<std::uint64_t>(host), allocate(32), 8));
            }),
            "bad-pointer");
  EXPECT_EQ(with([](Rank& r) { CHECK_EQUAL(kInvalidArgument, r.all_reduce(0, allocate(32), 8)); }), "bad-argument");
  EXPECT_EQ(with([](Rank& r) { CHECK_EQUAL(kInvalidArgument, r.all_reduce(allocate(32), allocate(32), 8, 99)); }),
            "bad-argument");
  EXPECT_EQ(with([](Rank& r) {
              const std::uint64_t x = allocate(64);
              CHECK_EQUAL(kInvalidArgument, r.all_reduce(x, x + 16, 8));  // neither in place nor apart
            }),
            "bad-argument");
  EXPECT_EQ(with([](Rank& r) {
              const Device other(1);
              const std::uint64_t x = allocate(32);
              void* stream = make_stream();
              r.device.make_current();
              const std::uint64_t mine = allocate(32);
              CHECK_EQUAL(kInvalidArgument, r.all_reduce(x, x, 8));
              r.stream = stream;
              CHECK(r.all_reduce(mine, mine, 8) != 0);
            }),
            "wrong-owner,wrong-owner");
  EXPECT_EQ(with([](Rank& r) {
              OK(nccl("ncclCommFinalize", r.comm));
              const std::uint64_t x = allocate(32);
              CHECK_EQUAL(kInvalidUsage, r.all_reduce(x, x, 8));
              OK(nccl("ncclCommDestroy", r.comm));
              CHECK_EQUAL(kInvalidArgument, r.all_reduce(x, x, 8));
            }),
            "destroyed-in-use,bad-handle");
  EXPECT_EQ(with([](Rank&) { CHECK_EQUAL(kInvalidUsage, nccl("ncclGroupEnd")); }), "bad-argument");
  // A mistake inside of a group is told again at its end, and nothing of the group runs.
  EXPECT_EQ(with([](Rank& r) {
              const std::uint64_t x = upload(std::vector<float>(8, 1), r.stream),
                                  y = upload(std::vector<float>(8, 2), r.stream);
              OK(nccl("ncclGroupStart"));
              OK(r.all_reduce(x, y, 8));
              CHECK_EQUAL(kInvalidArgument, r.all_reduce(x, y, 8, 99));
              CHECK_EQUAL(kInvalidArgument, nccl("ncclGroupEnd"));
              for (const float value : download<float>(y, 8, r.stream)) CHECK(value == 2);
            }),
            "bad-argument");
}

TEST_F(NcclFace, RanksMustFitTogether) {
  // One rank twice, two ranks on one device, an id that was made up.
  const auto pair = [&](int first, int second, int first_device, int second_device) {
    return kinds(run(
        [&] {
          OK(cu("cuInit", 0U));
          const UniqueId id = unique_id();
          std::atomic<int> refused = 0;
          const auto join = [&](int rank, int ordinal) {
            const Device device(ordinal);
            void* comm = nullptr;
            if (nccl("ncclCommInitRank", &comm, 2, id, rank) != 0) ++refused;
          };
          std::thread other(join, second, second_device);
          join(first, first_device);
          other.join();
          CHECK(refused == 2);
        },
        {{"SIM_HANG_SECONDS", "1"}}));
  };
  EXPECT_EQ(pair(0, 0, 0, 1), "collective-mismatch,collective-mismatch");
  EXPECT_EQ(pair(0, 1, 0, 0), "collective-mismatch,collective-mismatch");
  EXPECT_EQ(kinds(run([] {
              const Device device;
              UniqueId id{};
              void* comm = nullptr;
              CHECK_EQUAL(kInvalidArgument, nccl("ncclCommInitRank", &comm, 1, id, 0));
              CHECK_EQUAL(kInvalidArgument, nccl("ncclCommInitRank", &comm, 1, unique_id(), 1));
            })),
            "bad-argument,bad-argument");
}

}  // namespace
