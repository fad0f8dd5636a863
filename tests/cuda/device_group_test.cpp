// Groups of devices over the simulated NCCL: results against the host's arithmetic for ranks that are threads and ranks that
// are processes, in graphs, and what becomes of groups that fail.
#include <random>

#include "accelerators/cuda/libraries/collectives.h"
#include "cuda/device_group_test_support.h"

namespace anyaccel::cuda_test {
namespace {

constexpr DType carried_types[] = {DType::Bool, DType::U8,   DType::I8,  DType::I16, DType::I32,    DType::I64,
                                   DType::F16,  DType::BF16, DType::F32, DType::F64, DType::F8E4M3, DType::F8E5M2};
constexpr DType reduced_types[] = {DType::U8,  DType::I8,   DType::I32, DType::I64,
                                   DType::F16, DType::BF16, DType::F32, DType::F64};
constexpr ReduceOp reductions[] = {ReduceOp::Sum, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg};
constexpr int64_t counts[] = {0, 1, 3, 17, 1000, 40001};

// The value of a rank at an index: 1 or 2, so that every sum and product of 8 ranks is exact in every type but a
// product in 8 bits, which wraps; 0 or 1 for a truth value.
double value(uint64_t seed, int rank, size_t i, DType dtype) {
  uint64_t x = (seed * 31 + static_cast<uint64_t>(rank)) * 0x9E3779B97F4A7C15u + i * 0xBF58476D1CE4E5B9u;
  x ^= x >> 29;
  x *= 0x94D049BB133111EBu;
  return static_cast<double>((x >> 40 & 1) + (dtype == DType::Bool ? 0 : 1));
}
std::vector<double> values(uint64_t seed, int rank, int64_t count, DType dtype, size_t first = 0) {
  std::vector<double> made(static_cast<size_t>(count));
  for (size_t i = 0; i < made.size(); ++i) made[i] = value(seed, rank, first + i, dtype);
  return made;
}

double wrapped(double x, DType dtype) {
  if (dtype == DType::U8) return static_cast<uint8_t>(static_cast<int64_t>(x));
  if (dtype == DType::I8) return static_cast<int8_t>(static_cast<int64_t>(x));
  return x;
}

std::vector<double> reduced(uint64_t seed, int ranks, int64_t count, DType dtype, ReduceOp op, size_t first = 0) {
  std::vector<double> result(static_cast<size_t>(count));
  for (size_t i = 0; i < result.size(); ++i) {
    double x = value(seed, 0, first + i, dtype);
    for (int rank = 1; rank < ranks; ++rank) {
      const double other = value(seed, rank, first + i, dtype);
      if (op == ReduceOp::Sum || op == ReduceOp::Avg) x += other;
      if (op == ReduceOp::Product) x *= other;
      if (op == ReduceOp::Min) x = std::min(x, other);
      if (op == ReduceOp::Max) x = std::max(x, other);
    }
    if (op == ReduceOp::Avg) x /= ranks;
    const bool whole = dtype != DType::F16 && dtype != DType::BF16 && dtype != DType::F32 && dtype != DType::F64;
    result[i] = wrapped(op == ReduceOp::Avg && whole ? std::floor(x) : x, dtype);
  }
  return result;
}

void expect_values(const Tensor& tensor, const std::vector<double>& expected, const std::string& what) {
  const std::vector<double> found = tensor.to(Device{}).to_vector<double>();  // converted by the host
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (size_t i = 0; i < found.size(); ++i) {
    // Averages are the only ones that are rounded: half a step of 8 bits.
    ASSERT_NEAR(found[i], expected[i], std::abs(expected[i]) / 256) << what << ", element " << i;
  }
}

std::vector<double> joined(const std::vector<std::vector<double>>& parts) {
  std::vector<double> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// An operation, the same on every rank, with what else it needs drawn from `random`.
void random_operation(Rank& r, int which, std::mt19937_64& random, uint64_t seed) {
  DeviceCommunicator& group = *r.group;
  const int n = r.size();
  const auto draw = [&](auto& list) { return list[random() % std::size(list)]; };
  const int64_t count = draw(counts);
  const ReduceOp op = draw(reductions);
  const DType reduced_type = draw(reduced_types), type = draw(carried_types);
  const int root = static_cast<int>(random() % static_cast<uint64_t>(n));
  const bool in_place = random() % 2 == 0;
  const size_t bytes = static_cast<size_t>(count) * dtype_size(type);
  const std::string what = "operation " + std::to_string(which) + " of " + std::to_string(count) + " of " +
                           std::string(dtype_name(which < 3 ? reduced_type : type)) + " with " +
                           comm::reduce_op_name(op) + ", root " + std::to_string(root) + (in_place ? ", in place" : "");
  const auto own = [&](DType dtype) { return r.upload(values(seed, r.rank(), count, dtype), dtype); };
  const auto own_places = [&](DType dtype) { return r.upload(values(seed, r.rank(), count * n, dtype), dtype); };
  const auto blank = [&](int64_t elements, DType dtype) {
    return r.upload(std::vector<double>(static_cast<size_t>(elements), 0), dtype);
  };
  const auto place = [&](const Tensor& tensor, int rank) { return tensor.slice(0, rank * count, (rank + 1) * count); };
  const auto everyones = [&](DType dtype) {
    std::vector<std::vector<double>> parts;
    for (int rank = 0; rank < n; ++rank) parts.push_back(values(seed, rank, count, dtype));
    return joined(parts);
  };
  switch (which) {
    case 0: {
      const Tensor data = own(reduced_type);
      group.all_reduce(data.data(), count, reduced_type, op);
      expect_values(data, reduced(seed, n, count, reduced_type, op), what);
      break;
    }
    case 1: {
      const Tensor data = own(reduced_type);
      group.reduce(data.data(), count, reduced_type, op, root);
      expect_values(
          data,
          r.rank() == root ? reduced(seed, n, count, reduced_type, op) : values(seed, r.rank(), count, reduced_type),
          what);
      break;
    }
    case 2: {
      const Tensor data = own_places(reduced_type);
      const Tensor out = in_place ? place(data, r.rank()) : blank(count, reduced_type);
      group.reduce_scatter(out.data(), data.data(), count, reduced_type, op);
      expect_values(out, reduced(seed, n, count, reduced_type, op, static_cast<size_t>(r.rank() * count)), what);
      break;
    }
    case 3: {
      const Tensor data = own(type);
      group.broadcast(data.data(), bytes, root);
      expect_values(data, values(seed, root, count, type), what);
      break;
    }
    case 4: {
      const Tensor all = blank(count * n, type);
      const Tensor data = in_place ? place(all, r.rank()) : own(type);
      if (in_place) data.copy_from(own(type));
      group.all_gather(all.data(), data.data(), bytes);
      expect_values(all, everyones(type), what);
      break;
    }
    case 5: {
      const Tensor all = r.rank() == root ? blank(count * n, type) : Tensor();
      const Tensor data = own(type);
      group.gather(r.rank() == root ? all.data() : nullptr, data.data(), bytes, root);
      if (r.rank() == root) expect_values(all, everyones(type), what);
      break;
    }
    case 6: {
      const Tensor all = r.rank() == root ? own_places(type) : Tensor();
      const Tensor data = blank(count, type);
      group.scatter(data.data(), r.rank() == root ? all.data() : nullptr, bytes, root);
      expect_values(data, values(seed, root, count, type, static_cast<size_t>(r.rank() * count)), what);
      break;
    }
    case 7: {
      const Tensor from = own_places(type), to = blank(count * n, type);
      group.all_to_all(to.data(), from.data(), bytes);
      std::vector<std::vector<double>> parts;
      for (int rank = 0; rank < n; ++rank) {
        parts.push_back(values(seed, rank, count, type, static_cast<size_t>(r.rank() * count)));
      }
      expect_values(to, joined(parts), what);
      break;
    }
    default: {  // from root to the next one
      if (n == 1) break;
      const int next = (root + 1) % n;
      const Tensor data = own(type);
      if (r.rank() == root) group.send(data.data(), bytes, next);
      if (r.rank() == next) {
        group.recv(data.data(), bytes, root);
        expect_values(data, values(seed, root, count, type), what);
      }
    }
  }
  group.check();
}

void random_operations(Rank& r, uint64_t seed, int rounds) {
  ASSERT_TRUE(r.join()) << r.why;
  EXPECT_EQ(r.group->name(), "nccl");
  EXPECT_EQ(r.group->version(), "2.28.9");
  std::mt19937_64 random(seed);
  for (int round = 0; round < rounds; ++round) {
    random_operation(r, round % 9, random, seed * 1000 + static_cast<uint64_t>(round));
    if (::testing::Test::HasFatalFailure()) break;
  }
  r.group->barrier();
  r.group.reset();
  EXPECT_TRUE(r.told.empty());
}

class DeviceGroup : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = simulator_missing(); !missing.empty()) GTEST_SKIP() << missing;
  }
};

