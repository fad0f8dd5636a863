// What the two quantizers (quantizer.cpp for integers, fp_quantizer.cpp for small floats) share: reading blocks of elements as
// floats, the range of a group, prefetching, stochastic rounding, non-temporal output, and the walk over groups.
//
// A group is read twice: once from memory to find its range, which gives its scale, and again from the caches to write its
// codes. A few small groups take turns (write_groups()), so that their elements are still in the first-level cache the
// second time. On some processors the next groups are read from memory while these are written (write_and_search()). Integers
// are bound by memory, small floats by arithmetic; docs/performance_quantizers.md has the figures.
//
// Everything here gives the same bits with every instruction set and any number of threads.
#pragma once

#include "anyaccel/op_source.h"
#include "random_words.h"
#include "vector.h"

namespace anyaccel::op::quant {

// Outputs of at least this many bytes are written with non-temporal stores: they would not fit into the caches anyway.
inline constexpr int64_t kLargeOutput = int64_t{16} << 20;

AA_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
// n rounded up to a multiple of 16, the lanes of the widest vector.
AA_INLINE int64_t padded(int64_t n) { return (n + 15) / 16 * 16; }

AA_INLINE int64_t bytes_of(int32_t dtype) { return dtype == AA_DTYPE_F32 ? 4 : 2; }

// Converts n elements to floats. Writes whole vectors, so `out` needs room for padded(n).
template <class T>
inline void widen(const T* x, int64_t n, float* out) {
  int64_t i = 0;
  for (; i + Vec::width <= n; i += Vec::width) store(out + i, load(x + i));
  if (i < n) store(out + i, load_n(x + i, n - i));
}

// Returns the elements [begin, begin + n) of a dense F32, F16 or BF16 array as floats, n <= kBlock: in the array itself or in
// `buffer`. Up to padded(n), copies of the first element follow, which let a minimum or maximum use whole vectors.
AA_ONCE inline const float* read_block(const void* x, int32_t dtype, int64_t begin, int64_t n, float* buffer) {
  if (dtype == AA_DTYPE_F32) {
    const float* from = static_cast<const float*>(x) + begin;
    if (n % 16 == 0) return from;
    __builtin_memcpy(buffer, from, static_cast<size_t>(n) * sizeof(float));
  } else if (dtype == AA_DTYPE_F16) {
    widen(static_cast<const fp16*>(x) + begin, n, buffer);
  } else {
    widen(static_cast<const bf16*>(x) + begin, n, buffer);
  }
  for (int64_t i = n; i < padded(n); ++i) buffer[i] = buffer[0];
  return buffer;
}

// Calls body(x) with a pointer to the elements [begin, begin + n) of a dense F32, F16 or BF16 array: in place and in their own
// type if n is a multiple of 16, else as floats from read_block().
template <class Body>
AA_INLINE void with_elements(const void* x, int32_t dtype, int64_t begin, int64_t n, float* buffer, const Body& body) {
  if (n % 16 != 0) {
    body(read_block(x, dtype, begin, n, buffer));
  } else if (dtype == AA_DTYPE_F32) {
    body(static_cast<const float*>(x) + begin);
  } else if (dtype == AA_DTYPE_BF16) {
    body(static_cast<const bf16*>(x) + begin);
  } else {
    body(static_cast<const fp16*>(x) + begin);
  }
}

// How many groups have their scales found before the first of them is written. Up to 2,048 elements (8 KiB of float32) stay in
// the first-level cache until they are read again.
inline constexpr int64_t kMostScaled = 16;
AA_INLINE int64_t groups_at_once(int64_t group_size) {
  const int64_t fitting = 2048 / group_size;
  return fitting < 1 ? 1 : smaller(fitting, kMostScaled);
}

// Groups of more elements than this are not prefetched: a group and its successor would evict each other from the caches.
inline constexpr int64_t kFetchedGroup = 32768;
// On processors with fetches_best_alone, groups are left to the hardware's prefetcher if the elements of one batch (see Ahead)
// take at most this many bytes. That serves Zen 4. On Zen 3, which has AVX2 only, prefetches make quantizers of bf16 a
// fifth faster.
inline constexpr int64_t kFetchedAlone = AA_VECTOR_AVX512 ? 4096 : 0;
// Prefetches the next batch of groups while the present batch is worked on. A batch is the groups that write_groups() takes at
// once.
//
// Each batch is read in two passes: from memory to find the scales, and again from the caches to write the codes. So that memory
// is busy during both, the first pass prefetches the first half of the next batch, half a byte for each byte that it reads, and
// the second pass the second half. Where writing takes much longer than finding the scale, the second pass prefetches all
// of it, byte for byte, and the first pass nothing.
class Ahead {
 public:
  Ahead() = default;
  // For one pass over a group that begins `offset` bytes into the present batch; the batch begins at `from` and has `size` bytes.
  Ahead(const void* from, int64_t size, int64_t offset, bool first_pass, bool slow_write) : all_(slow_write) {
    const char* const next = static_cast<const char*>(from) + size;
    if (slow_write) {
      next_ = first_pass ? nullptr : next + offset;
    } else {
      next_ = next + offset / 2 + (first_pass ? 0 : size / 2);
    }
  }

