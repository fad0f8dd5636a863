// Products of a few rows of x with rows of weights (Q4_0, Q8_0, Q4_K, Q6_K, or bf16), for decoding, on the matrix units. What
// decode_tiles_linear.cu, decode_tiles_gated.cu and decode_tiles_qkv.cu share.
//
// A format's whole numbers are exact in bf16, and the scale of 32 of them (Q6_K: 16) multiplies their sum. So a matrix unit multiplies 16
// rows of numbers by the columns of x, each rounded to bf16, or, with few rows of x, the sum of two bf16 numbers that are columns
// of their own: the first is x rounded, the second what is missing. With weights in bf16, x is in bf16 too, or its norm's result is
// rounded to it: the products are exact.
//
// One block a multiprocessor takes an even share of the tiles: eight units of two rows of weights that belong together (see
// decode_products.h, whose kinds of products these are). A task is a piece of 256 values of each row of a tile. The warps of a
// block take even shares of its tasks; a tile that began in one warp and ends in others is completed by the first one, which adds
// their parts in order. A warp copies its next tasks in the background to a ring in shared memory of its own. x lies in
// shared memory as the matrix units take it, multiplied by the norm's weight; its root mean square is applied at the end, but
// where the norm's result is rounded.
//
// A kind of product has, beside aa_unit_token, aa_unit_fetch and aa_unit_end,
//   aa_tile_row(work, unit, row)   where a row of weights begins, an aa_tile_place
//   aa_tile_base(work, base)
#ifndef ANYACCEL_KERNELS_DECODE_TILES_H_
#define ANYACCEL_KERNELS_DECODE_TILES_H_

#include "decode_units.h"
#include "decode_tiles_arguments.h"

// Bytes from one of four bases: less than 2^34, a multiple of 16, or, of formats that are not aligned, less than 2^31 and even.
struct aa_tile_place {
  aa_i64 bytes;
  aa_i32 base;
};

AA_FN aa_u32 aa_word_of_halves(const aa_u8* p) { return *(const aa_u16*)p | (aa_u32)*(const aa_u16*)(p + 2) << 16; }
// The whole numbers 0 to 127 in the low bits of each half of a word, less an offset, as bf16; `less` holds -(128 + offset) twice.
AA_FN aa_u32 aa_bf16_numbers(aa_u32 word, aa_u32 mask, aa_u32 less) {
  return aa_fma_bf16x2(aa_masked_or(word, mask, 0x43004300u), 0x3f803f80u, less);
}

// By the format's number. Lane l has of a group of 32 values of row l / 4 the numbers of values i, i + 2, i + 1, i + 3 and of those
// 16 after, i being 4 * (l % 4): `codes` makes pairs of them. A value is scale * number - least. Of bf16 it has values i to i + 7, i
// being 8 * (l % 4), as they are.
template <int kNumber>
struct aa_tile_format;

struct aa_tile_usual {
  static constexpr bool is_dense = false;
  static constexpr bool has_least = false;
  static constexpr bool has_halves = false;  // each 16 values have a scale, and all of a piece another one, head.d
  static constexpr bool is_aligned = true;   // pieces begin at multiples of 16 bytes, else at any even one
  AA_FN aa_i32 moved(aa_i32 chunk, aa_i32) { return chunk; }
};

template <>
struct aa_tile_format<AA_TILES_BF16> : aa_tile_usual {
  static constexpr bool is_dense = true;
  struct Head {};
  AA_FN Head head(const aa_u8*) { return {}; }
  // Odd rows have neighbouring groups exchanged, so that eight lanes read from different banks.
  AA_FN aa_i32 moved(aa_i32 chunk, aa_i32 row) { return chunk ^ ((row & 1) << 2); }
  AA_FN void codes(const aa_u8* piece, int group, aa_i32 place, aa_u32 (&a)[4]) {
    const aa_u32x4 v = *(const aa_u32x4*)(piece + moved(group * 4 + place, AA_LANE >> 2) * 16);
    a[0] = v.x, a[1] = v.y, a[2] = v.z, a[3] = v.w;
  }
};

