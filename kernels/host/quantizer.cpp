// The ops behind ops::Quantizer: integers of 8 and 4 bits with a scale, or a scale and an offset, for each group of elements.
// include/anyaccel/ops/quantizer.h defines the results and DeepSpeed's hierarchical order, quantizer_calls.h the arguments.
//
// A Job walks over the groups of a Source in blocks of kBlock elements. For plain arrays it rounds from the array to bytes in
// registers; sums of quantized chunks and error feedback go through a buffer of floats. Memory bounds it, or with stochastic
// rounding the random numbers.
#include "quant_blocks.h"
#include "quantizer_calls.h"

namespace anyaccel::op::quant {
namespace {

constexpr float kSmallestNormal = 0x1p-126f;

// The parameters that turn numbers into a group's integers and back.
struct Scale {
  float scale = 0, offset = 0;
  float inverse = 0;
  float low = 0, high = 0;  // the integers' limits
  bool finite = true;
};

AA_INLINE float quiet_nan() { return bits_float(0x7fc00000u); }

Scale make_scale(const Range& range, int32_t bits, bool asymmetric) {
  const float half = static_cast<float>(1 << (bits - 1));
  Scale s;
  s.high = half - 1;
  s.low = asymmetric ? -half : -s.high;
  const float span = asymmetric ? range.high - range.low : range.largest_magnitude();
  // The difference of finite numbers can overflow; the limit is the largest float.
  s.finite = range.finite && span <= 0x1.fffffep127f;
  if (!s.finite) {
    s.scale = s.offset = quiet_nan();
    return s;
  }
  s.scale = span / (s.high - (asymmetric ? s.low : 0.0f));
  if (s.scale >= kSmallestNormal) {
    s.offset = asymmetric ? range.low + half * s.scale : 0.0f;
  } else {
    // The scale is zero, or a denormal that would be flushed to it. With a scale of 1 all integers of the group are 0.
    s.scale = 1.0f;
    s.offset = asymmetric ? range.low + 0.0f : 0.0f;
  }
  s.inverse = 1.0f / s.scale;
  return s;
}

void store_params(float* params, int64_t group, bool asymmetric, const Scale& s) {
  if (asymmetric) {
    params[2 * group] = s.scale;
    params[2 * group + 1] = s.offset;
  } else {
    params[group] = s.scale;
  }
}

Scale load_params(const float* params, int64_t group, bool asymmetric) {
  Scale s;
  s.scale = params[asymmetric ? 2 * group : group];
  s.offset = asymmetric ? params[2 * group + 1] : 0.0f;
  return s;
}

// The elements in units of the scale, not rounded yet: the conversion to integers rounds to nearest, or round_by_chance()
// rounds stochastically.
template <bool kOffset = true>
AA_INLINE Vec scaled(Vec x, const Scale& s) {
  return (kOffset ? x - Vec(s.offset) : x) * Vec(s.inverse);
}
AA_INLINE Vec limit(Vec integer, const Scale& s) { return min(max(integer, Vec(s.low)), Vec(s.high)); }

// Where integers are written. past_caches: `data` comes from Writer::lines() and takes non-temporal stores.
struct Target {
  int8_t* data;
  bool past_caches;
};

// Stores integer(i), a vector of floats, as bytes for each vector i of n elements, a multiple of the width of a vector.
// kSize: bytes of an element of the array that integer() reads, for prefetching.
template <int64_t kSize, class Integer>
AA_INLINE void store_all(Target out, int64_t n, Ahead ahead, const Integer& integer) {
  constexpr int64_t w = Vec::width;
  int64_t i = 0;
  for (; i + 4 * w <= n; i += 4 * w) {
    ahead.fetch<4 * w * kSize>(i * kSize);
    const Vec a = integer(i), b = integer(i + w), c = integer(i + 2 * w), d = integer(i + 3 * w);
#if AA_VECTOR_AVX512 || AA_VECTOR_AVX2
    if (out.past_caches) {
      stream_integers(out.data + i, a, b, c, d);
      continue;
    }
#endif
    store_integers(out.data + i, a, b, c, d);
  }
  for (; i < n; i += w) store_integers(out.data + i, integer(i));
}

#if AA_VECTOR_AVX2
// As store_all(), with stochastic rounding of x. Rounding up subtracts the mask, whose lanes are -1, and 32 bytes are clamped at
// once, which takes fewer instructions than selecting and clamping floats.
template <bool kOffset, class T>
AA_INLINE void store_by_chance(Target out, const T* x, int64_t n, const Scale& s, const uint32_t* words, Ahead ahead) {
  const auto integer = [&](int64_t i) {
    const Vec exact = scaled<kOffset>(load(x + i), s), below = floor(exact);
    return _mm256_sub_epi32(_mm256_cvtps_epi32(below.v), _mm256_castps_si256(rounds_up(exact, below, words + i).v));
  };
  const __m256i low = _mm256_set1_epi8(static_cast<int8_t>(s.low)),
                high = _mm256_set1_epi8(static_cast<int8_t>(s.high));
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    ahead.fetch<32 * sizeof(T)>(i * static_cast<int64_t>(sizeof(T)));
    const __m256i bytes = saturated_bytes(integer(i), integer(i + 8), integer(i + 16), integer(i + 24));
    const __m256i limited = _mm256_min_epi8(_mm256_max_epi8(bytes, low), high);
    if (out.past_caches) {
      _mm256_stream_si256(reinterpret_cast<__m256i*>(out.data + i), limited);
    } else {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.data + i), limited);
    }
  }
  for (; i < n; i += 8) {
    store_integers(out.data + i, limit(round_by_chance(scaled<kOffset>(load(x + i), s), words + i), s));
  }
}
#elif AA_VECTOR_AVX512
AA_INLINE void store_line(uint8_t* to, __m512i line, bool past_caches) {
  if (past_caches) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), line);
  } else {
    _mm512_storeu_si512(to, line);
  }
}

