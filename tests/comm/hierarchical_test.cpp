// Several hosts at once: threads as ranks, of which some share a "host" (shared memory) and the hosts talk through Gloo.
#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>
#include <type_traits>
#include <utility>

#include "base/files/install_paths.h"
#include "base/scalar_convert.h"
#include "comm/host_communicator.h"
#include "message_test_support.h"

namespace anyaccel::comm {
namespace {

using namespace testing;

// The host of each rank: uneven, in any order, one alone, all alone, one for all.
const std::vector<std::vector<int>> kTopologies = {{0, 0, 1, 1, 1}, {4, 7, 4, 2, 7, 4}, {0, 1}, {0, 0, 5}, {3, 3}, {0}};

class Hierarchical : public ::testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    const std::string file = install_library_dir() + "/libanyaccel_gloo.so";
    if (!std::filesystem::exists(file))
      GTEST_SKIP() << "built without Gloo (Debian: libgloo-dev): there is no " << file;
  }
  const std::vector<int>& hosts() const { return kTopologies[GetParam()]; }
  int size() const { return static_cast<int>(hosts().size()); }
  std::unique_ptr<HostCommunicator> join(int rank, const std::vector<int>& hosts) {
    return make_hierarchical_communicator(membership_of(rank, static_cast<int>(hosts.size()), store_), hosts,
                                          make_gloo_communicator);
  }
  // The members of a host from left to right, then the hosts in the order of their first members.
  static std::vector<float> sum_by_hosts(const std::vector<int>& hosts, const std::function<float(int, int64_t)>& value,
                                         int64_t count) {
    std::vector<int> order;
    for (const int host : hosts) {
      if (std::find(order.begin(), order.end(), host) == order.end()) order.push_back(host);
    }
    std::vector<float> sum;
    for (const int host : order) {
      std::vector<float> part;
      for (size_t rank = 0; rank < hosts.size(); ++rank) {
        if (hosts[rank] != host) continue;
        std::vector<float> own(static_cast<size_t>(count));
        for (int64_t i = 0; i < count; ++i) own[static_cast<size_t>(i)] = value(static_cast<int>(rank), i);
        if (part.empty())
          part = own;
        else
          std::transform(part.begin(), part.end(), own.begin(), part.begin(), std::plus<>());
      }
      if (sum.empty())
        sum = part;
      else
        std::transform(sum.begin(), sum.end(), part.begin(), sum.begin(), std::plus<>());
    }
    return sum;
  }
  std::shared_ptr<Store> store_ = make_local_store();
};

TEST_P(Hierarchical, MovesBytes) {
  on_ranks(size(), [&](int rank) {
    const auto c = join(rank, hosts());
    EXPECT_EQ(c->rank(), rank);
    EXPECT_EQ(c->size(), size());
    for (const size_t bytes : {0, 1, 4000, 300000}) check_moves(*c, bytes);
  });
}

TEST_P(Hierarchical, SumsHostByHost) {
  const std::vector<int64_t> counts = {0, 1, 60, 30000, 1200000};
  std::vector<std::vector<float>> expected;
  for (const int64_t count : counts) expected.push_back(sum_by_hosts(hosts(), value_of, count));
  on_ranks(size(), [&](int rank) {
    const auto c = join(rank, hosts());
    for (size_t i = 0; i < counts.size(); ++i) check_sums(*c, counts[i], expected[i]);
  });
}

TEST_P(Hierarchical, RoundsNarrowFloatsOnce) {
  // In the first topology, more than are widened at once.
  const int64_t count = GetParam() == 0 ? (1 << 20) + 1234 : 70000;
  const auto narrow = [](int rank, int64_t i) { return float_to_bf16(value_of(rank, i)); };
  const std::vector<float> sum = sum_by_hosts(
      hosts(), [&](int rank, int64_t i) { return bf16_to_float(narrow(rank, i)); }, count);
  on_ranks(size(), [&](int rank) {
    const auto c = join(rank, hosts());
    for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Avg}) {
      std::vector<uint16_t> data(sum.size()), expected(sum.size());
      for (size_t i = 0; i < data.size(); ++i) {
        data[i] = narrow(rank, static_cast<int64_t>(i));
        expected[i] = float_to_bf16(op == ReduceOp::Avg ? sum[i] / static_cast<float>(size()) : sum[i]);
      }
      if (hosts().size() < 2) continue;
      c->all_reduce(data.data(), count, DType::BF16, op);
      EXPECT_EQ(data, expected) << reduce_op_name(op);
    }
  });
}

