// See attention_matrix.h.
//
// The online softmax of attention_tile.cpp, with both products on tiles. Queries are taken in groups of 16, the columns of every
// tile of results, so that maxima and sums of the softmax are those of whole vectors:
//   scores [slots][queries] = K Q^T: K is the left operand as it lies in the cache, Q^T is put into pairs of elements once;
//   sums   [head][queries]  = V^T W: V^T is transposed once for each block of slots and all queries of the tile, and the
//                             weights W become pairs of slots with one instruction more than rounding them takes.
// The groups of a block go through three steps, scores, weights and sums, as through a pipeline: while the vector units compute one
// group's weights, the matrix unit multiplies for its neighbours.
//
// Without the unit, dot products of bf16 pairs do the same where they are fast (AMD), one step after the other.
//
// Weights of a row are relative to a maximum that follows the true one at a distance of at most 2^8, so sums seldom have to be
// multiplied by a correction.
#include "accelerators/cpu/kernels/attention_matrix.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <type_traits>

#include "accelerators/cpu/kernels/rows.h"
#include "accelerators/cpu/kernels/scratch.h"
#include "base/scalar_convert.h"
#include "base/simd/amx.h"
#include "base/simd/dispatch.h"

#ifndef AA_KERNEL_BATCH
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "accelerators/cpu/kernels/attention_matrix.cpp"
#include "hwy/foreach_target.h"
#endif
#include "base/simd/highway.h"
// After highway.h
#include "accelerators/cpu/kernels/attention_softmax-inl.h"
#include "accelerators/cpu/kernels/attention_transpose-inl.h"
#include "accelerators/cpu/kernels/bf16_dots-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

constexpr int64_t kSide = 16;                      // rows of a tile, and its columns of 4 bytes
constexpr int64_t kDepth = 32;                     // elements of bf16 in a row of a tile
constexpr int64_t kTileItems = kSide * kDepth;     // elements of bf16 in a tile
constexpr int64_t kMatrixSlots = kAttentionBlock;  // slots of a block
constexpr int64_t kPieces = kMatrixSlots / kDepth;
constexpr int64_t kStageFloats = kMatrixSlots * kSide;

// A group of kSide rows of the tile; the last group's rows past the tile's repeat its last one.
struct QueryGroup {
  int32_t begin[kSide], end[kSide];  // the slots that each row sees, of those of the tile
  int32_t own[kSide];                // the row's own slot
  float slope[kSide];
  float maximum[kSide];
  float total[kSide];  // of the rounded weights
  SlotRange any, all;  // slots that any row sees, and those that all rows see
};

// Elements 2 i and 2 i + 1 of kSide rows of bf16, `row_stride` elements apart, as pairs[i][row], i < kSide.
HWY_INLINE void pair_rows(const uint16_t* rows, int64_t row_stride, uint16_t* pairs) {
#if HWY_TARGET == HWY_AVX3
  FloatVec v[kLanes];
  AA_UNROLL for (int64_t r = 0; r < kLanes; ++r) v[r] = FloatVec{_mm512_loadu_ps(rows + r * row_stride)};
  transpose(v);
  AA_UNROLL for (int64_t i = 0; i < kLanes; ++i) _mm512_storeu_ps(pairs + i * kDepth, v[i].raw);
#else
  for (int64_t i = 0; i < kSide; ++i) {
    for (int64_t r = 0; r < kSide; ++r) std::memcpy(pairs + i * kDepth + 2 * r, rows + r * row_stride + 2 * i, 4);
  }
#endif
}

// kDepth rows of kDepth elements, `stride` elements apart, of which those from `count` on are taken for zeros, transposed into two
// tiles: to[d][row]. Returns true if all elements are finite.
HWY_INLINE bool transpose_values(const uint16_t* rows, int64_t stride, int64_t count, uint16_t* to) {
#if HWY_TARGET == HWY_AVX3
  __m512i infinite = _mm512_setzero_si512();
  const __m512i exponent = _mm512_set1_epi16(0x7f80);
  __mmask32 found = 0;
  FloatVec low[kLanes], high[kLanes];
  AA_UNROLL for (int64_t i = 0; i < kLanes; ++i) {
    const __m512i a = 2 * i < count ? _mm512_loadu_si512(rows + 2 * i * stride) : infinite;
    const __m512i b = 2 * i + 1 < count ? _mm512_loadu_si512(rows + (2 * i + 1) * stride) : infinite;
    found |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(a, exponent), exponent) |
             _mm512_cmpeq_epi16_mask(_mm512_and_si512(b, exponent), exponent);
    low[i] = FloatVec{_mm512_castsi512_ps(_mm512_unpacklo_epi16(a, b))};
    high[i] = FloatVec{_mm512_castsi512_ps(_mm512_unpackhi_epi16(a, b))};
  }
  // Lane l of `low` is element l / 4 * 8 + l % 4, that of `high` four more.
  transpose(low);
  AA_UNROLL for (int64_t i = 0; i < kLanes; ++i) _mm512_storeu_ps(to + (i / 4 * 8 + i % 4) * kDepth, low[i].raw);
  transpose(high);
  AA_UNROLL for (int64_t i = 0; i < kLanes; ++i) _mm512_storeu_ps(to + (i / 4 * 8 + i % 4 + 4) * kDepth, high[i].raw);
  return found == 0;
#else
  bool finite = true;
  for (int64_t d = 0; d < kDepth; ++d) {
    for (int64_t j = 0; j < kDepth; ++j) {
      const uint16_t item = j < count ? rows[j * stride + d] : uint16_t{0};
      finite = finite && (item & 0x7f80u) != 0x7f80u;
      to[d * kDepth + j] = item;
    }
  }
  return finite;
