// The simulated operators of Ascend through their raw functions: results beside plain loops, and what is reported when
// the two calls of an operator do not belong together.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/simulators/library_process.h"

namespace {

using sim_test::LibraryProcess;

template <typename... Args>
int aclrt(const char* name, Args... args) {
  return sim_test::call("ascend/libascendcl.so", name, args...);
}
template <typename... Args>
int op(const char* name, Args... args) {
  return sim_test::call("ascend/libopapi.so", name, args...);
}
template <typename Return = int, typename... Args>
Return base(const char* name, Args... args) {
  return sim_test::call<Return>("ascend/libnnopbase.so", name, args...);
}

constexpr int kFp32 = 0, kFp16 = 1, kInteger = 3;  // aclDataType
constexpr int kRows = 2, kBlocks = 29;             // aclFormat: ND, FRACTAL_NZ

class OperatorProgram {
 public:
  OperatorProgram() {
    OK(aclrt("aclInit", static_cast<const char*>(nullptr)));
    OK(aclrt("aclrtSetDevice", 0));
    OK(aclrt("aclrtCreateStream", &stream));
  }
  // Device memory with these bytes, given back at the end.
  char* memory(const void* values, std::size_t bytes) {
    void* pointer = nullptr;
    OK(aclrt("aclrtMalloc", &pointer, bytes, 0));
    if (values != nullptr) OK(aclrt("aclrtMemcpy", pointer, bytes, values, bytes, 1));
    memory_.push_back(pointer);
    return static_cast<char*>(pointer);
  }
  void* tensor(char* data, const std::vector<std::int64_t>& dims, int type = kFp32,
               std::vector<std::int64_t> strides = {}) {
    if (strides.empty()) {
      strides.resize(dims.size());
      std::int64_t step = 1;
      for (std::size_t i = dims.size(); i-- > 0; step *= dims[i]) strides[i] = step;
    }
    const std::uint64_t rank = dims.size();
    std::int64_t all = 1;
    for (const auto size : dims) all *= size;
    void* made = base<void*>("aclCreateTensor", dims.data(), rank, type, strides.data(), std::int64_t{0}, kRows,
                             static_cast<const std::int64_t*>(&all), std::uint64_t{1}, static_cast<void*>(data));
    CHECK(made != nullptr);
    tensors_.push_back(made);
    return made;
  }
  // A matrix of fp16 in blocks of 16 x 16, or its transpose.
  void* blocks(char* data, std::int64_t rows, std::int64_t columns, bool transposed) {
    const std::int64_t storage[] = {(columns + 15) / 16, (rows + 15) / 16, 16, 16};
    const std::int64_t dims[] = {transposed ? columns : rows, transposed ? rows : columns};
    const std::int64_t strides[] = {transposed ? 1 : columns, transposed ? columns : 1};
    void* made = base<void*>("aclCreateTensor", static_cast<const std::int64_t*>(dims), std::uint64_t{2}, kFp16,
                             static_cast<const std::int64_t*>(strides), std::int64_t{0}, kBlocks,
                             static_cast<const std::int64_t*>(storage), std::uint64_t{4}, static_cast<void*>(data));
    CHECK(made != nullptr);
    tensors_.push_back(made);
    return made;
  }
  std::vector<std::uint16_t> halves(char* data, std::size_t count) {
    std::vector<std::uint16_t> values(count);
    OK(aclrt("aclrtSynchronizeStream", stream));
    OK(aclrt("aclrtMemcpy", static_cast<void*>(values.data()), count * 2, static_cast<const void*>(data), count * 2,
             2));
    return values;
  }
  void* input(const std::vector<float>& values, const std::vector<std::int64_t>& dims) {
    return tensor(memory(values.data(), values.size() * 4), dims);
  }
  // The second call, with as much workspace as the first one asked for.
  int finish(const char* name, std::uint64_t bytes, void* executor) {
    void* workspace = bytes > 0 ? memory(nullptr, bytes) : nullptr;
    return op(name, workspace, bytes, executor, stream);
  }
  std::vector<float> result(char* data, std::size_t count) {
    std::vector<float> values(count);
    OK(aclrt("aclrtSynchronizeStream", stream));
    OK(aclrt("aclrtMemcpy", static_cast<void*>(values.data()), count * 4, static_cast<const void*>(data), count * 4,
             2));
    return values;
  }
  void close() {
    OK(aclrt("aclrtSynchronizeStream", stream));
    for (void* one : tensors_) OK(base("aclDestroyTensor", one));
    for (void* one : memory_) OK(aclrt("aclrtFree", one));
    OK(aclrt("aclrtDestroyStream", stream));
    OK(aclrt("aclrtResetDevice", 0));
    OK(aclrt("aclFinalize"));
  }
  void* stream = nullptr;
  std::uint64_t workspace = 0;
  void* executor = nullptr;