template <>
struct aa_tile_format<2> : aa_tile_usual {  // Q4_0
  struct Head {};
  AA_FN Head head(const aa_u8*) { return {}; }
  AA_FN void codes(const aa_u8* piece, int group, aa_i32 place, aa_u32 (&a)[4]) {
    const aa_u8* const at = piece + group * 18 + 2 + place * 4;
    const aa_u32 word = group & 1 ? *(const aa_u32*)at : aa_word_of_halves(at);
    AA_PRAGMA_UNROLL for (int i = 0; i < 4; ++i) a[i] = aa_bf16_numbers(word >> ((i & 1) * 8 + (i >> 1) * 4), 0x000f000fu, 0xc308c308u);
  }
  AA_FN float scale(const Head&, const aa_u8* piece, int group) { return aa_unpack_f16(*(const aa_u16*)(piece + group * 18)); }
};

template <>
struct aa_tile_format<8> : aa_tile_usual {  // Q8_0
  struct Head {};
  AA_FN Head head(const aa_u8*) { return {}; }
  AA_FN void codes(const aa_u8* piece, int group, aa_i32 place, aa_u32 (&a)[4]) {
    AA_PRAGMA_UNROLL for (int half = 0; half < 2; ++half) {
      const aa_u8* const at = piece + group * 34 + 2 + half * 16 + place * 4;
      const aa_u32 word = group & 1 ? *(const aa_u32*)at : aa_word_of_halves(at);
      // The sign's bit counts -128, and makes -128 to -256.
      AA_PRAGMA_UNROLL for (int i = 0; i < 2; ++i) {
        const aa_u32 pair = word >> (8 * i);
        a[half * 2 + i] = aa_bf16_numbers(pair, 0x007f007fu, aa_masked_or(pair, 0x00800080u, 0xc300c300u));
      }
    }
  }
  AA_FN float scale(const Head&, const aa_u8* piece, int group) { return aa_unpack_f16(*(const aa_u16*)(piece + group * 34)); }
};

template <>
struct aa_tile_format<12> : aa_tile_usual {  // Q4_K
  static constexpr bool has_least = true;
  struct Head {
    float d, dmin;
    aa_u32 scales[2], minima[2];  // of groups 0 to 3 and 4 to 7, a byte each
  };
  AA_FN Head head(const aa_u8* piece) {
    const aa_u32x4 v = *(const aa_u32x4*)piece;  // d, dmin and 12 bytes of scales and minima
    Head h;
    h.d = aa_unpack_f16((aa_u16)(v.x & 0xffffu));
    h.dmin = aa_unpack_f16((aa_u16)(v.x >> 16));
    h.scales[0] = v.y & 0x3f3f3f3fu;
    h.minima[0] = v.z & 0x3f3f3f3fu;
    h.scales[1] = (v.w & 0x0f0f0f0fu) | ((v.y >> 2) & 0x30303030u);
    h.minima[1] = ((v.w >> 4) & 0x0f0f0f0fu) | ((v.z >> 2) & 0x30303030u);
    return h;
  }
  AA_FN void codes(const aa_u8* piece, int group, aa_i32 place, aa_u32 (&a)[4]) {
    AA_PRAGMA_UNROLL for (int half = 0; half < 2; ++half) {
      const aa_u32 word = *(const aa_u32*)(piece + 16 + (group >> 1) * 32 + half * 16 + place * 4);
      AA_PRAGMA_UNROLL for (int i = 0; i < 2; ++i) {
        a[half * 2 + i] = aa_bf16_numbers(word >> ((group & 1) * 4 + 8 * i), 0x000f000fu, 0xc300c300u);
      }
    }
  }
  // A float from 2^23 on has its whole number in the lowest bits.
  AA_FN float byte_of(aa_u32 word, int i) { return aa_float(aa_masked_or(word >> (8 * i), 255u, 0x4b000000u)) - 8388608.0f; }
  AA_FN float scale(const Head& h, const aa_u8*, int group) {
    return h.d * byte_of(h.scales[group >> 2], group & 3);
  }
  AA_FN float least(const Head& h, int group) {
    return h.dmin * byte_of(h.minima[group >> 2], group & 3);
  }
};