#endif
}

// The matrix unit in software, out of line: there are many places where it is called.
struct SoftwareUnit {
  using Unit = amx::EmulatedUnit;
  static void set_shapes(const std::array<amx::TileShape, amx::kTiles>& shapes) { Unit::set_shapes(shapes); }
  static void release() { Unit::release(); }
  template <int tile>
  static HWY_NOINLINE void zero() {
    Unit::zero<tile>();
  }
  template <int tile>
  static HWY_NOINLINE void load(const void* from, int64_t stride) {
    Unit::load<tile>(from, stride);
  }
  template <int tile>
  static HWY_NOINLINE void store(void* to, int64_t stride) {
    Unit::store<tile>(to, stride);
  }
  template <int sum, int a, int b>
  static HWY_NOINLINE void multiply_bf16() {
    Unit::multiply_bf16<sum, a, b>();
  }
};

// Dot products of bf16 pairs in the unit's place, with the same operands: a vector of results has a slot, or an element of the head,
// for the 16 queries of a group. MatrixRunner has its own loops for them, since tiles would not stay in registers.
struct Dots {
  static void set_shapes(const std::array<amx::TileShape, amx::kTiles>& /*shapes*/) {}
  static void release() {}
};

template <class Unit>
class MatrixRunner {
 public:
  MatrixRunner(const AttentionCall& call, const AttentionTile& tile)
      : call_(call),
        tile_(tile),
        rows_(tile.tokens * call.group),
        groups_count_((rows_ + kSide - 1) / kSide),
        size_(call.head_size),
        padded_((size_ + kDepth - 1) / kDepth * kDepth) {
    const int64_t chunks = padded_ / kDepth;
    const int64_t sizes[] = {
        groups_count_ * chunks * kTileItems * 2,  // queries
        padded_ * kMatrixSlots * 2,               // values
        padded_ * kMatrixSlots * 2,               // copies of keys
        padded_ * kMatrixSlots * 2,               // and of values
        groups_count_ * padded_ * kSide * 4,      // sums
        2 * kStageFloats * 4,                     // scores
        2 * kStageFloats * 2,                     // weights
        groups_count_ * static_cast<int64_t>(sizeof(QueryGroup)),
        kSide * padded_ * 4,  // rows of floats
    };
    int64_t total = 0;
    for (int64_t bytes : sizes) total += (bytes + 63) / 64 * 64;
    char* p = scratch<char>(Scratch::Tile, static_cast<size_t>(total));
    char* part[std::size(sizes)];
    for (size_t i = 0; i < std::size(sizes); ++i) {
      part[i] = p;
      p += (sizes[i] + 63) / 64 * 64;
    }
    queries_ = reinterpret_cast<uint16_t*>(part[0]);
    values_ = reinterpret_cast<uint16_t*>(part[1]);
    key_copies_ = reinterpret_cast<uint16_t*>(part[2]);
    value_copies_ = reinterpret_cast<uint16_t*>(part[3]);
    sums_ = reinterpret_cast<float*>(part[4]);
    scores_ = reinterpret_cast<float*>(part[5]);
    weights_ = reinterpret_cast<uint16_t*>(part[6]);
    groups_ = reinterpret_cast<QueryGroup*>(part[7]);
    buffer_ = reinterpret_cast<float*>(part[8]);
  }

  void run() {
    prepare();
    std::array<amx::TileShape, amx::kTiles> shapes;
    shapes.fill({kSide, 4 * kSide});
    Unit::set_shapes(shapes);
    for (block_ = tile_.begin; block_ < tile_.end; block_ += kMatrixSlots) {
      slots_ = std::min(kMatrixSlots, tile_.end - block_);
      load_block();
      if constexpr (std::is_same_v<Unit, Dots>) {
        this->run_block_by_dots();
      } else {
        run_block();
      }
    }
    Unit::release();
    finish();
  }

 private:
  int64_t head_of(int64_t row) const { return tile_.kv_head * call_.group + row % call_.group; }

  Row query_row(const aa_tensor& t, int64_t row) const {
    return call_.head_row(t, tile_.token + row / call_.group, head_of(row));
  }

  // Rows of one token follow each other in memory; those of the next are too far away for the processor to expect them.
  void prefetch_query(int64_t row) const {
    if (row >= rows_) return;
    const Row next = query_row(*call_.q, row);
    const int64_t item = static_cast<int64_t>(dtype_size(next.dtype));
    for (int64_t d = 0; d < size_ * item; d += 64) __builtin_prefetch(next.data + d * next.stride, 0, 3);
  }

