// The ops that choose a token: argmax and sample.
//
// sample needs the order of the likely tokens only. One pass finds the maximum and one the sum of all weights; then the
// candidates are gathered (with top_k by a threshold that rises as better ones are found, without it by their distance
// from the maximum), put into buckets of falling logit, and only the buckets where top_p and the drawn number fall are
// sorted.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "accelerators/cpu/kernels/checks.h"
#include "accelerators/cpu/kernels/parallel.h"
#include "accelerators/cpu/kernels/rows.h"
#include "accelerators/cpu/kernels/scratch.h"
#include "accelerators/cpu/ops.h"
#include "anyaccel/philox.h"
#include "base/scalar_convert.h"
#include "base/simd/dispatch.h"

#ifndef AA_KERNEL_BATCH
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "accelerators/cpu/kernels/sampling.cpp"
#include "hwy/foreach_target.h"
#endif
#include "hwy/highway.h"
// After highway.h
#include "accelerators/cpu/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

// The lowest index among the maxima of n numbers; a NaN counts as the maximum.
int64_t argmax_floats(const float* x, int64_t n) {
  auto top = hn::Set(kFloats, -std::numeric_limits<float>::infinity());
  auto ordered = hn::Eq(top, top);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const auto v = hn::LoadU(kFloats, x + i);
    top = hn::Max(top, v);
    ordered = hn::And(ordered, hn::Eq(v, v));
  }
  if (i < n) {
    const auto v = load_part(x + i, n - i, -std::numeric_limits<float>::infinity());
    top = hn::Max(top, v);
    ordered = hn::And(ordered, hn::Eq(v, v));
  }
  const bool has_nan = !hn::AllTrue(kFloats, ordered);
  const float largest = has_nan ? 0 : max_lanes(top);
  for (i = 0; i < n; ++i) {
    if (has_nan ? std::isnan(x[i]) : x[i] == largest) return i;
  }
  return 0;
}

int64_t argmax_row(const Row& row) {
  constexpr int64_t kChunk = 2048;
  float buffer[kChunk];
  int64_t best = 0;
  float largest = -std::numeric_limits<float>::infinity();
  for (int64_t begin = 0; begin < row.length; begin += kChunk) {
    const int64_t n = std::min(kChunk, row.length - begin);
    const float* x = row_floats(row, begin, n, buffer);
    const int64_t i = argmax_floats(x, n);
    if (std::isnan(x[i])) return begin + i;
    if (x[i] > largest) {
      largest = x[i];
      best = begin + i;
    }
  }
  return best;
}

const float* whole_row(const Row& row, float* buffer) { return row_floats(row, 0, row.length, buffer); }

// weights[i] = e^((x[i] - top) * factor) when `weights` is given; returns their sum. Room for kLanes more is needed.
double exponentials(const float* x, int64_t n, float top, float factor, float* weights) {
  const auto shift = hn::Set(kFloats, top);
  const auto f = hn::Set(kFloats, factor);
  double total = 0;
  constexpr int64_t kBlock = 1024;  // summed in binary32, then added in binary64
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = std::min(n, begin + kBlock);
    auto sum = hn::Zero(kFloats);
    for (int64_t i = begin; i < end; i += kLanes) {
      const int64_t part = std::min(kLanes, end - i);
      const auto v =
          part == kLanes ? hn::LoadU(kFloats, x + i) : load_part(x + i, part, -std::numeric_limits<float>::infinity());
      const auto e = exp(hn::Mul(hn::Sub(v, shift), f));
      if (weights) hn::StoreU(e, kFloats, weights + i);
      sum = hn::Add(sum, e);
    }
    total += sum_lanes(sum);
  }
  return total;
}

