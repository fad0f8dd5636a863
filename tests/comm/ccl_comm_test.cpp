// The op "CCLCommBuilder" on two ranks and on some of three. The library comes from tests/python_packages.txt.
#include "anyaccel/ops/ccl_comm.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <functional>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "comm/ccl/ccl_library.h"
#include "comm/shared_memory_ranks.h"

namespace anyaccel::ops {
namespace {

using comm::ReduceOp;

std::shared_ptr<CCLComm> load_ccl() {
  setenv("DS_ACCELERATOR", "cpu", 1);
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) unsetenv(name);
  return get_accelerator()->create_op_builder("CCLCommBuilder")->load_as<CCLComm>();
}

void require_that(bool condition, const std::string& what) {
  if (!condition) throw Error(what);
}

void require_refused(const std::string& words, const std::function<void()>& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return require_that(std::string(error.what()).find(words) != std::string::npos, error.what());
  }
  throw Error("no error: " + words);
}

class CclComm : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string problem = comm::ccl_problem(); !problem.empty()) GTEST_SKIP() << problem;
  }
  // In processes of their own: threads of the library do not survive a fork.
  static void on_ranks(int size, const std::function<void(comm::HostCommunicator&)>& body) {
    const auto reports = comm::test::run_processes(size, [&](const comm::Membership& membership) {
      const auto others = comm::make_shared_memory_communicator(membership);
      body(*others);
      others->barrier();  // the rank that made an address stays until all have used it
    });
    for (const auto& report : reports) {
      EXPECT_EQ(report.text, "");
      EXPECT_EQ(report.status, 0);
    }
  }
  static std::vector<uint8_t> from_first(comm::HostCommunicator& others, std::vector<uint8_t> address, int first = 0) {
    others.broadcast(address.data(), address.size(), first);
    return address;
  }
};

TEST_F(CclComm, TwoRanks) {
  on_ranks(2, [](comm::HostCommunicator& others) {
    const int rank = others.rank();
    const auto comm = load_ccl();
    const Tensor floats = Tensor::zeros({3000}, DType::F32, Device{});
    require_refused("before initialize", [&] { comm->all_reduce(floats); });
    const std::vector<uint8_t> own = comm->get_kvs_addr(rank);
    require_that(own.size() == 4096, "an address of another length");
    if (rank == 1) require_refused("the address is empty", [&] { comm->initialize(2, rank, own); });
    const std::vector<uint8_t> address = from_first(others, own);
    require_refused("no rank 2 among 2", [&] { comm->initialize(2, 2, address); });
    require_refused("has 3 bytes", [&] { comm->initialize(2, rank, {1, 2, 3}); });
    comm->initialize(2, rank, address);
    require_refused("called twice", [&] { comm->initialize(2, rank, address); });
    require_that(comm->get_rank() == rank && comm->get_world_size() == 2, "another place");

    for (int i = 0; i < 3000; ++i) floats.data_as<float>()[i] = static_cast<float>(i + rank);
    comm->all_reduce(floats);
    for (int i = 0; i < 3000; ++i) require_that(floats.data_as<float>()[i] == static_cast<float>(2 * i + 1), "a sum");
    comm->inference_all_reduce(floats);
    require_that(floats.data_as<float>()[5] == 22, "a sum of inference_all_reduce");
    comm->broadcast(floats, 1);

    const Tensor longs = Tensor::zeros({2}, DType::I64, Device{});
    longs.data_as<int64_t>()[0] = 5 + rank;
    comm->all_reduce(longs, ReduceOp::Max);
    require_that(longs.data_as<int64_t>()[0] == 6, "a maximum");
    comm->all_reduce_caching(longs, ReduceOp::Product, "of the longs");
    require_that(longs.data_as<int64_t>()[0] == 36, "a product");
    require_refused("\"of the longs\" stands for 2 int64 (product), and was used for 3000 float32 (product)",
                    [&] { comm->all_reduce_caching(floats, ReduceOp::Product, "of the longs"); });

    const Tensor bools = Tensor::zeros({3}, DType::Bool, Device{});
    bools.data_as<bool>()[rank] = true;
    comm->all_reduce(bools, ReduceOp::Sum);
    require_that(bools.data_as<bool>()[0] && bools.data_as<bool>()[1] && !bools.data_as<bool>()[2], "a sum of bools");

    require_refused("does not combine bool by avg", [&] { comm->all_reduce(bools, ReduceOp::Avg); });
    require_refused("does not combine int16 by sum",
                    [&] { comm->all_reduce(Tensor::zeros({1}, DType::I16, Device{})); });
    require_refused("is not contiguous", [&] {
      comm->all_reduce(Tensor::zeros({4, 6}, DType::F32, Device{}).transpose(0, 1));
    });
    require_refused("no rank 2 among 2", [&] { comm->broadcast(floats, 2); });
    comm->barrier();
    require_that(comm->get_available_coll().size() == 5, "another number of collectives");
  });
}

TEST_F(CclComm, SomeOfThreeRanks) {
  on_ranks(3, [](comm::HostCommunicator& others) {
    const int rank = others.rank();
    const auto comm = load_ccl();
    comm->initialize(3, rank, from_first(others, comm->get_kvs_addr(rank)));
    const CCLComm::Ranks pair = {2, 1};
    const std::vector<uint8_t> address = from_first(others, comm->get_sub_kvs_addr(rank == 2), 2);
    require_refused("not called for the ranks 2, 1", [&] { comm->barrier(pair); });
    require_refused("pass the number of each", [&] { comm->initialize_sub_comm(3, rank, address, pair); });
    const Tensor value = Tensor::zeros({1}, DType::F32, Device{});
    value.data_as<float>()[0] = static_cast<float>(1 << rank);
    if (rank > 0) {
      comm->initialize_sub_comm(2, rank == 2 ? 0 : 1, address, pair);
      require_that(comm->get_rank(pair) == (rank == 2 ? 0 : 1) && comm->get_world_size(pair) == 2, "another place");
      comm->all_reduce(value, ReduceOp::Sum, pair);
      require_that(value.data_as<float>()[0] == 6, "a sum of two");
      value.data_as<float>()[0] = static_cast<float>(rank);
      comm->broadcast(value, 0, pair);
      require_that(value.data_as<float>()[0] == 2, "a broadcast of the first of two");
    }
    comm->barrier();
    comm->all_reduce(value);
    require_that(value.data_as<float>()[0] == 5, "a sum of three");
  });
}

TEST(CclCommBuilder, SaysWhatIsMissing) {
  const std::string problem = comm::ccl_problem();
  std::string reason;
  const auto builder = get_accelerator()->create_op_builder("CCLCommBuilder");
  EXPECT_EQ(builder->is_compatible(&reason), problem.empty());
  if (problem.empty()) {
    EXPECT_EQ(reason, "");
  } else {
    EXPECT_NE(reason.find("CCLCommBuilder needs oneCCL: libccl.so.2"), std::string::npos) << reason;
    EXPECT_NE(reason.find("install oneCCL 2022 or later"), std::string::npos) << reason;
    EXPECT_THROW(builder->load(), UnavailableError);
  }
}

}  // namespace
}  // namespace anyaccel::ops
