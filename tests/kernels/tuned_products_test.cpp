// The kernels of kernels/cuda/decode_*.cu on the host, cut as the CUDA accelerator cuts them, against sums in double: element
// types, odd sizes, strides, biases, residuals, norms, rotary kinds, positions out of range, infinities and NaNs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "accelerators/cuda/ops/decode_plan.h"
#include "simulators/engine/warp.h"
#include "tests/kernels/tuned_kernel_support.h"

namespace anyaccel::testing {
namespace {

using namespace cuda;

enum Type : int32_t { none_type = 0, F16 = 7, BF16 = 8, F32 = 9 };
constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

int size_of(Type type) { return type == F32 ? 4 : 2; }
const char* name_of(Type type) { return type == F32 ? "f32" : type == BF16 ? "bf16" : "f16"; }
// Largest relative error of rounding to a type.
double unit_of(Type type) { return std::ldexp(1.0, type == F32 ? -24 : type == BF16 ? -8 : -11); }

Type random_type(Random& random) { return static_cast<Type>(random.integer(F16, F32)); }

// A matrix in an array of its own, NaN where it has no elements. A vector has one row.
class Matrix {
 public:
  Matrix() : array_(std::size_t{0}) {}
  Matrix(Type type, int64_t rows, int64_t columns, int64_t gap = 0, int64_t inner = 1)
      : type_(type),
        rows_(rows),
        columns_(columns),
        inner_(inner),
        row_(columns * inner + gap),
        array_(static_cast<std::size_t>((rows * row_ + 8) * size_of(type))) {
    for (int64_t at = 0; at < rows_ * row_ + 8; ++at) put(at, nan);
  }
  Matrix(const Matrix& other) : array_(std::size_t{0}) { *this = other; }
  Matrix& operator=(const Matrix& other) {
    if (this == &other) return *this;
    type_ = other.type_, rows_ = other.rows_, columns_ = other.columns_, inner_ = other.inner_, row_ = other.row_;
    array_ = DeviceArray(other.array_.bytes());  // which lies at another address
    std::memcpy(array_.data(), const_cast<Matrix&>(other).array_.data(), array_.bytes());
    return *this;
  }
  Matrix& fill(Random& random, float size = 1) {
    for (int64_t i = 0; i < rows_; ++i)
      for (int64_t j = 0; j < columns_; ++j) set(i, j, random.normal() * size);
    return *this;
  }
  void set(int64_t i, int64_t j, float v) { put(i * row_ + j * inner_, v); }
  double get(int64_t i, int64_t j) { return take(i * row_ + j * inner_); }
  // The elements that are not of the matrix still are what they were.
  bool gaps_are_kept() {
    for (int64_t at = 0; at < rows_ * row_ + 8; ++at) {
      const bool element = at < rows_ * row_ && at % row_ < columns_ * inner_ && at % row_ % inner_ == 0;
      if (!element && !std::isnan(take(at))) return false;
    }
    return true;
  }
  bool is_there() const { return type_ != none_type; }
  Type type() const { return type_; }
  int64_t row() const { return row_; }
  int64_t inner() const { return inner_; }
  int64_t row_bytes() const { return row_ * size_of(type_); }
  KernelArgument reads() { return is_there() ? in(array_) : none(); }
  KernelArgument reads_early(bool early) { return early ? testing::weights(array_) : reads(); }
  KernelArgument writes() { return is_there() ? out(array_) : none(); }

 private:
  void put(int64_t at, float v) {
    const std::uint16_t half = type_ == F16    ? sim::f16_from_float(v)
                               : type_ == BF16 ? sim::bf16_from_float(v)
                                               : std::uint16_t{0};
    std::memcpy(array_.data() + at * size_of(type_), type_ == F32 ? static_cast<const void*>(&v) : &half,
                static_cast<std::size_t>(size_of(type_)));
  }
  float take(int64_t at) {
    float v;
    if (type_ == F32) {
      std::memcpy(&v, array_.data() + at * 4, 4);
      return v;
    }
    std::uint16_t half;
    std::memcpy(&half, array_.data() + at * 2, 2);
    if (type_ == F16) return sim::float_from_f16(half);
    const std::uint32_t bits = static_cast<std::uint32_t>(half) << 16;
    std::memcpy(&v, &bits, 4);
    return v;
  }