  // The same for a part of the group that begins `bytes` bytes further on.
  Ahead behind(int64_t bytes) const {
    Ahead later = *this;
    if (next_) later.next_ = next_ + (all_ ? bytes : bytes / 2);
    return later;
  }
  // What a loop calls fetch() of, and then hands to close(); see Meanwhile.
  AA_INLINE Ahead open() const { return *this; }
  AA_INLINE void close(const Ahead&) const {}
  // Prefetches what corresponds to the kBytes bytes at `offset` from the beginning. Call this as these are read.
  template <int64_t kBytes>
  AA_INLINE void fetch(int64_t offset) const {
    if (!next_) return;
    fetch_half<kBytes / 2>(next_ + (all_ ? offset : offset / 2));
    if (all_) fetch_half<kBytes / 2>(next_ + offset + kBytes / 2);
  }

 private:
  template <int64_t kBytes>
  AA_INLINE static void fetch_half(const char* from) {
#pragma GCC unroll 4
    for (int64_t i = 0; i < kBytes; i += 64) {
      if (fetches_best_alone) {
        prefetch(from + i);
      } else {
        // Into the second-level cache, and further ahead. A prefetch into the first level holds one of its fill buffers while
        // it waits for memory, and the output needs those.
        __builtin_prefetch(from + i + kFurther, 0, 2);
      }
    }
  }

  static constexpr int64_t kFurther = 8192;  // bytes
  const char* next_ = nullptr;               // may lie outside of the array; null: nothing is prefetched
  bool all_ = false;                         // a byte for each byte read, not half a byte
};

// Rounds n floats, none of them denormal, to another dtype. Returns where the elements are: `buffer`, which has room for
// padded(n), or x itself for F32.
AA_ONCE inline const void* narrow_block(const float* x, int64_t n, int32_t dtype, void* buffer) {
  if (dtype == AA_DTYPE_F32) return x;
  if (dtype == AA_DTYPE_F16) {
    for (int64_t i = 0; i < n; i += Vec::width) store(static_cast<fp16*>(buffer) + i, load(x + i));
  } else {
    narrow_normal(x, padded(n), static_cast<bf16*>(buffer));
  }
  return buffer;
}

// The smallest and the largest element, and whether all were finite.
struct Range {
  float low = __builtin_inff();
  float high = -__builtin_inff();
  bool finite = true;

