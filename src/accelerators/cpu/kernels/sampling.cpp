// The ops that choose a token: argmax and sample.
//
// sample needs the order of the likely tokens only. One pass finds the maximum, and one sums all weights. Then
// candidates are gathered: with top_k by a threshold that rises as better ones are found, otherwise by their distance
// from the maximum, beginning with a short one that suffices for most draws. They are put into buckets of falling
// logits, and only the buckets in which top_p and the drawn number fall are sorted.
//
// The threads share the rows or, where there are fewer rows than threads, the passes over each row. Sums are taken of
// fixed segments, so that a result does not depend on the number of threads.
#include "accelerators/cpu/kernels/sampling.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "accelerators/cpu/kernels/checks.h"
#include "accelerators/cpu/kernels/parallel.h"
#include "accelerators/cpu/kernels/rows.h"
#include "accelerators/cpu/kernels/scratch.h"
#include "accelerators/cpu/ops.h"
#include "accelerators/cpu/worker_pool.h"
#include "anyaccel/philox.h"
#include "base/scalar_convert.h"
#include "base/simd/dispatch.h"
#include "runtime/ops/op_params.h"

#ifndef AA_KERNEL_BATCH
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "accelerators/cpu/kernels/sampling.cpp"
#include "hwy/foreach_target.h"
#endif
#include "base/simd/highway.h"
// After highway.h
#include "accelerators/cpu/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

// Returns the maximum of a segment of a row, or NaN if it has one. Writes the segment as binary32 to `wide` unless it
// is dense binary32.
float segment_top(const Row& row, int64_t begin, int64_t n, float* wide) {
  const float* x = row_floats(row, begin, n, wide);
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
  return hn::AllTrue(kFloats, ordered) ? max_lanes(top) : std::numeric_limits<float>::quiet_NaN();
}

// Returns the lowest index of `value`, or of a NaN if `value` is one, among n numbers that include it.
int64_t find_value(const float* x, int64_t n, float value) {
  const bool nan = std::isnan(value);
  const auto wanted = hn::Set(kFloats, value);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const auto v = hn::LoadU(kFloats, x + i);
    if (!hn::AllFalse(kFloats, nan ? hn::IsNaN(v) : hn::Eq(v, wanted))) break;
  }
  for (; i < n; ++i) {
    if (nan ? std::isnan(x[i]) : x[i] == value) return i;
  }
  return 0;
}

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

float lowest_of(const float* x, int64_t n) {
  auto lowest = hn::Set(kFloats, std::numeric_limits<float>::infinity());
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) lowest = hn::Min(lowest, hn::LoadU(kFloats, x + i));
  if (i < n) lowest = hn::Min(lowest, load_part(x + i, n - i, std::numeric_limits<float>::infinity()));
  return hn::GetLane(hn::MinOfLanes(kFloats, lowest));
}

// buckets[i] = (top - x[i]) * scale, rounded down, at most `last`. Needs room for kLanes more.
void find_buckets(const float* x, int64_t n, float top, float scale, uint32_t last, uint32_t* buckets) {
  const auto most = hn::Set(kFloats, static_cast<float>(last));
  for (int64_t i = 0; i < n; i += kLanes) {
    const auto v = n - i >= kLanes ? hn::LoadU(kFloats, x + i) : load_part(x + i, n - i);
    // An infinite distance times a scale of zero would be NaN, so distances are bounded.
    const auto distance =
        hn::Min(hn::Sub(hn::Set(kFloats, top), v), hn::Set(kFloats, std::numeric_limits<float>::max()));
    const auto bucket = hn::ConvertTo(kInts, hn::Min(hn::Mul(distance, hn::Set(kFloats, scale)), most));
    hn::StoreU(hn::BitCast(kUints, bucket), kUints, buckets + i);
  }
}

// Writes the indices i with buckets[i] == wanted to `out`, which has room for kLanes more.
void find_in_bucket(const uint32_t* buckets, int64_t n, uint32_t wanted, uint32_t* out) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const auto there = hn::Eq(hn::LoadU(kUints, buckets + i), hn::Set(kUints, wanted));
    if (hn::AllFalse(kUints, there)) continue;
    out += hn::CompressStore(hn::Iota(kUints, static_cast<uint32_t>(i)), there, kUints, out);
  }
  for (; i < n; ++i) {
    if (buckets[i] == wanted) *out++ = static_cast<uint32_t>(i);
  }
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

