// Both products of attention of prompts on the matrix unit, for one block of slots. Queries are taken in groups of 16,
// the columns of every tile of results:
//   scores [slots][queries] = K Q^T: K is the left operand as it lies in the cache; Q^T is packed into pairs once;
//   sums   [head][queries]  = V^T W: V^T is transposed once for a block of slots and all queries of the tile, and packing the
//                             weights W into pairs of slots takes one instruction more than rounding them.
// The groups of a block pass three steps, scores, weights and sums, like a pipeline: while the vector units compute the
// weights of one group, the matrix unit multiplies for its neighbours. Included after base/simd/highway.h, once per
// instruction set.
#include <array>
#include <type_traits>

#include "accelerators/cpu/kernels/attention_matrix_state-inl.h"
#include "accelerators/cpu/kernels/attention_weigher-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"
#include "base/simd/amx.h"

#if defined(ANYACCEL_CPU_KERNELS_ATTENTION_MATRIX_UNIT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_ATTENTION_MATRIX_UNIT_INL_H_
#undef ANYACCEL_CPU_KERNELS_ATTENTION_MATRIX_UNIT_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_ATTENTION_MATRIX_UNIT_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

// The matrix unit in software, out of line because it is called in many places.
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

// Runs the blocks of a tile on the matrix unit.
template <class Unit>
class UnitBlocks {
 public:
  explicit UnitBlocks(MatrixState& state) : s_(state), weigher_(state) {
    std::array<amx::TileShape, amx::kTiles> shapes;
    shapes.fill({kSide, 4 * kSide});
    Unit::set_shapes(shapes);
  }
  ~UnitBlocks() { Unit::release(); }
  UnitBlocks(const UnitBlocks&) = delete;
  UnitBlocks& operator=(const UnitBlocks&) = delete;

  // Passes the groups that see something of the block through the three steps, one behind the other.
  void run_block() {
    int64_t before = -1, last = -1;  // the groups whose weights and whose sums are next
    for (int64_t g = 0, turn = 0;; ++turn) {
      while (g < s_.groups_count && (s_.groups[g].any.begin >= s_.block + s_.slots || s_.groups[g].any.end <= s_.block))
        ++g;
      const int64_t next = g < s_.groups_count ? g++ : -1;
      if (next < 0 && before < 0 && last < 0) return;
      float *new_scores = s_.scores + turn % 2 * kStageFloats, *scores = s_.scores + (turn + 1) % 2 * kStageFloats;
      uint16_t *weights = s_.weights + (turn + 1) % 2 * kStageFloats,
               *old_weights = s_.weights + turn % 2 * kStageFloats;
      if (next >= 0 && before >= 0 && last >= 0 && s_.padded == 2 * kDepth) {
        run_turn<2>(next, new_scores, before, scores, weights, last, old_weights);
      } else if (next >= 0 && before >= 0 && last >= 0 && s_.padded == 4 * kDepth) {
        run_turn<4>(next, new_scores, before, scores, weights, last, old_weights);
      } else {
        if (next >= 0) score(next, new_scores);
        if (before >= 0) weigher_.weigh(before, scores, weights);
        if (last >= 0) sum(last, old_weights);
      }
      if (last >= 0 && s_.hides_infinite) s_.add_infinite(last, old_weights);
      last = before;
      before = next;
    }
  }

 private:
  // The emulated unit is for tests, on processors that need not have dot products.
  using W = Weigher<std::is_same_v<Unit, amx::Unit>>;

  // The three steps, each for a different group. Tile instructions are interleaved by hand with vector instructions, a
  // few with each pair of slots: out-of-order execution does not reach far enough to overlap them.
  template <int kChunks>
  HWY_NOINLINE void run_turn(int64_t scored, float* new_scores, int64_t weighed, float* scores, uint16_t* weights,
                             int64_t summed, const uint16_t* old_weights) {
    constexpr int64_t kSize = kChunks * kDepth;
    const uint16_t* q = s_.queries + scored * kSize * kSide;
    const uint16_t* k = s_.keys;
    const int64_t key_stride = s_.key_stride, k_stride = key_stride * 2;
    float* sums = s_.sums + summed * kSize * kSide;
    const uint16_t* v = s_.values;
    const auto move_tiles = [&](auto step, auto pair) HWY_ATTR {
      const uint16_t* keys = k + step * kSide * key_stride;
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
    if constexpr (W::kVectors == 1) {
      auto weighing = weigher_.begin(weighed, scores);
      for_steps([&](auto step) HWY_ATTR {
        for_pairs([&](auto pair) HWY_ATTR {
          weigher_.weigh_pair(weighing.factor, weighing.bias[0], weighing.total[0][pair % W::kTotals], scores, weights,
                              step * kSide / 2 + pair, 0);
          move_tiles(step, pair);
        });
      });
      weigher_.end(weighed, weighing);
    } else {  // only for tests, so the loops need not be interleaved
      for_steps([&](auto step) HWY_ATTR { for_pairs([&](auto pair) HWY_ATTR { move_tiles(step, pair); }); });
      weigher_.weigh(weighed, scores, weights);
    }
  }

  void score(int64_t group, float* scores) {
    const uint16_t* q = s_.queries + group * s_.padded * kSide;
    for (int64_t j = 0; j < kMatrixSlots; j += kSide) {
      Unit::template zero<0>();
      for (int64_t d = 0; d < s_.padded; d += kDepth) {
        Unit::template load<1>(s_.keys + j * s_.key_stride + d, s_.key_stride * 2);
        Unit::template load<2>(q + d * kSide, 4 * kSide);
        Unit::template multiply_bf16<0, 1, 2>();
      }
      Unit::template store<0>(scores + j * kSide, 4 * kSide);
    }
  }

  // Adds the weighted values of the block to the sums.
  void sum(int64_t group, const uint16_t* weights) {
    for (int64_t d = 0; d < s_.padded; d += kSide) {
      float* sums = s_.sums + (group * s_.padded + d) * kSide;
      Unit::template load<0>(sums, 4 * kSide);
      for (int64_t piece = 0; piece < kPieces; ++piece) {
        Unit::template load<1>(s_.values + (piece * s_.padded + d) * kDepth, 2 * kDepth);
        Unit::template load<2>(weights + piece * kTileItems, 4 * kSide);
        Unit::template multiply_bf16<0, 1, 2>();
      }
      Unit::template store<0>(sums, 4 * kSide);
    }
  }

  MatrixState& s_;
  W weigher_;
};

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
