// The ops of training that work on rows: softmax with a mask and its gradient, moments, the gradients of the norms and a
// layer norm's inverse; cross-entropy with its gradient; sums over columns and over the rows of equal ids. Rows are widened to
// binary32 as in norm.cpp. Sums over columns are split over the threads by columns, so that their order does not depend on the
// number of threads.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "accelerators/cpu/kernels/checks.h"
#include "accelerators/cpu/kernels/parallel.h"
#include "accelerators/cpu/kernels/rows.h"
#include "accelerators/cpu/kernels/scratch.h"
#include "accelerators/cpu/ops.h"
#include "base/scalar_convert.h"
#include "base/simd/dispatch.h"
#include "runtime/ops/op_params.h"

#ifndef AA_KERNEL_BATCH
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "accelerators/cpu/kernels/training_rows.cpp"
#include "hwy/foreach_target.h"
#endif
#include "base/simd/highway.h"
// After highway.h
#include "accelerators/cpu/kernels/vector-inl.h"

#ifndef ANYACCEL_CPU_KERNELS_TRAINING_ROWS_ARGUMENTS_
#define ANYACCEL_CPU_KERNELS_TRAINING_ROWS_ARGUMENTS_
namespace anyaccel::cpu {

struct MaskedSoftmaxArguments {
  Rows out, x, mask;  // of dtype None when absent
  float scale;
};

struct NormBackwardArguments {
  Rows dx, dy, x;
  Row dweight, dbias, weight;        // of dtype None when absent
  const aa_tensor *mean, *variance;  // one number a row
  bool accumulate;
};

struct CrossEntropyArguments {
  Rows dx, x;  // dx of dtype None when absent
  const aa_tensor *loss, *targets;
  float scale;
};

// One binary32 number for each row of a tensor [.., H], at element `row` (row-major) of a tensor [..].
class RowNumbers {
 public:
  explicit RowNumbers(const aa_tensor& t) noexcept : t_(t) {}
  bool present() const noexcept { return t_.dtype != AA_DTYPE_NONE; }
  float& operator[](int64_t row) const noexcept {
    int64_t offset = 0;
    for (int d = t_.ndim - 1; d >= 0; --d) {
      offset += row % t_.shape[d] * t_.strides[d];
      row /= t_.shape[d];
    }
    return static_cast<float*>(t_.data)[offset];
  }

 private:
  const aa_tensor& t_;
};

}  // namespace anyaccel::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

// Sum of function(i, lanes) over n elements, where `lanes` is kLanes or the number of elements left. The function must
// return 0 in further lanes.
template <class Function>
HWY_INLINE float sum_over(int64_t n, Function function) {
  auto s0 = hn::Zero(kFloats), s1 = s0;
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    s0 = hn::Add(s0, function(i, kLanes));
    s1 = hn::Add(s1, function(i + kLanes, kLanes));
  }
  for (; i < n; i += kLanes) s0 = hn::Add(s0, function(i, std::min(kLanes, n - i)));
  return sum_lanes(hn::Add(s0, s1));
}

HWY_INLINE FloatVec load_lanes(const float* p, int64_t lanes, float fill = 0.0f) {
  return lanes == kLanes ? hn::LoadU(kFloats, p) : load_part(p, lanes, fill);
}
HWY_INLINE void store_lanes(FloatVec v, float* p, int64_t lanes) {
  if (lanes == kLanes) {
    hn::StoreU(v, kFloats, p);
  } else {
    store_part(v, p, lanes);
  }
}

float* row_scratch(Scratch use, int64_t n) { return scratch<float>(use, static_cast<size_t>(n + kLanes)); }

