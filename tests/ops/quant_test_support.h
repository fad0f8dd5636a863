// Helpers that the tests of the two quantizers share: tensors of test numbers, plain conversions, and runs on every
// instruction set of the machine with several numbers of threads.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "accelerators/cpu/worker_pool.h"
#include "anyaccel/detection.h"
#include "anyaccel/error.h"
#include "anyaccel/generator.h"
#include "anyaccel/op_builder.h"
#include "anyaccel/philox.h"
#include "anyaccel/tensor.h"
#include "base/simd/cpu_features.h"
#include "nearly_normal.h"
#include "ops/device_under_test.h"

namespace anyaccel::testing {

inline constexpr float infinity = std::numeric_limits<float>::infinity();
inline constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

// The accelerator whose ops are tested (device_under_test.h), and a tensor that lies there.
inline Accelerator& tested_accelerator() {
  // Nothing may be computed on the host in its place.
  static const bool strict = device_under_test() && setenv("ANYACCEL_FALLBACK", "error", 1) == 0;
  return strict ? *device_under_test() : *get_accelerator();
}
inline Tensor there(const Tensor& tensor) {
  return device_under_test() ? tensor.to(device_under_test()->device()) : tensor;
}

// body() with the ops compiled for each instruction set.
inline void on_every_isa(const std::function<void()>& body) {
  if (device_under_test()) return body();
  const cpu::Isa before = cpu::isa();
  for (cpu::Isa isa : {cpu::Isa::Baseline, cpu::Isa::Avx2, cpu::Isa::Avx512}) {
    if (!cpu::is_isa_available(isa)) continue;
    SCOPED_TRACE(std::string(cpu::isa_name(isa)));
    cpu::set_isa(isa);
    body();
  }
  cpu::set_isa(before);
}

// Numbers of the CPU's threads to test with.
inline std::vector<int> thread_counts() { return device_under_test() ? std::vector{1} : std::vector{1, 2, 5}; }

class ThreadCount {
 public:
  explicit ThreadCount(int count) : before_(cpu::WorkerPool::instance().size()) {
    cpu::WorkerPool::instance().set_size(count);
  }
  ~ThreadCount() { cpu::WorkerPool::instance().set_size(before_); }

 private:
  int before_;
};

// Denormals count as zero.
inline float flushed(float x) { return std::fabs(x) < FLT_MIN ? std::copysign(0.0f, x) : x; }

// The number that element type `dtype` keeps of x.
inline float kept(float x, DType dtype) {
  if (dtype == DType::F16) return fp16_to_float(float_to_fp16(x));
  if (dtype == DType::BF16) return bf16_to_float(float_to_bf16(x));
  return x;
}

inline std::vector<float> random_numbers(int64_t count, uint64_t seed, float deviation = 1) {
  std::mt19937_64 engine(seed);
  std::vector<float> numbers(static_cast<size_t>(count));
  for (float& x : numbers) x = deviation * static_cast<float>(nearly_normal(engine));
  return numbers;
}

inline Tensor make_tensor(const std::vector<float>& numbers, const Shape& shape, DType dtype = DType::F32) {
  return there(Tensor::from_host(numbers.data(), shape, DType::F32).to(dtype));
}

// Same bits, all NaNs being alike.
inline bool same_float(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

inline void expect_same(const std::vector<float>& found, const std::vector<float>& expected, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_TRUE(same_float(found[i], expected[i]))
        << what << "[" << i << "] is " << found[i] << ", not " << expected[i];
  }
}

// The bytes of a tensor.
inline std::vector<uint8_t> bytes_of(const Tensor& tensor) {
  const Tensor dense = tensor.to(Device{}).contiguous();
  const auto* data = static_cast<const uint8_t*>(dense.data());
  return {data, data + dense.nbytes()};
}

// The number in [0, 1) for element i of a call.
inline float unit_of(const RngState& state, int64_t i) {
  const auto index = static_cast<uint64_t>(i);
  return philox_unit(philox_words(state.seed, state.offset + index / 4)[index % 4]);
}

// Expects an InvalidArgument whose text holds `words`.
inline void expect_refused(const std::function<void()>& call, const std::string& words) {
  try {
    call();
    ADD_FAILURE() << "no error; expected one about " << words;
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

}  // namespace anyaccel::testing
