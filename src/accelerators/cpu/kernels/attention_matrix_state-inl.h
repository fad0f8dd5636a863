// The state of attention of prompts in bf16 (attention_matrix.cpp): queries and values as operands of the matrix unit,
// and sums for each query. Included after base/simd/highway.h, once per instruction set.
#include <algorithm>
#include <cstring>
#include <iterator>

#include "accelerators/cpu/kernels/attention_softmax-inl.h"
#include "accelerators/cpu/kernels/attention_tile.h"
#include "accelerators/cpu/kernels/attention_transpose-inl.h"
#include "accelerators/cpu/kernels/rows.h"
#include "accelerators/cpu/kernels/scratch.h"
#include "accelerators/cpu/kernels/vector-inl.h"
#include "base/scalar_convert.h"

#if defined(ANYACCEL_CPU_KERNELS_ATTENTION_MATRIX_STATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_ATTENTION_MATRIX_STATE_INL_H_
#undef ANYACCEL_CPU_KERNELS_ATTENTION_MATRIX_STATE_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_ATTENTION_MATRIX_STATE_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

constexpr int64_t kSide = 16;                      // rows of a tile, and its columns of 4 bytes
constexpr int64_t kDepth = 32;                     // elements of bf16 in a row of a tile
constexpr int64_t kTileItems = kSide * kDepth;     // elements of bf16 in a tile
constexpr int64_t kMatrixSlots = kAttentionBlock;  // slots of a block
constexpr int64_t kPieces = kMatrixSlots / kDepth;
constexpr int64_t kStageFloats = kMatrixSlots * kSide;

// A group of kSide rows of the tile. In the last group, surplus rows repeat the last row of the tile.
struct QueryGroup {
  int32_t begin[kSide], end[kSide];  // the slots of the tile that each row sees
  int32_t own[kSide];                // the row's own slot
  float slope[kSide];
  float maximum[kSide];
  float total[kSide];  // of the rounded weights
  SlotRange any, all;  // slots that any row sees, and those that all rows see
};

// pairs[i][row] = elements 2 i and 2 i + 1 of kSide rows of bf16, `row_stride` elements apart, for i < kSide.
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

// Transposes kDepth rows of kDepth elements, `stride` elements apart, into two tiles: to[d][row]. Rows from `count` on
// count as zeros. Returns true if all elements are finite.
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
  // After the transposition, vector i of `low` is element i / 4 * 8 + i % 4, and that of `high` four more.
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

// A tile's queries, sums and results, and the keys and values of one block at a time. Rows are (token, query head), as
// in AttentionTile. Lives in the calling thread's scratch memory.
struct MatrixState {
  const AttentionCall& call;
  const AttentionTile& tile;
  int64_t rows, groups_count, size, padded;
  uint16_t* queries;       // [groups][padded / 2][kSide] pairs
  uint16_t* values;        // [kPieces][padded][kDepth slots]
  uint16_t* key_copies;    // [kMatrixSlots][padded]
  uint16_t* value_copies;  // the same; later the values that are not finite, in the order of `values`
  float* sums;             // [groups][padded][kSide]
  float* scores;           // two times [kMatrixSlots][kSide]
  uint16_t* weights;       // two times [kMatrixSlots / 2][kSide] pairs
  QueryGroup* groups;
  float* buffer;  // [kSide][padded]
  SlotRange any{}, all{};
  int64_t block = 0, slots = 0;  // of the current block
  const uint16_t* keys = nullptr;
  int64_t key_stride = 0;
  bool hides_infinite = false;

  MatrixState(const AttentionCall& the_call, const AttentionTile& the_tile)
      : call(the_call),
        tile(the_tile),
        rows(tile.tokens * call.group),
        groups_count((rows + kSide - 1) / kSide),
        size(call.head_size),
        padded((size + kDepth - 1) / kDepth * kDepth) {
    const int64_t chunks = padded / kDepth;
    const int64_t sizes[] = {
        groups_count * chunks * kTileItems * 2,  // queries
        padded * kMatrixSlots * 2,               // values
        padded * kMatrixSlots * 2,               // copies of keys
        padded * kMatrixSlots * 2,               // and of values
        groups_count * padded * kSide * 4,       // sums
        2 * kStageFloats * 4,                    // scores
        2 * kStageFloats * 2,                    // weights
        groups_count * static_cast<int64_t>(sizeof(QueryGroup)),
        kSide * padded * 4,  // rows of floats
    };
    int64_t total = 0;
    for (int64_t bytes : sizes) total += (bytes + 63) / 64 * 64;
    char* p = scratch<char>(Scratch::Tile, static_cast<size_t>(total));
    char* part[std::size(sizes)];
    for (size_t i = 0; i < std::size(sizes); ++i) {
      part[i] = p;
      p += (sizes[i] + 63) / 64 * 64;
    }
    queries = reinterpret_cast<uint16_t*>(part[0]);
    values = reinterpret_cast<uint16_t*>(part[1]);
    key_copies = reinterpret_cast<uint16_t*>(part[2]);
    value_copies = reinterpret_cast<uint16_t*>(part[3]);
    sums = reinterpret_cast<float*>(part[4]);
    scores = reinterpret_cast<float*>(part[5]);
    weights = reinterpret_cast<uint16_t*>(part[6]);
    groups = reinterpret_cast<QueryGroup*>(part[7]);
    buffer = reinterpret_cast<float*>(part[8]);
  }