// Four vectors rounded stochastically, as bytes, which are clamped 64 at once.
template <bool kOffset, class T, class Integer>
AA_INLINE __m512i integers_by_chance(const T* x, const Scale& s, const Integer& integer) {
  const auto vector = [&](int64_t i) __attribute__((always_inline)) {
    return integer(scaled<kOffset>(load(x + i), s), i);
  };
  const __m512i low = _mm512_set1_epi8(static_cast<char>(s.low)), high = _mm512_set1_epi8(static_cast<char>(s.high));
  const __m512i bytes = saturated_bytes(vector(0), vector(16), vector(32), vector(48));
  return _mm512_min_epi8(_mm512_max_epi8(bytes, low), high);
}
// The same, as the definition says: for lines in which less_random() may differ from it.
template <bool kOffset, class T>
AA_ONCE __m512i integers_as_defined(const T* x, const Scale& s, const uint32_t* words) {
  return integers_by_chance<kOffset>(
      x, s, [&](Vec exact, int64_t i) __attribute__((always_inline)) {
        return _mm512_cvtps_epi32(round_by_chance(exact, words + i).v);
      });
}
template <bool kOffset, class T>
AA_INLINE __m512i integers_by_chance(const T* x, const Scale& s, const uint32_t* words) {
  Mask same = 0xffff;
  const auto integer = [&](Vec exact, int64_t i) __attribute__((always_inline)) {
    const Vec rest = less_random(exact, words + i);
    same = _mm512_mask_cmp_ps_mask(same, rest.v, _mm512_set1_ps(kMayDiffer), _CMP_NEQ_UQ);
    return _mm512_cvt_roundps_epi32(rest.v, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
  };
  const __m512i bytes = integers_by_chance<kOffset>(x, s, integer);
  if (__builtin_expect(same != 0xffff, false)) return integers_as_defined<kOffset>(x, s, words);
  return bytes;
}
template <bool kOffset, class T>
AA_INLINE void store_by_chance(Target out, const T* x, int64_t n, const Scale& s, const uint32_t* words, Ahead ahead) {
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    ahead.fetch<64 * sizeof(T)>(i * static_cast<int64_t>(sizeof(T)));
    store_line(reinterpret_cast<uint8_t*>(out.data + i), integers_by_chance<kOffset>(x + i, s, words + i),
               out.past_caches);
  }
  for (; i < n; i += 16) {
    store_integers(out.data + i, limit(round_by_chance(scaled<kOffset>(load(x + i), s), words + i), s));
  }
}
#else
template <bool kOffset, class T>
AA_INLINE void store_by_chance(Target out, const T* x, int64_t n, const Scale& s, const uint32_t* words, Ahead ahead) {
  store_all<sizeof(T)>(
      out, n, ahead, [&](int64_t i) { return limit(round_by_chance(scaled<kOffset>(load(x + i), s), words + i), s); });
}
#endif

