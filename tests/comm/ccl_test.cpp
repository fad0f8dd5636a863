// The communicator over oneCCL, between processes; and what becomes of calls that oneCCL never ends. The library comes from
// tests/python_packages.txt.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <thread>

#include "comm/ccl/ccl_library.h"
#include "comm/ccl/ccl_member.h"
#include "comm/shared_memory/reduction.h"
#include "comm/shared_memory_ranks.h"
#include "message_test_support.h"

namespace anyaccel::comm {
namespace {

using namespace testing;

void require(bool condition, const std::string& what) {
  if (!condition) throw Error(what);
}

class Ccl : public ::testing::Test {
 protected:
  // Only a child opens the library for good: threads do not survive a fork.
  void SetUp() override {
    if (const std::string problem = ccl_problem(); !problem.empty()) GTEST_SKIP() << problem;
  }

  // Runs body in processes; failed expectations count as failures of the rank.
  static void on_processes(int size, const test::RankBody& body) {
    const auto reports = test::run_processes(size, [&](const Membership& membership) {
      body(membership);
      require(!HasFailure(), "an expectation failed");
    });
    for (int rank = 0; rank < size; ++rank) {
      const test::Report& report = reports[static_cast<size_t>(rank)];
      EXPECT_EQ(report.text, "") << "rank " << rank;
      EXPECT_EQ(report.status, 0) << "rank " << rank;
    }
  }
  static std::unique_ptr<HostCommunicator> join(const Membership& membership) {
    return make_ccl_communicator(membership, make_shared_memory_communicator(membership));
  }
};

TEST_F(Ccl, MovesBytesAndSums) {
  on_processes(2, [](const Membership& membership) {
    const auto c = join(membership);
    EXPECT_EQ(c->name(), "ccl");
    // Longer than the memory of one call, and not a multiple of it.
    for (const size_t bytes : {0, 1, 16385, 200000, (9 << 20) + 13}) check_moves(*c, bytes);
    for (const int64_t count : {0, 1, 12, 60000, 2500000}) check_sums(*c, count, ordered_sum(2, count));
  });
}

// Sums of three depend on the order, which is the library's; but all members get the same bits.
TEST_F(Ccl, ThreeMembersGetTheSameBits) {
  on_processes(3, [](const Membership& membership) {
    const auto c = join(membership);
    for (const size_t bytes : {0, 5, 70000}) check_moves(*c, bytes);
    for (const int64_t count : {1, 1000, 262147, 1200000}) {
      const std::vector<float> expected = ordered_sum(3, count);
      std::vector<float> sum = values_of(membership.rank, count);
      c->all_reduce(sum.data(), count, DType::F32, ReduceOp::Sum);
      for (size_t i = 0; i < sum.size(); ++i) {
        require(std::abs(sum[i] - expected[i]) <= 1e-5f * (1 + std::abs(expected[i])), "a wrong sum");
      }
      std::vector<float> all(sum.size() * 3);
      c->all_gather(all.data(), sum.data(), sum.size() * sizeof(float));
      for (size_t rank = 0; rank < 3; ++rank) {
        require(std::equal(sum.begin(), sum.end(), all.begin() + static_cast<ptrdiff_t>(rank * sum.size())),
                "another member has other bits");
      }
    }
  });
}

// Each type and operation, with small whole numbers, whose sums and products do not depend on the order.
TEST_F(Ccl, EveryTypeAndOperation) {
  on_processes(3, [](const Membership& membership) {
    const auto c = join(membership);
    constexpr DType dtypes[] = {DType::Bool, DType::U8,   DType::I8,  DType::I16, DType::I32,    DType::I64,
                                DType::F16,  DType::BF16, DType::F32, DType::F64, DType::F8E4M3, DType::F8E5M2};
    constexpr ReduceOp ops[] = {ReduceOp::Sum, ReduceOp::Product, ReduceOp::Min,   ReduceOp::Max,
                                ReduceOp::Avg, ReduceOp::BitAnd,  ReduceOp::BitOr, ReduceOp::BitXor};
    int by_library = 0;
    for (const DType dtype : dtypes) {
      for (const ReduceOp op : ops) {
        if (!reduction_exists(dtype, op)) continue;
        by_library += CclMember::reduces(dtype, op);
        const int64_t count = 21;
        const size_t bytes = static_cast<size_t>(count) * dtype_size(dtype);
        const Tensor own = Tensor::zeros({count}, dtype, Device{});
        std::vector<std::vector<uint8_t>> all;
        for (int rank = 0; rank < 3; ++rank) {
          const Tensor whole = Tensor::empty({count}, DType::F32, Device{});
          for (int i = 0; i < count; ++i) {
            whole.data_as<float>()[i] = static_cast<float>(dtype == DType::Bool ? (i + rank) % 2 : 1 + (i + rank) % 3);
          }
          const Tensor values = whole.to(dtype);
          const auto* data = static_cast<const uint8_t*>(values.data());
          all.emplace_back(data, data + bytes);
        }
        const void* const sources[] = {all[0].data(), all[1].data(), all[2].data()};
        std::vector<uint8_t> expected(bytes), got = all[static_cast<size_t>(membership.rank)];
        comm::reduce(expected.data(), sources, 3, count, dtype, op);
        const std::string what = std::string(dtype_name(dtype)) + " " + reduce_op_name(op);
        c->all_reduce(got.data(), count, dtype, op);
        require(got == expected, "all_reduce: " + what);
        got = all[static_cast<size_t>(membership.rank)];
        c->reduce(got.data(), count, dtype, op, 1);
        if (membership.rank == 1) require(got == expected, "reduce: " + what);
        got.resize(bytes / 3);
        c->reduce_scatter(got.data(), all[static_cast<size_t>(membership.rank)].data(), count / 3, dtype, op);
        require(std::equal(got.begin(), got.end(), expected.begin() + membership.rank * static_cast<int>(bytes / 3)),
                "reduce_scatter: " + what);
      }
    }
    require(by_library == 8 * 2 + 4 * 2, "the library combines " + std::to_string(by_library) + " pairs");
    // A NaN wins, which the library does not promise.
    float values[2] = {membership.rank == 2 ? std::numeric_limits<float>::quiet_NaN() : 1, 4};
    c->all_reduce(values, 2, DType::F32, ReduceOp::Min);
    require(std::isnan(values[0]) && values[1] == 4, "a minimum without NaN");
  });
}

TEST_F(Ccl, DisagreementsAreNamed) {
  on_processes(2, [](const Membership& membership) {
    const auto c = join(membership);
    float value = 1;
    try {
      c->all_reduce(&value, 1, membership.rank == 0 ? DType::F32 : DType::I32, ReduceOp::Sum);
      throw Error("the members disagree");
    } catch (const CommunicationError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("all_reduce of 1 float32 (sum)"), std::string::npos) << text;
      EXPECT_NE(text.find("all_reduce of 1 int32 (sum)"), std::string::npos) << text;
    }
    EXPECT_THROW(c->barrier(), CommunicationError);
    EXPECT_THROW(c->broadcast(&value, 4, 0), CommunicationError);
  });
}

// Rank 1 joins and makes no call: the library's call on rank 0 never returns.
enum class Ending { Watch, TimeLimit, Interrupt };
std::string error_of_a_lonely_call(const Membership& membership, Ending ending) {
  const CclLibrary& library = CclLibrary::get();
  const auto base = make_shared_memory_communicator(membership);
  CclId id{};
  if (membership.rank == 0) id = CclMember::make_id(library);
  base->broadcast(&id, sizeof(id), 0);
  const auto watch = std::make_shared<FlagWatch>();
  // Joining has to be done within it too, on a machine with other work.
  const std::chrono::milliseconds timeout(ending == Ending::TimeLimit ? 15000 : 120000);
  CclMember member(library, id, membership.rank, membership.size, watch, timeout);
  std::string text;
  if (membership.rank == 0) {
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      if (ending == Ending::Watch) watch->flag = true;
      if (ending == Ending::Interrupt) member.interrupt();
    });
    float value = 7;
    try {
      member.all_reduce(&value, 1, DType::F32, ReduceOp::Sum);
    } catch (const CommunicationError& error) {
      text = error.what();
    }
    other.join();
    require(value == 7, "a call that failed has changed its memory");
  }
  base->barrier();  // rank 1 stays until then
  return text;
}

