// Tests of flatten, unflatten and byte views.
#include "anyaccel/ops/utils.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <string>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"

namespace anyaccel::ops {
namespace {

class UtilsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { setenv("DS_ACCELERATOR", "cpu", 0); }
  Utils utils{*get_accelerator()};
};

Tensor counting(const Shape& shape, float first, DType dtype = DType::F32) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  std::iota(values.begin(), values.end(), first);
  return Tensor::from_host(values.data(), shape, DType::F32).to(dtype);
}

template <class F>
std::string message_of(F&& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST_F(UtilsTest, FlattenJoinsInOrder) {
  const std::vector<Tensor> list{counting({2, 3}, 0), counting({}, 6), counting({0, 4}, 0),
                                 counting({2, 2}, 7).transpose(0, 1)};
  const Tensor flat = utils.flatten(list);
  EXPECT_EQ(flat.shape(), Shape{11});
  EXPECT_EQ(flat.to_vector<float>(), (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 9, 8, 10}));
  flat.fill(0);
  EXPECT_EQ(list[0].select(0, 0).to_vector<float>(), (std::vector<float>{0, 1, 2}));  // a copy
  const Tensor single = utils.flatten(std::vector<Tensor>{counting({3}, 1)});
  EXPECT_EQ(single.to_vector<float>(), (std::vector<float>{1, 2, 3}));
}

TEST_F(UtilsTest, FlattenOnTheAccelerator) {
  const Device device = get_accelerator()->device();
  const Tensor flat = utils.flatten(
      std::vector<Tensor>{counting({2, 2}, 0, DType::BF16).to(device), counting({3}, 4, DType::BF16).to(device)});
  EXPECT_EQ(flat.device(), device);
  EXPECT_EQ(flat.dtype(), DType::BF16);
  EXPECT_EQ(flat.to_vector<float>(), (std::vector<float>{0, 1, 2, 3, 4, 5, 6}));
}

TEST_F(UtilsTest, FlattenRefusesAMixture) {
  const std::string text = message_of([&] {
    utils.flatten(std::vector<Tensor>{counting({2}, 0), counting({2}, 0), counting({2, 1}, 0, DType::F16)});
  });
  EXPECT_NE(text.find("tensor 0 (float32 [2] on cpu) and tensor 2 (float16 [2, 1] on cpu)"), std::string::npos) << text;
  message_of([&] { utils.flatten(std::vector<Tensor>{}); });
  message_of([&] { utils.flatten(std::vector<Tensor>{Tensor()}); });
}

TEST_F(UtilsTest, UnflattenGivesViews) {
  const Tensor flat = counting({11}, 0);
  const std::vector<Tensor> parts = utils.unflatten(flat, std::vector<Shape>{{2, 3}, {}, {0}, {4, 1}});
  ASSERT_EQ(parts.size(), 4u);
  EXPECT_EQ(parts[0].shape(), (Shape{2, 3}));
  EXPECT_EQ(parts[1].item<float>(), 6);
  EXPECT_EQ(parts[2].numel(), 0);
  EXPECT_EQ(parts[3].to_vector<float>(), (std::vector<float>{7, 8, 9, 10}));
  parts[3].fill(-1);
  EXPECT_EQ(flat.select(0, 10).item<float>(), -1);
  const std::vector<Tensor> likes{Tensor::empty({5}, DType::F32), Tensor::empty({2, 3}, DType::F32)};
  EXPECT_EQ(utils.unflatten(flat, likes)[1].select(0, 0).select(0, 0).item<float>(), 5);
  const std::vector<Tensor> list = utils.unflatten(utils.flatten(likes), likes);
  EXPECT_EQ(list[1].shape(), (Shape{2, 3}));

  const std::string text = message_of([&] { utils.unflatten(flat, std::vector<Shape>{{2, 3}}); });
  EXPECT_NE(text.find("6 elements together, the flat tensor 11"), std::string::npos) << text;
  message_of([&] { utils.unflatten(flat.view({11, 1}), std::vector<Shape>{{11}}); });
  message_of([&] { utils.unflatten(flat.slice(0, 0, 11, 2), std::vector<Shape>{{6}}); });
  message_of([&] { utils.unflatten(Tensor(), std::vector<Shape>{}); });
  message_of([&] { utils.unflatten(flat, std::vector<Tensor>{Tensor::empty({11}, DType::F64)}); });
}

TEST_F(UtilsTest, BytesShareMemoryAndKeepIt) {
  Tensor tensor = counting({4, 3}, 0).slice(0, 1, 3);
  const Tensor bytes = utils.cast_to_byte_tensor(tensor);
  EXPECT_EQ(bytes.dtype(), DType::U8);
  EXPECT_EQ(bytes.shape(), Shape{24});
  EXPECT_EQ(bytes.data(), tensor.data());
  tensor = Tensor();
  EXPECT_EQ(*reinterpret_cast<const float*>(bytes.data()), 3.0f);
  const Tensor small = Tensor::zeros({2, 2}, DType::I8);
  EXPECT_EQ(utils.cast_to_byte_tensor(small).shape(), (Shape{2, 2}));
  EXPECT_EQ(utils.cast_to_byte_tensor(small).dtype(), DType::I8);
  const std::vector<Tensor> several =
      utils.cast_to_byte_tensor(std::vector<Tensor>{small, counting({2}, 0, DType::F64)});
  EXPECT_EQ(several[1].numel(), 16);
  message_of([&] { utils.cast_to_byte_tensor(counting({2, 3}, 0).transpose(0, 1)); });
  message_of([&] { utils.cast_to_byte_tensor(Tensor()); });
  auto loaded = get_accelerator()->create_op_builder("UtilsBuilder")->load_as<Utils>();
  EXPECT_EQ(loaded->flatten(std::vector<Tensor>{small}).numel(), 4);
}

}  // namespace
}  // namespace anyaccel::ops
