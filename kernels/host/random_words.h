// Random words for stochastic rounding, one for each element of an op: Philox 4x32-10 as anyaccel/philox.h defines it, with a
// counter in each 64-bit lane of several vectors. The quantizers ask a RandomWords for each block of elements; element i of a
// call takes word i % 4 of counter offset + i / 4. Only the upper 24 bits of a word count. This bounds stochastic rounding, more
// than memory does.
#pragma once

#include "vector.h"

namespace anyaccel::op::quant {

// The quantizers work on this many elements at once, so that their buffers stay in the first-level cache. A multiple of every
// vector width.
inline constexpr int64_t kBlock = 512;

// The constants of Philox; anyaccel/philox.h, which is slower to compile, has the same.
inline constexpr uint32_t kMultiplier0 = 0xD2511F53u, kMultiplier1 = 0xCD9E8D57u;
inline constexpr uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;

// A vector has one counter in each 64-bit lane. The upper halves of the lanes may hold anything, because pmuludq reads only the
// lower halves of its factors. lane_counters() gives the counter of each lane less that of the first one. last_words() gives the
// two words of each lane that the last round makes of a product, whose halves have changed places, of the words before and of the
// key. store_words() stores the four words of each counter, in the order of the counters: `low` holds the first two words of a
// counter in its lane, `high` the last two.
inline constexpr uint64_t kLowerHalf = 0xffffffffu;
#if AA_VECTOR_AVX512
typedef uint64_t Lanes __attribute__((vector_size(64)));
AA_INLINE Lanes multiply_low_halves(Lanes a, Lanes b) { return (Lanes)_mm512_mul_epu32((__m512i)a, (__m512i)b); }
// Swaps the halves of each lane. In most rounds philox() moves down the upper half of one product with this and that of the
// other with a shift, because shuffles and shifts use different ports.
AA_INLINE Lanes swap_halves(Lanes a) { return (Lanes)_mm512_shuffle_epi32((__m512i)a, _MM_PERM_CDAB); }
AA_INLINE Lanes lane_counters() { return Lanes{0, 1, 2, 3, 4, 5, 6, 7}; }
// Clears the lowest 8 bits of each word as well, with the instruction that combines the first two operands.
AA_INLINE Lanes last_words(Lanes swapped, Lanes before, Lanes key) {
  const __m512i lower = _mm512_set1_epi64(static_cast<int64_t>(kLowerHalf));
  const __m512i rest = _mm512_ternarylogic_epi64((__m512i)before, (__m512i)key, lower, 0x6c);  // before & lower ^ key
  return (Lanes)_mm512_ternarylogic_epi64((__m512i)swapped, rest, _mm512_set1_epi32(-256), 0x28);
}
AA_INLINE void store_words(uint32_t* to, Lanes low, Lanes high) {
  const __m512i first = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11),
                last = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
  _mm512_storeu_si512(to, _mm512_permutex2var_epi64((__m512i)low, first, (__m512i)high));
  _mm512_storeu_si512(to + 16, _mm512_permutex2var_epi64((__m512i)low, last, (__m512i)high));
}
#elif AA_VECTOR_AVX2
typedef uint64_t Lanes __attribute__((vector_size(32)));
AA_INLINE Lanes multiply_low_halves(Lanes a, Lanes b) { return (Lanes)_mm256_mul_epu32((__m256i)a, (__m256i)b); }
AA_INLINE Lanes swap_halves(Lanes a) { return (Lanes)_mm256_shuffle_epi32((__m256i)a, _MM_SHUFFLE(2, 3, 0, 1)); }
// The second and the third counter change places because vpunpck works within halves of 128 bits: this way it gives words in
// the order of the counters, without a permutation across the halves.
AA_INLINE Lanes lane_counters() { return Lanes{0, 2, 1, 3}; }
AA_INLINE void store_words(uint32_t* to, Lanes low, Lanes high) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_unpacklo_epi64((__m256i)low, (__m256i)high));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 8), _mm256_unpackhi_epi64((__m256i)low, (__m256i)high));
}
#elif AA_VECTOR_SSE2
typedef uint64_t Lanes __attribute__((vector_size(16)));
AA_INLINE Lanes multiply_low_halves(Lanes a, Lanes b) { return (Lanes)_mm_mul_epu32((__m128i)a, (__m128i)b); }
AA_INLINE Lanes swap_halves(Lanes a) { return (Lanes)_mm_shuffle_epi32((__m128i)a, _MM_SHUFFLE(2, 3, 0, 1)); }
AA_INLINE Lanes lane_counters() { return Lanes{0, 1}; }
AA_INLINE void store_words(uint32_t* to, Lanes low, Lanes high) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_unpacklo_epi64((__m128i)low, (__m128i)high));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 4), _mm_unpackhi_epi64((__m128i)low, (__m128i)high));
}
#else
typedef uint64_t Lanes __attribute__((vector_size(8)));
AA_INLINE Lanes multiply_low_halves(Lanes a, Lanes b) { return (a & 0xffffffffu) * (b & 0xffffffffu); }
AA_INLINE Lanes swap_halves(Lanes a) { return a >> 32 | a << 32; }
AA_INLINE Lanes lane_counters() { return Lanes{0}; }
AA_INLINE void store_words(uint32_t* to, Lanes low, Lanes high) {
  const uint64_t four[2] = {low[0], high[0]};
  __builtin_memcpy(to, four, 16);
}
#endif

