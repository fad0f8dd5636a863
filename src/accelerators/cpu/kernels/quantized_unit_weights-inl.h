// How quantized_unit.cpp decodes pieces of the weights to tiles of bf16. Included after base/simd/highway.h, once per
// instruction set.
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "accelerators/cpu/kernels/quantized_blocks-inl.h"
#include "accelerators/cpu/kernels/quantized_unit.h"
#include "accelerators/cpu/kernels/vector-inl.h"
#include "base/scalar_convert.h"
#include "base/simd/amx.h"

#if defined(ANYACCEL_CPU_KERNELS_QUANTIZED_UNIT_WEIGHTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_QUANTIZED_UNIT_WEIGHTS_INL_H_
#undef ANYACCEL_CPU_KERNELS_QUANTIZED_UNIT_WEIGHTS_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_QUANTIZED_UNIT_WEIGHTS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

constexpr int64_t kTileRows = 16, kDepth = 32;    // of a tile: rows, and columns of bf16
constexpr int64_t kTile = kTileRows * kDepth;     // elements: 1 KiB
constexpr int64_t kSums = kTileRows * kTileRows;  // results of a product of two tiles
constexpr int64_t kPair = 2 * kTileRows;          // rows that are taken together, of the weights and of x
constexpr int64_t kSteps = 32;                    // tiles of a piece in depth
constexpr int64_t kFewSteps = 8;                  // the same for up to kPair rows of x
constexpr int64_t kUnitRowBytes = 64;             // bytes of a row of a tile

inline int64_t ceil_of(int64_t value, int64_t unit) { return (value + unit - 1) / unit; }

// Elements from one group of 32 decoded values of a row of weights to the next: a step in depth has two tiles, of 16
// rows each.
constexpr int64_t kGroupStride = 2 * kTile;

// A piece of the weights: columns [begin, begin + count) of 32 rows from `row` on. Rows that are missing are zeros.
struct Piece {
  int64_t row = 0;
  int64_t begin = 0;
  int64_t count = 0;
};

// Decodes rows [first, last) of a piece to tiles, [step][2 tiles of 16 rows].
using DecodeRows = void (*)(const QuantizedProduct& product, const Piece& piece, int64_t first, int64_t last,
                            uint16_t* to);

// Decoder::decode() decodes a row of whole blocks. The loop over rows is part of the function for a format, so that constants are set
// up once for all of them.
template <class Decoder>
void decode_rows(const QuantizedProduct& product, const Piece& piece, int64_t first, int64_t last, uint16_t* to) {
  const BlockFormat& format = *product.format;
  const int64_t bytes = piece.count / format.values * format.bytes;
  const uint8_t* from = product.w + (piece.row + first) * product.w_stride + piece.begin / format.values * format.bytes;
  for (int64_t r = first; r < last; ++r, from += product.w_stride) {
    uint16_t* at = to + r / kTileRows * kTile + r % kTileRows * kDepth;
    if (piece.row + r >= product.args.parts[0].n) {
      for (int64_t g = 0; g < piece.count / kDepth; ++g) std::memset(at + g * kGroupStride, 0, kUnitRowBytes);
      continue;
    }
    // Prefetches the same columns of the next piece of rows: the hardware prefetchers do not follow short runs at large
    // distances.
    const uint8_t* ahead = from + kPair * product.w_stride;
    for (int64_t line = 0; line < bytes; line += 64) __builtin_prefetch(ahead + line, 0, 2);
    Decoder::decode(format, from, piece.count, at);
  }
}

// Any format, slowly.
struct DecodeAny {
  static void decode(const BlockFormat& format, const uint8_t* b, int64_t count, uint16_t* to) {
    float values[kSteps * kDepth];
    const auto bytes = static_cast<size_t>(count / format.values * format.bytes);
    decode_blocks(format, std::as_bytes(std::span(b, bytes)), std::span(values, static_cast<size_t>(count)));
    for (int64_t g = 0; g < count / kDepth; ++g) narrow(Bf16Type(), values + g * kDepth, to + g * kGroupStride, kDepth);
  }
};

