// The ops "linear", "linear_multi" and "gated_linear" of the CPU accelerator against plain loops in double, on every
// instruction set of the machine: shapes with remainders everywhere, all dtypes, strided and transposed tensors.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "accelerators/cpu/ops.h"
#include "accelerators/cpu/worker_pool.h"
#include "anyaccel/dtype.h"
#include "anyaccel/error.h"
#include "base/simd/cpu_features.h"
#include "nearly_normal.h"
#include "ops/device_under_test.h"

namespace anyaccel::cpu {
namespace {

using anyaccel::testing::device_under_test;

// The ops as they are tested: of the accelerator under test, if there is one, else the CPU's.
template <void (*op)(const aa_op_call&)>
void tested(const char* name, const aa_op_call& call) {
  if (DriverAccelerator* device = device_under_test()) {
    anyaccel::testing::run_on_device(*device, name, call);
  } else {
    op(call);
  }
}
void tested_linear(const aa_op_call& call) { tested<linear>("linear", call); }
void tested_linear_multi(const aa_op_call& call) { tested<linear_multi>("linear_multi", call); }
void tested_gated_linear(const aa_op_call& call) { tested<gated_linear>("gated_linear", call); }

enum class Layout { Dense, PaddedRows, Transposed, Strided };

double decode(const void* p, DType dtype) {
  switch (dtype) {
    case DType::BF16: return bf16_to_float(*static_cast<const uint16_t*>(p));
    case DType::F16: return fp16_to_float(*static_cast<const uint16_t*>(p));
    default: return *static_cast<const float*>(p);
  }
}

void encode(void* p, DType dtype, float value) {
  switch (dtype) {
    case DType::BF16: *static_cast<uint16_t*>(p) = float_to_bf16(value); break;
    case DType::F16: *static_cast<uint16_t*>(p) = float_to_fp16(value); break;
    default: *static_cast<float*>(p) = value; break;
  }
}

// A tensor in a buffer of exactly its size, so that the address sanitizer sees any access beyond it; the gaps of a
// strided layout hold NaNs, which would show in the results if they were read as elements.
class TestMatrix {
 public:
  TestMatrix() { view_.dtype = AA_DTYPE_NONE; }
  TestMatrix(DType dtype, int64_t rows, int64_t columns, Layout layout = Layout::Dense) {
    view_.dtype = static_cast<int32_t>(dtype);
    view_.ndim = 2;
    for (auto& extent : view_.shape) extent = 1;
    view_.shape[0] = rows;
    view_.shape[1] = columns;
    view_.strides[0] = columns;
    view_.strides[1] = 1;
    if (layout == Layout::PaddedRows) view_.strides[0] = columns + 5;
    if (layout == Layout::Transposed) view_.strides[0] = 1, view_.strides[1] = rows;
    if (layout == Layout::Strided) view_.strides[0] = 3 * columns + 1, view_.strides[1] = 3;
    const int64_t elements =
        rows * columns == 0 ? 0 : (rows - 1) * view_.strides[0] + (columns - 1) * view_.strides[1] + 1;
    data_.assign(static_cast<size_t>(elements) * dtype_size(dtype), '\xff');
    view_.data = data_.data();
  }

  static TestMatrix random(DType dtype, int64_t rows, int64_t columns, Layout layout, std::mt19937& generator) {
    TestMatrix tensor(dtype, rows, columns, layout);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        encode(tensor.at(r, c), dtype, static_cast<float>(anyaccel::testing::nearly_normal(generator)));
      }
    }
    return tensor;
  }
  // A bias.
  static TestMatrix random_vector(DType dtype, int64_t n, std::mt19937& generator) {
    TestMatrix tensor = random(dtype, 1, n, Layout::Dense, generator);
    tensor.view_.ndim = 1;
    tensor.view_.shape[0] = n;
    tensor.view_.shape[1] = 1;
    tensor.view_.strides[0] = 1;
    tensor.view_.strides[1] = 0;
    return tensor;
  }

  TestMatrix(TestMatrix&&) = default;
  TestMatrix& operator=(TestMatrix&&) = default;
  TestMatrix copy() const {
    TestMatrix other;
    other.view_ = view_;
    other.data_ = data_;
    other.view_.data = other.data_.data();
    return other;
  }