  void prepare() {
    std::fill(sums_, sums_ + groups_count_ * padded_ * kSide, 0.0f);
    // Of a negative factor, the sign goes to the queries: the largest score has the largest weight then.
    const float sign = score_factor(call_.scale, call_.softcap) < 0 ? -1.0f : 1.0f;
    auto* rounded = reinterpret_cast<uint16_t*>(scratch<float>(Scratch::Row0, static_cast<size_t>(kSide * padded_)));
    for (int64_t g = 0; g < groups_count_; ++g) {
      QueryGroup& group = groups_[g];
      for (int64_t m = 0; m < kSide; ++m) {
        const int64_t row = std::min(g * kSide + m, rows_ - 1);
        SlotRange seen = call_.seen_by(tile_.token + row / call_.group);
        group.own[m] = static_cast<int32_t>(seen.end - 1);
        // A tile that is a part of the slots may end within a block: what follows belongs to the next part.
        seen = {std::max(seen.begin, tile_.begin), std::min(seen.end, tile_.end)};
        group.begin[m] = static_cast<int32_t>(seen.begin);
        group.end[m] = static_cast<int32_t>(seen.end);
        group.slope[m] = call_.slope(head_of(row));
        group.maximum[m] = kMinusInfinity;
        group.total[m] = 0;
        if (m == 0) {
          group.any = group.all = seen;
        } else {
          group.any = {std::min(group.any.begin, seen.begin), std::max(group.any.end, seen.end)};
          group.all = {std::max(group.all.begin, seen.begin), std::min(group.all.end, seen.end)};
        }
        prefetch_query(row + kSide);
        float* wide = buffer_;
        read_row(query_row(*call_.q, row), 0, size_, wide);
        for (int64_t d = 0; d < size_; ++d) wide[d] *= sign;
        std::fill(wide + size_, wide + padded_, 0.0f);
        narrow(Bf16Type(), wide, rounded + m * padded_, padded_);
      }
      for (int64_t d = 0; d < padded_; d += kDepth) {
        pair_rows(rounded + d, padded_, queries_ + (g * padded_ + d) * kSide);
      }
      any_.begin = g == 0 ? group.any.begin : std::min(any_.begin, group.any.begin);
      any_.end = g == 0 ? group.any.end : std::max(any_.end, group.any.end);
      all_.begin = g == 0 ? group.all.begin : std::max(all_.begin, group.all.begin);
      all_.end = g == 0 ? group.all.end : std::min(all_.end, group.all.end);
    }
  }

  // The first row of the block, and the stride, in elements of bf16. Rows that cannot be used as they lie are copied, with zeros up
  // to the padded size; those from slots_ on are zeros then.
  const uint16_t* rows_of(const aa_tensor& t, bool whole, uint16_t* copies, int64_t& stride) const {
    const auto* first = static_cast<const uint16_t*>(t.data) + tile_.sequence * t.strides[0] +
                        tile_.kv_head * t.strides[1] + block_ * t.strides[2];
    stride = t.strides[2];
    if (size_ == padded_ && t.strides[3] == 1 && (!whole || slots_ == kMatrixSlots)) return first;
    for (int64_t j = 0; j < kMatrixSlots; ++j) {
      uint16_t* to = copies + j * padded_;
      const int64_t n = j < slots_ ? size_ : 0;
      if (t.strides[3] == 1) {
        std::memcpy(to, first + j * stride, static_cast<size_t>(n) * sizeof(uint16_t));
      } else {
        for (int64_t d = 0; d < n; ++d) to[d] = first[j * stride + d * t.strides[3]];
      }
      std::fill(to + n, to + padded_, uint16_t{0});
    }
    stride = padded_;
    return copies;
  }

  // Prefetches the rows of the next block into the second level cache.
  void prefetch_next(const aa_tensor& t) const {
    const int64_t ahead = std::min(kMatrixSlots, tile_.end - block_ - slots_);
    const auto* row = static_cast<const uint16_t*>(t.data) + tile_.sequence * t.strides[0] +
                      tile_.kv_head * t.strides[1] + (block_ + slots_) * t.strides[2];
    for (int64_t j = 0; j < ahead; ++j, row += t.strides[2]) {
      for (int64_t d = 0; d < size_; d += kDepth) __builtin_prefetch(row + d * t.strides[3], 0, 2);
    }
  }

  void load_block() {
    keys_ = rows_of(*call_.k, true, key_copies_, key_stride_);
    int64_t stride = 0;
    const uint16_t* rows = rows_of(*call_.v, false, value_copies_, stride);
    prefetch_next(*call_.k);
    prefetch_next(*call_.v);
    bool finite = true;
    for (int64_t piece = 0; piece < kPieces; ++piece) {
      const int64_t count = std::clamp<int64_t>(slots_ - piece * kDepth, 0, kDepth);
      for (int64_t d = 0; d < padded_; d += kDepth) {
        finite &= transpose_values(rows + piece * kDepth * stride + d, stride, count,
                                   values_ + piece * kDepth * padded_ + d * kDepth);
      }
    }
    hides_infinite_ = !finite && (all_.begin > block_ || all_.end < block_ + slots_);
    if (hides_infinite_) set_infinite_apart();
  }

  // 0 * infinity must not reach rows that do not see the slot: values that are not finite are taken out of the block, and added to
  // the sums of the rows that see them one by one.
  void set_infinite_apart() {
    for (int64_t i = 0; i < padded_ * kMatrixSlots; ++i) {
      const bool finite = (values_[i] & 0x7f80u) != 0x7f80u;
      value_copies_[i] = finite ? uint16_t{0} : values_[i];
      if (!finite) values_[i] = 0;
    }
  }
  void add_infinite(int64_t g, const uint16_t* weights) {
    const QueryGroup& group = groups_[g];
    float* sums = sums_ + g * padded_ * kSide;
    for (int64_t i = 0; i < padded_ * kMatrixSlots; ++i) {
      if (value_copies_[i] == 0) continue;
      const int64_t d = i / kDepth % padded_, j = i / (kDepth * padded_) * kDepth + i % kDepth;
      for (int64_t m = 0; m < kSide; ++m) {
        if (block_ + j < group.begin[m] || block_ + j >= group.end[m]) continue;
        const float weight = bf16_to_float(weights[(j / 2 * kSide + m) * 2 + j % 2]);
        sums[d * kSide + m] += weight * bf16_to_float(value_copies_[i]);
      }
    }
  }

#if HWY_TARGET == HWY_AVX3
  // Two groups at a time, which share what is loaded of keys and values.
  void run_block_by_dots() {
    for (int64_t g = 0; g < groups_count_;) {
      int64_t groups[2];
      int count = 0;
      for (; g < groups_count_ && count < 2; ++g) {
        if (groups_[g].any.begin < block_ + slots_ && groups_[g].any.end > block_) groups[count++] = g;
      }
      if (count == 2) run_groups<2>(groups);
      if (count == 1) run_groups<1>(groups);
    }
  }

