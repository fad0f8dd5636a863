// Tests of shapes, tensors, views and copies: on the host, and on the CPU accelerator through the same interface that
// every accelerator has.
#include "anyaccel/tensor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"

namespace anyaccel {
namespace {

using Floats = std::vector<float>;

Tensor counting(const Shape& shape, DType dtype = DType::F32, Device device = {}) {
  Floats values(static_cast<size_t>(shape.numel()));
  std::iota(values.begin(), values.end(), 0.0f);
  return Tensor::from_host(values.data(), shape, DType::F32).to(dtype).to(device);
}

TEST(Shape, KnowsItsSize) {
  EXPECT_EQ((Shape{2, 3, 4}).numel(), 24);
  EXPECT_EQ(Shape{}.numel(), 1);
  EXPECT_EQ((Shape{2, 0, 4}).numel(), 0);
  EXPECT_EQ((Shape{2, 3}).to_string(), "[2, 3]");
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
}

TEST(Shape, RefusesWhatCannotBe) {
  EXPECT_THROW((Shape{2, -1}), InvalidArgument);
  EXPECT_THROW((Shape{1, 1, 1, 1, 1, 1, 1}), InvalidArgument);
  EXPECT_THROW((Shape{int64_t{1} << 40, int64_t{1} << 40}), InvalidArgument);
  EXPECT_THROW((Shape{0, int64_t{1} << 40, int64_t{1} << 40}), InvalidArgument);
}

TEST(Tensor, AnEmptyHandleIsHarmless) {
  const Tensor t;
  EXPECT_FALSE(t);
  EXPECT_EQ(t.dtype(), DType::None);
  EXPECT_EQ(t.data(), nullptr);
  EXPECT_EQ(t.nbytes(), 0u);
  EXPECT_EQ(t.view_for_driver().dtype, AA_DTYPE_NONE);
  EXPECT_EQ(t.view_for_driver().data, nullptr);
  EXPECT_THROW(t.clone(), InvalidArgument);
  EXPECT_THROW(t.reshape({1}), InvalidArgument);
  EXPECT_THROW(t.copy_from(t), InvalidArgument);
  EXPECT_THROW(t.to_vector<float>(), InvalidArgument);
  EXPECT_THROW(t.data_as<float>(), InvalidArgument);
}

TEST(Tensor, HostMemoryIsAligned) {
  for (int64_t n : {0, 1, 7, 1000}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(Tensor::empty({n}, DType::U8).data()) % 64, 0u);
  }
}

TEST(Tensor, ConstructionIsChecked) {
  const auto storage = Tensor::empty({10}, DType::F32).storage();
  const int64_t stride[] = {1};
  const int64_t backward[] = {-1};
  EXPECT_NO_THROW(Tensor(storage, DType::F32, {10}, stride));
  EXPECT_NO_THROW(Tensor(storage, DType::F32, {10}, backward, 9));
  EXPECT_THROW(Tensor(storage, DType::F32, {10}, backward, 8), InvalidArgument);
  EXPECT_THROW(Tensor(storage, DType::F32, {10}, stride, 1), InvalidArgument);
  EXPECT_THROW(Tensor(storage, DType::F32, {11}, stride), InvalidArgument);
  EXPECT_THROW(Tensor(storage, DType::F32, {10}, stride, -1), InvalidArgument);
  EXPECT_THROW(Tensor(storage, DType::F32, {2, 5}, stride), InvalidArgument);
  EXPECT_THROW(Tensor(storage, DType::None, {1}, stride), InvalidArgument);
  EXPECT_THROW(Tensor(nullptr, DType::F32, {1}, stride), InvalidArgument);
  const int64_t huge[] = {INT64_MAX / 2};
  EXPECT_THROW(Tensor(storage, DType::F32, {10}, huge), InvalidArgument);
}

TEST(Tensor, FromBlobKeepsItsOwner) {
  auto owner = std::make_shared<Floats>(Floats{1, 2, 3, 4});
  std::weak_ptr<Floats> watch = owner;
  Tensor t = Tensor::from_blob(owner->data(), {2, 2}, DType::F32, owner);
  owner.reset();
  const Tensor row = t.select(0, 1);
  t = {};
  EXPECT_FALSE(watch.expired());
  EXPECT_EQ(row.to_vector<float>(), (Floats{3, 4}));
}

TEST(Tensor, DataIsCheckedByElementSize) {
  const Tensor t = counting({4});
  EXPECT_EQ(t.data_as<float>()[3], 3.0f);
  EXPECT_THROW(t.data_as<double>(), InvalidArgument);
}

TEST(TensorViews, ShareMemory) {
  const Tensor t = counting({2, 3});
  const Tensor v = t.transpose(0, 1);
  EXPECT_EQ(v.storage(), t.storage());
  EXPECT_EQ(v.shape(), (Shape{3, 2}));
  EXPECT_FALSE(v.is_contiguous());
  EXPECT_EQ(v.to_vector<float>(), (Floats{0, 3, 1, 4, 2, 5}));
  v.select(0, 2).fill(9);
  EXPECT_EQ(t.to_vector<float>(), (Floats{0, 1, 9, 3, 4, 9}));
}

TEST(TensorViews, Slices) {
  const Tensor t = counting({10});
  EXPECT_EQ(t.slice(0, 2, 9, 3).to_vector<float>(), (Floats{2, 5, 8}));
  EXPECT_EQ(t.slice(-1, -3, 10).to_vector<float>(), (Floats{7, 8, 9}));
  EXPECT_EQ(t.slice(0, 4, 4).numel(), 0);
  EXPECT_EQ(t.slice(0, 10, 10).numel(), 0);
  const Tensor none = Tensor::empty({3, 0}, DType::F32);  // any part of it is a view, though it has no memory to lie in
  EXPECT_EQ(none.slice(0, 1, 3).shape(), (Shape{2, 0}));
  EXPECT_EQ(none.select(0, 2).shape(), (Shape{0}));
  EXPECT_THROW(t.slice(0, 0, 11), InvalidArgument);
  EXPECT_THROW(t.slice(0, 5, 4), InvalidArgument);
  EXPECT_THROW(t.slice(0, 0, 4, 0), InvalidArgument);
  EXPECT_THROW(t.slice(1, 0, 1), InvalidArgument);
  EXPECT_EQ(t.slice(0, 3, 4, INT64_MAX).to_vector<float>(), (Floats{3}));
}

TEST(TensorViews, ReshapesWithAndWithoutCopies) {
  const Tensor t = counting({2, 3, 4});
  EXPECT_EQ(t.view({6, -1}).shape(), (Shape{6, 4}));
  EXPECT_EQ(t.view({24}).storage(), t.storage());
  EXPECT_EQ(t.reshape({4, 6}).select(0, 1).to_vector<float>(), (Floats{6, 7, 8, 9, 10, 11}));
  EXPECT_THROW(t.view({5, -1}), InvalidArgument);
  EXPECT_THROW(t.view({-1, -1}), InvalidArgument);
  EXPECT_THROW(t.view({25}), InvalidArgument);
  EXPECT_THROW(t.reshape({-2, -12}), InvalidArgument);

  const Tensor swapped = t.transpose(0, 1);  // [3, 2, 4]
  EXPECT_THROW(swapped.view({6, 4}), InvalidArgument);
  const Tensor copied = swapped.reshape({6, 4});
  EXPECT_NE(copied.storage(), t.storage());
  EXPECT_EQ(copied.select(0, 1).to_vector<float>(), (Floats{12, 13, 14, 15}));
  // The last dimension alone can still be cut without a copy.
  EXPECT_EQ(swapped.view({3, 2, 2, 2}).storage(), t.storage());

  const Tensor scalar = counting({1}).view({});
  EXPECT_EQ(scalar.ndim(), 0);
  EXPECT_EQ(scalar.view({1, 1}).shape(), (Shape{1, 1}));
  EXPECT_EQ(Tensor::empty({0, 4}, DType::F32).view({2, 0}).numel(), 0);
}

TEST(TensorViews, PermuteExpandSqueeze) {
  const Tensor t = counting({2, 3});
  EXPECT_EQ(t.permute({1, 0}).to_vector<float>(), t.transpose(0, 1).to_vector<float>());
  EXPECT_THROW(t.permute({0, 0}), InvalidArgument);
  EXPECT_THROW(t.permute({0}), InvalidArgument);
  EXPECT_THROW(t.permute({0, 1, 0}), InvalidArgument);
  const Tensor row = counting({3});
  EXPECT_EQ(row.expand({2, 3}).to_vector<float>(), (Floats{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(row.unsqueeze(-1).expand({3, 2}).to_vector<float>(), (Floats{0, 0, 1, 1, 2, 2}));
  EXPECT_THROW(row.expand({2}), InvalidArgument);
  EXPECT_THROW(t.expand({3}), InvalidArgument);
  EXPECT_EQ(t.unsqueeze(0).shape(), (Shape{1, 2, 3}));
  EXPECT_EQ(t.unsqueeze(2).shape(), (Shape{2, 3, 1}));
  EXPECT_TRUE(t.unsqueeze(1).is_contiguous());
  EXPECT_EQ(t.unsqueeze(1).squeeze(1).shape(), t.shape());
  EXPECT_THROW(t.squeeze(0), InvalidArgument);
  EXPECT_THROW(Tensor::empty({1, 1, 1, 1, 1, 1}, DType::F32).unsqueeze(0), InvalidArgument);
  EXPECT_EQ(t.size(-1), 3);
  EXPECT_EQ(t.stride(-2), 3);
  EXPECT_THROW(t.size(2), InvalidArgument);
}

TEST(TensorCopies, ConvertByTheRulesOfTheCopyOp) {
  const Floats values{1.9f, -1.9f, 300.0f, -300.0f, std::numeric_limits<float>::quiet_NaN(), 1e30f, -1e30f, 0.0f};
  const Tensor t = Tensor::from_host(values.data(), {8}, DType::F32);
  EXPECT_EQ(t.to(DType::I32).to_vector<int32_t>(),
            (std::vector<int32_t>{1, -1, 300, -300, 0, INT32_MAX, INT32_MIN, 0}));
  EXPECT_EQ(t.to(DType::U8).to_vector<uint8_t>(), (std::vector<uint8_t>{1, 0, 255, 0, 0, 255, 0, 0}));
  EXPECT_EQ(t.to(DType::Bool).to_vector<uint8_t>(), (std::vector<uint8_t>{1, 1, 1, 1, 1, 1, 1, 0}));
  const std::vector<int64_t> wide{257, -1, int64_t{1} << 40};
  EXPECT_EQ(Tensor::from_host(wide.data(), {3}, DType::I64).to(DType::U8).to_vector<uint8_t>(),
            (std::vector<uint8_t>{1, 255, 0}));
}

TEST(TensorCopies, BitsOfHalfPrecision) {
  const Tensor t = counting({3}).to(DType::BF16);
  EXPECT_EQ(t.to_vector<uint16_t>(), (std::vector<uint16_t>{0x0000, 0x3f80, 0x4000}));
  EXPECT_THROW(counting({3}).to_vector<uint16_t>(), InvalidArgument);
  EXPECT_EQ(counting({3}, DType::F16).to_vector<uint16_t>(), (std::vector<uint16_t>{0x0000, 0x3c00, 0x4000}));
}

TEST(TensorCopies, ItemNeedsOneElement) {
  EXPECT_EQ(counting({5}).select(0, 3).item<int64_t>(), 3);
  EXPECT_THROW(counting({5}).item<float>(), InvalidArgument);
}

TEST(TensorCopies, ShapesMustBeEqual) {
  EXPECT_THROW(counting({3}).copy_from(counting({4})), InvalidArgument);
  EXPECT_THROW(counting({3}).copy_from(counting({1})), InvalidArgument);
  EXPECT_THROW(counting({3}).expand({2, 3}).copy_from(counting({2, 3})), InvalidArgument);
}

TEST(TensorCopies, FromMemoryThatIsSharedIsRefused) {
  const Tensor t = counting({2, 6, 4});
  const auto shares = [](const Tensor& to, const Tensor& from) {
    try {
      to.copy_from(from);
      return false;
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find("source.clone()"), std::string::npos) << error.what();
      return true;
    }
  };
  EXPECT_TRUE(shares(t.slice(1, 0, 5), t.slice(1, 1, 6)));
  EXPECT_TRUE(shares(t.slice(2, 1, 4), t.slice(2, 0, 3)));
  EXPECT_TRUE(shares(t.slice(2, 0, 4, 2), t.slice(2, 0, 2)));
  EXPECT_TRUE(shares(t.slice(1, 0, 4), t.slice(1, 0, 4).transpose(1, 2)));
  EXPECT_TRUE(shares(t.select(0, 0), t.select(0, 0).select(0, 5).expand({6, 4})));
  EXPECT_EQ(t.to_vector<float>(), counting({2, 6, 4}).to_vector<float>()) << "something was copied";

  // The rule of the ABI for outputs and inputs: a driver need not read an element before it writes its place.
  EXPECT_TRUE(shares(Tensor(t.storage(), DType::I32, t.shape(), t.strides(), t.storage_offset()), t));

  EXPECT_FALSE(shares(t, t));
  const Tensor row = t.slice(1, 2, 3);
  const int64_t strides[] = {row.stride(0), 77, row.stride(2)};
  EXPECT_FALSE(shares(Tensor(t.storage(), t.dtype(), row.shape(), strides, row.storage_offset()), row))
      << "the stride of a dimension of size 1 says nothing";
  EXPECT_FALSE(shares(t.slice(1, 0, 3), t.slice(1, 3, 6)));
  EXPECT_FALSE(shares(t.slice(2, 0, 2), t.slice(2, 2, 4)));
  EXPECT_FALSE(shares(t.slice(2, 0, 4, 2), t.slice(2, 1, 4, 2)));
  EXPECT_FALSE(shares(t.select(0, 0).slice(0, 0, 4), t.select(0, 1).slice(0, 0, 4).transpose(0, 1)));
  EXPECT_FALSE(shares(t.select(1, 0), t.select(1, 5)));
  EXPECT_FALSE(shares(t.slice(1, 0, 0), t.slice(1, 0, 0)));
}

// Against marking each element, over random views of one storage.
TEST(TensorCopies, WhatIsSharedIsFoundForRandomViews) {
  std::mt19937 random(3);
  const auto pick = [&](int64_t most) { return static_cast<int64_t>(random() % static_cast<uint64_t>(most + 1)); };
  const Tensor all = counting({200});
  int shared = 0;
  for (int i = 0; i < 3000; ++i) {
    const Shape shape{1 + pick(3), 1 + pick(3), 1 + pick(3)};
    const auto view = [&] {
      const int64_t strides[] = {1 + pick(20), 1 + pick(12), 1 + pick(6)};
      return Tensor(all.storage(), all.dtype(), shape, strides, pick(80));
    };
    const Tensor to = view(), from = view();
    std::set<float> elements;
    const Tensor names = counting({200});
    const auto of = [&](const Tensor& t) {
      return Tensor(names.storage(), names.dtype(), shape, t.strides(), t.storage_offset()).to_vector<float>();
    };
    const std::vector<float> written = of(to), read = of(from);
    elements.insert(written.begin(), written.end());
    bool expected = false;
    for (const float x : read) expected = expected || elements.contains(x);
    expected = expected && written != read;  // a copy of a tensor onto itself is none
    shared += expected;
    bool refused = false;
    try {
      to.copy_from(from);
    } catch (const InvalidArgument&) {
      refused = true;
    }
    ASSERT_EQ(refused, expected) << i;
  }
  EXPECT_GT(shared, 300);
  EXPECT_LT(shared, 2700);
}

TEST(TensorCopies, ToTheSamePlaceIsTheSameTensor) {
  const Tensor t = counting({3});
  EXPECT_EQ(t.to(DType::F32).storage(), t.storage());
  EXPECT_EQ(t.to(Device{}).storage(), t.storage());
  EXPECT_EQ(t.contiguous().storage(), t.storage());
  EXPECT_NE(t.clone().storage(), t.storage());
}

// ---- on an accelerator ---------------------------------------------------------------------------------------------

class TensorOnDevice : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { setenv("DS_ACCELERATOR", "cpu", 0); }
  Device device_ = get_accelerator()->device();
};

TEST_F(TensorOnDevice, GoesThereAndBack) {
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16, DType::I64, DType::I32, DType::U8, DType::F64}) {
    const Tensor there = counting({4, 25}, dtype, device_);
    EXPECT_EQ(there.device(), device_);
    EXPECT_EQ(there.to(Device{}).to_vector<float>(), counting({100}).to_vector<float>()) << dtype_name(dtype);
    EXPECT_EQ(there.to_vector<float>(), counting({100}).to_vector<float>()) << dtype_name(dtype);
  }
}

