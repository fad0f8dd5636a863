// Rows of caches in int8 and fp8 as rows of bf16, for attention of one token by dot products of pairs. What an fp8 number
// decodes to is a bf16 number; what an int8 decodes to is rounded to one. Included after base/simd/highway.h, once per
// instruction set; empty for others than AVX-512.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "accelerators/cpu/kernels/attention_rows-inl.h"
#include "accelerators/cpu/kernels/attention_values-inl.h"
#include "accelerators/cpu/kernels/bf16_dots-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"

#if defined(ANYACCEL_CPU_KERNELS_ATTENTION_DECODED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_ATTENTION_DECODED_INL_H_
#undef ANYACCEL_CPU_KERNELS_ATTENTION_DECODED_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_ATTENTION_DECODED_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX2
constexpr int64_t decoded_slots(int64_t /*size*/) { return 0; }
#endif

#if HWY_TARGET == HWY_AVX3

// Bytes of decoded rows that are used before the next ones are decoded: a part of the first-level cache.
constexpr int64_t kDecodedBytes = 4096;
// Slots of them, for rows of `size` elements.
constexpr int64_t decoded_slots(int64_t size) {
  return std::max<int64_t>(2 * kStreams, kDecodedBytes / (2 * size) / (2 * kStreams) * (2 * kStreams));
}

// The upper and the lower bytes of the bf16 numbers of the 128 E4M3 codes without a sign.
struct E4m3Table {
  alignas(64) std::array<uint8_t, 128> high{}, low{};

  constexpr E4m3Table() {
    for (unsigned code = 0; code < 128; ++code) {
      const unsigned exponent = code >> 3, mantissa = code & 7;
      unsigned bits = (exponent + 120) << 7 | mantissa << 4;
      if (code == 127) {
        bits = 0x7fc0;  // NaN
      } else if (code == 0) {
        bits = 0;
      } else if (exponent == 0) {
        // mantissa * 2^-9
        const auto log = static_cast<unsigned>(std::bit_width(mantissa)) - 1;
        bits = (118 + log) << 7 | (mantissa << (3 - log) & 7) << 4;
      }
      high[code] = static_cast<uint8_t>(bits >> 8);
      low[code] = static_cast<uint8_t>(bits & 255);
    }
  }
};
constexpr E4m3Table kE4m3Table;

// The bytes of a table of 128 bytes at the lower seven bits of each byte (AVX512_VBMI, see bf16_dots-inl.h).
HWY_INLINE __m512i look_up(__m512i codes, const std::array<uint8_t, 128>& table) {
  asm("vpermi2b %[second], %[first], %[codes]"  // NOLINT(hicpp-no-assembler)
      : [codes] "+v"(codes)
      : [first] "v"(_mm512_load_si512(table.data())), [second] "v"(_mm512_load_si512(table.data() + 64)));
  return codes;
}

// Decodes `size` elements, a multiple of kPair.
HWY_INLINE void decode_row(E4m3Type, const BlockRows& rows, int64_t j, const char* row, int64_t size, uint16_t* to) {
  // Unpacking takes bytes 0 to 7 of each 128 bits, then bytes 8 to 15.
  const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
  for (int64_t d = 0; d < size; d += 2 * kPair) {
    const bool both = d + kPair < size;
    rows.prefetch(j, row + d);
    const __m512i codes = both ? _mm512_loadu_si512(row + d)
                               : _mm512_zextsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + d)));
    const __m512i ordered = _mm512_permutexvar_epi64(order, codes);
    // The magnitude's upper byte, or the sign where the bit of the sign is set in the mask.
    const __m512i high = _mm512_ternarylogic_epi64(look_up(ordered, kE4m3Table.high), ordered,
                                                   _mm512_set1_epi8(static_cast<char>(0x80)), 0xf8);
    const __m512i low = look_up(ordered, kE4m3Table.low);
    _mm512_storeu_si512(to + d, _mm512_unpacklo_epi8(low, high));
    if (both) _mm512_storeu_si512(to + d + kPair, _mm512_unpackhi_epi8(low, high));
  }
}
HWY_INLINE void decode_row(BlockType type, const BlockRows& rows, int64_t j, const char* row, int64_t size,
                           uint16_t* to) {
  for (int64_t d = 0; d < size; d += kPair) {
    FloatVec a, b;
    rows.prefetch(j, row + row_offset(type, d));
    load_values(type, row, d, a, b);
    _mm512_storeu_si512(to + d, round_to_bf16(a, b));
  }
}

// Calls function(part, j) for parts of a block of keys or values, whose first slot is number j, after decoding them to `memory`
// (decoded_slots() rows).
template <class Type, class Function>
HWY_INLINE void for_decoded_parts(Type type, const BlockRows& rows, int64_t size, float* memory, Function function) {
  auto* to = reinterpret_cast<uint16_t*>(memory);
  for (int64_t j = 0; j < rows.slots; j += decoded_slots(size)) {
    const int64_t slots = std::min(decoded_slots(size), rows.slots - j);
    for (int64_t i = 0; i < slots; ++i) decode_row(type, rows, j + i, rows.row(j + i), size, to + i * size);
    const auto row_bytes = static_cast<int64_t>(size * sizeof *to);
    function(BlockRows{reinterpret_cast<const char*>(to), kStreams * row_bytes, row_bytes, slots, 0, 0, slots, 0}, j);
  }
}

#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
