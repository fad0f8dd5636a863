// The kernels of reductions against element-by-element arithmetic: every dtype, operation and instruction set, odd lengths,
// special values, targets that are sources.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "anyaccel/error.h"
#include "base/scalar_convert.h"
#include "base/simd/cpu_features.h"
#include "comm/shared_memory/reduction.h"

namespace anyaccel::comm {
namespace {

constexpr DType kDTypes[] = {DType::Bool, DType::U8,   DType::I8,  DType::I16, DType::I32,    DType::I64,
                             DType::F16,  DType::BF16, DType::F32, DType::F64, DType::F8E4M3, DType::F8E5M2};
constexpr ReduceOp kOps[] = {ReduceOp::Sum, ReduceOp::Product, ReduceOp::Min,   ReduceOp::Max,
                             ReduceOp::Avg, ReduceOp::BitAnd,  ReduceOp::BitOr, ReduceOp::BitXor};

bool exists(DType dtype, ReduceOp op) {
  const bool bits = op == ReduceOp::BitAnd || op == ReduceOp::BitOr || op == ReduceOp::BitXor;
  return !(bits && is_floating(dtype)) && !(dtype == DType::Bool && op == ReduceOp::Avg);
}

std::vector<cpu::Isa> instruction_sets() {
  std::vector<cpu::Isa> result;
  for (const cpu::Isa isa : {cpu::Isa::Baseline, cpu::Isa::Avx2, cpu::Isa::Avx512}) {
    if (cpu::is_isa_available(isa)) result.push_back(isa);
  }
  return result;
}

using Bytes = std::vector<unsigned char>;

// Floats of moderate size with a few special values; integers of any bits.
Bytes random_elements(DType dtype, int64_t count, std::mt19937& random) {
  const size_t item = dtype_size(dtype);
  Bytes bytes(static_cast<size_t>(count) * item);
  const double special[] = {0.0,
                            -0.0,
                            std::numeric_limits<double>::infinity(),
                            -std::numeric_limits<double>::infinity(),
                            std::numeric_limits<double>::quiet_NaN(),
                            1e-7,
                            448.0};
  std::uniform_real_distribution<double> number(-4.0, 4.0);
  for (int64_t i = 0; i < count; ++i) {
    unsigned char* at = bytes.data() + static_cast<size_t>(i) * item;
    if (dtype == DType::Bool) {
      *at = random() % 2;
    } else if (is_floating(dtype)) {
      store_number(at, dtype, random() % 9 == 0 ? special[random() % std::size(special)] : number(random));
    } else {
      const uint64_t bits = random() | (static_cast<uint64_t>(random()) << 32);
      std::memcpy(at, &bits, item);
    }
  }
  return bytes;
}

template <class T>
T combined(T a, T b, ReduceOp op) {
  if constexpr (std::is_floating_point_v<T>) {
    if ((op == ReduceOp::Min || op == ReduceOp::Max) && (std::isnan(a) || std::isnan(b))) return std::isnan(b) ? b : a;
  }
  switch (op) {
    case ReduceOp::Sum:
    case ReduceOp::Avg: return a + b;
    case ReduceOp::Product: return a * b;
    case ReduceOp::Min: return b < a ? b : a;
    case ReduceOp::Max: return b > a ? b : a;
    default: return a;
  }
}

// One element of the result, by the definition in the header.
void expected_element(unsigned char* out, const std::vector<Bytes>& sources, size_t at, DType dtype, ReduceOp op) {
  const size_t item = dtype_size(dtype);
  const auto element = [&](size_t s) { return sources[s].data() + at * item; };
  const int members = static_cast<int>(sources.size());
  if (dtype == DType::F64) {
    double sum = load_bits<double>(element(0));
    for (size_t s = 1; s < sources.size(); ++s) sum = combined(sum, load_bits<double>(element(s)), op);
    store_bits(out, op == ReduceOp::Avg ? sum / members : sum);
    return;
  }
  if (is_floating(dtype)) {
    auto sum = static_cast<float>(load_floating(element(0), dtype));
    for (size_t s = 1; s < sources.size(); ++s) {
      sum = combined(sum, static_cast<float>(load_floating(element(s), dtype)), op);
    }
    if (op == ReduceOp::Avg) sum /= static_cast<float>(members);
    store_number(out, dtype, sum);
    return;
  }
  // Integers: in 64 bits without a sign, which wrap as narrower ones do.
  int64_t result = load_integer(element(0), dtype);
  for (size_t s = 1; s < sources.size(); ++s) {
    const int64_t next = load_integer(element(s), dtype);
    const auto a = static_cast<uint64_t>(result), b = static_cast<uint64_t>(next);
    switch (op) {
      case ReduceOp::Sum:
      case ReduceOp::Avg: result = static_cast<int64_t>(a + b); break;
      case ReduceOp::Product: result = static_cast<int64_t>(a * b); break;
      case ReduceOp::BitAnd: result = static_cast<int64_t>(a & b); break;
      case ReduceOp::BitOr: result = static_cast<int64_t>(a | b); break;
      case ReduceOp::BitXor: result = static_cast<int64_t>(a ^ b); break;
      default: result = combined(result, next, op);
    }
    if (dtype == DType::Bool) result = result != 0;
    unsigned char narrow[8];
    std::memcpy(narrow, &result, sizeof(narrow));
    result = load_integer(narrow, dtype);
  }
  if (op == ReduceOp::Avg) result /= members;
  std::memcpy(out, &result, item);
}

bool equal(const unsigned char* a, const unsigned char* b, DType dtype) {
  if (std::memcmp(a, b, dtype_size(dtype)) == 0) return true;
  return is_floating(dtype) && std::isnan(load_floating(a, dtype)) && std::isnan(load_floating(b, dtype));
}

TEST(Reduction, EveryDtypeOperationAndInstructionSet) {
  std::mt19937 random(1);
  for (const cpu::Isa isa : instruction_sets()) {
    cpu::set_isa(isa);
    for (const DType dtype : kDTypes) {
      for (const ReduceOp op : kOps) {
        if (!exists(dtype, op)) continue;
        for (const int members : {1, 2, 3, 7}) {
          for (const int64_t count : {1, 2, 7, 16, 63, 64, 65, 300, 1031}) {
            std::vector<Bytes> sources;
            std::vector<const void*> pointers;
            for (int s = 0; s < members; ++s) sources.push_back(random_elements(dtype, count, random));
            for (const Bytes& source : sources) pointers.push_back(source.data());
            Bytes expected(sources[0].size());
            const size_t item = dtype_size(dtype);
            for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
              expected_element(expected.data() + i * item, sources, i, dtype, op);
            }
            Bytes other(expected.size() + 1, 0xab);
            // The last source is a target, too.
            void* const targets[] = {other.data(), sources.back().data()};
            reduce_to_all(targets, 2, pointers.data(), members, count, dtype, op);
            EXPECT_EQ(other.back(), 0xab);
            for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
              ASSERT_TRUE(equal(expected.data() + i * item, other.data() + i * item, dtype))
                  << dtype_name(dtype) << ' ' << static_cast<int>(op) << ", element " << i << " of " << count
                  << ", members " << members << ", " << cpu::isa_name(isa);
            }
            ASSERT_EQ(std::memcmp(other.data(), sources.back().data(), expected.size()), 0);
          }
        }
      }
    }
  }
}

