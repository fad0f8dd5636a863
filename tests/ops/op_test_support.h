// Helpers that the tests of the ops share: tensors of random layout that notice stray reads and writes, and the
// comparison of an op's fast version with the CPU's reference: on every instruction set of the machine, or on an
// accelerator (see device_under_test.h).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "accelerators/cpu/ops.h"
#include "accelerators/cpu/worker_pool.h"
#include "anyaccel/dtype.h"
#include "anyaccel/error.h"
#include "base/scalar_convert.h"
#include "base/simd/cpu_features.h"
#include "nearly_normal.h"
#include "ops/device_under_test.h"
#include "ops/dispatch/op_schema.h"

namespace anyaccel::cpu::testing {

using Shape = std::vector<int64_t>;

// Random numbers of a test. ANYACCEL_TEST_SEEDS=N runs every test with N seeds instead of one.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t integer(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(engine_); }
  double normal(double deviation = 1) { return deviation * anyaccel::testing::nearly_normal(engine_); }
  bool chance(double p) { return std::bernoulli_distribution(p)(engine_); }
  template <class T>
  T pick(std::initializer_list<T> values) {
    return values.begin()[integer(0, static_cast<int64_t>(values.size()) - 1)];
  }
  DType float_dtype() { return pick({DType::F32, DType::BF16, DType::F16}); }

 private:
  std::mt19937_64 engine_;
};