  bool present() const { return view_.dtype != AA_DTYPE_NONE; }
  DType dtype() const { return static_cast<DType>(view_.dtype); }
  const aa_tensor& view() const { return view_; }
  void* at(int64_t row, int64_t column) {
    return data_.data() + static_cast<size_t>(row * view_.strides[0] + column * view_.strides[1]) * dtype_size(dtype());
  }
  double get(int64_t row, int64_t column) { return decode(at(row, column), dtype()); }
  const std::vector<char>& bytes() const { return data_; }

 private:
  aa_tensor view_ = {};
  std::vector<char> data_;
};

// A sum and how large its terms are, to which rounding errors are proportional.
struct Sum {
  double value = 0;
  double size = 0;
};

// The elements of an input, decoded once: a product reads each many times.
class Numbers {
 public:
  explicit Numbers(TestMatrix& from) : columns_(from.view().shape[1]) {
    for (int64_t row = 0; row < from.view().shape[0]; ++row) {
      for (int64_t column = 0; column < columns_; ++column) values_.push_back(from.get(row, column));
    }
  }
  const double* row(int64_t index) const { return values_.data() + index * columns_; }

 private:
  int64_t columns_;
  std::vector<double> values_;
};

Sum dot(const Numbers& x, const Numbers& w, TestMatrix& bias, int64_t m, int64_t n, int64_t k) {
  const double* const a = x.row(m);
  const double* const b = w.row(n);
  Sum sum;
  for (int64_t i = 0; i < k; ++i) {
    const double term = a[i] * b[i];
    sum.value += term;
    sum.size += std::abs(term);
  }
  if (bias.present()) {
    sum.value += bias.get(n, 0);
    sum.size += std::abs(bias.get(n, 0));
  }
  return sum;
}

double activate(int kind, double x) {
  switch (kind) {
    case AA_ACTIVATION_SILU: return x / (1 + std::exp(-x));
    case AA_ACTIVATION_GELU: return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case AA_ACTIVATION_GELU_TANH: return x / (1 + std::exp(-2 * 0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case AA_ACTIVATION_RELU: return std::max(x, 0.0);
    case AA_ACTIVATION_SIGMOID: return 1 / (1 + std::exp(-x));
    default: return std::tanh(x);
  }
}

double rounding_of(DType dtype) { return dtype == DType::F32 ? 1e-7 : dtype == DType::F16 ? 6e-4 : 4.5e-3; }

void expect_close(TestMatrix& out, int64_t m, int64_t n, const Sum& expected, const std::string& what) {
  const double found = out.get(m, n);
  const double bound = 2e-6 * expected.size + rounding_of(out.dtype()) * std::abs(expected.value) + 1e-7;
  ASSERT_NEAR(found, expected.value, bound) << what << " at [" << m << ", " << n << "]";
}

aa_op_call make_call(const std::vector<aa_tensor>& tensors) {
  aa_op_call call = {};
  call.struct_size = sizeof(call);
  call.tensors = tensors.data();
  call.tensor_count = static_cast<uint32_t>(tensors.size());
  return call;
}

class MatmulTest : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!is_isa_available(GetParam())) GTEST_SKIP() << "this machine lacks " << isa_name(GetParam());
    if (device_under_test() && GetParam() != Isa::Baseline) GTEST_SKIP() << "the accelerator has one version";
    before_ = isa();
    set_isa(GetParam());
  }
  void TearDown() override { set_isa(before_); }

  struct Case {
    int64_t m, n, k;
    DType x = DType::F32, w = DType::F32, out = DType::F32;
    Layout x_layout = Layout::Dense, w_layout = Layout::Dense, out_layout = Layout::Dense;
    bool bias = false;
    enum { None, Separate, Alias } residual = None;
  };

  void check_linear(const Case& c, void (*op)(const aa_op_call&) = tested_linear) {
    const std::string what =
        "linear " + std::to_string(c.m) + " x " + std::to_string(c.n) + " x " + std::to_string(c.k) + " " +
        std::string(dtype_name(c.x)) + " " + std::string(dtype_name(c.w)) + " " + std::string(dtype_name(c.out)) +
        " layouts " + std::to_string(static_cast<int>(c.x_layout)) + std::to_string(static_cast<int>(c.w_layout)) +
        std::to_string(static_cast<int>(c.out_layout));
    auto x = TestMatrix::random(c.x, c.m, c.k, c.x_layout, generator_);
    auto w = TestMatrix::random(c.w, c.n, c.k, c.w_layout, generator_);
    TestMatrix bias, residual;
    if (c.bias) bias = TestMatrix::random_vector(DType::F16, c.n, generator_);
    auto out = TestMatrix::random(c.out, c.m, c.n, c.out_layout, generator_);
    if (c.residual == Case::Separate) residual = TestMatrix::random(DType::BF16, c.m, c.n, Layout::Strided, generator_);
    if (c.residual == Case::Alias) residual = out.copy();
    const aa_tensor residual_view = c.residual == Case::Alias ? out.view() : residual.view();
    const Numbers x_numbers(x), w_numbers(w);
    op(make_call({out.view(), x.view(), w.view(), bias.view(), residual_view}));
    for (int64_t m = 0; m < c.m; ++m) {
      for (int64_t n = 0; n < c.n; ++n) {
        Sum sum = dot(x_numbers, w_numbers, bias, m, n, c.k);
        if (residual.present()) sum.value += residual.get(m, n);
        expect_close(out, m, n, sum, what);
        if (HasFatalFailure()) return;
      }
    }
  }

  std::mt19937 generator_{20240229};
  Isa before_ = Isa::Baseline;
};

