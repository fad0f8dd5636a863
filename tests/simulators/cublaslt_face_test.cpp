// The simulated cuBLASLt through its raw functions: results against sums in double, what it refuses, and that its products
// keep the order of streams.
#include <cmath>
#include <cstring>
#include <random>

#include "simulators/libraries/product.h"
#include "tests/simulators/library_process.h"

namespace {

using namespace sim_test;
using sim_library::kBf16;
using sim_library::kF16;
using sim_library::kF32;

constexpr int kInvalid = 7, kUnsupported = 15;  // cublasStatus_t
constexpr int kCompute32F = 68, kFastTf32 = 77;

template <typename... Args>
int lt(const char* name, Args... args) {
  return call("libcublasLt.so.13", name, args...);
}
template <typename T>
int set(const char* name, void* object, int attribute, T value) {
  return lt(name, object, attribute, static_cast<const void*>(&value), sizeof value);
}

struct Product {
  std::uint64_t algo[8];
  std::size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

// One product: d = alpha * op(a) * op(b) + beta * c + bias, all in column order.
struct Call {
  int ab = kF32, cd = kF32, compute = kCompute32F;
  std::int64_t m = 5, n = 4, k = 3;
  bool transpose_a = false, transpose_b = false, bias = false, in_place = false;
  int bias_type = -1;
  std::int64_t pad = 0;  // what leading dimensions are longer by
  std::int32_t batch = 1;
  float alpha = 1, beta = 0;
  std::uint64_t max_workspace = 1 << 20;

  std::int64_t lda() const { return (transpose_a ? k : m) + pad; }
  std::int64_t ldb() const { return (transpose_b ? n : k) + pad; }
  std::int64_t ldd() const { return m + pad; }
  std::int64_t a_step() const { return lda() * (transpose_a ? m : k); }
  std::int64_t b_step() const { return ldb() * (transpose_b ? k : n); }
  std::int64_t d_step() const { return ldd() * n; }
};

struct Objects {
  void *handle = nullptr, *desc = nullptr, *a = nullptr, *b = nullptr, *d = nullptr, *preference = nullptr;