TEST_P(Hierarchical, ReducesIntegers) {
  on_ranks(size(), [&](int rank) {
    const auto c = join(rank, hosts());
    std::vector<int32_t> data(1000);
    const auto fill = [&] {
      for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<int32_t>(i) * (rank + 1) - 500;
    };
    const int32_t ranks = size() * (size() + 1) / 2;
    fill();
    c->all_reduce(data.data(), 1000, DType::I32, ReduceOp::Avg);
    for (int32_t i = 0; i < 1000; ++i) EXPECT_EQ(data[static_cast<size_t>(i)], (i * ranks - 500 * size()) / size());
    fill();
    c->all_reduce(data.data(), 1000, DType::I32, ReduceOp::Max);
    for (int32_t i = 0; i < 1000; ++i) EXPECT_EQ(data[static_cast<size_t>(i)], i * size() - 500);
    fill();
    c->all_reduce(data.data(), 1000, DType::I32, ReduceOp::BitXor);
    for (int32_t i = 0; i < 1000; ++i) {
      int32_t expected = 0;
      for (int r = 0; r < size(); ++r) expected ^= i * (r + 1) - 500;
      EXPECT_EQ(data[static_cast<size_t>(i)], expected);
    }
  });
}

TEST_P(Hierarchical, RoundsFloatsOfAByteOnce) {
  constexpr int64_t kCount = 1000;
  if (size() < 2) return;
  for (const DType dtype : {DType::F8E4M3, DType::F8E5M2}) {
    const auto* format = dtype == DType::F8E4M3 ? &kE4M3 : &kE5M2;
    const auto narrow = [format](int rank, int64_t i) {
      return float_to_fp8(static_cast<float>((i * 5 + rank * 3) % 64) / 8, *format);
    };
    const std::vector<float> sum = sum_by_hosts(
        hosts(), [&](int rank, int64_t i) { return fp8_to_float(narrow(rank, i), *format); }, kCount);
    store_ = make_local_store();
    on_ranks(size(), [&](int rank) {
      const auto c = join(rank, hosts());
      for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Avg}) {
        std::vector<uint8_t> data(kCount), expected(kCount);
        for (size_t i = 0; i < data.size(); ++i) {
          data[i] = narrow(rank, static_cast<int64_t>(i));
          expected[i] = float_to_fp8(op == ReduceOp::Avg ? sum[i] / static_cast<float>(size()) : sum[i], *format);
        }
        c->all_reduce(data.data(), kCount, dtype, op);
        EXPECT_EQ(data, expected) << dtype_name(dtype) << ' ' << reduce_op_name(op);
      }
    });
  }
}

template <class Integer>
void check_average(HostCommunicator& c, int rank, DType dtype) {
  constexpr int64_t kCount = 100;
  const auto value = [](int of, int64_t i) {
    return static_cast<Integer>(i % 20 + of - (std::is_signed_v<Integer> ? 18 : 0));
  };
  std::vector<Integer> data(kCount), expected(kCount);
  for (int64_t i = 0; i < kCount; ++i) {
    int64_t sum = 0;
    for (int r = 0; r < c.size(); ++r) sum += value(r, i);
    data[static_cast<size_t>(i)] = value(rank, i);
    expected[static_cast<size_t>(i)] = static_cast<Integer>(sum / c.size());
  }
  c.all_reduce(data.data(), kCount, dtype, ReduceOp::Avg);
  EXPECT_EQ(data, expected) << dtype_name(dtype);
}

TEST_P(Hierarchical, AveragesIntegersOfEveryType) {
  on_ranks(size(), [&](int rank) {
    const auto c = join(rank, hosts());
    check_average<uint8_t>(*c, rank, DType::U8);
    check_average<int8_t>(*c, rank, DType::I8);
    check_average<int16_t>(*c, rank, DType::I16);
    check_average<int32_t>(*c, rank, DType::I32);
    check_average<int64_t>(*c, rank, DType::I64);
  });
}

