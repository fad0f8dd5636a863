// Attention of one tile by the online softmax of Milakov and Gimelshein (2018), in blocks as in FlashAttention (Dao et
// al. 2022): for each block of slots, scores = Q K^T, weights = 2^(scores - maximum), sums = sums * correction +
// weights V.
//
// Keys of a block are packed transposed, so that scores are computed with vectors over slots; values are used row by
// row, with vectors over the head. Both products are one small kernel that keeps its results in registers. Scores are
// held in units of log2(e), so that the exponential is a power of two. With AVX2 keys and values are packed in panels
// (attention_panel-inl.h).
#include "accelerators/cpu/kernels/attention_tile.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "accelerators/cpu/kernels/rows.h"
#include "accelerators/cpu/kernels/scratch.h"
#include "base/scalar_convert.h"
#include "base/simd/dispatch.h"

#ifndef AA_KERNEL_BATCH
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "accelerators/cpu/kernels/attention_tile.cpp"
#include "hwy/foreach_target.h"
#endif
#include "base/simd/highway.h"
// After highway.h
#include "accelerators/cpu/kernels/attention_block-inl.h"
#include "accelerators/cpu/kernels/attention_softmax-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

// A group of rows with the slots that any of them sees, and those that all of them see.
struct HeadGroup {
  int64_t row;
  int count;
  SlotRange any, all;
};

// Floats that the packed values of a slot take.
constexpr int64_t value_floats(int64_t padded) {
#if HWY_TARGET == HWY_AVX2
  return round_up(padded, kPanelFloats);
#else
  return padded;
#endif
}

// The working memory of a tile.
struct TileMemory {
  TileMemory(int64_t rows, int64_t head_size) : padded(round_up(head_size, kLanes)) {
    constexpr int64_t kBatchRows = kBatchGroups * kMaxRows;
    const int64_t groups = RowGroups{rows}.count();
    const int64_t sizes[] = {rows * head_size,
                             head_size * kBlockSlots,
                             kBlockSlots * value_floats(padded),
                             kBatchRows * kBlockSlots,
                             rows * padded,
                             rows + kBehindRows,
                             rows * kLanes,
                             rows * 4,
                             groups * static_cast<int64_t>(sizeof(HeadGroup) / sizeof(float))};
    int64_t total_size = 0;
    for (int64_t n : sizes) total_size += round_up(n, 16);
    float* p = scratch<float>(Scratch::Tile, static_cast<size_t>(total_size));
    float* part[std::size(sizes)];
    for (size_t i = 0; i < std::size(sizes); ++i) {
      part[i] = p;
      p += round_up(sizes[i], 16);
    }
    q = part[0];
    keys = part[1];
    values = part[2];
    scores = part[3];
    sums = part[4];
    maximum = part[5];
    total = part[6];
    visible = reinterpret_cast<SlotRange*>(part[7]);
    groups_of_rows = reinterpret_cast<HeadGroup*>(part[8]);
  }

  int64_t padded;             // head size in whole vectors
  float* q;                   // scaled queries; those of a group of n rows as [D][n], with AVX2 [n][D]
  float* keys;                // [D][kBlockSlots]; with AVX2 panels of [D][kPanelFloats]
  float* values;              // [kBlockSlots][padded]; with AVX2 panels of [kBlockSlots][kPanelFloats]
  float* scores;              // [rows of a batch][kBlockSlots]
  float* sums;                // [rows][padded]
  float* maximum;             // [rows]
  float* total;               // [rows][kLanes]: partial sums of the weights
  SlotRange* visible;         // [rows]
  HeadGroup* groups_of_rows;  // [groups]
};

class TileRunner {
 public:
  TileRunner(const AttentionCall& call, const AttentionTile& tile)
      : call_(call), tile_(tile), rows_(tile.tokens * call.group), memory_(rows_, call.head_size) {}