AA_CPU_EXPORT(segment_top);
AA_CPU_EXPORT(find_value);
AA_CPU_EXPORT(exponentials);
AA_CPU_EXPORT(gather_above);
AA_CPU_EXPORT(lowest_of);
AA_CPU_EXPORT(find_buckets);
AA_CPU_EXPORT(find_in_bucket);

namespace {

std::atomic<int64_t> drawn{0};

// Room behind an array for stores of whole vectors: the most lanes that a vector may have.
constexpr int64_t kSlack = 64;

// Elements of a row that a thread takes at once; a multiple of the blocks of exponentials().
constexpr int64_t kSegment = 8192;
int64_t segments_of(int64_t n) { return (n + kSegment - 1) / kSegment; }

// Distances from the maximum, in logits divided by the temperature, within which candidates are gathered, one after the
// other, before all tokens are. With language models a few thousand of 100,000 tokens lie within the first, and so does
// nearly every draw.
constexpr float kNear[] = {8, 12, 16};
// A little more than the weight of a token at a distance.
double weight_beyond(float distance) { return 1.001 * std::exp(-static_cast<double>(distance)); }

// A row as dense binary32, and where its maximum is.
struct ScannedRow {
  const float* x;
  int64_t n;
  float top;  // a NaN if there is one
  int64_t best;
};

ScannedRow scan(const Row& row) {
  const bool dense = row.dtype == DType::F32 && row.stride == 1;
  const int64_t n = row.length, segments = segments_of(n);
  float* wide = dense ? nullptr : scratch<float>(Scratch::Row0, static_cast<size_t>(n + kSlack));
  ScannedRow scanned{dense ? reinterpret_cast<const float*>(row.data) : wide, n,
                     -std::numeric_limits<float>::infinity(), 0};
  float* tops = scratch<float>(Scratch::Spans, static_cast<size_t>(segments));
  const auto top_of = AA_CPU_DISPATCH(segment_top);
  parallel_for(segments, kSegment, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      const int64_t first = s * kSegment;
      tops[s] = top_of(row, first, std::min(kSegment, n - first), dense ? nullptr : wide + first);
    }
  });
  int64_t best = 0;
  for (int64_t s = 0; s < segments && !std::isnan(scanned.top); ++s) {
    if (!std::isnan(tops[s]) && tops[s] <= scanned.top) continue;
    scanned.top = tops[s];
    best = s * kSegment;
  }
  if (n > 0)
    scanned.best = best + AA_CPU_DISPATCH(find_value)(scanned.x + best, std::min(kSegment, n - best), scanned.top);
  return scanned;
}

// Calls body(row) for all rows: on several threads if there are enough rows, else one after another, so that body can
// share out its loops.
template <class Body>
void for_rows(int64_t rows, int64_t length, Body&& body) {
  if (rows >= WorkerPool::instance().size()) {
    return parallel_for(rows, length, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) body(r);
    });
  }
  const FlushDenormals flush;
  for (int64_t r = 0; r < rows; ++r) body(r);
}

// Falling logit, lower index first among equals.
struct MoreLikely {
  const float* x;
  bool operator()(uint32_t a, uint32_t b) const { return x[a] > x[b] || (x[a] == x[b] && a < b); }
};

int64_t keep_most_likely(const float* x, int64_t k, uint32_t* indices, int64_t count) {
  if (count <= k) return count;
  std::nth_element(indices, indices + k - 1, indices + count, MoreLikely{x});
  return k;
}

// The indices of the k most likely of [begin, end), in no order; returns how many there are, which is less than k when
// the others are -infinity. `out` has room for room_of_top(k).
int64_t room_of_top(int64_t k) { return 3 * k + kSlack + 1024; }
int64_t top_k_of(const float* x, int64_t begin, int64_t end, int64_t k, uint32_t* out) {
  const auto gather = AA_CPU_DISPATCH(gather_above);
  float bound = -std::numeric_limits<float>::infinity();
  int64_t count = 0;
  while (begin < end) {
    count += gather(x, &begin, end, bound, out + count, room_of_top(k) - count);
    if (count <= k) continue;
    // Later elements must beat the k-th; one that equals it comes after it.
    count = keep_most_likely(x, k, out, count);
    bound = x[out[k - 1]];
  }
  return count;
}

