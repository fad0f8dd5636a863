// See quantized_bytes.h.
//
// A block's 32 bytes are a row of the unit's first operand without being moved: a tile is the same block of 16 rows of
// weights, loaded with the distance between rows as its stride. x is rounded to 16 bits, and its upper and its lower
// bytes are separate columns of the second operand, so that up to eight rows of x fill one tile. A tile's sums are
// exact integers: 256 times the sum of the upper bytes plus that of the lower ones. They are converted and scaled while
// the unit computes the next block. 16 rows of weights are multiplied over all of k, while the next 16 rows are
// prefetched into the second-level cache in the order of their addresses.
#include "accelerators/cpu/kernels/quantized_bytes.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "accelerators/cpu/kernels/matmul_inner.h"
#include "accelerators/cpu/kernels/quantized_row.h"
#include "accelerators/cpu/kernels/rows.h"
#include "accelerators/cpu/kernels/scratch.h"
#include "accelerators/cpu/worker_pool.h"
#include "base/scalar_convert.h"
#include "base/simd/amx.h"
#include "base/simd/dispatch.h"

#ifndef AA_KERNEL_BATCH
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "accelerators/cpu/kernels/quantized_bytes.cpp"
#include "hwy/foreach_target.h"
#endif
#include "base/simd/highway.h"
// After highway.h
#include "accelerators/cpu/kernels/activation-inl.h"
#include "accelerators/cpu/kernels/matmul_finish-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"

#ifndef ANYACCEL_CPU_KERNELS_QUANTIZED_BYTES_SIZES_
#define ANYACCEL_CPU_KERNELS_QUANTIZED_BYTES_SIZES_
namespace anyaccel::cpu {

constexpr int64_t kBytesRows = 16;       // rows of weights, or columns of x, of a tile
constexpr int64_t kBytesGroup = 32;      // values of a block
constexpr int64_t kBytesBlock = 34;      // bytes of a block: its scale as a half, then the values
constexpr int64_t kBytesTile = 8 * 64;   // bytes of a tile of x: four values of 16 columns in each of 8 rows
constexpr int64_t kBytesSums = 16 * 16;  // results of a tile
constexpr int64_t kNarrowRows = 8;       // most rows of x whose two bytes fit into one tile
constexpr int64_t kRoundedAtOnce = 16;   // groups

inline int64_t tiles_of_x(const Matmul& args) { return args.m <= kNarrowRows ? 1 : 2; }

}  // namespace anyaccel::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

// ---- x ---------------------------------------------------------------------------------------------------------------

// Rounds a group to 256 * upper + lower and returns its scale. A group with a NaN or an infinity gets a NaN as its
// scale, so that every sum with it becomes NaN.
HWY_INLINE float round_to_bytes(const float* x, int8_t* upper, int8_t* lower) {
  constexpr float kSteps = 127.0F * 256;
#if HWY_TARGET == HWY_AVX3
  const __m512 half[2] = {_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16)};
  const float most = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(half[0]), _mm512_abs_ps(half[1])));
  const __m512 probe = _mm512_fmadd_ps(half[0], _mm512_setzero_ps(), _mm512_mul_ps(half[1], _mm512_setzero_ps()));
  const bool finite = _mm512_cmp_ps_mask(probe, probe, _CMP_UNORD_Q) == 0;
  const float scale = finite ? most / kSteps : std::numeric_limits<float>::quiet_NaN();
  const __m512 inverse = _mm512_set1_ps(finite && scale >= std::numeric_limits<float>::min() ? 1 / scale : 0.0F);
  AA_UNROLL for (int i = 0; i < 2; ++i) {
    const __m512i q = finite ? _mm512_cvtps_epi32(_mm512_mul_ps(half[i], inverse)) : _mm512_setzero_si512();
    const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(q, _mm512_set1_epi32(128)), 8);
    const __m512i low = _mm512_sub_epi32(q, _mm512_slli_epi32(high, 8));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(upper + 16 * i), _mm512_cvtepi32_epi8(high));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(lower + 16 * i), _mm512_cvtepi32_epi8(low));
  }