  template <int kGroups>
  void run_groups(const int64_t* groups) {
    // What lies behind the last slot that is seen has no weight.
    int64_t end = 0;
    for (int i = 0; i < kGroups; ++i) end = std::max(end, std::min(groups_[groups[i]].any.end - block_, slots_));
    score_by_dots<kGroups>(groups, end);
    for (int i = 0; i < kGroups; ++i) weigh(groups[i], scores_ + i * kStageFloats, weights_ + i * kStageFloats);
    sum_by_dots<kGroups>(groups, end);
    for (int i = 0; hides_infinite_ && i < kGroups; ++i) add_infinite(groups[i], weights_ + i * kStageFloats);
  }

  static HWY_INLINE __m512i pair_at(const uint16_t* p) {
    int32_t pair;
    std::memcpy(&pair, p, sizeof(pair));
    return _mm512_set1_epi32(pair);
  }
  // Vectors of results of each group that are held in registers.
  template <int kGroups>
  static constexpr int64_t kHeld = kGroups == 1 ? 16 : 8;

  // Scores of the slots up to `end`, and of some behind it.
  template <int kGroups>
  HWY_NOINLINE void score_by_dots(const int64_t* groups, int64_t end) {
    constexpr int64_t kAtOnce = kHeld<kGroups>;
    for (int64_t j = 0; j < end; j += kAtOnce) {
      FloatVec sum[kAtOnce][kGroups];
      AA_UNROLL for (int64_t s = 0; s < kAtOnce; ++s) {
        AA_UNROLL for (int g = 0; g < kGroups; ++g) sum[s][g] = hn::Zero(kFloats);
      }
      for (int64_t d = 0; d < padded_; d += kDepth) {
        const uint16_t *q[kGroups], *keys[kAtOnce];
        AA_UNROLL for (int g = 0; g < kGroups; ++g) q[g] = queries_ + (groups[g] * padded_ + d) * kSide;
        AA_UNROLL for (int64_t s = 0; s < kAtOnce; ++s) keys[s] = keys_ + (j + s) * key_stride_ + d;
        for (int64_t i = 0; i < kDepth; i += 2) {
          __m512i query[kGroups];
          AA_UNROLL for (int g = 0; g < kGroups; ++g) query[g] = _mm512_loadu_si512(q[g] + i * kSide);
          AA_UNROLL for (int64_t s = 0; s < kAtOnce; ++s) {
            const __m512i key = pair_at(keys[s] + i);
            AA_UNROLL for (int g = 0; g < kGroups; ++g) sum[s][g] = dot_pairs(key, query[g], sum[s][g]);
          }
        }
      }
      AA_UNROLL for (int64_t s = 0; s < kAtOnce; ++s) {
        AA_UNROLL for (int g = 0; g < kGroups; ++g) {
          hn::StoreU(sum[s][g], kFloats, scores_ + g * kStageFloats + (j + s) * kSide);
        }
      }
    }
  }

  // Adds weighted values of the slots up to `end` to the sums.
  template <int kGroups>
  HWY_NOINLINE void sum_by_dots(const int64_t* groups, int64_t end) {
    constexpr int64_t kAtOnce = kHeld<kGroups>;
    for (int64_t d = 0; d < padded_; d += kAtOnce) {
      FloatVec sum[kAtOnce][kGroups];
      float* to[kGroups];
      AA_UNROLL for (int g = 0; g < kGroups; ++g) {
        to[g] = sums_ + (groups[g] * padded_ + d) * kSide;
        AA_UNROLL for (int64_t r = 0; r < kAtOnce; ++r) sum[r][g] = hn::LoadU(kFloats, to[g] + r * kSide);
      }
      for (int64_t piece = 0; piece < kPieces; ++piece) {
        const uint16_t *values = values_ + (piece * padded_ + d) * kDepth, *weights = weights_ + piece * kTileItems;
        const int64_t count = std::min(kDepth, end - piece * kDepth);
        for (int64_t i = 0; i < count; i += 2) {
          __m512i weight[kGroups];
          AA_UNROLL for (int g = 0; g < kGroups; ++g) {
            weight[g] = _mm512_loadu_si512(weights + g * kStageFloats + i * kSide);
          }
          AA_UNROLL for (int64_t r = 0; r < kAtOnce; ++r) {
            const __m512i value = pair_at(values + r * kDepth + i);
            AA_UNROLL for (int g = 0; g < kGroups; ++g) sum[r][g] = dot_pairs(value, weight[g], sum[r][g]);
          }
        }
      }
      AA_UNROLL for (int g = 0; g < kGroups; ++g) {
        AA_UNROLL for (int64_t r = 0; r < kAtOnce; ++r) hn::StoreU(sum[r][g], kFloats, to[g] + r * kSide);
      }
    }
  }
#endif