// Every pair of layouts, dtypes and places gives what the host gives.
TEST_F(TensorOnDevice, EveryCopyGivesWhatTheHostGives) {
  const DType dtypes[] = {DType::F32, DType::BF16, DType::I64, DType::U8};
  const auto layouts = [](DType dtype, Device device) {
    return std::vector<Tensor>{
        counting({4, 6}, dtype, device),                                        // contiguous
        counting({6, 4}, dtype, device).transpose(0, 1),                        // transposed
        counting({8, 13}, dtype, device).slice(0, 1, 8, 2).slice(1, 1, 13, 2),  // with gaps
    };
  };
  for (const DType from : dtypes) {
    for (const DType to : dtypes) {
      for (const bool from_device : {false, true}) {
        for (const bool to_device : {false, true}) {
          const auto sources = layouts(from, from_device ? device_ : Device{});
          for (const Tensor& source : sources) {
            const auto expected = source.to(Device{}).contiguous().to_vector<float>();
            for (size_t layout = 0; layout < 3; ++layout) {
              Tensor target = layouts(to, to_device ? device_ : Device{})[layout];
              const Tensor whole(target.storage(), to,
                                 Shape{static_cast<int64_t>(target.storage()->bytes() / dtype_size(to))},
                                 std::vector<int64_t>{1});
              whole.fill(77);
              target.copy_from(source);
              ASSERT_EQ(target.to_vector<float>(), expected)
                  << dtype_name(from) << " to " << dtype_name(to) << ", layout " << layout;
              const auto all = whole.to_vector<float>();
              ASSERT_GE(std::count(all.begin(), all.end(), 77.0f), whole.numel() - 24) << "gaps were written";
            }
          }
        }
      }
    }
  }
}

