// The simulated CNNL through its raw functions: products and sums beside plain loops, and what is reported when a call does not
// keep to the documented rules.
#include <cmath>

#include "tests/simulators/library_process.h"

namespace {

using sim_test::LibraryProcess;

template <typename... Args>
int cnrt(const char* name, Args... args) {
  return sim_test::call("neuware/libcnrt.so", name, args...);
}
template <typename... Args>
int cnnl(const char* name, Args... args) {
  return sim_test::call("neuware/libcnnl.so", name, args...);
}

constexpr int kHalf = 1, kFloat = 2, kBfloat16 = 17, kArray = 4;                    // types, the layout
constexpr int kComputeType = 0, kTransposeA = 3, kTransposeB = 4, kAllowTf32 = 10;  // attributes of products
constexpr int kNotInitialized = 1, kBadParam = 3, kNotSupported = 7;                // statuses

// Objects of a program, which are given back at its end.
class CnnlProgram {
 public:
  CnnlProgram() {
    OK(cnrt("cnrtSetDevice", 0));
    OK(cnrt("cnrtQueueCreate", &queue));
    handle = object("cnnlCreate", "cnnlDestroy");
    OK(cnnl("cnnlSetQueue", handle, queue));
  }
  void* object(const char* create, const char* destroy) {
    void* made = nullptr;
    OK(cnnl(create, &made));
    objects_.emplace_back(destroy, made);
    return made;
  }
  void* tensor(const std::vector<int>& sizes, int type = kFloat) {
    void* made = object("cnnlCreateTensorDescriptor", "cnnlDestroyTensorDescriptor");
    OK(cnnl("cnnlSetTensorDescriptor", made, kArray, type, static_cast<int>(sizes.size()), sizes.data()));
    return made;
  }
  void* memory(std::size_t bytes, const void* values = nullptr) {
    void* pointer = nullptr;
    OK(cnrt("cnrtMalloc", &pointer, bytes));
    if (values != nullptr) OK(cnrt("cnrtMemcpy", pointer, const_cast<void*>(values), bytes, 0));
    memory_.push_back(pointer);
    return pointer;
  }
  void* matrix(const std::vector<float>& values) { return memory(values.size() * 4, values.data()); }
  std::vector<float> result(void* pointer, std::size_t count) {
    std::vector<float> values(count);
    OK(cnrt("cnrtQueueSync", queue));
    OK(cnrt("cnrtMemcpy", static_cast<void*>(values.data()), pointer, count * 4, 2));
    return values;
  }
  // A product's description. Sums are in fp32.
  void* matmul(std::int32_t transposed_a, std::int32_t transposed_b, std::int32_t tf32) {
    void* made = object("cnnlMatMulDescCreate", "cnnlMatMulDescDestroy");
    const std::int32_t type = kFloat;
    const auto set = [&](int attribute, const std::int32_t& value) {
      OK(cnnl("cnnlSetMatMulDescAttr", made, attribute, static_cast<const void*>(&value), sizeof value));
    };
    set(kComputeType, type);
    set(kTransposeA, transposed_a);
    set(kTransposeB, transposed_b);
    set(kAllowTf32, tf32);
    return made;
  }
  // The way to compute it, and how much workspace that takes.
  void* algorithm(void* product, void* a, void* b, void* d, std::size_t* bytes) {
    void* found = object("cnnlCreateMatMulHeuristicResult", "cnnlDestroyMatMulHeuristicResult");
    void* made = object("cnnlMatMulAlgoCreate", "cnnlMatMulAlgoDestroy");
    int count = 0;
    OK(cnnl("cnnlGetMatMulAlgoHeuristic", handle, product, a, b, d, d, static_cast<void*>(nullptr), 1, &found, &count));
    CHECK_EQUAL(1, count);
    OK(cnnl("cnnlGetMatMulHeuristicResult", found, made, bytes));
    return made;
  }
  int multiply(void* product, void* way, void* a, void* x, void* b, void* y, void* d, void* out, void* workspace,
               std::size_t bytes, float beta = 0) const {
    const float alpha = 1;
    return cnnl("cnnlMatMul_v2", handle, product, way, static_cast<const void*>(&alpha), a, x, b, y,
                static_cast<const void*>(&beta), d, out, workspace, bytes, d, out);
  }
  int add(const std::vector<void*>& tensors, const std::vector<void*>& inputs, void* d, void* out, void* workspace,
          std::size_t bytes) const {
    return cnnl("cnnlAddN_v2", handle, tensors.data(), inputs.data(), static_cast<std::uint32_t>(inputs.size()), d, out,
                workspace, bytes);
  }
  void close() {
    OK(cnrt("cnrtQueueSync", queue));
    for (auto& [destroy, made] : objects_) OK(cnnl(destroy, made));
    for (void* one : memory_) OK(cnrt("cnrtFree", one));
    OK(cnrt("cnrtQueueDestroy", queue));
  }
  void *queue = nullptr, *handle = nullptr;