#if !AA_VECTOR_AVX512
AA_INLINE Lanes last_words(Lanes swapped, Lanes before, Lanes key) { return swapped ^ ((before & kLowerHalf) ^ key); }
#endif

// The keys of all rounds, broadcast to all lanes with the upper halves zero, for counters whose upper 32 bits are `upper`.
//
// Most of the first two rounds is the same for all these counters: the second word of a counter is `upper`, the third and the
// fourth are zero. So after the first round the first word is the same for all counters and the second is zero; after the
// second round the fourth word is the same. The terms that follow from these words are XORed into the keys, and philox()
// leaves their computation out.
struct PhiloxKeys {
  static constexpr int kRounds = 10;
  Lanes of_c0[kRounds], of_c2[kRounds];
  uint32_t upper;

  PhiloxKeys(uint64_t seed, uint32_t upper_bits) : upper(upper_bits) {
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    const uint64_t product = uint64_t{kMultiplier0} * (upper ^ k0);  // of the second round
    for (int round = 0; round < kRounds; ++round, k0 += kWeyl0, k1 += kWeyl1) {
      const uint32_t known = static_cast<uint32_t>(round == 1 ? product >> 32 : round == 2 ? product : 0);
      of_c0[round] = Lanes{} + uint64_t{k0};
      of_c2[round] = Lanes{} + uint64_t{k1 ^ known};
    }
  }
};

// The random numbers of one call of an op.
struct Random {
  bool used;              // false: rounding is to nearest
  uint64_t seed, offset;  // offset: the counter of the call's first element
  PhiloxKeys keys;        // those of the first element

  Random() : Random(0, 0, false) {}
  Random(uint64_t seed_, uint64_t offset_, bool is_used)
      : used(is_used), seed(seed_), offset(offset_), keys(seed, static_cast<uint32_t>(offset >> 32)) {}
};

inline constexpr int64_t kCounters = 32;  // counters for which one call of philox() computes words