#if HWY_TARGET == HWY_AVX3

// `low` and `high` as bf16, those of `low` first.
template <class U>
HWY_INLINE __m512i as_bf16(__m512 low, __m512 high) {
  if constexpr (std::is_same_v<U, amx::Unit>) {
    __m512i both;  // Written out because functions of this instruction set are compiled without AVX512_BF16.
    asm("vcvtne2ps2bf16 %[low], %[high], %[both]"
        : [both] "=v"(both)
        : [low] "v"(low), [high] "v"(high));  // NOLINT(hicpp-no-assembler)
    return both;
  } else {
    alignas(64) uint16_t both[32];
    alignas(64) float wide[32];
    _mm512_store_ps(wide, low);
    _mm512_store_ps(wide + 16, high);
    narrow(Bf16Type(), wide, both, 32);
    return _mm512_load_si512(both);
  }
}
HWY_INLINE void store_group(uint16_t* to, int64_t group, __m512i values) {
  _mm512_store_si512(to + group * kGroupStride, values);
}

// The receiver of add() of quantized_blocks-inl.h that stores groups as bf16, in the order of their values.
template <class U>
struct DecodedTiles {
  uint16_t* to;
  alignas(32) float block_scales[8] = {};

  static HWY_INLINE __m512 floats(__m128i bytes) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)); }
  HWY_INLINE void store(int64_t g, __m256i q, __m512 scale, __m512 second_scale) const {
    store_group(to, g,
                as_bf16<U>(_mm512_mul_ps(floats(_mm256_castsi256_si128(q)), scale),
                           _mm512_mul_ps(floats(_mm256_extracti128_si256(q, 1)), second_scale)));
  }
  // The number of the lower half of a vector, which the first 16 values have, and that of the upper half, which the last 16 have.
  static HWY_INLINE __m512 first_of(__m512 halves) { return _mm512_permutexvar_ps(_mm512_setzero_si512(), halves); }
  static HWY_INLINE __m512 second_of(__m512 halves) { return _mm512_permutexvar_ps(_mm512_set1_epi32(4), halves); }
  HWY_INLINE void begin_block(__m256 of_scales, __m256 /*of_offsets*/) { _mm256_store_ps(block_scales, of_scales); }
  HWY_INLINE void add_signed_of_block(int64_t g, int i, __m256i q, __m256 both) const {
    const __m512 wide = _mm512_mul_ps(_mm512_castps256_ps512(both), _mm512_set1_ps(block_scales[i]));
    store(g + i, q, first_of(wide), second_of(wide));
  }
  HWY_INLINE void add_halves(int64_t g, __m256i q, __m256 scales, __m256 offsets) const {
    const __m512 of_q = _mm512_castps256_ps512(scales), beside = _mm512_castps256_ps512(offsets);
    store_group(
        to, g,
        as_bf16<U>(_mm512_fmadd_ps(floats(_mm256_castsi256_si128(q)), first_of(of_q), first_of(beside)),
                   _mm512_fmadd_ps(floats(_mm256_extracti128_si256(q, 1)), second_of(of_q), second_of(beside))));
  }
  HWY_INLINE void add(int64_t g, __m256i q, float scale) const {
    store(g, q, _mm512_set1_ps(scale), _mm512_set1_ps(scale));
  }
};

template <class Format, class U>
struct DecodeBytes {
  static HWY_INLINE void decode(const BlockFormat& /*format*/, const uint8_t* b, int64_t count, uint16_t* to) {
    DecodedTiles<U> sink{to};
    for (int64_t i = 0; i < count / Format::kValues; ++i, b += Format::kBytes) {
      Format::add(sink, b, i * (Format::kValues / kDepth));
    }
  }
};