 private:
  std::vector<std::pair<const char*, void*>> objects_;
  std::vector<void*> memory_;
};

std::vector<float> quarters(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(static_cast<int>(i * 7 % 13) - 6) / 4;
  return values;
}

class CnnlFace : public LibraryProcess {
 protected:
  std::string kinds_of(const std::function<void()>& program) { return kinds(run(program)); }
};

TEST_F(CnnlFace, ProductsOfMatrices) {
  expect_clean([] {
    CnnlProgram mlu;
    const auto a = quarters(6), b = quarters(12);
    void *x = mlu.matrix(a), *y = mlu.matrix(b), *out = mlu.memory(8 * 4);
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        void* left = mlu.tensor(ta ? std::vector<int>{3, 2} : std::vector<int>{2, 3});
        void* right = mlu.tensor(tb ? std::vector<int>{4, 3} : std::vector<int>{3, 4});
        void* d = mlu.tensor({2, 4});
        void* product = mlu.matmul(ta, tb, 0);
        std::size_t bytes = 0;
        void* way = mlu.algorithm(product, left, right, d, &bytes);
        OK(mlu.multiply(product, way, left, x, right, y, d, out, mlu.memory(bytes), bytes));
        const auto got = mlu.result(out, 8);
        for (std::size_t i = 0; i < 2; ++i) {
          for (std::size_t j = 0; j < 4; ++j) {
            double sum = 0;
            for (std::size_t k = 0; k < 3; ++k)
              sum += double{a[ta ? k * 2 + i : i * 3 + k]} * b[tb ? j * 3 + k : k * 4 + j];
            CHECK(std::fabs(got[i * 4 + j] - sum) < 1e-5);
          }
        }
      }
    }
    mlu.close();
  });
}

// TensorFloat-32 is allowed unless it is forbidden: 1 + 2^-12 is rounded to 1.
TEST_F(CnnlFace, Tf32IsTheDefault) {
  expect_clean([] {
    CnnlProgram mlu;
    void *x = mlu.matrix({1 + 0x1p-12F}), *y = mlu.matrix({1}), *out = mlu.memory(4), *one = mlu.tensor({1, 1});
    for (const bool forbidden : {false, true}) {
      void* product = nullptr;
      if (forbidden) {
        product = mlu.matmul(0, 0, 0);
      } else {
        product = mlu.object("cnnlMatMulDescCreate", "cnnlMatMulDescDestroy");
        const std::int32_t type = kFloat;
        OK(cnnl("cnnlSetMatMulDescAttr", product, kComputeType, static_cast<const void*>(&type), sizeof type));
      }
      std::size_t bytes = 0;
      void* way = mlu.algorithm(product, one, one, one, &bytes);
      OK(mlu.multiply(product, way, one, x, one, y, one, out, mlu.memory(bytes), bytes));
      CHECK(mlu.result(out, 1)[0] == (forbidden ? 1 + 0x1p-12F : 1.0F));
    }
    mlu.close();
  });
}

