// Tests of DLPack in both directions: contents, layouts, what is refused, and who deletes what when.
#include "anyaccel/dlpack.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"

namespace anyaccel::dlpack {
namespace {

class DLPack : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { setenv("DS_ACCELERATOR", "cpu", 0); }
};

Tensor counting(const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  std::iota(values.begin(), values.end(), 0.0f);
  return Tensor::from_host(values.data(), shape, DType::F32);
}

// Memory of another framework; counts calls of its deleter.
struct Foreign {
  Foreign() {
    std::iota(data.begin(), data.end(), 0.0f);
    managed.version = {1, 1};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensorVersioned* self) { ++static_cast<Foreign*>(self->manager_ctx)->deleted; };
    managed.flags = 0;
    managed.dl_tensor = {data.data(), {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, nullptr, 0};
    legacy.dl_tensor = managed.dl_tensor;
    legacy.manager_ctx = this;
    legacy.deleter = [](DLManagedTensor* self) { ++static_cast<Foreign*>(self->manager_ctx)->deleted; };
  }
  std::vector<float> data = std::vector<float>(24);
  int64_t shape[2] = {4, 6};
  int64_t strides[2] = {1, 4};
  int deleted = 0;
  DLManagedTensorVersioned managed{};
  DLManagedTensor legacy{};
};

TEST_F(DLPack, ExportDescribesTheTensor) {
  const Tensor t = counting({4, 6}).slice(0, 1, 3).transpose(0, 1);
  DLManagedTensorVersioned* out = to_dlpack(t);
  EXPECT_EQ(out->version.major, 1u);
  EXPECT_EQ(out->flags, 0u);
  const DLTensor& d = out->dl_tensor;
  EXPECT_EQ(d.ndim, 2);
  EXPECT_EQ(d.shape[0], 6);
  EXPECT_EQ(d.shape[1], 2);
  EXPECT_EQ(d.strides[0], 1);
  EXPECT_EQ(d.strides[1], 6);
  EXPECT_EQ(d.dtype.code, kDLFloat);
  EXPECT_EQ(d.dtype.bits, 32);
  EXPECT_EQ(d.dtype.lanes, 1);
  EXPECT_EQ(d.device.device_type, kDLCPU);
  EXPECT_EQ(static_cast<float*>(d.data)[d.byte_offset / 4], 6.0f);
  out->deleter(out);
}

TEST_F(DLPack, ExportKeepsTheMemoryUntilItIsDeleted) {
  auto owner = std::make_shared<std::vector<float>>(6, 2.0f);
  std::weak_ptr<std::vector<float>> watch = owner;
  Tensor t = Tensor::from_blob(owner->data(), {6}, DType::F32, owner);
  owner.reset();
  DLManagedTensorVersioned* versioned = to_dlpack(t);
  DLManagedTensor* legacy = to_dlpack_legacy(t);
  t = {};
  versioned->deleter(versioned);
  EXPECT_FALSE(watch.expired());
  EXPECT_EQ(static_cast<float*>(legacy->dl_tensor.data)[5], 2.0f);
  legacy->deleter(legacy);
  EXPECT_TRUE(watch.expired());
}

TEST_F(DLPack, EveryDtypeGoesRound) {
  for (int32_t i = AA_DTYPE_BOOL; i <= AA_DTYPE_F8_E5M2; ++i) {
    const Tensor t = Tensor::zeros({2, 3}, static_cast<DType>(i));
    const Tensor back = from_dlpack(to_dlpack(t));
    EXPECT_EQ(back.dtype(), t.dtype());
    EXPECT_EQ(back.shape(), t.shape());
    EXPECT_EQ(back.data(), t.data()) << "no copy";
  }
  DLManagedTensorVersioned* b = to_dlpack(Tensor::zeros({1}, DType::BF16));
  EXPECT_EQ(b->dl_tensor.dtype.code, 4);
  b->deleter(b);
  b = to_dlpack(Tensor::zeros({1}, DType::Bool));
  EXPECT_EQ(b->dl_tensor.dtype.code, 6);
  EXPECT_EQ(b->dl_tensor.dtype.bits, 8);
  b->deleter(b);
}

TEST_F(DLPack, AScalarAndAnEmptyTensorGoRound) {
  EXPECT_EQ(from_dlpack(to_dlpack(counting({1}).select(0, 0))).ndim(), 0);
  EXPECT_EQ(from_dlpack(to_dlpack_legacy(Tensor::empty({0, 3}, DType::F32))).shape(), (Shape{0, 3}));
}

TEST_F(DLPack, AcceleratorMemoryIsExportedWithItsType) {
  Accelerator* accelerator = get_accelerator();
  const Tensor t = Tensor::zeros({4}, DType::F32, accelerator->device());
  DLManagedTensorVersioned* out = to_dlpack(t);
  EXPECT_EQ(out->dl_tensor.device.device_type, accelerator->device_properties(0).dlpack_device_type);
  EXPECT_EQ(out->dl_tensor.data, t.data());
  out->deleter(out);
}

TEST_F(DLPack, ImportDeletesOnceWithTheLastTensor) {
  Foreign f;
  Tensor t = from_dlpack(&f.managed);
  EXPECT_EQ(t.shape(), (Shape{4, 6}));
  EXPECT_TRUE(t.is_contiguous());
  EXPECT_EQ(t.data(), f.data.data());
  Tensor row = t.select(0, 3);
  t = {};
  EXPECT_EQ(f.deleted, 0);
  EXPECT_EQ(row.to_vector<float>()[5], 23.0f);
  row = {};
  EXPECT_EQ(f.deleted, 1);
}

TEST_F(DLPack, LegacyImportDeletesOnceToo) {
  Foreign f;
  { const Tensor t = from_dlpack(&f.legacy); }
  EXPECT_EQ(f.deleted, 1);
}

TEST_F(DLPack, ADeleterMayBeMissing) {
  Foreign f;
  f.managed.deleter = nullptr;
  from_dlpack(&f.managed);
  EXPECT_EQ(f.deleted, 0);
}

TEST_F(DLPack, ImportHonoursStridesAndOffsets) {
  Foreign f;
  f.managed.dl_tensor.strides = f.strides;
  EXPECT_EQ(from_dlpack(&f.managed).select(0, 1).to_vector<float>(), (std::vector<float>{1, 5, 9, 13, 17, 21}));
  f.shape[0] = 2;
  f.managed.dl_tensor.strides = nullptr;
  f.managed.dl_tensor.byte_offset = 6 * sizeof(float);
  EXPECT_EQ(from_dlpack(&f.managed).to_vector<float>()[0], 6.0f);
  // Backward from the last row.
  f.strides[0] = -6;
  f.strides[1] = 1;
  f.managed.dl_tensor.strides = f.strides;
  f.managed.dl_tensor.byte_offset = 18 * sizeof(float);
  EXPECT_EQ(from_dlpack(&f.managed).select(0, 1).to_vector<float>()[0], 12.0f);
}

TEST_F(DLPack, PinnedHostMemoryIsAHostTensor) {
  Foreign f;
  f.managed.dl_tensor.device = {kDLCUDAHost, 0};
  const Tensor t = from_dlpack(&f.managed);
  EXPECT_TRUE(t.device().is_host());
  EXPECT_TRUE(t.storage()->pinned());
}

TEST_F(DLPack, WhatIsRefusedStaysWithTheCaller) {
  Foreign f;
  const auto refused = [&f](auto change) {
    const auto before = f.managed;
    change(f.managed);
    EXPECT_THROW(from_dlpack(&f.managed), InvalidArgument);
    f.managed = before;
    EXPECT_EQ(f.deleted, 0);
  };
  refused([](auto& m) { m.version.major = 2; });
  refused([](auto& m) { m.flags = kFlagReadOnly; });
  refused([](auto& m) { m.dl_tensor.dtype.lanes = 4; });
  refused([](auto& m) { m.dl_tensor.dtype = {kDLComplex, 64, 1}; });
  refused([](auto& m) { m.dl_tensor.dtype = {kDLUInt, 32, 1}; });
  refused([](auto& m) { m.dl_tensor.device = {kDLVulkan, 0}; });
  refused([](auto& m) { m.dl_tensor.ndim = AA_MAX_DIMS + 1; });
  refused([](auto& m) { m.dl_tensor.ndim = -1; });
  refused([](auto& m) { m.dl_tensor.data = nullptr; });
  refused([](auto& m) { m.dl_tensor.shape = nullptr; });
  refused([](auto& m) { m.dl_tensor.byte_offset = 1; });
  refused([&f](auto& m) {
    static int64_t strides[2] = {INT64_MAX / 2, INT64_MAX / 2};
    m.dl_tensor.strides = strides;
    EXPECT_EQ(f.deleted, 0);
  });
  EXPECT_THROW(from_dlpack(static_cast<DLManagedTensor*>(nullptr)), InvalidArgument);
  EXPECT_THROW(from_dlpack(static_cast<DLManagedTensorVersioned*>(nullptr)), InvalidArgument);
  EXPECT_THROW(to_dlpack(Tensor()), InvalidArgument);
}

TEST_F(DLPack, ReadOnlyNeedsAPromise) {
  Foreign f;
  f.managed.flags = kFlagReadOnly;
  { const Tensor t = from_dlpack(&f.managed, ImportOptions{.allow_read_only = true}); }
  EXPECT_EQ(f.deleted, 1);
}

}  // namespace
}  // namespace anyaccel::dlpack