  void add(const Range& other) {
    low = other.low < low ? other.low : low;
    high = other.high > high ? other.high : high;
    finite = finite && other.finite;
  }
  float largest_magnitude() const { return -low > high ? -low : high; }
};

// n is a multiple of the width of a vector.
AA_ONCE inline Range range_of(const float* x, int64_t n) {
  Vec low0(__builtin_inff()), low1 = low0, high0 = -low0, high1 = high0, odd0(0.0f), odd1(0.0f);
  int64_t i = 0;
  // x * 0 is NaN for an infinity or a NaN, and a sum that is NaN remains so.
  const Vec zero(0.0f);
  for (; i + 2 * Vec::width <= n; i += 2 * Vec::width) {
    const Vec a = load(x + i), b = load(x + i + Vec::width);
    low0 = min(a, low0);
    low1 = min(b, low1);
    high0 = max(a, high0);
    high1 = max(b, high1);
    odd0 = multiply_add(a, zero, odd0);
    odd1 = multiply_add(b, zero, odd1);
  }
  for (; i < n; i += Vec::width) {
    const Vec a = load(x + i);
    low0 = min(a, low0);
    high0 = max(a, high0);
    odd0 = multiply_add(a, zero, odd0);
  }
  Range range;
  range.low = smallest(min(low0, low1));
  range.high = largest(max(high0, high1));
  range.finite = !any(is_nan(odd0 + odd1));
  return range;
}

// The horizontal maximum of a vector of signed 16-bit or 32-bit integers.
template <class Bits, class Many>
AA_INLINE Bits largest_lane(Many a) {
#if AA_VECTOR_AVX512 || AA_VECTOR_AVX2
#if AA_VECTOR_AVX512
  typedef Bits Half __attribute__((vector_size(32)));
  Half halves[2];
  __builtin_memcpy(halves, &a, sizeof(a));
  const __m256i wide = (__m256i)(halves[0] > halves[1] ? halves[0] : halves[1]);
#else
  const __m256i wide = (__m256i)a;
#endif
  const __m128i high = _mm256_extracti128_si256(wide, 1), low = _mm256_castsi256_si128(wide);
  if constexpr (sizeof(Bits) == 2) {
    // phminposuw finds the smallest of eight unsigned integers. Inverting all bits but the sign turns the order of signed
    // integers around and makes it that of unsigned ones.
    const __m128i turn = _mm_set1_epi16(0x7fff);
    const __m128i least = _mm_minpos_epu16(_mm_xor_si128(_mm_max_epi16(low, high), turn));
    return static_cast<Bits>(_mm_cvtsi128_si32(least) ^ 0x7fff);
  } else {
    __m128i four = _mm_max_epi32(low, high);
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
  }
#else
  Bits largest = a[0];
  for (size_t lane = 1; lane < sizeof(a) / sizeof(Bits); ++lane) largest = a[lane] > largest ? a[lane] : largest;
  return largest;
#endif
}

// Vectors that the accumulators below take at once, each in an accumulator of its own.
constexpr int kAccumulators = 4;
// The range of elements in place, which need no conversion: if all bits but the sign of the negative floats are inverted, bit
// patterns compare as signed integers in the order of the floats. With 16-bit elements a vector has twice as many lanes as
// one of floats. With kMagnitude, `high` of the range is the largest magnitude and `low` is -high.
template <class Bits, bool kMagnitude>
class BitsRange {
 public:
  BitsRange() {
    for (int k = 0; k < kAccumulators; ++k) low_[k] = Many{} + kMost, high_[k] = Many{} - kMost;
  }
  // Takes kVectors vectors, at most kAccumulators.
  template <int kVectors>
  AA_INLINE void add(const char* from) {
    for (int k = 0; k < kVectors; ++k) {
      Many bits;
      __builtin_memcpy(&bits, from + k * static_cast<int64_t>(sizeof(bits)), sizeof(bits));
      bits = ordered(bits);
      if constexpr (!kMagnitude) low_[k] = bits < low_[k] ? bits : low_[k];
      high_[k] = bits > high_[k] ? bits : high_[k];
    }
  }
  // The range of what was added and of n more elements. `dtype` tells bf16 from fp16.
  AA_INLINE Range range(int32_t dtype, const char* from = nullptr, int64_t n = 0) const {
    Many low = low_[0], high = high_[0];
    for (int k = 1; k < kAccumulators; ++k) {
      low = low_[k] < low ? low_[k] : low;
      high = high_[k] > high ? high_[k] : high;
    }
    Bits least = kMost, most = largest_lane<Bits>(high);
    if constexpr (!kMagnitude) least = static_cast<Bits>(~largest_lane<Bits>(~low));
    for (int64_t i = 0; i < n; ++i) {
      Bits bits;
      __builtin_memcpy(&bits, from + i * kSize, kSize);
      bits = static_cast<Bits>(ordered(bits));
      least = bits < least ? bits : least;
      most = bits > most ? bits : most;
    }
    const auto value = [&](Bits bits) {
      bits = static_cast<Bits>(ordered(bits));
      if constexpr (kSize == 4) {
        return bits_float(static_cast<uint32_t>(bits));
      } else {
        const auto half = static_cast<uint16_t>(bits);
        return dtype == AA_DTYPE_BF16 ? to_float(bf16{half}) : to_float(fp16{half});
      }
    };
    const int32_t infinity = kSize == 4 ? 0x7f800000 : dtype == AA_DTYPE_BF16 ? 0x7f80 : 0x7c00;
    Range range;
    range.high = value(most);
    range.low = kMagnitude ? -range.high : value(least);
    // The integer of minus infinity is ~infinity.
    range.finite = most < infinity && least > ~infinity;
    return range;
  }