TEST_P(Hierarchical, NobodyLeavesABarrierBeforeAllHaveCome) {
  std::atomic<int> arrived{0};
  on_ranks(size(), [&](int rank) {
    const auto c = join(rank, hosts());
    for (int late = 0; late < size(); ++late) {
      if (rank == late) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      ++arrived;
      c->barrier();
      EXPECT_GE(arrived, size() * (late + 1)) << "rank " << rank << " did not wait for rank " << late;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Topologies, Hierarchical, ::testing::Range(size_t{0}, kTopologies.size()));

using HierarchicalFailures = Hierarchical;

TEST_P(HierarchicalFailures, EndTheWholeGroup) {
  std::vector<std::string> words(hosts().size());
  on_ranks(size(), [&](int rank) {
    const auto c = join(rank, hosts());
    c->barrier();
    float value = 1;
    try {
      // One member of the second host wants something else.
      if (rank == 3)
        c->all_reduce(&value, 1, DType::I32, ReduceOp::Sum);
      else
        c->all_reduce(&value, 1, DType::F32, ReduceOp::Sum);
      c->barrier();
    } catch (const CommunicationError& error) {
      words[static_cast<size_t>(rank)] = error.what();
    }
    EXPECT_THROW(c->barrier(), CommunicationError);
  });
  for (const std::string& text : words) EXPECT_NE(text, "");
}

// Arguments that the parts of the communicator do not get, named otherwise by the first host than by the second.
TEST_P(HierarchicalFailures, HostsThatDisagreeGetNoResult) {
  using Call = std::function<void(HostCommunicator&, bool, void*)>;
  const std::vector<std::pair<std::string, Call>> calls = {
      {"broadcast of 4 float32 with root 1",
       [](HostCommunicator& c, bool second, void* data) {
         c.broadcast(data, {16, DType::F32}, second ? 1 : 0);
       }},
      {"reduce of 4 float32 (sum) with root 1",
       [](HostCommunicator& c, bool second, void* data) {
         c.reduce(data, 4, DType::F32, ReduceOp::Sum, second ? 1 : 0);
       }},
      {"all_reduce of 4 float32 (avg)",
       [](HostCommunicator& c, bool second, void* data) {
         c.all_reduce(data, 4, DType::F32, second ? ReduceOp::Avg : ReduceOp::Sum);
       }},
      {"all_reduce of 4 bfloat16 (sum)",
       [](HostCommunicator& c, bool second, void* data) {
         c.all_reduce(data, 4, second ? DType::BF16 : DType::F32, ReduceOp::Sum);
       }},
      {"reduce_scatter of 4 float16 (sum)",
       [](HostCommunicator& c, bool second, void* data) {
         std::vector<float> all(20);
         c.reduce_scatter(data, all.data(), 4, second ? DType::F16 : DType::F32, ReduceOp::Sum);
       }},
      {"all_gather of 4 int32",
       [](HostCommunicator& c, bool second, void* data) {
         std::vector<float> all(20);
         c.all_gather(all.data(), data, {16, second ? DType::I32 : DType::F32});
       }},
  };
  for (const bool whole_host : {true, false}) {
    for (const auto& [text, call] : calls) {
      SCOPED_TRACE(text);
      store_ = make_local_store();
      std::vector<std::string> words(hosts().size());
      on_ranks(size(), [&, &call = call](int rank) {
        const auto c = join(rank, hosts());
        float data[4] = {};
        try {
          call(*c, whole_host ? hosts()[static_cast<size_t>(rank)] == 1 : rank == 4, data);
          c->barrier();  // for members that are done before another host's leader could see it
        } catch (const CommunicationError& error) {
          words[static_cast<size_t>(rank)] = error.what();
        }
      });
      for (size_t rank = 0; rank < words.size(); ++rank) {
        const std::string& word = words[rank];
        EXPECT_NE(word, "") << rank;
        // Here only the job's watch, which there is none of, would tell the other host what one host found.
        if (!whole_host && hosts()[rank] == 0) continue;
        EXPECT_NE(word.find("the members disagree"), std::string::npos) << word;
        EXPECT_NE(word.find(text), std::string::npos) << word;
      }
    }
  }
}

TEST_P(HierarchicalFailures, AbortEndsWaitsEverywhere) {
  std::vector<std::string> words(hosts().size());
  on_ranks(size(), [&](int rank) {
    const auto c = join(rank, hosts());
    c->barrier();
    if (rank == 4) {
      c->abort("rank 4 has had enough");
      return;
    }
    try {
      c->barrier();
    } catch (const CommunicationError& error) {
      words[static_cast<size_t>(rank)] = error.what();
    }
  });
  for (size_t rank = 0; rank < 4; ++rank) EXPECT_NE(words[rank], "") << rank;
}

INSTANTIATE_TEST_SUITE_P(Uneven, HierarchicalFailures, ::testing::Values(size_t{0}));

}  // namespace
}  // namespace anyaccel::comm
