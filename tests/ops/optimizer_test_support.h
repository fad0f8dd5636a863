// Helpers that the tests of the optimizers share: arrays between guards, and the arithmetic of
// kernels/host/optimizers.h in plain scalar float code.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "accelerators/cpu/worker_pool.h"
#include "anyaccel/accelerator.h"
#include "anyaccel/detection.h"
#include "anyaccel/driver_accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/op_builder.h"
#include "base/simd/cpu_features.h"

namespace anyaccel::ops::testing {

template <class Body>
void for_each_isa(const Body& body) {
  const cpu::Isa before = cpu::isa();
  for (const cpu::Isa candidate : {cpu::Isa::Baseline, cpu::Isa::Avx2, cpu::Isa::Avx512}) {
    if (!cpu::is_isa_available(candidate)) continue;
    SCOPED_TRACE(std::string(cpu::isa_name(candidate)));
    cpu::set_isa(candidate);
    body();
  }
  cpu::set_isa(before);
}

// The null accelerator, saying that its memory is out of the host's reach.
class FarAccelerator final : public DriverAccelerator {
 public:
  using DriverAccelerator::DriverAccelerator;
  bool is_host_coherent() const override { return false; }
};

inline Accelerator& cpu_accelerator() {
  static const auto cpu = make_accelerator("cpu");
  return *cpu;
}
inline Accelerator& far_accelerator() {
  static const auto null = make_accelerator("null");
  static FarAccelerator far(&dynamic_cast<DriverAccelerator&>(*null).driver());
  return far;
}

// Changes the number of threads for a scope.
class Threads {
 public:
  explicit Threads(int count) : before_(cpu::WorkerPool::instance().size()) {
    cpu::WorkerPool::instance().set_size(count);
  }
  ~Threads() { cpu::WorkerPool::instance().set_size(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

// Denormals count as zero in its scope, as in the ops.
class Flush {
 public:
  Flush() : before_(cpu::flush_denormals()) {}
  ~Flush() { cpu::restore_denormals(before_); }
  Flush(const Flush&) = delete;
  Flush& operator=(const Flush&) = delete;

 private:
  uint32_t before_;
};

// The value as the dtype holds it.
inline float rounded(DType dtype, float x) {
  if (dtype == DType::BF16) return bf16_to_float(float_to_bf16(x));
  if (dtype == DType::F16) return fp16_to_float(float_to_fp16(x));
  return x;
}

inline void write(const Tensor& tensor, const std::vector<float>& values) {
  const Tensor source =
      Tensor::from_host(values.data(), Shape{static_cast<int64_t>(values.size())}, DType::F32).view(tensor.shape());
  tensor.copy_from(source.to(tensor.dtype()));
}

// An array on the host that begins `lead` elements after an aligned address, with guards around it.
class Array {
 public:
  static constexpr int64_t guard = 64;

  Array(DType dtype, const std::vector<float>& values, int64_t lead = 3)
      : whole_(Tensor::empty({static_cast<int64_t>(values.size()) + lead + guard}, dtype)),
        part_(whole_.slice(0, lead, lead + static_cast<int64_t>(values.size()))),
        lead_(lead) {
    whole_.fill(77);
    write(part_, values);
  }

  const Tensor& tensor() const { return part_; }
  std::vector<float> values() const { return part_.to_vector<float>(); }
  bool guards_hold() const {
    const std::vector<float> all = whole_.to_vector<float>();
    for (size_t i = 0; i < all.size(); ++i) {
      const bool inside = i >= static_cast<size_t>(lead_) && i < static_cast<size_t>(lead_ + part_.numel());
      if (!inside && all[i] != 77) return false;
    }
    return true;
  }

 private:
  Tensor whole_;
  Tensor part_;
  int64_t lead_;
};

inline std::vector<float> random_values(std::mt19937& engine, int64_t n, DType dtype, float deviation,
                                        bool positive = false) {
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) {
    value = normal(engine);
    value = rounded(dtype, positive ? value * value : value);
  }
  return values;
}

// Bits, so that -0 and NaN count.
inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}
inline std::string first_difference(const std::vector<float>& a, const std::vector<float>& b) {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0) {
      return "element " + std::to_string(i) + " of " + std::to_string(a.size()) + ": " + std::to_string(a[i]) +
             " and " + std::to_string(b[i]);
    }
  }
  return "sizes " + std::to_string(a.size()) + " and " + std::to_string(b.size());
}
#define EXPECT_SAME_BITS(a, b) EXPECT_TRUE(same_bits(a, b)) << first_difference(a, b)

template <class Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no InvalidArgument";
}
#define EXPECT_ERROR(action, part) \
  EXPECT_NE(error_of([&] { action; }).find(part), std::string::npos) << error_of([&] { action; })

struct Pair {
  DType param, state;
};
inline constexpr Pair dtype_pairs[] = {{DType::F32, DType::F32},
                                       {DType::F16, DType::F32},
                                       {DType::F16, DType::F16},
                                       {DType::BF16, DType::F32},
                                       {DType::BF16, DType::BF16}};

inline std::vector<DType> gradient_dtypes(DType param) {
  if (param == DType::F32) return {DType::F32, DType::BF16, DType::F16};
  return {param, DType::F32};
}

// -- the arithmetic, one rounded operation after the other --