 private:
  typedef Bits Many __attribute__((vector_size(4 * Vec::width)));
  static constexpr int64_t kSize = sizeof(Bits);
  static constexpr Bits kMost = static_cast<Bits>((uint64_t{1} << (8 * kSize - 1)) - 1);
  template <class T>
  static AA_INLINE auto ordered(T bits) {
    if constexpr (kMagnitude) return bits & kMost;
    return bits ^ ((bits >> (8 * kSize - 1)) & kMost);
  }

  Many low_[kAccumulators], high_[kAccumulators];
};
// As BitsRange without kMagnitude, for float32. It uses floating-point minima and maxima, of which two start per cycle; for
// 32-bit integers it would be one.
class FloatsRange {
 public:
  FloatsRange() {
    for (int k = 0; k < kAccumulators; ++k) low_[k] = Vec(__builtin_inff()), high_[k] = Vec(-__builtin_inff());
  }
  template <int kVectors>
  AA_INLINE void add(const char* from) {
    const Vec zero(0.0f);
#pragma GCC unroll 4
    for (int k = 0; k < kVectors; ++k) {
      const Vec a = load(reinterpret_cast<const float*>(from) + k * Vec::width);
      low_[k] = min(a, low_[k]);
      high_[k] = max(a, high_[k]);
      // x * 0 is NaN for an infinity or a NaN, and a sum that is NaN remains so.
      odd_[k] = multiply_add(a, zero, odd_[k]);
    }
  }
  AA_INLINE Range range(int32_t, const char* from = nullptr, int64_t n = 0) const {
    Range range;
    range.low = smallest(min(min(low_[0], low_[1]), min(low_[2], low_[3])));
    range.high = largest(max(max(high_[0], high_[1]), max(high_[2], high_[3])));
    range.finite = !any(is_nan((odd_[0] + odd_[1]) + (odd_[2] + odd_[3])));
    for (int64_t i = 0; i < n; ++i) {
      const float x = reinterpret_cast<const float*>(from)[i];
      range.low = x < range.low ? x : range.low;
      range.high = x > range.high ? x : range.high;
      range.finite = range.finite && x - x == 0.0f;
    }
    return range;
  }

 private:
  Vec low_[kAccumulators], high_[kAccumulators], odd_[kAccumulators];
};
template <class T, bool kMagnitude>
struct AccumulatorOf {
  using Type = BitsRange<int16_t, kMagnitude>;
};
template <>
struct AccumulatorOf<float, true> {
  using Type = BitsRange<int32_t, true>;
};
template <>
struct AccumulatorOf<float, false> {
  using Type = FloatsRange;
};
// The accumulator for elements of type T (float, or one of 16 bits).
template <class T, bool kMagnitude>
using Accumulator = typename AccumulatorOf<T, kMagnitude>::Type;

template <class T, bool kMagnitude>
AA_ONCE Range range_of_elements(const char* from, int64_t n, int32_t dtype, Ahead ahead) {
  constexpr int64_t kSize = sizeof(T), kStep = kAccumulators * sizeof(Vec) / kSize;
  Accumulator<T, kMagnitude> accumulator;
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    ahead.fetch<kStep * kSize>(i * kSize);
    accumulator.template add<kAccumulators>(from + i * kSize);
  }
  return accumulator.range(dtype, from + i * kSize, n - i);
}
// The range of the elements [begin, end) of a dense F32, F16 or BF16 array; kMagnitude as for BitsRange.
template <bool kMagnitude>
Range range_of_dense(const void* x, int32_t dtype, int64_t begin, int64_t end, Ahead ahead = {}) {
  const char* from = static_cast<const char*>(x) + begin * bytes_of(dtype);
  return dtype == AA_DTYPE_F32 ? range_of_elements<float, kMagnitude>(from, end - begin, dtype, ahead)
                               : range_of_elements<bf16, kMagnitude>(from, end - begin, dtype, ahead);
}

