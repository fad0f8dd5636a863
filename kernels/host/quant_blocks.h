// Shared by the two quantizers: blocks of elements as floats, statistics of a group, rounding, and output written past
// the caches.
//
// Everything here gives the same bits with every instruction set and any number of threads.
#pragma once

#include "anyaccel/op_source.h"
#include "random_words.h"
#include "vector.h"

namespace anyaccel::op::quant {

// Outputs from this size (bytes) on do not fit in the caches anyway and are written past them.
inline constexpr int64_t kLargeOutput = int64_t{16} << 20;

AA_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
// A block's elements and what follows up to a whole number of vectors.
AA_INLINE int64_t padded(int64_t n) { return (n + 15) / 16 * 16; }

AA_INLINE int64_t bytes_of(int32_t dtype) { return dtype == AA_DTYPE_F32 ? 4 : 2; }

template <class T>
inline void widen(const T* x, int64_t n, float* out) {
  int64_t i = 0;
  for (; i + Vec::width <= n; i += Vec::width) store(out + i, load(x + i));
  if (i < n) store(out + i, load_n(x + i, n - i));
}

// Elements [begin, begin + n) of a dense F32, F16 or BF16 array as floats, n <= kBlock: where they lie or in `buffer`. Up
// to padded(n) they go on with copies of the first one, so that whole vectors may be used for maxima.
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

// Calls body(x) with the elements [begin, begin + n) of a dense F32, F16 or BF16 array: where they lie if they are a whole
// number of vectors, else as read_block() gives them.
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

// Groups whose scales are found before the first of them is written: so many that they stay in the first-level cache.
inline constexpr int64_t kMostScaled = 16;
AA_INLINE int64_t groups_at_once(int64_t group_size) {
  const int64_t fitting = 2048 / group_size;
  return fitting < 1 ? 1 : smaller(fitting, kMostScaled);
}

// Groups beyond this size (elements) are not fetched ahead: they would drive each other out of the caches.
inline constexpr int64_t kFetchedGroup = 32768;
// Where the processor fetches by itself, it does so well enough while what is written is at most this (bytes). Zen 4 does; on
// Zen 3, which has AVX2 only, quantizers of bf16 are a fifth faster with fetches.
inline constexpr int64_t kFetchedAlone = AA_VECTOR_AVX512 ? 4096 : 0;
// Where to fetch from while groups are worked on: loops that read an array ask for as many bytes from here on, or half as many.
//
// Each of the groups that are worked on at once is read twice, from memory to find its scale and from the caches to write it.
// The first half of what comes next is fetched by the one, the second by the other, so that memory is busy all the time;
// where writing takes much longer, it fetches everything.
class Ahead {
 public:
  Ahead() = default;
  // For `first_pass`, of two, over what begins `offset` bytes behind the beginning `from` of as many groups as are worked on
  // at once, `size` bytes altogether.
  Ahead(const void* from, int64_t size, int64_t offset, bool first_pass, bool slow_write) : all_(slow_write) {
    const char* const next = static_cast<const char*>(from) + size;
    if (slow_write) {
      next_ = first_pass ? nullptr : next + offset;
    } else {
      next_ = next + offset / 2 + (first_pass ? 0 : size / 2);
    }
  }

  Ahead behind(int64_t bytes) const {
    Ahead later = *this;
    if (next_) later.next_ = next_ + (all_ ? bytes : bytes / 2);
    return later;
  }
  // While kBytes bytes, `offset` bytes behind the beginning, are read.
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
        // Into the second-level cache, and further ahead: what waits for memory there keeps no output waiting.
        __builtin_prefetch(from + i + kFurther, 0, 2);
      }
    }
  }

  static constexpr int64_t kFurther = 8192;  // bytes
  const char* next_ = nullptr;               // may lie outside of the array; null: nothing is fetched
  bool all_ = false;
};

// n floats, none of them denormal, as another dtype, to a buffer with room for padded(n). Returns where the elements are.
AA_ONCE inline const void* narrow_block(const float* x, int64_t n, int32_t dtype, void* buffer) {
  if (dtype == AA_DTYPE_F32) return x;
  if (dtype == AA_DTYPE_F16) {
    for (int64_t i = 0; i < n; i += Vec::width) store(static_cast<fp16*>(buffer) + i, load(x + i));
  } else {
    narrow_normal(x, padded(n), static_cast<bf16*>(buffer));
  }
  return buffer;
}

// Smallest and largest element; whether there was a NaN or an infinity.
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