TEST_P(MatmulTest, EveryRowCount) {
  for (int64_t m = 1; m <= 70; ++m) {
    Case c{.m = m, .n = 37, .k = 45, .w = DType::BF16};
    c.bias = m % 2 == 0;
    c.residual = m % 3 == 0 ? Case::Alias : m % 3 == 1 ? Case::Separate : Case::None;
    check_linear(c);
    if (HasFatalFailure()) return;
  }
}

TEST_P(MatmulTest, EveryDtypeMix) {
  for (DType x : {DType::F32, DType::BF16, DType::F16}) {
    for (DType w : {DType::F32, DType::BF16, DType::F16}) {
      for (DType out : {DType::F32, DType::BF16, DType::F16}) {
        for (int64_t m : {1, 3, 19}) {
          check_linear({.m = m, .n = 21, .k = 71, .x = x, .w = w, .out = out, .bias = true, .residual = Case::Alias});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(MatmulTest, EveryLayout) {
  constexpr Layout kAll[] = {Layout::Dense, Layout::PaddedRows, Layout::Transposed, Layout::Strided};
  for (Layout x : kAll) {
    for (Layout w : kAll) {
      check_linear({.m = 2, .n = 13, .k = 37, .x_layout = x, .w_layout = w});
      for (Layout out : kAll) {
        for (int64_t m : {1, 2, 21, 40}) {
          Case c{.m = m, .n = 13, .k = m == 40 ? 67 : 66, .x = m == 40 ? DType::BF16 : DType::F16, .w = DType::BF16};
          c.x_layout = x;
          c.w_layout = w;
          c.out_layout = out;
          c.residual = Case::Alias;
          check_linear(c);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(MatmulTest, RandomShapes) {
  const auto upto = [&](int64_t most) { return static_cast<int64_t>(generator_() % static_cast<uint64_t>(most)) + 1; };
  constexpr DType kTypes[] = {DType::F32, DType::BF16, DType::F16};
  for (int i = 0; i < 60; ++i) {
    Case c{.m = upto(70), .n = upto(150), .k = upto(600)};
    c.x = kTypes[upto(3) - 1];
    c.w = kTypes[upto(3) - 1];
    c.w_layout = upto(4) == 1 ? Layout::Transposed : Layout::Dense;
    c.bias = upto(2) == 1;
    check_linear(c);
    if (HasFatalFailure()) return;
  }
}

// More than one block of x, of k and of chunks.
TEST_P(MatmulTest, LargerThanItsBlocks) {
  check_linear({.m = 541, .n = 70, .k = 33, .w = DType::BF16});
  for (const int64_t k : {33, 531, 1101}) check_linear({.m = 541, .n = 70, .k = k, .x = DType::BF16, .w = DType::BF16});
  check_linear({.m = 24, .n = 600, .k = 530, .w = DType::F16});
  check_linear({.m = 530, .n = 9, .k = 1100, .w = DType::BF16});
  // Pairs of bf16 from rows and from columns, with a last one of a single element.
  for (const Layout x : {Layout::Dense, Layout::Transposed}) {
    for (const Layout w : {Layout::Dense, Layout::Transposed}) {
      for (const auto& [m, n] : {std::pair{541, 70}, {40, 201}}) {
        Case c{.m = m, .n = n, .k = 301, .x = DType::BF16, .w = DType::BF16, .x_layout = x, .w_layout = w};
        c.bias = w == Layout::Dense;
        c.residual = Case::Alias;
        check_linear(c);
      }
    }
  }
  // Stored by tiles of rows of the output.
  for (const DType out : {DType::F32, DType::BF16}) {
    for (const Layout x : {Layout::Dense, Layout::Transposed, Layout::Strided}) {
      Case c{.m = 541, .n = 70, .k = 300, .w = DType::F16, .out = out, .x_layout = x, .w_layout = Layout::Transposed};
      c.bias = x == Layout::Dense;
      c.residual = x == Layout::Strided ? Case::Separate : Case::Alias;
      check_linear(c);
    }
  }
}

// Shapes for which lanes run over rows of x, and shapes for which they run over columns of the output, give the bits of
// products that are added up one after the other.
TEST_P(MatmulTest, ProductsAreAddedInOrder) {
  if (device_under_test()) GTEST_SKIP() << "tests the CPU's kernel";
  if (GetParam() == Isa::Baseline) GTEST_SKIP() << "rounds products before they are added";
  constexpr Layout kBoth[] = {Layout::Dense, Layout::Transposed};
  for (const auto& [m, n, k] : {std::tuple{300, 21, 70}, {45, 130, 530}, {70, 64, 300}, {50, 600, 9}, {563, 546, 31}}) {
    for (const Layout x_layout : kBoth) {
      for (const Layout w_layout : kBoth) {
        auto x = TestMatrix::random(DType::F32, m, k, x_layout, generator_);
        auto w = TestMatrix::random(DType::F32, n, k, w_layout, generator_);
        auto bias = TestMatrix::random_vector(DType::F32, n, generator_);
        auto out = TestMatrix::random(DType::F32, m, n, Layout::PaddedRows, generator_);
        auto before = out.copy();
        linear(make_call({out.view(), x.view(), w.view(), bias.view(), out.view()}));
        for (int64_t row = 0; row < m; ++row) {
          for (int64_t column = 0; column < n; ++column) {
            float sum = 0;
            for (int64_t i = 0; i < k; ++i) {
              sum = std::fma(static_cast<float>(w.get(column, i)), static_cast<float>(x.get(row, i)), sum);
            }
            sum += static_cast<float>(bias.get(column, 0));
            sum += static_cast<float>(before.get(row, column));
            ASSERT_EQ(out.get(row, column), sum)
                << m << " x " << n << " x " << k << " at [" << row << ", " << column << "], layouts "
                << static_cast<int>(x_layout) << static_cast<int>(w_layout);
          }
        }
      }
    }
  }
}

// Few rows of x in several passes over stretches of k, with all kinds of products.
TEST_P(MatmulTest, FewRowsAreSeveralPasses) {
  for (const auto& [x, w] :
       {std::pair{DType::BF16, DType::BF16}, {DType::F32, DType::BF16}, {DType::F32, DType::F32}}) {
    for (const int64_t m : {2, 3, 5, 7, 8, 13, 19, 31, 33, 64}) {
      check_linear({.m = m, .n = 22, .k = 2085, .x = x, .w = w});
      if (HasFatalFailure()) return;
    }
  }
}

// Up to four rows of x by 16-bit weights may be multiplied in two streams, of which the second begins its rows later: by a part of a
// row that depends on how far apart the streams lie, and not at all where rows are short. The numbers of columns lie around those
// for which two rows of x are multiplied at once, or four.
TEST_P(MatmulTest, FewRowsByTwoStreams) {
  for (const auto& [x, w] : {std::pair{DType::BF16, DType::BF16}, {DType::F32, DType::F16}, {DType::F32, DType::F32}}) {
    for (const int64_t k : {32, 512, 544, 1024, 1536, 2048, 2080, 5632}) {
      for (const int64_t n : {1, 2, 3, 6, 7, 10, 21}) {
        for (const int64_t m : {1, 2, 3, 4}) {
          check_linear({.m = m, .n = n, .k = k, .x = x, .w = w});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Products of few rows of x may be finished after some MiB of weights each.
TEST_P(MatmulTest, FewRowsByManyWeights) {
  for (const int64_t m : {1, 4, 6}) {
    check_linear({.m = m, .n = 1100, .k = 2048, .x = DType::BF16, .w = DType::BF16, .bias = true});
    if (HasFatalFailure()) return;
  }
}

// As the results of a token's experts are summed: weights of few columns, whose elements are adjacent.
TEST_P(MatmulTest, FewColumnsAreSummed) {
  for (const int64_t k : {2, 8, 64, 65}) {
    for (const int64_t m : {1, 5}) {
      Case c{.m = m, .n = 203, .k = k, .w_layout = Layout::Transposed, .bias = k == 8, .residual = Case::Alias};
      check_linear(c);
      if (HasFatalFailure()) return;
    }
  }
}

// The sums of a row have one order, whatever rows are computed with it: "linear_by_row" promises it.
TEST_P(MatmulTest, ARowDoesNotDependOnItsNeighbours) {
  if (device_under_test()) GTEST_SKIP() << "tests the CPU's kernel";
  struct Types {
    DType x, w;
    int64_t k;
  };
  // The second k is a whole number of what the loops take at once.
  for (const auto& [x_type, w_type, k] : {Types{DType::BF16, DType::BF16, 2085},
                                          {DType::F32, DType::BF16, 2085},
                                          {DType::F16, DType::F16, 2085},
                                          {DType::BF16, DType::BF16, 2048},
                                          {DType::F32, DType::BF16, 2048},
                                          {DType::F16, DType::F16, 2048}}) {
    const int64_t most = 33, n = 45;
    auto x = TestMatrix::random(x_type, most, k, Layout::Dense, generator_);
    auto w = TestMatrix::random(w_type, n, k, Layout::Dense, generator_);
    TestMatrix absent;
    const auto product = [&](int64_t rows) {
      TestMatrix out(DType::F32, rows, n);
      aa_tensor some = x.view();
      some.shape[0] = rows;
      linear_by_row(make_call({out.view(), some, w.view(), absent.view(), absent.view()}));
      return out;
    };
    TestMatrix all = product(most);
    for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 18, 19, 25}) {
      TestMatrix some = product(rows);
      for (int64_t m = 0; m < rows; ++m) {
        for (int64_t column = 0; column < n; ++column) {
          ASSERT_EQ(some.get(m, column), all.get(m, column)) << rows << " rows, [" << m << ", " << column << "]";
        }
      }
    }
  }
}

TEST_P(MatmulTest, EmptyDimensions) {
  check_linear({.m = 0, .n = 5, .k = 7});
  check_linear({.m = 3, .n = 0, .k = 7});
  check_linear({.m = 40, .n = 0, .k = 7});
  for (int64_t m : {1, 8, 20, 40}) {
    check_linear({.m = m, .n = 5, .k = 0});
    check_linear({.m = m, .n = 5, .k = 0, .x = DType::BF16, .w = DType::BF16});
    check_linear({.m = m, .n = 5, .k = 0, .out = DType::BF16, .bias = true, .residual = Case::Alias});
  }
}

TEST_P(MatmulTest, ReferenceIsTheDefinition) {
  check_linear({.m = 5, .n = 11, .k = 70, .w = DType::BF16, .bias = true, .residual = Case::Alias}, linear_reference);
}

TEST_P(MatmulTest, SeveralWeights) {
  struct Part {
    int64_t n;
    DType w;
    bool bias;
  };
  const std::vector<Part> parts = {
      {29, DType::BF16, true}, {8, DType::F32, false}, {1, DType::F16, true}, {64, DType::BF16, false}};
  for (size_t count = 1; count <= parts.size(); ++count) {
    for (int64_t m : {1, 4, 6, 7, 18, 50}) {
      const int64_t k = 83;
      auto x = TestMatrix::random(DType::BF16, m, k, Layout::Dense, generator_);
      std::vector<TestMatrix> outs, weights, biases;
      std::vector<aa_tensor> tensors = {x.view()};
      for (size_t i = 0; i < count; ++i) {
        outs.emplace_back(DType::F32, m, parts[i].n);
        weights.push_back(TestMatrix::random(parts[i].w, parts[i].n, k, Layout::Dense, generator_));
        biases.push_back(parts[i].bias ? TestMatrix::random_vector(DType::F32, parts[i].n, generator_) : TestMatrix());
        tensors.insert(tensors.end(), {outs[i].view(), weights[i].view(), biases[i].view()});
      }
      const Numbers x_numbers(x);
      std::vector<Numbers> w_numbers;
      for (TestMatrix& w : weights) w_numbers.emplace_back(w);
      for (auto* op : {tested_linear_multi, linear_multi_reference}) {
        op(make_call(tensors));
        for (size_t i = 0; i < count; ++i) {
          for (int64_t row = 0; row < m; ++row) {
            for (int64_t n = 0; n < parts[i].n; ++n) {
              const Sum sum = dot(x_numbers, w_numbers[i], biases[i], row, n, k);
              expect_close(outs[i], row, n, sum, "part " + std::to_string(i));
              if (HasFatalFailure()) return;
            }
          }
        }
      }
    }
  }
}

TEST_P(MatmulTest, Gated) {
  for (int kind = AA_ACTIVATION_SILU; kind <= AA_ACTIVATION_TANH; ++kind) {
    for (int64_t m : {1, 5, 6, 18, 50}) {
      for (bool with_bias : {false, true}) {
        const int64_t n = 43, k = 51;
        const auto type = m % 2 ? DType::BF16 : DType::F32;
        const bool in_pairs = m == 50 && with_bias;
        auto x = TestMatrix::random(in_pairs ? DType::BF16 : DType::F32, m, k, Layout::Dense, generator_);
        auto gate = TestMatrix::random(in_pairs ? DType::BF16 : type, n, k, Layout::Dense, generator_);
        auto up = TestMatrix::random(DType::BF16, n, k, Layout::PaddedRows, generator_);
        TestMatrix bias_gate, bias_up;
        if (with_bias) bias_gate = TestMatrix::random_vector(DType::BF16, n, generator_);
        if (with_bias) bias_up = TestMatrix::random_vector(DType::F32, n, generator_);
        TestMatrix out(DType::F32, m, n);
        aa_op_call call = {};
        const std::vector<aa_tensor> tensors = {out.view(), x.view(),         gate.view(),
                                                up.view(),  bias_gate.view(), bias_up.view()};
        const aa_activation_params params = {sizeof(params), kind};
        call = make_call(tensors);
        call.params = &params;
        call.params_size = sizeof(params);
        const Numbers x_numbers(x), gate_numbers(gate), up_numbers(up);
        for (auto* op : {tested_gated_linear, gated_linear_reference}) {
          op(call);
          for (int64_t row = 0; row < m; ++row) {
            for (int64_t column = 0; column < n; ++column) {
              const Sum a = dot(x_numbers, gate_numbers, bias_gate, row, column, k);
              const Sum b = dot(x_numbers, up_numbers, bias_up, row, column, k);
              const Sum product = {activate(kind, a.value) * b.value,
                                   (std::abs(a.value) + a.size) * (std::abs(b.value) + b.size)};
              expect_close(out, row, column, product, "activation " + std::to_string(kind));
              if (HasFatalFailure()) return;
            }
          }
        }
      }
    }
  }
}

TEST_P(MatmulTest, NonFiniteValuesStayInTheirRow) {
  for (const auto& [m, type] : {std::pair<int64_t, DType>{2, DType::F32}, {20, DType::F32}, {40, DType::BF16}}) {
    auto x = TestMatrix::random(type, m, 41, Layout::Dense, generator_);
    auto w = TestMatrix::random(DType::BF16, 11, 41, Layout::Dense, generator_);
    encode(w.at(3, 40), DType::BF16, INFINITY);
    encode(x.at(1, 5), type, NAN);
    TestMatrix out(DType::BF16, m, 11), none;
    tested_linear(make_call({out.view(), x.view(), w.view(), none.view(), none.view()}));
    for (int64_t row = 0; row < m; ++row) {
      for (int64_t n = 0; n < 11; ++n) {
        EXPECT_EQ(std::isnan(out.get(row, n)), row == 1) << row << ' ' << n;
        EXPECT_EQ(std::isinf(out.get(row, n)), row != 1 && n == 3) << row << ' ' << n;
      }
    }
  }
}

// Threads more than there is work for, and results that do not depend on how it was split.
TEST_P(MatmulTest, AnyNumberOfThreads) {
  WorkerPool& pool = WorkerPool::instance();
  const int before = pool.size();
  for (int threads : {1, 2, 3, 7}) {
    pool.set_size(threads);
    for (int64_t m : {1, 6, 40}) {
      check_linear({.m = m, .n = 5, .k = 300, .w = DType::BF16});
      check_linear({.m = m, .n = 131, .k = 64, .w = DType::BF16});
    }
  }
  pool.set_size(before);
}

// Weights so large that threads take pieces of a part of them as they are done, over the borders of the outputs.
TEST_P(MatmulTest, PiecesThatThreadsShare) {
  if (device_under_test()) GTEST_SKIP() << "of the CPU's threads";
  WorkerPool& pool = WorkerPool::instance();
  const int before = pool.size();
  const int64_t k = 2000, columns[] = {1601, 1600, 7, 40};
  for (int64_t m : {1, 2, 3, 4, 7, 13}) {
    const auto x = TestMatrix::random(DType::F32, m, k, Layout::Dense, generator_);
    std::vector<TestMatrix> outs, weights;
    std::vector<aa_tensor> tensors = {x.view()};
    for (const int64_t n : columns) {
      outs.emplace_back(DType::F32, m, n);
      weights.push_back(TestMatrix::random(DType::BF16, n, k, Layout::Dense, generator_));
      tensors.insert(tensors.end(), {outs.back().view(), weights.back().view(), TestMatrix().view()});
    }
    pool.set_size(1);
    tested_linear_multi(make_call(tensors));
    std::vector<std::vector<char>> alone;
    for (const TestMatrix& out : outs) alone.push_back(out.bytes());
    for (const int threads : {2, 3}) {
      pool.set_size(threads);
      for (TestMatrix& out : outs) std::memset(out.at(0, 0), 0xff, out.bytes().size());
      tested_linear_multi(make_call(tensors));
      for (size_t i = 0; i < outs.size(); ++i)
        EXPECT_TRUE(outs[i].bytes() == alone[i]) << threads << " threads, output " << i;
    }
  }
  pool.set_size(before);
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, MatmulTest,
                         ::testing::Values(Isa::Baseline, Isa::Avx2, Isa::Avx512, Isa::Amx),
                         [](const auto& info) { return std::string(isa_name(info.param)); });

TEST(CpuFeatures, NamesAndAvailability) {
  EXPECT_EQ(isa_name(Isa::Avx2), "avx2");
  EXPECT_TRUE(is_isa_available(Isa::Baseline));
  EXPECT_TRUE(is_bf16_supported());
  const Isa before = isa();
  for (Isa candidate : {Isa::Baseline, Isa::Avx2, Isa::Avx512, Isa::Amx}) {
    if (is_isa_available(candidate)) {
      set_isa(candidate);
      EXPECT_EQ(isa(), candidate);
      EXPECT_EQ(is_fp16_supported(), candidate >= Isa::Avx2);
    } else {
      EXPECT_THROW(set_isa(candidate), InvalidArgument);
    }
  }
  set_isa(before);
}

}  // namespace
}  // namespace anyaccel::cpu