  void run() {
    prepare();
    const int64_t groups = RowGroups{rows_}.count();
    for (block_ = tile_.begin; block_ < tile_.end; block_ += kBlockSlots) {
      slots_ = std::min(kBlockSlots, tile_.end - block_);
      load_block();
      for (int64_t g = 0; g < groups; g += kBatchGroups) {
        run_batch(memory_.groups_of_rows + g, static_cast<int>(std::min(kBatchGroups, groups - g)));
      }
    }
    store();
  }

 private:
  int64_t head_of(int64_t row) const { return tile_.kv_head * call_.group + row % call_.group; }

  Row query_row(const aa_tensor& t, int64_t row) const {
    return call_.head_row(t, tile_.token + row / call_.group, head_of(row));
  }

  // The row of a slot; of a quantized cache, its bytes.
  Row cache_row(const aa_tensor& t, int64_t slot) const {
    const DType dtype = static_cast<DType>(t.dtype);
    const int64_t offset = tile_.sequence * t.strides[0] + tile_.kv_head * t.strides[1] + slot * t.strides[2];
    return {static_cast<char*>(t.data) + offset * static_cast<int64_t>(dtype_size(dtype)), dtype, t.strides[3],
            call_.head_size};
  }

  void prepare() {
    const int64_t d = call_.head_size;
    std::fill(memory_.sums, memory_.sums + rows_ * memory_.padded, 0.0f);
    std::fill(memory_.maximum, memory_.maximum + rows_, kMinusInfinity);
    std::fill(memory_.total, memory_.total + rows_ * kLanes, 0.0f);
    for (int64_t row = 0; row < rows_; ++row) {
      memory_.visible[row] = call_.seen_by(tile_.token + row / call_.group);
    }
    const float factor = score_factor(call_.scale, call_.softcap);
    const RowGroups groups{rows_};
    float* buffer = scratch<float>(Scratch::Row0, static_cast<size_t>(d));
    for (int64_t g = 0; g < groups.count(); ++g) {
      const int64_t row = groups.begin(g);
      const int count = static_cast<int>(groups.begin(g + 1) - row);
      SlotRange any = memory_.visible[row], all = any;
      for (int m = 1; m < count; ++m) {
        const SlotRange own = memory_.visible[row + m];
        any = {std::min(any.begin, own.begin), std::max(any.end, own.end)};
        all = {std::max(all.begin, own.begin), std::min(all.end, own.end)};
      }
      memory_.groups_of_rows[g] = {row, count, any, all};
      float* q = memory_.q + row * d;
      for (int m = 0; m < count; ++m) {
        const float* from = row_floats(query_row(*call_.q, row + m), 0, d, buffer);
#if HWY_TARGET == HWY_AVX2
        for (int64_t i = 0; i < d; ++i) q[m * d + i] = from[i] * factor;
#else
        for (int64_t i = 0; i < d; ++i) q[i * count + m] = from[i] * factor;
#endif
      }
    }
  }

  // Prefetches a row of the cache into the second-level cache.
  void prefetch(const Row& row) const {
    const int64_t bytes = row.dtype == DType::U8
                              ? call_.head_size / kBlockValues * kBlockBytes
                              : call_.head_size * row.stride * static_cast<int64_t>(dtype_size(row.dtype));
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(row.data + i, 0, 2);
  }