  explicit Objects(const Call& c, std::uint64_t bias = 0) {
    OK(lt("cublasLtCreate", &handle));
    OK(lt("cublasLtMatmulDescCreate", &desc, c.compute, static_cast<int>(kF32)));
    OK(set("cublasLtMatmulDescSetAttribute", desc, 3, std::int32_t{c.transpose_a}));
    OK(set("cublasLtMatmulDescSetAttribute", desc, 4, std::int32_t{c.transpose_b}));
    if (c.bias) {
      OK(set("cublasLtMatmulDescSetAttribute", desc, 7, std::int32_t{4}));
      OK(set("cublasLtMatmulDescSetAttribute", desc, 8, bias));
      OK(set("cublasLtMatmulDescSetAttribute", desc, 26, std::int32_t{c.bias_type}));
    }
    a = layout(c.ab, c.transpose_a ? c.k : c.m, c.transpose_a ? c.m : c.k, c.lda(), c.batch, c.a_step());
    b = layout(c.ab, c.transpose_b ? c.n : c.k, c.transpose_b ? c.k : c.n, c.ldb(), c.batch, c.b_step());
    d = layout(c.cd, c.m, c.n, c.ldd(), c.batch, c.d_step());
    OK(lt("cublasLtMatmulPreferenceCreate", &preference));
    OK(set("cublasLtMatmulPreferenceSetAttribute", preference, 1, c.max_workspace));
  }
  static void* layout(int type, std::int64_t rows, std::int64_t columns, std::int64_t leading, std::int32_t batch = 1,
                      std::int64_t step = 0) {
    void* made = nullptr;
    OK(lt("cublasLtMatrixLayoutCreate", &made, type, static_cast<std::uint64_t>(rows),
          static_cast<std::uint64_t>(columns), leading));
    if (batch > 1) {
      OK(set("cublasLtMatrixLayoutSetAttribute", made, 5, batch));
      OK(set("cublasLtMatrixLayoutSetAttribute", made, 6, step));
    }
    return made;
  }
  int heuristic(Product* results, int wanted, int* count) const {
    return lt("cublasLtMatmulAlgoGetHeuristic", handle, desc, a, b, d, d, preference, wanted, results, count);
  }
  Product best() const {
    Product result{};
    int count = 0;
    OK(heuristic(&result, 1, &count));
    CHECK(count == 1);
    return result;
  }
  int multiply(const Call& call, std::uint64_t at, std::uint64_t bt, std::uint64_t ct, std::uint64_t dt,
               const Product* chosen, std::uint64_t workspace, std::size_t bytes, void* stream) const {
    const auto pointer = [](std::uint64_t value) { return reinterpret_cast<void*>(value); };
    return lt("cublasLtMatmul", handle, desc, static_cast<const void*>(&call.alpha), pointer(at), a, pointer(bt), b,
              static_cast<const void*>(&call.beta), pointer(ct), d, pointer(dt), d,
              static_cast<const void*>(chosen == nullptr ? nullptr : chosen->algo), pointer(workspace), bytes, stream);
  }
  void destroy() const {
    OK(lt("cublasLtMatmulPreferenceDestroy", preference));
    for (void* layout : {a, b, d}) OK(lt("cublasLtMatrixLayoutDestroy", layout));
    OK(lt("cublasLtMatmulDescDestroy", desc));
    OK(lt("cublasLtDestroy", handle));
  }
};

std::vector<char> random_numbers(std::int64_t count, int type, std::mt19937& random) {
  const std::size_t size = sim_library::size_of_type(type);
  std::vector<char> bytes(static_cast<std::size_t>(count) * size);
  std::uniform_real_distribution<float> uniform(-2, 2);
  for (std::size_t i = 0; i < bytes.size(); i += size) sim_library::store_number(&bytes[i], type, uniform(random));
  return bytes;
}
double number(const std::vector<char>& bytes, int type, std::int64_t i) {
  return sim_library::load_number(&bytes[static_cast<std::size_t>(i) * sim_library::size_of_type(type)], type);
}

void check_product(const Call& c, unsigned seed) {
  const Device device;
  void* stream = make_stream();
  std::mt19937 random(seed);
  const auto a = random_numbers(c.a_step() * c.batch, c.ab, random);
  const auto b = random_numbers(c.b_step() * c.batch, c.ab, random);
  const auto before = random_numbers(c.d_step() * c.batch, c.cd, random);
  const int bias_type = c.bias_type == -1 ? c.cd : c.bias_type;
  const auto bias = random_numbers(c.m, bias_type, random);
  const std::uint64_t at = upload(a, stream), bt = upload(b, stream), dt = upload(before, stream);
  const std::uint64_t other = upload(before, stream), bias_at = upload(bias, stream), workspace = allocate(1 << 20);
  const Objects objects(c, bias_at);
  const Product chosen = objects.best();
  OK(objects.multiply(c, at, bt, c.in_place ? dt : other, dt, &chosen, workspace, chosen.workspace, stream));
  const auto after = download<char>(dt, before.size(), stream);
  // fp32 sums of up to 40 products below 4, one rounding to the type of D, and inputs rounded to 11 bits with tf32.
  const double input = c.compute == kFastTf32 ? 0x1p-10 : 0;
  const double output = c.cd == kF32 ? 0 : c.cd == kF16 ? 0x1p-11 : 0x1p-8;
  for (std::int64_t batch = 0; batch < c.batch; ++batch) {
    for (std::int64_t column = 0; column < c.n; ++column) {
      for (std::int64_t row = 0; row < c.ldd(); ++row) {
        const std::int64_t i = batch * c.d_step() + column * c.ldd() + row;
        if (row >= c.m) {
          CHECK(number(after, c.cd, i) == number(before, c.cd, i));  // the padding
          continue;
        }
        double sum = 0;
        for (std::int64_t k = 0; k < c.k; ++k) {
          sum += number(a, c.ab, batch * c.a_step() + (c.transpose_a ? row * c.lda() + k : k * c.lda() + row)) *
                 number(b, c.ab, batch * c.b_step() + (c.transpose_b ? k * c.ldb() + column : column * c.ldb() + k));
        }
        double expected = c.alpha * sum + c.beta * number(before, c.cd, i);
        if (c.bias) expected += number(bias, bias_type, row);
        const double allowed = std::fabs(expected) * output + 1e-4 + static_cast<double>(c.k) * 8 * input;
        CHECK(std::fabs(number(after, c.cd, i) - expected) <= allowed);
      }
    }
  }
  objects.destroy();
  for (const std::uint64_t pointer : {at, bt, dt, other, bias_at, workspace}) release(pointer);
  destroy_stream(stream);
  device.close();
}

class CublasLtFace : public LibraryProcess {};

TEST_F(CublasLtFace, ProductsAreRight) {
  struct Types {
    int ab, cd, compute;
  };
  const Types types[] = {{kF32, kF32, kCompute32F},  {kBf16, kBf16, kCompute32F}, {kF16, kF16, kCompute32F},
                         {kBf16, kF32, kCompute32F}, {kF16, kF32, kCompute32F},   {kF32, kF32, kFastTf32}};
  unsigned seed = 0;
  for (const Types& t : types) {
    SCOPED_TRACE(++seed);
    expect_clean([&] {
      Call c{.ab = t.ab, .cd = t.cd, .compute = t.compute};
      for (int variant = 0; variant < 8; ++variant) {
        c.transpose_a = (variant & 1) != 0;
        c.transpose_b = (variant & 2) != 0;
        c.bias = (variant & 4) != 0;
        c.pad = variant % 3;
        c.batch = 1 + variant % 2;
        c.beta = variant % 2 == 0 ? 0.0F : 0.5F;
        c.in_place = variant % 4 == 1;
        c.alpha = variant == 3 ? -1.5F : 1.0F;
        c.m = 3 + variant * 4;
        c.n = 1 + variant * 3;
        c.k = 40 - variant * 5;
        check_product(c, seed * 100 + static_cast<unsigned>(variant));
      }
    });
  }
}

// C is not read when beta is 0: it may contain anything, or be null.
TEST_F(CublasLtFace, CIsNotReadWhenBetaIsZero) {
  expect_clean([] {
    const Device device;
    void* stream = make_stream();
    const Call c{};
    const Objects objects(c);
    const std::uint64_t a = upload(std::vector<float>(15, 1), stream), b = upload(std::vector<float>(12, 2), stream);
    const std::uint64_t d = upload(std::vector<float>(20, NAN), stream);
    for (const std::uint64_t old : {d, std::uint64_t{0}}) {
      OK(objects.multiply(c, a, b, old, d, nullptr, 0, 0, stream));
      for (const float value : download<float>(d, 20, stream)) CHECK(value == 6);
    }
    objects.destroy();
    for (const std::uint64_t pointer : {a, b, d}) release(pointer);
    destroy_stream(stream);
    device.close();
  });
}

TEST_F(CublasLtFace, HeuristicsOfferAlgorithmsThatFitTheWorkspace) {
  expect_clean([] {
    const Device device;
    Call c{.m = 64, .n = 64, .k = 64};
    for (const auto& [bytes, expected] : std::vector<std::pair<std::uint64_t, int>>{{1 << 20, 3}, {40000, 2}, {0, 1}}) {
      c.max_workspace = bytes;
      const Objects objects(c);
      Product results[8] = {};
      int count = 0;
      OK(objects.heuristic(results, 8, &count));
      CHECK_EQUAL(expected, count);
      for (int i = 0; i < count; ++i) {
        OK(results[i].state);
        CHECK(results[i].workspace <= bytes);
        for (int k = 0; k < i; ++k) CHECK(std::memcmp(results[i].algo, results[k].algo, sizeof results[i].algo) != 0);
      }
      OK(objects.heuristic(results, 1, &count));
      CHECK_EQUAL(1, count);
      objects.destroy();
    }
    device.close();
  });
}

// Types that do not go together are an answer, not a mistake, when a heuristic is asked for.
TEST_F(CublasLtFace, TypesThatDoNotGoTogether) {
  expect_clean([] {
    const Device device;
    const Call calls[] = {{.ab = kF32, .cd = kBf16},
                          {.ab = kBf16, .cd = kF16},
                          {.ab = kBf16, .compute = kFastTf32},
                          {.ab = kBf16, .cd = kBf16, .bias = true, .bias_type = kF32},
                          {.ab = kBf16, .cd = kF32, .bias = true, .bias_type = kBf16}};
    for (const Call& c : calls) {
      const Objects objects(c, 0x1000);
      Product result{};
      int count = -1;
      CHECK_EQUAL(kUnsupported, objects.heuristic(&result, 1, &count));
      CHECK_EQUAL(0, count);
      objects.destroy();
    }
    device.close();
  });
}

TEST_F(CublasLtFace, MistakesAreRefused) {
  const Call c{.m = 8, .n = 8, .k = 8};
  const auto with = [&](const std::function<void(const Objects&, const Product&, std::uint64_t, void*)>& body) {
    return kinds(run([&] {
      const Device device;
      void* stream = make_stream();
      const Objects objects(c);
      body(objects, objects.best(), allocate(1 << 20), stream);
      wait(stream);
    }));
  };
  // The same memory serves as every matrix: nothing runs.
  EXPECT_EQ(with([&](const Objects& o, const Product& best, std::uint64_t m, void* stream) {
              CHECK_EQUAL(kInvalid, o.multiply(c, 0, m, m, m, &best, m, best.workspace, stream));
            }),
            "bad-argument");
  EXPECT_EQ(with([&](const Objects& o, const Product& best, std::uint64_t m, void* stream) {
              CHECK_EQUAL(kInvalid, o.multiply(c, m + 4, m, m, m, &best, m, best.workspace, stream));
            }),
            "bad-argument");
  EXPECT_EQ(with([&](const Objects& o, const Product& best, std::uint64_t m, void* stream) {
              CHECK_EQUAL(kInvalid, o.multiply(c, m, m, m, m, &best, m, best.workspace - 1, stream));
            }),
            "bad-argument");
  EXPECT_EQ(with([&](const Objects& o, const Product& best, std::uint64_t m, void* stream) {
              CHECK_EQUAL(kInvalid, o.multiply(c, m, m, m, m, &best, m + 8, best.workspace, stream));
            }),
            "bad-argument");
  // An algorithm of another problem, and one that was made up.
  EXPECT_EQ(with([&](const Objects&, const Product& best, std::uint64_t m, void* stream) {
              Call other = c;
              other.n = 9;
              const Objects larger(other);
              CHECK_EQUAL(kInvalid, larger.multiply(other, m, m, m, m, &best, m, best.workspace, stream));
            }),
            "bad-argument");
  EXPECT_EQ(with([&](const Objects& o, Product best, std::uint64_t m, void* stream) {
              best.algo[0] = 0;
              CHECK_EQUAL(kInvalid, o.multiply(c, m, m, m, m, &best, m, best.workspace, stream));
            }),
            "bad-argument");
  // Handles: destroyed, of another kind.
  EXPECT_EQ(with([&](const Objects& o, const Product&, std::uint64_t, void*) {
              OK(lt("cublasLtMatrixLayoutDestroy", o.a));
              CHECK_EQUAL(kInvalid, lt("cublasLtMatrixLayoutDestroy", o.a));
              CHECK_EQUAL(kInvalid, lt("cublasLtMatmulDescDestroy", o.b));
            }),
            "bad-handle,bad-handle");
  EXPECT_EQ(with([&](const Objects& o, const Product&, std::uint64_t, void*) {
              CHECK_EQUAL(kInvalid, set("cublasLtMatmulDescSetAttribute", o.desc, 3, std::int64_t{1}));
              CHECK_EQUAL(kInvalid, set("cublasLtMatmulDescSetAttribute", o.desc, 99, std::int32_t{1}));
            }),
            "bad-argument,bad-argument");
  // A leading dimension below the rows; inner dimensions that differ.
  EXPECT_EQ(with([&](Objects o, const Product&, std::uint64_t, void*) {
              Product result{};
              int count = 0;
              void* const good = o.a;
              for (void* bad : {Objects::layout(kF32, 8, 8, 7), Objects::layout(kF32, 8, 9, 8)}) {
                o.a = bad;
                CHECK_EQUAL(kInvalid, o.heuristic(&result, 1, &count));
              }
              o.a = good;
            }),
            "bad-argument,bad-argument");
}

TEST_F(CublasLtFace, NeedsTheContextItWasMadeFor) {
  EXPECT_EQ(kinds(run([] {
              void* handle = nullptr;
              CHECK_EQUAL(1, lt("cublasLtCreate", &handle));  // no driver
              OK(cu("cuInit", 0U));
              CHECK_EQUAL(1, lt("cublasLtCreate", &handle));  // no context
            })),
            "no-context");
  EXPECT_EQ(kinds(run([] {
              const Device first(0), second(1);
              first.make_current();
              const Call c{};
              const Objects objects(c);
              second.make_current();
              Product result{};
              int count = 0;
              CHECK_EQUAL(kInvalid, objects.heuristic(&result, 1, &count));
            })),
            "wrong-owner");
}

TEST_F(CublasLtFace, TouchesOnlyMemoryOfTheDevice) {
  // A matrix that ends outside of its allocation, freed memory, memory of the host.
  const Call c{.m = 8, .n = 8, .k = 8};
  const auto with = [&](const std::function<std::uint64_t()>& left) {
    return kinds(run([&] {
      const Device device;
      void* stream = make_stream();
      const Objects objects(c);
      const std::uint64_t good = allocate(256);
      OK(objects.multiply(c, left(), good, good, allocate(256), nullptr, 0, 0, stream));
      CHECK_EQUAL(700, cu("cuStreamSynchronize", stream));
    }));
  };
  EXPECT_EQ(with([] { return allocate(128); }), "out-of-bounds");
  EXPECT_EQ(with([] {
              const std::uint64_t freed = allocate(256);
              release(freed);
              return freed;
            }),
            "use-after-free");
  static float host[64];
  EXPECT_EQ(with([] { return reinterpret_cast<std::uint64_t>(host); }), "bad-pointer");
}

// A product on one stream and a copy of its result on another; two products with one workspace.
TEST_F(CublasLtFace, RacesAreFound) {
  const Call c{.m = 8, .n = 8, .k = 8};
  const auto copied = [&](bool ordered) {
    return kinds(run([&] {
      const Device device;
      void *first = make_stream(), *second = make_stream(), *event = nullptr;
      const Objects objects(c);
      const auto ones = upload(std::vector<float>(64, 1), first), d = allocate(256), copy = allocate(256);
      OK(cu("cuEventCreate", &event, 2U));
      OK(objects.multiply(c, ones, ones, d, d, nullptr, 0, 0, first));
      OK(cu("cuEventRecord", event, first));
      if (ordered) OK(cu("cuStreamWaitEvent", second, event, 0U));
      OK(cu("cuMemcpyAsync", copy, d, std::size_t{256}, second));
      wait(second);
      wait(first);
    }));
  };
  EXPECT_EQ(copied(true), "");
  EXPECT_EQ(copied(false), "race");
  EXPECT_EQ(kinds(run([&] {
              const Device device;
              void *first = make_stream(), *second = make_stream();
              const Objects objects(c);
              const Product best = objects.best();
              CHECK(best.workspace > 0);
              const auto ones = upload(std::vector<float>(64, 1), first);
              const std::uint64_t workspace = allocate(best.workspace), x = allocate(256), y = allocate(256);
              OK(objects.multiply(c, ones, ones, x, x, &best, workspace, best.workspace, first));
              OK(objects.multiply(c, ones, ones, y, y, &best, workspace, best.workspace, second));
              wait(first);
              wait(second);
            })),
            "race");
}

TEST_F(CublasLtFace, CapturedProductsRunAgain) {
  expect_clean([] {
    const Device device;
    void *stream = make_stream(), *graph = nullptr, *exec = nullptr;
    const Call c{.m = 8, .n = 8, .k = 8};
    const Objects objects(c);
    const Product best = objects.best();
    const auto x = upload(std::vector<float>(64, 1), stream), y = upload(std::vector<float>(64, 0.125F), stream);
    const std::uint64_t workspace = allocate(best.workspace);
    OK(cu("cuStreamBeginCapture_v2", stream, 1));
    OK(objects.multiply(c, x, y, x, x, &best, workspace, best.workspace, stream));
    OK(cu("cuStreamEndCapture", stream, &graph));
    OK(cu("cuGraphInstantiateWithFlags", &exec, graph, 0ULL));
    for (const float value : download<float>(x, 64, stream)) CHECK(value == 1);  // a capture runs nothing
    const std::vector<float> twos(64, 2);
    OK(cu("cuMemcpyHtoDAsync_v2", x, static_cast<const void*>(twos.data()), std::size_t{256}, stream));
    for (int i = 0; i < 3; ++i) OK(cu("cuGraphLaunch", exec, stream));
    for (const float value : download<float>(x, 64, stream)) CHECK(value == 2);
    OK(cu("cuGraphExecDestroy", exec));
    OK(cu("cuGraphDestroy", graph));
    objects.destroy();
    for (const std::uint64_t pointer : {x, y, workspace}) release(pointer);
    destroy_stream(stream);
    device.close();
  });
}

TEST_F(CublasLtFace, WhatIsLeftOverIsALeakAndFaultsAreInjected) {
  const auto left = run([] {
    const Device device;
    Objects::layout(kF32, 8, 8, 8);
    device.close();
  });
  ASSERT_TRUE(left.is_object());
  ASSERT_EQ(left.at("leaks").size(), 1U);
  EXPECT_NE(left.at("leaks")[0].get<std::string>().find("cublasLt matrix layout"), std::string::npos);
  const auto failed = run(
      [] {
        const Device device;
        void* handle = nullptr;
        OK(lt("cublasLtCreate", &handle));
        OK(lt("cublasLtDestroy", handle));
        CHECK_EQUAL(14, lt("cublasLtCreate", &handle));
        CHECK(::dlsym(library("libcublasLt.so.13"), "cublasLtMatmul") == nullptr);
        device.close();
      },
      {{"SIM_FAULT", "fail:cublasLtCreate,call=2;hide:cublasLtMatmul"}});
  EXPECT_EQ(kinds(failed), "");
  EXPECT_EQ(failed.at("calls").at("cublasLtCreate"), 2);
}

}  // namespace