  Type type_ = none_type;
  int64_t rows_ = 0, columns_ = 0, inner_ = 1, row_ = 0;
  DeviceArray array_;
};

constexpr double relative_error = 4e-6;  // of a sum, in the sum of its absolute values

double rounded(double value) {
  const std::uint32_t bits = static_cast<std::uint32_t>(sim::bf16_from_float(static_cast<float>(value))) << 16;
  float result;
  std::memcpy(&result, &bits, 4);
  return result;
}

// A value, and the sum of the absolute values that it is made of, which bounds its error.
struct Sum {
  double value = 0, size = 0;
};

struct Problem {
  int64_t m, k;
  Type w_type;
  Matrix x, norm;
  bool normed, rounds;
  float eps = 1e-5f;
  int multiprocessors;
  int64_t shared_limit;  // little of it leaves room only for the kernel with few loads under way
  bool early;            // weights may be read before the kernel before has ended

  Problem(Random& random, std::optional<bool> with_norm = {}) {
    m = random.chance(0.5) ? 1 : random.integer(1, AA_DECODE_ROWS);
    w_type = random_type(random);
    k = random.integer(1, random.chance(0.3) ? 700 : 80) * (16 / size_of(w_type));
    shared_limit = (random.chance(0.5) ? 99 : 227) * 1024;
    while (!decode_kernel_for(m, k, size_of(w_type), 2, shared_limit)) --m;  // x does not fit otherwise
    x = Matrix(random_type(random), m, k, random.integer(0, 1) * 8);
    x.fill(random);
    normed = with_norm ? *with_norm : random.chance(0.5);
    rounds = normed && random.chance(0.5);
    if (normed && random.chance(0.8)) norm = Matrix(random_type(random), 1, k).fill(random);
    multiprocessors = static_cast<int>(random.integer(1, 5));
    early = random.chance(0.5);
  }
  Matrix weights(Random& random, int64_t n) {
    return Matrix(w_type, n, k, random.integer(0, 1) * 8).fill(random, 1 / std::sqrt(static_cast<float>(k)));
  }

  double factor(int64_t i) {
    if (!normed) return 1;
    double squares = 0;
    for (int64_t j = 0; j < k; ++j) squares += x.get(i, j) * x.get(i, j);
    return 1 / std::sqrt(squares / static_cast<double>(k) + eps);
  }
  Sum product(int64_t i, Matrix& w, int64_t n) {
    Sum sum;
    const double f = factor(i);
    for (int64_t j = 0; j < k; ++j) {
      double row = x.get(i, j) * (norm.is_there() ? norm.get(0, j) : 1) * f;
      if (rounds) {
        // Near the middle of two numbers the kernel may choose the other one.
        const double low = rounded(row * (1 - 2e-6)), high = rounded(row * (1 + 2e-6));
        sum.size += std::fabs((high - low) * w.get(n, j)) / relative_error;
        row = low;
      }
      sum.value += row * w.get(n, j);
      sum.size += std::fabs(row * w.get(n, j));
    }
    return sum;
  }