  // Elements [begin, begin + n) of a row of values; begin is that of a block of a quantized row.
  static HWY_INLINE void read_values(const Row& row, int64_t begin, int64_t n, float* to) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(row.data);
    if (row.dtype == DType::U8) {
      decode_cache_row(bytes + begin / kBlockValues * kBlockBytes, n, to);
    } else if (row.dtype == DType::F8E4M3) {
      widen(E4m3Type(), bytes + begin, to, n);
    } else {
      read_row(row, begin, n, to);
    }
  }

  // Packs the keys of the block, and the values unless they can be used where they are. Meanwhile the next block is
  // prefetched, since the products leave the memory idle.
  void load_block() {
    const aa_tensor &k = *call_.k, &v = *call_.v;
    const int64_t d = call_.head_size;
    const int64_t ahead = std::min(kBlockSlots, k.shape[2] - block_ - slots_);
    for (int64_t j = 0; j < slots_; j += kLanes) {
      for (int64_t i = j; i < std::min(ahead, j + kLanes); ++i) {
        prefetch(cache_row(k, block_ + slots_ + i));
      }
#if HWY_TARGET == HWY_AVX2
      float* keys = memory_.keys + j / kPanelFloats * kPanelFloats * d + j % kPanelFloats;
#else
      float* keys = memory_.keys + j;
#endif
      pack_keys(cache_row(k, block_ + j), k.strides[2], std::min(kLanes, slots_ - j), keys);
    }
#if HWY_TARGET == HWY_AVX2
    for (int64_t j = 0; j < slots_; ++j) {
      if (j < ahead) prefetch(cache_row(v, block_ + slots_ + j));
      const Row row = cache_row(v, block_ + j);
      for (int64_t i = 0; i < d; i += kPanelFloats) {
        const int64_t n = std::min(kPanelFloats, d - i);
        float* to = memory_.values + i * kBlockSlots + j * kPanelFloats;
        read_values(row, i, n, to);
        for (int64_t e = n; e < round_up(n, kLanes); ++e) to[e] = 0;
      }
    }
#else
    const Row values = cache_row(v, block_);
    const bool in_place = values.dtype == DType::F32 && values.stride == 1 && d == memory_.padded;
    values_ = in_place ? reinterpret_cast<const float*>(values.data) : memory_.values;
    values_stride_ = in_place ? v.strides[2] : memory_.padded;
    for (int64_t j = 0; j < slots_; ++j) {
      if (j < ahead) prefetch(cache_row(v, block_ + slots_ + j));
      if (in_place) continue;
      float* to = memory_.values + j * memory_.padded;
      read_values(cache_row(v, block_ + j), 0, d, to);
      for (int64_t i = d; i < memory_.padded; ++i) to[i] = 0;
    }
#endif
  }

  // The part of a range that lies in the block, counted from the block's first slot.
  SlotRange in_block(SlotRange slots) const {
    return {std::max<int64_t>(0, slots.begin - block_), std::min(slots_, slots.end - block_)};
  }

  // Runs some groups of rows against the block: scores, weights, and then sums.
#if HWY_TARGET == HWY_AVX2
  void run_batch(const HeadGroup* groups, int count) {
    const int64_t d = call_.head_size, first = groups[0].row;
    SlotRange seen[kBatchGroups];
    bool together[kBatchGroups];
    for (int g = 0; g < count; ++g) {
      seen[g] = in_block(groups[g].any);
      together[g] = hidden_values_finite(groups[g], seen[g]);
    }
    // The scores of row m of the batch begin at kBlockSlots * m.
    const auto scores_of = [&](int g) { return memory_.scores + (groups[g].row - first) * kBlockSlots; };
    for (int64_t n = 0; n < slots_; n += kPanelFloats) {
      for (int g = 0; g < count; ++g) {
        if (seen[g].end <= std::max(seen[g].begin, n)) continue;
        const int64_t vectors = (std::min(kPanelFloats, seen[g].end - n) + kLanes - 1) / kLanes;
        multiply<false>(groups[g].count, vectors, 0, d, memory_.q + groups[g].row * d, memory_.keys + n * d, kKeyStride,
                        scores_of(g) + n, kBlockSlots, nullptr);
      }
    }
    float correction[kBatchGroups * kMaxRows + kBehindRows];
    int group = 0;
    const auto scores_of_row = [&](int64_t m) HWY_ATTR {
      const int64_t row = first + m;
      if (row >= groups[group].row + groups[group].count) ++group;
      const int64_t end = seen[group].end;
      if (end <= seen[group].begin) return RowScores{0, 0, 0, {0, 0}};
      const SlotRange own = in_block(memory_.visible[row]);
      const RowSlope slope = {call_.slope(head_of(row)), memory_.visible[row].end - 1 - block_};
      return RowScores{(end + kLanes - 1) / kLanes, own.begin, own.end, slope};
    };
    weigh_rows(groups[count - 1].row + groups[count - 1].count - first, memory_.scores, kBlockSlots, call_.softcap,
               memory_.maximum + first, memory_.total + first * kLanes, correction, scores_of_row);
    for (int64_t i = 0; i < memory_.padded; i += kPanelFloats) {
      const int64_t vectors = std::min(kPanelFloats, memory_.padded - i) / kLanes;
      const float* values = memory_.values + i * kBlockSlots;
      for (int g = 0; g < count; ++g) {
        if (seen[g].end <= seen[g].begin) continue;
        float* sums = memory_.sums + groups[g].row * memory_.padded + i;
        const float* factor = correction + (groups[g].row - first);
        if (together[g]) {
          multiply<true>(groups[g].count, vectors, seen[g].begin, seen[g].end, scores_of(g), values, kPanelFloats, sums,
                         memory_.padded, factor);
          continue;
        }
        // 0 * infinity must not reach rows that do not see the slot.
        for (int m = 0; m < groups[g].count; ++m) {
          const SlotRange own = in_block(memory_.visible[groups[g].row + m]);
          if (own.end <= own.begin) continue;
          multiply<true>(1, vectors, own.begin, own.end, scores_of(g) + m * kBlockSlots, values, kPanelFloats,
                         sums + m * memory_.padded, memory_.padded, factor + m);
        }
      }
    }
  }