void masked_softmax_rows(const MaskedSoftmaxArguments& a, int64_t begin, int64_t end) {
  const int64_t n = a.x.length();
  float* buffer = row_scratch(Scratch::Row0, n);
  float* mask_buffer = row_scratch(Scratch::Row1, n);
  float* other = row_scratch(Scratch::Row2, n);
  const auto scale = hn::Set(kFloats, a.scale);
  const float lowest = -std::numeric_limits<float>::infinity();
  for (int64_t r = begin; r < end; ++r) {
    const float* x = row_floats(a.x.row(r), 0, n, buffer);
    const float* mask = a.mask.present() ? row_floats(a.mask.row(r), 0, n, mask_buffer) : nullptr;
    const Row out = a.out.row(r);
    float* to = row_target(out, 0, other);
    auto top = hn::Set(kFloats, lowest);
    for (int64_t i = 0; i < n; i += kLanes) {
      const int64_t lanes = std::min(kLanes, n - i);
      auto score = hn::Mul(load_lanes(x + i, lanes, lowest), scale);
      if (mask) score = hn::Add(score, load_lanes(mask + i, lanes));
      store_lanes(score, to + i, lanes);
      // Unless the scale is positive, the lanes beyond the row would not be the lowest.
      if (lanes == kLanes) top = hn::Max(top, score);
    }
    float largest = max_lanes(top);
    for (int64_t i = n / kLanes * kLanes; i < n; ++i) largest = std::fmax(largest, to[i]);
    if (largest == lowest) {
      bool numbers = true;
      for (int64_t i = 0; i < n; ++i) numbers = numbers && !std::isnan(to[i]);
      if (numbers) {
        std::fill_n(to, n, 0.0f);
        write_row(out, 0, n, to);
        continue;
      }
    }
    const auto shift = hn::Set(kFloats, largest);
    const float sum = sum_over(n, [&](int64_t i, int64_t lanes) HWY_ATTR {
      const auto e = exp(hn::Sub(load_lanes(to + i, lanes, lowest), shift));
      store_lanes(e, to + i, lanes);
      return lanes == kLanes ? e : load_part(to + i, lanes);
    });
    const auto factor = hn::Set(kFloats, 1.0f / sum);
    for (int64_t i = 0; i < n; i += kLanes) {
      const int64_t lanes = std::min(kLanes, n - i);
      store_lanes(hn::Mul(load_lanes(to + i, lanes), factor), to + i, lanes);
    }
    write_row(out, 0, n, to);
  }
}

void softmax_backward_rows(const Rows& dx, const Rows& y, const Rows& dy, float scale, int64_t begin, int64_t end) {
  const int64_t n = y.length();
  float* y_buffer = row_scratch(Scratch::Row0, n);
  float* dy_buffer = row_scratch(Scratch::Row1, n);
  float* other = row_scratch(Scratch::Row2, n);
  for (int64_t r = begin; r < end; ++r) {
    const float* value = row_floats(y.row(r), 0, n, y_buffer);
    const float* gradient = row_floats(dy.row(r), 0, n, dy_buffer);
    const Row out = dx.row(r);
    float* to = row_target(out, 0, other);
    const float sum = sum_over(n, [&](int64_t i, int64_t lanes) HWY_ATTR {
      return hn::Mul(load_lanes(value + i, lanes), load_lanes(gradient + i, lanes));
    });
    const auto s = hn::Set(kFloats, sum), f = hn::Set(kFloats, scale);
    for (int64_t i = 0; i < n; i += kLanes) {
      const int64_t lanes = std::min(kLanes, n - i);
      const auto scaled = hn::Mul(load_lanes(value + i, lanes), f);
      store_lanes(hn::Mul(scaled, hn::Sub(load_lanes(gradient + i, lanes), s)), to + i, lanes);
    }
    write_row(out, 0, n, to);
  }
}

void moment_rows(const RowNumbers& mean, const RowNumbers& variance, const Rows& x, float eps, bool centred,
                 int64_t begin, int64_t end) {
  const int64_t n = x.length();
  float* buffer = row_scratch(Scratch::Row0, n);
  for (int64_t r = begin; r < end; ++r) {
    const float* v = row_floats(x.row(r), 0, n, buffer);
    float middle = 0;
    if (centred) {
      middle = sum_over(n, [&](int64_t i, int64_t lanes) HWY_ATTR { return load_lanes(v + i, lanes); }) /
               static_cast<float>(n);
    }
    const auto m = hn::Set(kFloats, middle);
    const float squares = sum_over(n, [&](int64_t i, int64_t lanes) HWY_ATTR {
      const auto d = hn::Sub(load_lanes(v + i, lanes, middle), m);
      return hn::Mul(d, d);
    });
    mean[r] = middle;
    variance[r] = squares / static_cast<float>(n) + eps;
  }
}