TEST(Reduction, SixteenBitFloatsAreRoundedOnce) {
  // 1 + 2^-9 + 2^-9: each addend alone is lost in bf16, both together are not.
  const uint16_t one = float_to_bf16(1.0f), small = float_to_bf16(0x1p-9f);
  const void* sources[] = {&one, &small, &small};
  uint16_t result = 0;
  reduce(&result, sources, 3, 1, DType::BF16, ReduceOp::Sum);
  EXPECT_EQ(bf16_to_float(result), 1.0f);  // 1 + 2^-8 is a tie, which goes to even
  const void* more[] = {&one, &small, &small, &small};
  reduce(&result, more, 4, 1, DType::BF16, ReduceOp::Sum);
  EXPECT_EQ(bf16_to_float(result), 1.0f + 0x1p-7f);
}

TEST(Reduction, SomeDoNotExist) {
  EXPECT_FALSE(reduction_exists(DType::F32, ReduceOp::BitAnd));
  EXPECT_FALSE(reduction_exists(DType::BF16, ReduceOp::BitXor));
  EXPECT_FALSE(reduction_exists(DType::Bool, ReduceOp::Avg));
  EXPECT_FALSE(reduction_exists(DType::None, ReduceOp::Sum));
  EXPECT_TRUE(reduction_exists(DType::Bool, ReduceOp::BitXor));
  EXPECT_TRUE(reduction_exists(DType::F8E4M3, ReduceOp::Sum));
}

TEST(Reduction, AveragesBytesOfMoreRanksThanAByteCounts) {
  const uint8_t one = 1;
  const int8_t minus = -1;
  const std::vector<const void*> ones(256, &one), minuses(128, &minus);
  uint8_t result = 9;
  reduce(&result, ones.data(), 256, 1, DType::U8, ReduceOp::Avg);
  EXPECT_EQ(result, 0);  // the sum wraps
  int8_t signed_result = 9;
  reduce(&signed_result, minuses.data(), 128, 1, DType::I8, ReduceOp::Avg);
  EXPECT_EQ(signed_result, -1);
}

}  // namespace
}  // namespace anyaccel::comm