// Quantizes n elements of an array, a multiple of the width of a vector, to bytes. `words` are the random words of the elements,
// or null for rounding to nearest.
template <class T>
AA_ONCE void quantize_block(const T* x, int64_t n, const Scale& shared, const uint32_t* words, Ahead ahead,
                            Target out) {
  constexpr int64_t kSize = sizeof(T);
  const Scale s = shared;  // a copy stays in registers: no store can alias it
  const bool symmetric = s.low == -s.high;
  if (words && symmetric) {
    store_by_chance<false>(out, x, n, s, words, ahead);
  } else if (words) {
    store_by_chance<true>(out, x, n, s, words, ahead);
  } else if (symmetric) {
    // The scale is the largest magnitude divided by `high`, so nothing is rounded beyond the limits.
    store_all<kSize>(out, n, ahead, [&](int64_t i) { return scaled<false>(load(x + i), s); });
  } else if (s.low == -128.0f) {
    // store_integers() saturates at the limits of 8 bits anyway.
    store_all<kSize>(out, n, ahead, [&](int64_t i) { return scaled(load(x + i), s); });
  } else {
    // The limits are integers, so clamping before rounding gives the same as clamping after it.
    store_all<kSize>(out, n, ahead, [&](int64_t i) { return limit(scaled(load(x + i), s), s); });
  }
}

// Quantizes and dequantizes n elements, a multiple of the width of a vector.
AA_ONCE void fake_block(const float* x, int64_t n, const Scale& s, const uint32_t* words, float* out) {
  for (int64_t i = 0; i < n; i += Vec::width) {
    const Vec exact = scaled(load(x + i), s);
    const Vec integer = words ? round_by_chance(exact, words + i) : round(exact);
    store(out + i, limit(integer, s) * Vec(s.scale) + Vec(s.offset));
  }
}

#if AA_VECTOR_AVX2
// As dequantize_block(), with non-temporal stores to what Writer::lines() returned; n is a multiple of 16.
AA_ONCE void dequantize_past_caches(const int8_t* values, int64_t n, const Scale& s, float* out) {
  const Vec scale(s.scale), offset(s.offset);
  for (int64_t i = 0; i < n; i += 2 * Vec::width) {
    stream(out + i, load(values + i) * scale + offset);
    stream(out + i + Vec::width, load(values + i + Vec::width) * scale + offset);
  }
}
#endif

// Numbers from integers, n a multiple of the width of a vector.
AA_ONCE void dequantize_block(const int8_t* values, int64_t n, const Scale& s, float* out) {
  for (int64_t i = 0; i < n; i += Vec::width) {
    store(out + i, load(values + i) * Vec(s.scale) + Vec(s.offset));
  }
}

#if AA_VECTOR_AVX512
// 128 values, two to a byte.
AA_INLINE __m512i packed(__m512i first, __m512i second) {
  // A lane of 16 bits has a pair of values, the first in its lower byte; the packed byte ends up in that byte's place.
  const auto bytes = [](__m512i pairs) {
    return _mm512_ternarylogic_epi32(_mm512_slli_epi16(pairs, 4), _mm512_srli_epi16(pairs, 8), _mm512_set1_epi16(0xf0),
                                     0xe4);
  };
  return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7),
                                  _mm512_packus_epi16(bytes(first), bytes(second)));
}