void norm_backward_rows(const NormBackwardArguments& a, int64_t begin, int64_t end) {
  const int64_t n = a.x.length();
  const RowNumbers mean(*a.mean), variance(*a.variance);
  float* x_buffer = row_scratch(Scratch::Row0, n);
  float* dy_buffer = row_scratch(Scratch::Row1, n);
  float* other = row_scratch(Scratch::Row2, n);
  const float* weight = nullptr;
  if (a.weight.dtype != DType::None) weight = row_floats(a.weight, 0, n, row_scratch(Scratch::Row3, n));
  for (int64_t r = begin; r < end; ++r) {
    const float* x = row_floats(a.x.row(r), 0, n, x_buffer);
    const float* dy = row_floats(a.dy.row(r), 0, n, dy_buffer);
    const Row out = a.dx.row(r);
    float* to = row_target(out, 0, other);
    const float factor = 1.0f / std::sqrt(variance[r]);
    const auto m = hn::Set(kFloats, mean.present() ? mean[r] : 0.0f), f = hn::Set(kFloats, factor);
    const auto weighted = [&](int64_t i, int64_t lanes) HWY_ATTR {
      const auto g = load_lanes(dy + i, lanes);
      return weight ? hn::Mul(g, load_lanes(weight + i, lanes)) : g;
    };
    const auto normed = [&](int64_t i, int64_t lanes)
                            HWY_ATTR { return hn::Mul(hn::Sub(load_lanes(x + i, lanes), m), f); };
    const float count = static_cast<float>(n);
    float sum = 0;
    if (mean.present()) sum = sum_over(n, weighted) / count;
    const float product =
        sum_over(n, [&](int64_t i, int64_t lanes) HWY_ATTR { return hn::Mul(weighted(i, lanes), normed(i, lanes)); }) /
        count;
    const auto s = hn::Set(kFloats, sum), p = hn::Set(kFloats, product);
    for (int64_t i = 0; i < n; i += kLanes) {
      const int64_t lanes = std::min(kLanes, n - i);
      const auto d = hn::NegMulAdd(normed(i, lanes), p, hn::Sub(weighted(i, lanes), s));
      store_lanes(hn::Mul(d, f), to + i, lanes);
    }
    write_row(out, 0, n, to);
  }
}

// Rows that are summed on their own before they are added to the total, which bounds the error of a sum of very many
// rows.
constexpr int64_t kRowBlock = 256;

// Adds the sums of all rows to the n numbers in `to`. add(row, sums) must add the row to n numbers; `block` is room for
// as many.
template <class Add>
HWY_INLINE void sum_rows(int64_t rows, int64_t n, float* to, float* block, Add add) {
  for (int64_t first = 0; first < rows; first += kRowBlock) {
    std::fill_n(block, n, 0.0f);
    for (int64_t r = first; r < std::min(rows, first + kRowBlock); ++r) add(r, block);
    for (int64_t i = 0; i < n; ++i) to[i] += block[i];
  }
}

// Columns [begin, end) of the gradients of weight and bias.
void norm_backward_columns(const NormBackwardArguments& a, int64_t begin, int64_t end) {
  const int64_t n = end - begin;
  const RowNumbers mean(*a.mean), variance(*a.variance);
  float* x_buffer = row_scratch(Scratch::Row0, n);
  float* dy_buffer = row_scratch(Scratch::Row1, n);
  float* sums = row_scratch(Scratch::Row2, 2 * n);  // of weights, of biases
  float* block = row_scratch(Scratch::Row3, 2 * n);
  std::fill_n(sums, 2 * n, 0.0f);
  if (a.accumulate && a.dweight.dtype != DType::None) read_row(a.dweight, begin, n, sums);
  if (a.accumulate && a.dbias.dtype != DType::None) read_row(a.dbias, begin, n, sums + n);
  sum_rows(a.x.count(), 2 * n, sums, block, [&](int64_t r, float* to) HWY_ATTR {
    const float* dy = row_floats(a.dy.row(r), begin, n, dy_buffer);
    const float* x = row_floats(a.x.row(r), begin, n, x_buffer);
    const auto f = hn::Set(kFloats, 1.0f / std::sqrt(variance[r]));
    const auto m = hn::Set(kFloats, mean.present() ? mean[r] : 0.0f);
    for (int64_t i = 0; i < n; i += kLanes) {
      const int64_t lanes = std::min(kLanes, n - i);
      const auto g = load_lanes(dy + i, lanes);
      const auto normed = hn::Mul(hn::Sub(load_lanes(x + i, lanes), m), f);
      store_lanes(hn::MulAdd(g, normed, load_lanes(to + i, lanes)), to + i, lanes);
      store_lanes(hn::Add(g, load_lanes(to + n + i, lanes)), to + n + i, lanes);
    }
  });
  if (a.dweight.dtype != DType::None) write_row(a.dweight, begin, n, sums);
  if (a.dbias.dtype != DType::None) write_row(a.dbias, begin, n, sums + n);
}