// Appends to `out` the indices i in [*position, n) with x[i] > bound, until fewer than kLanes places of `room` are
// left; *position is then the index at which to continue. Returns how many were appended.
int64_t gather_above(const float* x, int64_t* position, int64_t n, float bound, uint32_t* out, int64_t room) {
  const auto threshold = hn::Set(kFloats, bound);
  int64_t count = 0;
  int64_t i = *position;
  for (; i + kLanes <= n && count + kLanes <= room; i += kLanes) {
    const auto above = hn::Gt(hn::LoadU(kFloats, x + i), threshold);
    if (hn::AllFalse(kFloats, above)) continue;
    const auto indices = hn::Iota(kUints, static_cast<uint32_t>(i));
    count += static_cast<int64_t>(hn::CompressStore(indices, hn::RebindMask(kUints, above), kUints, out + count));
  }
  if (i + kLanes > n) {
    for (; i < n && count < room; ++i) {
      if (x[i] > bound) out[count++] = static_cast<uint32_t>(i);
    }
  }
  *position = i;
  return count;
}

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anyaccel::cpu {

AA_CPU_EXPORT(argmax_row);
AA_CPU_EXPORT(whole_row);
AA_CPU_EXPORT(exponentials);
AA_CPU_EXPORT(gather_above);

namespace {

// Most lanes a vector may have: room that vector stores may need past the end of an array.
constexpr int64_t kSlack = 64;

// A token this far below the maximum, after division by the temperature, weighs about 1e-7 of it.
constexpr float kNegligible = 16;
constexpr double negligible_weight = 1.2e-7;  // more than e^-kNegligible

// Falling logit, lower index first among equals.
struct MoreLikely {
  const float* x;
  bool operator()(uint32_t a, uint32_t b) const { return x[a] > x[b] || (x[a] == x[b] && a < b); }
};

// The indices of the k most likely of n, in no order; returns how many there are, which is less than k when the others
// are -infinity. `out` has room for 3 k + kSlack + 1024.
int64_t top_k(const float* x, int64_t n, int64_t k, uint32_t* out) {
  const auto gather = AA_CPU_DISPATCH(gather_above);
  const int64_t room = 3 * k + kSlack + 1024;
  float bound = -std::numeric_limits<float>::infinity();
  int64_t position = 0, count = 0;
  while (position < n) {
    count += gather(x, &position, n, bound, out + count, room - count);
    if (count > k) {
      // Later elements must beat the k-th; one that equals it comes after it.
      std::nth_element(out, out + k - 1, out + count, MoreLikely{x});
      bound = x[out[k - 1]];
      count = k;
    }
  }
  return count;
}

// Candidates in buckets of falling logit. Weights are relative to the maximum.
class Buckets {
 public:
  // `candidates` are indices into x; `sorted` and `sorted_weights` have room for as many. All that lie `widest` or more
  // below the maximum share the last bucket.
  Buckets(const float* x, float top, float widest, const uint32_t* candidates, const float* weights, int64_t count,
          uint32_t* sorted, float* sorted_weights)
      : x_(x), top_(top), order_(sorted), weights_(sorted_weights) {
    float lowest = top;
    for (int64_t i = 0; i < count; ++i) lowest = std::min(lowest, x[candidates[i]]);
    widest = std::min(widest, top - lowest);
    scale_ = widest > 0 ? static_cast<float>(kCount) / widest : 0;
    for (int64_t i = 0; i < count; ++i) ++begin_[bucket(x[candidates[i]]) + 1];
    for (int b = 0; b < kCount; ++b) begin_[b + 1] += begin_[b];
    int64_t next[kCount];
    std::copy(begin_, begin_ + kCount, next);
    for (int64_t i = 0; i < count; ++i) {
      const int b = bucket(x[candidates[i]]);
      mass_[b] += weights[i];
      order_[next[b]] = candidates[i];
      weights_[next[b]++] = weights[i];
    }
  }

  struct Crossing {
    int64_t rank;   // how many come before it in descending order; the number of candidates if the sum never reaches it
    double before;  // sum of their weights
    double weight;
  };

  // The first candidate, in falling order, with which the running sum reaches (or, if `exceed`, exceeds) `target`.
  Crossing cross(double target, bool exceed) {
    double sum = 0;
    const auto there = [&](double s) { return exceed ? s > target : s >= target; };
    for (int b = 0; b < kCount; ++b) {
      if (begin_[b] == begin_[b + 1]) continue;
      // The sum over a bucket depends on the order, so buckets near the target are always sorted.
      if (!there(sum + mass_[b] * (1 + 1e-9))) {
        sum += mass_[b];
        continue;
      }
      sort(b);
      double inside = sum;
      for (int64_t i = begin_[b]; i < begin_[b + 1]; ++i) {
        const double before = inside;
        inside += weights_[i];
        if (there(inside)) return {i, before, static_cast<double>(weights_[i])};
      }
      sum = inside;
    }
    return {begin_[kCount], sum, 0};
  }

  // The first candidate, in falling order, that weighs less than `bound`.
  Crossing below(double bound) {
    double sum = 0;
    for (int b = 0; b < kCount; ++b) {
      const auto light = [&](float weight) { return static_cast<double>(weight) < bound; };
      if (!std::any_of(weights_ + begin_[b], weights_ + begin_[b + 1], light)) {
        sum += mass_[b];
        continue;
      }
      sort(b);
      for (int64_t i = begin_[b]; i < begin_[b + 1]; ++i) {
        if (light(weights_[i])) return {i, sum, static_cast<double>(weights_[i])};
        sum += weights_[i];
      }
    }
    return {begin_[kCount], sum, 0};
  }

  // The index at a rank that cross() has returned, or the last one.
  uint32_t index_at(int64_t rank) {
    int b = 0;
    while (begin_[b + 1] <= rank) ++b;
    sort(b);
    return order_[rank];
  }

 private:
  static constexpr int kCount = 512;

  int bucket(float value) const {
    const float distance = std::min(top_ - value, std::numeric_limits<float>::max());
    return static_cast<int>(std::min(distance * scale_, static_cast<float>(kCount - 1)));
  }

  void sort(int b) {
    if (sorted_[b]) return;
    sorted_[b] = true;
    // Sorting both arrays by one key: weights are a function of the logit, but recomputing them would round
    // differently.
    const int64_t begin = begin_[b], n = begin_[b + 1] - begin;
    struct Pair {
      uint32_t index;
      float weight;
    };
    Pair* pairs = scratch<Pair>(Scratch::Tasks, static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) pairs[i] = {order_[begin + i], weights_[begin + i]};
    const MoreLikely more_likely{x_};
    std::sort(pairs, pairs + n, [&](const Pair& a, const Pair& b) { return more_likely(a.index, b.index); });
    for (int64_t i = 0; i < n; ++i) {
      order_[begin + i] = pairs[i].index;
      weights_[begin + i] = pairs[i].weight;
    }
  }

  const float* x_;
  float top_;
  uint32_t* order_;
  float* weights_;
  float scale_ = 0;
  int64_t begin_[kCount + 1] = {};
  double mass_[kCount] = {};
  bool sorted_[kCount] = {};
};

// Draws from `count` candidates. `total` is the sum of the weights of all that may be drawn, which may be more than the
// candidates; returns -1 when the draw falls on one that is not among them.
int64_t draw(const float* x, float top, const uint32_t* candidates, int64_t count, float factor, double total,
             bool complete, const aa_sample_params& params, float u) {
  const size_t room = static_cast<size_t>(count + kSlack);
  float* logits = scratch<float>(Scratch::Row1, room);
  float* weights = scratch<float>(Scratch::Row2, room);
  float* sorted_weights = scratch<float>(Scratch::Row3, room);
  uint32_t* sorted = scratch<uint32_t>(Scratch::Tile, room);
  for (int64_t i = 0; i < count; ++i) logits[i] = x[candidates[i]];
  const double sum = AA_CPU_DISPATCH(exponentials)(logits, count, top, factor, weights);
  if (complete) total = sum;
  Buckets buckets(x, top, kNegligible / factor, candidates, weights, count, sorted, sorted_weights);

  double kept = total;
  int64_t last = count - 1;
  if (params.top_p < 1) {
    const auto crossing = buckets.cross(static_cast<double>(params.top_p) * total, false);
    if (crossing.rank < count) {
      kept = crossing.before + crossing.weight;
      last = crossing.rank;
    } else if (!complete) {
      return -1;
    }
  }
  if (params.min_p > 0) {
    const auto cut = buckets.below(static_cast<double>(params.min_p));
    // Tokens that are not candidates have a lower probability than any candidate; only a tiny min_p keeps some.
    if (cut.rank == count && !complete && static_cast<double>(params.min_p) < negligible_weight) return -1;
    if (cut.rank > 0 && cut.rank <= last) {
      kept = cut.before;
      last = cut.rank - 1;
    } else if (cut.rank == count && last == count - 1 && kept > cut.before) {
      kept = cut.before;  // of those that are no candidates none is kept
    }
  }
  const auto crossing = buckets.cross(static_cast<double>(u) * kept, true);
  if (crossing.rank >= count && !complete) return -1;
  return buckets.index_at(std::min(crossing.rank, last));
}

int64_t sample_row(const Row& row, const aa_sample_params& params, float u) {
  const int64_t best = AA_CPU_DISPATCH(argmax_row)(row);
  const float top = static_cast<float>(
      load_floating(row.data + best * row.stride * static_cast<int64_t>(dtype_size(row.dtype)), row.dtype));
  if (!std::isfinite(top)) return -1;
  if (params.temperature == 0 || params.top_k == 1) return best;

  const int64_t n = row.length;
  const float factor = 1.0f / params.temperature;
  const float* x = AA_CPU_DISPATCH(whole_row)(row, scratch<float>(Scratch::Row0, static_cast<size_t>(n + kSlack)));
  if (params.top_k > 0 && params.top_k < n) {
    uint32_t* candidates =
        scratch<uint32_t>(Scratch::Candidates, static_cast<size_t>(3 * params.top_k + kSlack + 1024));
    const int64_t count = top_k(x, n, params.top_k, candidates);
    return draw(x, top, candidates, count, factor, 0, true, params, u);
  }

  uint32_t* candidates = scratch<uint32_t>(Scratch::Candidates, static_cast<size_t>(n + kSlack));
  const double total = AA_CPU_DISPATCH(exponentials)(x, n, top, factor, nullptr);
  int64_t position = 0;
  const int64_t count =
      AA_CPU_DISPATCH(gather_above)(x, &position, n, top - kNegligible * params.temperature, candidates, n + kSlack);
  if (count < n / 2) {
    const int64_t token = count > 0 ? draw(x, top, candidates, count, factor, total, false, params, u) : -1;
    if (token >= 0) return token;
  }
  for (int64_t i = 0; i < n; ++i) candidates[i] = static_cast<uint32_t>(i);
  return draw(x, top, candidates, n, factor, total, true, params, u);
}

void store_index(const aa_tensor& out, int64_t row, int64_t value) {
  const DType dtype = static_cast<DType>(out.dtype);
  store_number(static_cast<char*>(out.data) + row * out.strides[0] * static_cast<int64_t>(dtype_size(dtype)), dtype,
               value);
}

}  // namespace

void argmax(const aa_op_call& call) {
  const Rows x(call.tensors[1]);
  const auto find = AA_CPU_DISPATCH(argmax_row);
  parallel_for(x.count(), x.length(), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) store_index(call.tensors[0], r, find(x.row(r)));
  });
}

void sample(const aa_op_call& call) {
  const auto& params = *static_cast<const aa_sample_params*>(call.params);
  const Rows logits(call.tensors[1]), seen(call.tensors[3]);
  const aa_tensor& rng = call.tensors[2];
  const uint64_t seed = static_cast<uint64_t>(index_at(rng, 0)), offset = static_cast<uint64_t>(index_at(rng, 1));
  parallel_for(logits.count(), logits.length() * 4, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const uint64_t n = static_cast<uint64_t>(r);
      const int64_t token = sample_row(logits.row(r), params, philox_unit(philox_words(seed, offset + n / 4)[n % 4]));
      store_index(call.tensors[0], r, token);
      if (seen.present() && token >= 0) seen.row(r).data[token * seen.stride()] = 1;
    }
  });
}

}  // namespace anyaccel::cpu
#endif
