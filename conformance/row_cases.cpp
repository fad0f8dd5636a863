// Cases of ops that work row by row: embedding, norms, softmax.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "conformance/op_run.h"

namespace anyaccel::conformance {
namespace row_group {
namespace {

void embedding(const Context& c) {
  OpRun op(c, "embedding");
  for (const int32_t dtype : float_dtypes) {
    for (const int32_t output : float_dtypes) {
      for (const int32_t index : {AA_DTYPE_I32, AA_DTYPE_I64}) {
        for (const int64_t width : {1, 33, 256}) {
          const Values ids = {9, 0, 3, 3, 8};
          const auto w = static_cast<size_t>(width);
          OpTensor table(c, dtype, {10, width}, numbers(10 * w, 1), index == AA_DTYPE_I32 ? dense : padded);
          OpTensor which(c, index, {5}, ids, index == AA_DTYPE_I32 ? dense : spread);
          OpTensor out(c, output, {5, width}, {}, dtype == output ? dense : padded);
          if (!op.run({out.view(), table.view(), which.view()})) continue;
          Values expected;
          for (const double id : ids) {
            for (size_t j = 0; j < w; ++j) expected.push_back(table.given()[static_cast<size_t>(id) * w + j]);
          }
          op.compare(out, expected, std::string(dtype_text(dtype)) + " rows of " + std::to_string(width));
        }
      }
    }
  }
  op.finish();
}

void embedding_stays_in_its_tensors(const Context& c) {
  // The result for an index out of range is not defined, but nothing else may change and nothing may crash.
  OpRun op(c, "embedding");
  OpTensor table(c, AA_DTYPE_F32, {10, 33}, numbers(330, 2));
  OpTensor which(c, AA_DTYPE_I32, {4}, {3, 10, -1, 2000000000});
  OpTensor out(c, AA_DTYPE_F32, {4, 33});
  aa_status* status = nullptr;
  if (!op.run({out.view(), table.view(), which.view()}, nullptr, 0, "", false, &status)) c.unsupported("refused");
  if (status) {
    c.error(status, {AA_OUT_OF_RANGE}, "\"embedding\" of ids out of range");
  } else {
    const Values found = out.found();
    c.expect(std::equal(table.given().begin() + 99, table.given().begin() + 132, found.begin()),
             "ids out of range spoil the row of a good one");
  }
  op.unchanged(table, "its table");
  out.found();
  c.synchronize();
}

void embedding_shard(const Context& c) {
  OpRun op(c, "embedding_shard");
  for (const int32_t dtype : float_dtypes) {
    for (const int32_t index : {AA_DTYPE_I32, AA_DTYPE_I64}) {
      for (const int64_t width : {1, 33}) {
        // The rows 4 to 9 of a table; 3, 10, -1 and 2000000000 are not among them.
        constexpr int64_t first = 4;
        const Values ids = {9, 3, 4, 10, -1, 2000000000, 7};
        const auto w = static_cast<size_t>(width);
        OpTensor table(c, dtype, {6, width}, numbers(6 * w, 1), index == AA_DTYPE_I32 ? dense : padded);
        OpTensor which(c, index, {7}, ids, spread);
        OpTensor out(c, AA_DTYPE_F32, {7, width}, {}, dtype == AA_DTYPE_F32 ? dense : padded);
        aa_embedding_shard_params params{};
        params.first = first;
        if (!op.run({out.view(), table.view(), which.view()}, params)) continue;
        Values expected;
        for (const double id : ids) {
          const bool here = id >= first && id < first + 6;
          for (size_t j = 0; j < w; ++j) {
            expected.push_back(here ? table.given()[static_cast<size_t>(id - first) * w + j] : 0);
          }
        }
        op.compare(out, expected, std::string(dtype_text(dtype)) + " rows of " + std::to_string(width));
      }
    }
  }
  op.finish();
}

struct Norm {
  const char* op;
  bool layer;  // else rms
};

// The reference; also returns the normalized rows' input, which residual holds afterwards.
Values normed(const Norm& norm, const Values& v, const Values* weight, const Values* bias, size_t width, double eps) {
  Values result;
  for (size_t row = 0; row * width < v.size(); ++row) {
    const double* x = v.data() + row * width;
    double mean = 0;
    double square = 0;
    for (size_t j = 0; j < width; ++j) mean += x[j] / static_cast<double>(width);
    if (!norm.layer) mean = 0;
    for (size_t j = 0; j < width; ++j) square += (x[j] - mean) * (x[j] - mean) / static_cast<double>(width);
    for (size_t j = 0; j < width; ++j) {
      result.push_back((x[j] - mean) / std::sqrt(square + eps) * (weight ? (*weight)[j] : 1) + (bias ? (*bias)[j] : 0));
    }
  }
  return result;
}

void check_norm(const Context& c, const Norm& norm) {
  OpRun op(c, norm.op, {.absolute = 1e-5, .relative = 1e-5});
  aa_norm_params params{};
  params.eps = 1e-5f;
  for (const int32_t dtype : float_dtypes) {
    for (const int64_t width : {1, 2, 63, 200, 1025}) {
      for (const Layout& layout : {dense, padded, spread}) {
        for (int options = 0; options < 4; ++options) {  // with weight and bias, with residual
          const auto w = static_cast<size_t>(width);
          const bool weighted = options & 1;
          const bool carried = options & 2;
          const Shape shape = carried ? Shape{3, width} : Shape{2, 2, width};
          OpTensor x(c, dtype, shape, numbers(count_of(shape), 3), layout);
          OpTensor weight(c, dtype, {width}, numbers(w, 4));
          OpTensor bias(c, AA_DTYPE_F32, {width}, numbers(w, 5));
          OpTensor residual(c, dtype, shape, numbers(count_of(shape), 6), dense);
          OpTensor out(c, dtype, shape, {}, dense);
          const aa_tensor w_view = weighted ? weight.view() : absent;
          const aa_tensor b_view = weighted ? bias.view() : absent;
          const aa_tensor r_view = carried ? residual.view() : absent;
          const bool ran = norm.layer ? op.run({out.view(), x.view(), w_view, b_view, r_view}, params)
                                      : op.run({out.view(), x.view(), w_view, r_view}, params);
          if (!ran) continue;
          Values v = x.given();
          if (carried) {
            for (size_t i = 0; i < v.size(); ++i) v[i] = rounded(v[i] + residual.given()[i], dtype);
            const Values sums = residual.found();
            // A sum of two small floats may be rounded to F32 first: one unit of the last place.
            for (size_t i = 0; i < v.size(); ++i) {
              c.expect(std::fabs(sums[i] - v[i]) <= 2 * unit_roundoff(dtype) * std::fabs(v[i]),
                       std::string(norm.op) + " leaves another sum in residual at " + std::to_string(i));
            }
            v = sums;
          }
          const std::string what = std::to_string(width) + " wide, " + layout.name + (weighted ? ", weight" : "") +
                                   (carried ? ", residual" : "");
          op.compare(out,
                     normed(norm, v, weighted ? &weight.given() : nullptr,
                            weighted && norm.layer ? &bias.given() : nullptr, w, params.eps),
                     what);
        }
      }
    }
  }
  // In place, and with no rows at all.
  OpTensor x(c, AA_DTYPE_F32, {5, 96}, numbers(480, 7));
  OpTensor none(c, AA_DTYPE_F32, {0, 96});
  for (OpTensor* tensor : {&x, &none}) {
    const bool ran = norm.layer ? op.run({tensor->view(), tensor->view(), absent, absent, absent}, params)
                                : op.run({tensor->view(), tensor->view(), absent, absent}, params);
    if (ran) op.compare(*tensor, normed(norm, tensor->given(), nullptr, nullptr, 96, params.eps), "in place");
  }
  op.finish();
}

void rms_norm(const Context& c) { check_norm(c, {"rms_norm", false}); }
void layer_norm(const Context& c) { check_norm(c, {"layer_norm", true}); }

void softmax(const Context& c) {
  OpRun op(c, "softmax", {.absolute = 1e-7, .relative = 2e-5});
  for (const int32_t dtype : float_dtypes) {
    for (const int64_t width : {1, 7, 130, 2049}) {
      for (const Layout& layout : {dense, padded, spread}) {
        const auto w = static_cast<size_t>(width);
        Values values = numbers(3 * w, 8, 10);
        if (width > 1) values[w] = -std::numeric_limits<double>::infinity();
        OpTensor x(c, dtype, {3, width}, values, layout);
        OpTensor out(c, dtype, {3, width}, {}, layout);
        aa_softmax_params params{};
        params.scale = 1.5f;
        if (!op.run({out.view(), x.view()}, params)) continue;
        Values expected;
        for (size_t row = 0; row < 3; ++row) {
          const double* v = x.given().data() + row * w;
          const double largest = *std::max_element(v, v + w);
          double sum = 0;
          for (size_t j = 0; j < w; ++j) sum += std::exp(1.5 * (v[j] - largest));
          for (size_t j = 0; j < w; ++j) expected.push_back(std::exp(1.5 * (v[j] - largest)) / sum);
        }
        op.compare(out, expected, std::to_string(width) + " wide, " + layout.name);
      }
    }
  }
  op.finish();
}

constexpr Case cases[] = {
    {"op.embedding", "gathers_rows", embedding},
    {"op.embedding", "stays_in_its_tensors", embedding_stays_in_its_tensors},
    {"op.embedding", "shard_gives_zeros_elsewhere", embedding_shard},
    {"op.rms_norm", "norms_rows", rms_norm},
    {"op.layer_norm", "norms_rows", layer_norm},
    {"op.softmax", "of_rows", softmax},
};

}  // namespace
}  // namespace row_group

std::span<const Case> row_cases() { return row_group::cases; }

}  // namespace anyaccel::conformance