  DecodePlan plan(int64_t units, int unit) {
    const std::optional<size_t> kernel = decode_kernel_for(m, k, size_of(w_type), unit, shared_limit);
    DecodePlan plan = decode_plan(kernel.value(), m, k, size_of(w_type), units, unit, multiprocessors);
    plan.x.early = early;
    plan.x.row = x.row_bytes();
    plan.x.dtype = x.type();
    plan.x.normed = normed;
    plan.x.rounds = rounds;
    plan.x.norm_dtype = norm.type();
    plan.x.eps = eps;
    return plan;
  }
  std::string run(const std::string& file, const DecodePlan& plan, const std::vector<KernelArgument>& arguments) {
    return run_tuned(file + "_" + std::to_string(decode_shape(plan.kernel)) + "_" + name_of(w_type),
                     {.grid = {static_cast<uint32_t>(plan.blocks), 1, 1},
                      .block = AA_DECODE_THREADS,
                      .shared_bytes = static_cast<std::size_t>(plan.shared_bytes),
                      .overlaps_previous = true},
                     arguments);
  }
};

void expect_near(double actual, double expected, double size, Type type, const std::string& what) {
  const double tolerance =
      relative_error * size + 1.01 * unit_of(type) * std::fabs(expected) + (type == F16 ? 4e-8 : 1e-30);
  EXPECT_NEAR(actual, expected, tolerance) << what;
}

aa_decode_part part_of(Matrix& out, Matrix& w, Matrix& bias, int64_t n, int unit) {
  return {.w_row = w.row_bytes(),
          .out_row = out.row(),
          .out_inner = out.inner(),
          .bias_inner = bias.inner(),
          .n = static_cast<int32_t>(n),
          .units = static_cast<int32_t>((n + unit - 1) / unit),
          .out_dtype = out.type(),
          .bias_dtype = bias.type()};
}
Matrix random_bias(Random& random, int64_t n) {
  return random.chance(0.5) ? Matrix(random_type(random), 1, n, 0, random.integer(1, 2)).fill(random) : Matrix();
}
Matrix random_out(Random& random, int64_t m, int64_t n) {
  return {random_type(random), m, n, random.integer(0, 3), random.integer(1, 2)};
}

TEST(DecodeProducts, Linear) {
  for (int seed = 0; seed < seeds(40); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(static_cast<unsigned>(seed));
    Problem p(random);
    const int64_t n = random.integer(1, random.chance(0.3) ? 150 : 20);
    Matrix w = p.weights(random, n), bias = random_bias(random, n), y = random_out(random, p.m, n);
    const bool in_place = random.chance(0.3);
    Matrix separate;
    if (in_place) y.fill(random);
    if (!in_place && random.chance(0.5)) separate = random_out(random, p.m, n).fill(random);
    Matrix& residual = in_place ? y : separate;
    Matrix before = residual;
    const int unit = decode_linear_unit(p.m);
    const aa_decode_part part = part_of(y, w, bias, n, unit);
    const aa_decode_residual res{residual.row(), residual.inner(), residual.type(), 0};
    const DecodePlan plan = p.plan(part.units, unit);
    ASSERT_EQ(p.run("decode_linear", plan,
                    {p.x.reads(), p.norm.reads(), number(plan.x), y.writes(), w.reads_early(p.early), bias.reads(),
                     number(part), residual.reads(), number(res)}),
              "");
    for (int64_t i = 0; i < p.m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        const Sum sum = p.product(i, w, j);
        const double more = (bias.is_there() ? bias.get(0, j) : 0) + (before.is_there() ? before.get(i, j) : 0);
        expect_near(y.get(i, j), sum.value + more, sum.size + std::fabs(more), y.type(), std::to_string(j));
      }
    }
    EXPECT_TRUE(y.gaps_are_kept());
    if (HasFailure()) return;
  }
}

TEST(DecodeProducts, LinearMulti) {
  for (int seed = 0; seed < seeds(20); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(static_cast<unsigned>(seed));
    Problem p(random, false);
    const int unit = decode_linear_unit(p.m);
    const int64_t count = random.integer(1, 4);
    Matrix w[4], y[4], bias[4];
    aa_decode_part parts[4] = {};
    int64_t n[4] = {}, units = 0;
    for (int64_t i = 0; i < count; ++i) {
      n[i] = random.integer(1, 30);
      w[i] = p.weights(random, n[i]);
      y[i] = random_out(random, p.m, n[i]);
      bias[i] = random_bias(random, n[i]);
      parts[i] = part_of(y[i], w[i], bias[i], n[i], unit);
      units += parts[i].units;
    }
    const DecodePlan plan = p.plan(units, unit);
    std::vector<KernelArgument> arguments = {p.x.reads(), number(plan.x)};
    for (int i = 0; i < 4; ++i) {
      for (const KernelArgument& a :
           {y[i].writes(), i < count ? w[i].reads_early(p.early) : none(), bias[i].reads(), number(parts[i])}) {
        arguments.push_back(a);
      }
    }
    ASSERT_EQ(p.run("decode_multi", plan, arguments), "");
    for (int64_t part = 0; part < count; ++part) {
      for (int64_t i = 0; i < p.m; ++i) {
        for (int64_t j = 0; j < n[part]; ++j) {
          const Sum sum = p.product(i, w[part], j);
          const double more = bias[part].is_there() ? bias[part].get(0, j) : 0;
          expect_near(y[part].get(i, j), sum.value + more, sum.size + std::fabs(more), y[part].type(), "");
        }
      }
      EXPECT_TRUE(y[part].gaps_are_kept());
    }
    if (HasFailure()) return;
  }
}

double activated(double x, int kind) {
  switch (kind) {
    case 0: return x / (1 + std::exp(-x));
    case 1: return x * 0.5 * (1 + std::erf(x / std::sqrt(2.0)));
    case 2: return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
    case 3: return std::max(x, 0.0);
    case 4: return 1 / (1 + std::exp(-x));
    default: return std::tanh(x);
  }
}

TEST(DecodeProducts, Gated) {
  for (int seed = 0; seed < seeds(24); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(static_cast<unsigned>(seed));
    Problem p(random);
    const int64_t n = random.integer(1, random.chance(0.3) ? 100 : 20);
    const int32_t kind = seed % 6;
    Matrix gate = p.weights(random, n), up = p.weights(random, n), y = random_out(random, p.m, n);
    Matrix gate_bias = random_bias(random, n), up_bias = random_bias(random, n);
    const aa_decode_part gate_part = part_of(y, gate, gate_bias, n, 1), up_part = part_of(y, up, up_bias, n, 1);
    const DecodePlan plan = p.plan(n, 2);
    ASSERT_EQ(p.run("decode_gated", plan,
                    {p.x.reads(), p.norm.reads(), number(plan.x), y.writes(), gate.reads_early(p.early),
                     up.reads_early(p.early), gate_bias.reads(), up_bias.reads(), number(gate_part), number(up_part),
                     number(kind), number(int32_t{0})}),
              "");
    for (int64_t i = 0; i < p.m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        Sum a = p.product(i, gate, j), b = p.product(i, up, j);
        a.value += gate_bias.is_there() ? gate_bias.get(0, j) : 0;
        b.value += up_bias.is_there() ? up_bias.get(0, j) : 0;
        // Slopes of activations are below 1.2.
        const double size = 1.2 * (a.size + 1) * (std::fabs(b.value) + 1) + (b.size + 1) * std::fabs(a.value);
        expect_near(y.get(i, j), activated(a.value, kind) * b.value, size, y.type(), "kind " + std::to_string(kind));
      }
    }
    EXPECT_TRUE(y.gaps_are_kept());
    if (HasFailure()) return;
  }
}

