// For tests of communicators: ranks as threads of one process, and what every communicator must do.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "anyaccel/error.h"
#include "comm/host_communicator.h"

namespace anyaccel::comm::testing {

inline Membership membership_of(int rank, int size, std::shared_ptr<Store> store) {
  Membership membership;
  membership.rank = rank;
  membership.size = size;
  for (int i = 0; i < size; ++i) {
    membership.names.push_back("rank " + std::to_string(i) + " on host" + std::to_string(i / 2));
  }
  membership.store = std::move(store);
  membership.timeout = std::chrono::seconds(120);
  return membership;
}

// A watch that reports a failure once its flag is set.
class FlagWatch final : public FailureWatch {
 public:
  bool failed() const noexcept override { return flag.load(std::memory_order_relaxed); }
  void check() const override {
    if (failed()) throw CommunicationError("rank 7 on host9 was silent for 10 s");
  }
  std::atomic<bool> flag = false;
};

// Runs body(rank) on `size` threads; what a thread throws is rethrown here.
inline void on_ranks(int size, const std::function<void(int)>& body) {
  std::vector<std::exception_ptr> thrown(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        thrown[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : thrown) {
    if (error) std::rethrow_exception(error);
  }
}

// Values with all bits in use: sums of them depend on the order in which they are added.
inline float value_of(int rank, int64_t i) {
  const auto mixed =
      static_cast<uint32_t>(static_cast<uint64_t>(i) * 2654435761u + static_cast<uint64_t>(rank) * 40503u);
  return (static_cast<float>(mixed >> 8) * 0x1p-24f - 0.4f) * (1 + static_cast<float>(rank) * 3.7f);
}

inline std::vector<float> values_of(int rank, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = value_of(rank, i);
  return values;
}

// ((rank 0 + rank 1) + rank 2) + ...
inline std::vector<float> ordered_sum(int size, int64_t count) {
  std::vector<float> sum = values_of(0, count);
  for (int rank = 1; rank < size; ++rank) {
    for (int64_t i = 0; i < count; ++i) sum[static_cast<size_t>(i)] += value_of(rank, i);
  }
  return sum;
}

// Bytes that tell who sent them, to whom, and where in the message they lie.
inline std::vector<uint8_t> pattern(int from, int to, size_t bytes) {
  std::vector<uint8_t> data(bytes);
  for (size_t i = 0; i < bytes; ++i)
    data[i] = static_cast<uint8_t>(i * 7 + i / 251 + static_cast<size_t>(from * 31 + to * 101));
  return data;
}

// The calls that move bytes, with sizes around the limits of frames and pieces.
inline void check_moves(HostCommunicator& c, size_t bytes) {
  SCOPED_TRACE(std::to_string(bytes) + " bytes, rank " + std::to_string(c.rank()));
  const int n = c.size(), me = c.rank();
  const auto at = [&](auto& memory, int place) { return memory.data() + static_cast<size_t>(place) * bytes; };
  const auto same = [&](const uint8_t* data, const std::vector<uint8_t>& expected) {
    return bytes == 0 || std::memcmp(data, expected.data(), bytes) == 0;
  };
  for (int root = 0; root < n; ++root) {
    std::vector<uint8_t> one = pattern(me, 0, bytes);
    c.broadcast(one.data(), bytes, root);
    EXPECT_TRUE(same(one.data(), pattern(root, 0, bytes))) << "broadcast from " << root;

    std::vector<uint8_t> all(me == root ? bytes * static_cast<size_t>(n) : 0);
    const std::vector<uint8_t> own = pattern(me, root, bytes);
    c.gather(all.data(), own.data(), bytes, root);
    for (int from = 0; from < n && me == root; ++from) {
      EXPECT_TRUE(same(at(all, from), pattern(from, root, bytes))) << "gather from " << from;
    }
    for (int to = 0; to < n && me == root; ++to) {
      const std::vector<uint8_t> part = pattern(root, to, bytes);
      std::copy(part.begin(), part.end(), at(all, to));
    }
    std::vector<uint8_t> mine(bytes);
    c.scatter(mine.data(), all.data(), bytes, root);
    EXPECT_TRUE(same(mine.data(), pattern(root, me, bytes))) << "scatter from " << root;
  }
  std::vector<uint8_t> all(bytes * static_cast<size_t>(n)), out(all.size());
  const std::vector<uint8_t> own = pattern(me, 7, bytes);
  c.all_gather(all.data(), own.data(), bytes);
  for (int from = 0; from < n; ++from) EXPECT_TRUE(same(at(all, from), pattern(from, 7, bytes))) << "all_gather";
  std::fill(all.begin(), all.end(), uint8_t{0});
  if (bytes > 0) std::memcpy(at(all, me), own.data(), bytes);
  c.all_gather(all.data(), at(all, me), bytes);
  for (int from = 0; from < n; ++from) EXPECT_TRUE(same(at(all, from), pattern(from, 7, bytes))) << "in place";
  for (int to = 0; to < n; ++to) {
    const std::vector<uint8_t> part = pattern(me, to, bytes);
    std::copy(part.begin(), part.end(), at(out, to));
  }
  c.all_to_all(all.data(), out.data(), bytes);
  for (int from = 0; from < n; ++from) EXPECT_TRUE(same(at(all, from), pattern(from, me, bytes))) << "all_to_all";
  // Around the ring, and with tags taken in another order than sent.
  if (n > 1) {
    const int next = (me + 1) % n, before = (me + n - 1) % n;
    std::vector<uint8_t> got(bytes);
    if (me == 0) c.send(pattern(0, next, bytes).data(), bytes, next, 3);
    c.recv(got.data(), bytes, before, 3);
    EXPECT_TRUE(same(got.data(), pattern(before, me, bytes))) << "send and recv";
    if (me != 0) c.send(pattern(me, next, bytes).data(), bytes, next, 3);
  }
  c.barrier();
}

// Reductions of fp32 against sums in the order of ranks, bit by bit.
inline void check_sums(HostCommunicator& c, int64_t count, const std::vector<float>& expected) {
  SCOPED_TRACE(std::to_string(count) + " elements, rank " + std::to_string(c.rank()));
  const int n = c.size(), me = c.rank();
  std::vector<float> data = values_of(me, count);
  c.all_reduce(data.data(), count, DType::F32, ReduceOp::Sum);
  EXPECT_EQ(data, expected);
  for (int root = 0; root < n; ++root) {
    data = values_of(me, count);
    c.reduce(data.data(), count, DType::F32, ReduceOp::Sum, root);
    if (me == root) {
      EXPECT_EQ(data, expected);
    }
  }
  if (count % n == 0) {
    data = values_of(me, count);
    std::vector<float> part(static_cast<size_t>(count / n));
    c.reduce_scatter(part.data(), data.data(), count / n, DType::F32, ReduceOp::Sum);
    EXPECT_EQ(part, std::vector<float>(expected.begin() + me * (count / n), expected.begin() + (me + 1) * (count / n)));
  }
}

// Calls with a root in which the last rank names another one than the others. join(rank, name) returns the communicator
// of a new group with that name.
inline void check_roots_are_compared(
    int rank, int size, const std::function<std::unique_ptr<HostCommunicator>(int, const std::string&)>& join) {
  std::vector<float> one(30000, 1.0f), all(one.size() * static_cast<size_t>(size), 1.0f);
  const auto count = static_cast<int64_t>(one.size());
  const int root = rank == size - 1 ? size - 1 : 0;
  const std::vector<std::pair<std::string, std::function<void(HostCommunicator&, int64_t)>>> calls = {
      {"broadcast",
       [&](HostCommunicator& c, int64_t n) {
         c.broadcast(one.data(), {static_cast<size_t>(n) * 4, DType::F32}, root);
       }},
      {"reduce", [&](HostCommunicator& c, int64_t n) { c.reduce(one.data(), n, DType::F32, ReduceOp::Sum, root); }},
      {"gather",
       [&](HostCommunicator& c, int64_t n) {
         c.gather(all.data(), one.data(), {static_cast<size_t>(n) * 4, DType::F32}, root);
       }},
      {"scatter",
       [&](HostCommunicator& c, int64_t n) {
         c.scatter(one.data(), all.data(), {static_cast<size_t>(n) * 4, DType::F32}, root);
       }},
  };
  for (const auto& [name, call] : calls) {
    for (const int64_t n : {int64_t{0}, int64_t{3}, count}) {
      SCOPED_TRACE(name + " of " + std::to_string(n) + ", rank " + std::to_string(rank));
      const auto c = join(rank, name + std::to_string(n));
      c->barrier();  // all are connected before one fails
      try {
        call(*c, n);
        ADD_FAILURE() << "no error";
      } catch (const CommunicationError& error) {
        const std::string text = error.what();
        EXPECT_NE(text.find(name + " of " + std::to_string(n) + " float32"), std::string::npos) << text;
        EXPECT_NE(text.find("root 0"), std::string::npos) << text;
        EXPECT_NE(text.find("root " + std::to_string(size - 1)), std::string::npos) << text;
      }
    }
  }
}

}  // namespace anyaccel::comm::testing