// The same for a whole row, but in the order of the indices. Sets `out` to scratch memory of this thread.
int64_t top_k(const float* x, int64_t n, int64_t k, uint32_t*& out) {
  // With a large k, merging would take as long as choosing.
  const int64_t parts = std::clamp<int64_t>(std::min(segments_of(n), n / (8 * k)), 1, WorkerPool::instance().size());
  const int64_t room = room_of_top(k);
  out = scratch<uint32_t>(Scratch::Candidates, static_cast<size_t>(parts * room));
  int64_t* counts = scratch<int64_t>(Scratch::Spans, static_cast<size_t>(parts));
  parallel_for(parts, n / parts, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      counts[i] = top_k_of(x, n * i / parts, n * (i + 1) / parts, k, out + i * room);
    }
  });
  int64_t count = counts[0];
  for (int64_t i = 1; i < parts; ++i) {
    std::copy_n(out + i * room, counts[i], out + count);
    count += counts[i];
  }
  count = keep_most_likely(x, k, out, count);
  std::sort(out, out + count);
  return count;
}

// The sum of the weights of a row; with candidates, also the indices of those above `bound`, in order.
double sum_weights(const ScannedRow& row, float factor, float bound, uint32_t* candidates, int64_t& count) {
  const auto gather = AA_CPU_DISPATCH(gather_above);
  const auto sum = AA_CPU_DISPATCH(exponentials);
  const int64_t segments = segments_of(row.n);
  struct Found {
    double sum;
    int64_t count;
  };
  Found* found = scratch<Found>(Scratch::Spans, static_cast<size_t>(segments));
  parallel_for(segments, 4 * kSegment, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      int64_t position = s * kSegment;
      const int64_t last = std::min(position + kSegment, row.n);
      found[s].sum = sum(row.x + position, last - position, row.top, factor, nullptr);
      found[s].count = gather(row.x, &position, last, bound, candidates + s * (kSegment + kSlack), kSegment + kSlack);
    }
  });
  double total = 0;
  count = 0;
  for (int64_t s = 0; s < segments; ++s) {
    total += found[s].sum;
    const uint32_t* from = candidates + s * (kSegment + kSlack);
    std::copy(from, from + found[s].count, candidates + count);
    count += found[s].count;
  }
  return total;
}

// The candidates of a draw: indices into a row, and of each the logit and the weight relative to the maximum.
struct Candidates {
  const uint32_t* indices;  // null: all of the row
  const float* logits;
  float* weights;
  int64_t count;

  uint32_t index(int64_t i) const { return indices != nullptr ? indices[i] : static_cast<uint32_t>(i); }
};

// Sorts candidates into buckets of falling logits. A bucket is sorted only when it is needed.
class Buckets {
 public:
  // Also computes the weights. All candidates that lie `widest` or more below the maximum share the last bucket.
  Buckets(const Candidates& candidates, float top, float widest, float factor)
      : candidates_(candidates),
        order_(scratch<Pair>(Scratch::Tile, static_cast<size_t>(candidates.count))),
        buckets_(scratch<uint32_t>(Scratch::Row3, static_cast<size_t>(candidates.count + kSlack))) {
    const int64_t count = candidates.count, segments = segments_of(count);
    Part* parts = scratch<Part>(Scratch::Partials, static_cast<size_t>(segments));
    const auto find_lowest = AA_CPU_DISPATCH(lowest_of);
    const auto for_segments = [&](auto&& body) {
      parallel_for(segments, 4 * kSegment, [&](int64_t begin, int64_t end) {
        for (int64_t s = begin; s < end; ++s) body(parts[s], s * kSegment, std::min(kSegment, count - s * kSegment));
      });
    };
    for_segments(
        [&](Part& part, int64_t begin, int64_t n) { part.lowest = find_lowest(candidates.logits + begin, n); });
    float lowest = top;
    for (int64_t s = 0; s < segments; ++s) lowest = std::min(lowest, parts[s].lowest);
    widest = std::min(widest, top - lowest);
    const float scale = widest > 0 ? static_cast<float>(kCount) / widest : 0;
    const auto weigh = AA_CPU_DISPATCH(exponentials);
    const auto find = AA_CPU_DISPATCH(find_buckets);
    for_segments([&](Part& part, int64_t begin, int64_t n) {
      float* weights = candidates.weights + begin;
      uint32_t* buckets = buckets_ + begin;
      part.total = weigh(candidates.logits + begin, n, top, factor, weights);
      find(candidates.logits + begin, n, top, scale, kCount - 1, buckets);
      std::fill_n(part.mass, kCount, 0.0);
      std::fill_n(part.least, kCount, std::numeric_limits<float>::infinity());
      std::fill_n(part.count, kCount, 0);
      for (int64_t i = 0; i < n; ++i) {
        const uint32_t b = buckets[i];
        part.mass[b] += static_cast<double>(weights[i]);
        part.least[b] = std::min(part.least[b], weights[i]);
        ++part.count[b];
      }
    });
    std::fill_n(least_, kCount, std::numeric_limits<float>::infinity());
    for (int64_t s = 0; s < segments; ++s) {
      total_ += parts[s].total;
      for (int b = 0; b < kCount; ++b) {
        mass_[b] += parts[s].mass[b];
        least_[b] = std::min(least_[b], parts[s].least[b]);
        begin_[b + 1] += parts[s].count[b];
      }
    }
    for (int b = 0; b < kCount; ++b) begin_[b + 1] += begin_[b];
  }