// A cache [B,Hk,S,D] as a matrix [B*Hk*S, D].
aa_decode_heads heads_of(Matrix& w, Matrix& bias, int64_t heads, Matrix& to, int64_t outer, int64_t head,
                         int64_t slot) {
  return {.w_row = w.row_bytes(),
          .bias_inner = bias.inner(),
          .outer = outer,
          .head = head,
          .slot = slot,
          .inner = to.inner(),
          .heads = static_cast<int32_t>(heads),
          .dtype = to.type(),
          .bias_dtype = bias.type(),
          .reserved = 0};
}

TEST(DecodeProducts, QueriesKeysAndValues) {
  for (int seed = 0; seed < seeds(30); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(static_cast<unsigned>(seed));
    Problem p(random, true);
    const int64_t kv_heads = random.integer(1, 2), q_heads = kv_heads * random.integer(1, 3);
    const int64_t size = 2 * random.integer(1, 12), pairs = random.integer(0, size / 2), slots = random.integer(1, 6);
    const int64_t sequences = random.integer(1, 3);
    const bool interleaved = random.chance(0.5);
    Matrix w[3], bias[3];
    for (int i = 0; i < 3; ++i) {
      const int64_t n = (i == 0 ? q_heads : kv_heads) * size;
      w[i] = p.weights(random, n);
      bias[i] = random_bias(random, n);
    }
    const int64_t cache_rows = sequences * kv_heads * slots;
    Matrix q = random_out(random, p.m * q_heads, size),
           cache[2] = {random_out(random, cache_rows, size), random_out(random, cache_rows, size)};
    for (Matrix& c : cache) c.fill(random);
    Matrix before[2] = {cache[0], cache[1]};
    Matrix cosines(F32, p.m, std::max<int64_t>(pairs, 1), 1), sines(F32, p.m, std::max<int64_t>(pairs, 1), 0, 2);
    cosines.fill(random);
    sines.fill(random);
    std::vector<int32_t> sequence, position;
    for (int64_t t = 0; t < p.m; ++t) {
      sequence.push_back(static_cast<int32_t>(random.integer(0, sequences - 1)));
      position.push_back(static_cast<int32_t>(random.integer(0, slots - 1)));
      if (random.chance(0.1)) sequence.back() = random.chance(0.5) ? -1 : static_cast<int32_t>(sequences);
      if (random.chance(0.2)) position.back() = random.chance(0.5) ? -3 : static_cast<int32_t>(slots);
    }
    DeviceArray sequence_array(sequence), position_array(position);
    const aa_decode_heads heads[3] = {heads_of(w[0], bias[0], q_heads, q, q.row() * q_heads, q.row(), 0),
                                      heads_of(w[1], bias[1], kv_heads, cache[0], cache[0].row() * slots * kv_heads,
                                               cache[0].row() * slots, cache[0].row()),
                                      heads_of(w[2], bias[2], kv_heads, cache[1], cache[1].row() * slots * kv_heads,
                                               cache[1].row() * slots, cache[1].row())};
    const aa_decode_rope rope{.cos_row = cosines.row(),
                              .cos_inner = 1,
                              .sin_row = sines.row(),
                              .sin_inner = 2,
                              .sequence_inner = 1,
                              .position_inner = 1,
                              .head_size = static_cast<int32_t>(size),
                              .pairs = static_cast<int32_t>(pairs),
                              .interleaved = interleaved,
                              .sequences = static_cast<int32_t>(sequences),
                              .slots = static_cast<int32_t>(slots),
                              .tokens = static_cast<int32_t>(p.m)};
    const DecodePlan plan = p.plan((q_heads + 2 * kv_heads) * size / 2, 2);
    ASSERT_EQ(p.run("decode_qkv", plan,
                    {p.x.reads(),
                     p.norm.reads(),
                     number(plan.x),
                     w[0].reads_early(p.early),
                     w[1].reads_early(p.early),
                     w[2].reads_early(p.early),
                     bias[0].reads(),
                     bias[1].reads(),
                     bias[2].reads(),
                     q.writes(),
                     cache[0].writes(),
                     cache[1].writes(),
                     number(heads[0]),
                     number(heads[1]),
                     number(heads[2]),
                     cosines.reads(),
                     sines.reads(),
                     in(sequence_array),
                     in(position_array),
                     number(rope)}),
              "");

    // Writes a head, after its product and its rotation, into row `to` of `out`.
    const auto check = [&](int kind, int64_t t, int64_t head, Matrix& out, int64_t to) {
      std::vector<Sum> v;
      for (int64_t d = 0; d < size; ++d) {
        v.push_back(p.product(t, w[kind], head * size + d));
        const double more = bias[kind].is_there() ? bias[kind].get(0, head * size + d) : 0;
        v.back().value += more;
        v.back().size += std::fabs(more);
      }
      for (int64_t r = 0; kind < 2 && r < pairs; ++r) {
        Sum &a = v[static_cast<size_t>(interleaved ? 2 * r : r)],
            &b = v[static_cast<size_t>(interleaved ? 2 * r + 1 : r + pairs)];
        const double c = cosines.get(t, r), s = sines.get(t, r);
        const double turned = a.value * c - b.value * s;
        b.value = b.value * c + a.value * s;
        a.value = turned;
        a.size = b.size = (a.size + b.size) * (std::fabs(c) + std::fabs(s));
      }
      for (int64_t d = 0; d < size; ++d) {
        const Sum& sum = v[static_cast<size_t>(d)];
        expect_near(out.get(to, d), sum.value, sum.size, out.type(),
                    "kind " + std::to_string(kind) + " element " + std::to_string(d));
      }
    };
    for (int64_t t = 0; t < p.m; ++t) {
      for (int64_t h = 0; h < q_heads; ++h) check(0, t, h, q, t * q_heads + h);
    }
    for (int64_t b = 0; b < sequences; ++b) {
      for (int64_t slot = 0; slot < slots; ++slot) {
        int64_t writer = -1;
        for (int64_t t = 0; t < p.m; ++t) {
          if (sequence[static_cast<size_t>(t)] == b && position[static_cast<size_t>(t)] == slot) writer = t;
        }
        for (int64_t h = 0; h < kv_heads; ++h) {
          const int64_t to = (b * kv_heads + h) * slots + slot;
          for (int kind = 1; kind < 3; ++kind) {
            if (writer >= 0) check(kind, writer, h, cache[kind - 1], to);
            for (int64_t d = 0; writer < 0 && d < size; ++d) {
              EXPECT_EQ(cache[kind - 1].get(to, d), before[kind - 1].get(to, d)) << "a slot that nothing is written to";
            }
          }
        }
      }
    }
    EXPECT_TRUE(q.gaps_are_kept() && cache[0].gaps_are_kept() && cache[1].gaps_are_kept());
    if (HasFailure()) return;
  }
}