#else
  void run_batch(const HeadGroup* groups, int count) {
    const int64_t d = call_.head_size;
    const int64_t value_vectors = memory_.padded / kLanes;
    SlotRange seen[kBatchGroups];
    float* scores[kBatchGroups];
    float correction[kBatchGroups * kMaxRows];
    float* next = memory_.scores;
    for (int g = 0; g < count; ++g) {
      seen[g] = in_block(groups[g].any);
      scores[g] = next;
      next += groups[g].count * kBlockSlots;
      if (seen[g].end <= seen[g].begin) continue;
      multiply<false>(groups[g].count, (seen[g].end + kLanes - 1) / kLanes, 0, d, memory_.q + groups[g].row * d,
                      memory_.keys, kBlockSlots, scores[g], kBlockSlots, nullptr);
    }
    for (int g = 0; g < count; ++g) {
      if (seen[g].end <= seen[g].begin) continue;
      for (int m = 0; m < groups[g].count; ++m) {
        const int64_t row = groups[g].row + m;
        const SlotRange own = in_block(memory_.visible[row]);
        const RowSlope slope = {call_.slope(head_of(row)), memory_.visible[row].end - 1 - block_};
        correction[g * kMaxRows + m] =
            weigh(scores[g] + m * kBlockSlots, (seen[g].end + kLanes - 1) / kLanes, own.begin, own.end, call_.softcap,
                  slope, memory_.maximum[row], memory_.total + row * kLanes);
      }
    }
    for (int g = 0; g < count; ++g) {
      if (seen[g].end <= seen[g].begin) continue;
      float* sums = memory_.sums + groups[g].row * memory_.padded;
      if (hidden_values_finite(groups[g], seen[g])) {
        multiply<true>(groups[g].count, value_vectors, seen[g].begin, seen[g].end, scores[g], values_, values_stride_,
                       sums, memory_.padded, correction + g * kMaxRows);
      } else {
        // 0 * infinity must not reach rows that do not see the slot.
        for (int m = 0; m < groups[g].count; ++m) {
          const SlotRange own = in_block(memory_.visible[groups[g].row + m]);
          if (own.end <= own.begin) continue;
          multiply<true>(1, value_vectors, own.begin, own.end, scores[g] + m * kBlockSlots, values_, values_stride_,
                         sums + m * memory_.padded, memory_.padded, correction + g * kMaxRows + m);
        }
      }
    }
  }
