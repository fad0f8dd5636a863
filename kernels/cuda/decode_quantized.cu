// "quantized_linear" of anyaccel/abi/ops.h for a few rows of x and weights of Q8_0, Q4_0, Q4_K or Q6_K, for decoding: the time is that
// of reading the weights once. Nothing is rounded; other formats and shapes run on the portable kernel.
//
// Each warp takes units of two or four neighbouring rows of weights, in turn with the other warps of the grid. Its lanes copy the
// unit's pieces of 256 values, 16 bytes a lane, in the background to a ring in shared memory of the warp's own, across the ends of
// units. Of a piece a lane multiplies two runs of four values, whose bytes lie together, and applies their scales to the runs' sums.
#include "dialect.h"
#include "arguments.h"
#include "quantized_arguments.h"
#include "warp.h"
#include "quads.h"

// A lane has two runs of four whole numbers of a piece. A value is scale * number - least.
struct aa_runs {
  aa_quad number[2];
  float scale[2], least[2];
};

AA_FN aa_u32 aa_pair_of_bytes(const aa_u8* p) { return *(const aa_u16*)p; }
AA_FN aa_u32 aa_four_bytes(const aa_u8* p) { return aa_pair_of_bytes(p) | aa_pair_of_bytes(p + 2) << 16; }
// Bits of each byte of a word, less an offset. A float from 2^23 on has its whole number in the lowest bits.
AA_FN aa_quad aa_numbers_of(aa_u32 word, aa_u32 mask, float offset) {
  aa_quad q;
  AA_PRAGMA_UNROLL for (int i = 0; i < 4; ++i) {
    q.v[i] = aa_float(0x4b000000u | ((word >> (8 * i)) & mask)) - (8388608.0f + offset);
  }
  return q;
}

// By the format's number: where a lane's first run begins in a piece, how far its second one is from it, and what both are.
template <int kNumber>
struct aa_format;

template <>
struct aa_format<2> {  // Q4_0
  static constexpr int second = 16;
  static constexpr bool has_least = false;
  AA_FN aa_i32 first(aa_i32 lane) { return (lane >> 2) * 32 + (lane & 3) * 4; }
  AA_FN aa_runs runs(const aa_u8* piece, aa_i32 lane) {
    const aa_u8* const block = piece + (lane >> 2) * 18;
    const aa_u32 word = aa_four_bytes(block + 2 + (lane & 3) * 4);
    const float d = aa_unpack_f16((aa_u16)aa_pair_of_bytes(block));
    return {{aa_numbers_of(word, 15u, 8.0f), aa_numbers_of(word >> 4, 15u, 8.0f)}, {d, d}, {0, 0}};
  }
};

template <>
struct aa_format<8> {  // Q8_0
  static constexpr int second = 4;
  static constexpr bool has_least = false;
  AA_FN aa_i32 first(aa_i32 lane) { return (lane >> 2) * 32 + (lane & 3) * 8; }
  AA_FN aa_runs runs(const aa_u8* piece, aa_i32 lane) {
    const aa_u8* const block = piece + (lane >> 2) * 34;
    const aa_u8* const bytes = block + 2 + (lane & 3) * 8;
    const float d = aa_unpack_f16((aa_u16)aa_pair_of_bytes(block));
    return {{aa_numbers_of(aa_four_bytes(bytes) ^ 0x80808080u, 255u, 128.0f),
             aa_numbers_of(aa_four_bytes(bytes + 4) ^ 0x80808080u, 255u, 128.0f)},
            {d, d},
            {0, 0}};
  }
};

template <>
struct aa_format<12> {  // Q4_K
  static constexpr int second = 32;
  static constexpr bool has_least = true;
  AA_FN aa_i32 first(aa_i32 lane) { return (lane >> 3) * 64 + (lane & 7) * 4; }
  AA_FN aa_runs runs(const aa_u8* piece, aa_i32 lane) {
    const aa_u32x4 head = *(const aa_u32x4*)piece;  // d, dmin and 12 bytes of scales and minima
    const aa_u32 word = *(const aa_u32*)(piece + 16 + lane * 4);
    // The runs are of groups 2p and 2p + 1: neighbours among four bytes.
    const bool upper = lane >= 16;
    const aa_i32 shift = (lane & 8) * 2;
    const aa_u32 a = head.y >> shift, b = head.z >> shift, c = head.w >> shift;
    const aa_u32 scales = upper ? (c & 0x0f0fu) | ((a >> 2) & 0x3030u) : a & 0x3f3fu;
    const aa_u32 minima = upper ? ((c >> 4) & 0x0f0fu) | ((b >> 2) & 0x3030u) : b & 0x3f3fu;
    const float d = aa_unpack_f16((aa_u16)head.x), dmin = aa_unpack_f16((aa_u16)(head.x >> 16));
    return {{aa_numbers_of(word, 15u, 0.0f), aa_numbers_of(word >> 4, 15u, 0.0f)},
            {d * (float)(scales & 255u), d * (float)((scales >> 8) & 255u)},
            {dmin * (float)(minima & 255u), dmin * (float)((minima >> 8) & 255u)}};
  }
};

