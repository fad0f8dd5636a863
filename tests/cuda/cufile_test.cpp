// GDS by cuFile on the simulated driver and the simulated library: direct transfers, when they are not used, what every
// failing function leads to, order and threads.
#include "accelerators/cuda/libraries/cufile.h"

#include <fcntl.h>

#include <cerrno>
#include <thread>

#include "anyaccel/accelerator.h"
#include "anyaccel/driver_accelerator.h"
#include "anyaccel/ops/gds.h"
#include "base/files/files.h"
#include "cuda/simulated_test_support.h"
#include "ops/aio/device_files.h"

namespace anyaccel {
namespace {

using namespace cuda_test;
using ops::GDS;
using ops::GdsHandle;

// The memory of 100003 elements is neither a whole number of blocks nor does it end at one.
constexpr int64_t count = 100003;

GdsHandle gds_handle(int parallelism = 1) {
  return get_accelerator()
      ->create_op_builder("GDSBuilder")
      ->load_as<GDS>()
      ->gds_handle(1 << 20, 32, false, false, parallelism);
}
std::vector<float> counted(float first = 0) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(first + static_cast<float>(i));
  return values;
}
Tensor on_device(const std::vector<float>& values) {
  return Tensor::from_host(values.data(), {static_cast<int64_t>(values.size())}, DType::F32)
      .to(get_accelerator()->device(0));
}
std::string files_text() {
  auto& accelerator = dynamic_cast<DriverAccelerator&>(*get_accelerator());
  const auto* table =
      static_cast<const abi::Calls<aa_files_table>*>(accelerator.extension(AA_FILES_EXTENSION, AA_FILES_VERSION));
  auto info = abi::sized<aa_files_info>();
  ok(table->info(accelerator.device_handle(), &info));
  return info.text;
}
// The message of the error that a call ends with.
template <class Exception, class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Exception& error) {
    return error.what();
  }
  ADD_FAILURE() << "no such error";
  return {};
}

// No rule was broken, and of cuFile nothing is left. The accelerator itself stays open until the process ends.
const Simulated& clean(const Simulated& run) {
  EXPECT_TRUE(run.report.is_object()) << run.output;
  if (!run.report.is_object()) return run;
  EXPECT_TRUE(run.report["violations"].empty()) << run.report["violations"].dump(1) << run.output;
  EXPECT_EQ(run.report["leaks"].dump().find("cuFile"), std::string::npos) << run.report["leaks"].dump(1);
  return run;
}

class CuFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = simulator_missing(); !missing.empty()) GTEST_SKIP() << missing;
    const int fd = ::open(file_.c_str(), O_RDWR | O_CREAT | O_DIRECT, 0600);
    if (fd < 0)
      GTEST_SKIP() << folder_.path() << " is on a file system without O_DIRECT, which cuFile needs; set TMPDIR";
    ::close(fd);
  }

  // With direct transfers between disks and GPUs, as a machine has them where NVMe disks reach the GPUs themselves.
  static Settings direct(Settings more = {}) {
    more.emplace_back("DS_ACCELERATOR", "cuda");
    more.emplace_back("CUFILE_USE_PCIP2PDMA", "true");
    return more;
  }
  void round_trip(GdsHandle& handle, const std::string& file, float first = 0) const {
    const std::vector<float> values = counted(first);
    const Tensor from = on_device(values), to = on_device(std::vector<float>(count, -1));
    handle.sync_pwrite(from, file, 4100);
    handle.async_pread(to, file, 4100);
    EXPECT_EQ(handle.wait(), 1u);
    EXPECT_EQ(to.to_vector<float>(), values);
  }

  const TemporaryFolder folder_{"cufile"};
  const std::string file_ = folder_.file("values");
};