#else
  float most = 0, probe = 0;
  for (int64_t i = 0; i < kBytesGroup; ++i) {
    most = std::max(most, std::fabs(x[i]));
    probe += x[i] * 0;
  }
  const bool finite = probe == 0;
  const float scale = finite ? most / kSteps : std::numeric_limits<float>::quiet_NaN();
  const float inverse = finite && scale >= std::numeric_limits<float>::min() ? 1 / scale : 0.0F;
  for (int64_t i = 0; i < kBytesGroup; ++i) {
    const int q = finite ? static_cast<int>(std::nearbyint(x[i] * inverse)) : 0;
    const int high = (q + 128) >> 8;
    upper[i] = static_cast<int8_t>(high);
    lower[i] = static_cast<int8_t>(q - high * 256);
  }
#endif
  return scale;
}

// to[j][c] = word j (four bytes) of column c, for 16 columns of 8 words.
HWY_INLINE void transpose_columns(const int8_t* from, int8_t* to) {
#if HWY_TARGET == HWY_AVX3
  for (int64_t j = 0; j < 8; j += 4) {
    __m512i four[4];  // columns i, i + 4, i + 8, i + 12
    AA_UNROLL for (int i = 0; i < 4; ++i) {
      const auto load = [&](int c) HWY_ATTR {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + c * kBytesGroup + 4 * j));
      };
      const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(load(i)), load(i + 4), 1);
      const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(load(i + 8)), load(i + 12), 1);
      four[i] = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    }
    const __m512i a = _mm512_unpacklo_epi32(four[0], four[1]), b = _mm512_unpacklo_epi32(four[2], four[3]);
    const __m512i c = _mm512_unpackhi_epi32(four[0], four[1]), d = _mm512_unpackhi_epi32(four[2], four[3]);
    // The 128-bit parts hold columns 0 to 3, 4 to 7 and so on.
    _mm512_storeu_si512(to + 64 * j, _mm512_unpacklo_epi64(a, b));
    _mm512_storeu_si512(to + 64 * (j + 1), _mm512_unpackhi_epi64(a, b));
    _mm512_storeu_si512(to + 64 * (j + 2), _mm512_unpacklo_epi64(c, d));
    _mm512_storeu_si512(to + 64 * (j + 3), _mm512_unpackhi_epi64(c, d));
  }
#else
  for (int64_t c = 0; c < 16; ++c) {
    for (int64_t j = 0; j < 8; ++j) std::memcpy(to + (j * 16 + c) * 4, from + c * kBytesGroup + 4 * j, 4);
  }
#endif
}

// Rounds groups [begin, end) of all rows of x and stores them as tiles.
void pack_bytes(const BytesPlan& plan, int64_t begin, int64_t end) {
  const Matmul& args = plan.product->args;
  const int64_t tiles = tiles_of_x(args), lower_column = tiles == 1 ? kNarrowRows : kBytesRows;
  auto* wide = scratch<float>(Scratch::Row3, static_cast<size_t>(kRoundedAtOnce * kBytesGroup));
  // [group][column][32]
  const int64_t group_bytes = tiles * kBytesRows * kBytesGroup;
  auto* columns = scratch<int8_t>(Scratch::Row1, static_cast<size_t>(kRoundedAtOnce * group_bytes));
  std::memset(columns, 0, static_cast<size_t>(kRoundedAtOnce * group_bytes));
  std::fill(plan.scales + begin * kBytesRows, plan.scales + end * kBytesRows, 0.0F);
  for (int64_t first = begin; first < end; first += kRoundedAtOnce) {
    const int64_t count = std::min(kRoundedAtOnce, end - first);
    for (int64_t m = 0; m < args.m; ++m) {
      read_floats(row_of(args.x, m, args.k), first * kBytesGroup, count * kBytesGroup, wide);
      for (int64_t g = 0; g < count; ++g) {
        int8_t* upper = columns + g * group_bytes + m * kBytesGroup;
        const float scale = round_to_bytes(wide + g * kBytesGroup, upper, upper + lower_column * kBytesGroup);
        float* scales = plan.scales + (first + g) * kBytesRows + m;
        scales[0] = scale;
        if (tiles == 1) scales[kNarrowRows] = scale;
      }
    }
    for (int64_t tile = 0; tile < count * tiles; ++tile) {
      transpose_columns(columns + tile * kBytesRows * kBytesGroup, plan.columns + (first * tiles + tile) * kBytesTile);
    }
  }
}