// Quantizes the group that begins at element `begin` of x, n elements and whole lines of output, and returns the range of the
// group that begins at `next`.
template <class T, int kBits, bool kSymmetric, bool kChance>
AA_ONCE Range quantize_and_search(const T* x, int64_t begin, int64_t n, const Scale& shared, RandomWords& random,
                                  int64_t next, int32_t dtype, uint8_t* out, bool past_caches) {
  const Scale s = shared;  // a copy, as in quantize_block(), which says why most need no limits
  Meanwhile<T, kSymmetric> meanwhile(x + next);
  // Random words are computed for few elements at once, so that memory is not idle for long meanwhile.
  constexpr int64_t kPart = kChance ? 4 * kCounters : kBlock;
  for (int64_t i = 0; i < n; i += kPart) {
    const T* const from = x + begin + i;
    const uint32_t* const words = kChance ? random.draw(begin + i, smaller(kPart, n - i)) : nullptr;
    const auto line = [&](int64_t k) __attribute__((always_inline)) {
      meanwhile.template fetch<64 * sizeof(T)>((i + k) * static_cast<int64_t>(sizeof(T)));
      if constexpr (kChance) return integers_by_chance<!kSymmetric>(from + k, s, words + k);
      const auto vector = [&](int64_t j) __attribute__((always_inline)) {
        const Vec exact = scaled<!kSymmetric>(load(from + k + j), s);
        return kBits == 4 && !kSymmetric ? limit(exact, s) : exact;
      };
      return integers(vector(0), vector(16), vector(32), vector(48));
    };
    for (int64_t k = 0; k < smaller(kPart, n - i); k += 512 / kBits) {
      if constexpr (kBits == 8) {
        store_line(out + i + k, line(k), past_caches);
      } else {
        const __m512i first = line(k);
        store_line(out + (i + k) / 2, packed(first, line(k + 64)), past_caches);
      }
    }
  }
  return meanwhile.range(dtype);
}
#endif

// Packs n values, an even number, two to a byte, the first in the upper half. past_caches: `out` comes from Writer::lines().
AA_ONCE void pack(const int8_t* values, int64_t n, uint8_t* out, bool past_caches) {
  int64_t i = 0;
  static_cast<void>(past_caches);
#if AA_VECTOR_AVX512
  for (; i + 64 <= n / 2; i += 64) {
    const __m512i line = packed(_mm512_loadu_si512(values + 2 * i), _mm512_loadu_si512(values + 2 * i + 64));
    store_line(out + i, line, past_caches);
  }
#elif AA_VECTOR_AVX2
  // A lane of 16 bits has a pair of values, the first in its lower byte; the packed byte ends up in that byte's place.
  const __m256i four_bits = _mm256_set1_epi16(0xf);
  const auto bytes = [&](int64_t at) {
    const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values + at));
    const __m256i first = _mm256_slli_epi16(pairs, 4),
                  second = _mm256_and_si256(_mm256_srli_epi16(pairs, 8), four_bits);
    return _mm256_or_si256(_mm256_and_si256(first, _mm256_set1_epi16(0xf0)), second);
  };
  for (; i + 32 <= n / 2; i += 32) {
    // packus takes eight bytes of each vector in turns, which the permutation sorts.
    const __m256i both = _mm256_permute4x64_epi64(_mm256_packus_epi16(bytes(2 * i), bytes(2 * i + 32)), 0xd8);
    __m256i* const to = reinterpret_cast<__m256i*>(out + i);
    if (past_caches) {
      _mm256_stream_si256(to, both);
    } else {
      _mm256_storeu_si256(to, both);
    }
  }
#endif
  for (; i < n / 2; ++i) {
    out[i] = static_cast<uint8_t>(static_cast<uint8_t>(values[2 * i]) << 4 | (values[2 * i + 1] & 0xf));
  }
}
// The reverse of pack(): n values, an even number.
AA_ONCE void unpack(const uint8_t* bytes, int64_t n, int8_t* out) {
  int64_t i = 0;
#if AA_VECTOR_AVX2
  // Sign-extends values of four bits, which have zeros above them, to eight.
  const __m256i four_bits = _mm256_set1_epi8(0xf), sign = _mm256_set1_epi8(8);
  const auto extended = [&](__m256i x) { return _mm256_sub_epi8(_mm256_xor_si256(x, sign), sign); };
  for (; i + 32 <= n / 2; i += 32) {
    // unpacklo and unpackhi work within halves of 128 bits; after this permutation each of them gives consecutive values.
    const __m256i from =
        _mm256_permute4x64_epi64(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes + i)), 0xd8);
    const __m256i first = extended(_mm256_and_si256(_mm256_srli_epi16(from, 4), four_bits));
    const __m256i second = extended(_mm256_and_si256(from, four_bits));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 2 * i), _mm256_unpacklo_epi8(first, second));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 2 * i + 32), _mm256_unpackhi_epi8(first, second));
  }
#endif
  for (; i < n / 2; ++i) {
    out[2 * i] = static_cast<int8_t>(static_cast<int8_t>(bytes[i]) >> 4);
    out[2 * i + 1] = static_cast<int8_t>(static_cast<int8_t>(bytes[i] << 4) >> 4);
  }
}