TEST_F(TensorOnDevice, Fills) {
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16, DType::I64, DType::U8, DType::F64, DType::Bool}) {
    const Tensor t = Tensor::zeros({3, 5}, dtype, device_);
    EXPECT_EQ(t.to_vector<float>(), Floats(15, 0.0f));
    t.fill(1);
    EXPECT_EQ(t.to_vector<float>(), Floats(15, 1.0f)) << dtype_name(dtype);
    t.transpose(0, 1).slice(0, 0, 1).fill(0);
    EXPECT_EQ(t.select(0, 2).to_vector<float>(), (Floats{0, 1, 1, 1, 1})) << dtype_name(dtype);
  }
}

TEST_F(TensorOnDevice, EmptyTensorsAreFine) {
  const Tensor t = Tensor::zeros({0, 3}, DType::F32, device_);
  EXPECT_TRUE(t.to_vector<float>().empty());
  t.fill(1);
  t.copy_from(Tensor::empty({0, 3}, DType::BF16));
  EXPECT_EQ(t.clone().shape(), (Shape{0, 3}));
}

TEST_F(TensorOnDevice, NamesItsDevice) {
  EXPECT_EQ(Device{}.name(), "cpu");
  EXPECT_EQ(device_.name(), get_accelerator()->device_name(device_.index));
}

}  // namespace
}  // namespace anyaccel
