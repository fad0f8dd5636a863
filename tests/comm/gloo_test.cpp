// The communicator over Gloo's TCP connections: ranks as threads, connected through the loopback interface.
#include <filesystem>

#include "base/files/install_paths.h"
#include "comm/gloo/local_address.h"
#include "comm/host_communicator.h"
#include "message_test_support.h"

namespace anyaccel::comm {
namespace {

using namespace testing;

class Gloo : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string file = install_library_dir() + "/libanyaccel_gloo.so";
    if (!std::filesystem::exists(file))
      GTEST_SKIP() << "built without Gloo (Debian: libgloo-dev): there is no " << file;
  }
  std::shared_ptr<Store> store_ = make_local_store();
  std::unique_ptr<HostCommunicator> join(int rank, int size) {
    return make_gloo_communicator(membership_of(rank, size, store_));
  }
};

TEST_F(Gloo, MovesBytes) {
  for (const int size : {1, 2, 3, 5}) {
    SCOPED_TRACE(size);
    store_ = make_local_store();
    on_ranks(size, [&](int rank) {
      const auto c = join(rank, size);
      EXPECT_EQ(c->name(), "gloo");
      for (const size_t bytes : {0, 1, 4000, 16384, 16385, 100000}) check_moves(*c, bytes);
    });
  }
}

TEST_F(Gloo, BroadcastsInPieces) {
  constexpr size_t kBytes = (size_t{9} << 20) + 5;
  on_ranks(5, [&](int rank) {
    const auto c = join(rank, 5);
    std::vector<uint8_t> data = pattern(rank, 0, kBytes);
    c->broadcast(data.data(), kBytes, 2);
    EXPECT_TRUE(data == pattern(2, 0, kBytes));
  });
}

TEST_F(Gloo, SumsInTheOrderOfRanks) {
  for (const int size : {1, 2, 3, 4}) {
    SCOPED_TRACE(size);
    store_ = make_local_store();
    const std::vector<int64_t> counts = {0, 1, 12, 5000, 60000, 300000};
    on_ranks(size, [&](int rank) {
      const auto c = join(rank, size);
      for (const int64_t count : counts) check_sums(*c, count, ordered_sum(size, count));
    });
  }
}

TEST_F(Gloo, ReducesInSeveralSteps) {
  // More than the scratch memory of one step, directly (2 ranks) and in parts (3).
  for (const int size : {2, 3}) {
    store_ = make_local_store();
    const int64_t count = (int64_t{9} << 20) + 3;
    const std::vector<float> expected = ordered_sum(size, count);
    on_ranks(size, [&](int rank) {
      const auto c = join(rank, size);
      std::vector<float> data = values_of(rank, count);
      c->all_reduce(data.data(), count, DType::F32, ReduceOp::Sum);
      EXPECT_TRUE(data == expected);
    });
  }
}

TEST_F(Gloo, TagsAreLanes) {
  on_ranks(2, [&](int rank) {
    const auto c = join(rank, 2);
    if (rank == 0) {
      const int32_t a = 11, b = 22;
      c->send(&a, 4, 1, 0);
      c->send(&b, 4, 1, 2147483646);
    } else {
      int32_t a = 0, b = 0;
      c->recv(&a, 4, 0, 0);
      c->recv(&b, 4, 0, 2147483646);
      EXPECT_EQ(a, 11);
      EXPECT_EQ(b, 22);
    }
    EXPECT_THROW(c->send(&rank, 4, rank, 0), InvalidArgument);
    EXPECT_THROW(c->send(&rank, 4, 2, 0), InvalidArgument);
    EXPECT_THROW(c->send(&rank, 4, 1 - rank, -1), InvalidArgument);
    c->barrier();
  });
}

// The message of each rank's failure; empty where it did not fail.
std::vector<std::string> failures(int size, const std::function<void(int)>& body) {
  std::vector<std::string> words(static_cast<size_t>(size));
  on_ranks(size, [&](int rank) {
    try {
      body(rank);
    } catch (const CommunicationError& error) {
      words[static_cast<size_t>(rank)] = error.what();
    }
  });
  return words;
}

TEST_F(Gloo, DisagreementsAreErrorsOnAllRanks) {
  std::vector<float> data(3 * 100000);
  const std::vector<std::function<void(HostCommunicator&)>> others = {
      [&](HostCommunicator& c) { c.all_reduce(data.data(), 99999, DType::F32, ReduceOp::Sum); },
      [&](HostCommunicator& c) { c.all_reduce(data.data(), 100, DType::F32, ReduceOp::Sum); },
      [&](HostCommunicator& c) { c.all_reduce(data.data(), 100000, DType::I32, ReduceOp::Sum); },
      [&](HostCommunicator& c) { c.all_reduce(data.data(), 100000, DType::F32, ReduceOp::Max); },
      [&](HostCommunicator& c) { c.barrier(); },
      [&](HostCommunicator& c) { c.broadcast(data.data(), 400000, 2); },
  };
  for (size_t i = 0; i < others.size(); ++i) {
    SCOPED_TRACE(i);
    store_ = make_local_store();
    const auto words = failures(3, [&](int rank) {
      const auto c = join(rank, 3);
      std::vector<float> own(3 * 100000);
      if (rank == 1)
        others[i](*c);
      else
        c->all_reduce(own.data(), 100000, DType::F32, ReduceOp::Sum);
      c->barrier();  // for those who were done before they could see it
    });
    for (const std::string& text : words) {
      EXPECT_NE(text.find("the members disagree"), std::string::npos) << text;
      EXPECT_NE(text.find("rank 1 on host0"), std::string::npos) << text;
      EXPECT_NE(text.find("all_reduce of 100000 float32 (sum)"), std::string::npos) << text;
    }
  }
}