// Decoding by table: a permutation looks up 32 indices, those of a group's even values, then those of the odd ones. It
// reads five bits of each 16-bit index. Tables for 4 bits hold their 16 numbers twice, so that the bits above need not
// be cleared.
HWY_INLINE __m512 whole_numbers(int first) {
  return _mm512_add_ps(_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                       _mm512_set1_ps(static_cast<float>(first)));
}
HWY_INLINE __m512 iq4_numbers() {
  return _mm512_setr_ps(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
}
// Shift counts for 16-bit words, one for each quarter of a vector.
HWY_INLINE __m512i shifts_of(int first, int second, int third, int fourth) {
  const __m256i low = _mm256_inserti128_si256(_mm256_set1_epi16(static_cast<int16_t>(first)),
                                              _mm_set1_epi16(static_cast<int16_t>(second)), 1);
  const __m256i high = _mm256_inserti128_si256(_mm256_set1_epi16(static_cast<int16_t>(third)),
                                               _mm_set1_epi16(static_cast<int16_t>(fourth)), 1);
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
// Indices of 32 values: of 16 bytes whose low nibbles are the first 16 values, or of 32 bytes whose bits from kShift on
// are the values. The even values come first. Higher bits are not cleared.
HWY_INLINE __m512i indices_of_16(const uint8_t* p) {
  const __m512i words = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm512_srlv_epi16(words, shifts_of(0, 4, 8, 12));
}
template <int kShift>
HWY_INLINE __m512i indices_of_32(const uint8_t* p) {
  const __m512i words = _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return _mm512_srlv_epi16(words, shifts_of(kShift, kShift, kShift + 8, kShift + 8));
}
// The fp16 number at p in every lane.
HWY_INLINE __m512 half_everywhere(const uint8_t* p) {
  int16_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return _mm512_cvtph_ps(_mm256_set1_epi16(bits));
}
HWY_INLINE __m512i low_four(__m512i indices) { return _mm512_and_si512(indices, _mm512_set1_epi16(15)); }
template <class U>
HWY_INLINE __m512i table_of_16(__m512 numbers) {
  return as_bf16<U>(numbers, numbers);
}
// scale * (0 .. 31) + offset
template <class U>
HWY_INLINE __m512i table_of_32(__m512 scale, __m512 offset) {
  return as_bf16<U>(_mm512_fmadd_ps(whole_numbers(0), scale, offset),
                    _mm512_fmadd_ps(whole_numbers(16), scale, offset));
}

// decode() of a format stores the block at b as the groups from g on.
struct TableQ4_0 {
  static constexpr int64_t kValues = 32, kBytes = 18;
  template <class U>
  static HWY_INLINE void decode(const uint8_t* b, uint16_t* to, int64_t g) {
    const __m512i table = table_of_16<U>(_mm512_mul_ps(half_everywhere(b), whole_numbers(-8)));
    store_group(to, g, _mm512_permutexvar_epi16(indices_of_16(b + 2), table));
  }
};
struct TableQ4_1 {
  static constexpr int64_t kValues = 32, kBytes = 20;
  template <class U>
  static HWY_INLINE void decode(const uint8_t* b, uint16_t* to, int64_t g) {
    const __m512 numbers = _mm512_fmadd_ps(half_everywhere(b), whole_numbers(0), half_everywhere(b + 2));
    store_group(to, g, _mm512_permutexvar_epi16(indices_of_16(b + 4), table_of_16<U>(numbers)));
  }
};
struct TableIq4Nl {
  static constexpr int64_t kValues = 32, kBytes = 18;
  template <class U>
  static HWY_INLINE void decode(const uint8_t* b, uint16_t* to, int64_t g) {
    const __m512i table = table_of_16<U>(_mm512_mul_ps(half_everywhere(b), iq4_numbers()));
    store_group(to, g, _mm512_permutexvar_epi16(indices_of_16(b + 2), table));
  }
};
struct TableMxfp4 {
  static constexpr int64_t kValues = 32, kBytes = 17;
  template <class U>
  static HWY_INLINE void decode(const uint8_t* b, uint16_t* to, int64_t g) {
    const __m512 numbers = _mm512_setr_ps(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
    const float d = mxfp4_scale(b[0]);
    const __m512i table = table_of_16<U>(_mm512_mul_ps(_mm512_set1_ps(d), numbers));
    store_group(to, g, _mm512_permutexvar_epi16(indices_of_16(b + 1), table));
  }
};
// Adds the fifth bits of 32 values, which are the 32 bits at p, to their indices. The even values come first.
HWY_INLINE __m512i with_fifth_bits(__m512i indices, const uint8_t* p) {
  uint32_t bits;
  std::memcpy(&bits, p, sizeof bits);
  const __mmask32 set = _pext_u32(bits, 0x55555555u) | _pext_u32(bits, 0xaaaaaaaau) << 16;
  const __m512i four = low_four(indices);
  return _mm512_mask_add_epi16(four, set, four, _mm512_set1_epi16(16));
}
struct TableQ5_0 {
  static constexpr int64_t kValues = 32, kBytes = 22;
  template <class U>
  static HWY_INLINE void decode(const uint8_t* b, uint16_t* to, int64_t g) {
    const __m512 d = half_everywhere(b);
    const __m512i table = table_of_32<U>(d, _mm512_mul_ps(d, _mm512_set1_ps(-16)));
    store_group(to, g, _mm512_permutexvar_epi16(with_fifth_bits(indices_of_16(b + 6), b + 2), table));
  }
};
struct TableQ5_1 {
  static constexpr int64_t kValues = 32, kBytes = 24;
  template <class U>
  static HWY_INLINE void decode(const uint8_t* b, uint16_t* to, int64_t g) {
    const __m512i table = table_of_32<U>(half_everywhere(b), half_everywhere(b + 2));
    store_group(to, g, _mm512_permutexvar_epi16(with_fifth_bits(indices_of_16(b + 8), b + 4), table));
  }
};
template <bool kFifth>
struct TableQ4OrQ5K {
  static constexpr int64_t kValues = 256, kBytes = kFifth ? 176 : 144;
  template <class U, int kPair>
  static HWY_INLINE void decode_pair(const uint8_t* b, const float* scales, const float* offsets, uint16_t* to,
                                     int64_t g) {
    const uint8_t* values = b + (kFifth ? 48 : 16) + 32 * kPair;
    AA_UNROLL for (int odd = 0; odd < 2; ++odd) {
      const __m512 scale = _mm512_set1_ps(scales[2 * kPair + odd]), offset = _mm512_set1_ps(offsets[2 * kPair + odd]);
      const __m512i indices = odd == 0 ? indices_of_32<0>(values) : indices_of_32<4>(values);
      if constexpr (kFifth) {
        const __m512i bits = odd == 0 ? indices_of_32<2 * kPair>(b + 16) : indices_of_32<2 * kPair + 1>(b + 16);
        const __m512i fifth = _mm512_and_si512(_mm512_slli_epi16(bits, 4), _mm512_set1_epi16(16));
        store_group(to, g + 2 * kPair + odd,
                    _mm512_permutexvar_epi16(_mm512_or_si512(low_four(indices), fifth), table_of_32<U>(scale, offset)));
      } else {
        const __m512i table = table_of_16<U>(_mm512_fmadd_ps(whole_numbers(0), scale, offset));
        store_group(to, g + 2 * kPair + odd, _mm512_permutexvar_epi16(indices, table));
      }
    }
  }
  template <class U>
  static HWY_INLINE void decode(const uint8_t* b, uint16_t* to, int64_t g) {
    alignas(32) float scales[8], offsets[8];
    const __m128i bytes = scales_and_minima(b + 4);
    const auto floats_of = [](__m128i of) HWY_ATTR { return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(of)); };
    _mm256_store_ps(scales, _mm256_mul_ps(_mm256_set1_ps(half_at(b)), floats_of(bytes)));
    _mm256_store_ps(offsets, _mm256_mul_ps(_mm256_set1_ps(-half_at(b + 2)), floats_of(_mm_srli_si128(bytes, 8))));
    decode_pair<U, 0>(b, scales, offsets, to, g);
    decode_pair<U, 1>(b, scales, offsets, to, g);
    decode_pair<U, 2>(b, scales, offsets, to, g);
    decode_pair<U, 3>(b, scales, offsets, to, g);
  }
};
struct TableIq4Xs {
  static constexpr int64_t kValues = 256, kBytes = 136;
  template <class U>
  static HWY_INLINE void decode(const uint8_t* b, uint16_t* to, int64_t g) {
    const __m512 numbers = _mm512_mul_ps(half_everywhere(b), iq4_numbers());
    const int high = b[2] | b[3] << 8;
    AA_UNROLL for (int i = 0; i < 8; ++i) {
      const int scale = ((b[4 + i / 2] >> (i % 2 * 4) & 15) | (high >> (2 * i) & 3) << 4) - 32;
      const __m512i table = table_of_16<U>(_mm512_mul_ps(numbers, _mm512_set1_ps(static_cast<float>(scale))));
      store_group(to, g + i, _mm512_permutexvar_epi16(indices_of_16(b + 8 + 16 * i), table));
    }
  }
};

template <class Table, class U>
struct DecodeTable {
  static HWY_INLINE void decode(const BlockFormat& /*format*/, const uint8_t* b, int64_t count, uint16_t* to) {
    for (int64_t i = 0; i < count / Table::kValues; ++i, b += Table::kBytes) {
      Table::template decode<U>(b, to, i * (Table::kValues / kDepth));
    }
  }
};

// Returns null for a format without a table.
template <class U>
DecodeRows find_table_decoder(uint32_t format) {
  switch (format) {
    case AA_BLOCK_Q4_0: return decode_rows<DecodeTable<TableQ4_0, U> >;
    case AA_BLOCK_Q4_1: return decode_rows<DecodeTable<TableQ4_1, U> >;
    case AA_BLOCK_Q5_0: return decode_rows<DecodeTable<TableQ5_0, U> >;
    case AA_BLOCK_Q5_1: return decode_rows<DecodeTable<TableQ5_1, U> >;
    case AA_BLOCK_Q4_K: return decode_rows<DecodeTable<TableQ4OrQ5K<false>, U> >;
    case AA_BLOCK_Q5_K: return decode_rows<DecodeTable<TableQ4OrQ5K<true>, U> >;
    case AA_BLOCK_IQ4_NL: return decode_rows<DecodeTable<TableIq4Nl, U> >;
    case AA_BLOCK_IQ4_XS: return decode_rows<DecodeTable<TableIq4Xs, U> >;
    case AA_BLOCK_MXFP4: return decode_rows<DecodeTable<TableMxfp4, U> >;
    default: return nullptr;
  }
}
template <class U>
DecodeRows find_decoder(uint32_t format) {
  switch (format) {
    case AA_BLOCK_Q8_0: return decode_rows<DecodeBytes<Q8_0, U> >;
    case AA_BLOCK_Q2_K: return decode_rows<DecodeBytes<Q2K, U> >;
    case AA_BLOCK_Q3_K: return decode_rows<DecodeBytes<Q3K, U> >;
    case AA_BLOCK_Q6_K: return decode_rows<DecodeBytes<Q6K, U> >;
    case AA_BLOCK_TQ1_0: return decode_rows<DecodeBytes<Tq1_0, U> >;
    case AA_BLOCK_TQ2_0: return decode_rows<DecodeBytes<Tq2_0, U> >;
    default: break;
  }
  const DecodeRows decode = find_table_decoder<U>(format);
  return decode != nullptr ? decode : decode_rows<DecodeAny>;
}
// Returns true if decoded groups have their even values first.
bool has_evens_first(uint32_t format) { return find_table_decoder<amx::EmulatedUnit>(format) != nullptr; }

#else

template <class U>
DecodeRows find_decoder(uint32_t /*format*/) {
  return decode_rows<DecodeAny>;
}
bool has_evens_first(uint32_t /*format*/) { return false; }

#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