template <>
struct aa_tile_format<14> : aa_tile_usual {  // Q6_K
  static constexpr bool has_halves = true, is_aligned = false;
  static constexpr int bytes = 210;
  struct Head {
    float d;
  };
  AA_FN Head head(const aa_u8* piece) { return {aa_unpack_f16(*(const aa_u16*)(piece + 208))}; }
  AA_FN void codes(const aa_u8* piece, int group, aa_i32 place, aa_u32 (&a)[4]) {
    const int part = group >> 2, quarter = group & 3;  // of 128 values
    AA_PRAGMA_UNROLL for (int half = 0; half < 2; ++half) {
      const aa_u8* const at = piece + half * 16 + place * 4;
      const aa_u32 low = aa_word_of_halves(at + part * 64 + (quarter & 1) * 32) >> ((quarter >> 1) * 4);
      const aa_u32 word = aa_word_of_halves(at + 128 + part * 32);
      const aa_u32 high = quarter < 2 ? word << (4 - 2 * quarter) : word >> (2 * quarter - 4);
      const aa_u32 numbers = aa_masked_or(low, 0x0f0f0f0fu, high & 0x30303030u);
      // With 0x43 above them, bytes below 128 are the bf16 of 128 more.
      a[half * 2] = aa_fma_bf16x2(aa_bytes_of(numbers, 0x43434343u, 0x4240u), 0x3f803f80u, 0xc320c320u);
      a[half * 2 + 1] = aa_fma_bf16x2(aa_bytes_of(numbers, 0x43434343u, 0x4341u), 0x3f803f80u, 0xc320c320u);
    }
  }
  // Of both halves of a group. A float from 2^23 on has its whole number in the lowest bits; the sign's bit counts 128 more.
  AA_FN void scales(const aa_u8* piece, int group, float (&scale)[2]) {
    const aa_u32 both = *(const aa_u16*)(piece + 192 + group * 2) ^ 0x8080u;
    scale[0] = aa_float(aa_bytes_of(both, 0x4b000000u, 0x7650u)) - 8388736.0f;
    scale[1] = aa_float(aa_bytes_of(both, 0x4b000000u, 0x7651u)) - 8388736.0f;
  }
};