 private:
  std::vector<void*> tensors_, memory_;
};

std::vector<float> numbers(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(static_cast<int>(i * 7 % 13) - 6) / 4;
  return values;
}
void check_close(const std::vector<float>& got, const std::vector<double>& expected) {
  CHECK(got.size() == expected.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    CHECK(std::fabs(got[i] - expected[i]) <= 1e-5 * (1 + std::fabs(expected[i])));
}

class AclnnFace : public LibraryProcess {
 protected:
  std::string kinds_of(const std::function<void()>& program) { return kinds(run(program)); }
};

TEST_F(AclnnFace, ProductsOfMatrices) {
  expect_clean([] {
    OperatorProgram npu;
    const auto a = numbers(6), b = numbers(12);
    char* out = npu.memory(nullptr, 8 * 4);
    const auto expected = [&](bool transposed) {
      std::vector<double> sums(8);
      for (std::size_t i = 0; i < 2; ++i) {
        for (std::size_t j = 0; j < 4; ++j) {
          for (std::size_t k = 0; k < 3; ++k)
            sums[i * 4 + j] += double{a[i * 3 + k]} * b[transposed ? j * 3 + k : k * 4 + j];
        }
      }
      return sums;
    };
    void *self = npu.input(a, {2, 3}), *result = npu.tensor(out, {2, 4});
    char* memory = npu.memory(b.data(), 48);
    OK(op("aclnnMatmulGetWorkspaceSize", self, npu.tensor(memory, {3, 4}), result, std::int8_t{0}, &npu.workspace,
          &npu.executor));
    CHECK(npu.workspace > 0);
    OK(npu.finish("aclnnMatmul", npu.workspace, npu.executor));
    check_close(npu.result(out, 8), expected(false));
    OK(op("aclnnMmGetWorkspaceSize", self, npu.tensor(memory, {3, 4}, kFp32, {1, 3}), result, std::int8_t{0},
          &npu.workspace, &npu.executor));
    OK(npu.finish("aclnnMm", npu.workspace, npu.executor));
    check_close(npu.result(out, 8), expected(true));
    npu.close();
  });
}

TEST_F(AclnnFace, Elements) {
  expect_clean([] {
    OperatorProgram npu;
    const auto a = numbers(12), b = numbers(12);
    char* out = npu.memory(nullptr, 48);
    void *x = npu.input(a, {3, 4}), *y = npu.input(b, {3, 4}), *result = npu.tensor(out, {3, 4});
    float two = 2;
    void* alpha = base<void*>("aclCreateScalar", static_cast<void*>(&two), kFp32);
    std::vector<double> expected(12);
    OK(op("aclnnAddGetWorkspaceSize", x, y, alpha, result, &npu.workspace, &npu.executor));
    OK(npu.finish("aclnnAdd", npu.workspace, npu.executor));
    for (std::size_t i = 0; i < 12; ++i) expected[i] = double{a[i]} + 2 * b[i];
    check_close(npu.result(out, 12), expected);
    OK(base("aclDestroyScalar", alpha));

    OK(op("aclnnSiluGetWorkspaceSize", x, result, &npu.workspace, &npu.executor));
    OK(npu.finish("aclnnSilu", npu.workspace, npu.executor));
    for (std::size_t i = 0; i < 12; ++i) expected[i] = a[i] / (1 + std::exp(-double{a[i]}));
    check_close(npu.result(out, 12), expected);

    OK(op("aclnnSwiGluGetWorkspaceSize", x, std::int64_t{-1}, npu.tensor(out, {3, 2}), &npu.workspace, &npu.executor));
    OK(npu.finish("aclnnSwiGlu", npu.workspace, npu.executor));
    expected.resize(6);
    for (std::size_t i = 0; i < 6; ++i) {
      const double gate = a[i / 2 * 4 + i % 2], up = a[i / 2 * 4 + i % 2 + 2];
      expected[i] = gate / (1 + std::exp(-gate)) * up;
    }
    check_close(npu.result(out, 6), expected);
    npu.close();
  });
}

// Small tensors are spread over large ones; masks, whole numbers and rows.
TEST_F(AclnnFace, SpreadMasksAndRows) {
  expect_clean([] {
    OperatorProgram npu;
    const auto number = [](std::int64_t value) {
      return base<void*>("aclCreateScalar", static_cast<void*>(&value), 9);
    };
    const auto done = [&](const char* name, int status) {
      OK(status);
      OK(npu.finish(name, npu.workspace, npu.executor));
    };
    void *zero = number(0), *one = number(1), *two = number(2), *four = number(4);
    // 0 1 2 3, and by twos.
    char *slots = npu.memory(nullptr, 16), *twos = npu.memory(nullptr, 8);
    void *row = npu.tensor(slots, {1, 4}, kInteger), *column = npu.tensor(twos, {2, 1}, kInteger);
    done("aclnnArange", op("aclnnArangeGetWorkspaceSize", zero, four, one, row, &npu.workspace, &npu.executor));
    done("aclnnArange", op("aclnnArangeGetWorkspaceSize", zero, four, two, npu.tensor(twos, {2}, kInteger),
                           &npu.workspace, &npu.executor));
    // Slots behind 0 and behind 2 are filled with 9.
    char *mask = npu.memory(nullptr, 8), *out = npu.memory(nullptr, 64);
    constexpr int boolean = 12;
    void* unseen = npu.tensor(mask, {2, 4}, boolean);
    done("aclnnGtTensor", op("aclnnGtTensorGetWorkspaceSize", row, column, unseen, &npu.workspace, &npu.executor));
    float nine = 9;
    void* fill = base<void*>("aclCreateScalar", static_cast<void*>(&nine), kFp32);
    const std::vector<float> given = {1, 2, 3, 4, 5, 6, 7, 8, -1, -2, -3, -4, -5, -6, -7, -8};
    void* scores = npu.tensor(out, {2, 2, 4});
    done("aclnnInplaceCopy",
         op("aclnnInplaceCopyGetWorkspaceSize", scores, npu.input(given, {2, 2, 4}), &npu.workspace, &npu.executor));
    done("aclnnInplaceMaskedFillScalar", op("aclnnInplaceMaskedFillScalarGetWorkspaceSize", scores,
                                            npu.tensor(mask, {1, 2, 4}, boolean), fill, &npu.workspace, &npu.executor));
    check_close(npu.result(out, 16), {1, 9, 9, 9, 5, 6, 7, 9, -1, 9, 9, 9, -5, -6, -7, 9});
    // Sums and maxima of rows.
    const std::int64_t last = -1;
    void* dims = base<void*>("aclCreateIntArray", &last, std::uint64_t{1});
    char* few = npu.memory(nullptr, 16);
    done("aclnnReduceSum", op("aclnnReduceSumGetWorkspaceSize", scores, dims, false, kFp32, npu.tensor(few, {2, 2}),
                              &npu.workspace, &npu.executor));
    check_close(npu.result(few, 4), {28, 27, 26, -9});
    done("aclnnAmax", op("aclnnAmaxGetWorkspaceSize", scores, dims, true, npu.tensor(few, {2, 2, 1}), &npu.workspace,
                         &npu.executor));
    check_close(npu.result(few, 4), {9, 9, 9, 9});
    // A NaN and infinities are replaced.
    done("aclnnNanToNum", op("aclnnNanToNumGetWorkspaceSize", npu.input({NAN, INFINITY, -INFINITY, 1}, {4}), 5.0F, 6.0F,
                             7.0F, npu.tensor(few, {4}), &npu.workspace, &npu.executor));
    check_close(npu.result(few, 4), {5, 6, 7, 1});
    // Rows 2 and 0 of four; and back, with two of the same index, of which it is not promised which stays: here the first.
    const std::int32_t chosen[] = {2, 0}, same[] = {1, 1};
    void *at = npu.tensor(npu.memory(chosen, 8), {2}, kInteger),
         *twice = npu.tensor(npu.memory(same, 8), {2}, kInteger);
    void *all = npu.tensor(out, {4, 4}), *rows = npu.tensor(npu.memory(nullptr, 32), {2, 4});
    done("aclnnIndexSelect",
         op("aclnnIndexSelectGetWorkspaceSize", all, std::int64_t{0}, at, rows, &npu.workspace, &npu.executor));
    done("aclnnInplaceIndexCopy",
         op("aclnnInplaceIndexCopyGetWorkspaceSize", all, std::int64_t{0}, twice, rows, &npu.workspace, &npu.executor));
    check_close(npu.result(out, 16), {1, 9, 9, 9, -1, 9, 9, 9, -1, 9, 9, 9, -5, -6, -7, 9});
    // Whole numbers: held within a range, advanced, converted.
    done("aclnnClamp", op("aclnnClampGetWorkspaceSize", row, one, two, row, &npu.workspace, &npu.executor));
    done("aclnnInplaceAdds", op("aclnnInplaceAddsGetWorkspaceSize", row, four, two, &npu.workspace, &npu.executor));
    done("aclnnCast",
         op("aclnnCastGetWorkspaceSize", row, kFp32, npu.tensor(few, {1, 4}), &npu.workspace, &npu.executor));
    check_close(npu.result(few, 4), {9, 9, 10, 10});
    for (void* scalar : {zero, one, two, four, fill}) OK(base("aclDestroyScalar", scalar));
    OK(base("aclDestroyIntArray", dims));
    npu.close();
  });
  // Out of range, and a result of another shape than the one that is spread to.
  EXPECT_EQ(
      kinds_of([] {
        OperatorProgram npu;
        const std::int32_t beyond[] = {4};
        void* at = npu.tensor(npu.memory(beyond, 4), {1}, kInteger);
        void *all = npu.input(numbers(8), {4, 2}), *row = npu.input(numbers(2), {1, 2});
        // First what the call itself refuses: the copy is found out when it runs.
        CHECK_EQUAL(161002, op("aclnnMulGetWorkspaceSize", all, row, row, &npu.workspace, &npu.executor));
        OK(op("aclnnInplaceIndexCopyGetWorkspaceSize", all, std::int64_t{0}, at, row, &npu.workspace, &npu.executor));
        OK(npu.finish("aclnnInplaceIndexCopy", npu.workspace, npu.executor));
        npu.close();
      }),
      "bad-argument,out-of-bounds");
}

TEST_F(AclnnFace, Rows) {
  expect_clean([] {
    OperatorProgram npu;
    const auto a = numbers(12), weights = numbers(4);
    char *out = npu.memory(nullptr, 48), *scale = npu.memory(nullptr, 12);
    void *x = npu.input(a, {3, 4}), *gamma = npu.input(weights, {4}), *result = npu.tensor(out, {3, 4});
    OK(op("aclnnRmsNormGetWorkspaceSize", x, gamma, 1e-5, result, npu.tensor(scale, {3, 1}), &npu.workspace,
          &npu.executor));
    OK(npu.finish("aclnnRmsNorm", npu.workspace, npu.executor));
    std::vector<double> expected(12), factors(3);
    for (std::size_t row = 0; row < 3; ++row) {
      double sum = 0;
      for (std::size_t i = 0; i < 4; ++i) sum += double{a[row * 4 + i]} * a[row * 4 + i];
      factors[row] = 1 / std::sqrt(sum / 4 + 1e-5);
      for (std::size_t i = 0; i < 4; ++i) expected[row * 4 + i] = a[row * 4 + i] * factors[row] * weights[i];
    }
    check_close(npu.result(out, 12), expected);
    check_close(npu.result(scale, 3), factors);

    for (const std::int64_t dim : {0, 1}) {
      OK(op("aclnnSoftmaxGetWorkspaceSize", x, dim, result, &npu.workspace, &npu.executor));
      OK(npu.finish("aclnnSoftmax", npu.workspace, npu.executor));
      for (std::size_t i = 0; i < 12; ++i) {
        double sum = 0;
        for (std::size_t k = 0; k < 12; ++k) {
          if (dim == 1 ? k / 4 == i / 4 : k % 4 == i % 4) sum += std::exp(double{a[k]});
        }
        expected[i] = std::exp(double{a[i]}) / sum;
      }
      check_close(npu.result(out, 12), expected);
    }

    const std::int32_t rows[] = {2, 0, 2};
    OK(op("aclnnEmbeddingGetWorkspaceSize", x, npu.tensor(npu.memory(rows, 12), {3}, kInteger), result, &npu.workspace,
          &npu.executor));
    OK(npu.finish("aclnnEmbedding", npu.workspace, npu.executor));
    for (std::size_t i = 0; i < 12; ++i) expected[i] = a[static_cast<std::size_t>(rows[i / 4]) * 4 + i % 4];
    check_close(npu.result(out, 12), expected);
    npu.close();
  });
}

TEST_F(AclnnFace, Rotations) {
  expect_clean([] {
    OperatorProgram npu;
    // Two positions of three heads with four numbers each; the angles are those of the positions.
    const auto x = numbers(24), c = numbers(8);
    std::vector<float> s = numbers(9);
    s.erase(s.begin());
    char* out = npu.memory(nullptr, 96);
    void *in = npu.input(x, {1, 2, 3, 4}), *cosines = npu.input(c, {1, 2, 1, 4}), *sines = npu.input(s, {1, 2, 1, 4});
    for (const std::int64_t mode : {0, 1}) {
      OK(op("aclnnRotaryPositionEmbeddingGetWorkspaceSize", in, cosines, sines, mode, npu.tensor(out, {1, 2, 3, 4}),
            &npu.workspace, &npu.executor));
      OK(npu.finish("aclnnRotaryPositionEmbedding", npu.workspace, npu.executor));
      std::vector<double> expected(24);
      for (std::size_t i = 0; i < 24; ++i) {
        const std::size_t k = i % 4, row = i - k, angle = i / 12 * 4 + k;
        const double halves[] = {-x[row + 2], -x[row + 3], x[row], x[row + 1]};
        const double neighbours[] = {-x[row + 1], x[row], -x[row + 3], x[row + 2]};
        expected[i] = double{x[i]} * c[angle] + (mode == 0 ? halves[k] : neighbours[k]) * s[angle];
      }
      check_close(npu.result(out, 24), expected);
    }
    npu.close();
  });
}

// Two heads of queries on one of keys, two rows on three columns.
TEST_F(AclnnFace, Attention) {
  expect_clean([] {
    OperatorProgram npu;
    const auto q = numbers(16), k = numbers(12);
    auto v = numbers(13);
    v.erase(v.begin());
    char *out = npu.memory(nullptr, 64), *most = npu.memory(nullptr, 128), *sum = npu.memory(nullptr, 128);
    const std::vector<char> left_out = {0, 1, 0, 0, 0, 1}, triangle(2048 * 2048);
    void* none = nullptr;
    void *own_mask = npu.tensor(npu.memory(left_out.data(), 6), {2, 3}, 12),
         *big_mask = npu.tensor(npu.memory(triangle.data(), triangle.size()), {2048, 2048}, 12);
    const std::int64_t all = 65535;
    for (const std::int64_t mode : {-1, 0, 1, 2, 3}) {  // -1: no mask
      for (const bool heads_first : {true, false}) {
        const std::vector<std::int64_t> wide = {1, 2, 2, 4};
        const std::vector<std::int64_t> narrow =
            heads_first ? std::vector<std::int64_t>{1, 1, 3, 4} : std::vector<std::int64_t>{1, 3, 1, 4};
        char layout[5];
        std::strcpy(layout, heads_first ? "BNSD" : "BSND");
        OK(op("aclnnFlashAttentionScoreGetWorkspaceSize", npu.input(q, wide), npu.input(k, narrow),
              npu.input(v, narrow), none, none, none,
              mode < 0   ? none
              : mode < 2 ? own_mask
                         : big_mask,
              none, 0.5, 1.0, all, all, std::int64_t{2}, static_cast<char*>(layout), std::int64_t{0},
              std::max(mode, std::int64_t{0}), npu.tensor(most, {1, 2, 2, 8}), npu.tensor(sum, {1, 2, 2, 8}), none,
              npu.tensor(out, wide), &npu.workspace, &npu.executor));
        OK(npu.finish("aclnnFlashAttentionScore", npu.workspace, npu.executor));
        std::vector<double> expected(16), sums(32);
        for (std::size_t line = 0; line < 4; ++line) {
          const std::size_t head = line / 2, i = line % 2, from = (heads_first ? line : i * 2 + head) * 4;
          double scores[3] = {}, highest = -1e9, total = 0;
          bool used[3];
          for (std::size_t j = 0; j < 3; ++j) {
            used[j] = mode < 0 || (mode < 2 ? left_out[i * 3 + j] == 0 : j <= i + (mode == 3 ? 1 : 0));
            for (std::size_t c = 0; c < 4; ++c) scores[j] += 0.5 * q[from + c] * k[j * 4 + c];
            if (used[j]) highest = std::max(highest, scores[j]);
          }
          for (std::size_t j = 0; j < 3; ++j) total += used[j] ? std::exp(scores[j] - highest) : 0;
          for (std::size_t j = 0; j < 3; ++j) {
            for (std::size_t c = 0; used[j] && c < 4; ++c) {
              expected[from + c] += std::exp(scores[j] - highest) / total * v[j * 4 + c];
            }
          }
          for (std::size_t c = 0; c < 8; ++c) sums[line * 8 + c] = total;
        }
        check_close(npu.result(out, 16), expected);
        check_close(npu.result(sum, 32), sums);
      }
    }
    npu.close();
  });
}

// Two steps of AdamW, with the number of the step as a whole number and as a float, also towards a maximum, and with the greatest
// second moment (amsgrad).
TEST_F(AclnnFace, AdamSteps) {
  expect_clean([] {
    OperatorProgram npu;
    const std::size_t count = 12;
    const float lr = 0.01F, beta1 = 0.9F, beta2 = 0.99F, decay = 0.1F, eps = 1e-6F;
    const auto gradient = numbers(count);
    void *g = npu.input(gradient, {3, 4}), *none = nullptr;
    for (const bool maximize : {false, true}) {
      for (const bool amsgrad : {false, true}) {
        std::vector<float> start = numbers(count + 2);
        start.erase(start.begin(), start.begin() + 2);
        const std::vector<float> nothing(count), high(count, 0.5F);
        char *p = npu.memory(start.data(), 48), *m = npu.memory(nothing.data(), 48),
             *v = npu.memory(nothing.data(), 48), *most = npu.memory(high.data(), 48);
        std::vector<double> expected(start.begin(), start.end()), first(count), second(count), highest(count, 0.5);
        for (std::int64_t step = 1; step <= 2; ++step) {
          const auto as_float = static_cast<float>(step);
          void* number =
              step == 1 ? npu.tensor(npu.memory(&step, 8), {1}, 9) : npu.tensor(npu.memory(&as_float, 4), {1});
          OK(op("aclnnApplyAdamWV2GetWorkspaceSize", npu.tensor(p, {3, 4}), npu.tensor(m, {3, 4}),
                npu.tensor(v, {3, 4}), amsgrad ? npu.tensor(most, {3, 4}) : none, g, number, lr, beta1, beta2, decay,
                eps, amsgrad, maximize, &npu.workspace, &npu.executor));
          OK(npu.finish("aclnnApplyAdamWV2", npu.workspace, npu.executor));
          const double t = static_cast<double>(step);
          for (std::size_t i = 0; i < count; ++i) {
            const double change = maximize ? -gradient[i] : gradient[i];
            first[i] = double{beta1} * first[i] + (1 - double{beta1}) * change;
            second[i] = double{beta2} * second[i] + (1 - double{beta2}) * change * change;
            double square = second[i] / (1 - std::pow(double{beta2}, t));
            if (amsgrad) square = highest[i] = std::max(highest[i], square);
            expected[i] -=
                double{lr} * (first[i] / (1 - std::pow(double{beta1}, t)) / (std::sqrt(square) + double{eps}) +
                              double{decay} * expected[i]);
          }
        }
        check_close(npu.result(p, count), expected);
        check_close(npu.result(m, count), first);
        check_close(npu.result(v, count), second);
        if (amsgrad) check_close(npu.result(most, count), highest);
      }
    }
    npu.close();
  });
  EXPECT_EQ(kinds_of([] {
              OperatorProgram npu;
              void *x = npu.input(numbers(4), {4}), *other = npu.input(numbers(4), {2, 2}), *none = nullptr;
              const auto call = [&](void* gradient, void* step, bool amsgrad) {
                return op("aclnnApplyAdamWV2GetWorkspaceSize", x, x, x, none, gradient, step, 0.1F, 0.9F, 0.9F, 0.0F,
                          0.1F, amsgrad, false, &npu.workspace, &npu.executor);
              };
              void* one = npu.input({1}, {1});
              CHECK_EQUAL(161002, call(other, one, false));
              CHECK_EQUAL(161002, call(x, x, false));
              CHECK_EQUAL(161001, call(x, one, true));
              npu.close();
            }),
            "bad-argument,bad-argument,bad-argument");
}

// The layout is that of CANN's documents: [columns / 16][rows / 16][16][16], filled up with zeros.
TEST_F(AclnnFace, WeightsInBlocks) {
  expect_clean([] {
    OperatorProgram npu;
    // Small whole numbers in fp16: n is 0x3c00 + 0x400 * log2(n) for powers of two.
    const std::int64_t rows = 20, columns = 35;
    const std::uint16_t powers[] = {0x0000, 0x3c00, 0x4000, 0x4400, 0xbc00};
    const float values[] = {0, 1, 2, 4, -1};
    const auto which = [](std::int64_t i) { return static_cast<std::size_t>((i * 7 + i / 35) % 5); };
    std::vector<std::uint16_t> weight(static_cast<std::size_t>(rows * columns));
    for (std::int64_t i = 0; i < rows * columns; ++i) weight[static_cast<std::size_t>(i)] = powers[which(i)];
    char* packed = npu.memory(nullptr, 3 * 2 * 256 * 2);
    void* in_rows = npu.tensor(npu.memory(weight.data(), weight.size() * 2), {rows, columns}, kFp16);
    OK(op("aclnnNpuFormatCastGetWorkspaceSize", in_rows, npu.blocks(packed, rows, columns, false), &npu.workspace,
          &npu.executor));
    OK(npu.finish("aclnnNpuFormatCast", npu.workspace, npu.executor));
    const std::vector<std::uint16_t> stored = npu.halves(packed, 3 * 2 * 256);
    for (std::int64_t r = 0; r < 32; ++r) {
      for (std::int64_t c = 0; c < 48; ++c) {
        const std::uint16_t expected =
            r < rows && c < columns ? weight[static_cast<std::size_t>(r * columns + c)] : std::uint16_t{0};
        CHECK_EQUAL(expected, stored[static_cast<std::size_t>(((c / 16 * 2 + r / 16) * 16 + r % 16) * 16 + c % 16)]);
      }
    }
    // x [2, 35] times the transpose, and x [2, 20] times the matrix.
    for (const bool transposed : {true, false}) {
      const std::int64_t k = transposed ? columns : rows, n = transposed ? rows : columns;
      std::vector<std::uint16_t> x(static_cast<std::size_t>(2 * k));
      for (std::int64_t i = 0; i < 2 * k; ++i) x[static_cast<std::size_t>(i)] = powers[which(i + 3)];
      char* out = npu.memory(nullptr, static_cast<std::size_t>(2 * n) * 4);
      OK(op("aclnnMatmulWeightNzGetWorkspaceSize", npu.tensor(npu.memory(x.data(), x.size() * 2), {2, k}, kFp16),
            npu.blocks(packed, rows, columns, transposed), npu.tensor(out, {2, n}), std::int8_t{0}, &npu.workspace,
            &npu.executor));
      OK(npu.finish("aclnnMatmulWeightNz", npu.workspace, npu.executor));
      std::vector<double> sums(static_cast<std::size_t>(2 * n));
      for (std::int64_t i = 0; i < 2 * n; ++i) {
        for (std::int64_t j = 0; j < k; ++j) {
          const std::int64_t at = transposed ? i % n * columns + j : j * columns + i % n;
          sums[static_cast<std::size_t>(i)] += double{values[which(i / n * k + j + 3)]} * values[which(at)];
        }
      }
      check_close(npu.result(out, static_cast<std::size_t>(2 * n)), sums);
    }
    char* again = npu.memory(nullptr, weight.size() * 2);
    OK(op("aclnnNpuFormatCastGetWorkspaceSize", npu.blocks(packed, rows, columns, false),
          npu.tensor(again, {rows, columns}, kFp16), &npu.workspace, &npu.executor));
    OK(npu.finish("aclnnNpuFormatCast", npu.workspace, npu.executor));
    CHECK(npu.halves(again, weight.size()) == weight);
    npu.close();
  });
}

TEST_F(AclnnFace, WeightsInBlocksAreChecked) {
  EXPECT_EQ(kinds_of([] {
              OperatorProgram npu;
              char* data = npu.memory(nullptr, 3 * 2 * 256 * 2);
              void *x = npu.tensor(data, {2, 35}, kFp16), *out = npu.tensor(npu.memory(nullptr, 160), {2, 20});
              void *rows = npu.tensor(data, {35, 20}, kFp16), *blocks = npu.blocks(data, 20, 35, true);
              const auto product = [&](void* a, void* b, void* d) {
                return op("aclnnMatmulWeightNzGetWorkspaceSize", a, b, d, std::int8_t{0}, &npu.workspace,
                          &npu.executor);
              };
              CHECK_EQUAL(161002, product(x, rows, out));                                 // not in blocks
              CHECK_EQUAL(161002, product(x, blocks, npu.tensor(data, {2, 19}, kFp16)));  // sizes
              CHECK_EQUAL(161002, product(npu.tensor(data, {2, 1}, kFp16), npu.blocks(data, 20, 1, true), out));
              CHECK_EQUAL(161002, op("aclnnMatmulGetWorkspaceSize", x, blocks, out, std::int8_t{0}, &npu.workspace,
                                     &npu.executor));  // in blocks
              CHECK_EQUAL(161002, op("aclnnNpuFormatCastGetWorkspaceSize", rows, blocks, &npu.workspace,
                                     &npu.executor));  // transposed
              const std::int64_t dims[] = {20, 35}, storage[] = {2, 3, 16, 16};
              CHECK(base<void*>("aclCreateTensor", static_cast<const std::int64_t*>(dims), std::uint64_t{2}, kFp16,
                                static_cast<const std::int64_t*>(nullptr), std::int64_t{0}, kBlocks,
                                static_cast<const std::int64_t*>(storage), std::uint64_t{4},
                                static_cast<void*>(data)) == nullptr);
              npu.close();
            }),
            "bad-argument,bad-argument,bad-argument,bad-argument,bad-argument,bad-argument");
}

TEST_F(AclnnFace, TheTwoCallsBelongTogether) {
  EXPECT_EQ(kinds_of([] {
              OperatorProgram npu;
              char* out = npu.memory(nullptr, 48);
              void *x = npu.input(numbers(12), {3, 4}), *result = npu.tensor(out, {3, 4});
              const auto first = [&] {
                OK(op("aclnnSoftmaxGetWorkspaceSize", x, std::int64_t{1}, result, &npu.workspace, &npu.executor));
              };
              first();
              CHECK_EQUAL(161002, npu.finish("aclnnSilu", npu.workspace, npu.executor));  // another operator's
              CHECK_EQUAL(161002, npu.finish("aclnnSoftmax", npu.workspace - 1, npu.executor));
              OK(npu.finish("aclnnSoftmax", npu.workspace, npu.executor));
              CHECK_EQUAL(161002, npu.finish("aclnnSoftmax", npu.workspace, npu.executor));  // used up
              first();
              OK(base("aclSetAclOpExecutorRepeatable", npu.executor));
              for (int i = 0; i < 2; ++i) OK(npu.finish("aclnnSoftmax", npu.workspace, npu.executor));
              OK(base("aclDestroyAclOpExecutor", npu.executor));
              // A tensor that is gone before the second call.
              const std::int64_t dims[] = {3, 4}, storage[] = {12};
              void* gone =
                  base<void*>("aclCreateTensor", static_cast<const std::int64_t*>(dims), std::uint64_t{2}, kFp32,
                              static_cast<const std::int64_t*>(nullptr), std::int64_t{0}, 2,
                              static_cast<const std::int64_t*>(storage), std::uint64_t{1}, static_cast<void*>(out));
              OK(op("aclnnSiluGetWorkspaceSize", x, gone, &npu.workspace, &npu.executor));
              OK(base("aclDestroyTensor", gone));
              CHECK_EQUAL(161002, npu.finish("aclnnSilu", npu.workspace, npu.executor));
              OK(base("aclDestroyAclOpExecutor", npu.executor));
              npu.close();
            }),
            "bad-handle,bad-argument,bad-handle,bad-handle");
}

TEST_F(AclnnFace, ArgumentsAreChecked) {
  EXPECT_EQ(kinds_of([] {
              OperatorProgram npu;
              char* out = npu.memory(nullptr, 48);
              void *x = npu.input(numbers(12), {3, 4}), *result = npu.tensor(out, {3, 4}), *none = nullptr;
              void* half = npu.tensor(out, {3, 4}, kFp16);
              CHECK_EQUAL(161001, op("aclnnSiluGetWorkspaceSize", x, none, &npu.workspace, &npu.executor));
              CHECK_EQUAL(161002, op("aclnnSiluGetWorkspaceSize", x, half, &npu.workspace, &npu.executor));
              CHECK_EQUAL(161002, op("aclnnMatmulGetWorkspaceSize", x, x, result, std::int8_t{0}, &npu.workspace,
                                     &npu.executor));
              CHECK_EQUAL(161002, op("aclnnSoftmaxGetWorkspaceSize", x, std::int64_t{2}, result, &npu.workspace,
                                     &npu.executor));
              const std::int64_t dims[] = {3, 4}, storage[] = {11};
              CHECK(base<void*>("aclCreateTensor", static_cast<const std::int64_t*>(dims), std::uint64_t{2}, kFp32,
                                static_cast<const std::int64_t*>(nullptr), std::int64_t{0}, 2,
                                static_cast<const std::int64_t*>(storage), std::uint64_t{1},
                                static_cast<void*>(out)) == nullptr);
              npu.close();
            }),
            "bad-argument,bad-argument,bad-argument,bad-argument,bad-argument");
}

TEST_F(AclnnFace, WorkRunsInTheOrderOfItsStream) {
  EXPECT_EQ(kinds_of([] {
              OperatorProgram npu;
              char* out = npu.memory(nullptr, 48);
              void *x = npu.input(numbers(12), {3, 4}), *result = npu.tensor(out, {3, 4}), *other = nullptr;
              OK(aclrt("aclrtCreateStream", &other));
              OK(op("aclnnSiluGetWorkspaceSize", x, result, &npu.workspace, &npu.executor));
              OK(npu.finish("aclnnSilu", npu.workspace, npu.executor));
              OK(aclrt("aclrtMemsetAsync", static_cast<void*>(out), std::size_t{48}, 0, std::size_t{48}, other));
              OK(aclrt("aclrtSynchronizeDevice"));
              OK(aclrt("aclrtDestroyStream", other));
              npu.close();
            }),
            "race");
}

}  // namespace