TEST_F(DeviceGroup, RandomOperationsOfThreads) {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    SCOPED_TRACE(ranks);
    const Simulated run({{"SIM_DEVICES", std::to_string(ranks)}, {"SIM_SEED", std::to_string(ranks)}}, [&] {
      on_threads(ranks, [&](Rank& r) { random_operations(r, static_cast<uint64_t>(ranks), 60); });
    });
    run.clean();
    for (const char* function : {"ncclGetVersion", "ncclGetUniqueId", "ncclCommInitRank", "ncclCommDestroy",
                                 "ncclAllReduce", "ncclReduce", "ncclBroadcast", "ncclAllGather", "ncclReduceScatter",
                                 "ncclGroupStart", "ncclGroupEnd", "ncclCommGetAsyncError"}) {
      EXPECT_GT(run.calls(function), 0) << function;
    }
    EXPECT_EQ(run.calls("ncclSend") > 0 && run.calls("ncclRecv") > 0, ranks > 1);
  }
}

// Each rank a process of its own, which opens the driver itself.
struct Processes {
  explicit Processes(int ranks, const std::function<void(Rank&)>& program) : children(static_cast<size_t>(ranks)) {
    std::fflush(nullptr);
    for (int rank = 0; rank < ranks; ++rank) {
      pid_t& child = children[static_cast<size_t>(rank)];
      child = fork();
      if (child != 0) continue;
      const int before = failures();
      setenv("SIM_REPORT", "", 1);
      try {
        DriverAccelerator accelerator(&cuda_table());
        Rank r(accelerator, membership(rank, ranks, std::make_shared<FolderStore>(folder.path())));
        program(r);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
      std::fflush(nullptr);
      _exit(failures() > before ? 1 : 0);
    }
  }
  // The exit status; a signal as its negative number.
  static int wait(pid_t child) {
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  test::TemporaryFolder folder;
  std::vector<pid_t> children;
};

TEST_F(DeviceGroup, RandomOperationsOfProcesses) {
  for (const int ranks : {2, 4}) {
    SCOPED_TRACE(ranks);
    Simulated({{"SIM_DEVICES", std::to_string(ranks)}, {"SIM_STRICT", "abort"}}, [&] {
      const Processes processes(ranks, [&](Rank& r) { random_operations(r, 77, 40); });
      for (const pid_t child : processes.children) EXPECT_EQ(Processes::wait(child), 0);
    });
  }
}

TEST_F(DeviceGroup, AProcessThatDiesEndsTheOthers) {
  Simulated({{"SIM_DEVICES", "3"}}, [] {
    const Processes processes(3, [](Rank& r) {
      ASSERT_TRUE(r.join()) << r.why;
      const Tensor data = r.upload(values(1, r.rank(), 1000, DType::F32), DType::F32);
      for (int i = 0; i < 10; ++i) r.group->all_reduce(data.data(), 1000, DType::F32, ReduceOp::Max);
      r.group->synchronize();
      if (r.rank() == 1) raise(SIGKILL);
      const auto forever = [&] {
        while (true) {
          r.group->all_reduce(data.data(), 1000, DType::F32, ReduceOp::Max);
          r.group->synchronize();
        }
      };
      const std::string error = communication_error(forever);
      EXPECT_FALSE(error.empty());
      EXPECT_EQ(communication_error([&] { r.group->check(); }), error);
      r.group.reset();
      EXPECT_EQ(r.told, std::vector<std::string>{error});
    });
    EXPECT_EQ(Processes::wait(processes.children[1]), -SIGKILL);
    EXPECT_EQ(Processes::wait(processes.children[0]), 0);
    EXPECT_EQ(Processes::wait(processes.children[2]), 0);
  });
}

// ---- a rank that never comes ----

// Rank 0 waits for an operation that rank 1 does not take part in, until `end` has ended the group. Returns the error.
void waits_in_vain(const std::function<void(Rank&, TestWatch&)>& end, const std::string& expected,
                   std::chrono::milliseconds timeout = std::chrono::minutes(2)) {
  const Simulated run({{"SIM_DEVICES", "2"}}, [&] {
    const auto watch = std::make_shared<TestWatch>();
    std::atomic<bool> over{false};
    on_threads(
        2,
        [&](Rank& r) {
          ASSERT_TRUE(r.join()) << r.why;
          const Tensor data = r.upload(values(1, r.rank(), 1000, DType::F32), DType::F32);
          r.group->barrier();
          if (r.rank() == 1) {
            while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            r.group->abort("the other rank gave up");
            return;
          }
          // Several, of which only the first has begun.
          for (int i = 0; i < 3; ++i) r.group->all_reduce(data.data(), 1000, DType::F32, ReduceOp::Sum);
          std::thread ender([&] { end(r, *watch); });
          const std::string error = communication_error([&] { r.group->synchronize(); });
          EXPECT_SAYS(error, expected);
          ender.join();
          // A wait that does not involve the group continues too.
          r.accelerator.synchronize();
          EXPECT_TRUE(r.group->failed());
          EXPECT_EQ(communication_error([&] { r.group->all_reduce(data.data(), 1000, DType::F32, ReduceOp::Sum); }),
                    error);
          EXPECT_EQ(communication_error([&] { r.group->barrier(); }), error);
          r.group.reset();
          EXPECT_EQ(r.told, std::vector<std::string>{error});
          over = true;
        },
        [&](comm::Membership& member) {
          member.watch = member.rank == 0 ? watch : nullptr;
          if (member.rank == 0) member.timeout = timeout;
        });
  });
  run.clean();
  EXPECT_EQ(run.calls("ncclCommAbort"), 2);
  EXPECT_EQ(run.calls("ncclCommDestroy"), 0);
}

TEST_F(DeviceGroup, AFailureOfTheJobEndsAWait) {
  waits_in_vain(
      [](Rank&, TestWatch& watch) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        watch.fail();
      },
      "rank 1 on test went away");
}

TEST_F(DeviceGroup, AnAbortEndsAWait) {
  waits_in_vain(
      [](Rank& r, TestWatch&) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        r.group->abort("no longer wanted");
      },
      "no longer wanted");
}