// ---- products --------------------------------------------------------------------------------------------------------

// The results of 16 rows of weights with 8 rows of x, or 16 if kWide: [row of weights][row of x].
template <bool kWide>
struct RowSums {
  static constexpr int64_t kStride = kWide ? kBytesRows : kNarrowRows;
#if HWY_TARGET == HWY_AVX3
  static constexpr int kVectors = kWide ? 16 : 8;
  __m512 v[kVectors];
  __m512i row_offsets;

  explicit HWY_INLINE RowSums(int64_t w_stride) {
    AA_UNROLL for (int i = 0; i < kVectors; ++i) v[i] = _mm512_setzero_ps();
    row_offsets = _mm512_mullo_epi32(numbers(), _mm512_set1_epi32(static_cast<int>(w_stride)));
  }
  static HWY_INLINE __m512i numbers() {
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  }
  static HWY_INLINE __m512i two_halves(const int32_t* first, const int32_t* second) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_load_si256(reinterpret_cast<const __m256i*>(first))),
                              _mm256_load_si256(reinterpret_cast<const __m256i*>(second)), 1);
  }
  // Adds the scaled sums of one block of the 16 rows of weights, which is at `w` in the first row. `sums` is a tile
  // with columns for upper and lower bytes or, if kWide, a tile for each.
  HWY_INLINE void add(const int32_t* sums, const uint8_t* w, const float* x_scales) {
    const __m512i words = _mm512_i32gather_epi32(row_offsets, w, 1);
    const __m512 of_w = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words));
    const __m512 of_x = _mm512_load_ps(x_scales);
    AA_UNROLL for (int i = 0; i < kVectors; ++i) {
      __m512i upper, lower, pick;
      if constexpr (kWide) {
        upper = _mm512_load_si512(sums + 16 * i);
        lower = _mm512_load_si512(sums + kBytesSums + 16 * i);
        pick = _mm512_set1_epi32(i);
      } else {
        upper = two_halves(sums + 32 * i, sums + 32 * i + 16);
        lower = two_halves(sums + 32 * i + 8, sums + 32 * i + 24);
        pick = _mm512_inserti64x4(_mm512_set1_epi32(2 * i), _mm256_set1_epi32(2 * i + 1), 1);
      }
      const __m512 number = _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(upper, 8), lower));
      v[i] = _mm512_fmadd_ps(_mm512_mul_ps(number, _mm512_permutexvar_ps(pick, of_w)), of_x, v[i]);
    }
  }
  // to[m * stride + r] for `rows` rows m of x.
  HWY_INLINE void store(int64_t rows, float* to, int64_t stride) const {
    alignas(64) float all[kVectors * 16];
    AA_UNROLL for (int i = 0; i < kVectors; ++i) _mm512_store_ps(all + 16 * i, v[i]);
    const __m512i places = _mm512_mullo_epi32(numbers(), _mm512_set1_epi32(kStride));
    for (int64_t m = 0; m < rows; ++m) {
      _mm512_storeu_ps(to + m * stride, _mm512_i32gather_ps(places, all + m, sizeof(float)));
    }
  }