inline void for_each_seed(const std::function<void(Random&)>& body) {
  const char* text = std::getenv("ANYACCEL_TEST_SEEDS");
  const int seeds = text ? std::max(1, std::atoi(text)) : 1;
  for (int seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(20240607 + static_cast<uint64_t>(seed));
    body(random);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

inline void for_each_isa(const std::function<void(Isa)>& body) {
  const Isa before = isa();
  if (anyaccel::testing::device_under_test()) {
    body(before);
    return;
  }
  for (Isa candidate : {Isa::Baseline, Isa::Avx2, Isa::Avx512, Isa::Amx}) {
    if (!is_isa_available(candidate)) continue;
    SCOPED_TRACE(std::string(isa_name(candidate)));
    set_isa(candidate);
    body(candidate);
  }
  set_isa(before);
}

// A tensor in a buffer of its own. All bytes that are not elements are 0xff (NaN in every float dtype), before, after
// and between the elements, so that a stray read shows in the result and untouched() finds a stray write.
class TestTensor {
 public:
  // An absent optional tensor.
  TestTensor() = default;

  // Dense, row-major.
  TestTensor(DType dtype, Shape shape) : dtype_(dtype), shape_(std::move(shape)) {
    std::vector<int> order(shape_.size());
    for (size_t d = 0; d < order.size(); ++d) order[d] = static_cast<int>(d);
    build(order, Shape(shape_.size(), 1), {}, {});
  }

  // Row-major, with gaps: `gaps` has a factor of each dimension's stride.
  static TestTensor with_gaps(DType dtype, Shape shape, const Shape& gaps) {
    TestTensor t(dtype, std::move(shape));
    std::vector<int> order(t.shape_.size());
    for (size_t d = 0; d < order.size(); ++d) order[d] = static_cast<int>(d);
    t.build(order, gaps, {}, {});
    return t;
  }

  // Any layout: permuted dimensions, gaps; for inputs (`input`) also broadcast and negative strides.
  static TestTensor random_layout(Random& random, DType dtype, Shape shape, bool input) {
    TestTensor t;
    t.dtype_ = dtype;
    t.shape_ = std::move(shape);
    const size_t n = t.shape_.size();
    std::vector<int> order(n);
    for (size_t d = 0; d < n; ++d) order[d] = static_cast<int>(d);
    Shape gaps(n, 1);
    std::vector<bool> broadcast(n, false), backward(n, false);
    switch (random.integer(0, 4)) {
      case 0:
      case 1: break;  // dense
      case 2:         // sliced: gaps outside the last dimension
        for (size_t d = 0; d < n; ++d) gaps[d] = d + 1 < n ? random.integer(1, 2) : 1;
        break;
      case 3:  // transposed
        for (size_t d = n; d > 1; --d)
          std::swap(order[d - 1], order[static_cast<size_t>(random.integer(0, static_cast<int64_t>(d) - 1))]);
        break;
      default:
        for (size_t d = 0; d < n; ++d) {
          gaps[d] = random.integer(1, 3);
          if (input) {
            broadcast[d] = random.chance(0.2);
            backward[d] = random.chance(0.2);
          }
        }
    }
    t.build(order, gaps, broadcast, backward);
    return t;
  }

  bool present() const { return dtype_ != DType::None; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t count() const {
    int64_t n = 1;
    for (int64_t size : shape_) n *= size;
    return n;
  }

  aa_tensor view() {
    aa_tensor t{};
    if (!present()) return t;
    t.data = bytes_.data() + origin_ * item();
    t.dtype = static_cast<int32_t>(dtype_);
    t.ndim = static_cast<int32_t>(shape_.size());
    for (int d = 0; d < AA_MAX_DIMS; ++d) t.shape[d] = d < t.ndim ? shape_[static_cast<size_t>(d)] : 1;
    for (int d = 0; d < t.ndim; ++d) t.strides[d] = strides_[static_cast<size_t>(d)];
    return t;
  }

  // Returns whether an op may write it: each element has memory of its own.
  bool is_writable() const {
    for (size_t d = 0; d < shape_.size(); ++d) {
      if (shape_[d] > 1 && strides_[d] <= 0) return false;
    }
    return true;
  }

  void* at(int64_t i) { return bytes_.data() + (origin_ + offset(i)) * item(); }
  const void* at(int64_t i) const { return bytes_.data() + (origin_ + offset(i)) * item(); }
  double number(int64_t i) const {
    return is_floating(dtype_) ? load_floating(at(i), dtype_) : static_cast<double>(load_integer(at(i), dtype_));
  }
  int64_t integer(int64_t i) const { return load_integer(at(i), dtype_); }
  template <class Number>
  void set(int64_t i, Number value) {
    store_number(at(i), dtype_, value);
  }

  TestTensor& fill(const std::function<double(int64_t)>& value) {
    for (int64_t i = 0; i < count(); ++i) set(i, value(i));
    return *this;
  }
  TestTensor& fill_normal(Random& random, double deviation = 1) {
    return fill([&](int64_t) { return random.normal(deviation); });
  }

  // Returns true if every byte that is not an element still has its first value.
  bool untouched() const {
    std::vector<bool> used(bytes_.size(), false);
    for (int64_t i = 0; i < count(); ++i) {
      const int64_t first = (origin_ + offset(i)) * item();
      for (int64_t b = 0; b < item(); ++b) used[static_cast<size_t>(first + b)] = true;
    }
    for (size_t b = 0; b < bytes_.size(); ++b) {
      if (!used[b] && bytes_[b] != 0xff) return false;
    }
    return true;
  }

  bool same_bytes(const TestTensor& other) const { return bytes_ == other.bytes_; }

 private:
  static constexpr int64_t kGuard = 96;  // elements before and after

  int64_t item() const { return item_; }

  // Most of the time of tests with many elements would be divisions.
  int64_t offset(int64_t i) const {
    if (dense_) return i;
    int64_t offset = 0;
    for (size_t d = shape_.size(); d-- > 0;) {
      offset += i % shape_[d] * strides_[d];
      i /= shape_[d];
    }
    return offset;
  }

  void build(const std::vector<int>& order, const Shape& gaps, const std::vector<bool>& broadcast,
             const std::vector<bool>& backward) {
    strides_.assign(shape_.size(), 1);
    int64_t step = 1;
    origin_ = kGuard;
    for (size_t i = order.size(); i-- > 0;) {
      const size_t d = static_cast<size_t>(order[i]);
      step *= gaps[d];
      strides_[d] = step;
      if (!broadcast.empty() && broadcast[d]) {
        strides_[d] = 0;
        continue;
      }
      if (!backward.empty() && backward[d] && shape_[d] > 1) {
        strides_[d] = -step;
        origin_ += step * (shape_[d] - 1);
      }
      step *= std::max<int64_t>(shape_[d], 1);
    }
    item_ = static_cast<int64_t>(dtype_size(dtype_));
    dense_ = origin_ == kGuard;
    int64_t inner = 1;
    for (size_t d = shape_.size(); d-- > 0;) {
      dense_ = dense_ && strides_[d] == inner;
      inner *= shape_[d];
    }
    bytes_.assign(static_cast<size_t>((step + 2 * kGuard) * item()), 0xff);
    for (int64_t i = 0; i < count(); ++i) std::memset(at(i), 0, static_cast<size_t>(item()));
  }

  DType dtype_ = DType::None;
  Shape shape_;
  Shape strides_;
  int64_t origin_ = 0;  // element number of element 0 in the buffer
  int64_t item_ = 0;
  bool dense_ = false;  // row-major without gaps
  std::vector<uint8_t> bytes_;
};

// One call: the op, its tensors in order and its params.
struct OpCase {
  std::string op;
  std::vector<TestTensor> tensors;
  std::vector<uint8_t> params;

  template <class Params>
  OpCase& with(Params p) {
    p.struct_size = sizeof(Params);
    params.resize(sizeof(Params));
    std::memcpy(params.data(), &p, sizeof(Params));
    return *this;
  }

  std::string text() const {
    std::string s = op;
    for (const TestTensor& t : tensors) {
      s += " " + std::string(dtype_name(t.dtype())) + "[";
      for (int64_t n : t.shape()) s += std::to_string(n) + ",";
      s += "]";
    }
    return s;
  }
};

inline const OpEntry& entry(const std::string& name) {
  for (const OpEntry& e : op_entries()) {
    if (e.name == name) return e;
  }
  throw std::runtime_error("no op " + name);
}

// Runs a call of the op: its fast version (that of the accelerator under test, if there is one) or the reference.
inline void run_call(const std::string& op, const aa_op_call& call, bool fast) {
  if (DriverAccelerator* device = fast ? anyaccel::testing::device_under_test() : nullptr) {
    anyaccel::testing::run_on_device(*device, op.c_str(), call);
  } else {
    (fast ? entry(op).fast : entry(op).reference)(call);
  }
}

// Runs the entry `op` of the table, which may have no schema, on the case's own tensors; first checks the call against the
// schema of c.op if that is the same. Tensor number `written` is tensor number `over` if they differ.
inline void run_as(const std::string& op, OpCase& c, bool fast, size_t written = 0, size_t over = 0) {
  std::vector<aa_tensor> views;
  for (TestTensor& t : c.tensors) views.push_back(t.view());
  views[written] = views[over];
  aa_op_call call{};
  call.struct_size = sizeof(call);
  call.tensors = views.data();
  call.tensor_count = static_cast<uint32_t>(views.size());
  call.params = c.params.empty() ? nullptr : c.params.data();
  call.params_size = static_cast<uint32_t>(c.params.size());
  if (op == c.op) ops::find_op_schema(c.op)->check(call);
  run_call(op, call, fast);
}

// Checks the call against the schema and runs it on the case's own tensors.
inline void run(OpCase& c, bool fast) { run_as(c.op, c, fast); }

// The tolerance of a comparison with the reference: |a - b| <= absolute + relative * |b| + ulps of the dtype at b.
struct Tolerance {
  double absolute = 0;
  double relative = 0;
  double ulps = 1;
};

// The distance from |x| to the next number of the dtype.
inline double ulp_of(DType t, double x) {
  if (!std::isfinite(x)) return 0;
  const int digits = t == DType::F32 ? 23 : t == DType::F16 ? 10 : t == DType::BF16 ? 7 : 52;
  const int lowest = t == DType::F16 ? -14 : -126;
  return std::ldexp(1.0, std::max(x == 0 ? lowest : std::ilogb(std::fabs(x)), lowest) - digits);
}

inline void expect_close(const TestTensor& found, const TestTensor& expected, const Tolerance& tolerance,
                         const std::string& what) {
  for (int64_t i = 0; i < expected.count(); ++i) {
    const double a = found.number(i), b = expected.number(i);
    if (std::isnan(a) && std::isnan(b)) continue;
    if (a == b) continue;
    const double limit =
        tolerance.absolute + tolerance.relative * std::fabs(b) + tolerance.ulps * ulp_of(found.dtype(), b);
    if (std::fabs(a - b) <= limit) continue;
    ADD_FAILURE() << what << ": element " << i << " is " << a << ", expected " << b << " +- " << limit;
    return;
  }
}

// Runs the fast version of the case with each tensor that is written in the place of each tensor that it may be.
inline void compare_in_place(const OpCase& original, const OpCase& expected, const Tolerance& tolerance) {
  const ops::OpSchema& schema = *ops::find_op_schema(original.op);
  for (size_t written = 0; written < original.tensors.size(); ++written) {
    for (size_t over = 0; over < original.tensors.size(); ++over) {
      const TestTensor &out = original.tensors[written], &in = original.tensors[over];
      if (!((schema.tensors[written].in_place >> over) & 1u) || !out.present() || !in.present()) continue;
      if (out.dtype() != in.dtype() || !in.is_writable()) continue;
      if (original.op == "norm_backward" && (original.tensors[1].present() || original.tensors[2].present())) continue;
      const std::string name = std::string(schema.tensors[written].name) + " over " + schema.tensors[over].name;
      OpCase found = original;
      run_as(found.op, found, true, written, over);
      for (size_t i = 0; i < found.tensors.size(); ++i) {
        if (!found.tensors[i].present() || i == written) continue;
        const size_t result = i == over ? written : i;
        EXPECT_TRUE(found.tensors[i].untouched()) << "something was written outside of a tensor, " << name;
        if (schema.tensors[result].role == ops::Role::In) {
          EXPECT_TRUE(found.tensors[i].same_bytes(original.tensors[i])) << "an input was changed, " << name;
        } else {
          expect_close(found.tensors[i], expected.tensors[result], tolerance,
                       schema.tensors[result].name + (", " + name));
        }
      }
    }
  }
}

// Runs fast and reference on copies of the case, on every instruction set, and compares every tensor that is written; the
// same again in place, where the op allows that.
inline void compare(const OpCase& original, const Tolerance& tolerance) {
  SCOPED_TRACE(original.text());
  OpCase expected = original;
  run(expected, false);
  const ops::OpSchema& schema = *ops::find_op_schema(original.op);
  for_each_isa([&](Isa) {
    OpCase found = original;
    run(found, true);
    for (size_t i = 0; i < found.tensors.size(); ++i) {
      if (!found.tensors[i].present()) continue;
      const std::string name = schema.tensors[i].name;
      if (schema.tensors[i].role == ops::Role::In) {
        EXPECT_TRUE(found.tensors[i].same_bytes(original.tensors[i])) << "the input " << name << " was changed";
      } else {
        EXPECT_TRUE(found.tensors[i].untouched()) << "something was written outside of " << name;
        expect_close(found.tensors[i], expected.tensors[i], tolerance, name);
      }
    }
    compare_in_place(original, expected, tolerance);
  });
}

// Expects AA_OUT_OF_RANGE from fast and reference, with nothing written. Of a device, which cannot tell while the call is
// enqueued, only that nothing outside of what it writes is touched.
inline void expect_out_of_range(const OpCase& original) {
  for (bool fast : {true, false}) {
    OpCase c = original;
    if (fast && anyaccel::testing::device_under_test()) {
      run(c, true);
      for (size_t i = 0; i < c.tensors.size(); ++i) {
        const bool input = ops::find_op_schema(c.op)->tensors[i].role == ops::Role::In;
        EXPECT_TRUE(input ? c.tensors[i].same_bytes(original.tensors[i]) : c.tensors[i].untouched()) << "tensor " << i;
      }
      continue;
    }
    try {
      run(c, fast);
      ADD_FAILURE() << c.text() << ": no error";
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.code(), AA_OUT_OF_RANGE) << error.what();
    }
    for (size_t i = 0; i < c.tensors.size(); ++i) {
      EXPECT_TRUE(c.tensors[i].same_bytes(original.tensors[i])) << "tensor " << i << " was changed";
    }
  }
}

}  // namespace anyaccel::cpu::testing