TEST_F(Gloo, RootsAreCompared) {
  for (const int size : {2, 3, 6}) {
    store_ = make_local_store();
    on_ranks(size, [&](int rank) {
      check_roots_are_compared(rank, size, [&](int member, const std::string& name) {
        return make_gloo_communicator(membership_of(member, size, make_prefixed_store(store_, name)));
      });
    });
  }
}

TEST_F(Gloo, DtypesOfMovedElementsAreCompared) {
  using Call = std::function<void(HostCommunicator&, DType)>;
  std::vector<float> all(3 * 4);
  const std::vector<Call> calls = {[&](HostCommunicator& c, DType dtype) {
                                     c.broadcast(all.data(), {16, dtype}, 0);
                                   },
                                   [&](HostCommunicator& c, DType dtype) {
                                     c.scatter(all.data(), all.data(), {16, dtype}, 1);
                                   },
                                   [&](HostCommunicator& c, DType dtype) {
                                     if (c.rank() == 0)
                                       c.send(all.data(), {16, dtype}, 2, 0);
                                     else if (c.rank() == 2)
                                       c.recv(all.data(), {16, dtype}, 0, 0);
                                     c.barrier();
                                   }};
  for (size_t i = 0; i < calls.size(); ++i) {
    SCOPED_TRACE(i);
    store_ = make_local_store();
    const auto words = failures(3, [&](int rank) {
      const auto c = join(rank, 3);
      c->barrier();  // all are connected before one fails
      calls[i](*c, rank == 2 ? DType::I32 : DType::F32);
    });
    for (const std::string& text : words) {
      EXPECT_NE(text.find("of 4 int32"), std::string::npos) << text;
      EXPECT_NE(text.find("of 4 float32"), std::string::npos) << text;
    }
  }
}

TEST_F(Gloo, PeersThatLeaveAreNamed) {
  const auto words = failures(3, [&](int rank) {
    const auto c = join(rank, 3);
    c->barrier();
    if (rank == 2) return;  // its connections end
    float value = 1;
    for (int i = 0; i < 3; ++i) c->all_reduce(&value, 1, DType::F32, ReduceOp::Sum);
  });
  for (int rank : {0, 1}) {
    EXPECT_NE(words[static_cast<size_t>(rank)].find("rank 2 on host1"), std::string::npos)
        << words[static_cast<size_t>(rank)];
  }
  EXPECT_EQ(words[2], "");
}

TEST_F(Gloo, AbortEndsAWait) {
  const auto words = failures(2, [&](int rank) {
    const auto c = join(rank, 2);
    if (rank == 1) {
      float value = 0;
      std::atomic<bool> entered = false;
      std::thread killer([&] {
        while (!entered) std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        c->abort("the job is over");
      });
      entered = true;
      try {
        c->recv(&value, 4, 0, 0);
      } catch (...) {
        killer.join();
        EXPECT_THROW(c->barrier(), CommunicationError);
        throw;
      }
      killer.join();
    } else {
      float value = 0;
      c->recv(&value, 4, 1, 0);  // never sent; fails with its peer
    }
  });
  EXPECT_EQ(words[1], "the job is over");
  EXPECT_NE(words[0], "");
}

TEST_F(Gloo, TheTimeLimitHolds) {
  const auto words = failures(2, [&](int rank) {
    Membership membership = membership_of(rank, 2, store_);
    membership.timeout = std::chrono::milliseconds(rank == 0 ? 2000 : 120000);
    const auto c = make_gloo_communicator(membership);
    float value = 0;
    if (rank == 0)
      c->recv(&value, 4, 1, 0);
    else
      c->recv(&value, 4, 0, 0);
  });
  EXPECT_NE(words[0].find("time limit of 2000 ms"), std::string::npos) << words[0];
  EXPECT_NE(words[0].find("rank 1 on host0"), std::string::npos) << words[0];
  EXPECT_EQ(words[1], words[0]);  // told through the store
}

TEST_F(Gloo, TheFailureWatchEndsWaits) {
  const auto watch = std::make_shared<FlagWatch>();
  std::thread bell([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    watch->flag = true;
  });
  const auto words = failures(2, [&](int rank) {
    Membership membership = membership_of(rank, 2, store_);
    membership.watch = watch;
    const auto c = make_gloo_communicator(membership);
    float value = 0;
    c->recv(&value, 4, 1 - rank, 0);
  });
  bell.join();
  for (const std::string& text : words) EXPECT_EQ(text, "rank 7 on host9 was silent for 10 s");
}

TEST_F(Gloo, ListensWhereRank0IsReached) {
  Membership membership = membership_of(0, 1, store_);
  membership.master_addr = "no-such-host.invalid";
  try {
    make_gloo_communicator(membership);
    ADD_FAILURE() << "no error";
  } catch (const CommunicationError& error) {
    EXPECT_NE(std::string(error.what()).find("no-such-host.invalid"), std::string::npos) << error.what();
  }
  membership.master_addr = "127.0.0.1";
  EXPECT_EQ(make_gloo_communicator(membership)->size(), 1);
}

TEST_F(Gloo, LoopbackAndNetworkDoNotMix) {
  EXPECT_EQ(local_address_towards("127.0.0.1"), "127.0.0.1");
  EXPECT_TRUE(is_loopback("127.0.1.1"));
  EXPECT_TRUE(is_loopback("::1"));
  EXPECT_FALSE(is_loopback("10.0.0.1"));
}

}  // namespace
}  // namespace anyaccel::comm