  // The groups that see something of the block pass the three steps one behind the other.
  void run_block() {
    int64_t before = -1, last = -1;  // the groups whose weights and whose sums are next
    for (int64_t g = 0, turn = 0;; ++turn) {
      while (g < groups_count_ && (groups_[g].any.begin >= block_ + slots_ || groups_[g].any.end <= block_)) ++g;
      const int64_t next = g < groups_count_ ? g++ : -1;
      if (next < 0 && before < 0 && last < 0) return;
      float *new_scores = scores_ + turn % 2 * kStageFloats, *scores = scores_ + (turn + 1) % 2 * kStageFloats;
      uint16_t *weights = weights_ + (turn + 1) % 2 * kStageFloats, *old_weights = weights_ + turn % 2 * kStageFloats;
      if (next >= 0 && before >= 0 && last >= 0 && padded_ == 2 * kDepth) {
        run_turn<2>(next, new_scores, before, scores, weights, last, old_weights);
      } else if (next >= 0 && before >= 0 && last >= 0 && padded_ == 4 * kDepth) {
        run_turn<4>(next, new_scores, before, scores, weights, last, old_weights);
      } else {
        if (next >= 0) score(next, new_scores);
        if (before >= 0) weigh(before, scores, weights);
        if (last >= 0) sum(last, old_weights);
      }
      if (last >= 0 && hides_infinite_) add_infinite(last, old_weights);
      last = before;
      before = next;
    }
  }

  // The three steps, each for another group. Instructions for tiles are mixed with those for vectors by hand, a few with each pair of
  // slots: the processor does not look far enough ahead to do so itself.
  template <int kChunks>
  HWY_NOINLINE void run_turn(int64_t scored, float* new_scores, int64_t weighed, float* scores, uint16_t* weights,
                             int64_t summed, const uint16_t* old_weights) {
    constexpr int64_t kSize = kChunks * kDepth;
    const uint16_t* q = queries_ + scored * kSize * kSide;
    const uint16_t* k = keys_;
    const int64_t k_stride = key_stride_ * 2;
    float* sums = sums_ + summed * kSize * kSide;
    const uint16_t* v = values_;
    const auto move_tiles = [&](auto step, auto pair) HWY_ATTR {
      const uint16_t* keys = k + step * kSide * key_stride_;
      float* score_tile = new_scores + step * kSide * kSide;
      if constexpr (kChunks == 2) {
        // One tile of scores, in 0 or 6, and one of sums, in 5 or 7.
        constexpr int kScore = step % 2 ? 6 : 0, kSum = step % 2 ? 7 : 5;
        constexpr int kOldScore = step % 2 ? 0 : 6, kOldSum = step % 2 ? 5 : 7;
        const uint16_t* values = v + step * kTileItems;
        float* sum_tile = sums + step * kSide * kSide;
        if constexpr (pair == 0) {
          Unit::template zero<kScore>();
          Unit::template load<1>(keys, k_stride);
          Unit::template load<2>(q, 4 * kSide);
        } else if constexpr (pair == 1) {
          Unit::template load<kSum>(sum_tile, 4 * kSide);
          Unit::template multiply_bf16<kScore, 1, 2>();
        } else if constexpr (pair == 2) {
          Unit::template load<3>(values, 2 * kDepth);
          Unit::template load<4>(old_weights, 4 * kSide);
        } else if constexpr (pair == 3) {
          Unit::template multiply_bf16<kSum, 3, 4>();
          Unit::template load<1>(keys + kDepth, k_stride);
        } else if constexpr (pair == 4) {
          Unit::template load<2>(q + kTileItems, 4 * kSide);
          if constexpr (step > 0) Unit::template store<kOldScore>(score_tile - kSide * kSide, 4 * kSide);
        } else if constexpr (pair == 5) {
          Unit::template multiply_bf16<kScore, 1, 2>();
          Unit::template load<3>(values + kDepth * kSize, 2 * kDepth);
        } else if constexpr (pair == 6) {
          Unit::template load<4>(old_weights + kTileItems, 4 * kSide);
          if constexpr (step > 0) Unit::template store<kOldSum>(sum_tile - kSide * kSide, 4 * kSide);
        } else {
          Unit::template multiply_bf16<kSum, 3, 4>();
          if constexpr (step == 3) {
            Unit::template store<kScore>(score_tile, 4 * kSide);
            Unit::template store<kSum>(sum_tile, 4 * kSide);
          }
        }
      } else {
        // One tile of scores, in 0, and two of sums, in 5 and 6.
        const uint16_t* values = v + 2 * step * kTileItems;
        float* sum_tile = sums + 2 * step * kSide * kSide;
        if constexpr (pair == 0) {
          Unit::template zero<0>();
          Unit::template load<1>(keys, k_stride);
          Unit::template load<2>(q, 4 * kSide);
          Unit::template load<5>(sum_tile, 4 * kSide);
        } else if constexpr (pair == 1) {
          Unit::template multiply_bf16<0, 1, 2>();
          Unit::template load<3>(values, 2 * kDepth);
          Unit::template load<4>(old_weights, 4 * kSide);
          Unit::template load<6>(sum_tile + kSide * kSide, 4 * kSide);
        } else if constexpr (pair == 2) {
          Unit::template multiply_bf16<5, 3, 4>();
          Unit::template load<1>(keys + kDepth, k_stride);
          Unit::template load<2>(q + kTileItems, 4 * kSide);
        } else if constexpr (pair == 3) {
          Unit::template multiply_bf16<0, 1, 2>();
          Unit::template load<3>(values + kTileItems, 2 * kDepth);
          Unit::template multiply_bf16<6, 3, 4>();
          Unit::template load<1>(keys + 2 * kDepth, k_stride);
        } else if constexpr (pair == 4) {
          Unit::template load<2>(q + 2 * kTileItems, 4 * kSide);
          Unit::template multiply_bf16<0, 1, 2>();
          Unit::template load<3>(values + kDepth * kSize, 2 * kDepth);
          Unit::template load<4>(old_weights + kTileItems, 4 * kSide);
        } else if constexpr (pair == 5) {
          Unit::template multiply_bf16<5, 3, 4>();
          Unit::template load<1>(keys + 3 * kDepth, k_stride);
          Unit::template load<2>(q + 3 * kTileItems, 4 * kSide);
        } else if constexpr (pair == 6) {
          Unit::template multiply_bf16<0, 1, 2>();
          Unit::template load<3>(values + kDepth * kSize + kTileItems, 2 * kDepth);
          Unit::template multiply_bf16<6, 3, 4>();
        } else {
          Unit::template store<5>(sum_tile, 4 * kSide);
          Unit::template store<0>(score_tile, 4 * kSide);
          Unit::template store<6>(sum_tile + kSide * kSide, 4 * kSide);
        }
      }
    };
    const auto for_steps = [&](auto function) HWY_ATTR {
      function(std::integral_constant<int, 0>());
      function(std::integral_constant<int, 1>());
      function(std::integral_constant<int, 2>());
      function(std::integral_constant<int, 3>());
    };
    const auto for_pairs = [&](auto function) HWY_ATTR {
      for_steps([&](auto i) HWY_ATTR { function(i); });
      for_steps([&](auto i) HWY_ATTR { function(std::integral_constant<int, i + 4>()); });
    };
    if constexpr (kVectors == 1) {
      Weighing weighing = begin_weighing(weighed, scores);
      for_steps([&](auto step) HWY_ATTR {
        for_pairs([&](auto pair) HWY_ATTR {
          weigh_pair(weighing.factor, weighing.bias[0], weighing.total[0][pair % kTotals], scores, weights,
                     step * kSide / 2 + pair, 0);
          move_tiles(step, pair);
        });
      });
      end_weighing(weighed, weighing);
    } else {  // other instruction sets only test this, and compilers take long for unrolled loops
      for_steps([&](auto step) HWY_ATTR { for_pairs([&](auto pair) HWY_ATTR { move_tiles(step, pair); }); });
      weigh(weighed, scores, weights);
    }
  }