template <>
struct aa_format<14> {  // Q6_K
  static constexpr int second = 64;
  static constexpr bool has_least = false;
  AA_FN aa_i32 first(aa_i32 lane) { return (lane >> 4) * 128 + (lane & 15) * 4; }
  AA_FN aa_runs runs(const aa_u8* piece, aa_i32 lane) {
    const aa_u32 low = aa_four_bytes(piece + lane * 4);
    const aa_u32 high = aa_four_bytes(piece + 128 + (lane >> 4) * 32 + (lane & 7) * 4) >> ((lane & 8) >> 2);
    const signed char* const scales = (const signed char*)piece + 192 + (lane >> 4) * 8 + ((lane & 15) >> 2);
    const float d = aa_unpack_f16((aa_u16)aa_pair_of_bytes(piece + 208));
    return {{aa_numbers_of((low & 0x0f0f0f0fu) | ((high << 4) & 0x30303030u), 63u, 32.0f),
             aa_numbers_of(((low >> 4) & 0x0f0f0f0fu) | (high & 0x30303030u), 63u, 32.0f)},
            {d * (float)scales[0], d * (float)scales[4]},
            {0, 0}};
  }
};

AA_FN float aa_quad_dot(const aa_quad& a, const aa_quad& b) {
  float sum = a.v[0] * b.v[0];
  AA_PRAGMA_UNROLL for (int i = 1; i < 4; ++i) sum = aa_fma(a.v[i], b.v[i], sum);
  return sum;
}

template <int kNumber, int kRows>
AA_FN void aa_decode_quantized(AA_IN(void) x, AA_OUT(void) out, AA_IN(void) w, AA_IN(void) bias, AA_IN(void) residual,
                               const aa_quantized_decode& a, aa_u8* local) {
  using Format = aa_format<kNumber>;
  constexpr int kUnit = AA_QUANTIZED_UNIT(kRows), kWarps = AA_QUANTIZED_WARPS(kRows);
  constexpr int kSlots = AA_QUANTIZED_DEPTH / (kWarps * kUnit);
  constexpr int kStep = AA_QUANTIZED_STEP(kNumber), kBytes = AA_QUANTIZED_BYTES(kNumber);
  constexpr int kChunks = AA_QUANTIZED_CHUNKS(kNumber), kSlotBytes = kUnit * kChunks * 16;
  constexpr bool kIsAligned = AA_QUANTIZED_ALIGNMENT(kNumber) == 16;
  const aa_i32 lane = AA_LANE;
  aa_u8* const ring = local + AA_WARP * (kSlots * kSlotBytes);  // [slot][row of the unit][byte]
  const aa_i32 units = (a.n + kUnit - 1) / kUnit, steps = (a.pieces + kStep - 1) / kStep;
  // All blocks have one unit before any has two: few units still read with every multiprocessor.
  const aa_i32 stride = (aa_i32)AA_GROUP_COUNT(0) * kWarps;
  const aa_i32 begin = AA_WARP * (aa_i32)AA_GROUP_COUNT(0) + (aa_i32)AA_GROUP_ID(0);

  // Where a row's bytes of a step begin. Rows beyond the last are the last again.
  const auto begin_of = [&](aa_i32 unit, aa_i32 row, aa_i32 step) {
    const aa_i32 n = unit * kUnit + row < a.n ? unit * kUnit + row : a.n - 1;
    return n * a.w_row + step * (kStep * kBytes);
  };
  // The next step to load.
  aa_i32 ask_unit = begin, ask_step = 0;
  const aa_u64 policy = aa_read_once();
  const auto load = [&](int slot) {
    if (ask_unit < units) {
      const aa_i32 left = (a.pieces - ask_step * kStep) * kBytes;
      for (aa_i32 i = lane; i < kUnit * kChunks; i += 32) {
        const aa_i32 row = i / kChunks;
        const aa_i64 from = begin_of(ask_unit, row, ask_step);
        const aa_i32 before = kIsAligned ? 0 : (aa_i32)from & 15;
        const aa_i32 chunk = (i - row * kChunks) * 16 - before;  // bytes after `from`
        const aa_i32 count = left - chunk < 16 ? left - chunk : 16;
        aa_async_copy_part_once(ring + slot * kSlotBytes + i * 16, AA_AS_IN(aa_u8, w), from + chunk, count > 0 ? count : 0, policy);
      }
      if (++ask_step == steps) {
        ask_step = 0;
        ask_unit += stride;
      }
    }
    aa_async_commit();
  };
  if (!a.early) aa_grid_wait();
  aa_grid_launch_next();
  AA_PRAGMA_NO_UNROLL for (int slot = 0; slot < kSlots; ++slot) load(slot);
  aa_grid_wait();

  const aa_i32 x_dtype = aa_opaque(a.x_dtype);
  const aa_i32 first_quad = Format::first(lane) / 4;
  int slot = 0;
  AA_PRAGMA_NO_UNROLL for (aa_i32 unit = begin; unit < units; unit += stride) {
    float sums[kUnit][kRows];
    AA_PRAGMA_UNROLL for (int r = 0; r < kUnit; ++r) {
      AA_PRAGMA_UNROLL for (int m = 0; m < kRows; ++m) sums[r][m] = 0;
    }
    AA_PRAGMA_NO_UNROLL for (aa_i32 step = 0; step < steps; ++step) {
      aa_async_wait(kSlots - 1);
      AA_WARP_SYNC();  // each lane reads what others have copied
      const aa_i32 left = a.pieces - step * kStep;
      AA_PRAGMA_NO_UNROLL for (aa_i32 p = 0; p < kStep && p < left; ++p) {
        aa_runs runs[kUnit];
        AA_PRAGMA_UNROLL for (int r = 0; r < kUnit; ++r) {
          const aa_i32 before = kIsAligned ? 0 : (aa_i32)begin_of(unit, r, step) & 15;
          runs[r] = Format::runs(ring + slot * kSlotBytes + r * (kChunks * 16) + before + p * kBytes, lane);
        }
        const aa_i32 quad = (step * kStep + p) * (AA_QUANTIZED_PIECE / 4) + first_quad;
        AA_PRAGMA_UNROLL for (int m = 0; m < kRows; ++m) {
          AA_IN(aa_u8) row = AA_AS_IN(aa_u8, x) + (m < a.m ? m : a.m - 1) * a.x_row;
          AA_PRAGMA_UNROLL for (int i = 0; i < 2; ++i) {
            const aa_quad v = aa_quad_value(aa_load_quad(row, x_dtype, quad + i * (Format::second / 4)), x_dtype);
            const float all = v.v[0] + v.v[1] + v.v[2] + v.v[3];
            AA_PRAGMA_UNROLL for (int r = 0; r < kUnit; ++r) {
              sums[r][m] = aa_fma(runs[r].scale[i], aa_quad_dot(runs[r].number[i], v), sums[r][m]);
              if (Format::has_least) sums[r][m] = aa_fma(-runs[r].least[i], all, sums[r][m]);
            }
          }
        }
      }
      AA_WARP_SYNC();  // before others overwrite it
      load(slot);
      slot = slot + 1 == kSlots ? 0 : slot + 1;
    }
    // Lane r * kRows + m stores the sum of row r of the unit and row m of x.
    float mine = 0;
    AA_PRAGMA_UNROLL for (int r = 0; r < kUnit; ++r) {
      AA_PRAGMA_UNROLL for (int m = 0; m < kRows; ++m) {
        const float sum = aa_warp_sum(sums[r][m]);
        if (lane == r * kRows + m) mine = sum;
      }
    }
    const aa_i32 n = unit * kUnit + lane / kRows, m = lane % kRows;
    if (lane >= kUnit * kRows || n >= a.n || m >= a.m) continue;
    if (a.bias_dtype) mine += aa_raw_value(aa_load_raw(bias, a.bias_dtype, n * a.bias_inner), a.bias_dtype);
    if (a.residual_dtype) {
      const aa_u32 raw = aa_load_raw(residual, a.residual_dtype, m * a.residual_row + n * a.residual_inner);
      mine += aa_raw_value(raw, a.residual_dtype);
    }
    aa_store_value(out, a.out_dtype, m * a.out_row + n * a.out_inner, mine);
  }
}

