// The state of attention of one token for the query heads of a key/value head: queries, scores and sums, and their
// memory. Included after base/simd/highway.h, once per instruction set; empty for others than AVX2 and AVX-512.
#include <algorithm>
#include <cstring>

#include "accelerators/cpu/kernels/attention_decoded-inl.h"
#include "accelerators/cpu/kernels/attention_rows-inl.h"
#include "accelerators/cpu/kernels/attention_softmax-inl.h"
#include "accelerators/cpu/kernels/attention_tile.h"
#include "accelerators/cpu/kernels/attention_values-inl.h"
#include "accelerators/cpu/kernels/rows.h"
#include "accelerators/cpu/kernels/scratch.h"
#include "accelerators/cpu/kernels/vector-inl.h"

#if defined(ANYACCEL_CPU_KERNELS_ATTENTION_TOKEN_STATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_ATTENTION_TOKEN_STATE_INL_H_
#undef ANYACCEL_CPU_KERNELS_ATTENTION_TOKEN_STATE_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_ATTENTION_TOKEN_STATE_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

// Interleaves the 128-bit parts of a and b.
HWY_INLINE void interleave_blocks(FloatVec& a, FloatVec& b) {
#if HWY_TARGET == HWY_AVX3
  const __m512 low = _mm512_shuffle_f32x4(a.raw, b.raw, 0x44), high = _mm512_shuffle_f32x4(a.raw, b.raw, 0xee);
  a = FloatVec{_mm512_shuffle_f32x4(low, low, 0xd8)};
  b = FloatVec{_mm512_shuffle_f32x4(high, high, 0xd8)};
#else
  const auto low = hn::ConcatLowerLower(kFloats, b, a);
  b = hn::ConcatUpperUpper(kFloats, b, a);
  a = low;
#endif
}

// The order in which sums of values lie in each kPair of them.
enum class SumOrder {
  Elements,
  EvenThenOdd,  // as load_pair delivers bf16
  InFours,      // see sum_pairs
};

// to[d] = factor * the sum of element d, for n elements, a multiple of kPair. `to` may be `sums`.
HWY_INLINE void scale_sums(const float* sums, SumOrder order, float factor, int64_t n, float* to) {
  for (int64_t d = 0; d < n; d += kPair) {
    auto a = hn::LoadU(kFloats, sums + d), b = hn::LoadU(kFloats, sums + d + kLanes);
    if (order == SumOrder::EvenThenOdd) {
      const auto low = hn::InterleaveLower(kFloats, a, b);
      b = hn::InterleaveUpper(kFloats, a, b);
      a = low;
    }
    if (order != SumOrder::Elements) interleave_blocks(a, b);
    hn::StoreU(hn::Mul(a, hn::Set(kFloats, factor)), kFloats, to + d);
    hn::StoreU(hn::Mul(b, hn::Set(kFloats, factor)), kFloats, to + d + kLanes);
  }
}

// A row is a query head; padded rows are zeros. Lives in the calling thread's scratch memory.
struct TokenState {
  const AttentionCall& call;
  const AttentionTile& tile;
  int64_t rows, padded_rows, size;
  float* q;       // [rows][size], in the order in which keys are loaded
  float* spread;  // packed queries of each group of rows: see spread_pairs(), spread_eight() and pack_queries()
  float* sums;    // [rows][size], in a SumOrder
  float* scores;  // [rows][kScoreStride], and the weights that they become; paired: bf16, at the beginning of each row
  float* unit_sums;     // see UnitMemory
  float* unit_weights;  // the same
  float* decoded;       // with AVX-512: rows of keys or values in bf16, see for_decoded_parts()
  float* total;         // [rows][kLanes]: partial sums of the weights
  float* maximum;       // [rows]
  float* correction;    // [rows]

  TokenState(const AttentionCall& the_call, const AttentionTile& the_tile)
      : call(the_call),
        tile(the_tile),
        rows(call.group),
        padded_rows((rows + kMostRows - 1) / kMostRows * kMostRows),
        size(call.head_size) {
    const int64_t decoded_floats = decoded_slots(size) * size / 2;
    float* p = scratch<float>(
        Scratch::Tile, static_cast<size_t>(padded_rows * (5 * size + 2 * kScoreStride + kLanes + 2) + decoded_floats) +
                           2 * kBehindRows);
    const auto take = [&](int64_t floats) {
      float* part = p;
      p += floats;
      return part;
    };
    q = take(padded_rows * size);
    spread = take(padded_rows * 2 * size);
    sums = take(padded_rows * size);
    scores = take(padded_rows * kScoreStride);
    unit_sums = take(padded_rows * size);
    unit_weights = take(padded_rows * kScoreStride);
    decoded = take(decoded_floats);
    total = take(padded_rows * kLanes);
    maximum = take(padded_rows + kBehindRows);
    correction = take(padded_rows + kBehindRows);
  }

  // Clears the sums and reads the queries as floats.
  void begin() {
    std::fill(sums, sums + padded_rows * size, 0.0f);
    std::fill(total, total + rows * kLanes, 0.0f);
    std::fill(maximum, maximum + rows, kMinusInfinity);
    std::fill(correction, correction + padded_rows, 0.0f);
    for (int64_t m = 0; m < rows; ++m) read_row(head_row(*call.q, m), 0, size, q + m * size);
    std::fill(q + rows * size, q + padded_rows * size, 0.0f);
  }

  // Writes the result or the partial result. The sums are in this order and are multiplied by `unit`.
  void finish(SumOrder order, float unit) {
    float* row = scratch<float>(Scratch::Row0, static_cast<size_t>(size));
    for (int64_t m = 0; m < rows; ++m) {
      float* to = tile.partial ? tile.partial + m * partial_row_floats(size) : row;
      const float sum = sum_lanes(hn::LoadU(kFloats, total + m * kLanes));
      const float sink = call.sink_weight(head(m), maximum[m]);
      const float factor = unit * (tile.partial ? 1.0f : 1.0f / (sum + sink));
      scale_sums(sums + m * size, order, factor, size, to);
      if (tile.partial) {
        to[size] = maximum[m];
        to[size + 1] = sum;
      } else {
        write_row(head_row(*call.out, m), 0, size, to);
      }
    }
  }

  int64_t head(int64_t m) const { return tile.kv_head * call.group + m; }
  Row head_row(const aa_tensor& t, int64_t m) const { return call.head_row(t, tile.token, head(m)); }
  // The slope of a row in a block whose first slot is `first`.
  RowSlope slope(int64_t m, int64_t first) const {
    return {call.slope(head(m)), call.seen_by(tile.token).end - 1 - first};
  }
};

#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