#if AA_VECTOR_AVX512
// Whether groups are searched while others are written: memory then never waits for arithmetic, but the loops have more to do at
// once. Measured on a Granite Rapids only.
inline const bool gains_from_searching_meanwhile = is_granite_rapids;
// Finds the range of another group while one is written (write_and_search()). Whoever writes calls fetch() for every element of
// the group, more than once if need be, as for an Ahead. A loop in a function of its own gets a Part instead, by value as an
// Ahead: open() copies the accumulators, so that they are in registers, and close() gives them back.
template <class T, bool kMagnitude>
class Meanwhile {
 public:
  explicit Meanwhile(const void* next) : next_(static_cast<const char*>(next)) {}
  template <int64_t kBytes>
  AA_INLINE void fetch(int64_t offset) {
    const char* const from = next_ + offset;
#pragma GCC unroll 4
    for (int64_t i = 0; i < kBytes; i += 64) {
      __builtin_prefetch(from + i + kFar, 0, 2);
      __builtin_prefetch(from + i + kNear);
    }
    accumulator_.template add<kBytes / sizeof(Vec)>(from);
  }
  Range range(int32_t dtype) const { return accumulator_.range(dtype); }

  // For a part of the group that begins `bytes` bytes behind the group's beginning.
  struct Part {
    Meanwhile* whole;
    int64_t bytes;
    Part behind(int64_t further) const { return {whole, bytes + further}; }
    AA_INLINE Meanwhile open() const {
      Meanwhile part = *whole;
      part.next_ += bytes;
      return part;
    }
    AA_INLINE void close(const Meanwhile& part) const { whole->accumulator_ = part.accumulator_; }
  };

 private:
  static constexpr int64_t kFar = 3072, kNear = 1024;  // bytes, into the second-level and into the first-level cache
  const char* next_;
  Accumulator<T, kMagnitude> accumulator_;
};
#endif

// Stochastic rounding: decides for each element whether to round up, with the probability exact - below, where `below` is
// floor(exact). The upper 24 bits of the element's random word, as a number in [0, 1), are compared with that difference.
#if AA_VECTOR_AVX512
// The lowest 8 bits of these words are 0 (last_words()). The result is 2^32 times that number.
AA_INLINE Vec random_floats(const uint32_t* words) { return Vec(_mm512_cvtepu32_ps(_mm512_loadu_si512(words))); }
AA_INLINE Vec random_units(const uint32_t* words) { return random_floats(words) * Vec(0x1p-32f); }
#else
AA_INLINE Vec random_units(const uint32_t* words) {
  Words word;
  __builtin_memcpy(&word, words, sizeof(word));
  return to_floats(word >> 8) * Vec(0x1p-24f);
}
#endif
AA_INLINE Mask rounds_up(Vec exact, Vec below, const uint32_t* words) {
  return less(random_units(words), exact - below);
}
// Stochastic rounding to an integer.
AA_INLINE Vec round_by_chance(Vec exact, const uint32_t* words) {
  const Vec below = floor(exact);
  return select(rounds_up(exact, below, words), below + Vec(1.0f), below);
}
#if AA_VECTOR_AVX512
// exact less the random number in [0, 1), rounded up. The least integer that is not below it is round_by_chance(), with one
// exception: for an exact between -1/2 and 0 the difference exact - below, which that compares with the random number, is rounded
// to a multiple of 2^-24 and may then be equal to it. In these cases, and seldom in others, the result is kMayDiffer.
AA_INLINE Vec less_random(Vec exact, const uint32_t* words) {
  return Vec(_mm512_fnmadd_round_ps(random_floats(words).v, _mm512_set1_ps(0x1p-32f), exact.v,
                                    _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC));
}
constexpr float kMayDiffer = -0x1.fffffep-1f;  // the float above -1
#endif
// round_by_chance() of a number that is not negative, plus a number whose ulp is 1.
AA_INLINE Vec magnitude_by_chance(Vec exact, const uint32_t* words, Vec plus) {
#if AA_VECTOR_AVX512
  return Vec(_mm512_add_round_ps(less_random(exact, words).v, plus.v, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC));
#else
  return round_by_chance(exact, words) + plus;
#endif
}

// -- output --
// Writes bytes one after another, with ordinary stores or past the caches. Non-temporal stores are fast for whole cache lines
// only, so past the caches a buffer collects bytes until they fill one. The first and the last line, which other threads may
// share, are written with ordinary stores.
class Writer {
 public:
  Writer(void* to, bool past_caches) : past_caches_(past_caches) { begin_at(to); }
  ~Writer() { flush(); }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // Goes on writing at `to`.
  void move_to(void* to) {
    if (static_cast<uint8_t*>(to) == line_ + held_) return;
    flush();
    begin_at(to);
  }