AA_ONCE inline Range range_of(const float* x, int64_t n) {
  Vec low0(__builtin_inff()), low1 = low0, high0 = -low0, high1 = high0, odd0(0.0f), odd1(0.0f);
  int64_t i = 0;
  // x * 0 is a NaN for an infinity and a NaN, and a sum keeps it.
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
    // The instruction finds the smallest of eight unsigned integers.
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

// The same for n elements where they lie. The bits of a float, with all but the sign turned over if it is negative, are
// an integer in the order of the floats: for 16-bit elements that takes no conversion and gives twice as many lanes. With
// kMagnitude only the largest magnitude is looked for, and the range is from minus that on.
template <class Bits, bool kMagnitude>
AA_ONCE Range range_of_bits(const void* x, int64_t n, int32_t infinity, Ahead ahead) {
  typedef Bits Many __attribute__((vector_size(4 * Vec::width)));
  constexpr int64_t kSize = sizeof(Bits), kLanes = sizeof(Many) / kSize, kVectors = 4;
  constexpr Bits kMost = static_cast<Bits>((uint64_t{1} << (8 * kSize - 1)) - 1);
  const auto ordered = [](auto bits) {
    if constexpr (kMagnitude) return bits & kMost;
    return bits ^ ((bits >> (8 * kSize - 1)) & kMost);
  };
  const char* from = static_cast<const char*>(x);
  Many low[kVectors], high[kVectors];
  for (int k = 0; k < kVectors; ++k) low[k] = Many{} + kMost, high[k] = Many{} - kMost;
  int64_t i = 0;
  for (; i + kVectors * kLanes <= n; i += kVectors * kLanes) {
    ahead.fetch<kVectors * kLanes * kSize>(i * kSize);
    for (int k = 0; k < kVectors; ++k) {
      Many bits;
      __builtin_memcpy(&bits, from + (i + k * kLanes) * kSize, sizeof(bits));
      bits = ordered(bits);
      if constexpr (!kMagnitude) low[k] = bits < low[k] ? bits : low[k];
      high[k] = bits > high[k] ? bits : high[k];
    }
  }
  Bits least = kMost, most = static_cast<Bits>(-kMost);
  for (int k = 1; k < kVectors; ++k) {
    low[0] = low[k] < low[0] ? low[k] : low[0];
    high[0] = high[k] > high[0] ? high[k] : high[0];
  }
  if constexpr (!kMagnitude) least = static_cast<Bits>(~largest_lane<Bits>(~low[0]));
  most = largest_lane<Bits>(high[0]);
  for (; i < n; ++i) {
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
      return infinity == 0x7f80 ? to_float(bf16{half}) : to_float(fp16{half});
    }
  };
  Range range;
  range.high = value(most);
  range.low = kMagnitude ? -range.high : value(least);
  // The integer of minus infinity is that of infinity with all bits turned over.
  range.finite = most < infinity && least > ~infinity;
  return range;
}
// The same for floats with both ends, by instructions for floats, of which two start in a cycle; for integers it is one.
AA_ONCE inline Range range_of_floats(const float* x, int64_t n, Ahead ahead) {
  constexpr int64_t kVectors = 4, w = Vec::width;
  Vec low[kVectors], high[kVectors], odd[kVectors];
  for (int k = 0; k < kVectors; ++k) low[k] = Vec(__builtin_inff()), high[k] = Vec(-__builtin_inff());
  const Vec zero(0.0f);
  int64_t i = 0;
  for (; i + kVectors * w <= n; i += kVectors * w) {
    ahead.fetch<kVectors * w * 4>(i * 4);
#pragma GCC unroll 4
    for (int k = 0; k < kVectors; ++k) {
      const Vec a = load(x + i + k * w);
      low[k] = min(a, low[k]);
      high[k] = max(a, high[k]);
      // x * 0 is a NaN for an infinity and a NaN, and a sum keeps it.
      odd[k] = multiply_add(a, zero, odd[k]);
    }
  }
  Range range;
  range.low = smallest(min(min(low[0], low[1]), min(low[2], low[3])));
  range.high = largest(max(max(high[0], high[1]), max(high[2], high[3])));
  range.finite = !any(is_nan((odd[0] + odd[1]) + (odd[2] + odd[3])));
  for (; i < n; ++i) {
    range.low = x[i] < range.low ? x[i] : range.low;
    range.high = x[i] > range.high ? x[i] : range.high;
    range.finite = range.finite && x[i] - x[i] == 0.0f;
  }
  return range;
}
template <bool kMagnitude>
Range range_of_dense(const void* x, int32_t dtype, int64_t begin, int64_t end, Ahead ahead = {}) {
  const char* from = static_cast<const char*>(x) + begin * bytes_of(dtype);
  if (!kMagnitude && dtype == AA_DTYPE_F32) {
    return range_of_floats(reinterpret_cast<const float*>(from), end - begin, ahead);
  }
  if (dtype == AA_DTYPE_F32) return range_of_bits<int32_t, kMagnitude>(from, end - begin, 0x7f800000, ahead);
  return range_of_bits<int16_t, kMagnitude>(from, end - begin, dtype == AA_DTYPE_BF16 ? 0x7f80 : 0x7c00, ahead);
}