TEST_F(DeviceGroup, ATimeLimitEndsAWait) {
  waits_in_vain([](Rank&, TestWatch&) {}, "not complete within 3000 ms", std::chrono::milliseconds(3000));
}

// ---- ranks that differ ----

TEST_F(DeviceGroup, AnErrorOfTheLibraryEndsTheGroup) {
  const Simulated run({{"SIM_DEVICES", "2"}}, [] {
    on_threads(2, [](Rank& r) {
      ASSERT_TRUE(r.join()) << r.why;
      const Tensor data = r.upload(values(1, r.rank(), 1000, DType::F32), DType::F32);
      const std::string error = communication_error([&] {
        r.group->all_reduce(data.data(), r.rank() == 0 ? 1000 : 999, DType::F32, ReduceOp::Sum);
        r.group->synchronize();
      });
      EXPECT_SAYS(error, "nccl, rank " + std::to_string(r.rank()) + " on test");
      EXPECT_SAYS(error, "invalid usage");
      EXPECT_EQ(communication_error([&] { r.group->check(); }), error);
      r.group.reset();
    });
  });
  ASSERT_TRUE(run.report.is_object());
  for (const auto& violation : run.report["violations"]) EXPECT_EQ(violation["kind"], "collective-mismatch");
  EXPECT_TRUE(run.report["leaks"].empty()) << run.report["leaks"].dump(1);
}