// Writes the four words of each of kCounters counters, from `first` on. The words of a counter whose upper 32 bits are not those
// of the keys are wrong.
AA_ONCE inline void philox(const PhiloxKeys& keys, uint64_t first, uint32_t* words) {
  // Several vectors are interleaved to hide the latency of the multiplications. AVX-512 has registers for four of them.
  constexpr int kLanes = sizeof(Lanes) / 8, kVectors = kLanes == 8 ? 4 : 2;
  const Lanes multiplier0 = Lanes{} + uint64_t{kMultiplier0}, multiplier1 = Lanes{} + uint64_t{kMultiplier1};
  // Products of the first round. Each vector's counters are those of the one before it plus kLanes.
  Lanes started = multiply_low_halves(lane_counters() + first, multiplier0);
  for (int64_t begin = 0; begin < kCounters; begin += kVectors * kLanes) {
    Lanes c0[kVectors], c1[kVectors], c2[kVectors], c3[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      c2[v] = (started >> 32) ^ keys.of_c2[0];
      const Lanes product1 = multiply_low_halves(c2[v], multiplier1);
      c0[v] = (product1 >> 32) ^ keys.of_c0[1];
      c1[v] = product1;
      c2[v] = started ^ keys.of_c2[1];
      c3[v] = Lanes{};
      started += uint64_t{kMultiplier0} * kLanes;
    }
#pragma GCC unroll 10
    for (int round = 2; round < PhiloxKeys::kRounds - 1; ++round) {
      for (int v = 0; v < kVectors; ++v) {
        const Lanes product0 = multiply_low_halves(c0[v], multiplier0);
        const Lanes product1 = multiply_low_halves(c2[v], multiplier1);
        // The parentheses keep what does not depend on the products off the critical path.
        c0[v] = (product1 >> 32) ^ (c1[v] ^ keys.of_c0[round]);
        c1[v] = product1;
        c2[v] = swap_halves(product0) ^ (c3[v] ^ keys.of_c2[round]);
        c3[v] = product0;
      }
    }
    constexpr int kLast = PhiloxKeys::kRounds - 1;
    for (int v = 0; v < kVectors; ++v) {
      const Lanes last0 = multiply_low_halves(c0[v], multiplier0), last1 = multiply_low_halves(c2[v], multiplier1);
      const Lanes low = last_words(swap_halves(last1), c1[v], keys.of_c0[kLast]);
      const Lanes high = last_words(swap_halves(last0), c3[v], keys.of_c2[kLast]);
      store_words(words + 4 * (begin + v * kLanes), low, high);
    }
  }
}

// The words of a thread's elements, block after block. What one call of philox() computes serves several blocks of small groups.
class RandomWords {
 public:
  explicit RandomWords(const Random& random) : random_(random) {}

  // Returns the address of the word of element `begin`, behind which are those of the next n - 1, n <= kBlock; null if rounding
  // is to nearest. Vectors may read the words behind the last element's.
  AA_INLINE const uint32_t* draw(int64_t begin, int64_t n) {
    if (!random_.used) return nullptr;
    const int64_t end = begin + (n + 15) / 16 * 16;
    if (begin < first_ || end > end_) move_to(begin, end);
    return words_ + (begin - first_);
  }

 private:
  // Makes the buffer begin with the first word of the counter of element `begin`, and hold all words up to `end`.
  AA_ONCE void move_to(int64_t begin, int64_t end) {
    const int64_t first = begin / 4 * 4;
    const int64_t kept = first_ <= first && first < end_ ? end_ - first : 0;
    if (kept > 0) __builtin_memmove(words_, words_ + (first - first_), static_cast<size_t>(kept) * sizeof(words_[0]));
    first_ = first;
    for (end_ = first + kept; end_ < end; end_ += 4 * kCounters) {
      compute(random_.offset + static_cast<uint64_t>(end_ / 4), words_ + (end_ - first));
    }
  }
  // The words of kCounters counters from `at` on.
  void compute(uint64_t at, uint32_t* words) const {
    const uint64_t last = at + kCounters - 1;
    if (last >> 32 == random_.keys.upper) return philox(random_.keys, at, words);
    philox(PhiloxKeys(random_.seed, static_cast<uint32_t>(at >> 32)), at, words);
    if (at >> 32 == last >> 32) return;
    // The upper halves change at `border`: the words from there on are computed again.
    const uint64_t border = last >> 32 << 32;
    philox(PhiloxKeys(random_.seed, static_cast<uint32_t>(last >> 32)), border, words + 4 * (border - at));
  }

  // The first of kBlock elements may take any word of its counter, and compute() writes the words of kCounters counters, twice
  // where the upper halves of the counters change in between.
  static constexpr int64_t kRoom = kBlock + 4 + 8 * kCounters;

  const Random& random_;
  int64_t first_ = 0, end_ = 0;  // the elements whose words are in the buffer; first_ is a multiple of 4
  alignas(64) uint32_t words_[kRoom];
};

}  // namespace anyaccel::op::quant