// An infinity or a NaN changes the results that it belongs to, as the sum says, and no others.
TEST(DecodeProducts, InfinitiesAndNaNsStayWhereTheyBelong) {
  for (int seed = 0; seed < seeds(12); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(static_cast<unsigned>(seed));
    Problem p(random, false);
    const int64_t n = random.integer(2, 20);
    Matrix w = p.weights(random, n), y = random_out(random, p.m, n), absent;
    for (int i = 0; i < 3; ++i) {
      const float special = random.chance(0.3) ? nan : random.chance(0.5) ? infinity : -infinity;
      if (random.chance(0.5)) {
        w.set(random.integer(0, n - 1), random.integer(0, p.k - 1), special);
      } else {
        p.x.set(random.integer(0, p.m - 1), random.integer(0, p.k - 1), special);
      }
    }
    const int unit = decode_linear_unit(p.m);
    const aa_decode_part part = part_of(y, w, absent, n, unit);
    const DecodePlan plan = p.plan(part.units, unit);
    ASSERT_EQ(p.run("decode_linear", plan,
                    {p.x.reads(), none(), number(plan.x), y.writes(), w.reads_early(p.early), none(), number(part),
                     none(), number(aa_decode_residual{})}),
              "");
    for (int64_t i = 0; i < p.m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        const Sum sum = p.product(i, w, j);
        if (std::isfinite(sum.value)) {
          expect_near(y.get(i, j), sum.value, sum.size, y.type(), "");
        } else if (std::isnan(sum.value)) {
          EXPECT_TRUE(std::isnan(y.get(i, j)));
        } else {
          EXPECT_EQ(y.get(i, j), sum.value);
        }
      }
    }
    if (HasFailure()) return;
  }
}