  int64_t head_of(int64_t row) const { return tile.kv_head * call.group + row % call.group; }

  Row query_row(const aa_tensor& t, int64_t row) const {
    return call.head_row(t, tile.token + row / call.group, head_of(row));
  }

  // Prefetches the query of a row. The rows of one token follow each other in memory, but the hardware does not expect
  // the next token's.
  void prefetch_query(int64_t row) const {
    if (row >= rows) return;
    const Row next = query_row(*call.q, row);
    const int64_t item = static_cast<int64_t>(dtype_size(next.dtype));
    for (int64_t d = 0; d < size * item; d += 64) __builtin_prefetch(next.data + d * next.stride, 0, 3);
  }

  void prepare() {
    std::fill(sums, sums + groups_count * padded * kSide, 0.0f);
    // A negative factor gives its sign to the queries, so that the largest score has the largest weight.
    const float sign = score_factor(call.scale, call.softcap) < 0 ? -1.0f : 1.0f;
    auto* rounded = reinterpret_cast<uint16_t*>(scratch<float>(Scratch::Row0, static_cast<size_t>(kSide * padded)));
    for (int64_t g = 0; g < groups_count; ++g) {
      QueryGroup& group = groups[g];
      for (int64_t m = 0; m < kSide; ++m) {
        const int64_t row = std::min(g * kSide + m, rows - 1);
        SlotRange seen = call.seen_by(tile.token + row / call.group);
        group.own[m] = static_cast<int32_t>(seen.end - 1);
        // A tile of a cut context may end within a block: the slots behind belong to the next part.
        seen = {std::max(seen.begin, tile.begin), std::min(seen.end, tile.end)};
        group.begin[m] = static_cast<int32_t>(seen.begin);
        group.end[m] = static_cast<int32_t>(seen.end);
        group.slope[m] = call.slope(head_of(row));
        group.maximum[m] = kMinusInfinity;
        group.total[m] = 0;
        if (m == 0) {
          group.any = group.all = seen;
        } else {
          group.any = {std::min(group.any.begin, seen.begin), std::max(group.any.end, seen.end)};
          group.all = {std::max(group.all.begin, seen.begin), std::min(group.all.end, seen.end)};
        }
        prefetch_query(row + kSide);
        float* wide = buffer;
        read_row(query_row(*call.q, row), 0, size, wide);
        for (int64_t d = 0; d < size; ++d) wide[d] *= sign;
        std::fill(wide + size, wide + padded, 0.0f);
        narrow(Bf16Type(), wide, rounded + m * padded, padded);
      }
      for (int64_t d = 0; d < padded; d += kDepth) {
        pair_rows(rounded + d, padded, queries + (g * padded + d) * kSide);
      }
      any.begin = g == 0 ? group.any.begin : std::min(any.begin, group.any.begin);
      any.end = g == 0 ? group.any.end : std::max(any.end, group.any.end);
      all.begin = g == 0 ? group.all.begin : std::max(all.begin, group.all.begin);
      all.end = g == 0 ? group.all.end : std::min(all.end, group.all.end);
    }
  }

  // Returns the first row of the block and sets the stride, in elements of bf16. Rows that cannot be used in place are
  // copied and padded with zeros; then rows from `slots` on are zeros too. If `whole`, all kMatrixSlots rows must be
  // readable.
  const uint16_t* rows_of(const aa_tensor& t, bool whole, uint16_t* copies, int64_t& stride) const {
    const auto* first = static_cast<const uint16_t*>(t.data) + tile.sequence * t.strides[0] +
                        tile.kv_head * t.strides[1] + block * t.strides[2];
    stride = t.strides[2];
    if (size == padded && t.strides[3] == 1 && (!whole || slots == kMatrixSlots)) return first;
    for (int64_t j = 0; j < kMatrixSlots; ++j) {
      uint16_t* to = copies + j * padded;
      const int64_t n = j < slots ? size : 0;
      if (t.strides[3] == 1) {
        std::memcpy(to, first + j * stride, static_cast<size_t>(n) * sizeof(uint16_t));
      } else {
        for (int64_t d = 0; d < n; ++d) to[d] = first[j * stride + d * t.strides[3]];
      }
      std::fill(to + n, to + padded, uint16_t{0});
    }
    stride = padded;
    return copies;
  }