// Returns the n values from element `begin` on, one to a byte, in the array or in `buffer`; up to padded(n) may be read.
// Both are even for values of 4 bits, as are the sizes of their groups.
AA_ONCE const int8_t* read_values(const void* values, int32_t bits, int64_t begin, int64_t n, int8_t* buffer) {
  if (bits == 8) {
    const int8_t* from = static_cast<const int8_t*>(values) + begin;
    if (n % 16 == 0) return from;
    __builtin_memcpy(buffer, from, static_cast<size_t>(n));
    return buffer;
  }
  unpack(static_cast<const uint8_t*>(values) + begin / 2, n, buffer);
  return buffer;
}

// Error feedback: an array of what earlier calls lost by quantization, which is added to the elements before they are quantized.
struct Error {
  void* data = nullptr;  // null: none
  int32_t dtype = 0;
  float beta = 0;

  char* at(int64_t i) const { return static_cast<char*>(data) + i * bytes_of(dtype); }

  // sum[] += error
  AA_ONCE void add_to(float* sum, int64_t begin, int64_t n) const {
    alignas(64) float buffer[kBlock];
    const float* old = read_block(data, dtype, begin, n, buffer);
    for (int64_t i = 0; i < padded(n); ++i) sum[i] += old[i];
  }
  // error = beta * error + (1 - beta) * (exact - what the values stand for)
  AA_ONCE void update(const float* exact, const int8_t* values, const Scale& s, int64_t begin, int64_t n) const {
    alignas(64) float buffer[kBlock], restored[kBlock], narrow[kBlock];
    const float* old = read_block(data, dtype, begin, n, buffer);
    dequantize_block(values, padded(n), s, restored);
    const Vec keep(beta), take(1.0f - beta);
    for (int64_t i = 0; i < n; i += Vec::width) {
      store(restored + i, keep * load(old + i) + take * (load(exact + i) - load(restored + i)));
    }
    __builtin_memcpy(at(begin), narrow_block(restored, n, dtype, narrow), static_cast<size_t>(n * bytes_of(dtype)));
  }
};

// Where the elements come from: an array, or the sums of quantized chunks; plus error feedback if there is any.
struct Source {
  const void* x = nullptr;
  int32_t dtype = 0;
  const aa_quantized_reduction_args* reduction = nullptr;  // instead of x
  Error error;

  // Returns whether the elements are those of an array as they are, without error feedback.
  bool lies_dense() const { return !reduction && !error.data; }

  // As read_block().
  const float* operator()(int64_t begin, int64_t n, float* buffer) const {
    if (!reduction) {
      const float* from = read_block(x, dtype, begin, n, buffer);
      if (!error.data) return from;
      if (from != buffer) __builtin_memcpy(buffer, from, static_cast<size_t>(padded(n)) * sizeof(float));
    } else {
      sum_chunks(*reduction, begin, n, buffer);
    }
    if (error.data) error.add_to(buffer, begin, n);
    return buffer;
  }

  // Adds up the dequantized chunks, in their order.
  AA_ONCE static void sum_chunks(const aa_quantized_reduction_args& a, int64_t begin, int64_t n, float* out) {
    alignas(64) int8_t buffer[kBlock];
    const int64_t in_groups = a.count / a.in_group_size;
    __builtin_memset(out, 0, static_cast<size_t>(n) * sizeof(float));
    for (int64_t chunk = 0; chunk < a.chunks; ++chunk) {
      for (int64_t i = begin; i < begin + n;) {
        const int64_t group = i / a.in_group_size;
        const int64_t part = smaller(begin + n, (group + 1) * a.in_group_size) - i;
        const Scale s = load_params(a.params, chunk * in_groups + group, a.asymmetric != 0);
        const int8_t* values = read_values(a.values, a.bits, chunk * a.count + i, part, buffer);
        float* to = out + (i - begin);
        int64_t k = 0;
        for (; k + Vec::width <= part; k += Vec::width) {
          store(to + k, load(to + k) + (load(values + k) * Vec(s.scale) + Vec(s.offset)));
        }
        for (; k < part; ++k) to[k] += static_cast<float>(values[k]) * s.scale + s.offset;
        i += part;
      }
    }
    for (int64_t i = n; i < padded(n); ++i) out[i] = out[0];
  }
};