TEST_F(CnnlFace, SumsOfTensorsThatAreSpread) {
  expect_clean([] {
    CnnlProgram mlu;
    const auto a = quarters(6), b = quarters(3);
    const std::vector<void*> tensors = {mlu.tensor({2, 3}), mlu.tensor({3}), mlu.tensor({2, 1})};
    const std::vector<void*> inputs = {mlu.matrix(a), mlu.matrix(b), mlu.matrix({10, 20})};
    void* out = mlu.memory(6 * 4);
    std::size_t bytes = 0;
    OK(cnnl("cnnlGetAddNWorkspaceSize", mlu.handle, tensors.data(), 3U, tensors[0], &bytes));
    OK(mlu.add(tensors, inputs, tensors[0], out, mlu.memory(bytes), bytes));
    const auto got = mlu.result(out, 6);
    for (std::size_t i = 0; i < 6; ++i) CHECK(got[i] == a[i] + b[i % 3] + (i < 3 ? 10.0F : 20.0F));
    mlu.close();
  });
}

TEST_F(CnnlFace, WhatTheDocumentationDoesNotAllowIsReported) {
  EXPECT_EQ(kinds_of([] {
              CnnlProgram mlu;
              void *a = mlu.tensor({2, 3}), *b = mlu.tensor({3, 4}), *d = mlu.tensor({2, 4}),
                   *half = mlu.tensor({3, 4}, kHalf);
              void *x = mlu.memory(64), *y = mlu.memory(64), *out = mlu.memory(64), *workspace = mlu.memory(4096);
              void* product = mlu.matmul(0, 0, 0);
              std::size_t bytes = 0;
              void* way = mlu.algorithm(product, a, b, d, &bytes);
              CHECK_EQUAL(kBadParam, mlu.multiply(product, way, a, x, half, y, d, out, workspace, bytes));
              CHECK_EQUAL(kBadParam, mlu.multiply(product, way, a, x, b, y, d, out, workspace, bytes - 1));
              CHECK_EQUAL(kBadParam, mlu.multiply(product, way, a, x, b, y, d, out, workspace, bytes, 1));
              CHECK_EQUAL(kBadParam, mlu.multiply(product, way, d, x, b, y, a, out, workspace, bytes));
              // The description was changed after the algorithm was chosen.
              const std::int32_t yes = 1;
              OK(cnnl("cnnlSetMatMulDescAttr", product, kAllowTf32, static_cast<const void*>(&yes), sizeof yes));
              CHECK_EQUAL(kBadParam, mlu.multiply(product, way, a, x, b, y, d, out, workspace, bytes));
              CHECK_EQUAL(kBadParam, cnnl("cnnlSetMatMulDescAttr", product, kAllowTf32, static_cast<const void*>(&yes),
                                          std::size_t{1}));
              void* unset = mlu.object("cnnlCreateTensorDescriptor", "cnnlDestroyTensorDescriptor");
              CHECK_EQUAL(kNotInitialized, mlu.add({unset}, {x}, d, out, workspace, bytes));
              CHECK_EQUAL(kBadParam, mlu.add({d, d}, {x, out}, d, out, workspace, bytes));
              void* bfloat16 = mlu.tensor({2, 4}, kBfloat16);
              CHECK_EQUAL(kNotSupported, mlu.add({bfloat16}, {x}, bfloat16, out, workspace, bytes));
              mlu.close();
            }),
            "bad-argument,bad-argument,bad-argument,bad-argument,bad-argument,bad-argument,bad-argument,bad-argument,"
            "bad-argument");
}

TEST_F(CnnlFace, AQueueOfAnotherDeviceIsRefusedAndWhatIsLeftIsALeak) {
  const auto report = run(
      [] {
        CnnlProgram mlu;
        OK(cnrt("cnrtSetDevice", 1));
        void* other = nullptr;
        OK(cnrt("cnrtQueueCreate", &other));
        CHECK_EQUAL(kBadParam, cnnl("cnnlSetQueue", mlu.handle, other));
        OK(cnrt("cnrtQueueDestroy", other));
        OK(cnrt("cnrtSetDevice", 0));
        mlu.tensor({1});
        OK(cnrt("cnrtQueueDestroy", mlu.queue));
      },
      {{"SIM_DEVICES", "2"}});
  EXPECT_EQ(kinds(report), "bad-argument");
  EXPECT_EQ(report.at("leaks").size(), 2u) << report.at("leaks");
}

}  // namespace
