// Large products by oneDNN against the reference, and the choice between it and our own kernels: measured once, kept in
// a file, forced, absent.
#include "accelerators/cpu/onednn.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <thread>

#include "accelerators/cpu/cpu_driver.h"
#include "accelerators/cpu/kernels/choice_file.h"
#include "accelerators/cpu/kernels/matmul_choice.h"
#include "accelerators/cpu/matmul_control.h"
#include "accelerators/cpu/ops.h"
#include "llm/test_directory.h"
#include "ops/op_test_support.h"

namespace anyaccel::cpu {
namespace {

using testing::OpCase;
using testing::Random;
using testing::TestTensor;

// The tensor's magnitudes as F32.
TestTensor magnitudes(const TestTensor& tensor) {
  if (!tensor.present()) return {};
  TestTensor result(DType::F32, tensor.shape());
  return std::move(result.fill([&](int64_t i) { return std::fabs(tensor.number(i)); }));
}

void run_linear(TestTensor& out, const TestTensor& x, const TestTensor& w, const TestTensor& bias,
                const TestTensor& residual, bool fast) {
  OpCase c{"linear", {out, x, w, bias, residual}, {}};
  testing::run(c, fast);
  out = c.tensors[0];
}

double rounding(DType dtype) { return dtype == DType::F32 ? 1e-7 : dtype == DType::F16 ? 6e-4 : 4.5e-3; }

// Each element of `found` lies within rounding errors of F32 arithmetic (which are proportional to `size`, the sum of
// the terms' magnitudes) and of the result's dtype.
void expect_within(const TestTensor& found, const TestTensor& expected, const TestTensor& size,
                   const std::string& what) {
  ASSERT_TRUE(found.untouched()) << what << ": something was written outside";
  for (int64_t i = 0; i < found.count(); ++i) {
    const double value = expected.number(i);
    const double bound = 2e-6 * size.number(i) + rounding(found.dtype()) * std::fabs(value) + 1e-7;
    ASSERT_NEAR(found.number(i), value, bound) << what << ", element " << i;
  }
}

struct Product {
  TestTensor out, x, w, bias, residual;

  static Product random(Random& random, int64_t m, int64_t n, int64_t k, DType x) {
    Product p;
    p.x = TestTensor::random_layout(random, x, {m, k}, true).fill_normal(random);
    p.w = TestTensor(DType::BF16, {n, k}).fill_normal(random);
    p.out = TestTensor::random_layout(random, random.float_dtype(), {m, n}, false).fill_normal(random);
    if (random.chance(0.5)) p.bias = TestTensor(random.float_dtype(), {n}).fill_normal(random);
    if (random.chance(0.5)) {
      p.residual = TestTensor::random_layout(random, random.float_dtype(), {m, n}, true).fill_normal(random);
    }
    return p;
  }

  void check() const {
    const std::string what = "m " + std::to_string(x.shape()[0]) + " n " + std::to_string(w.shape()[0]) + " k " +
                             std::to_string(x.shape()[1]) + " x " + std::string(dtype_name(x.dtype()));
    TestTensor found = out, expected(DType::F32, out.shape()), size(DType::F32, out.shape());
    run_linear(found, x, w, bias, residual, true);
    run_linear(expected, x, w, bias, residual, false);
    run_linear(size, magnitudes(x), magnitudes(w), magnitudes(bias), magnitudes(residual), false);
    expect_within(found, expected, size, what);
  }
};

int thread_count() {
  int count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) count += task.exists() ? 1 : 0;
  return count;
}

// Returns the library's file if the environment names one (that of a version that the system has not), else null.
const char* library_file() { return std::getenv("ANYACCEL_TEST_ONEDNN"); }

// Returns why oneDNN's products cannot be tested here; empty if they can.
std::string missing() {
  static const std::string reason = [] {
    if (!onednn::library().usable) return onednn::library().reason;
    try {
      const onednn::OneThread one_thread;
      onednn::prepare({32, 32, 32, 32});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  }();
  return reason;
}

class OneDnnTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("ANYACCEL_CACHE_DIR", folder_.path().c_str(), 1);
    if (before_ == Isa::Amx) set_isa(Isa::Avx512);  // whose products are compared with oneDNN's
    forget_matmul_choices();
    onednn::look_for(library_file());
    if (!missing().empty()) GTEST_SKIP() << missing();
    set_matmul_mode(MatmulMode::OneDnn);
  }
  void TearDown() override {
    set_matmul_mode(MatmulMode::Auto);
    set_isa(before_);
    onednn::look_for(library_file());
    ::unsetenv("ANYACCEL_CACHE_DIR");
  }