void column_sum_columns(const Row& out, const Rows& x, bool accumulate, int64_t begin, int64_t end) {
  const int64_t n = end - begin;
  float* buffer = row_scratch(Scratch::Row0, n);
  float* sums = row_scratch(Scratch::Row2, n);
  float* block = row_scratch(Scratch::Row3, n);
  std::fill_n(sums, n, 0.0f);
  if (accumulate) read_row(out, begin, n, sums);
  sum_rows(x.count(), n, sums, block, [&](int64_t r, float* to) HWY_ATTR {
    const float* v = row_floats(x.row(r), begin, n, buffer);
    for (int64_t i = 0; i < n; i += kLanes) {
      const int64_t lanes = std::min(kLanes, n - i);
      store_lanes(hn::Add(load_lanes(v + i, lanes), load_lanes(to + i, lanes)), to + i, lanes);
    }
  });
  write_row(out, begin, n, sums);
}

void inverse_rows(const Rows& x, const Rows& y, const Row& weight_row, const Row& bias_row, const RowNumbers& mean,
                  const RowNumbers& variance, int64_t begin, int64_t end) {
  const int64_t n = y.length();
  float* buffer = row_scratch(Scratch::Row0, n);
  float* other = row_scratch(Scratch::Row1, n);
  const float* weight = row_floats(weight_row, 0, n, row_scratch(Scratch::Row2, n));
  const float* bias = row_floats(bias_row, 0, n, row_scratch(Scratch::Row3, n));
  for (int64_t r = begin; r < end; ++r) {
    const float* v = row_floats(y.row(r), 0, n, buffer);
    const Row out = x.row(r);
    float* to = row_target(out, 0, other);
    const auto m = hn::Set(kFloats, mean[r]), f = hn::Set(kFloats, std::sqrt(variance[r]));
    for (int64_t i = 0; i < n; i += kLanes) {
      const int64_t lanes = std::min(kLanes, n - i);
      const auto moved = hn::Sub(load_lanes(v + i, lanes), load_lanes(bias + i, lanes));
      const auto normed = hn::Div(moved, load_lanes(weight + i, lanes, 1.0f));
      store_lanes(hn::MulAdd(normed, f, m), to + i, lanes);
    }
    write_row(out, 0, n, to);
  }
}