#else
  float v[kBytesRows * kStride] = {};
  int64_t w_stride;

  explicit RowSums(int64_t stride) : w_stride(stride) {}
  void add(const int32_t* sums, const uint8_t* w, const float* x_scales) {
    for (int64_t r = 0; r < kBytesRows; ++r) {
      const float of_w = fp16_to_float(load_bits<uint16_t>(w + r * w_stride));
      const int32_t* upper = sums + r * kBytesRows;
      const int32_t* lower = upper + (kWide ? kBytesSums : kNarrowRows);
      for (int64_t m = 0; m < kStride; ++m) {
        const float number = static_cast<float>(upper[m] * 256 + lower[m]) * of_w;
        v[r * kStride + m] = std::fma(number, x_scales[m], v[r * kStride + m]);
      }
    }
  }
  void store(int64_t rows, float* to, int64_t stride) const {
    for (int64_t m = 0; m < rows; ++m) {
      for (int64_t r = 0; r < kBytesRows; ++r) to[m * stride + r] = v[r * kStride + m];
    }
  }
#endif
};

// Stores the integer sums of one block of 16 rows of weights with all columns of x: one tile, or two if kWide.
template <class U, bool kWide>
HWY_INLINE void multiply_block(const uint8_t* w, int64_t w_stride, const int8_t* x, int32_t* sums) {
  U::template zero<0>();
  U::template load<6>(x, amx::kMostRowBytes);
  U::template load<4>(w + sizeof(uint16_t), w_stride);
  U::template multiply_i8_i8<0, 4, 6>();
  if constexpr (kWide) {
    U::template zero<1>();
    U::template load<6>(x + kBytesTile, amx::kMostRowBytes);
    U::template multiply_i8_i8<1, 4, 6>();
  }
  U::template store<0>(sums, amx::kMostRowBytes);
  if constexpr (kWide) U::template store<1>(sums + kBytesSums, amx::kMostRowBytes);
}

// to[m * stride + r] = row r of 16 rows of weights times row m of x. Prefetches as many bytes as 16 rows have, from
// `ahead` on, unless that is null.
template <class U, bool kWide>
void multiply_16_rows(const BytesPlan& plan, const uint8_t* w, const uint8_t* ahead, float* to, int64_t stride) {
  const Matmul& args = plan.product->args;
  const int64_t w_stride = plan.product->w_stride, groups = args.k / kBytesGroup;
  constexpr int64_t kTiles = kWide ? 2 : 1;
  constexpr int64_t kAheadBytes = kBytesRows * kBytesBlock;
  alignas(64) int32_t sums[2][kTiles * kBytesSums];
  RowSums<kWide> total(w_stride);
  if (groups > 0) multiply_block<U, kWide>(w, w_stride, plan.columns, sums[0]);
  for (int64_t g = 0; g < groups; ++g) {
    if (ahead != nullptr) {
      AA_UNROLL for (int64_t line = 0; line < kAheadBytes; line += 64) {
        __builtin_prefetch(ahead + g * kAheadBytes + line, 0, 2);
      }
    }
    if (g + 1 < groups) {
      multiply_block<U, kWide>(w + (g + 1) * kBytesBlock, w_stride, plan.columns + (g + 1) * kTiles * kBytesTile,
                               sums[(g + 1) % 2]);
    }
    total.add(sums[g % 2], w + g * kBytesBlock, plan.scales + g * kBytesRows);
  }
  total.store(args.m, to, stride);
}

// Computes columns [begin, begin + n) of the result. This thread's next columns begin at `next`, which is negative if
// there are none.
template <class U>
void multiply_bytes_span_for(const BytesPlan& plan, int64_t begin, int64_t n, int64_t next) {
  const QuantizedProduct& product = *plan.product;
  const Matmul& args = product.args;
  std::array<amx::TileShape, amx::kTiles> shapes;
  shapes.fill({kBytesRows, amx::kMostRowBytes});
  shapes[4].row_bytes = kBytesGroup;
  shapes[6].rows = kBytesGroup / 4;
  U::set_shapes(shapes);
  // The last 16 rows of weights may begin before `begin`, so there is room for results in front.
  const int64_t stride = kBytesRows + (n + kBytesRows - 1) / kBytesRows * kBytesRows;
  float* products = scratch<float>(Scratch::Tile, static_cast<size_t>(args.m * stride)) + kBytesRows;
  for (int64_t column = 0; column < n; column += kBytesRows) {
    const int64_t first = std::min(begin + column, args.parts[0].n - kBytesRows);
    const uint8_t* ahead = product.w + (begin + column + kBytesRows) * product.w_stride;
    if (column + kBytesRows >= n) ahead = next < 0 ? nullptr : product.w + next * product.w_stride;
    const auto multiply = args.m <= kNarrowRows ? multiply_16_rows<U, false> : multiply_16_rows<U, true>;
    multiply(plan, product.w + first * product.w_stride, ahead, products + first - begin, stride);
  }
  U::release();
  for (int64_t m = 0; m < args.m; ++m) {
    finish_row(args, args.parts[0], m, begin, n, products + m * stride, nullptr);
  }
}