TEST_F(DeviceGroup, WhatTheLibraryLacksIsRefusedWithoutHarm) {
  Simulated({{"SIM_DEVICES", "2"}}, [] {
    on_threads(2, [](Rank& r) {
      ASSERT_TRUE(r.join()) << r.why;
      DeviceCommunicator& group = *r.group;
      EXPECT_TRUE(group.exchanges());
      EXPECT_TRUE(group.reduces(DType::BF16, ReduceOp::Avg));
      EXPECT_FALSE(group.reduces(DType::I16, ReduceOp::Sum));
      EXPECT_FALSE(group.reduces(DType::Bool, ReduceOp::Max));
      EXPECT_FALSE(group.reduces(DType::F8E4M3, ReduceOp::Sum));
      EXPECT_FALSE(group.reduces(DType::I32, ReduceOp::BitXor));
      const Tensor data = r.upload(values(1, r.rank(), 10, DType::I16), DType::I16);
      EXPECT_THROW(group.all_reduce(data.data(), 10, DType::I16, ReduceOp::Sum), NotImplementedError);
      EXPECT_THROW(group.reduce_scatter(data.data(), data.data(), 1, DType::I32, ReduceOp::BitOr), NotImplementedError);
      group.barrier();
      EXPECT_FALSE(group.failed());
    });
  }).clean();
}