void cross_entropy_rows(const CrossEntropyArguments& a, int64_t begin, int64_t end) {
  const int64_t n = a.x.length();
  float* buffer = row_scratch(Scratch::Row0, n);
  float* other = row_scratch(Scratch::Row1, n);
  const float lowest = -std::numeric_limits<float>::infinity();
  for (int64_t r = begin; r < end; ++r) {
    float& loss = static_cast<float*>(a.loss->data)[r * a.loss->strides[0]];
    const int64_t target = index_at(*a.targets, r);
    const Row out = a.dx.present() ? a.dx.row(r) : Row{};
    float* to = a.dx.present() ? row_target(out, 0, other) : other;
    if (target < 0) {
      loss = 0;
      std::fill_n(to, n, 0.0f);
      if (a.dx.present()) write_row(out, 0, n, to);
      continue;
    }
    const float* x = row_floats(a.x.row(r), 0, n, buffer);
    auto top = hn::Set(kFloats, lowest);
    for (int64_t i = 0; i < n; i += kLanes) top = hn::Max(top, load_lanes(x + i, std::min(kLanes, n - i), lowest));
    const float largest = max_lanes(top), of_target = x[target];
    const auto shift = hn::Set(kFloats, largest);
    const float sum = sum_over(n, [&](int64_t i, int64_t lanes) HWY_ATTR {
      const auto e = exp(hn::Sub(load_lanes(x + i, lanes, lowest), shift));
      store_lanes(e, to + i, lanes);
      return lanes == kLanes ? e : load_part(to + i, lanes);
    });
    loss = std::log(sum) + largest - of_target;
    if (!a.dx.present()) continue;
    const auto factor = hn::Set(kFloats, a.scale / sum);
    for (int64_t i = 0; i < n; i += kLanes) {
      const int64_t lanes = std::min(kLanes, n - i);
      store_lanes(hn::Mul(load_lanes(to + i, lanes), factor), to + i, lanes);
    }
    to[target] -= a.scale;
    write_row(out, 0, n, to);
  }
}