  // Copies `bytes` bytes to the output.
  AA_ONCE void put(const void* data, int64_t bytes) {
    const uint8_t* from = static_cast<const uint8_t*>(data);
    if (!past_caches_) {
      __builtin_memcpy(line_ + held_, from, static_cast<size_t>(bytes));
      held_ += bytes;
      return;
    }
    if (held_ == 0) {
      for (; bytes >= kLine; bytes -= kLine, from += kLine) stream_line(from);
    }
    while (bytes > 0) {
      const int64_t n = smaller(bytes, kBuffer - held_);
      copy(buffer_ + held_, from, n);
      held_ += n;
      from += n;
      bytes -= n;
      drain();
    }
  }

  // Spares the copy of put(): returns a place in the buffer where the caller may write up to kMostTaken bytes, and 64 more that
  // do not count; took() then says how many bytes are output. Null if the output must be put().
  static constexpr int64_t kMostTaken = 1024;
  uint8_t* room() { return past_caches_ ? buffer_ + held_ : nullptr; }
  void took(int64_t bytes) {
    held_ += bytes;
    drain();
  }

  // Spares the buffer, too: if the next `bytes` bytes are whole cache lines of the output and go past the caches, returns where
  // they belong. The caller must write all of them there, with non-temporal stores. Else null.
  uint8_t* lines(int64_t bytes) {
    if (!(AA_VECTOR_AVX512 || AA_VECTOR_AVX2) || !past_caches_ || held_ != 0 || bytes % kLine != 0) return nullptr;
    uint8_t* const to = line_;
    line_ += bytes;
    return to;
  }

  // Writes what is left in the buffer and makes all output visible to other threads.
  AA_ONCE void flush() {
    if (!past_caches_) return;
    if (held_ > first_) __builtin_memcpy(line_ + first_, buffer_ + first_, static_cast<size_t>(held_ - first_));
    stream_fence();
    begin_at(line_ + held_);
  }

 private:
  static constexpr int64_t kLine = 64, kBuffer = 2048;

  void begin_at(void* to) {
    held_ = past_caches_ ? static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) % kLine) : 0;
    first_ = held_;
    line_ = static_cast<uint8_t*>(to) - held_;
  }
  // As memcpy(), inline and of constant sizes: a call would take longer than copying these few bytes.
  static AA_INLINE void copy(uint8_t* to, const uint8_t* from, int64_t n) {
    for (; n >= 64; n -= 64, to += 64, from += 64) __builtin_memcpy(to, from, 64);
    for (; n >= 4; n -= 4, to += 4, from += 4) __builtin_memcpy(to, from, 4);
    for (; n > 0; --n) *to++ = *from++;
  }
  // Writes the whole lines in the buffer and moves what follows them to its beginning.
  void drain() {
    if (held_ < kLine) return;
    const uint8_t* from = buffer_;
    if (first_ > 0) {
      // The bytes of this line before first_ are not this writer's to overwrite.
      __builtin_memcpy(line_ + first_, buffer_ + first_, static_cast<size_t>(kLine - first_));
      line_ += kLine, from += kLine, held_ -= kLine;
      first_ = 0;
    }
    for (; held_ >= kLine; held_ -= kLine, from += kLine) stream_line(from);
    __builtin_memmove(buffer_, from, kLine);
  }
  void stream_line(const uint8_t* from) {
    for (int i = 0; i < 16; i += Vec::width) {
      stream(reinterpret_cast<float*>(line_) + i, load(reinterpret_cast<const float*>(from) + i));
    }
    line_ += kLine;
  }

  bool past_caches_;
  uint8_t* line_;  // the next byte belongs at line_ + held_
  // Past the caches, line_ is the cache line where the buffer's first byte belongs, held_ is the number of bytes in the buffer,
  // and those before first_ are not this writer's. Else line_ is where writing began, and held_ counts what has been written.
  int64_t held_;
  int64_t first_;
  alignas(64) uint8_t buffer_[kBuffer + kLine];
};

// -- groups --
// Calls body(first, last) on several threads so that it covers `groups` groups of `group_size` elements, at least 16,384 elements
// for each thread.
template <class Body>
void for_groups(int64_t groups, int64_t group_size, const Body& body) {
  const int64_t grain = 16384 / group_size;
  parallel_for(groups, grain > 0 ? grain : 1, 1, body);
}