// ---- groups that cannot be ----

TEST_F(DeviceGroup, TwoRanksOnOneDeviceGetNone) {
  const Simulated run({{"SIM_DEVICES", "1"}, {"ANYACCEL_CUDA_DEVICES", "2"}}, [] {
    on_threads(2, [](Rank& r) {
      EXPECT_FALSE(r.join());
      EXPECT_SAYS(r.why, "rank 0 on test: ");
      EXPECT_SAYS(r.why, "on one device");
    });
  });
  EXPECT_EQ(run.calls("ncclCommInitRank"), 2);
}

TEST_F(DeviceGroup, ALibraryThatOneRankLacksGivesNone) {
  Simulated({{"SIM_DEVICES", "2"}, {"SIM_STRICT", "abort"}}, [] {
    const test::TemporaryFolder folder;
    const auto rank = [&](int number) {
      std::fflush(nullptr);
      const pid_t child = fork();
      if (child != 0) return child;
      const int before = failures();
      setenv("SIM_REPORT", "", 1);
      if (number == 1) setenv("SIM_FAULT", "hide:ncclAllReduce", 1);
      {
        DriverAccelerator accelerator(&cuda_table());
        EXPECT_EQ(accelerator.communication_backend_version(), number == 1 ? "" : "2.28.9");
        Rank r(accelerator, membership(number, 2, std::make_shared<FolderStore>(folder.path())));
        EXPECT_FALSE(r.join());
        EXPECT_SAYS(r.why, "rank 1 on test: ");
        EXPECT_SAYS(r.why, "libnccl.so.2 cannot be used: nccl lacks ncclAllReduce");
      }
      std::fflush(nullptr);
      _exit(failures() > before ? 1 : 0);
    };
    const pid_t first = rank(0), second = rank(1);
    EXPECT_EQ(Processes::wait(first), 0);
    EXPECT_EQ(Processes::wait(second), 0);
  });
}

TEST_F(DeviceGroup, AMemberThatDoesNotComeIsNamed) {
  Simulated({{"SIM_DEVICES", "2"}}, [] {
    on_threads(
        2,
        [](Rank& r) {
          if (r.rank() == 1) return;
          EXPECT_SAYS(communication_error([&] { r.join(); }), "rank 1 on test does not take part");
        },
        [](comm::Membership& member) { member.timeout = std::chrono::milliseconds(100); });
  }).clean();
}

// The vendor's own library has every function of the table, and makes ids without a GPU.
TEST(CollectiveLibraryOfCuda, TheRealOneIsBound) {
  constexpr const char* file = "/usr/local/cuda/lib64/libnccl.so.2";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there";
  EXPECT_TRUE(forked([] {
    setenv("ANYACCEL_CUDA_LIBRARY_PATH", "/usr/local/cuda/lib64", 1);
    std::string problem;
    const auto library = cuda::open_collective_library(cuda::Runtime::cuda, problem);
    ASSERT_NE(library, nullptr) << problem;
    EXPECT_SAYS(library->version(), "2.");
    EXPECT_EQ(library->id_size(), 128u);
    std::string first(128, '\0'), second(128, '\0');
    library->id_create(first.data());
    library->id_create(second.data());
    EXPECT_NE(first, second);
    library->group_begin();
    library->group_end();
  }));
}