  // A product that is large enough for a choice, computed; which implementation did it.
  struct Done {
    int64_t own, onednn, measurements;
    bool operator==(const Done&) const = default;
  };
  Done large(int64_t m = 72) {
    Random random(7);
    static const TestTensor w = TestTensor(DType::BF16, {1024, 1024}).fill_normal(random);
    TestTensor out(DType::F32, {m, 1024}), x(DType::BF16, {m, 1024});
    const MatmulCounts before = matmul_counts();
    run_linear(out, x.fill_normal(random), w, {}, {}, true);
    const MatmulCounts after = matmul_counts();
    return {after.own - before.own, after.onednn - before.onednn, after.measurements - before.measurements};
  }

  static std::string file_text() { return llm::testing::read_text(choice_file()); }

  llm::testing::TestDirectory folder_;
  const Isa before_ = isa();
};

TEST_F(OneDnnTest, RandomProducts) {
  testing::for_each_seed([](Random& random) {
    const int64_t before = matmul_counts().onednn;
    constexpr int kCases = 24;
    for (int i = 0; i < kCases; ++i) {
      Product::random(random, random.integer(32, 200), random.integer(1, 300), random.integer(1, 300),
                      random.float_dtype())
          .check();
      if (HasFatalFailure()) return;
    }
    EXPECT_EQ(matmul_counts().onednn - before, kCases);
  });
}

// More than one block of rows, and chunks with a remainder.
TEST_F(OneDnnTest, LargerThanItsBlocks) {
  Random random(3);
  for (DType x : {DType::BF16, DType::F16, DType::F32}) {
    Product::random(random, 1030, 70, 33, x).check();
    Product::random(random, 40, 1111, 130, x).check();
  }
}

TEST_F(OneDnnTest, EveryInstructionSetFinishesTheSame) {
  Random random(4);
  const Product product = Product::random(random, 50, 90, 77, DType::F32);
  testing::for_each_isa([&](Isa) { product.check(); });
}

TEST_F(OneDnnTest, ResidualIsTheOutput) {
  Random random(5);
  const TestTensor x = TestTensor(DType::F32, {70, 90}).fill_normal(random);
  const TestTensor w = TestTensor(DType::BF16, {130, 90}).fill_normal(random);
  const TestTensor residual = TestTensor(DType::F32, {70, 130}).fill_normal(random);
  TestTensor expected(DType::F32, {70, 130}), size = expected, found = residual;
  run_linear(expected, x, w, {}, residual, false);
  run_linear(size, magnitudes(x), magnitudes(w), {}, magnitudes(residual), false);
  TestTensor x_copy = x, w_copy = w;
  const aa_tensor tensors[] = {found.view(), x_copy.view(), w_copy.view(), aa_tensor{}, found.view()};
  aa_op_call call{};
  call.struct_size = sizeof(call);
  call.tensors = tensors;
  call.tensor_count = 5;
  linear(call);
  expect_within(found, expected, size, "residual in place");
}