  // The sum of all weights.
  double total() const { return total_; }

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
        inside += static_cast<double>(order_[i].weight);
        if (there(inside)) return {i, before, static_cast<double>(order_[i].weight)};
      }
      sum = inside;
    }
    return {begin_[kCount], sum, 0};
  }

  // The first candidate, in falling order, that weighs less than `bound`.
  Crossing below(double bound) {
    double sum = 0;
    for (int b = 0; b < kCount; ++b) {
      if (static_cast<double>(least_[b]) >= bound) {
        sum += mass_[b];
        continue;
      }
      sort(b);
      for (int64_t i = begin_[b]; i < begin_[b + 1]; ++i) {
        const auto weight = static_cast<double>(order_[i].weight);
        if (weight < bound) return {i, sum, weight};
        sum += weight;
      }
    }
    return {begin_[kCount], sum, 0};
  }

  // The index at a rank that cross() has returned, or the last one.
  uint32_t index_at(int64_t rank) {
    int b = 0;
    while (begin_[b + 1] <= rank) ++b;
    sort(b);
    return candidates_.index(order_[rank].position);
  }

 private:
  static constexpr int kCount = 512;

  // Of a segment of the candidates.
  struct Part {
    double total;
    double mass[kCount];
    float least[kCount];
    int32_t count[kCount];
    float lowest;
  };
  struct Pair {
    uint32_t position;  // among the candidates
    float weight;
  };

  void sort(int b) {
    if (sorted_[b]) return;
    sorted_[b] = true;
    const int64_t n = begin_[b + 1] - begin_[b];
    uint32_t* positions = scratch<uint32_t>(Scratch::Tasks, static_cast<size_t>(n + kSlack));
    AA_CPU_DISPATCH(find_in_bucket)(buckets_, candidates_.count, static_cast<uint32_t>(b), positions);
    Pair* pairs = order_ + begin_[b];
    for (int64_t i = 0; i < n; ++i) pairs[i] = {positions[i], candidates_.weights[positions[i]]};
    // Candidates are in the order of their indices.
    const MoreLikely more_likely{candidates_.logits};
    std::sort(pairs, pairs + n, [&](const Pair& p, const Pair& q) { return more_likely(p.position, q.position); });
  }

  const Candidates& candidates_;
  Pair* order_;
  uint32_t* buckets_;
  double total_ = 0;
  int64_t begin_[kCount + 1] = {};
  double mass_[kCount] = {};
  float least_[kCount];
  bool sorted_[kCount] = {};
};