#endif

  // Returns true if all values of slots that some but not all rows of a group see are finite.
  bool hidden_values_finite(const HeadGroup& group, SlotRange seen) const {
    const SlotRange all = in_block(group.all);
    if (all.begin <= seen.begin && all.end >= seen.end) return true;
    for (int64_t j = seen.begin; j < seen.end; ++j) {
      if (j >= all.begin && j < all.end) continue;
      for (int64_t i = 0; i < memory_.padded; i += kLanes) {
        if (!hn::AllTrue(kFloats, hn::IsFinite(hn::LoadU(kFloats, value_of(j, i))))) return false;
      }
    }
    return true;
  }

  // Element i of the values of slot j of the block, the first of a vector.
  HWY_INLINE const float* value_of(int64_t j, int64_t i) const {
#if HWY_TARGET == HWY_AVX2
    return memory_.values + (i / kPanelFloats * kBlockSlots + j) * kPanelFloats + i % kPanelFloats;
#else
    return values_ + j * values_stride_ + i;
#endif
  }

  float total_of(int64_t row) const { return sum_lanes(hn::LoadU(kFloats, memory_.total + row * kLanes)); }

  void store() {
    const int64_t d = call_.head_size;
    for (int64_t row = 0; row < rows_; ++row) {
      float* sums = memory_.sums + row * memory_.padded;
      if (tile_.partial) {
        float* to = tile_.partial + row * partial_row_floats(d);
        std::memcpy(to, sums, static_cast<size_t>(d) * sizeof(float));
        to[d] = memory_.maximum[row];
        to[d + 1] = total_of(row);
      } else {
        const float factor = 1.0f / (total_of(row) + call_.sink_weight(head_of(row), memory_.maximum[row]));
        for (int64_t i = 0; i < d; ++i) sums[i] *= factor;
        write_row(query_row(*call_.out, row), 0, d, sums);
      }
    }
  }

  friend void merge_partials(const AttentionCall& call, const AttentionTile& tile, int64_t count);

  const AttentionCall& call_;
  const AttentionTile& tile_;
  int64_t rows_;
  TileMemory memory_;
  int64_t block_ = 0;  // first slot of the current block
  int64_t slots_ = 0;  // slots of the current block
#if HWY_TARGET != HWY_AVX2
  const float* values_ = nullptr;
  int64_t values_stride_ = 0;
#endif
};

void run_tile(const AttentionCall& call, const AttentionTile& tile) { TileRunner(call, tile).run(); }

void merge_partials(const AttentionCall& call, const AttentionTile& tile, int64_t count) {
  const TileRunner runner(call, tile);
  const int64_t d = call.head_size, step = runner.rows_ * partial_row_floats(d);
  float* sums = runner.memory_.sums;
  for (int64_t row = 0; row < runner.rows_; ++row) {
    const float* partial = tile.partial + row * partial_row_floats(d);
    float maximum = kMinusInfinity;
    for (int64_t i = 0; i < count; ++i) maximum = std::max(maximum, partial[i * step + d]);
    const float reference = maximum == kMinusInfinity ? 0.0f : maximum;
    std::fill(sums, sums + d, 0.0f);
    float total = 0;
    for (int64_t i = 0; i < count; ++i, partial += step) {
      const float weight = hn::GetLane(exp2_below(hn::Set(kFloats, partial[d] - reference)));
      total += partial[d + 1] * weight;
      for (int64_t e = 0; e < d; ++e) sums[e] += partial[e] * weight;
    }
    total += call.sink_weight(runner.head_of(row), maximum);
    for (int64_t e = 0; e < d; ++e) sums[e] /= total;
    write_row(runner.query_row(*call.out, row), 0, d, sums);
  }
}

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anyaccel::cpu {

AA_CPU_EXPORT(run_tile);
AA_CPU_EXPORT(merge_partials);

void run_attention_tile(const AttentionCall& call, const AttentionTile& tile) { AA_CPU_DISPATCH(run_tile)(call, tile); }

void merge_attention(const AttentionCall& call, const AttentionTile& tile, int64_t count) {
  AA_CPU_DISPATCH(merge_partials)(call, tile, count);
}

}  // namespace anyaccel::cpu
#endif