void multiply_bytes_span(const BytesPlan& plan, int64_t begin, int64_t n, int64_t next) {
  if (plan.emulated) return multiply_bytes_span_for<amx::EmulatedUnit>(plan, begin, n, next);
#if HWY_TARGET == HWY_AVX3
  multiply_bytes_span_for<amx::Unit>(plan, begin, n, next);
#endif
}

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anyaccel::cpu {

AA_CPU_EXPORT(pack_bytes);
AA_CPU_EXPORT(multiply_bytes_span);

namespace {

std::atomic<bool> emulating_bytes{false};
constexpr int64_t kMostRowsOfBytes = 16;

}  // namespace

bool takes_bytes(const QuantizedProduct& product) {
  const Matmul& args = product.args;
  if (!product.rounded || product.format->number != AA_BLOCK_Q8_0 || args.m < 2 || args.m > kMostRowsOfBytes ||
      args.parts[0].n < kBytesRows || product.w_stride > std::numeric_limits<int32_t>::max() / kBytesRows) {
    return false;
  }
  if (emulating_bytes.load(std::memory_order_relaxed)) return true;
  // On two cores of a Granite Rapids 2, 3, 4 and 6 rows of x read 25.3, 24.7, 21.5 and 17.0 GB/s with the kernels of
  // quantized_row.cpp, and 16.3, 16.6, 16.2 and 16.0 with these.
  return isa() == Isa::Amx && cpu_features().amx_int8 && !takes_few_rows(AA_BLOCK_Q8_0, args.m, args.k);
}

void emulate_bytes(bool emulate) { emulating_bytes = emulate; }

void multiply_bytes(const QuantizedProduct& product) {
  const Matmul& args = product.args;
  WorkerPool& pool = WorkerPool::instance();
  const bool alone = is_small(args);
  const int64_t n = args.parts[0].n, groups = args.k / kBytesGroup, threads = alone ? 1 : pool.size();
  const int64_t piece = (rows_of_piece(n, groups * kBytesBlock, threads) + kBytesRows - 1) / kBytesRows * kBytesRows;
  BytesPlan plan;
  plan.product = &product;
  plan.emulated = emulating_bytes.load(std::memory_order_relaxed);
  plan.columns = scratch<int8_t>(Scratch::Rounded, static_cast<size_t>(groups * tiles_of_x(args) * kBytesTile));
  plan.scales = scratch<float>(Scratch::Row2, static_cast<size_t>(groups * kBytesRows));
  std::atomic<int64_t> taken{0};
  const auto share = [&](int index, int count) {
    AA_CPU_DISPATCH(pack_bytes)(plan, groups * index / count, groups * (index + 1) / count);
    if (count > 1) pool.barrier(index);
    const auto take = [&] {
      const int64_t begin = taken.fetch_add(piece, std::memory_order_relaxed);
      return begin < n ? begin : -1;
    };
    for (int64_t begin = take(), next = 0; begin >= 0; begin = next) {
      next = take();
      AA_CPU_DISPATCH(multiply_bytes_span)(plan, begin, std::min(piece, n - begin), next);
    }
  };
  if (alone) return share(0, 1);
  pool.run(share);
}

}  // namespace anyaccel::cpu
#endif  // HWY_ONCE
