// Groups of devices over a driver on host memory, whose calls return when every member has made them: what a library leaves
// out, and the end of calls that wait. tests/cuda/device_group_test.cpp has the rest, on streams that really run later.
#include "comm/device/device_communicator.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "accelerators/host_collectives_driver.h"
#include "anyaccel/driver_accelerator.h"
#include "anyaccel/error.h"

namespace anyaccel::comm {
namespace {

class Watch final : public FailureWatch {
 public:
  bool failed() const noexcept override { return failed_.load(); }
  void check() const override {
    if (failed()) throw CommunicationError("rank 1 on far went silent");
  }
  void fail() { failed_ = true; }

 private:
  std::atomic<bool> failed_{false};
};

struct Rank {
  DriverAccelerator& accelerator;
  Membership members;
  std::unique_ptr<DeviceCommunicator> group;
  std::string why;
  std::vector<std::string> told;
};

// Both ranks on threads, each with its device, after joining.
void two_ranks(const collectives::LibraryTable& library, const std::function<void(Rank&)>& program,
               const std::shared_ptr<Watch>& watch = nullptr) {
  host_collectives::library_table = &library;
  DriverAccelerator accelerator(host_collectives::table());
  const std::shared_ptr<Store> store = make_local_store();
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      try {
        Rank rank{accelerator, {}, nullptr, "", {}};
        rank.members.rank = i;
        rank.members.size = 2;
        rank.members.names = {"rank 0 on near", "rank 1 on far"};
        rank.members.store = store;
        rank.members.watch = watch;
        accelerator.set_device(i);
        rank.group = DeviceCommunicator::create(accelerator, i, rank.members, rank.why,
                                                [&](const std::string& text) { rank.told.push_back(text); });
        program(rank);
        rank.group.reset();
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << i << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

Tensor numbers(const Rank& r, DType dtype, int first) {
  std::vector<double> values(100);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 10) + first;
  const Tensor host = Tensor::from_host(values.data(), {100}, DType::F64).to(dtype);
  return host.to(r.accelerator.device(r.members.rank));
}
double element(const Tensor& tensor, int64_t i) {
  return tensor.to(Device{}).to_vector<double>()[static_cast<size_t>(i)];
}

TEST(DeviceCommunicator, TellsWhatTheLibraryHas) {
  two_ranks(collectives::habana, [](Rank& r) {
    ASSERT_NE(r.group, nullptr) << r.why;
    EXPECT_EQ(r.group->name(), "hccl");
    EXPECT_EQ(r.group->version(), "1.190");
    EXPECT_TRUE(r.group->reduces(DType::F32, ReduceOp::Avg));
    EXPECT_FALSE(r.group->reduces(DType::I16, ReduceOp::Sum));
    EXPECT_FALSE(r.group->reduces(DType::I32, ReduceOp::BitAnd));
    EXPECT_FALSE(r.group->exchanges());
    const Tensor data = numbers(r, DType::F32, r.members.rank);
    EXPECT_THROW(r.group->all_to_all(data.data(), data.data(), 4), NotImplementedError);
    EXPECT_THROW(r.group->all_reduce(data.data(), 100, DType::F32, ReduceOp::BitOr), NotImplementedError);
    r.group->all_reduce(data.data(), 100, DType::F32, ReduceOp::Sum);
    EXPECT_EQ(element(data, 13), 7);
    r.group->all_reduce(data.data(), 100, DType::F32, ReduceOp::Min);
    EXPECT_EQ(element(data, 13), 7);
    r.group->barrier();
    r.group->check();
    EXPECT_TRUE(r.told.empty());
  });
}

TEST(DeviceCommunicator, WorksWithoutAbortGroupsAndVersion) {
  two_ranks(collectives::tccl, [](Rank& r) {
    ASSERT_NE(r.group, nullptr) << r.why;
    EXPECT_EQ(r.group->version(), "");
    EXPECT_FALSE(r.group->reduces(DType::F32, ReduceOp::Avg));
    const Tensor data = numbers(r, DType::I64, r.members.rank);
    r.group->all_reduce(data.data(), 100, DType::I64, ReduceOp::Max);
    EXPECT_EQ(element(data, 13), 4);
    EXPECT_THROW(r.group->broadcast(data.data(), 8, 0), NotImplementedError);
    r.group->barrier();
  });
}

// A call that waits inside of the library: the thread that watches ends it.
void ends_a_call(const std::function<void(Rank&, Watch&)>& end, const std::string& expected) {
  const auto watch = std::make_shared<Watch>();
  std::atomic<bool> over{false};
  two_ranks(
      collectives::habana,
      [&](Rank& r) {
        ASSERT_NE(r.group, nullptr) << r.why;
        if (r.members.rank == 1) {
          while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          return;
        }
        const Tensor data = numbers(r, DType::F32, 0);
        std::thread ender([&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
          end(r, *watch);
        });
        for (int attempt = 0; attempt < 2; ++attempt) {
          try {
            r.group->all_reduce(data.data(), 100, DType::F32, ReduceOp::Sum);
            ADD_FAILURE() << "no error";
          } catch (const CommunicationError& error) {
            EXPECT_EQ(error.what(), expected);
          }
        }
        ender.join();
        EXPECT_TRUE(r.group->failed());
        r.group.reset();  // after which nobody is notified any more
        EXPECT_EQ(r.told, std::vector<std::string>{expected});
        over = true;
      },
      watch);
}

TEST(DeviceCommunicator, AFailureOfTheJobEndsACallThatWaits) {
  ends_a_call([](Rank&, Watch& watch) { watch.fail(); }, "rank 1 on far went silent");
}

TEST(DeviceCommunicator, AnAbortEndsACallThatWaits) {
  ends_a_call([](Rank& r, Watch&) { r.group->abort("enough"); }, "enough");
}

// The code that is notified of a failure may hold the group for a moment, and may be its last owner.
TEST(DeviceCommunicator, MayEndOnTheThreadThatFoundTheFailure) {
  const auto watch = std::make_shared<Watch>();
  host_collectives::library_table = &collectives::habana;
  DriverAccelerator accelerator(host_collectives::table());
  const std::shared_ptr<Store> store = make_local_store();
  std::shared_ptr<DeviceCommunicator> groups[2];
  std::atomic<int> told{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      Membership members;
      members.rank = i;
      members.size = 2;
      members.store = store;
      members.watch = watch;
      std::string why;
      groups[i] = DeviceCommunicator::create(accelerator, i, members, why, [&groups, &told, i](const std::string&) {
        groups[i].reset();
        ++told;
      });
      EXPECT_NE(groups[i], nullptr) << why;
    });
  }
  for (std::thread& thread : threads) thread.join();
  watch->fail();
  while (told < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST(DeviceCommunicator, AnAcceleratorWithoutCollectivesGivesNone) {
  class Bare final : public DriverAccelerator {
   public:
    using DriverAccelerator::DriverAccelerator;
    CollectivesAccess collectives(int) override { return {}; }
  };
  Bare accelerator(host_collectives::table());
  std::string why;
  EXPECT_EQ(DeviceCommunicator::create(accelerator, 0, Membership{}, why), nullptr);
  EXPECT_EQ(why, "rank 0: the accelerator has no collectives of its own");
}

}  // namespace
}  // namespace anyaccel::comm