// The index of a group in the output: groups are numbered (node, device, stage, inner) in the input and (stage, device,
// node, inner) in the output.
struct Order {
  int64_t nodes = 1, devices = 1, stages = 1;
  int64_t together = 1;  // groups that stay side by side: the number of `inner`

  int64_t place(int64_t group) const {
    if (nodes == 1 && stages == 1) return group;
    const int64_t inner = group % together;
    const int64_t stage = group / together % stages;
    const int64_t partition = group / together / stages;
    const int64_t slot = partition % devices * nodes + partition / devices;
    return (stage * nodes * devices + slot) * together + inner;
  }
};

// Quantizes the groups of `source` to `values` and `params`, in the order that `order` gives.
struct Job {
  Source source;
  Order order;
  Random random;
  int64_t groups, group_size;
  int32_t bits;
  bool asymmetric;
  uint8_t* values;
  float* params;

  Range range_of_group(int64_t begin, int64_t end, Ahead ahead = {}) const {
    if (!source.lies_dense()) return range_between(source, begin, end);
    return asymmetric ? range_of_dense<false>(source.x, source.dtype, begin, end, ahead)
                      : range_of_dense<true>(source.x, source.dtype, begin, end, ahead);
  }

  uint8_t* target(int64_t group) const { return values + order.place(group) * group_size * bits / 8; }

  // Turns the elements [begin, end) of one group into values.
  AA_ONCE void write(int64_t begin, int64_t end, const Scale& s, Ahead ahead, RandomWords& words, Writer& out) const {
    alignas(64) float buffer[kBlock];
    alignas(64) int8_t integers[kBlock];
    alignas(64) uint8_t packed[kBlock / 2];
    for (int64_t i = begin; i < end; i += kBlock) {
      const int64_t n = smaller(kBlock, end - i);
      const Ahead here = ahead.behind((i - begin) * bytes_of(source.dtype));
      Target to{integers, false};
      if (s.finite && source.lies_dense()) {
        if (bits == 8) {
          if (uint8_t* const lines = out.lines(n)) to = {reinterpret_cast<int8_t*>(lines), true};
        }
        with_elements(source.x, source.dtype, i, n, buffer,
                      [&](const auto* x) { quantize_block(x, padded(n), s, words.draw(i, n), here, to); });
      } else if (s.finite) {
        const float* x = source(i, n, buffer);
        quantize_block(x, padded(n), s, words.draw(i, n), here, to);
        if (source.error.data) source.error.update(x, integers, s, i, n);
      } else {
        __builtin_memset(integers, 0, static_cast<size_t>(padded(n)));
      }
      if (to.past_caches) continue;
      if (bits == 8) {
        out.put(integers, n);
      } else if (uint8_t* const lines = out.lines(n / 2)) {
        pack(integers, n, lines, true);
      } else {
        pack(integers, n, packed, false);
        out.put(packed, n / 2);
      }
    }
  }

#if AA_VECTOR_AVX512
  bool can_search_meanwhile() const {
    return gains_from_searching_meanwhile && source.lies_dense() && source.dtype != AA_DTYPE_F16 &&
           group_size <= kFetchedGroup && group_size * bits / 8 % 64 == 0 &&
           reinterpret_cast<uintptr_t>(values) % 64 == 0;
  }
  // Quantizes the groups [first, last).
  template <class T, int kBits, bool kSymmetric, bool kChance>
  void search_meanwhile(int64_t first, int64_t last, bool past_caches) const {
    const auto range_of = [&](int64_t g) { return range_of_group(g * group_size, (g + 1) * group_size); };
    const auto scale_of = [&](const Range& range) { return make_scale(range, bits, asymmetric); };
    RandomWords words(random);
    write_and_search<Scale>(first, last, group_size, range_of, scale_of, [&](int64_t g, const Scale& s, int64_t next) {
      store_params(params, order.place(g), asymmetric, s);
      if (s.finite) {
        return quantize_and_search<T, kBits, kSymmetric, kChance>(static_cast<const T*>(source.x), g * group_size,
                                                                  group_size, s, words, next * group_size, source.dtype,
                                                                  target(g), past_caches);
      }
      __builtin_memset(target(g), 0, static_cast<size_t>(group_size * bits / 8));
      return range_of(next);
    });
    stream_fence();
  }
  // The variant of search_meanwhile() for this job.
  using SearchMeanwhile = void (Job::*)(int64_t, int64_t, bool) const;
  template <class T, int kBits>
  SearchMeanwhile chosen() const {
    if (random.used) {
      return asymmetric ? &Job::search_meanwhile<T, kBits, false, true> : &Job::search_meanwhile<T, kBits, true, true>;
    }
    return asymmetric ? &Job::search_meanwhile<T, kBits, false, false> : &Job::search_meanwhile<T, kBits, true, false>;
  }
  SearchMeanwhile chosen() const {
    if (source.dtype == AA_DTYPE_F32) return bits == 8 ? chosen<float, 8>() : chosen<float, 4>();
    return bits == 8 ? chosen<bf16, 8>() : chosen<bf16, 4>();
  }
#endif

