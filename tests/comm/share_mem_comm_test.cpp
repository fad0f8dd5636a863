// The op "ShareMemCommBuilder": its functions in jobs of one and of two ranks.
#include "anyaccel/ops/share_mem_comm.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "comm/free_port.h"
#include "comm/shared_memory_ranks.h"

namespace anyaccel::ops {
namespace {

std::shared_ptr<ShareMemComm> load() {
  return get_accelerator()->create_op_builder("ShareMemCommBuilder")->load_as<ShareMemComm>();
}

Tensor host_tensor(DType dtype, int64_t count) { return Tensor::zeros({count}, dtype, Device{}); }

// In processes of their own: a process has one world.

TEST(ShareMemComm, TwoRanks) {
  const std::string port = std::to_string(comm::free_port());
  const auto reports = comm::test::run_processes(2, [&](const comm::Membership& membership) {
    const auto require = [](bool condition, const char* what) {
      if (!condition) throw Error(what);
    };
    setenv("DS_ACCELERATOR", "cpu", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", port.c_str(), 1);
    setenv("ANYACCEL_JOB_TOKEN", "of this test", 1);
    const auto comm = load();
    comm->initialize(2, membership.rank);
    const Tensor floats = host_tensor(DType::F32, 3000);
    for (int64_t i = 0; i < 3000; ++i) floats.data_as<float>()[i] = static_cast<float>(i + membership.rank);
    comm->inference_all_reduce(floats);
    for (int64_t i = 0; i < 3000; ++i) {
      require(floats.data_as<float>()[i] == static_cast<float>(2 * i + 1), "a wrong sum");
    }
    // A dtype that DeepSpeed's leaves as it is.
    const Tensor longs = host_tensor(DType::I64, 5);
    longs.data_as<int64_t>()[4] = 5 + membership.rank;
    comm->inference_all_reduce(longs);
    require(longs.data_as<int64_t>()[4] == 11, "a wrong sum of integers");
    const Tensor matrix = Tensor::zeros({4, 6}, DType::F32, Device{});
    bool refused = false;
    try {
      comm->inference_all_reduce(matrix.transpose(0, 1));
    } catch (const InvalidArgument&) {
      refused = true;
    }
    require(refused, "a tensor that is not contiguous was taken");
    comm::destroy_process_group();
  });
  for (const auto& report : reports) EXPECT_EQ(report.text, "");
}

TEST(ShareMemComm, ContradictionsAndOrder) {
  const auto reports = comm::test::run_processes(1, [&](const comm::Membership&) {
    setenv("DS_ACCELERATOR", "cpu", 1);
    for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) unsetenv(name);
    const auto comm = load();
    const Tensor tensor = host_tensor(DType::F32, 4);
    const auto error_of = [](const auto& call) -> std::string {
      try {
        call();
      } catch (const InvalidArgument& error) {
        return error.what();
      }
      return "nothing";
    };
    std::string text = error_of([&] { comm->inference_all_reduce(tensor); });
    if (text.find("comes after initialize") == std::string::npos) throw Error(text);
    comm->initialize(1, 0);
    comm->inference_all_reduce(tensor);
    text = error_of([&] { comm->initialize(2, 1); });
    if (text.find("rank 1 of 2, but this process is rank 0 of a world of 1") == std::string::npos) throw Error(text);
  });
  EXPECT_EQ(reports[0].text, "");
}

}  // namespace
}  // namespace anyaccel::ops