  void score(int64_t group, float* scores) {
    const uint16_t* q = queries_ + group * padded_ * kSide;
    for (int64_t j = 0; j < kMatrixSlots; j += kSide) {
      Unit::template zero<0>();
      for (int64_t d = 0; d < padded_; d += kDepth) {
        Unit::template load<1>(keys_ + j * key_stride_ + d, key_stride_ * 2);
        Unit::template load<2>(q + d * kSide, 4 * kSide);
        Unit::template multiply_bf16<0, 1, 2>();
      }
      Unit::template store<0>(scores + j * kSide, 4 * kSide);
    }
  }

  // Adds weighted values to the sums.
  void sum(int64_t group, const uint16_t* weights) {
    for (int64_t d = 0; d < padded_; d += kSide) {
      float* sums = sums_ + (group * padded_ + d) * kSide;
      Unit::template load<0>(sums, 4 * kSide);
      for (int64_t piece = 0; piece < kPieces; ++piece) {
        Unit::template load<1>(values_ + (piece * padded_ + d) * kDepth, 2 * kDepth);
        Unit::template load<2>(weights + piece * kTileItems, 4 * kSide);
        Unit::template multiply_bf16<0, 1, 2>();
      }
      Unit::template store<0>(sums, 4 * kSide);
    }
  }

  static constexpr int64_t kVectors = kSide / kLanes;
  static constexpr int64_t kTotals = 4;  // sums of weights side by side, or each would wait for the one before
  struct Weighing {
    float factor;
    FloatVec bias[kVectors];  // minus the maximum, which is added to the scores times the factor
    FloatVec total[kVectors][kTotals];
  };