struct AdamReference {
  double lr = 1e-2, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01;
  bool adamw = true, bias_correction = true;
  int64_t step = 1;
  float scale = 1;

  void apply(DType param, DType state, std::vector<float>& p, const std::vector<float>& g, std::vector<float>& m,
             std::vector<float>& v) const {
    const Flush flush;
    const auto power = [&](double beta) {
      return static_cast<double>(std::pow(static_cast<long double>(beta), static_cast<long double>(step)));
    };
    const auto step_size = static_cast<float>(bias_correction ? -lr / (1 - power(beta1)) : -lr);
    const auto correction = static_cast<float>(bias_correction ? 1 / std::sqrt(1 - power(beta2)) : 1);
    const auto b1 = static_cast<float>(beta1), c1 = static_cast<float>(1 - beta1);
    const auto b2 = static_cast<float>(beta2), c2 = static_cast<float>(1 - beta2);
    const auto decay = static_cast<float>(-lr * weight_decay), l2 = static_cast<float>(weight_decay);
    for (size_t i = 0; i < p.size(); ++i) {
      float grad = g[i] * scale;
      if (!adamw) grad = grad + l2 * p[i];
      const float first = b1 * m[i] + c1 * grad;
      const float second = b2 * v[i] + c2 * (grad * grad);
      float x = p[i];
      if (adamw) x = x + decay * x;
      x = x + step_size * (first / (std::sqrt(second) * correction + static_cast<float>(eps)));
      p[i] = rounded(param, x);
      m[i] = rounded(state, first);
      v[i] = rounded(state, second);
    }
  }
};

struct AdagradReference {
  double lr = 1e-2, eps = 1e-8, weight_decay = 0.01;

  void apply(DType param, DType state, std::vector<float>& p, const std::vector<float>& g,
             std::vector<float>& v) const {
    const Flush flush;
    for (size_t i = 0; i < p.size(); ++i) {
      const float grad = g[i] + static_cast<float>(weight_decay) * p[i];
      const float sum = v[i] + grad * grad;
      v[i] = rounded(state, sum);
      p[i] = rounded(param, p[i] + static_cast<float>(-lr) * (grad / (std::sqrt(sum) + static_cast<float>(eps))));
    }
  }
};

struct LionReference {
  double lr = 1e-2, beta1 = 0.9, beta2 = 0.99, weight_decay = 0.1;

  void apply(DType param, DType state, std::vector<float>& p, const std::vector<float>& g,
             std::vector<float>& m) const {
    const Flush flush;
    const auto b1 = static_cast<float>(beta1), c1 = static_cast<float>(1 - beta1);
    const auto b2 = static_cast<float>(beta2), c2 = static_cast<float>(1 - beta2);
    const auto keep = static_cast<float>(1 - lr * weight_decay), rate = static_cast<float>(lr);
    for (size_t i = 0; i < p.size(); ++i) {
      const float mixed = b1 * m[i] + c1 * g[i];
      const float change = mixed > 0 ? -rate : mixed < 0 ? rate : mixed;
      p[i] = rounded(param, p[i] * keep + change);
      m[i] = rounded(state, b2 * m[i] + c2 * g[i]);
    }
  }
};

// Returns the trust coefficient.
struct LambReference {
  double lr = 1e-2, beta1 = 0.9, beta2 = 0.999, eps = 1e-6, weight_decay = 0.01, max_coeff = 10, min_coeff = 0.01;
  bool eps_inside = false, bias_correction = true;
  int64_t step = 1;
  float scale = 1;

  double apply(DType param, DType state, std::vector<float>& p, const std::vector<float>& g, std::vector<float>& m,
               std::vector<float>& v) const {
    const Flush flush;
    const auto correction = [&](double beta) {
      if (!bias_correction) return 1.0f;
      return static_cast<float>(1 - std::pow(static_cast<long double>(beta), static_cast<long double>(step)));
    };
    const float b1 = static_cast<float>(beta1), c1 = static_cast<float>(1 - beta1);
    const float b2 = static_cast<float>(beta2), c2 = static_cast<float>(1 - beta2);
    const float corrected1 = correction(beta1), corrected2 = correction(beta2), e = static_cast<float>(eps);
    std::vector<float> u(p.size());
    double params = 0, updates = 0;
    for (size_t i = 0; i < p.size(); ++i) {
      const float grad = g[i] * scale;
      m[i] = rounded(state, b1 * m[i] + c1 * grad);
      v[i] = rounded(state, b2 * v[i] + c2 * (grad * grad));
      const float corrected = v[i] / corrected2;
      const float denominator = eps_inside ? std::sqrt(corrected + e) : std::sqrt(corrected) + e;
      u[i] = m[i] / corrected1 / denominator + static_cast<float>(weight_decay) * p[i];
      params += static_cast<double>(p[i]) * p[i];
      updates += static_cast<double>(u[i]) * u[i];
    }
    double coefficient = 1;
    if (params != 0 && updates != 0) {
      coefficient = std::min(std::max(std::sqrt(params) / std::sqrt(updates), min_coeff), max_coeff);
    }
    const float rate = static_cast<float>(lr) * static_cast<float>(coefficient);
    for (size_t i = 0; i < p.size(); ++i) p[i] = rounded(param, p[i] - rate * u[i]);
    return coefficient;
  }
};

}  // namespace anyaccel::ops::testing
