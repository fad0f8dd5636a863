// Every collective of shared memory with threads as ranks, against what it is defined to do: sizes that take each way through
// the slots, group sizes up to more ranks than cores, blocks, and messages between two ranks.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "comm/shared_memory_ranks.h"

namespace anyaccel::comm {
namespace {

using test::run_threads;

// Empty, beside the number, in one slot, in one chunk, in several, with odd ends.
const std::vector<int64_t> kCounts = {0, 1, 3, 28, 29, 500, 1024, 1025, 40000, 65536, 65537, 200001};

float value(int rank, int64_t i) {
  return static_cast<float>((i * 7 + rank * 13) % 101) + 0.25f * static_cast<float>(rank);
}

std::vector<float> values(int rank, int64_t count, int64_t from = 0) {
  std::vector<float> result(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) result[static_cast<size_t>(i)] = value(rank, from + i);
  return result;
}
std::vector<float> sums(int size, int64_t count, int64_t from = 0) {
  std::vector<float> result = values(0, count, from);
  for (int r = 1; r < size; ++r) {
    for (int64_t i = 0; i < count; ++i) result[static_cast<size_t>(i)] += value(r, from + i);
  }
  return result;
}

class Collectives : public ::testing::TestWithParam<int> {
 protected:
  int size() const { return GetParam(); }
};

TEST_P(Collectives, AllReduceAndReduce) {
  run_threads(size(), [&](const Membership& membership) {
    const auto group = make_shared_memory_communicator(membership);
    const int rank = membership.rank;
    for (const int64_t count : kCounts) {
      const std::vector<float> expected = sums(size(), count);
      std::vector<float> data = values(rank, count);
      group->all_reduce(data.data(), count, DType::F32, ReduceOp::Sum);
      ASSERT_EQ(data, expected) << count;
      const int root = static_cast<int>(count % size());
      data = values(rank, count);
      group->reduce(data.data(), count, DType::F32, ReduceOp::Sum, root);
      if (rank == root) {
        ASSERT_EQ(data, expected) << count;
      }
    }
  });
}

TEST_P(Collectives, ReduceScatter) {
  run_threads(size(), [&](const Membership& membership) {
    const auto group = make_shared_memory_communicator(membership);
    for (const int64_t count : kCounts) {
      const std::vector<float> send = values(membership.rank, count * size());
      std::vector<float> recv(static_cast<size_t>(count), -1.0f);
      group->reduce_scatter(recv.data(), send.data(), count, DType::F32, ReduceOp::Sum);
      ASSERT_EQ(recv, sums(size(), count, membership.rank * count)) << count;
    }
  });
}

TEST_P(Collectives, BroadcastGatherScatter) {
  run_threads(size(), [&](const Membership& membership) {
    const auto group = make_shared_memory_communicator(membership);
    const int rank = membership.rank;
    for (const int64_t count : kCounts) {
      const size_t bytes = static_cast<size_t>(count) * sizeof(float);
      const int root = static_cast<int>((count + 1) % size());
      std::vector<float> data = rank == root ? values(root, count) : std::vector<float>(static_cast<size_t>(count));
      group->broadcast(data.data(), bytes, root);
      ASSERT_EQ(data, values(root, count)) << count;

      const std::vector<float> own = values(rank, count);
      std::vector<float> all(static_cast<size_t>(count) * static_cast<size_t>(size()));
      std::vector<float> every;
      for (int r = 0; r < size(); ++r) {
        const std::vector<float> theirs = values(r, count);
        every.insert(every.end(), theirs.begin(), theirs.end());
      }
      group->gather(rank == root ? all.data() : nullptr, own.data(), bytes, root);
      if (rank == root) {
        ASSERT_EQ(all, every) << count;
      }

      std::vector<float> part(static_cast<size_t>(count));
      group->scatter(part.data(), rank == root ? every.data() : nullptr, bytes, root);
      ASSERT_EQ(part, own) << count;
    }
  });
}

TEST_P(Collectives, AllGatherAndAllToAll) {
  run_threads(size(), [&](const Membership& membership) {
    const auto group = make_shared_memory_communicator(membership);
    const int rank = membership.rank;
    for (const int64_t count : kCounts) {
      const size_t bytes = static_cast<size_t>(count) * sizeof(float);
      std::vector<float> expected;
      for (int r = 0; r < size(); ++r) {
        const std::vector<float> theirs = values(r, count);
        expected.insert(expected.end(), theirs.begin(), theirs.end());
      }
      const std::vector<float> own = values(rank, count);
      std::vector<float> all(expected.size());
      group->all_gather(all.data(), own.data(), bytes);
      ASSERT_EQ(all, expected) << count;
      // From its own place.
      std::vector<float> in_place(expected.size());
      float* place = in_place.data() + static_cast<int64_t>(rank) * count;
      std::copy(own.begin(), own.end(), place);
      group->all_gather(in_place.data(), place, bytes);
      ASSERT_EQ(in_place, expected) << count;

      const std::vector<float> send = values(rank, count * size());
      std::vector<float> recv(send.size());
      group->all_to_all(recv.data(), send.data(), bytes);
      std::vector<float> parts;
      for (int r = 0; r < size(); ++r) {
        const std::vector<float> theirs = values(r, count, rank * count);
        parts.insert(parts.end(), theirs.begin(), theirs.end());
      }
      ASSERT_EQ(recv, parts) << count;
    }
  });
}

TEST_P(Collectives, RandomSequenceOfOperations) {
  run_threads(size(), [&](const Membership& membership) {
    const auto group = make_shared_memory_communicator(membership);
    uint32_t state = 12345;  // the same on every rank
    const auto random = [&](uint32_t below) {
      state = state * 1664525u + 1013904223u;
      return (state >> 8) % below;
    };
    for (int i = 0; i < 150; ++i) {
      const int64_t count = random(3) == 0 ? random(150000) : random(1500);
      const int root = static_cast<int>(random(static_cast<uint32_t>(size())));
      std::vector<float> data = values(membership.rank, count, i);
      switch (random(4)) {
        case 0: group->barrier(); break;
        case 1:
          group->all_reduce(data.data(), count, DType::F32, ReduceOp::Sum);
          ASSERT_EQ(data, sums(size(), count, i)) << i;
          break;
        case 2:
          group->broadcast(data.data(), data.size() * sizeof(float), root);
          ASSERT_EQ(data, values(root, count, i)) << i;
          break;
        default:
          group->reduce(data.data(), count, DType::F32, ReduceOp::Sum, root);
          if (membership.rank == root) {
            ASSERT_EQ(data, sums(size(), count, i)) << i;
          }
      }
    }
  });
}

TEST_P(Collectives, Blocks) {
  run_threads(size(), [&](const Membership& membership) {
    const auto group = make_shared_memory_communicator(membership);
    const int64_t room = 100000;
    SharedBlock block = group->share(static_cast<size_t>(room) * sizeof(float));
    const SharedBlock second = group->share(5000 * sizeof(float));
    ASSERT_NE(block.data, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block.data) % 4096, 0u);
    auto* const shared = static_cast<float*>(block.data);
    EXPECT_EQ(shared[0], 0.0f);
    EXPECT_EQ(shared[room - 1], 0.0f);
    for (const int64_t count : {int64_t{10}, int64_t{2000}, int64_t{70001}}) {
      // At one place of the block; at different places; in a block on some members only; in different blocks.
      for (int where = 0; where < 4; ++where) {
        if (where == 3 && count > 5000) continue;
        std::vector<float> own(static_cast<size_t>(count));
        float* data = shared + 64;
        if (where == 1) data += 16 * (membership.rank % 2);
        if (where == 2 && membership.rank == 0) data = own.data();
        if (where == 3 && membership.rank == 0) data = static_cast<float*>(second.data);
        const std::vector<float> start = values(membership.rank, count, where);
        std::copy(start.begin(), start.end(), data);
        group->all_reduce(data, count, DType::F32, ReduceOp::Sum);
        ASSERT_EQ(std::vector<float>(data, data + count), sums(size(), count, where)) << count << ", case " << where;
        group->barrier();
      }
    }
    // Memory of a block that is no longer held is like any other.
    block = {};
    std::vector<float> data = values(membership.rank, 5000);
    group->all_reduce(data.data(), 5000, DType::F32, ReduceOp::Sum);
    ASSERT_EQ(data, sums(size(), 5000));
  });
}

TEST_P(Collectives, Messages) {
  run_threads(size(), [&](const Membership& membership) {
    const auto group = make_shared_memory_communicator(membership);
    const int rank = membership.rank;
    const int next = (rank + 1) % size();
    const int previous = (rank + size() - 1) % size();
    for (const int64_t count : kCounts) {
      // Everybody sends first, also what is larger than a ring.
      const size_t bytes = static_cast<size_t>(count) * sizeof(float);
      const std::vector<float> own = values(rank, count);
      const std::vector<float> other = values(rank, count, 50);
      group->send(own.data(), bytes, next, 1);
      group->send(other.data(), bytes, next, 2);
      group->send(own.data(), bytes, next, 1);
      std::vector<float> data(static_cast<size_t>(count));
      group->recv(data.data(), bytes, previous, 2);
      ASSERT_EQ(data, values(previous, count, 50));
      for (int i = 0; i < 2; ++i) {
        std::fill(data.begin(), data.end(), -1.0f);
        group->recv(data.data(), bytes, previous, 1);
        ASSERT_EQ(data, values(previous, count));
      }
    }
    // Odd lengths keep the stream in step.
    for (int length = 0; length < 40; ++length) {
      const std::string text(static_cast<size_t>(length), static_cast<char>('a' + rank % 26));
      group->send(text.data(), text.size(), next, length);
    }
    for (int length = 39; length >= 0; --length) {
      std::string text(static_cast<size_t>(length), '?');
      group->recv(text.data(), text.size(), previous, length);
      ASSERT_EQ(text, std::string(static_cast<size_t>(length), static_cast<char>('a' + previous % 26)));
    }
    group->barrier();
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, Collectives, ::testing::Values(1, 2, 3, 4, 7));

// In processes, each of which has the blocks of the others at other addresses.
TEST(SharedMemory, MemoryAtThePlaceOfAReleasedBlockIsLikeAnyOther) {
  const std::vector<test::Report> reports = test::run_processes(2, [](const Membership& membership) {
    const auto group = make_shared_memory_communicator(membership);
    constexpr int64_t count = 100000;
    constexpr size_t bytes = count * sizeof(float);
    SharedBlock block = group->share(bytes);
    void* const place = block.data;
    block = {};
    auto* const data = static_cast<float*>(
        mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
    if (data != place) throw std::runtime_error("the block is still there");
    const std::vector<float> start = values(membership.rank, count);
    std::copy(start.begin(), start.end(), data);
    group->all_reduce(data, count, DType::F32, ReduceOp::Sum);
    if (std::vector<float>(data, data + count) != sums(2, count)) throw std::runtime_error("a wrong sum");
  });
  for (const test::Report& report : reports) {
    EXPECT_EQ(report.text, "");
    EXPECT_EQ(report.status, 0);
  }
}

TEST(SharedMemory, ManyRanks) {
  constexpr int kRanks = 24;
  run_threads(kRanks, [&](const Membership& membership) {
    const auto group = make_shared_memory_communicator(membership);
    for (const int64_t count : {int64_t{5}, int64_t{1000}, int64_t{20000}}) {
      std::vector<float> data = values(membership.rank, count);
      group->all_reduce(data.data(), count, DType::F32, ReduceOp::Sum);
      ASSERT_EQ(data, sums(kRanks, count));
    }
  });
}

TEST(SharedMemory, ResultsAgreeBitByBitWhicheverWayTheyGo) {
  // Sums of these floats depend on the order; every part of every size must be combined in the order of ranks.
  constexpr int kRanks = 3;
  std::vector<std::vector<float>> results(kRanks);
  run_threads(kRanks, [&](const Membership& membership) {
    const auto group = make_shared_memory_communicator(membership);
    const int64_t count = 70003;
    const auto element = [](int rank, int64_t i) {
      return static_cast<float>(i % 1000 + 1) * (rank == 1 ? -1.0e7f : 1.0e7f) + 0.1f * static_cast<float>(rank);
    };
    std::vector<float> large(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) large[static_cast<size_t>(i)] = element(membership.rank, i);
    group->all_reduce(large.data(), count, DType::F32, ReduceOp::Sum);
    for (int64_t i = 0; i < count; ++i) {
      const float sum = element(0, i) + element(1, i) + element(2, i);
      ASSERT_EQ(large[static_cast<size_t>(i)], sum);
    }
    for (const int64_t length : {int64_t{1}, int64_t{7}, int64_t{900}}) {
      for (int64_t at = 0; at < 3000; at += length) {
        std::vector<float> small(static_cast<size_t>(length));
        for (int64_t i = 0; i < length; ++i) small[static_cast<size_t>(i)] = element(membership.rank, at + i);
        group->all_reduce(small.data(), length, DType::F32, ReduceOp::Sum);
        ASSERT_EQ(std::memcmp(small.data(), large.data() + at, small.size() * sizeof(float)), 0);
      }
    }
    results[static_cast<size_t>(membership.rank)] = large;
  });
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST(SharedMemory, OtherDtypesAndOperations) {
  run_threads(2, [&](const Membership& membership) {
    const auto group = make_shared_memory_communicator(membership);
    const int rank = membership.rank;
    for (const size_t count : {size_t{5}, size_t{900}, size_t{30000}}) {
      std::vector<uint8_t> bytes(count, static_cast<uint8_t>(rank == 0 ? 200 : 100));
      group->all_reduce(bytes.data(), static_cast<int64_t>(count), DType::U8, ReduceOp::Sum);
      EXPECT_EQ(bytes, std::vector<uint8_t>(count, 44));
      std::vector<int64_t> longs(count, rank == 0 ? -9 : 4);
      group->all_reduce(longs.data(), static_cast<int64_t>(count), DType::I64, ReduceOp::Avg);
      EXPECT_EQ(longs, std::vector<int64_t>(count, -2));
      std::vector<int32_t> ints(count, rank == 0 ? 12 : 10);
      group->all_reduce(ints.data(), static_cast<int64_t>(count), DType::I32, ReduceOp::BitXor);
      EXPECT_EQ(ints, std::vector<int32_t>(count, 6));
      std::vector<uint16_t> halves(count, float_to_bf16(rank == 0 ? 1.5f : 2.0f));
      group->all_reduce(halves.data(), static_cast<int64_t>(count), DType::BF16, ReduceOp::Product);
      EXPECT_EQ(halves, std::vector<uint16_t>(count, float_to_bf16(3.0f)));
    }
  });
}

TEST(SharedMemory, WrongArgumentsChangeNothing) {
  run_threads(2, [&](const Membership& membership) {
    const auto group = make_shared_memory_communicator(membership);
    float data[] = {1.0f};
    EXPECT_THROW(group->all_reduce(data, 1, DType::F32, ReduceOp::BitOr), InvalidArgument);
    EXPECT_THROW(group->all_reduce(data, -1, DType::F32, ReduceOp::Sum), InvalidArgument);
    EXPECT_THROW(group->all_reduce(data, 1, DType::None, ReduceOp::Sum), InvalidArgument);
    EXPECT_THROW(group->broadcast(data, 4, 2), InvalidArgument);
    EXPECT_THROW(group->send(data, 4, -1, 0), InvalidArgument);
    group->all_reduce(data, 1, DType::F32, ReduceOp::Sum);
    EXPECT_EQ(data[0], 2.0f);
  });
}

}  // namespace
}  // namespace anyaccel::comm