// Brings x to shared memory: of each group of 32 values and column, 16 bytes for each of four lanes, [group][column][lane]. `all`:
// sums of groups, [group][column], with kSums; `squares`: sums of squares, [warp][row].
template <int kColumns, int kThreads, bool kSums>
AA_FN void aa_stage_tiles(AA_IN(void) x, AA_IN(void) norm, const aa_tiles_x& xs, aa_u32x4* staged, float* all, float* squares) {
  constexpr int kFlight = 4;
  const aa_i32 dtype = aa_opaque(xs.dtype);
  const aa_i32 norm_dtype = aa_opaque(xs.norm_dtype);
  const aa_i32 of_row = xs.pieces * 32;  // items of eight values each; what a warp takes at once is of one row
  const aa_i32 items = xs.m * of_row;
  AA_IN(aa_u8) factors = AA_AS_IN(aa_u8, norm);
  if (AA_LANE < AA_TILES_ROWS) squares[AA_WARP * AA_TILES_ROWS + AA_LANE] = 0;
  AA_WARP_SYNC();
  AA_PRAGMA_NO_UNROLL for (aa_i32 round = AA_LOCAL_ID; round < items; round += kFlight * kThreads) {
    aa_u32x4 values[kFlight][2], by[kFlight][2];
    AA_PRAGMA_UNROLL for (int i = 0; i < kFlight; ++i) {
      const aa_i32 item = round + i * kThreads;
      const aa_i32 m = item / of_row, at = item - m * of_row;
      AA_PRAGMA_UNROLL for (int half = 0; half < 2; ++half) {
        const aa_i32 quad = (at >> 2) * 8 + half * 4 + (at & 3);
        values[i][half] = {0, 0, 0, 0};
        by[i][half] = {0, 0, 0, 0};
        if (item < items) {
          values[i][half] = aa_load_quad(AA_AS_IN(aa_u8, x) + m * xs.row, dtype, quad);
          if (norm_dtype) by[i][half] = aa_load_quad(factors, norm_dtype, quad);
        }
      }
    }
    AA_PRAGMA_UNROLL for (int i = 0; i < kFlight; ++i) {
      const aa_i32 item = round + i * kThreads;
      if (item >= items) continue;
      const aa_i32 m = item / of_row, at = item - m * of_row;
      aa_quad v[2];
      float sum = 0, square = 0;
      AA_PRAGMA_UNROLL for (int half = 0; half < 2; ++half) {
        v[half] = aa_quad_value(values[i][half], dtype);
        AA_PRAGMA_UNROLL for (int e = 0; e < 4; ++e) square = aa_fma(v[half].v[e], v[half].v[e], square);
        if (norm_dtype) {
          const aa_quad factor = aa_quad_value(by[i][half], norm_dtype);
          AA_PRAGMA_UNROLL for (int e = 0; e < 4; ++e) v[half].v[e] *= factor.v[e];
        }
        AA_PRAGMA_UNROLL for (int e = 0; e < 4; ++e) sum += v[half].v[e];
      }
      const aa_i32 group = at >> 2;
      if (kSums) {
        sum += aa_shuffle_xor(sum, 1);
        sum += aa_shuffle_xor(sum, 2);
      }
      if (xs.normed) {
        square = aa_warp_sum(square);
        if (AA_LANE == 0) squares[AA_WARP * AA_TILES_ROWS + m] += square;
      }
      AA_PRAGMA_NO_UNROLL for (aa_i32 part = 0; part < xs.parts; ++part) {
        aa_u32 pairs[4];
        AA_PRAGMA_UNROLL for (int half = 0; half < 2; ++half) {
          AA_PRAGMA_UNROLL for (int odd = 0; odd < 2; ++odd) {
            const aa_u32 pair = aa_pack_bf16(v[half].v[odd], v[half].v[odd + 2]);
            pairs[half * 2 + odd] = pair;
            v[half].v[odd] -= aa_float(pair << 16);
            v[half].v[odd + 2] -= aa_float(pair & 0xffff0000u);
          }
        }
        const aa_i32 column = m * xs.parts + part;
        staged[(group * kColumns + column) * 4 + (at & 3)] = {pairs[0], pairs[1], pairs[2], pairs[3]};
        if (kSums && (at & 3) == 0) all[group * kColumns + column] = part == 0 ? sum : 0.0f;
      }
    }
  }
}

// The factor of a row's norm, by sums of squares of each warp.
template <int kWarps>
AA_FN float aa_tiles_norm_factor(const aa_tiles_x& xs, const float* squares, aa_i32 m) {
  float sum = 0;
  AA_PRAGMA_UNROLL for (int w = 0; w < kWarps; ++w) sum += squares[w * AA_TILES_ROWS + m];
  return 1.0f / aa_sqrt(aa_fma(sum, xs.inverse_k, xs.eps));
}