  // Masks scores, and updates the maximum.
  HWY_INLINE Weighing begin_weighing(int64_t g, float* scores) {
    QueryGroup& group = groups_[g];
    const float units = std::fabs(score_factor(call_.scale, call_.softcap));
    const bool visible = group.all.begin <= block_ && group.all.end >= block_ + kMatrixSlots;
    const bool is_product = call_.softcap <= 0 && call_.slopes->dtype == AA_DTYPE_NONE;
    const bool plain = visible && is_product;
    // Scores that are only masked keep the arithmetic of those that all rows of the group see, or a row's weights would depend on its
    // neighbours. (-infinity times 0 is no mask; finite scores times 0 are 0 either way.)
    const bool only_masked = is_product && !visible && units > 0;
    Weighing result;
    result.factor = plain || only_masked ? units : 1.0f;
    const auto factor = hn::Set(kFloats, result.factor);
    bool corrects = false;
    float correction[kSide];
    for (int64_t v = 0; v < kVectors; ++v) {
      const int64_t m = v * kLanes;
      auto top = hn::Set(kFloats, kMinusInfinity);
      if (plain) {
        auto others = top, third = top, fourth = top;  // or each would wait for the one before
        for (int64_t j = 0; j < kMatrixSlots; j += 4) {
          const float* at = scores + j * kSide + m;
          top = hn::Max(top, hn::LoadU(kFloats, at));
          others = hn::Max(others, hn::LoadU(kFloats, at + kSide));
          third = hn::Max(third, hn::LoadU(kFloats, at + 2 * kSide));
          fourth = hn::Max(fourth, hn::LoadU(kFloats, at + 3 * kSide));
        }
        top = hn::Mul(hn::Max(hn::Max(top, others), hn::Max(third, fourth)), factor);
      } else if (only_masked) {
        top = hn::Mul(mask_column(group, m, scores + m), factor);
      } else {
        top = cap_and_mask_column(group, m, units, scores + m);
      }
      const auto before = hn::LoadU(kFloats, group.maximum + m);
      const auto raised = hn::Gt(top, hn::Add(before, hn::Set(kFloats, kMaximumLag)));
      auto total = hn::LoadU(kFloats, group.total + m);
      auto maximum = before;
      if (!hn::AllFalse(kFloats, raised)) {
        maximum = hn::IfThenElse(raised, top, before);
        hn::StoreU(maximum, kFloats, group.maximum + m);
        const auto change = hn::IfThenElse(raised, exp2_below(hn::Sub(before, top)), hn::Set(kFloats, 1.0f));
        hn::StoreU(change, kFloats, correction + m);
        total = hn::Mul(total, change);
        // Sums of rows that had seen nothing are zeros.
        corrects =
            corrects || !hn::AllFalse(kFloats, hn::And(raised, hn::Gt(before, hn::Set(kFloats, kMinusInfinity))));
      } else {
        hn::StoreU(hn::Set(kFloats, 1.0f), kFloats, correction + m);
      }
      result.total[v][0] = total;
      for (int64_t i = 1; i < kTotals; ++i) result.total[v][i] = hn::Zero(kFloats);
      // A row may have seen nothing, or only -infinity, so far.
      const auto reference =
          hn::IfThenElse(hn::Eq(maximum, hn::Set(kFloats, kMinusInfinity)), hn::Zero(kFloats), maximum);
      result.bias[v] = hn::Neg(reference);
    }
    if (corrects) {
      float* sums = sums_ + g * padded_ * kSide;
      for (int64_t i = 0; i < padded_ * kSide; i += kLanes) {
        const auto change = hn::LoadU(kFloats, correction + i % kSide);
        hn::StoreU(hn::Mul(hn::LoadU(kFloats, sums + i), change), kFloats, sums + i);
      }
    }
    return result;
  }

  // Puts -infinity in place of scores, of rows m to m + kLanes, that are hidden. Returns the largest of each row.
  HWY_NOINLINE FloatVec mask_column(const QueryGroup& group, int64_t m, float* scores) {
    const auto begin = hn::LoadU(kInts, group.begin + m);
    const auto last = hn::Sub(hn::LoadU(kInts, group.end + m), hn::Set(kInts, 1));
    auto top = hn::Set(kFloats, kMinusInfinity);
    for (int64_t j = 0; j < kMatrixSlots; ++j) {
      const auto slot = hn::Set(kInts, static_cast<int32_t>(block_ + j));
      const auto hidden = hn::Or(hn::Lt(slot, begin), hn::Gt(slot, last));
      const auto s = hn::IfThenElse(hn::RebindMask(kFloats, hidden), hn::Set(kFloats, kMinusInfinity),
                                    hn::LoadU(kFloats, scores + j * kSide));
      hn::StoreU(s, kFloats, scores + j * kSide);
      top = hn::Max(top, s);
    }
    return top;
  }

  // Scores in units of log2(e), of rows m to m + kLanes, capped, with slopes, and -infinity where they are hidden. Returns the
  // largest of each row.
  HWY_NOINLINE FloatVec cap_and_mask_column(const QueryGroup& group, int64_t m, float units, float* scores) {
    const auto begin = hn::LoadU(kInts, group.begin + m), end = hn::LoadU(kInts, group.end + m);
    const auto slope = hn::LoadU(kFloats, group.slope + m);
    const auto own = hn::LoadU(kInts, group.own + m), last = hn::Sub(end, hn::Set(kInts, 1));
    auto top = hn::Set(kFloats, kMinusInfinity);
    for (int64_t j = 0; j < kMatrixSlots; ++j) {
      auto s = hn::Mul(hn::LoadU(kFloats, scores + j * kSide), hn::Set(kFloats, units));
      if (call_.softcap > 0) {
        s = hn::Mul(Tanh()(s), hn::Set(kFloats, call_.softcap * std::numbers::log2e_v<float>));
      }
      const auto slot = hn::Set(kInts, static_cast<int32_t>(block_ + j));
      s = hn::MulAdd(hn::ConvertTo(kFloats, hn::Sub(slot, own)), slope, s);
      const auto hidden = hn::Or(hn::Lt(slot, begin), hn::Gt(slot, last));
      s = hn::IfThenElse(hn::RebindMask(kFloats, hidden), hn::Set(kFloats, kMinusInfinity), s);
      hn::StoreU(s, kFloats, scores + j * kSide);
      top = hn::Max(top, s);
    }
    return top;
  }

  // Turns scores into weights in pairs of slots.
  void weigh(int64_t g, float* scores, uint16_t* weights) {
    Weighing weighing = begin_weighing(g, scores);
    for (int64_t pair = 0; pair < kMatrixSlots / 2; pair += kTotals) {
      for (int64_t v = 0; v < kVectors; ++v) {
        AA_UNROLL for (int64_t i = 0; i < kTotals; ++i) {
          weigh_pair(weighing.factor, weighing.bias[v], weighing.total[v][i], scores, weights, pair + i, v);
        }
      }
    }
    end_weighing(g, weighing);
  }
  HWY_INLINE void weigh_pair(float factor, FloatVec bias, FloatVec& total, const float* scores, uint16_t* weights,
                             int64_t pair, int64_t v) {
    const float* at = scores + 2 * pair * kSide + v * kLanes;
    const auto scale = hn::Set(kFloats, factor);
    const auto even = power_to_cut(hn::MulAdd(hn::LoadU(kFloats, at), scale, bias));
    const auto odd = power_to_cut(hn::MulAdd(hn::LoadU(kFloats, at + kSide), scale, bias));
    const auto low = hn::ShiftRight<16>(hn::BitCast(kUints, even));
    const auto high = hn::And(hn::BitCast(kUints, odd), hn::Set(kUints, 0xffff0000u));
    const auto both = hn::Or(low, high);
    hn::StoreU(both, kUints, reinterpret_cast<uint32_t*>(weights) + pair * kSide + v * kLanes);
    total = add_pair(both, total);
  }
  HWY_INLINE void end_weighing(int64_t g, const Weighing& weighing) {
    for (int64_t v = 0; v < kVectors; ++v) {
      const auto& total = weighing.total[v];
      hn::StoreU(hn::Add(hn::Add(total[0], total[1]), hn::Add(total[2], total[3])), kFloats,
                 groups_[g].total + v * kLanes);
    }
  }

