// ops::GDS: files read into device memory and written from it, and its pinned tensors.
#include "anyaccel/ops/gds.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/files/files.h"
#include "ops/quant_test_support.h"

namespace anyaccel {
namespace {

using namespace testing;
using ops::GDS;
using ops::GdsHandle;

GdsHandle gds_handle(int parallelism = 1) {
  static const auto library = tested_accelerator().create_op_builder("GDSBuilder")->load_as<GDS>();
  return library->gds_handle(1 << 20, 32, false, false, parallelism);
}

std::vector<float> counted(int64_t count, float first = 0) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(first + static_cast<float>(i));
  return values;
}
Tensor on_device(const std::vector<float>& values) {
  return Tensor::from_host(values.data(), {static_cast<int64_t>(values.size())}, DType::F32)
      .to(tested_accelerator().device(0));
}

TEST(GdsTest, TensorsGoToFilesAndBack) {
  const TemporaryFolder folder("gds");
  for (const int parallelism : {1, 3}) {
    GdsHandle handle = gds_handle(parallelism);
    EXPECT_EQ(handle.get_intra_op_parallelism(), parallelism);
    EXPECT_FALSE(handle.get_overlap_events());
    const std::string file = folder.file("values");
    const std::vector<float> values = counted(100003);
    const Tensor from = handle.new_pinned_device_tensor(100003, on_device({1}));
    from.copy_from(on_device(values));
    EXPECT_TRUE(handle.is_pinned_device_tensor(from.slice(0, 10, 20)));
    handle.sync_pwrite(from, file);
    Tensor to = handle.new_pinned_device_tensor(100003, from);
    handle.async_pread(to, file);
    EXPECT_EQ(handle.wait(), 1u);
    EXPECT_EQ(to.to_vector<float>(), values);
    // A view, and an offset that is no multiple of anything.
    handle.sync_pread(to.slice(0, 0, 1000), file, 4 * 777);
    EXPECT_EQ(to.slice(0, 0, 1000).to_vector<float>(), counted(1000, 777));
    EXPECT_EQ(to.slice(0, 1000, 2000).to_vector<float>(), counted(1000, 1000));
    // Memory of the host, and a tensor that is not pinned.
    const Tensor host = Tensor::zeros({1000}, DType::F32), loose = on_device(counted(1000));
    handle.read(to, file, true);
    handle.sync_pread(host, file);
    handle.sync_pread(loose, file, 4 * 1000);
    EXPECT_EQ(host.to_vector<float>(), counted(1000));
    EXPECT_EQ(loose.to_vector<float>(), counted(1000, 1000));
    EXPECT_TRUE(handle.free_pinned_device_tensor(to));
    EXPECT_FALSE(to);
  }
}

TEST(GdsTest, FilesThatAreTooShortOrNotThere) {
  const TemporaryFolder folder("gds");
  GdsHandle handle = gds_handle();
  const std::string file = folder.file("short");
  std::ofstream(file) << "0123456789";
  const Tensor to = handle.new_pinned_device_tensor(100, on_device({1}));
  EXPECT_THROW(handle.sync_pread(to, file), Error);
  handle.async_pread(to, file);
  EXPECT_THROW(handle.wait(), Error);
  EXPECT_THROW(handle.sync_pread(to, folder.file("missing")), Error);
  EXPECT_THROW(handle.sync_pread(to, file, -1), InvalidArgument);
  EXPECT_THROW(handle.sync_pwrite(to, folder.file("no/such/folder")), Error);
}

TEST(GdsTest, Pinning) {
  GdsHandle handle = gds_handle();
  const Tensor a = on_device(counted(100)), b = on_device(counted(100));
  EXPECT_FALSE(handle.is_pinned_device_tensor(a));
  EXPECT_TRUE(handle.pin_device_tensor(a));
  EXPECT_TRUE(handle.is_pinned_device_tensor(a));
  EXPECT_FALSE(handle.is_pinned_device_tensor(b));
  expect_refused([&] { handle.pin_device_tensor(a); }, "is pinned already");
  expect_refused([&] { handle.pin_device_tensor(a.slice(0, 50, 60)); }, "is pinned already");
  expect_refused([&] { handle.unpin_device_tensor(b); }, "is not pinned by this handle");
  expect_refused([&] { handle.unpin_device_tensor(a.slice(0, 0, 50)); }, "is not pinned by this handle");
  expect_refused([&] { handle.pin_device_tensor({}); }, "is absent");
  expect_refused([&] { handle.pin_device_tensor(b.slice(0, 0, 100, 2)); }, "is not contiguous");
  expect_refused([&] { handle.pin_device_tensor(b.slice(0, 0, 0)); }, "has no elements");
  expect_refused([&] { handle.new_pinned_device_tensor(-1, b); }, "num_elem is -1");
  expect_refused([&] { handle.new_pinned_device_tensor(1, {}); }, "the example is absent");
  if (!tested_accelerator().is_host_coherent()) {
    expect_refused([&] { handle.pin_device_tensor(Tensor::zeros({4}, DType::F32)); }, "expected one on accelerator");
  }
  EXPECT_TRUE(handle.unpin_device_tensor(a));
  EXPECT_TRUE(handle.pin_device_tensor(a));
  GdsHandle other = std::move(handle);
  EXPECT_TRUE(other.is_pinned_device_tensor(a));
  Tensor freed = a;
  EXPECT_TRUE(other.free_pinned_device_tensor(freed));
  EXPECT_FALSE(other.is_pinned_device_tensor(a));
  Tensor loose = b;
  expect_refused([&] { other.free_pinned_device_tensor(loose); }, "is not pinned");
}

}  // namespace
}  // namespace anyaccel