// to += row
void add_row(float* to, const Row& row) {
  const float* v = row_floats(row, 0, row.length, row_scratch(Scratch::Row0, row.length));
  for (int64_t i = 0; i < row.length; i += kLanes) {
    const int64_t lanes = std::min(kLanes, row.length - i);
    store_lanes(hn::Add(load_lanes(to + i, lanes), load_lanes(v + i, lanes)), to + i, lanes);
  }
}
void load_row(const Row& row, float* to) { read_row(row, 0, row.length, to); }
void store_row(const Row& row, const float* from) { write_row(row, 0, row.length, from); }

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anyaccel::cpu {

AA_CPU_EXPORT(masked_softmax_rows);
AA_CPU_EXPORT(softmax_backward_rows);
AA_CPU_EXPORT(moment_rows);
AA_CPU_EXPORT(norm_backward_rows);
AA_CPU_EXPORT(norm_backward_columns);
AA_CPU_EXPORT(column_sum_columns);
AA_CPU_EXPORT(inverse_rows);
AA_CPU_EXPORT(cross_entropy_rows);
AA_CPU_EXPORT(add_row);
AA_CPU_EXPORT(load_row);
AA_CPU_EXPORT(store_row);

namespace {

// Columns that a thread takes at once: whole cache lines of every dtype.
constexpr int64_t kColumns = 128;

// Calls body(begin, end) for ranges of `columns` columns of `rows` rows.
template <class Body>
void for_columns(int64_t rows, int64_t columns, Body&& body) {
  const int64_t parts = (columns + kColumns - 1) / kColumns;
  parallel_for(parts, rows * kColumns,
               [&](int64_t begin, int64_t end) { body(begin * kColumns, std::min(end * kColumns, columns)); });
}

}  // namespace

void softmax_masked(const aa_op_call& call) {
  const aa_tensor* t = call.tensors;
  const MaskedSoftmaxArguments arguments{Rows(t[0]), Rows(t[1]), Rows(t[2]), params_of<aa_softmax_params>(call).scale};
  if (arguments.x.length() == 0) return;
  const auto rows = AA_CPU_DISPATCH(masked_softmax_rows);
  parallel_for(arguments.x.count(), arguments.x.length() * 4,
               [&](int64_t begin, int64_t end) { rows(arguments, begin, end); });
}

void softmax_backward(const aa_op_call& call) {
  const Rows dx(call.tensors[0]), y(call.tensors[1]), dy(call.tensors[2]);
  if (y.length() == 0) return;
  const auto rows = AA_CPU_DISPATCH(softmax_backward_rows);
  const float scale = params_of<aa_softmax_params>(call).scale;
  parallel_for(y.count(), y.length() * 2, [&](int64_t begin, int64_t end) { rows(dx, y, dy, scale, begin, end); });
}

void moments(const aa_op_call& call) {
  const auto& params = params_of<aa_moments_params>(call);
  const RowNumbers mean(call.tensors[0]), variance(call.tensors[1]);
  const Rows x(call.tensors[2]);
  const auto rows = AA_CPU_DISPATCH(moment_rows);
  parallel_for(x.count(), x.length(), [&](int64_t begin, int64_t end) {
    rows(mean, variance, x, params.eps, params.centred != 0, begin, end);
  });
}

void norm_backward(const aa_op_call& call) {
  const aa_tensor* t = call.tensors;
  const NormBackwardArguments arguments{Rows(t[0]),
                                        Rows(t[3]),
                                        Rows(t[4]),
                                        single_row(t[1]),
                                        single_row(t[2]),
                                        single_row(t[5]),
                                        &t[6],
                                        &t[7],
                                        params_of<aa_accumulate_params>(call).accumulate != 0};
  const int64_t rows = arguments.x.count(), length = arguments.x.length();
  if (length == 0) return;
  if (t[1].dtype != AA_DTYPE_NONE || t[2].dtype != AA_DTYPE_NONE) {
    const auto columns = AA_CPU_DISPATCH(norm_backward_columns);
    for_columns(rows, length, [&](int64_t begin, int64_t end) { columns(arguments, begin, end); });
  }
  const auto each = AA_CPU_DISPATCH(norm_backward_rows);
  parallel_for(rows, length * 2, [&](int64_t begin, int64_t end) { each(arguments, begin, end); });
}

void layer_norm_inverse(const aa_op_call& call) {
  const aa_tensor* t = call.tensors;
  const Rows x(t[0]), y(t[1]);
  if (y.length() == 0) return;
  const auto rows = AA_CPU_DISPATCH(inverse_rows);
  parallel_for(y.count(), y.length(), [&](int64_t begin, int64_t end) {
    rows(x, y, single_row(t[2]), single_row(t[3]), RowNumbers(t[4]), RowNumbers(t[5]), begin, end);
  });
}

void column_sums(const aa_op_call& call) {
  const Row out = single_row(call.tensors[0]);
  const Rows x(call.tensors[1]);
  const auto columns = AA_CPU_DISPATCH(column_sum_columns);
  const bool accumulate = params_of<aa_accumulate_params>(call).accumulate != 0;
  for_columns(x.count(), out.length, [&](int64_t begin, int64_t end) { columns(out, x, accumulate, begin, end); });
}

void cross_entropy(const aa_op_call& call) {
  const CrossEntropyArguments arguments{Rows(call.tensors[1]), Rows(call.tensors[2]), &call.tensors[0],
                                        &call.tensors[3], params_of<aa_softmax_params>(call).scale};
  check_targets("cross_entropy", call.tensors[3], arguments.x.length());
  const auto rows = AA_CPU_DISPATCH(cross_entropy_rows);
  parallel_for(arguments.x.count(), arguments.x.length() * 4,
               [&](int64_t begin, int64_t end) { rows(arguments, begin, end); });
}

void embedding_backward(const aa_op_call& call) {
  const Rows dtable(call.tensors[0]), dy(call.tensors[1]);
  const aa_tensor& ids = call.tensors[2];
  check_indices("embedding_backward", "ids", ids, call.tensors[0].shape[0], "rows of the table");
  if (dy.length() == 0) return;
  // Tokens of one id lie together, in their order; threads share out the ids.
  std::vector<int64_t> order(static_cast<size_t>(ids.shape[0]));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return index_at(ids, a) < index_at(ids, b); });
  std::vector<size_t> starts;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i == 0 || index_at(ids, order[i]) != index_at(ids, order[i - 1])) starts.push_back(i);
  }
  const auto count = static_cast<int64_t>(starts.size());
  starts.push_back(order.size());
  const auto load = AA_CPU_DISPATCH(load_row);
  const auto add = AA_CPU_DISPATCH(add_row);
  const auto store = AA_CPU_DISPATCH(store_row);
  const int64_t work = count == 0 ? 0 : dy.count() * dy.length() / count;
  parallel_for(count, work, [&](int64_t begin, int64_t end) {
    float* sum = scratch<float>(Scratch::Row1, static_cast<size_t>(dy.length()));
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      const Row row = dtable.row(index_at(ids, order[starts[i]]));
      load(row, sum);
      for (size_t j = starts[i]; j < starts[i + 1]; ++j) add(sum, dy.row(order[j]));
      store(row, sum);
    }
  });
}

}  // namespace anyaccel::cpu
#endif