  // Prefetches the rows of the next block into the second-level cache.
  void prefetch_next(const aa_tensor& t) const {
    const int64_t ahead = std::min(kMatrixSlots, tile.end - block - slots);
    const auto* row = static_cast<const uint16_t*>(t.data) + tile.sequence * t.strides[0] +
                      tile.kv_head * t.strides[1] + (block + slots) * t.strides[2];
    for (int64_t j = 0; j < ahead; ++j, row += t.strides[2]) {
      for (int64_t d = 0; d < size; d += kDepth) __builtin_prefetch(row + d * t.strides[3], 0, 2);
    }
  }

  void load_block() {
    keys = rows_of(*call.k, true, key_copies, key_stride);
    int64_t stride = 0;
    const uint16_t* own_rows = rows_of(*call.v, false, value_copies, stride);
    prefetch_next(*call.k);
    prefetch_next(*call.v);
    bool finite = true;
    for (int64_t piece = 0; piece < kPieces; ++piece) {
      const int64_t count = std::clamp<int64_t>(slots - piece * kDepth, 0, kDepth);
      for (int64_t d = 0; d < padded; d += kDepth) {
        finite &= transpose_values(own_rows + piece * kDepth * stride + d, stride, count,
                                   values + piece * kDepth * padded + d * kDepth);
      }
    }
    hides_infinite = !finite && (all.begin > block || all.end < block + slots);
    if (hides_infinite) set_infinite_apart();
  }

  // 0 * infinity must not reach rows that do not see the slot. So values that are not finite are taken out of the block
  // and added, one by one, to the sums of the rows that see them.
  void set_infinite_apart() {
    for (int64_t i = 0; i < padded * kMatrixSlots; ++i) {
      const bool finite = (values[i] & 0x7f80u) != 0x7f80u;
      value_copies[i] = finite ? uint16_t{0} : values[i];
      if (!finite) values[i] = 0;
    }
  }
  void add_infinite(int64_t g, const uint16_t* of_slots) {
    const QueryGroup& group = groups[g];
    float* to = sums + g * padded * kSide;
    for (int64_t i = 0; i < padded * kMatrixSlots; ++i) {
      if (value_copies[i] == 0) continue;
      const int64_t d = i / kDepth % padded, j = i / (kDepth * padded) * kDepth + i % kDepth;
      for (int64_t m = 0; m < kSide; ++m) {
        if (block + j < group.begin[m] || block + j >= group.end[m]) continue;
        const float weight = bf16_to_float(of_slots[(j / 2 * kSide + m) * 2 + j % 2]);
        to[d * kSide + m] += weight * bf16_to_float(value_copies[i]);
      }
    }
  }

  void finish() {
    for (int64_t g = 0; g < groups_count; ++g) {
      const float* of_group = sums + g * padded * kSide;
      for (int64_t d = 0; d < padded; d += kSide) {
#if HWY_TARGET == HWY_AVX3
        FloatVec v[kLanes];
        AA_UNROLL for (int64_t i = 0; i < kLanes; ++i) v[i] = hn::LoadU(kFloats, of_group + (d + i) * kSide);
        transpose(v);
        AA_UNROLL for (int64_t m = 0; m < kLanes; ++m) hn::StoreU(v[m], kFloats, buffer + m * padded + d);
#else
        for (int64_t i = 0; i < kSide; ++i) {
          for (int64_t m = 0; m < kSide; ++m) buffer[m * padded + d + i] = of_group[(d + i) * kSide + m];
        }
#endif
      }
      const QueryGroup& group = groups[g];
      for (int64_t m = 0; m < std::min(kSide, rows - g * kSide); ++m) {
        const int64_t row = g * kSide + m;
        float* from = buffer + m * padded;
        if (tile.partial) {
          float* to = tile.partial + row * partial_row_floats(size);
          std::memcpy(to, from, static_cast<size_t>(size) * sizeof(float));
          to[size] = group.maximum[m];
          to[size + 1] = group.total[m];
        } else {
          const float factor = 1.0f / (group.total[m] + call.sink_weight(head_of(row), group.maximum[m]));
          for (int64_t i = 0; i < size; ++i) from[i] *= factor;
          write_row(query_row(*call.out, row), 0, size, from);
        }
      }
    }
  }
};

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