// Every unit is taken once, by blocks whose shares differ by one at most, and what a block needs fits.
TEST(DecodeProducts, PlansCoverTheirUnits) {
  for (const int64_t units : {1, 7, 131, 132, 133, 1024, 3072, 64128}) {
    for (const int64_t k : {8, 64, 2048, 4864, 14336}) {
      for (const int64_t m : {1, 2, 3}) {
        for (const int64_t limit : {99 * 1024, 227 * 1024}) {
          const std::optional<size_t> kernel = decode_kernel_for(m, k, 2, 2, limit);
          if (!kernel) {
            EXPECT_GT(m * k * 4 + AA_DECODE_RING_BYTES(4), limit / 2) << "no kernel for " << m << " rows of " << k;
            continue;
          }
          const DecodePlan plan = decode_plan(*kernel, m, k, 2, units, 2, 132);
          EXPECT_EQ(int64_t{plan.x.units_each} * plan.blocks + plan.x.units_more, units);
          EXPECT_LT(plan.x.units_more, plan.blocks);
          EXPECT_LE(plan.blocks, 132);
          EXPECT_LE(plan.shared_bytes, limit);
        }
      }
    }
  }
  const auto kernel = decode_kernel_for(1, 2048, 2, 1, 227 * 1024);
  ASSERT_TRUE(kernel.has_value());
  EXPECT_EQ(decode_shape(*kernel), 112);
  EXPECT_EQ(decode_plan(*kernel, 1, 2048, 2, 2048, 1, 132).blocks, 132);  // all multiprocessors for a product of 8 MB
  EXPECT_EQ(decode_kernel_for(AA_DECODE_ROWS + 1, 64, 2, 1, 227 * 1024), std::nullopt);
  // A multiprocessor with 100 KiB computes long rows with fewer loads in flight.
  EXPECT_EQ(decode_shape(decode_kernel_for(1, 14336, 2, 1, 99 * 1024).value()), 104);
}

}  // namespace
}  // namespace anyaccel::testing