// For each of the groups [first, last), calls range_of(group, ahead), scale_of() with the range, and write(group, scale, ahead).
// Small groups are taken in batches of groups_at_once(): first all ranges, then all scales, then all writes, so that the
// latency of the divisions in scale_of() is hidden behind those of other groups. `x` is the array that is read, or null if the
// elements do not come from one array, and `dtype` its dtype; both serve prefetching only. slow_write: as for Ahead.
template <class Scale, class RangeOf, class ScaleOf, class Write>
AA_INLINE void write_groups(const void* x, int32_t dtype, int64_t first, int64_t last, int64_t group_size,
                            bool slow_write, const RangeOf& range_of, const ScaleOf& scale_of, const Write& write) {
  Range ranges[kMostScaled];
  Scale scales[kMostScaled];
  const int64_t at_once = groups_at_once(group_size), group = group_size * bytes_of(dtype), size = at_once * group;
  const bool fetches = x && group_size <= kFetchedGroup && !(fetches_best_alone && size <= kFetchedAlone);
  for (int64_t g = first; g < last; g += at_once) {
    const int64_t n = smaller(at_once, last - g);
    const char* const from = static_cast<const char*>(x) + (x ? g * group : 0);
    const auto ahead = [&](int64_t k, bool first_pass) {
      return fetches ? Ahead(from, size, k * group, first_pass, slow_write) : Ahead();
    };
    for (int64_t k = 0; k < n; ++k) ranges[k] = range_of(g + k, ahead(k, true));
    for (int64_t k = 0; k < n; ++k) scales[k] = scale_of(ranges[k]);
    for (int64_t k = 0; k < n; ++k) write(g + k, scales[k], ahead(k, false));
  }
}

#if AA_VECTOR_AVX512
// As write_groups(), but write(group, scale, next) returns the range of the group `next` as well. That is two to four groups
// further on, so that a scale's latency is hidden behind the groups that are written before its own. Where there is no such
// group, `next` is the group itself.
template <class Scale, class RangeOf, class ScaleOf, class Write>
AA_INLINE void write_and_search(int64_t first, int64_t last, int64_t group_size, const RangeOf& range_of,
                                const ScaleOf& scale_of, const Write& write) {
  constexpr int64_t kMostLead = 4;
  Scale scales[kMostLead];  // those of the next groups, in turns
  const int64_t at_once = groups_at_once(group_size), lead = at_once < 2 ? 2 : smaller(at_once, kMostLead);
  for (int64_t k = 0; k < smaller(lead, last - first); ++k) scales[k] = scale_of(range_of(first + k));
  for (int64_t g = first, k = 0; g < last; ++g, k = k + 1 < lead ? k + 1 : 0) {
    scales[k] = scale_of(write(g, scales[k], g + lead < last ? g + lead : g));
  }
}
#endif

// Returns whether groups are so few and so large that each group, rather than the list of groups, is divided among the threads.
inline bool has_wide_groups(int64_t groups, int64_t group_size) {
  return groups < 2 * threads() && group_size >= (1 << 17) && threads() > 1;
}

// The range of the elements [begin, end), which read(begin, n, buffer) gives as read_block() does.
template <class Read>
AA_ONCE Range range_between(const Read& read, int64_t begin, int64_t end) {
  alignas(64) float buffer[kBlock];
  Range range;
  for (int64_t i = begin; i < end; i += kBlock) {
    const int64_t n = smaller(kBlock, end - i);
    range.add(range_of(read(i, n, buffer), padded(n)));
  }
  return range;
}

// The range of the elements [begin, end) on all threads (at most 256), each of which calls range_of_share(first, last).
template <class RangeOf>
Range range_of_wide_group(const RangeOf& range_of_share, int64_t begin, int64_t end) {
  constexpr int kParts = 256;
  Range parts[kParts];
  run([&](int index, int count) {
    const int used = count < kParts ? count : kParts;
    if (index >= used) return;
    const int64_t size = end - begin;
    parts[index] = range_of_share(begin + size / used * index + size % used * index / used,
                                  begin + size / used * (index + 1) + size % used * (index + 1) / used);
  });
  Range range;
  for (const Range& part : parts) range.add(part);
  return range;
}

}  // namespace anyaccel::op::quant