TEST_F(Ccl, ACallThatNeverReturnsIsAbandoned) {
  struct Case {
    Ending ending;
    const char* error;
  };
  for (const Case& each :
       {Case{Ending::Watch, "rank 7 on host9 was silent for 10 s"}, Case{Ending::Interrupt, "the group was ended"},
        Case{Ending::TimeLimit, "onecclAllReduce did not return within the group's time limit of 15000 ms"}}) {
    on_processes(2, [&](const Membership& membership) {
      const std::string text = error_of_a_lonely_call(membership, each.ending);
      if (membership.rank == 0) require(text == each.error, text);
    });
  }
}

// A member that ends between two calls is noticed by the others before they enter the library again.
TEST_F(Ccl, ADeadMemberIsNamed) {
  const auto reports = test::run_processes(3, [](const Membership& membership) {
    const auto c = join(membership);
    std::vector<float> values(300000, 1);
    c->all_reduce(values.data(), 300000, DType::F32, ReduceOp::Sum);
    if (membership.rank == 1) raise(SIGKILL);
    try {
      c->all_reduce(values.data(), 300000, DType::F32, ReduceOp::Sum);
    } catch (const CommunicationError& error) {
      require(std::string(error.what()).find("rank 1 on here") != std::string::npos, error.what());
      return;
    }
    throw Error("no error");
  });
  EXPECT_EQ(reports[0].text, "");
  EXPECT_EQ(reports[1].status, SIGKILL);
  EXPECT_EQ(reports[2].text, "");
}

// Two groups of the same members, used by two threads in different orders.
TEST_F(Ccl, TwoGroupsAtOnce) {
  on_processes(2, [](const Membership& membership) {
    Membership second = membership;
    second.store = make_prefixed_store(membership.store, "2/");
    const auto a = join(membership), b = join(second);
    const auto work = [&](HostCommunicator& c, float value) {
      for (int i = 0; i < 30; ++i) {
        std::vector<float> data(5000, value);
        c.all_reduce(data.data(), 5000, DType::F32, ReduceOp::Sum);
        if (data[4999] != 2 * value) throw Error("a wrong sum");
      }
    };
    on_ranks(2, [&](int thread) { work(((thread + membership.rank) % 2) ? *a : *b, 1); });
  });
}

// In a process of its own, since the library is opened once.
std::string error_of_opening(const std::function<void()>& before) {
  return test::run_processes(1,
                             [&](const Membership&) {
                               before();
                               CclLibrary::get();
                             })[0]
      .text;
}

TEST(CclLibrary, AnotherPluginIsAnError) {
  const std::string text = error_of_opening([] { setenv("CCL_PLUGIN", "ONECCL_LEGACY", 1); });
  EXPECT_NE(text.find("CCL_PLUGIN=ONECCL_LEGACY is set"), std::string::npos) << text;
  EXPECT_NE(text.find("ONECCL_LEGACY_CPU; unset CCL_PLUGIN"), std::string::npos) << text;
}

}  // namespace
}  // namespace anyaccel::comm