  template <class Pairs>
  static HWY_INLINE FloatVec add_pair(Pairs pair, FloatVec total) {
#if HWY_TARGET == HWY_AVX3
    if constexpr (std::is_same_v<Unit, amx::Unit> || std::is_same_v<Unit, Dots>) {
      return dot_pairs(pair.raw, _mm512_set1_epi16(0x3f80), total);
    }
#endif
    total = hn::Add(total, hn::BitCast(kFloats, hn::And(pair, hn::Set(kUints, 0xffff0000u))));
    return hn::Add(total, hn::BitCast(kFloats, hn::ShiftLeft<16>(pair)));
  }

  void finish() {
    for (int64_t g = 0; g < groups_count_; ++g) {
      const float* sums = sums_ + g * padded_ * kSide;
      for (int64_t d = 0; d < padded_; d += kSide) {
#if HWY_TARGET == HWY_AVX3
        FloatVec v[kLanes];
        AA_UNROLL for (int64_t i = 0; i < kLanes; ++i) v[i] = hn::LoadU(kFloats, sums + (d + i) * kSide);
        transpose(v);
        AA_UNROLL for (int64_t m = 0; m < kLanes; ++m) hn::StoreU(v[m], kFloats, buffer_ + m * padded_ + d);
#else
        for (int64_t i = 0; i < kSide; ++i) {
          for (int64_t m = 0; m < kSide; ++m) buffer_[m * padded_ + d + i] = sums[(d + i) * kSide + m];
        }
#endif
      }
      const QueryGroup& group = groups_[g];
      for (int64_t m = 0; m < std::min(kSide, rows_ - g * kSide); ++m) {
        const int64_t row = g * kSide + m;
        float* from = buffer_ + m * padded_;
        if (tile_.partial) {
          float* to = tile_.partial + row * partial_row_floats(size_);
          std::memcpy(to, from, static_cast<size_t>(size_) * sizeof(float));
          to[size_] = group.maximum[m];
          to[size_ + 1] = group.total[m];
        } else {
          const float factor = 1.0f / (group.total[m] + call_.sink_weight(head_of(row), group.maximum[m]));
          for (int64_t i = 0; i < size_; ++i) from[i] *= factor;
          write_row(query_row(*call_.out, row), 0, size_, from);
        }
      }
    }
  }

  const AttentionCall& call_;
  const AttentionTile& tile_;
  int64_t rows_, groups_count_, size_, padded_;
  uint16_t* queries_;       // [groups][padded / 2][kSide] pairs
  uint16_t* values_;        // [kPieces][padded][kDepth slots]
  uint16_t* key_copies_;    // [kMatrixSlots][padded]
  uint16_t* value_copies_;  // the same; later those that are not finite, in the order of values_
  float* sums_;             // [groups][padded][kSide]
  float* scores_;           // two times [kMatrixSlots][kSide]
  uint16_t* weights_;       // two times [kMatrixSlots / 2][kSide] pairs
  QueryGroup* groups_;
  float* buffer_;  // [kSide][padded]
  SlotRange any_{}, all_{};
  int64_t block_ = 0, slots_ = 0;  // of the current block
  const uint16_t* keys_ = nullptr;
  int64_t key_stride_ = 0;
  bool hides_infinite_ = false;
};

void run_matrix(const AttentionCall& call, const AttentionTile& tile) {
#if HWY_TARGET == HWY_AVX3
  if (isa() == Isa::Amx) {
    MatrixRunner<amx::Unit>(call, tile).run();
  } else {
    MatrixRunner<Dots>(call, tile).run();
  }
#else
  run_attention_tile(call, tile);
#endif
}

void run_matrix_emulated(const AttentionCall& call, const AttentionTile& tile) {
  MatrixRunner<SoftwareUnit>(call, tile).run();
}

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anyaccel::cpu {

AA_CPU_EXPORT(run_matrix);
AA_CPU_EXPORT(run_matrix_emulated);

bool has_attention_matrix() { return isa() == Isa::Amx || (isa() == Isa::Avx512 && cpu_features().fast_bf16_dot); }

bool fits_attention_matrix(const AttentionCall& call) {
  return call.k->dtype == AA_DTYPE_BF16 && call.v->dtype == AA_DTYPE_BF16 && call.out->dtype == AA_DTYPE_BF16;
}

void run_attention_matrix(const AttentionCall& call, const AttentionTile& tile) {
  AA_CPU_DISPATCH(run_matrix)(call, tile);
}
void run_attention_matrix_emulated(const AttentionCall& call, const AttentionTile& tile) {
  AA_CPU_DISPATCH(run_matrix_emulated)(call, tile);
}

}  // namespace anyaccel::cpu
#endif