  void run() const {
    const FlushDenormals flush;
    const bool past_caches = groups * group_size * bits / 8 >= kLargeOutput;
    if (!has_wide_groups(groups, group_size)) {
      for_groups(groups, group_size, [&](int64_t first, int64_t last) {
#if AA_VECTOR_AVX512
        if (can_search_meanwhile()) return (this->*chosen())(first, last, past_caches);
#endif
        Writer writer(target(first), past_caches);
        RandomWords words(random);
        const auto range_of = [&](int64_t g, Ahead ahead) {
          return range_of_group(g * group_size, (g + 1) * group_size, ahead);
        };
        const auto scale_of = [&](const Range& range) { return make_scale(range, bits, asymmetric); };
        const auto write_one = [&](int64_t g, const Scale& s, Ahead ahead) {
          store_params(params, order.place(g), asymmetric, s);
          writer.move_to(target(g));
          write(g * group_size, (g + 1) * group_size, s, ahead, words, writer);
        };
        write_groups<Scale>(source.x, source.dtype, first, last, group_size, random.used, range_of, scale_of,
                            write_one);
      });
      return;
    }
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t begin = g * group_size;
      const auto range = [&](int64_t first, int64_t last) { return range_of_group(first, last); };
      const Scale s = make_scale(range_of_wide_group(range, begin, begin + group_size), bits, asymmetric);
      store_params(params, order.place(g), asymmetric, s);
      parallel_for(group_size, 16384, 128, [&](int64_t first, int64_t last) {
        Writer writer(target(g) + first * bits / 8, past_caches);
        RandomWords words(random);
        write(begin + first, begin + last, s, {}, words, writer);
      });
    }
  }
};

}  // namespace

AA_OP void quantizer_quantize(const aa_quantize_args* a) {
  Job job{.random = {a->seed, a->offset, a->stochastic != 0}};
  job.source = {a->x, a->dtype, nullptr, {a->error, a->error_dtype, a->error_beta}};
  job.order = {a->nodes, a->devices, a->pipeline, a->groups / (a->nodes * a->devices * a->pipeline)};
  job.groups = a->groups;
  job.group_size = a->group_size;
  job.bits = a->bits;
  job.asymmetric = a->asymmetric != 0;
  job.values = static_cast<uint8_t*>(a->values);
  job.params = a->params;
  job.run();
}