// Rounds up by chance: whether a random number in [0, 1), the upper 24 bits of the element's word, is below exact -
// below, where `below` is `exact` rounded down.
AA_INLINE Mask rounds_up(Vec exact, Vec below, const uint32_t* words) {
  Words word;
  __builtin_memcpy(&word, words, sizeof(word));
#if AA_VECTOR_AVX512
  // A mask instead of a shift, since shifts compete for the ports of additions and conversions.
  const Vec unit = Vec(_mm512_cvtepu32_ps((__m512i)(word & 0xffffff00u))) * Vec(0x1p-32f);
#else
  const Vec unit = to_floats(word >> 8) * Vec(0x1p-24f);
#endif
  return less(unit, exact - below);
}
// Rounds down, or up if rounds_up().
AA_INLINE Vec round_by_chance(Vec exact, const uint32_t* words) {
  const Vec below = floor(exact);
  return select(rounds_up(exact, below, words), below + Vec(1.0f), below);
}

// -- output --
// Writes bytes one after another; when they go past the caches, in whole lines: others are put together in a buffer.
class Writer {
 public:
  Writer(void* to, bool past_caches) : past_caches_(past_caches) { begin_at(to); }
  ~Writer() { flush(); }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void move_to(void* to) {
    if (static_cast<uint8_t*>(to) == line_ + held_) return;
    flush();
    begin_at(to);
  }

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

  // Returns where up to kMostTaken bytes and 64 behind them may be written, of which took() says how many are output; null if
  // they must be put().
  static constexpr int64_t kMostTaken = 1024;
  uint8_t* room() { return past_caches_ ? buffer_ + held_ : nullptr; }
  void took(int64_t bytes) {
    held_ += bytes;
    drain();
  }

  // Returns where the next `bytes` bytes belong, which the caller writes there past the caches, if they are whole lines; else
  // null.
  uint8_t* lines(int64_t bytes) {
    if (!(AA_VECTOR_AVX512 || AA_VECTOR_AVX2) || !past_caches_ || held_ != 0 || bytes % kLine != 0) return nullptr;
    uint8_t* const to = line_;
    line_ += bytes;
    return to;
  }

  // Makes everything visible to other threads.
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
  // Sizes are known where it matters: a call of memcpy() for each would take longer than the copy.
  static AA_INLINE void copy(uint8_t* to, const uint8_t* from, int64_t n) {
    for (; n >= 64; n -= 64, to += 64, from += 64) __builtin_memcpy(to, from, 64);
    for (; n >= 4; n -= 4, to += 4, from += 4) __builtin_memcpy(to, from, 4);
    for (; n > 0; --n) *to++ = *from++;
  }
  // Writes the whole lines that are held.
  void drain() {
    if (held_ < kLine) return;
    const uint8_t* from = buffer_;
    if (first_ > 0) {
      // The line's beginning is somebody else's.
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
  uint8_t* line_;  // what comes next goes to line_ + held_
  // Bytes of the buffer, of which those before first_ are not this writer's. Not past the caches: all of them were written.
  int64_t held_;
  int64_t first_;
  alignas(64) uint8_t buffer_[kBuffer + kLine];
};

// -- groups --
// Calls body(first, last) for shares of `groups` groups of `group_size` elements.
template <class Body>
void for_groups(int64_t groups, int64_t group_size, const Body& body) {
  const int64_t grain = 16384 / group_size;
  parallel_for(groups, grain > 0 ? grain : 1, 1, body);
}

// Calls write(group, scale_of(range_of(group, ahead)), ahead) for the groups [first, last) of an array. The ranges of several
// small groups are found one after the other, then their scales, so that the processor need not wait for the divisions of one
// while nothing else can be done. `x` is null for elements that do not lie in an array. slow_write: as for Ahead.
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

// Returns whether groups are so few and so large that their elements, not the groups, must be divided among the
// threads.
inline bool has_wide_groups(int64_t groups, int64_t group_size) {
  return groups < 2 * threads() && group_size >= (1 << 17) && threads() > 1;
}

// The range of elements [begin, end), read by read(begin, n, buffer).
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

// The range of elements [begin, end) on all threads, each of which finds range(first, last) of its share.
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