TEST_F(CuFileTest, TensorsGoToFilesAndBack) {
  for (const int parallelism : {1, 3}) {
    const Simulated run(direct(), [&] {
      GdsHandle handle = gds_handle(parallelism);
      EXPECT_TRUE(handle.is_direct());
      EXPECT_SAYS(files_text(), "cuFile 1.14.0 (");
      round_trip(handle, file_);
      const Tensor pinned = handle.new_pinned_device_tensor(count, on_device({1}));
      pinned.copy_from(on_device(counted(7)));
      handle.write(pinned, file_, true);
      // Registered memory is found by its first address, whatever part of it is asked for.
      handle.sync_pread(pinned.slice(0, 2000, 6000), file_, 8192);
      EXPECT_EQ(pinned.slice(0, 2000, 2001).to_vector<float>(), std::vector<float>{7 + 2048});
      EXPECT_EQ(pinned.slice(0, 6000, 6001).to_vector<float>(), std::vector<float>{7 + 6000});
      Tensor all = handle.new_pinned_device_tensor(count, pinned);
      const int fd = ::open(file_.c_str(), O_RDWR);
      handle.async_pwrite(pinned, fd);
      EXPECT_EQ(handle.wait(), 1u);
      ::close(fd);
      // What was there behind is not touched, and has to be read to its end.
      EXPECT_THROW(handle.read(all.slice(0, 0, count - 1), file_), Error);
      handle.pread(all, file_, true, false);
      EXPECT_EQ(all.to_vector<float>(), pinned.to_vector<float>());
      EXPECT_TRUE(handle.free_pinned_device_tensor(all));
      // Memory of the host goes through the host, and parts of blocks are read too.
      const Tensor host = Tensor::zeros({1000}, DType::F32);
      handle.sync_pread(host, file_);
      EXPECT_EQ(host.to_vector<float>()[999], 7 + 999);
      handle.sync_pread(pinned.slice(0, 0, 500), file_, 4 * 100);
      EXPECT_EQ(pinned.slice(0, 499, 500).to_vector<float>(), std::vector<float>{7 + 599});
    });
    EXPECT_GT(clean(run).calls("cuFileRead"), 2);
    EXPECT_GT(run.calls("cuFileWrite"), 2);
    EXPECT_EQ(run.calls("cuFileBufRegister"), 2);
    EXPECT_EQ(run.calls("cuFileBufDeregister"), 2);
    EXPECT_EQ(run.calls("cuFileHandleRegister"), run.calls("cuFileHandleDeregister"));
  }
}

TEST_F(CuFileTest, BytesAroundAWriteStay) {
  clean(Simulated(direct(), [&] {
    GdsHandle handle = gds_handle();
    const std::vector<float> before(count + 3000, -1);
    handle.sync_pwrite(on_device(before), file_);
    handle.sync_pwrite(on_device(counted()), file_, 4 * 1001);
    const Tensor all = on_device(std::vector<float>(before.size(), 0));
    handle.sync_pread(all, file_);
    std::vector<float> expected = before;
    const std::vector<float> middle = counted();
    std::copy(middle.begin(), middle.end(), expected.begin() + 1001);
    EXPECT_EQ(all.to_vector<float>(), expected);
  }));
}

TEST_F(CuFileTest, TransfersWaitForTheWorkOnTheirMemory) {
  // Every command is delayed; a transfer that does not wait is a race.
  clean(Simulated(direct({{"SIM_SEED", "3"}, {"SIM_DELAY_US", "3000"}}), [&] {
    GdsHandle handle = gds_handle();
    const Tensor tensor = on_device(std::vector<float>(count, 0));
    for (int i = 1; i < 4; ++i) {
      tensor.copy_from(on_device(counted(static_cast<float>(i))));
      handle.async_pwrite(tensor, file_);
      handle.wait();
      tensor.copy_from(Tensor::zeros({count}, DType::F32));
      handle.sync_pread(tensor, file_);
      EXPECT_EQ(tensor.to_vector<float>(), counted(static_cast<float>(i)));
    }
  }));
}