// Draws from `count` candidates, given by their indices in rising order (null: the whole row). `total` is the sum of
// the weights of all tokens that may be drawn. Unless `complete`, these are more than the candidates, which are the
// ones nearer to the maximum than `distance`; then returns -1 when the draw falls on another token.
int64_t draw(const float* x, float top, const uint32_t* candidates, int64_t count, float factor, double total,
             bool complete, float distance, const aa_sample_params& params, float u) {
  drawn.fetch_add(count, std::memory_order_relaxed);
  const size_t room = static_cast<size_t>(count + kSlack);
  Candidates drawn_from{candidates, x, scratch<float>(Scratch::Row2, room), count};
  if (candidates != nullptr) {
    float* logits = scratch<float>(Scratch::Row1, room);
    for (int64_t i = 0; i < count; ++i) logits[i] = x[candidates[i]];
    drawn_from.logits = logits;
  }
  Buckets buckets(drawn_from, top, distance / factor, factor);
  if (complete) total = buckets.total();

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
    // Tokens that are not candidates have a lower probability than any candidate; only a small min_p keeps some.
    if (cut.rank == count && !complete && static_cast<double>(params.min_p) < weight_beyond(distance)) return -1;
    if (cut.rank > 0 && cut.rank <= last) {
      kept = cut.before;
      last = cut.rank - 1;
    } else if (cut.rank == count && last == count - 1 && kept > cut.before) {
      kept = cut.before;  // no token outside of the candidates is kept
    }
  }
  const auto crossing = buckets.cross(static_cast<double>(u) * kept, true);
  if (crossing.rank >= count && !complete) return -1;
  return buckets.index_at(std::min(crossing.rank, last));
}

int64_t sample_row(const Row& row, const aa_sample_params& params, float u) {
  const ScannedRow scanned = scan(row);
  const auto& [x, n, top, best] = scanned;
  if (!std::isfinite(top)) return -1;
  if (params.temperature == 0 || params.top_k == 1) return best;

  const float factor = 1.0f / params.temperature;
  const float furthest = kNear[std::size(kNear) - 1];
  uint32_t* candidates = nullptr;
  int64_t count = 0;
  if (params.top_k > 0 && params.top_k < n) {
    count = top_k(x, n, params.top_k, candidates);
    return draw(x, top, candidates, count, factor, 0, true, furthest, params, u);
  }
  candidates = scratch<uint32_t>(Scratch::Candidates, static_cast<size_t>(segments_of(n) * (kSegment + kSlack)));
  double total = 0;
  for (const float distance : kNear) {
    const float bound = top - distance * params.temperature;
    if (distance == kNear[0]) {
      total = sum_weights(scanned, factor, bound, candidates, count);
    } else {
      int64_t position = 0;
      count = AA_CPU_DISPATCH(gather_above)(x, &position, n, bound, candidates, n + kSlack);
    }
    if (count >= n / 2) break;
    const int64_t token = count > 0 ? draw(x, top, candidates, count, factor, total, false, distance, params, u) : -1;
    if (token >= 0) return token;
  }
  return draw(x, top, nullptr, n, factor, total, true, furthest, params, u);
}

void store_index(const aa_tensor& out, int64_t row, int64_t value) {
  const DType dtype = static_cast<DType>(out.dtype);
  store_number(static_cast<char*>(out.data) + row * out.strides[0] * static_cast<int64_t>(dtype_size(dtype)), dtype,
               value);
}

}  // namespace

int64_t drawn_candidates() noexcept { return drawn.load(std::memory_order_relaxed); }

void argmax(const aa_op_call& call) {
  const Rows x(call.tensors[1]);
  for_rows(x.count(), x.length(), [&](int64_t r) { store_index(call.tensors[0], r, scan(x.row(r)).best); });
}

void sample(const aa_op_call& call) {
  const auto& params = params_of<aa_sample_params>(call);
  const Rows logits(call.tensors[1]), seen(call.tensors[3]);
  const aa_tensor& rng = call.tensors[2];
  const uint64_t seed = static_cast<uint64_t>(index_at(rng, 0)), offset = static_cast<uint64_t>(index_at(rng, 1));
  for_rows(logits.count(), logits.length() * 4, [&](int64_t r) {
    const uint64_t n = static_cast<uint64_t>(r);
    const int64_t token = sample_row(logits.row(r), params, philox_unit(philox_words(seed, offset + n / 4)[n % 4]));
    store_index(call.tensors[0], r, token);
    if (seen.present() && token >= 0) seen.row(r).data[token * seen.stride()] = 1;
  });
}

}  // namespace anyaccel::cpu
#endif