#define AA_DECODE_QUANTIZED(name, number, rows) \
  AA_TUNED_KERNEL(name##_##rows, AA_QUANTIZED_THREADS(rows), 1) \
  (AA_IN(void) x, AA_OUT(void) out, AA_IN(void) w, AA_IN(void) bias, AA_IN(void) residual, aa_quantized_decode a) { \
    AA_DYNAMIC_LOCAL(local); \
    aa_decode_quantized<number, rows>(x, out, w, bias, residual, a, local); \
  } \
  AA_REGISTER_TUNED(name##_##rows, AA_QUANTIZED_THREADS(rows))
#define AA_DECODE_QUANTIZED_ROWS(name, number) \
  AA_DECODE_QUANTIZED(name, number, 1) \
  AA_DECODE_QUANTIZED(name, number, 2) \
  AA_DECODE_QUANTIZED(name, number, 4) \
  AA_DECODE_QUANTIZED(name, number, 8)

#if !defined(AA_NUMBER) || AA_NUMBER == 2
AA_DECODE_QUANTIZED_ROWS(decode_quantized_q4_0, 2)
#endif
#if !defined(AA_NUMBER) || AA_NUMBER == 8
AA_DECODE_QUANTIZED_ROWS(decode_quantized_q8_0, 8)
#endif
#if !defined(AA_NUMBER) || AA_NUMBER == 12
AA_DECODE_QUANTIZED_ROWS(decode_quantized_q4_k, 12)
#endif
#if !defined(AA_NUMBER) || AA_NUMBER == 14
AA_DECODE_QUANTIZED_ROWS(decode_quantized_q6_k, 14)
#endif