TEST_F(CuFileTest, SeveralThreadsAndHandles) {
  const Simulated run(direct(), [&] {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        GdsHandle handle = gds_handle(2);
        round_trip(handle, file_ + std::to_string(i), static_cast<float>(i));
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  EXPECT_EQ(clean(run).calls("cuFileDriverOpen"), 1);
}

TEST_F(CuFileTest, HandlesThatEndUnpinTheirTensors) {
  const Simulated run(direct(), [&] {
    GdsHandle first = gds_handle(), second = gds_handle();
    const Tensor a = on_device(counted()), b = on_device(counted());
    first.pin_device_tensor(a);
    second.pin_device_tensor(b);
    EXPECT_SAYS(error_of<InvalidArgument>([&] { second.pin_device_tensor(a.slice(0, 10, 20)); }), "registered");
    first.async_pwrite(a, file_);
    { const GdsHandle ended = std::move(first); }  // its transfer ends, then its pins do
    first = std::move(second);
    EXPECT_TRUE(first.is_pinned_device_tensor(b));
    first.async_pread(b, file_);
    EXPECT_TRUE(first.unpin_device_tensor(b));  // when the transfer is done
    first.wait();
    EXPECT_EQ(b.to_vector<float>(), counted());
  });
  EXPECT_EQ(clean(run).calls("cuFileBufDeregister"), 2);
}

TEST_F(CuFileTest, WithoutDirectTransfersFilesGoThroughTheHost) {
  const auto by_host = [&](const char* reason) {
    return [this, reason] {
      GdsHandle handle = gds_handle();
      EXPECT_FALSE(handle.is_direct());
      EXPECT_SAYS(files_text(), reason);
      const Tensor pinned = handle.new_pinned_device_tensor(10, on_device({1}));
      round_trip(handle, file_);
    };
  };
  for (const auto& [settings, reason] : std::vector<std::pair<Settings, const char*>>{
           {{{"CUFILE_FORCE_COMPAT_MODE", "true"}}, "has only its compatibility mode here"},
           {{{"SIM_FAULT", "hide:cuFileWrite"}}, "lacks cuFileWrite"},
           {{{"SIM_FAULT", "fail:cuFileDriverOpen,call=1"}}, "cuFileDriverOpen gave cuFile error 5030"},
           {{{"SIM_FAULT", "fail:cuFileDriverGetProperties,call=1"}},
            "cuFileDriverGetProperties gave cuFile error 5030"}}) {
    const Simulated run(direct(settings), by_host(reason));
    EXPECT_LE(clean(run).calls("cuFileHandleRegister"), 0);
  }
  if (access("/proc/driver/nvidia-fs/version", F_OK) == 0) return;
  const Simulated run({{"DS_ACCELERATOR", "cuda"}}, by_host("the kernel module nvidia-fs is not loaded"));
  EXPECT_LE(clean(run).calls("cuFileDriverOpen"), 0);
}

TEST_F(CuFileTest, EveryFailingFunctionHasOneError) {
  const auto with = [&](const char* function, const std::function<void(GdsHandle&)>& body) {
    Simulated(direct({{"SIM_FAULT", std::string("fail:") + function + ",call=1"}}), [&] {
      GdsHandle handle = gds_handle();
      EXPECT_TRUE(handle.is_direct());
      body(handle);
      round_trip(handle, file_);
    });
  };
  with("cuFileGetVersion", [](GdsHandle&) { EXPECT_SAYS(files_text(), "cuFile ("); });
  with("cuFileHandleRegister", [&](GdsHandle& handle) { round_trip(handle, file_); });
  with("cuFileBufRegister", [](GdsHandle& handle) {
    const Tensor tensor = on_device(counted());
    EXPECT_SAYS(error_of<OutOfMemoryError>([&] { handle.pin_device_tensor(tensor); }),
                "CU_FILE_GPU_MEMORY_PINNING_FAILED (5036)");
    EXPECT_FALSE(handle.is_pinned_device_tensor(tensor));
    EXPECT_TRUE(handle.pin_device_tensor(tensor));
  });
  with("cuFileBufDeregister", [](GdsHandle& handle) {
    const Tensor tensor = on_device(counted());
    handle.pin_device_tensor(tensor);
    EXPECT_SAYS(error_of<Error>([&] { handle.unpin_device_tensor(tensor); }),
                "cuFileBufDeregister gave cuFile error 5030");
  });
  for (const bool async : {false, true}) {
    with("cuFileWrite", [&](GdsHandle& handle) {
      const Tensor tensor = on_device(counted());
      const std::string text = error_of<Error>([&] {
        handle.pwrite(tensor, file_, false, async);
        handle.wait();
      });
      EXPECT_SAYS(text, "writing " + std::to_string(4 * count / 4096 * 4096) + " bytes at offset 0 of " + file_);
      EXPECT_SAYS(text, "cuFileWrite gave cuFile error 5030");
    });
    with("cuFileRead", [&](GdsHandle& handle) {
      const Tensor tensor = on_device(counted());
      handle.sync_pwrite(tensor, file_);
      EXPECT_SAYS(error_of<Error>([&] {
                    handle.pread(tensor, file_, false, async);
                    handle.wait();
                  }),
                  "cuFileRead gave cuFile error 5030");
    });
  }
}

TEST_F(CuFileTest, ErrorsOfTheSystemAreReportedAsForTheHost) {
  Simulated(direct(), [&] {
    const auto files = ops::aio::DeviceFiles::of(*get_accelerator());
    const Tensor tensor = on_device(std::vector<float>(2048, 1));
    get_accelerator()->synchronize();
    auto* const memory = static_cast<char*>(tensor.data());
    const int fd = ::open(file_.c_str(), O_RDONLY | O_DIRECT);
    const auto file = files->open(0, fd, "the file");
    const ops::aio::Failure failure = file->transfer(true, "the file", memory, 0, 4096);
    EXPECT_EQ(failure.error, EBADF);
    EXPECT_SAYS(failure.message, "writing 4096 bytes at offset 0 of the file failed: Bad file descriptor (errno 9)");
    const ops::aio::Failure ended = file->transfer(false, "the file", memory, 0, 8192);
    EXPECT_EQ(ended.code, AA_OUT_OF_RANGE);
    EXPECT_SAYS(ended.message, "the file ended at 0");
    // A folder is no file of cuFile's.
    const int folder = ::open(folder_.path().c_str(), O_RDONLY);
    EXPECT_EQ(files->open(0, folder, "a folder"), nullptr);
    ::close(folder);
    GdsHandle handle = gds_handle();
    EXPECT_THROW(handle.sync_pread(tensor, file_), Error);
    EXPECT_THROW(handle.sync_pread(tensor, folder_.file("missing")), Error);
    EXPECT_THROW(handle.sync_pwrite(tensor, folder_.file("no/such/folder")), Error);
  });
}

}  // namespace
}  // namespace anyaccel