// Quantizes and dequantizes x in place; values and params are not used.
AA_OP void quantizer_fake(const aa_quantize_args* a) {
  const FlushDenormals flush;
  const Random random{a->seed, a->offset, a->stochastic != 0};
  char* const x = static_cast<char*>(const_cast<void*>(a->x));
  const Source source{x, a->dtype, nullptr, {}};
  const auto rewrite = [&](int64_t begin, int64_t end, const Scale& s, RandomWords& words) {
    alignas(64) float buffer[kBlock], result[kBlock], narrow[kBlock];
    for (int64_t i = begin; i < end; i += kBlock) {
      const int64_t n = smaller(kBlock, end - i);
      if (s.finite) {
        fake_block(source(i, n, buffer), padded(n), s, words.draw(i, n), result);
      } else {
        for (int64_t k = 0; k < padded(n); ++k) result[k] = quiet_nan();
      }
      __builtin_memcpy(x + i * bytes_of(a->dtype), narrow_block(result, n, a->dtype, narrow),
                       static_cast<size_t>(n * bytes_of(a->dtype)));
    }
  };
  if (!has_wide_groups(a->groups, a->group_size)) {
    for_groups(a->groups, a->group_size, [&](int64_t first, int64_t last) {
      RandomWords words(random);
      for (int64_t g = first; g < last; ++g) {
        const int64_t begin = g * a->group_size, end = begin + a->group_size;
        rewrite(begin, end, make_scale(range_between(source, begin, end), a->bits, a->asymmetric != 0), words);
      }
    });
    return;
  }
  for (int64_t g = 0; g < a->groups; ++g) {
    const int64_t begin = g * a->group_size;
    const auto range_of_share = [&](int64_t first, int64_t last) { return range_between(source, first, last); };
    const Range range = range_of_wide_group(range_of_share, begin, begin + a->group_size);
    const Scale s = make_scale(range, a->bits, a->asymmetric != 0);
    parallel_for(a->group_size, 16384, 64, [&](int64_t first, int64_t last) {
      RandomWords words(random);
      rewrite(begin + first, begin + last, s, words);
    });
  }
}

AA_OP void quantizer_dequantize(const aa_dequantize_args* a) {
  const int64_t count = a->groups * a->group_size;
  const int64_t item = bytes_of(a->dtype);
  parallel_for(count, 16384, 128, [&](int64_t first, int64_t last) {
    alignas(64) int8_t buffer[kBlock];
    alignas(64) float result[kBlock], narrow[kBlock];
    Writer writer(static_cast<char*>(a->out) + first * item, count * item >= kLargeOutput);
    for (int64_t i = first; i < last;) {
      const int64_t group = i / a->group_size;
      const int64_t end = smaller(last, (group + 1) * a->group_size);
      const Scale s = load_params(a->params, group, a->asymmetric != 0);
      while (i < end) {
        const int64_t n = smaller(kBlock, end - i);
        const int8_t* const values = read_values(a->values, a->bits, i, n, buffer);
#if AA_VECTOR_AVX2
        if (a->dtype == AA_DTYPE_F32) {
          if (uint8_t* const lines = writer.lines(n * item)) {
            dequantize_past_caches(values, n, s, reinterpret_cast<float*>(lines));
            i += n;
            continue;
          }
        }
#endif
        dequantize_block(values, padded(n), s, result);
        writer.put(narrow_block(result, n, a->dtype, narrow), n * item);
        i += n;
      }
    }
  });
}

AA_OP void quantizer_quantized_reduction(const aa_quantized_reduction_args* a) {
  Job job{};
  job.source = {nullptr, 0, a, {a->error, a->error_dtype, a->error_beta}};
  job.groups = a->count / a->out_group_size;
  job.group_size = a->out_group_size;
  job.bits = a->bits;
  job.asymmetric = a->asymmetric != 0;
  job.values = static_cast<uint8_t*>(a->out_values);
  job.params = a->out_params;
  job.run();
}

AA_OP void quantizer_dequantize_to_half(const aa_dequantize_to_half_args* a) {
  const int64_t count = a->groups * a->group_size;
  parallel_for(count, 16384, 128, [&](int64_t first, int64_t last) {
    alignas(64) uint8_t buffer[kBlock];
    alignas(64) float result[kBlock], narrow[kBlock];
    Writer writer(static_cast<char*>(a->out) + first * 2, count * 2 >= kLargeOutput);
    for (int64_t i = first; i < last;) {
      const int64_t group = i / a->group_size;
      const int64_t end = smaller(last, (group + 1) * a->group_size);
      const Vec scale(a->scale[group]), minimum(a->minimum[group]);
      while (i < end) {
        const int64_t n = smaller(kBlock, end - i);
        if (a->bits == 8) {
          __builtin_memcpy(buffer, a->values + i, static_cast<size_t>(n));
        } else {
          for (int64_t k = 0; k < n; ++k) {
            const uint8_t byte = a->values[(i + k) / 2];
            buffer[k] = (i + k) % 2 ? byte & 0xf : byte >> 4;
          }
        }
        for (int64_t k = 0; k < n; k += Vec::width) store(result + k, load(buffer + k) / scale + minimum);
        writer.put(narrow_block(result, n, AA_DTYPE_F16, narrow), n * 2);
        i += n;
      }
    }
  });
}

}  // namespace anyaccel::op::quant