TEST_F(OneDnnTest, SeveralWeights) {
  Random random(6);
  for (int64_t m : {32, 77, 600}) {
    const int64_t k = 61;
    const TestTensor x = TestTensor(random.float_dtype(), {m, k}).fill_normal(random);
    OpCase c{"linear_multi", {x}, {}};
    std::vector<std::pair<TestTensor, TestTensor>> parts;
    for (int64_t n : {100, 33, 1}) {
      TestTensor w = TestTensor(DType::BF16, {n, k}).fill_normal(random);
      TestTensor bias = n == 33 ? TestTensor() : TestTensor(DType::F32, {n}).fill_normal(random);
      c.tensors.insert(c.tensors.end(), {TestTensor(DType::F32, {m, n}), w, bias});
      parts.emplace_back(std::move(w), std::move(bias));
    }
    const int64_t before = matmul_counts().onednn;
    testing::run(c, true);
    EXPECT_EQ(matmul_counts().onednn - before, 1);
    for (size_t i = 0; i < parts.size(); ++i) {
      const TestTensor& found = c.tensors[1 + 3 * i];
      TestTensor expected(DType::F32, found.shape()), size = expected;
      run_linear(expected, x, parts[i].first, parts[i].second, {}, false);
      run_linear(size, magnitudes(x), magnitudes(parts[i].first), magnitudes(parts[i].second), {}, false);
      expect_within(found, expected, size, "part " + std::to_string(i));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(OneDnnTest, Gated) {
  Random random(8);
  for (int kind = AA_ACTIVATION_SILU; kind <= AA_ACTIVATION_TANH; ++kind) {
    const int64_t m = random.integer(32, 100), n = random.integer(1, 200), k = random.integer(1, 150);
    const TestTensor x = TestTensor(random.float_dtype(), {m, k}).fill_normal(random);
    TestTensor w[2], bias[2];
    for (int i = 0; i < 2; ++i) {
      w[i] = TestTensor(DType::BF16, {n, k}).fill_normal(random);
      if (kind % 2 == 0) bias[i] = TestTensor(DType::BF16, {n}).fill_normal(random);
    }
    OpCase c{"gated_linear", {TestTensor(DType::F32, {m, n}), x, w[0], w[1], bias[0], bias[1]}, {}};
    c.with(aa_activation_params{0, kind});
    OpCase reference = c;
    const int64_t before = matmul_counts().onednn;
    testing::run(c, true);
    EXPECT_EQ(matmul_counts().onednn - before, 1);
    testing::run(reference, false);
    // An error of one factor counts as much as the other factor is large.
    TestTensor size(DType::F32, {m, n}), size_up = size;
    run_linear(size, magnitudes(x), magnitudes(w[0]), magnitudes(bias[0]), {}, false);
    run_linear(size_up, magnitudes(x), magnitudes(w[1]), magnitudes(bias[1]), {}, false);
    size.fill([&](int64_t i) { return 4 * size.number(i) * size_up.number(i); });
    expect_within(c.tensors[0], reference.tensors[0], size, "activation " + std::to_string(kind));
    if (HasFatalFailure()) return;
  }
}

// F32 numbers far from bf16 ones, whose parts must not disturb what is not finite: NaNs whose bits a bf16 would lose,
// the largest number, infinite weights.
TEST_F(OneDnnTest, NonFiniteValuesStayInTheirRow) {
  Random random(9);
  TestTensor x = TestTensor(DType::F32, {40, 50}).fill_normal(random);
  TestTensor w = TestTensor(DType::BF16, {20, 50}).fill([](int64_t) { return 0.25; });
  const uint32_t nan = 0x7f800001u;
  std::memcpy(x.at(3 * 50 + 7), &nan, sizeof(nan));
  x.set(5 * 50 + 1, std::numeric_limits<double>::infinity());
  x.set(6 * 50 + 1, static_cast<double>(std::numeric_limits<float>::max()));
  w.set(4 * 50 + 49, std::numeric_limits<double>::infinity());
  x.set(8 * 50 + 49, 1.0);  // exact in one term: the others are zero times infinity
  TestTensor found(DType::F32, {40, 20}), expected = found;
  run_linear(found, x, w, {}, {}, true);
  run_linear(expected, x, w, {}, {}, false);
  for (int64_t i = 0; i < found.count(); ++i) {
    const double a = found.number(i), b = expected.number(i);
    EXPECT_EQ(std::isnan(a), std::isnan(b)) << i;
    EXPECT_EQ(std::isinf(a), std::isinf(b)) << i;
    EXPECT_TRUE(!std::isinf(b) || a == b) << i;
  }
}

TEST_F(OneDnnTest, WhatItDoesNotTakeIsOurs) {
  Random random(10);
  const int64_t before = matmul_counts().onednn;
  Product few = Product::random(random, 31, 20, 20, DType::BF16);
  few.check();
  Product other = Product::random(random, 40, 20, 20, DType::BF16);
  other.w = TestTensor(DType::F32, {20, 20}).fill_normal(random);
  other.check();
  EXPECT_EQ(matmul_counts().onednn, before);
}

TEST_F(OneDnnTest, NoThreadsBesideThePool) {
  WorkerPool& pool = WorkerPool::instance();
  const int before = pool.size();
  pool.set_size(3);
  pool.run([](int, int) {});
  const int threads = thread_count();
  // The calling thread's own setting of OpenMP stays as it is.
  void* openmp = dlopen("libgomp.so.1", RTLD_NOW | RTLD_LOCAL);
  auto* set = openmp ? reinterpret_cast<void (*)(int)>(dlsym(openmp, "omp_set_num_threads")) : nullptr;
  auto* get = openmp ? reinterpret_cast<int (*)()>(dlsym(openmp, "omp_get_max_threads")) : nullptr;
  if (set) set(5);
  Random random(11);
  for (int i = 0; i < 5; ++i) Product::random(random, 32 + 40 * i, 500, 200, DType::F32).check();
  EXPECT_EQ(thread_count(), threads);
  EXPECT_EQ(get ? get() : 5, 5);
  if (set) set(1);
  pool.set_size(before);
}

TEST_F(OneDnnTest, SeveralCallers) {
  std::vector<std::thread> callers;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    callers.emplace_back([seed] {
      Random random(seed);
      for (int i = 0; i < 5; ++i) {
        Product::random(random, random.integer(32, 64), random.integer(1, 300), random.integer(1, 64), DType::F32)
            .check();
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST_F(OneDnnTest, KeepsABoundedNumberOfShapes) {
  Random random(12);
  for (int64_t m = 32; m < 32 + 80; ++m) {
    TestTensor out(DType::F32, {m, 8}), x(DType::BF16, {m, 8}), w(DType::BF16, {8, 8});
    run_linear(out, x, w, {}, {}, true);
    ASSERT_LE(onednn::kept_shapes(), onednn::kMostShapes);
  }
  EXPECT_EQ(onednn::kept_shapes(), onednn::kMostShapes);
}

TEST_F(OneDnnTest, WorksInAChild) {
  Random random(13);
  const Product product = Product::random(random, 64, 100, 100, DType::F32);
  product.check();
  const pid_t child = fork();
  if (child == 0) {
    product.check();
    _exit(HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// ---- the choice ---------------------------------------------------------------------------------------------------

TEST_F(OneDnnTest, MeasuresOnceAndRemembers) {
  set_matmul_mode(MatmulMode::Auto);
  const Done first = large();
  EXPECT_EQ(first.measurements, 1);
  EXPECT_EQ(first.own + first.onednn, 1) << "what is measured does not count";
  const Done chosen = {first.own, first.onednn, 0};
  EXPECT_EQ(large(), chosen);
  EXPECT_EQ(large(100), chosen) << "the same class";
  const std::string text = file_text();
  EXPECT_NE(text.find(onednn::library().version), std::string::npos) << text;

  // A later process reads the file.
  forget_matmul_choices();
  EXPECT_EQ(large(), chosen);
  EXPECT_EQ(file_text(), text);

  // And the copy works.
  const std::string name = first.onednn ? "\tonednn\t" : "\town\t", other = first.onednn ? "\town\t" : "\tonednn\t";
  std::string changed = text;
  ASSERT_NE(changed.find(name), std::string::npos) << text;
  changed.replace(changed.find(name), name.size(), other);
  folder_.write(choice_file().filename(), changed);
  forget_matmul_choices();
  EXPECT_EQ(large(), (Done{first.onednn, first.own, 0}));

  // Another class is measured and joins the first in the file.
  EXPECT_EQ(large(256).measurements, 1);
  EXPECT_GT(file_text().size(), changed.size());
  EXPECT_NE(file_text().find(other), std::string::npos);
  for (const auto& file : std::filesystem::directory_iterator(folder_.path())) {
    EXPECT_EQ(file.path(), choice_file()) << "a temporary file was left";
  }
}

TEST_F(OneDnnTest, RemembersInALocaleWithDecimalCommas) {
  struct Commas : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
  };
  set_matmul_mode(MatmulMode::Auto);
  const std::locale before = std::locale::global(std::locale(std::locale(), new Commas));
  EXPECT_EQ(large().measurements, 1);
  std::locale::global(before);
  forget_matmul_choices();
  EXPECT_EQ(large().measurements, 0) << file_text();
}

TEST_F(OneDnnTest, AnotherNumberOfThreadsIsMeasuredAgain) {
  set_matmul_mode(MatmulMode::Auto);
  WorkerPool& pool = WorkerPool::instance();
  const int before = pool.size();
  large();
  pool.set_size(before + 1);
  EXPECT_EQ(large().measurements, 1);
  pool.set_size(before);
  EXPECT_EQ(large().measurements, 0);
}

TEST_F(OneDnnTest, DamagedFileIsMeasuredAgain) {
  set_matmul_mode(MatmulMode::Auto);
  large();
  const std::string good = file_text();
  const std::string header = good.substr(0, good.find('\n') + 1);
  const std::string line = good.substr(header.size());
  const std::string damaged[] = {"",
                                 std::string("\0\xff\x01 binary", 10),
                                 "another program's file\n" + line,
                                 good.substr(0, good.size() / 2),
                                 header + line + "rubbish\n",
                                 header + line.substr(0, line.find('\t')) + "\tmaybe\t1\t1\n",
                                 header + line.substr(0, line.find('\t')) + "\town\t-1\tnan\n",
                                 header + std::string(2 << 20, 'x')};
  for (const std::string& text : damaged) {
    folder_.write(choice_file().filename(), text);
    forget_matmul_choices();
    EXPECT_EQ(large().measurements, 1) << text.substr(0, 200);
    EXPECT_EQ(file_text().substr(0, header.size()), header);
    forget_matmul_choices();
    EXPECT_EQ(large().measurements, 0) << "the file was not replaced";
  }
}

TEST_F(OneDnnTest, FolderThatCannotBeWritten) {
  set_matmul_mode(MatmulMode::Auto);
  const std::filesystem::path file = folder_.write("file", "");
  ::setenv("ANYACCEL_CACHE_DIR", (file / "below").c_str(), 1);
  EXPECT_EQ(large().measurements, 1);
  EXPECT_EQ(large().measurements, 0) << "the process remembers all the same";
}

TEST_F(OneDnnTest, SmallProductsDoNotAsk) {
  set_matmul_mode(MatmulMode::Auto);
  Random random(14);
  const MatmulCounts before = matmul_counts();
  Product::random(random, 60, 100, 100, DType::BF16).check();
  EXPECT_EQ(matmul_counts().measurements, before.measurements);
  EXPECT_EQ(matmul_counts().onednn, before.onednn);
  EXPECT_FALSE(std::filesystem::exists(choice_file()));
}

// The matrix unit's products need no comparison.
TEST_F(OneDnnTest, TheMatrixUnitIsOurs) {
  if (!is_isa_available(Isa::Amx)) GTEST_SKIP() << "this machine lacks AMX, or its kernel lets no process use it";
  set_isa(Isa::Amx);
  set_matmul_mode(MatmulMode::Auto);
  EXPECT_EQ(large(), (Done{1, 0, 0}));
  EXPECT_FALSE(std::filesystem::exists(choice_file()));
  set_matmul_mode(MatmulMode::OneDnn);
  EXPECT_EQ(large(), (Done{0, 1, 0}));
}

TEST_F(OneDnnTest, OwnIsNeverOneDnn) {
  set_matmul_mode(MatmulMode::Own);
  EXPECT_EQ(large(), (Done{1, 0, 0}));
}

TEST_F(OneDnnTest, DriverExtension) {
  const aa_driver* driver = anyaccel_cpu_driver_query(AA_ABI_CURRENT, AA_ABI_CURRENT, nullptr);
  const void* found = nullptr;
  ASSERT_EQ(driver->query_extension(driver->self, nullptr, AA_CPU_MATMUL_EXTENSION, AA_CPU_MATMUL_VERSION, &found),
            nullptr);
  const auto* control = static_cast<const aa_cpu_matmul_table*>(found);
  int32_t usable = 0;
  const char* text = "";
  ASSERT_EQ(control->library(&usable, &text), nullptr);
  EXPECT_TRUE(usable);
  EXPECT_NE(std::string(text).find(library_file() == nullptr ? "oneDNN " : "oneDNN 3."), std::string::npos) << text;
  ASSERT_EQ(control->set_implementation("own"), nullptr);
  EXPECT_EQ(large(), (Done{1, 0, 0}));
  ASSERT_EQ(control->set_implementation("onednn"), nullptr);
  EXPECT_EQ(large(), (Done{0, 1, 0}));
  ASSERT_EQ(control->set_implementation(nullptr), nullptr);
  EXPECT_EQ(matmul_mode(), MatmulMode::OneDnn) << "what was in force before";
  int64_t own = 0, onednn = 0;
  ASSERT_EQ(control->counts(&own, &onednn), nullptr);
  EXPECT_EQ(onednn, matmul_counts().onednn);
}

// ---- without the library ------------------------------------------------------------------------------------------

class OneDnnAbsent : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    forget_matmul_choices();
    onednn::look_for(GetParam());
  }
  void TearDown() override {
    set_matmul_mode(MatmulMode::Auto);
    forget_matmul_choices();
    onednn::look_for(library_file());
  }
  static void run_large() {
    TestTensor out(DType::F32, {64, 1024}), x(DType::BF16, {64, 1024}), w(DType::BF16, {1024, 1024});
    run_linear(out, x, w, {}, {}, true);
  }
};

TEST_P(OneDnnAbsent, IsNoError) {
  set_matmul_mode(MatmulMode::Auto);
  const MatmulCounts before = matmul_counts();
  run_large();
  run_large();
  EXPECT_EQ(matmul_counts().own - before.own, 2);
  EXPECT_EQ(matmul_counts().measurements, before.measurements);
  EXPECT_FALSE(onednn::library().usable);
  EXPECT_NE(onednn::library().reason.find(GetParam()), std::string::npos) << onednn::library().reason;
}

TEST_P(OneDnnAbsent, ForcedIsAnErrorThatSaysWhatToDo) {
  set_matmul_mode(MatmulMode::OneDnn);
  try {
    run_large();
    FAIL() << "no error";
  } catch (const UnavailableError& error) {
    for (const char* part : {"ANYACCEL_CPU_MATMUL=onednn", GetParam(), "libdnnl2"}) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
}

// Distributions give the library's file different names, to which the development package's link leads.
TEST(OneDnnNames, TheSystemsLibraryIsFound) {
  void* installed = dlopen("libdnnl.so", RTLD_LAZY | RTLD_LOCAL);
  if (installed == nullptr) GTEST_SKIP() << "libdnnl.so is not installed";
  onednn::look_for(nullptr);
  const onednn::Library& library = onednn::library();
  // A version that is too old, or one for another threading runtime, is refused with reason.
  const auto refused_for = [&](const char* why) { return library.reason.find(why) != std::string::npos; };
  EXPECT_TRUE(library.usable || refused_for("threading runtime") || refused_for("is version")) << library.reason;
  onednn::look_for(library_file());
  dlclose(installed);
}

// A file that is not there, and a library that is another one.
INSTANTIATE_TEST_SUITE_P(Files, OneDnnAbsent, ::testing::Values("libdnnl-not-there.so.2", "libm.so.6"),
                         [](const auto& info) { return info.index == 0 ? "Missing" : "Another"; });

TEST(MatmulModeDeathTest, Variable) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto mode_of = [](const char* text) {
    ::setenv("ANYACCEL_CPU_MATMUL", text, 1);
    try {
      std::fprintf(stderr, "mode %d\n", static_cast<int>(matmul_mode()));
    } catch (const InvalidArgument& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    std::exit(3);
  };
  EXPECT_EXIT(mode_of("auto"), ::testing::ExitedWithCode(3), "mode 0");
  EXPECT_EXIT(mode_of(""), ::testing::ExitedWithCode(3), "mode 0");
  EXPECT_EXIT(mode_of("own"), ::testing::ExitedWithCode(3), "mode 1");
  EXPECT_EXIT(mode_of("onednn"), ::testing::ExitedWithCode(3), "mode 2");
  EXPECT_EXIT(mode_of("mkl"), ::testing::ExitedWithCode(3),
              "ANYACCEL_CPU_MATMUL=mkl is not known; expected auto, own or onednn");
}

}  // namespace
}  // namespace anyaccel::cpu
