// Process groups on tensors, with threads as ranks: every operation, the order of synchronous, asynchronous and captured
// ones, subgroups, bad arguments, and how a group ends.
//
// Tensors lie on the accelerator of the process (ANYACCEL_TEST_ACCELERATOR names another than the CPU); each rank has a
// stream of its own.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <future>
#include <numeric>
#include <system_error>
#include <thread>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "comm/job/job_watch.h"
#include "thread_communicator.h"

namespace anyaccel::comm {
namespace {

using std::chrono::seconds;

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

enum class Carrier { Threads, SharedMemory };

struct Settings {
  Carrier carrier = Carrier::Threads;
  std::shared_ptr<JobWatch> watch;
  std::shared_ptr<CommsLog> log;
  std::function<void(const std::string&)> on_failure;
  std::chrono::seconds timeout{120};
};

// Runs `body` with a group on each of `size` threads. Errors by rank.
std::vector<std::string> run_group(int size, const Settings& settings, const std::function<void(ProcessGroup&)>& body) {
  Accelerator* const accelerator = get_accelerator();
  const auto board = std::make_shared<ThreadBoard>(size);
  const std::shared_ptr<Store> store = make_local_store();
  return run_ranks(size, [&](int rank) {
    const ScopeGuard stream = accelerator->stream(accelerator->Stream());
    GroupSetup setup;
    setup.membership.rank = rank;
    setup.membership.size = size;
    for (int r = 0; r < size; ++r) setup.membership.names.push_back("rank " + std::to_string(r) + " on here");
    setup.membership.store = store;
    setup.membership.watch = settings.watch;
    setup.membership.timeout = settings.timeout;
    setup.hosts.assign(static_cast<size_t>(size), 0);
    setup.accelerator = accelerator;
    setup.log = settings.log;
    setup.on_failure = settings.on_failure;
    std::unique_ptr<HostCommunicator> communicator;
    if (settings.carrier == Carrier::Threads) {
      communicator = std::make_unique<ThreadCommunicator>(board, rank);
    } else {
      communicator = make_communicator(setup);
    }
    const std::shared_ptr<ProcessGroup> group = make_process_group(std::move(communicator), std::move(setup));
    body(*group);
  });
}

Device here() { return get_accelerator()->device(); }

Tensor tensor_of(const std::vector<float>& values) {
  return Tensor::from_host(values.data(), {static_cast<int64_t>(values.size())}, DType::F32, here());
}

using Values = std::vector<float>;
Values values_of(const Tensor& tensor) { return tensor.to_vector<float>(); }

class EveryOperation : public ::testing::TestWithParam<std::tuple<Carrier, bool, int>> {};

TEST_P(EveryOperation, GivesWhatItShould) {
  const auto [carrier, async_op, size] = GetParam();
  Settings settings;
  settings.carrier = carrier;
  expect_none(run_group(size, settings, [&, async_op = async_op](ProcessGroup& group) {
    const int n = group.size();
    const auto r = static_cast<float>(group.rank());
    const float all = static_cast<float>(n * (n - 1)) / 2;  // 0 + 1 + ...
    const auto members = static_cast<float>(n);
    const auto finish = [](const Work& work) {
      work.wait();
      // The copy is what is tested.
      Work copy = work;  // NOLINT(performance-unnecessary-copy-initialization)
      copy.wait();       // a second time does nothing
    };

    Tensor t = tensor_of({r, 10 * r, 1});
    finish(group.all_reduce(t, ReduceOp::Sum, async_op));
    EXPECT_EQ(values_of(t), (Values{all, 10 * all, members}));
    t = tensor_of({r + 1});
    finish(group.all_reduce(t, ReduceOp::Max, async_op));
    EXPECT_EQ(values_of(t), (Values{members}));

    const int last = n - 1;
    t = tensor_of({r, 2 * r});
    finish(group.reduce(t, last, ReduceOp::Sum, async_op));
    if (group.rank() == last) {
      EXPECT_EQ(values_of(t), (Values{all, 2 * all}));
    }

    t = tensor_of({r, r + 100});
    finish(group.broadcast(t, last, async_op));
    EXPECT_EQ(values_of(t), (Values{static_cast<float>(last), static_cast<float>(last) + 100}));

    Values each;
    for (int i = 0; i < n; ++i) {
      each.push_back(static_cast<float>(i));
      each.push_back(static_cast<float>(-i));
    }
    const Tensor own = tensor_of({r, -r});
    Tensor places = Tensor::zeros({2 * n}, DType::F32, here());
    finish(group.all_gather(places, own, async_op));
    EXPECT_EQ(values_of(places), each);
    finish(group.all_gather(places, places.slice(0, 2 * group.rank(), 2 * group.rank() + 2), async_op));  // in place
    EXPECT_EQ(values_of(places), each);

    Tensor sum = Tensor::zeros({2}, DType::F32, here());
    finish(group.reduce_scatter(sum, places, ReduceOp::Sum, async_op));
    EXPECT_EQ(values_of(sum), (Values{r * members, -r * members}));

    places = group.rank() == 0 ? Tensor::zeros({2 * n}, DType::F32, here()) : Tensor();
    finish(group.gather(places, own, 0, async_op));
    if (group.rank() == 0) {
      EXPECT_EQ(values_of(places), each);
    }
    Tensor part = Tensor::zeros({2}, DType::F32, here());
    finish(group.scatter(part, places, 0, async_op));
    EXPECT_EQ(values_of(part), (Values{r, -r}));

    Values sent;
    Values expected;
    for (int i = 0; i < n; ++i) {
      sent.push_back(100 * r + static_cast<float>(i));
      expected.push_back(100 * static_cast<float>(i) + r);
    }
    Tensor received = Tensor::zeros({n}, DType::F32, here());
    finish(group.all_to_all(received, tensor_of(sent), async_op));
    EXPECT_EQ(values_of(received), expected);

    if (n > 1) {  // around the ring; the last one receives first
      const int next = (group.rank() + 1) % n;
      const int previous = (group.rank() + n - 1) % n;
      Tensor got = Tensor::zeros({1}, DType::F32, here());
      const Tensor mine = tensor_of({r});
      if (group.rank() != last) finish(group.send(mine, next, 3, async_op));
      finish(group.recv(got, previous, 3, async_op));
      if (group.rank() == last) finish(group.send(mine, next, 3, async_op));
      EXPECT_EQ(values_of(got), (Values{static_cast<float>(previous)}));
    }

    group.barrier();
    t = tensor_of({r});
    group.inference_all_reduce(t);
    EXPECT_EQ(values_of(t), (Values{all}));

    // Nothing at all, but still in order with the rest.
    const Tensor nothing = Tensor::empty({0, 4}, DType::F32, here());
    finish(group.all_reduce(nothing, ReduceOp::Sum, async_op));
    finish(group.all_gather(nothing, nothing, async_op));
    finish(group.broadcast(nothing, 0, async_op));
    group.check();
  }));
}

INSTANTIATE_TEST_SUITE_P(All, EveryOperation,
                         ::testing::Combine(::testing::Values(Carrier::Threads, Carrier::SharedMemory),
                                            ::testing::Bool(), ::testing::Values(1, 2, 3)),
                         [](const auto& instance) {
                           return std::string(std::get<0>(instance.param) == Carrier::Threads ? "Threads" : "Shm") +
                                  (std::get<1>(instance.param) ? "Async" : "") +
                                  std::to_string(std::get<2>(instance.param));
                         });

// Tensors of the host take part as well, also where the accelerator is something else.
TEST(ProcessGroup, TensorsOfTheHost) {
  expect_none(run_group(2, {}, [](ProcessGroup& group) {
    Tensor t = Tensor::zeros({3}, DType::I32);
    t.fill(group.rank() + 1);
    group.all_reduce(t);
    EXPECT_EQ(t.to_vector<int32_t>(), (std::vector<int32_t>{3, 3, 3}));
    Tensor d = Tensor::zeros({3}, DType::I32, here());
    d.fill(group.rank() + 1);
    group.all_reduce(d, ReduceOp::Max);
    group.all_reduce(t, ReduceOp::Max, true).wait();
    EXPECT_EQ(d.to_vector<int32_t>(), (std::vector<int32_t>{2, 2, 2}));
  }));
}

// Synchronous ones wait for their turn behind asynchronous ones, whose handles may be dropped.
TEST(ProcessGroup, OperationsKeepTheirOrder) {
  expect_none(run_group(3, {}, [](ProcessGroup& group) {
    Tensor t = tensor_of({1});
    float expected = 1;
    std::vector<Work> works;
    for (int i = 0; i < 60; ++i) {
      if (i % 5 == 4) {
        group.all_reduce(t, ReduceOp::Max);  // without change; every rank has the same value by then
      } else if (i % 20 < 10) {
        works.push_back(group.all_reduce(t, ReduceOp::Max, true));
      } else {
        group.all_reduce(t, ReduceOp::Max, true);
      }
    }
    for (const Work& work : works) work.wait();
    EXPECT_EQ(values_of(t), (Values{expected}));
    for (const Work& work : works) EXPECT_TRUE(work.done());
    Tensor grows = tensor_of({1, 1});
    const Work first = group.all_reduce(grows, ReduceOp::Sum, true);
    first.wait();
    group.all_reduce(grows);
    const Work third = group.all_reduce(grows, ReduceOp::Sum, true);
    third.wait();
    EXPECT_EQ(values_of(grows), (Values{27, 27}));
    group.barrier();
  }));
}

// A member that waits for another one by means of its own must not keep its part of an operation to itself.
TEST(ProcessGroup, AnOperationNeedsNoFurtherCallOfThisMember) {
  std::promise<void> finished;
  auto finish = finished.get_future().share();
  expect_none(run_group(2, {}, [&](ProcessGroup& group) {
    const Tensor t = tensor_of({1});
    group.all_reduce(t, ReduceOp::Sum);
    if (group.rank() == 1) {
      EXPECT_EQ(values_of(t), Values{2});
      finished.set_value();
    } else {
      EXPECT_EQ(finish.wait_for(seconds(100)), std::future_status::ready);
      EXPECT_EQ(values_of(t), Values{2});
    }
  }));
}

// A handle is not complete before its peers have come.
TEST(ProcessGroup, AnAsynchronousOperationDoesNotBlockItsCaller) {
  std::atomic<bool> other_may_come{false};
  expect_none(run_group(2, {}, [&](ProcessGroup& group) {
    Tensor t = tensor_of({1});
    if (group.rank() == 1) {
      while (!other_may_come) std::this_thread::yield();
      group.all_reduce(t);
    } else {
      const Work work = group.all_reduce(t, ReduceOp::Sum, true);
      EXPECT_FALSE(work.done());
      other_may_come = true;
      work.wait();
    }
    EXPECT_EQ(values_of(t), (Values{2}));
  }));
}

// A complete operation has its result where the tensor is: no stream need wait for it.
TEST(ProcessGroup, ACompleteOperationHasItsResult) {
  expect_none(run_group(2, {}, [&](ProcessGroup& group) {
    for (int round = 0; round < 5; ++round) {
      const Tensor t = tensor_of({1, 2, 3});
      const Work work = group.all_reduce(t, ReduceOp::Sum, true);
      while (!work.done()) std::this_thread::yield();
      EXPECT_EQ(values_of(t), (Values{2, 4, 6}));
    }
  }));
}

// Operations of several streams share memory of the host, and run in the order of their calls.
TEST(ProcessGroup, OperationsOfSeveralStreamsFollowEachOther) {
  expect_none(run_group(2, {}, [&](ProcessGroup& group) {
    Accelerator& accelerator = *get_accelerator();
    const Stream other = accelerator.Stream();
    const Tensor first = tensor_of({1});
    Tensor second;
    {
      const ScopeGuard current = accelerator.stream(other);
      second = tensor_of({10});
    }
    for (int round = 0; round < 3; ++round) {
      group.all_reduce(first);
      const ScopeGuard current = accelerator.stream(other);
      group.all_reduce(second);
    }
    {
      const ScopeGuard current = accelerator.stream(other);
      EXPECT_EQ(values_of(second), (Values{80}));
    }
    EXPECT_EQ(values_of(first), (Values{8}));
  }));
}

// Memory of the host between members and devices is kept for later operations, which may need more of it.
TEST(ProcessGroup, OperationsOfGrowingSizes) {
  expect_none(run_group(1, {}, [](ProcessGroup& group) {
    for (const bool async_op : {false, true}) {
      for (const size_t count : {3, 100'000, 3, 300'000}) {
        Values values(count);
        std::iota(values.begin(), values.end(), 0.0F);
        const Tensor own = tensor_of(values);
        const Tensor gathered = Tensor::zeros({static_cast<int64_t>(count)}, DType::F32, here());
        group.all_gather(gathered, own, async_op).wait();
        group.all_reduce(own, ReduceOp::Sum, async_op).wait();
        EXPECT_EQ(values_of(gathered), values) << count << " " << async_op;
        EXPECT_EQ(values_of(own), values) << count << " " << async_op;
      }
    }
  }));
}

// Of members that are threads each begins its operation while the stream of another one waits for it, so that it must not
// wait for the device when it needs more memory of the host. The time limit of the group ends a test that does.
class GrowingSizes : public ::testing::TestWithParam<std::tuple<bool, int>> {};

TEST_P(GrowingSizes, OfMembersThatWaitForEachOther) {
  const auto [async_op, size] = GetParam();
  const Accelerator& accelerator = *get_accelerator();
  const bool returns_at_once = async_op || (!accelerator.is_synchronized_device() &&
                                            (accelerator.device_properties().caps & AA_CAP_HOST_CALL) != 0);
  Settings settings;
  settings.carrier = Carrier::SharedMemory;
  settings.timeout = seconds(60);
  std::atomic<int> begun{0};
  expect_none(run_group(size, settings, [&, async_op = async_op](ProcessGroup& group) {
    const int n = group.size();
    const int rank = group.rank();
    int turn = 0;
    // The members take turns at who comes first; of each operation one follows the other.
    const auto in_turn = [&](const std::function<Work()>& operation) {
      const int before = turn * n + (rank + turn) % n;
      while (returns_at_once && begun < before) std::this_thread::yield();
      const Work work = operation();
      ++begun;
      ++turn;
      return work;
    };
    for (const int count : {3, 20'000, 5, 50'000, 40'000, 300'000, 7, 20'000}) {
      Values own, sum, gathered, every;
      for (int i = 0; i < count; ++i) {
        const auto value = static_cast<float>(i % 9973);
        own.push_back(value + static_cast<float>(rank));
        sum.push_back(value * static_cast<float>(n) + static_cast<float>(n * (n - 1)) / 2);
      }
      for (int r = 0; r < n; ++r) {
        for (int i = 0; i < count; ++i) {
          gathered.push_back(static_cast<float>(i % 9973 + r));
          every.push_back(static_cast<float>(i % 9967 + r));
        }
      }
      const Tensor reduced = tensor_of(own);
      const Tensor input = tensor_of(own);
      const Tensor sent = tensor_of(own);
      const Tensor all = tensor_of(Values(gathered.size(), -1));
      const Tensor part = tensor_of(Values(own.size(), -1));
      const Tensor slices = tensor_of(every);
      const int root = turn % n;
      std::vector<Work> works;
      works.push_back(in_turn([&] { return group.all_reduce(reduced, ReduceOp::Sum, async_op); }));
      works.push_back(in_turn([&] { return group.all_gather(all, input, async_op); }));
      works.push_back(in_turn([&] { return group.broadcast(sent, root, async_op); }));
      works.push_back(in_turn([&] { return group.reduce_scatter(part, slices, ReduceOp::Sum, async_op); }));
      for (const Work& work : works) work.wait();
      const std::string where = "count " + std::to_string(count) + " rank " + std::to_string(rank);
      EXPECT_TRUE(values_of(reduced) == sum) << where;
      EXPECT_TRUE(values_of(all) == gathered) << where;
      EXPECT_TRUE(values_of(input) == own) << where;
      EXPECT_TRUE(values_of(slices) == every) << where;
      for (float& value : own) value += static_cast<float>(root - rank);
      EXPECT_TRUE(values_of(sent) == own) << where;
      for (int i = 0; i < count; ++i) {
        own[static_cast<size_t>(i)] = every[static_cast<size_t>(rank * count + i)] * static_cast<float>(n);
      }
      EXPECT_TRUE(values_of(part) == own) << where;
    }
    group.check();
  }));
}

INSTANTIATE_TEST_SUITE_P(All, GrowingSizes, ::testing::Combine(::testing::Bool(), ::testing::Values(2, 3)),
                         [](const auto& instance) {
                           return std::string(std::get<0>(instance.param) ? "Async" : "Sync") +
                                  std::to_string(std::get<1>(instance.param));
                         });

// A device may copy a result long after its operation: the memory that it reads, and the tensor, are not free until then.
TEST(ProcessGroup, LateResultsAreNotOverwritten) {
  expect_none(run_group(2, {}, [](ProcessGroup& group) {
    std::vector<Tensor> tensors;
    for (int round = 0; round < 8; ++round) {
      tensors.push_back(tensor_of({static_cast<float>(round), 4}));
      group.all_reduce(tensors.back(), ReduceOp::Sum, true);
      std::this_thread::sleep_for(std::chrono::milliseconds(3));  // usually it has run, but for its copy
    }
    group.barrier();
    for (int round = 0; round < 8; ++round) {
      EXPECT_EQ(values_of(tensors[static_cast<size_t>(round)]), (Values{2 * static_cast<float>(round), 8})) << round;
    }
  }));
}
TEST(ProcessGroup, LateResultsChangeNoLaterTensor) {
  expect_none(run_group(2, {}, [](ProcessGroup& group) {
    for (int round = 0; round < 8; ++round) {
      group.all_reduce(tensor_of({1, 2, 3}), ReduceOp::Sum, true);
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
      const Tensor later = tensor_of({7, 7, 7});
      group.barrier();
      EXPECT_EQ(values_of(later), (Values{7, 7, 7})) << round;
    }
  }));
}

TEST(ProcessGroup, ABarrierWaitsForEarlierResults) {
  expect_none(run_group(2, {}, [](ProcessGroup& group) {
    constexpr size_t kCount = 1 << 20;
    const Tensor t = tensor_of(Values(kCount, 1));
    group.all_reduce(t);
    group.barrier();
    EXPECT_TRUE(get_accelerator()->current_stream().query());
    group.all_reduce(t, ReduceOp::Sum, true);
    group.barrier();
    EXPECT_EQ(values_of(t), Values(kCount, 4));
  }));
}

TEST(ProcessGroup, TensorsOfTwoDevicesAreRefused) {
  if (get_accelerator()->device_count() < 2) GTEST_SKIP() << "the accelerator has one device";
  expect_none(run_group(2, {}, [](ProcessGroup& group) {
    const Tensor one = Tensor::zeros({1}, DType::F32, get_accelerator()->device(1));
    EXPECT_THROW(group.all_gather(Tensor::zeros({2}, DType::F32, here()), one), InvalidArgument);
    EXPECT_THROW(group.all_gather(Tensor::zeros({2}, DType::F32, here()), one, true), InvalidArgument);
    group.barrier();
  }));
}

TEST(ProcessGroup, Subgroups) {
  for (const Carrier carrier : {Carrier::SharedMemory}) {
    Settings settings;
    settings.carrier = carrier;
    expect_none(run_group(4, settings, [](ProcessGroup& world) {
      EXPECT_EQ(world.ranks(), (std::vector<int>{0, 1, 2, 3}));
      const std::vector<int> odd{3, 1};  // in another order
      const std::vector<int> even{0, 2};
      const std::shared_ptr<ProcessGroup> a = world.new_group(odd);
      const std::shared_ptr<ProcessGroup> b = world.new_group(even);
      const bool is_odd = world.rank() % 2 == 1;
      EXPECT_EQ(a != nullptr, is_odd);
      EXPECT_EQ(b != nullptr, !is_odd);
      ProcessGroup& mine = is_odd ? *a : *b;
      EXPECT_EQ(mine.size(), 2);
      EXPECT_EQ(mine.ranks(), is_odd ? odd : even);
      EXPECT_EQ(mine.rank(), is_odd ? (world.rank() == 3 ? 0 : 1) : world.rank() / 2);
      Tensor t = tensor_of({static_cast<float>(world.rank())});
      mine.all_reduce(t);
      EXPECT_EQ(values_of(t), (Values{is_odd ? 4.0F : 2.0F}));
      world.all_reduce(t);  // both at once
      EXPECT_EQ(values_of(t), (Values{12}));
      const std::vector<int> second{1};
      const std::shared_ptr<ProcessGroup> nested = mine.new_group(second);
      EXPECT_EQ(nested != nullptr, mine.rank() == 1);
      if (nested) {
        EXPECT_EQ(nested->ranks(), (std::vector<int>{is_odd ? 1 : 2}));
      }
    }));
  }
}

TEST(ProcessGroup, SubgroupsThatRanksDisagreeAbout) {
  const std::vector<std::string> errors = run_group(2, {}, [](ProcessGroup& group) {
    const std::vector<int> members{group.rank()};
    const std::shared_ptr<ProcessGroup> sub = group.new_group(members);
    if (group.rank() == 1) ADD_FAILURE();
  });
  EXPECT_HAS(errors[1], "members 1, rank 0 with 0");
}

TEST(ProcessGroup, BadArgumentsAreRefusedAndChangeNothing) {
  expect_none(run_group(2, {}, [](ProcessGroup& group) {
    const Tensor good = Tensor::zeros({4}, DType::F32, here());
    const Tensor strided = Tensor::zeros({4, 4}, DType::F32, here()).transpose(0, 1);
    const Tensor other_type = Tensor::zeros({8}, DType::I32, here());
    const Tensor large = Tensor::zeros({8}, DType::F32, here());
    EXPECT_THROW(group.all_reduce(strided), InvalidArgument);
    EXPECT_THROW(group.all_reduce(Tensor()), InvalidArgument);
    EXPECT_THROW(group.all_reduce(good, ReduceOp::BitXor), InvalidArgument);
    EXPECT_THROW(group.all_reduce(Tensor::zeros({2}, DType::Bool), ReduceOp::Avg), InvalidArgument);
    EXPECT_THROW(group.reduce(good, 2), InvalidArgument);
    EXPECT_THROW(group.reduce(good, -1), InvalidArgument);
    EXPECT_THROW(group.broadcast(good, 2), InvalidArgument);
    EXPECT_THROW(group.broadcast(strided, 0), InvalidArgument);
    EXPECT_THROW(group.all_gather(good, good), InvalidArgument);
    EXPECT_THROW(group.all_gather(other_type, good), InvalidArgument);
    EXPECT_THROW(group.reduce_scatter(large, good), InvalidArgument);
    EXPECT_THROW(group.scatter(good, large, 5), InvalidArgument);
    if (group.rank() == 0) {
      EXPECT_THROW(group.gather(good, good, 0), InvalidArgument);
      EXPECT_THROW(group.gather(Tensor(), good, 0), InvalidArgument);
      EXPECT_THROW(group.scatter(good, good, 0), InvalidArgument);
    }
    EXPECT_THROW(group.all_to_all(Tensor::zeros({3}, DType::F32, here()), Tensor::zeros({3}, DType::F32, here())),
                 InvalidArgument);
    EXPECT_THROW(group.send(good, group.rank()), InvalidArgument);
    EXPECT_THROW(group.recv(good, 2), InvalidArgument);
    EXPECT_THROW(group.send(good, 1 - group.rank(), -1), InvalidArgument);
    EXPECT_THROW(group.recv(good, 1 - group.rank(), -1), InvalidArgument);
    EXPECT_THROW(group.inference_all_reduce(strided), InvalidArgument);
    for (const std::vector<int>& members : {std::vector<int>{}, {0, 0}, {2}, {-1}}) {
      EXPECT_THROW(group.new_group(members), InvalidArgument);
    }
    // And continues.
    const Tensor t = tensor_of({1});
    group.all_reduce(t);
    EXPECT_EQ(values_of(t), (Values{2}));
  }));
}

TEST(ProcessGroup, TheFirstFailureStays) {
  std::atomic<int> told{0};
  Settings settings;
  settings.on_failure = [&](const std::string&) { ++told; };
  const std::vector<std::string> errors = run_group(2, settings, [](ProcessGroup& group) {
    const Tensor t = tensor_of({1, 2});
    // A buffer of another length than the incoming message.
    if (group.rank() == 0) {
      group.send(t, 1);
      group.barrier();
    } else {
      std::string first;
      try {
        const Tensor shorter = tensor_of({1});
        group.recv(shorter, 0);
        group.check();  // where the receiving is the stream's
        shorter.to_vector<float>();
        group.check();
      } catch (const CommunicationError& error) {
        first = error.what();
      }
      EXPECT_HAS(first, "another size");
      for (int i = 0; i < 2; ++i) {
        try {
          group.all_reduce(t);
          ADD_FAILURE();
        } catch (const CommunicationError& error) {
          EXPECT_EQ(error.what(), first);
        }
      }
      EXPECT_THROW(group.all_reduce(t, ReduceOp::Sum, true), CommunicationError);
      EXPECT_THROW(group.check(), CommunicationError);
      EXPECT_THROW(group.barrier(), CommunicationError);
    }
  });
  EXPECT_HAS(errors[0], "aborted");  // it waited for rank 1
  EXPECT_EQ(errors[1], "");
  EXPECT_EQ(told, 2);
}

TEST(ProcessGroup, TheEndOfTheJobEndsItsGroups) {
  Settings settings;
  settings.carrier = Carrier::SharedMemory;
  settings.watch = std::make_shared<JobWatch>();
  std::atomic<int> told{0};
  settings.on_failure = [&](const std::string&) { ++told; };
  expect_none(run_group(3, settings, [&](ProcessGroup& group) {
    const std::vector<int> all{0, 1, 2};
    const std::shared_ptr<ProcessGroup> sub = group.new_group(all);
    const Tensor t = tensor_of({1});
    if (group.rank() == 2) {  // no longer takes part
      settings.watch->fail("rank 7 on node3 ended");
      return;
    }
    std::string seen;
    try {
      sub->all_reduce(t);
      t.to_vector<float>();  // where the operation is the stream's
      sub->check();
    } catch (const CommunicationError& error) {
      seen = error.what();
    }
    EXPECT_HAS(seen, "rank 7 on node3 ended");
    EXPECT_THROW(group.check(), CommunicationError);
    EXPECT_THROW(group.all_reduce(t), CommunicationError);
  }));
}

TEST(ProcessGroup, FailuresOfAsynchronousOperationsComeFromTheirHandles) {
  const std::vector<std::string> errors = run_group(2, {}, [](ProcessGroup& group) {
    const Tensor one = tensor_of({1});
    const Tensor two = tensor_of({1, 2});
    if (group.rank() == 0) {
      group.send(two, 1, 0, true).wait();
      return;
    }
    const Work work = group.recv(one, 0, 0, true);
    EXPECT_THROW(work.wait(), CommunicationError);
    EXPECT_THROW(work.wait(), CommunicationError);
    EXPECT_TRUE(work.done());
    EXPECT_THROW(group.check(), CommunicationError);
  });
  EXPECT_EQ(errors[1], "");
}

#ifndef __SANITIZE_THREAD__  // which does not support threads in the child of a threaded process
// Runs in a child, as a limit does not hold for root, which the child stops being.
int use_a_group_without_threads() {
  alarm(60);
  if (getuid() == 0 && setuid(65534) != 0) return 77;
  rlimit limit{};
  getrlimit(RLIMIT_NPROC, &limit);
  const rlimit none{0, limit.rlim_max};
  if (setrlimit(RLIMIT_NPROC, &none) != 0) return 77;
  try {
    std::thread([] {}).join();
    return 77;
  } catch (const std::system_error&) {
  }
  GroupSetup setup;
  setup.membership.size = 1;
  setup.membership.names = {"rank 0 on here"};
  setup.membership.store = make_local_store();
  setup.membership.timeout = seconds(20);
  setup.hosts = {0};
  setup.accelerator = get_accelerator();
  auto communicator = std::make_unique<ThreadCommunicator>(std::make_shared<ThreadBoard>(1), 0);
  const std::shared_ptr<ProcessGroup> group = make_process_group(std::move(communicator), std::move(setup));
  const Tensor t = tensor_of({5, 5, 5});
  try {
    group->all_reduce(t, ReduceOp::Sum, true).wait();
    return 1;
  } catch (const UnavailableError&) {
  }
  group->all_reduce(t);
  group->barrier();
  if (setrlimit(RLIMIT_NPROC, &limit) != 0) return 2;
  group->all_reduce(t, ReduceOp::Sum, true).wait();
  return values_of(t) == Values{5, 5, 5} ? 0 : 3;
}

TEST(ProcessGroup, AThreadThatIsRefusedLeavesTheGroupUsable) {
  if (get_accelerator()->name() != "cpu") GTEST_SKIP() << "an accelerator's driver may not work in a forked process";
  const pid_t child = fork();
  if (child == 0) {
    try {
      _exit(use_a_group_without_threads());
    } catch (const std::exception& error) {
      fprintf(stderr, "%s\n", error.what());
      _exit(4);
    }
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "this process cannot be refused threads";
  EXPECT_EQ(status, 0);
}
#endif

class Captured : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!get_accelerator()->supports_graphs()) GTEST_SKIP() << "the accelerator has no graphs";
    if (!has_host_calls()) GTEST_SKIP() << "the accelerator has no host calls";
  }
  static bool has_host_calls() { return (get_accelerator()->device_properties().caps & AA_CAP_HOST_CALL) != 0; }
};

TEST(ProcessGroup, CapturesWithoutHostCallsAreRefused) {
  Accelerator& accelerator = *get_accelerator();
  if (!accelerator.supports_graphs() || (accelerator.device_properties().caps & AA_CAP_HOST_CALL) != 0) {
    GTEST_SKIP() << "about accelerators with graphs and without host calls";
  }
  expect_none(run_group(2, {}, [&](ProcessGroup& group) {
    const Tensor t = tensor_of({1});
    Graph graph = accelerator.create_graph();
    {
      const ScopeGuard capture = accelerator.capture_to_graph(graph);
      EXPECT_THROW(group.all_reduce(t), NotImplementedError);
      EXPECT_THROW(group.all_reduce(t, ReduceOp::Sum, true), NotImplementedError);
    }
    group.all_reduce(t);
    EXPECT_EQ(values_of(t), (Values{2}));
  }));
}

TEST_F(Captured, RunsAgainAtEachReplay) {
  Settings settings;
  settings.carrier = Carrier::SharedMemory;
  expect_none(run_group(2, settings, [](ProcessGroup& group) {
    Accelerator& accelerator = *get_accelerator();
    Tensor t = tensor_of({1, 2, 3});
    Tensor gathered = Tensor::zeros({6}, DType::F32, here());
    Tensor sent = tensor_of({static_cast<float>(group.rank())});
    Graph graph = accelerator.create_graph();
    {
      const ScopeGuard capture = accelerator.capture_to_graph(graph);
      group.inference_all_reduce(t);
      group.all_gather(gathered, t);
      group.broadcast(sent, 1);
    }
    EXPECT_EQ(values_of(t), (Values{1, 2, 3}));  // recorded, not run
    for (int replay = 1; replay <= 3; ++replay) {
      accelerator.replay_graph(graph);
      const auto factor = static_cast<float>(1 << replay);
      EXPECT_EQ(values_of(t), (Values{factor, 2 * factor, 3 * factor}));
      EXPECT_EQ(values_of(gathered), (Values{factor, 2 * factor, 3 * factor, factor, 2 * factor, 3 * factor}));
      EXPECT_EQ(values_of(sent), (Values{1}));
    }
    // In order with operations that are not captured.
    accelerator.replay_graph(graph);
    group.all_reduce(t);
    accelerator.replay_graph(graph);
    EXPECT_EQ(values_of(t), (Values{64, 128, 192}));
    group.check();
  }));
}

TEST_F(Captured, AFailureInAReplayIsKept) {
  const std::vector<std::string> errors = run_group(2, {}, [](ProcessGroup& group) {
    Accelerator& accelerator = *get_accelerator();
    const Tensor one = tensor_of({1});
    const Tensor two = tensor_of({1, 2});
    Graph graph = accelerator.create_graph();
    if (group.rank() == 0) {
      group.send(two, 1);
      return;
    }
    {
      const ScopeGuard capture = accelerator.capture_to_graph(graph);
      group.recv(one, 0);
    }
    accelerator.replay_graph(graph);
    values_of(one);
    EXPECT_THROW(group.check(), CommunicationError);
    EXPECT_THROW(group.all_reduce(one), CommunicationError);
  });
  EXPECT_EQ(errors[1], "");
}

// On an accelerator whose calls complete at once; elsewhere the caller waits before a replay.
TEST_F(Captured, AReplayFollowsAsynchronousOperations) {
  if (!get_accelerator()->is_synchronized_device()) GTEST_SKIP() << "the caller waits before a replay";
  expect_none(run_group(2, {}, [](ProcessGroup& group) {
    Accelerator& accelerator = *get_accelerator();
    const Tensor first = tensor_of({1}), second = tensor_of({10});
    Graph graph = accelerator.create_graph();
    {
      const ScopeGuard capture = accelerator.capture_to_graph(graph);
      group.all_reduce(second);
    }
    for (int round = 0; round < 20; ++round) {
      const Work work = group.all_reduce(first, ReduceOp::Max, group.rank() == 0);
      accelerator.replay_graph(graph);
      work.wait();
    }
    EXPECT_EQ(values_of(first), (Values{1}));
    EXPECT_EQ(values_of(second), (Values{10 * 1048576.0F}));
  }));
}

// Tensors of the host are the CPU's own.
TEST_F(Captured, TensorsOfTheHostOnTheCpu) {
  if (get_accelerator()->name() != "cpu") GTEST_SKIP() << "about the CPU";
  expect_none(run_group(2, {}, [](ProcessGroup& group) {
    Accelerator& accelerator = *get_accelerator();
    const Tensor t = Tensor::zeros({2}, DType::F32);
    t.fill(1);
    Graph graph = accelerator.create_graph();
    {
      const ScopeGuard capture = accelerator.capture_to_graph(graph);
      group.all_reduce(t);
    }
    EXPECT_EQ(values_of(t), (Values{1, 1}));
    accelerator.replay_graph(graph);
    EXPECT_EQ(values_of(t), (Values{2, 2}));
  }));
}

// A graph may outlive the group; its replay then has nobody to report a failed group to, and does no harm.
TEST_F(Captured, AGraphThatOutlivesItsGroup) {
  std::vector<Graph> graphs(2);
  std::vector<Tensor> tensors(2);
  expect_none(run_group(2, {}, [&](ProcessGroup& group) {
    Accelerator& accelerator = *get_accelerator();
    const auto r = static_cast<size_t>(group.rank());
    tensors[r] = tensor_of({1});
    graphs[r] = accelerator.create_graph();
    {
      const ScopeGuard capture = accelerator.capture_to_graph(graphs[r]);
      group.inference_all_reduce(tensors[r]);
    }
    group.barrier();
  }));
  expect_none(run_ranks(2, [&](int rank) {
    const ScopeGuard stream = get_accelerator()->stream(get_accelerator()->Stream());
    get_accelerator()->replay_graph(graphs[static_cast<size_t>(rank)]);
    EXPECT_EQ(values_of(tensors[static_cast<size_t>(rank)]), (Values{2}));
  }));
}

TEST(ProcessGroup, SharedTensors) {
  for (const Carrier carrier : {Carrier::Threads, Carrier::SharedMemory}) {  // the first has no memory to share
    Settings settings;
    settings.carrier = carrier;
    expect_none(run_group(2, settings, [](ProcessGroup& group) {
      Tensor t = group.shared_tensor({2, 3}, DType::F32, here());
      EXPECT_EQ(t.shape(), Shape({2, 3}));
      EXPECT_TRUE(t.device() == here());
      EXPECT_EQ(values_of(t), Values(6, 0));
      t.fill(group.rank() + 1);
      group.barrier();
      group.inference_all_reduce(t);
      EXPECT_EQ(values_of(t), Values(6, 3));
    }));
  }
}

// Columns of uneven widths, one of them empty, in memory that the members have mapped and in memory that they have not.
TEST(ProcessGroup, GathersColumns) {
  constexpr int64_t kRows = 3;
  const std::vector<int64_t> begins = {0, 2, 2, 7};
  for (const Carrier carrier : {Carrier::Threads, Carrier::SharedMemory}) {
    Settings settings;
    settings.carrier = carrier;
    expect_none(run_group(3, settings, [&](ProcessGroup& group) {
      const auto r = static_cast<size_t>(group.rank());
      std::vector<int16_t> own_memory(kRows * 7, -1);
      for (const Tensor& t :
           {group.shared_tensor({kRows, 7}, DType::I16, here()), Tensor::empty({kRows, 7}, DType::I16, here()),
            Tensor::from_blob(own_memory.data(), {kRows, 7}, DType::I16, nullptr)}) {
        for (int round = 0; round < 20; ++round) {
          std::vector<int16_t> expected(kRows * 7), own(kRows * 7, -1);
          for (int64_t i = 0; i < kRows * 7; ++i) {
            const auto at = static_cast<size_t>(i);
            expected[at] = static_cast<int16_t>(i * 1000 - 9000 + round);
            if (i % 7 >= begins[r] && i % 7 < begins[r + 1]) own[at] = expected[at];
          }
          t.copy_from(Tensor::from_host(own.data(), t.shape(), DType::I16));
          group.inference_gather_columns(t, begins);
          EXPECT_EQ(t.to_vector<int16_t>(), expected);
        }
      }
      const Tensor t = Tensor::zeros({2, 7}, DType::F32, here());
      for (const std::vector<int64_t>& wrong :
           {std::vector<int64_t>{0, 2, 7}, {0, 2, 1, 7}, {1, 2, 3, 7}, {0, 2, 3, 6}}) {
        EXPECT_THROW(group.inference_gather_columns(t, wrong), InvalidArgument);
      }
      EXPECT_THROW(group.inference_gather_columns(t.transpose(0, 1), begins), InvalidArgument);
    }));
  }
}

TEST(ProcessGroup, MembersThatGatherOtherColumnsEndTheGroup) {
  Settings settings;
  settings.carrier = Carrier::SharedMemory;
  for (const std::string& error : run_group(2, settings, [](ProcessGroup& group) {
         const Tensor t = Tensor::zeros({2, 8}, DType::F32, here());
         const std::vector<int64_t> begins = {0, group.rank() == 0 ? 4 : 3, 8};
         group.inference_gather_columns(t, begins);
         group.check();
         get_accelerator()->synchronize();
         group.check();
       })) {
    EXPECT_HAS(error, "divide rows into different columns");
  }
}

TEST(ProcessGroup, TheLogCountsEveryOperation) {
  const auto log = std::make_shared<CommsLog>();
  Settings settings;
  settings.log = log;
  expect_none(run_group(2, settings, [](ProcessGroup& group) {
    const Tensor t = Tensor::zeros({256}, DType::F32, here());
    for (int i = 0; i < 3; ++i) group.all_reduce(t);
    group.all_reduce(t, ReduceOp::Sum, true).wait();
    group.inference_all_reduce(t);
    group.all_gather(Tensor::zeros({512}, DType::F32, here()), t);
    group.barrier();
  }));
  std::map<CommOp, CommsLog::Line> lines;
  for (const CommsLog::Line& line : log->lines()) lines[line.op] = line;
  EXPECT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[CommOp::AllReduce].count, 8);  // of both ranks
  EXPECT_EQ(lines[CommOp::AllReduce].bytes, 1024u);
  EXPECT_EQ(lines[CommOp::InferenceAllReduce].count, 2);
  EXPECT_EQ(lines[CommOp::AllGather].bytes, 2048u);  // the whole output
  EXPECT_EQ(lines[CommOp::Barrier].count, 2);
  EXPECT_GT(lines[CommOp::AllReduce].total_us, 0);
}

TEST(ProcessGroup, BackendsByPlace) {
  expect_none(run_ranks(1, [](int) {
    GroupSetup setup;
    setup.membership.store = make_local_store();
    setup.hosts = {0};
    setup.backend = "shm";
    EXPECT_EQ(make_communicator(setup)->name(), "shm");
    setup.membership.size = 2;
    setup.hosts = {0, 1};
    EXPECT_THROW(make_communicator(setup), InvalidArgument);
  }));
}

}  // namespace
}  // namespace anyaccel::comm