// Brings x to shared memory in bf16: of each group of 32 values and row, 16 bytes for each of four lanes, [group][column][lane]. x is
// read twice where it is normed: its factor comes before its rounding.
template <int kColumns, int kWarps>
AA_FN void aa_stage_dense_tiles(AA_IN(void) x, AA_IN(void) norm, const aa_tiles_x& xs, aa_u32x4* staged, float* squares) {
  constexpr int kFlight = 4, kThreads = 32 * kWarps;
  const aa_i32 dtype = aa_opaque(xs.dtype);
  const aa_i32 norm_dtype = aa_opaque(xs.norm_dtype);
  const aa_i32 of_row = xs.pieces * 32;  // items of eight values each; what a warp takes at once is of one row
  const aa_i32 items = xs.m * of_row;
  AA_IN(aa_u8) factors = AA_AS_IN(aa_u8, norm);
  aa_u32x4 values[kFlight][2];
  const auto load = [&](aa_i32 round) {
    AA_PRAGMA_UNROLL for (int i = 0; i < kFlight; ++i) {
      const aa_i32 item = round + i * kThreads;
      const aa_i32 m = item / of_row, at = item - m * of_row;
      AA_PRAGMA_UNROLL for (int half = 0; half < 2; ++half) {
        values[i][half] = {0, 0, 0, 0};
        if (item < items) values[i][half] = aa_load_quad(AA_AS_IN(aa_u8, x) + m * xs.row, dtype, 2 * at + half);
      }
    }
  };
  if (xs.normed) {
    if (AA_LANE < AA_TILES_ROWS) squares[AA_WARP * AA_TILES_ROWS + AA_LANE] = 0;
    AA_WARP_SYNC();
    AA_PRAGMA_NO_UNROLL for (aa_i32 round = AA_LOCAL_ID; round < items; round += kFlight * kThreads) {
      load(round);
      AA_PRAGMA_UNROLL for (int i = 0; i < kFlight; ++i) {
        const aa_i32 item = round + i * kThreads;
        if (item >= items) continue;
        float square = 0;
        AA_PRAGMA_UNROLL for (int half = 0; half < 2; ++half) {
          const aa_quad v = aa_quad_value(values[i][half], dtype);
          AA_PRAGMA_UNROLL for (int e = 0; e < 4; ++e) square = aa_fma(v.v[e], v.v[e], square);
        }
        square = aa_warp_sum(square);
        if (AA_LANE == 0) squares[AA_WARP * AA_TILES_ROWS + item / of_row] += square;
      }
    }
    AA_BARRIER();
  }
  AA_PRAGMA_NO_UNROLL for (aa_i32 round = AA_LOCAL_ID; round < items; round += kFlight * kThreads) {
    load(round);
    AA_PRAGMA_UNROLL for (int i = 0; i < kFlight; ++i) {
      const aa_i32 item = round + i * kThreads;
      if (item >= items) continue;
      const aa_i32 m = item / of_row, at = item - m * of_row;
      const float factor = xs.normed ? aa_tiles_norm_factor<kWarps>(xs, squares, m) : 1.0f;
      aa_u32 pairs[4];
      AA_PRAGMA_UNROLL for (int half = 0; half < 2; ++half) {
        aa_quad v = aa_quad_value(values[i][half], dtype);
        AA_PRAGMA_UNROLL for (int e = 0; e < 4; ++e) v.v[e] *= factor;
        if (norm_dtype) {
          const aa_quad by = aa_quad_value(aa_load_quad(factors, norm_dtype, 2 * at + half), norm_dtype);
          AA_PRAGMA_UNROLL for (int e = 0; e < 4; ++e) v.v[e] *= by.v[e];
        }
        pairs[2 * half] = aa_pack_bf16(v.v[0], v.v[1]);
        pairs[2 * half + 1] = aa_pack_bf16(v.v[2], v.v[3]);
      }
      staged[((at >> 2) * kColumns + m) * 4 + (at & 3)] = {pairs[0], pairs[1], pairs[2], pairs[3]};
    }
  }
}