// ---- graphs, streams, several groups ----

TEST_F(DeviceGroup, OperationsInAGraphRunAtEachReplay) {
  Simulated({{"SIM_DEVICES", "3"}, {"SIM_SEED", "9"}}, [] {
    on_threads(3, [](Rank& r) {
      ASSERT_TRUE(r.join()) << r.why;
      constexpr int64_t n = 5000;
      const Tensor data = r.upload(std::vector<double>(n, r.rank() + 1), DType::F32);
      const Tensor all = r.upload(std::vector<double>(3 * n, 0), DType::F32);
      {
        Graph graph = r.accelerator.create_graph();
        {
          const ScopeGuard capture = r.accelerator.capture_to_graph(graph);
          r.group->all_reduce(data.data(), n, DType::F32, ReduceOp::Sum);
          r.group->all_gather(all.data(), data.data(), n * 4);
        }
        expect_values(data, std::vector<double>(n, r.rank() + 1), "nothing has run");
        double sum = 6;
        for (int replay = 0; replay < 3; ++replay, sum *= 3) {
          r.accelerator.replay_graph(graph);
          expect_values(data, std::vector<double>(n, sum), "replay " + std::to_string(replay));
          expect_values(all, std::vector<double>(3 * n, sum), "replay " + std::to_string(replay));
        }
        r.group->check();
      }
      // Outside of the graph again.
      r.group->all_reduce(data.data(), n, DType::F32, ReduceOp::Min);
      r.group->barrier();
    });
  }).clean();
}

TEST_F(DeviceGroup, WorkBeforeAndBehindIsOrderedByTheStream) {
  Simulated({{"SIM_DEVICES", "2"}, {"SIM_SEED", "4"}}, [] {
    on_threads(2, [](Rank& r) {
      ASSERT_TRUE(r.join()) << r.why;
      const Tensor data = r.upload(std::vector<double>(1000, 0), DType::I32);
      for (int round = 1; round <= 20; ++round) {
        const int32_t own = round * (r.rank() + 1);
        r.accelerator.fill(data.data(), &own, sizeof own, data.nbytes(), r.rank());
        r.group->all_reduce(data.data(), 1000, DType::I32, ReduceOp::Sum);
        if (round % 5 == 0) expect_values(data, std::vector<double>(1000, 3 * round), std::to_string(round));
      }
      // Another stream, which waits for the first one.
      const Stream other = r.accelerator.Stream();
      Event reached = r.accelerator.Event();
      reached.record(r.stream);
      other.wait_event(reached);
      const ScopeGuard current = r.accelerator.stream(other);
      r.group->all_reduce(data.data(), 1000, DType::I32, ReduceOp::Max);
      expect_values(data, std::vector<double>(1000, 60), "another stream");
    });
  }).clean();
}

TEST_F(DeviceGroup, SubgroupsAndASecondGroupOfTheSameStore) {
  Simulated({{"SIM_DEVICES", "4"}}, [] {
    on_threads(4, [](Rank& r) {
      ASSERT_TRUE(r.join()) << r.why;
      // 0 and 2, 1 and 3, each in the other order.
      comm::Membership half = membership(
          1 - r.rank() / 2, 2, comm::make_prefixed_store(r.members.store, r.rank() % 2 == 0 ? "even/" : "odd/"));
      std::string why;
      auto subgroup = DeviceCommunicator::create(r.accelerator, r.rank(), half, why);
      ASSERT_NE(subgroup, nullptr) << why;
      auto again = DeviceCommunicator::create(r.accelerator, r.rank(), r.members, why);
      ASSERT_NE(again, nullptr) << why;
      const Tensor data = r.upload({static_cast<double>(r.rank())}, DType::I64);
      subgroup->all_reduce(data.data(), 1, DType::I64, ReduceOp::Sum);
      expect_values(data, {r.rank() % 2 == 0 ? 2.0 : 4.0}, "subgroup");
      again->all_reduce(data.data(), 1, DType::I64, ReduceOp::Product);
      expect_values(data, {64.0}, "second group");
      r.group->barrier();
    });
  }).clean();
}

}  // namespace
}  // namespace anyaccel::cuda_test
