// The op "copy" of the CPU: conversion between all dtypes, and layouts.
#include <limits>

#include "ops/op_test_support.h"

namespace anyaccel::cpu::testing {
namespace {

constexpr DType kAll[] = {DType::Bool, DType::U8,   DType::I8,  DType::I16, DType::I32,    DType::I64,
                          DType::F16,  DType::BF16, DType::F32, DType::F64, DType::F8E4M3, DType::F8E5M2};

double any_value(Random& random) {
  switch (random.integer(0, 5)) {
    case 0: return static_cast<double>(random.integer(-300, 300));
    case 1: return random.normal(1e-6);
    case 2: return random.normal(1e20);
    case 3: return random.pick({0.0, -0.0, 1e-310, 1e-41, 6e-8, 65519.9, 65520.0, 3.4e38, std::nan("")});
    case 4: return random.pick({std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()});
    default: return random.normal(3);
  }
}

OpCase make_case(TestTensor out, TestTensor x) {
  OpCase c;
  c.op = "copy";
  c.tensors.push_back(std::move(out));
  c.tensors.push_back(std::move(x));
  return c;
}

TEST(CpuCopy, AllPairsOfDtypes) {
  for_each_seed([](Random& random) {
    for (DType from : kAll) {
      for (DType to : kAll) {
        const Shape shape = {random.integer(1, 3), random.integer(1, 70)};
        OpCase c = make_case(TestTensor::random_layout(random, to, shape, false),
                             TestTensor::random_layout(random, from, shape, true));
        for (int64_t i = 0; i < c.tensors[1].count(); ++i) {
          if (from == DType::I64) {
            c.tensors[1].set(i,
                             random.integer(std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()));
          } else {
            c.tensors[1].set(i, any_value(random));
          }
        }
        compare(c, {0, 0, 0});
      }
    }
  });
}

TEST(CpuCopy, Layouts) {
  for_each_seed([](Random& random) {
    for (int i = 0; i < 60; ++i) {
      Shape shape;
      for (int64_t d = random.integer(0, 6); d > 0; --d) shape.push_back(random.integer(i % 10 ? 1 : 0, 6));
      const DType from = random.float_dtype(), to = random.chance(0.5) ? from : random.float_dtype();
      OpCase c = make_case(TestTensor::random_layout(random, to, shape, false),
                           TestTensor::random_layout(random, from, shape, true).fill_normal(random));
      compare(c, {0, 0, 0});
    }
  });
}

TEST(CpuCopy, LargeAndOnThreads) {
  for_each_seed([](Random& random) {
    WorkerPool& pool = WorkerPool::instance();
    const int before = pool.size();
    pool.set_size(3);
    for (DType to : {DType::F32, DType::BF16, DType::F64}) {
      // Some subnormal numbers: worker threads flush them, copies must not.
      OpCase c = make_case(TestTensor::random_layout(random, to, {130, 401}, false),
                           TestTensor::random_layout(random, DType::F32, {130, 401}, true));
      c.tensors[1].fill([&](int64_t i) { return i % 3 ? random.normal() : 1e-40 * random.normal(); });
      compare(c, {0, 0, 0});
    }
    pool.set_size(before);
  });
}

double convert(double value, DType from, DType to) {
  TestTensor x(from, {1}), out(to, {1});
  x.set(0, value);
  OpCase c = make_case(out, x);
  run(c, true);
  return c.tensors[0].number(0);
}

// The definition of the op, written independently of the code under test.
TEST(CpuCopy, Rules) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(convert(2.9, DType::F32, DType::I32), 2);
  EXPECT_EQ(convert(-2.9, DType::F32, DType::I32), -2);
  EXPECT_EQ(convert(1e30, DType::F32, DType::I32), 2147483647);
  EXPECT_EQ(convert(-infinity, DType::F32, DType::I16), -32768);
  EXPECT_EQ(convert(-5, DType::F32, DType::U8), 0);
  EXPECT_EQ(convert(300, DType::BF16, DType::U8), 255);
  EXPECT_EQ(convert(std::nan(""), DType::F64, DType::I64), 0);
  EXPECT_EQ(convert(std::nan(""), DType::F32, DType::Bool), 1);
  EXPECT_EQ(convert(-0.0, DType::F32, DType::Bool), 0);
  EXPECT_EQ(convert(0.25, DType::F16, DType::Bool), 1);
  EXPECT_EQ(convert(256, DType::I32, DType::Bool), 1);
  EXPECT_EQ(convert(257, DType::I32, DType::U8), 1);
  EXPECT_EQ(convert(200, DType::I32, DType::I8), -56);
  EXPECT_EQ(convert(1.00390625, DType::F32, DType::BF16), 1);                  // halfway: to even
  EXPECT_EQ(convert(1.01171875, DType::F32, DType::BF16), 1.015625);           // halfway: to even
  EXPECT_EQ(convert(1.00390625 + 1e-12, DType::F64, DType::BF16), 1.0078125);  // rounded once, not by way of F32
  EXPECT_EQ(convert(65519, DType::F32, DType::F16), 65504);
  EXPECT_EQ(convert(65520, DType::F32, DType::F16), infinity);
  EXPECT_EQ(convert(448, DType::F32, DType::F8E4M3), 448);
  EXPECT_EQ(convert(463, DType::F32, DType::F8E4M3), 448);
  EXPECT_TRUE(std::isnan(convert(465, DType::F32, DType::F8E4M3)));
  EXPECT_EQ(convert(0x1p-9, DType::F32, DType::F8E4M3), 0x1p-9);
  EXPECT_EQ(convert(0x1p-11, DType::F32, DType::F8E4M3), 0);
  EXPECT_EQ(convert(57344, DType::F32, DType::F8E5M2), 57344);
  EXPECT_EQ(convert(61440, DType::F32, DType::F8E5M2), infinity);
  EXPECT_EQ(convert(0x1p-16, DType::F32, DType::F8E5M2), 0x1p-16);
}

TEST(CpuCopy, EightBitFloatsKeepTheirValues) {
  for (DType dtype : {DType::F8E4M3, DType::F8E5M2}) {
    TestTensor x(dtype, {256});
    for (int64_t i = 0; i < 256; ++i) *static_cast<uint8_t*>(x.at(i)) = static_cast<uint8_t>(i);
    OpCase there = make_case(TestTensor(DType::F32, {256}), x);
    run(there, true);
    OpCase back = make_case(TestTensor(dtype, {256}), there.tensors[0]);
    run(back, true);
    for (int64_t i = 0; i < 256; ++i) {
      if (std::isnan(x.number(i))) {
        EXPECT_TRUE(std::isnan(back.tensors[0].number(i)));
      } else {
        EXPECT_EQ(*static_cast<uint8_t*>(back.tensors[0].at(i)), i);
      }
    }
  }
}

}  // namespace
}  // namespace anyaccel::cpu::testing
