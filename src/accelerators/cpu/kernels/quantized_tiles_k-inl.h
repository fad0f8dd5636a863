// The formats of quantized_tiles-inl.h of 256 values in a block, which quantized_tiles_k.cpp instantiates. Included after
// base/simd/highway.h, once per instruction set.
#include <array>
#include <cstdint>

#include "accelerators/cpu/kernels/quantized_tiles-inl.h"

#if defined(ANYACCEL_CPU_KERNELS_QUANTIZED_TILES_K_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_QUANTIZED_TILES_K_INL_H_
#undef ANYACCEL_CPU_KERNELS_QUANTIZED_TILES_K_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_QUANTIZED_TILES_K_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if AA_HAS_QUANTIZED_TILES

template <bool kFifth>
struct TileQ4OrQ5K {
  static constexpr int64_t kValues = 256, kBytes = kFifth ? 176 : 144;
  static constexpr int kScales = 1, kZero = 0, kMost = kFifth ? 31 : 15;
  static constexpr bool kOffsets = true, kFiner = false;
  static constexpr std::array<int64_t, 0> kWordsAt = {};
  static HWY_INLINE void unpack(WeightRows& rows, const uint32_t* /*words*/, uint8_t* to) {
    constexpr int64_t kGroup = kGroupBytes<TileQ4OrQ5K>;
    Ints head[4];  // d and dmin; then scales and minima in 6 bits
    gather16(rows, 0, head);
    const Floats d = lower_half(head[0]), minus_dmin = negative(upper_half(head[0]));
    const Ints six_bits = words_of(0x3f3f3f3f), four_bits = words_of(0x0f0f0f0f);
    const auto high_pairs = [](Ints v) HWY_ATTR { return left32(both(right32(v, 6), words_of(0x03030303)), 4); };
    const Ints scales[2] = {both(head[1], six_bits), either(both(head[3], four_bits), high_pairs(head[1]))};
    const Ints minima[2] = {both(head[2], six_bits), either(both(right32(head[3], 4), four_bits), high_pairs(head[2]))};
    AA_UNROLL for (unsigned g = 0; g < 8; ++g) {
      store_scale<TileQ4OrQ5K>(to + g * kGroup, 0, multiply(d, byte_of(scales[g / 4], g % 4)));
      store_scale<TileQ4OrQ5K>(to + g * kGroup, 1, multiply(minus_dmin, byte_of(minima[g / 4], g % 4)));
    }
    Ints high[8];
    if constexpr (kFifth) {
      gather16(rows, 16, high);
      gather16(rows, 32, high + 4);
    }
    const auto fifth = [&](Ints q, int j, int g) HWY_ATTR {
      if constexpr (!kFifth) return q;
      return either(q, sixteen_where(high[j], g));
    };
    AA_UNROLL for (int pair = 0; pair < 4; ++pair) {
      AA_UNROLL for (int half = 0; half < 2; ++half) {
        Ints bytes[4];
        gather16(rows, (kFifth ? 48 : 16) + 32 * pair + 16 * half, bytes);
        AA_UNROLL for (int i = 0; i < 4; ++i) {
          const int j = 4 * half + i;
          uint8_t* at = to + 2 * pair * kGroup;
          store_values<TileQ4OrQ5K>(at, j, fifth(both(bytes[i], bytes_of(15)), j, 2 * pair));
          store_values<TileQ4OrQ5K>(at + kGroup, j, fifth(shift_right(bytes[i], 4, 15), j, 2 * pair + 1));
        }
      }
    }
  }
};
// Stores groups 4 * half to 4 * half + 3 of pairs of bits in 16 bytes of each of 16 rows: the first 16 values of a group, or the last
// ones (`quarter` 1). change(q, p, i) turns those of group number p of the four into values.
template <class Format, class Change>
HWY_INLINE void store_pairs_of_bits(WeightRows& rows, int64_t at, int half, int quarter, uint8_t* to, Change change) {
  Ints bytes[4];
  gather16(rows, at + 32 * half + 16 * quarter, bytes);
  AA_UNROLL for (int i = 0; i < 4; ++i) {
    AA_UNROLL for (int p = 0; p < 4; ++p) {
      store_values<Format>(to + (4 * half + p) * kGroupBytes<Format>, 4 * quarter + i,
                           change(shift_right(bytes[i], static_cast<unsigned>(2 * p), 3), p, i));
    }
  }
}
HWY_INLINE Floats four_bits_of(Ints words, unsigned shift) {
  return floats_of(both(right32(words, shift), words_of(15)));
}
struct TileQ2K {
  static constexpr int64_t kValues = 256, kBytes = 84;
  static constexpr int kScales = 2, kZero = 0, kMost = 3;
  static constexpr bool kOffsets = true, kFiner = false;
  static constexpr std::array<int64_t, 1> kWordsAt = {80};
  static HWY_INLINE void unpack(WeightRows& rows, const uint32_t* words, uint8_t* to) {
    constexpr int64_t kGroup = kGroupBytes<TileQ2K>;
    const Ints d_and_m = word(words, 0);
    const Floats d = lower_half(d_and_m), minus_m = negative(upper_half(d_and_m));
    Ints packed[4];  // a scale and a minimum in each byte
    gather16(rows, 0, packed);
    AA_UNROLL for (unsigned j = 0; j < 16; ++j) {
      uint8_t* group = to + j / 2 * kGroup;
      store_scale<TileQ2K>(group, j % 2, multiply(d, four_bits_of(packed[j / 4], j % 4 * 8)));
      store_scale<TileQ2K>(group, 2 + j % 2, multiply(minus_m, four_bits_of(packed[j / 4], j % 4 * 8 + 4)));
    }
    AA_UNROLL for (int half = 0; half < 2; ++half) {
      AA_UNROLL for (int quarter = 0; quarter < 2; ++quarter) {
        store_pairs_of_bits<TileQ2K>(rows, 16, half, quarter, to,
                                     [](Ints q, int /*p*/, int /*i*/) HWY_ATTR { return q; });
      }
    }
  }
};
struct TileQ3K {
  static constexpr int64_t kValues = 256, kBytes = 110;
  static constexpr int kScales = 2, kZero = 4, kMost = 7;
  static constexpr bool kOffsets = false, kFiner = false;
  static constexpr std::array<int64_t, 0> kWordsAt = {};
  static HWY_INLINE void unpack(WeightRows& rows, const uint32_t* /*words*/, uint8_t* to) {
    constexpr int64_t kGroup = kGroupBytes<TileQ3K>;
    Ints end[4];  // the last 16 bytes: two of values, then 12 with the scales, and d
    gather16(rows, 94, end);
    const Floats d = upper_half(end[3]);
    const auto packed = [&](int i) HWY_ATTR { return either(right32(end[i], 16), left32(end[i + 1], 16)); };
    const Ints low[2] = {packed(0), packed(1)}, high = packed(2);
    AA_UNROLL for (unsigned four = 0; four < 4; ++four) {
      const Ints scales = either(both(right32(low[four % 2], four / 2 * 4), words_of(0x0f0f0f0f)),
                                 left32(both(right32(high, 2 * four), words_of(0x03030303)), 4));
      AA_UNROLL for (unsigned i = 0; i < 4; ++i) {
        const Ints scale = subtract32(both(right32(scales, 8 * i), words_of(255)), words_of(32));
        store_scale<TileQ3K>(to + (2 * four + i / 2) * kGroup, i % 2, multiply(d, floats_of(scale)));
      }
    }
    AA_UNROLL for (int quarter = 0; quarter < 2; ++quarter) {
      Ints thirds[4];
      gather16(rows, 16 * quarter, thirds);
      AA_UNROLL for (int half = 0; half < 2; ++half) {
        store_pairs_of_bits<TileQ3K>(rows, 32, half, quarter, to, [&](Ints q, int p, int i) HWY_ATTR {
          return either(q, left16(shift_right(thirds[i], static_cast<unsigned>(4 * half + p), 1), 2));
        });
      }
    }
  }
};
struct TileTq1_0 {
  static constexpr int64_t kValues = 256, kBytes = 54;
  static constexpr int kScales = 1, kZero = 1, kMost = 2;
  static constexpr bool kOffsets = false, kFiner = false;
  static constexpr std::array<int64_t, 2> kWordsAt = {48, 50};
  // Digit `power` (a power of 3) of each byte, as in ternary_digits().
  static HWY_INLINE Ints digits(Ints bytes, int power) {
    const Ints lower = words_of(0x00ff00ff), upper = words_of(static_cast<int>(0xff00ff00));
    const Ints even = both(multiply16(bytes, power), lower);
    const Ints odd = right16(multiply16(both(bytes, upper), power), 8);
    return either(right16(multiply16(even, 3), 8), both(multiply16(odd, 3), upper));
  }
  static HWY_INLINE void unpack(WeightRows& rows, const uint32_t* words, uint8_t* to) {
    constexpr int64_t kGroup = kGroupBytes<TileTq1_0>;
    constexpr int kPowers[5] = {1, 3, 9, 27, 81};
    const Floats d = upper_half(word(words, 1));
    AA_UNROLL for (int g = 0; g < 8; ++g) store_scale<TileTq1_0>(to + g * kGroup, 0, d);
    AA_UNROLL for (int run = 0; run < 3; ++run) {
      Ints bytes[4];
      gather16(rows, 16 * run, bytes);
      AA_UNROLL for (int p = 0; p < 5; ++p) {
        // Digit p of the first 32 bytes is group p, that of the next 16 half of group 5 + p / 2.
        const int group = run < 2 ? p : 5 + p / 2, half = run < 2 ? run : p % 2;
        AA_UNROLL for (int i = 0; i < 4; ++i) {
          store_values<TileTq1_0>(to + group * kGroup, 4 * half + i, digits(bytes[i], kPowers[p]));
        }
      }
    }
    const Ints four = word(words, 0);
    AA_UNROLL for (int p = 0; p < 4; ++p) store_values<TileTq1_0>(to + 7 * kGroup, 4 + p, digits(four, kPowers[p]));
  }
};
struct TileTq2_0 {
  static constexpr int64_t kValues = 256, kBytes = 66;
  static constexpr int kScales = 1, kZero = 1, kMost = 3;
  static constexpr bool kOffsets = false, kFiner = false;
  static constexpr std::array<int64_t, 1> kWordsAt = {62};
  static HWY_INLINE void unpack(WeightRows& rows, const uint32_t* words, uint8_t* to) {
    const Floats d = upper_half(word(words, 0));
    AA_UNROLL for (int g = 0; g < 8; ++g) store_scale<TileTq2_0>(to + g * kGroupBytes<TileTq2_0>, 0, d);
    AA_UNROLL for (int half = 0; half < 2; ++half) {
      AA_UNROLL for (int quarter = 0; quarter < 2; ++quarter) {
        store_pairs_of_bits<TileTq2_0>(rows, 0, half, quarter, to,
                                       [](Ints q, int /*p*/, int /*i*/) HWY_ATTR { return q; });
      }
    }
  }
};
struct TileQ6K {
  static constexpr int64_t kValues = 256, kBytes = 210;
  static constexpr int kScales = 2, kZero = 32, kMost = 63;
  static constexpr bool kOffsets = false, kFiner = false;
  static constexpr std::array<int64_t, 1> kWordsAt = {206};
  static HWY_INLINE void unpack(WeightRows& rows, const uint32_t* words, uint8_t* to) {
    constexpr int64_t kGroup = kGroupBytes<TileQ6K>;
    Ints scales[4];
    gather16(rows, 192, scales);
    const Floats d = upper_half(word(words, 0));
    AA_UNROLL for (unsigned g = 0; g < 8; ++g) {
      AA_UNROLL for (unsigned half = 0; half < 2; ++half) {
        const unsigned number = 2 * g + half;
        store_scale<TileQ6K>(to + g * kGroup, half, multiply(d, signed_byte_of(scales[number / 4], number % 4)));
      }
    }
    AA_UNROLL for (int half = 0; half < 2; ++half) {
      AA_UNROLL for (int quarter = 0; quarter < 2; ++quarter) {  // 16 of 32 values of a group
        Ints high[4], first[4], second[4];
        gather16(rows, 128 + 32 * half + 16 * quarter, high);
        gather16(rows, 64 * half + 16 * quarter, first);
        gather16(rows, 64 * half + 32 + 16 * quarter, second);
        AA_UNROLL for (int i = 0; i < 4; ++i) {
          const int j = 4 * quarter + i;
          uint8_t* at = to + 4 * half * kGroup;
          const auto with = [&](Ints low, unsigned group)
                                HWY_ATTR { return either(low, left16(shift_right(high[i], 2 * group, 3), 4)); };
          store_values<TileQ6K>(at, j, with(both(first[i], bytes_of(15)), 0));
          store_values<TileQ6K>(at + kGroup, j, with(both(second[i], bytes_of(15)), 1));
          store_values<TileQ6K>(at + 2 * kGroup, j, with(shift_right(first[i], 4, 15), 2));
          store_values<TileQ6K>(at + 3 * kGroup, j, with(shift_right(second[i], 4, 15), 3));
        }
      }
    }
  }
};
struct TileIq4Xs {
  static constexpr int64_t kValues = 256, kBytes = 136;
  static constexpr int kScales = 1, kZero = 128, kMost = 241;
  static constexpr bool kOffsets = false, kFiner = false;
  static constexpr std::array<int64_t, 2> kWordsAt = {0, 4};
  static HWY_INLINE void unpack(WeightRows& rows, const uint32_t* words, uint8_t* to) {
    constexpr int64_t kGroup = kGroupBytes<TileIq4Xs>;
    const Ints head = word(words, 0), low = word(words, 1);  // d, then 8 pairs of bits; 8 times 4 bits
    const Floats d = lower_half(head);
    AA_UNROLL for (unsigned g = 0; g < 8; ++g) {
      const Ints four = both(right32(low, 4 * g), words_of(15));
      const Ints two = both(right32(head, 16 + 2 * g), words_of(3));
      const Ints scale = subtract32(either(four, left32(two, 4)), words_of(32));
      store_scale<TileIq4Xs>(to + g * kGroup, 0, multiply(d, floats_of(scale)));
      store_nibbles<TileIq4Xs>(rows, 8 + 16 * g, to + g * kGroup, [](Ints q, int /*j*/) HWY_ATTR { return iq4_of(q); });
    }
  }
};

#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