template <int kNumber, int kColumns, class Work>
AA_FN void aa_decode_tiles(const Work& work, AA_IN(void) x, AA_IN(void) norm, const aa_tiles_x& xs, aa_u8* local) {
  using Format = aa_tile_format<kNumber>;
  constexpr int kWarps = AA_TILES_WARPS(kNumber, kColumns), kSlots = AA_TILES_SLOTS(kNumber);
  constexpr int kBytes = AA_TILES_BYTES(kNumber), kRows = 2 * AA_TILES_UNITS;
  constexpr int kShift = Format::is_aligned ? 4 : 1;
  constexpr int kTaskBytes = kRows * kBytes;
  constexpr int kGroups = AA_TILES_PIECE / 32;
  constexpr int kEach = kColumns > 2 ? 2 : 1;  // tokens whose results a lane may have
  const aa_i32 lane = AA_LANE;
  const aa_i32 warp = (aa_i32)aa_shuffle_u32((aa_u32)AA_WARP, 0);  // which tells the compiler that it is the same in all lanes
  const aa_i32 pieces = xs.pieces;
  aa_u8* const ring = local + warp * (kSlots * kTaskBytes);  // [slot][row][byte]
  aa_u32x4* const staged = (aa_u32x4*)(local + kWarps * kSlots * kTaskBytes);
  aa_quad* const ended = (aa_quad*)(staged + pieces * (kGroups * kColumns * 4));  // [thread]: of tiles that began in earlier warps
  float* const squares = (float*)(ended + kWarps * 32);
  float* const all = squares + kWarps * AA_TILES_ROWS;

  const aa_i32 block = (aa_i32)AA_GROUP_ID(0);
  const aa_i32 more = block < xs.tiles_more ? 1 : 0;
  const aa_i32 first = block * xs.tiles_each + (more ? block : xs.tiles_more);
  const aa_i64 tasks = (aa_i64)(xs.tiles_each + more) * pieces;
  const aa_i32 begin = (aa_i32)(tasks * warp / kWarps), end = (aa_i32)(tasks * (warp + 1) / kWarps);

  // The next task to load. Lane l knows where row l % 16 of its tile begins; units beyond the last are the last again.
  aa_i32 ask = begin, ask_tile = first + begin / pieces, ask_piece = begin % pieces;
  aa_u32 mine = 0;
  const auto find_rows = [&] {
    const aa_i32 unit = ask_tile * AA_TILES_UNITS + (lane & 7);
    const aa_tile_place at = aa_tile_row(work, unit < xs.units ? unit : xs.units - 1, (lane >> 3) & 1);
    mine = (aa_u32)(at.bytes >> kShift) | (aa_u32)at.base << 30;
  };
  const aa_u64 policy = aa_read_once();
  const auto load = [&](int slot) {
    if (ask < end) {
      if constexpr (Format::is_aligned) {
        constexpr int kChunks = kBytes / 16;
        const aa_i32 slot_bytes = aa_opaque(slot * kTaskBytes);
        AA_PRAGMA_UNROLL for (int j = 0; j < (kRows * kChunks + 31) / 32; ++j) {
          const aa_i32 i = lane + 32 * j;
          const aa_i32 row = i / kChunks;
          const aa_u32 place = aa_shuffle_u32(mine, row & 15);
          if (i >= kRows * kChunks) continue;
          const aa_i64 from = (aa_i64)(place & 0x3fffffffu) + ask_piece * kChunks + (i - row * kChunks);
          aa_async_copy16_once(ring + slot_bytes + Format::moved(i, row) * 16, aa_tile_base(work, place >> 30), from * 16, true, policy);
        }
      } else {
        // Half a warp copies a row. Its last lane's bytes end with the piece: what follows may be no weight.
        constexpr int kChunks = (Format::bytes + 14 + 15) / 16;
        const aa_i32 chunk = lane & 15;
        // One row too early, so that each copy adds a constant: ptxas gives one that does not a uniform register, which copies may not have.
        const aa_i32 to = aa_opaque(slot * kTaskBytes + ((lane >> 4) - 1) * kBytes + chunk * 16);
        AA_PRAGMA_UNROLL for (int j = 0; j < kRows / 2; ++j) {
          const aa_u32 place = aa_shuffle_u32(mine, 2 * j + (lane >> 4));
          if (chunk >= kChunks) continue;
          const aa_u32 from = ((place & 0x3fffffffu) << kShift) + (aa_u32)(ask_piece * Format::bytes);
          const aa_i32 count = chunk == kChunks - 1 ? (aa_i32)(from & 15) + Format::bytes - 16 * (kChunks - 1) : 16;
          aa_async_copy_part_once(ring + to + (2 * j + 1) * kBytes, aa_tile_base(work, place >> 30), (from & ~15u) + chunk * 16, count, policy);
        }
      }
      ++ask;
      if (++ask_piece == pieces) {
        ask_piece = 0;
        ++ask_tile;
        if (ask < end) find_rows();
      }
    }
    aa_async_commit();
  };
  if (!xs.early) aa_grid_wait();
  aa_grid_launch_next();
  if (begin < end) find_rows();
  AA_PRAGMA_NO_UNROLL for (int slot = 0; slot < kSlots; ++slot) load(slot);
  aa_grid_wait();

  if (Format::is_dense) {
    aa_stage_dense_tiles<kColumns, kWarps>(x, norm, xs, staged, squares);
  } else {
    aa_stage_tiles<kColumns, 32 * kWarps, Format::has_least>(x, norm, xs, staged, all, squares);
  }
  AA_BARRIER();

  // A matrix unit gives lane l columns 2 * (l % 4) and the next one of both rows of unit l / 4: the two parts of one token, or two
  // tokens. -1: none.
  const aa_i32 place = lane & 3;
  const bool in_parts = xs.parts == 2;
  aa_i32 tokens[kEach];
  aa_decode_token about[kEach];
  AA_PRAGMA_UNROLL for (int i = 0; i < kEach; ++i) {
    tokens[i] = in_parts ? (i == 0 ? place : xs.m) : 2 * place + i;
    if (tokens[i] >= xs.m) tokens[i] = -1;
    about[i] = {1.0f, 0, 0};
    if (tokens[i] < 0) continue;
    about[i] = aa_unit_token(work, tokens[i]);
    about[i].scale = xs.normed && !Format::is_dense ? aa_tiles_norm_factor<kWarps>(xs, squares, tokens[i]) : 1.0f;
  }

  aa_i32 tile = first + begin / pieces, piece = begin % pieces;
  bool whole = false;  // the tile began in this warp
  aa_u32 raw[kEach][4] = {};
  aa_u32 begins[2] = {0, 0};  // the bytes of the unit's rows, where they are not aligned
  aa_quad sums;  // both columns of the unit's first row, then of its second one
  const auto start = [&] {
    sums = {{0, 0, 0, 0}};
    whole = piece == 0;
    const aa_i32 unit = tile * AA_TILES_UNITS + (lane >> 2);
    if (!Format::is_aligned) {
      AA_PRAGMA_UNROLL for (int r = 0; r < 2; ++r) {
        begins[r] = (aa_u32)aa_tile_row(work, unit < xs.units ? unit : xs.units - 1, r).bytes;
      }
    }
    if (!whole || unit >= xs.units) return;
    AA_PRAGMA_UNROLL for (int i = 0; i < kEach; ++i) {
      if (tokens[i] >= 0) aa_unit_fetch(work, unit, tokens[i], raw[i]);
    }
  };
  const auto finish = [&] {
    const aa_i32 unit = tile * AA_TILES_UNITS + (lane >> 2);
    if (unit >= xs.units) return;
    AA_PRAGMA_UNROLL for (int i = 0; i < kEach; ++i) {
      if (tokens[i] < 0) continue;
      float result[2];
      AA_PRAGMA_UNROLL for (int r = 0; r < 2; ++r) {
        result[r] = about[i].scale * (in_parts ? sums.v[2 * r] + sums.v[2 * r + 1] : sums.v[2 * r + i]);
      }
      aa_unit_end(work, unit, tokens[i], result, raw[i], about[i]);
    }
  };
  if (begin < end) start();
  int slot = 0;
  AA_PRAGMA_NO_UNROLL for (aa_i32 at = begin; at < end; ++at) {
    aa_async_wait(kSlots - 1);
    AA_WARP_SYNC();  // each lane reads what others have copied
    const aa_u8* upper = ring + slot * kTaskBytes + (lane >> 2) * kBytes;
    const aa_u8* lower = upper + AA_TILES_UNITS * kBytes;
    if constexpr (!Format::is_aligned) {
      upper += (begins[0] + (aa_u32)(piece * Format::bytes)) & 15;
      lower += (begins[1] + (aa_u32)(piece * Format::bytes)) & 15;
    }
    const typename Format::Head upper_head = Format::head(upper), lower_head = Format::head(lower);
    const aa_u32x4* const values = staged + piece * (kGroups * kColumns * 4) + lane;
    const float* const group_sums = all + piece * (kGroups * kColumns) + 2 * (place & (kColumns / 2 - 1));
    float of_piece[4] = {0, 0, 0, 0};
    AA_PRAGMA_UNROLL for (int group = 0; group < kGroups; ++group) {
      aa_u32x4 b = {0, 0, 0, 0};
      if (kColumns == 8 || lane < kColumns * 4) b = values[group * (kColumns * 4)];
      aa_u32 p[4], q[4];
      Format::codes(upper, group, place, p);
      Format::codes(lower, group, place, q);
      const aa_u32 low[4] = {p[0], q[0], p[1], q[1]}, high[4] = {p[2], q[2], p[3], q[3]};
      if constexpr (Format::is_dense) {
        aa_mma_bf16(sums.v, low, b.x, b.y);
        aa_mma_bf16(sums.v, high, b.z, b.w);
      } else if constexpr (Format::has_halves) {
        float d[2][4] = {};
        aa_mma_bf16(d[0], low, b.x, b.y);
        aa_mma_bf16(d[1], high, b.z, b.w);
        float upper_scale[2], lower_scale[2];
        Format::scales(upper, group, upper_scale);
        Format::scales(lower, group, lower_scale);
        AA_PRAGMA_UNROLL for (int half = 0; half < 2; ++half) {
          AA_PRAGMA_UNROLL for (int i = 0; i < 2; ++i) {
            of_piece[i] = aa_fma(upper_scale[half], d[half][i], of_piece[i]);
            of_piece[2 + i] = aa_fma(lower_scale[half], d[half][2 + i], of_piece[2 + i]);
          }
        }
      } else {
        float d[4] = {0, 0, 0, 0};
        aa_mma_bf16(d, low, b.x, b.y);
        aa_mma_bf16(d, high, b.z, b.w);
        const float upper_scale = Format::scale(upper_head, upper, group);
        const float lower_scale = Format::scale(lower_head, lower, group);
        sums.v[0] = aa_fma(upper_scale, d[0], sums.v[0]);
        sums.v[1] = aa_fma(upper_scale, d[1], sums.v[1]);
        sums.v[2] = aa_fma(lower_scale, d[2], sums.v[2]);
        sums.v[3] = aa_fma(lower_scale, d[3], sums.v[3]);
        if constexpr (Format::has_least) {
          const float upper_least = -Format::least(upper_head, group);
          const float lower_least = -Format::least(lower_head, group);
          AA_PRAGMA_UNROLL for (int i = 0; i < 2; ++i) {
            const float sum = group_sums[group * kColumns + i];
            sums.v[i] = aa_fma(upper_least, sum, sums.v[i]);
            sums.v[2 + i] = aa_fma(lower_least, sum, sums.v[2 + i]);
          }
        }
      }
    }
    if constexpr (Format::has_halves) {
      AA_PRAGMA_UNROLL for (int i = 0; i < 2; ++i) {
        sums.v[i] = aa_fma(upper_head.d, of_piece[i], sums.v[i]);
        sums.v[2 + i] = aa_fma(lower_head.d, of_piece[2 + i], sums.v[2 + i]);
      }
    }
    AA_WARP_SYNC();  // before others overwrite it
    load(slot);
    slot = slot + 1 == kSlots ? 0 : slot + 1;
    ++piece;
    if (piece < pieces && at + 1 < end) continue;
    if (whole && piece == pieces) {
      finish();
      whole = false;
    } else if (!whole) {
      ended[warp * 32 + lane] = sums;
    }
    if (piece == pieces && at + 1 < end) {
      piece = 0;
      ++tile;
      start();
    }
  }
  AA_BARRIER();
  // A tile that began here and ended in the warps after this one.
  if (!whole) return;
  const aa_i64 tile_end = (aa_i64)(tile - first + 1) * pieces;
  AA_PRAGMA_NO_UNROLL for (aa_i32 w = warp + 1; w < kWarps; ++w) {
    const aa_i64 from = tasks * w / kWarps;
    if (from >= tile_end) break;
    if (from == tasks * (w + 1) / kWarps) continue;  // a warp without tasks
    const aa_quad part = ended[w * 32 + lane];
    AA_PRAGMA_UNROLL for (int i = 0; i < 4; ++i) sums.v[i] += part.v[i];
  }
  finish();
}

// The kernels of a file, X(name, number, columns) being one of them.
#define AA_TILES_OF_FORMAT(X, name, number) X(name##_1, number, 2) X(name##_8, number, 8)
// One row of x and two are decode_products.h's.
#define AA_TILES_OF_BF16(X, name) X(name##_bf16_8, AA_TILES_BF16, 8)

#endif  // ANYACCEL_KERNELS_DECODE_TILES_H_
