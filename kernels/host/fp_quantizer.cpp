// The ops behind ops::FPQuantizer: small floating-point formats with a scale for each group of elements.
// include/anyaccel/ops/fp_quantizer.h defines the results and the layout, fp_quantizer_calls.h the arguments.
//
// This file has the walk over groups and blocks. fp_codes.h has the arithmetic, and says what the header of each instruction set
// provides: loops that encode and pack, or decode, the usual cases in registers. All other cases go through encode() and pack(),
// or unpack() and decode(), with a buffer in between.
#include "fp_codes.h"

#if AA_VECTOR_AVX512
#include "fp_codes_avx512.h"
#elif AA_VECTOR_AVX2
#include "fp_codes_avx2.h"
#else
#include "fp_codes_any.h"
#endif

namespace anyaccel::op::quant {
namespace {

// Encodes n elements, a multiple of 16, to one byte each for formats of up to 8 bits, else to one uint16_t each.
template <bool kChance, class T>
AA_ONCE void encode(const T* x, int64_t n, const Encoder& shared, float inverse_scale, const uint32_t* words,
                    Ahead ahead, void* codes) {
  const Encoder encoder = shared;  // a copy stays in registers: no store can alias it
  const Vec inverse(inverse_scale);
  constexpr int64_t w = Vec::width;
  const auto code = [&](int64_t i) { return encoder.code<kChance>(load(x + i), inverse, words + i); };
  int64_t i = 0;
  if (encoder.bits <= 8) {
    uint8_t* out = static_cast<uint8_t*>(codes);
    if constexpr (!kChance && __is_same(T, bf16)) i = encode_in_pairs(encoder, x, n, inverse, ahead, out);
    for (; i + 4 * w <= n; i += 4 * w) {
      ahead.fetch<4 * w * sizeof(T)>(i * static_cast<int64_t>(sizeof(T)));
      store_bytes(out + i, code(i), code(i + w), code(i + 2 * w), code(i + 3 * w));
    }
    for (; i < n; i += w) store_low(out + i, code(i));
  } else {
    uint16_t* out = static_cast<uint16_t*>(codes);
    if constexpr (!kChance && __is_same(T, bf16)) i = encode_in_pairs(encoder, x, n, inverse, ahead, out);
    for (; i < n; i += w) store_low(out + i, code(i));
  }
}

// pack() turns codes into a stream of bits, unpack() the reverse. Both return where the result is: codes of 8 bits are their own
// stream. n is a multiple of 8 (of 4 with 8 bits). Whole vectors of codes are read and written, and up to 64 bytes behind the
// end of the stream are overwritten.
AA_ONCE const void* pack(const void* codes, int64_t n, int32_t bits, uint8_t* out) {
  if (bits == 8) return codes;
  const uint8_t* c = static_cast<const uint8_t*>(codes);
  if (bits == 4) {
    for (int64_t i = 0; i < n / 2; ++i) out[i] = static_cast<uint8_t>(c[2 * i] | c[2 * i + 1] << 4);
  } else if (bits == 6) {
    for (int64_t i = 0; i < n; i += 4 * Vec::width) store_24(out + i / 4 * 3, join_sixes(c + i));
  } else {
    for (int64_t i = 0; i < n; i += 2 * Vec::width) store_24(out + i / 2 * 3, join_twelves(c + 2 * i));
  }
  return out;
}

AA_ONCE const void* unpack(const uint8_t* in, int64_t n, int32_t bits, void* codes) {
  if (bits == 8) return in;
  uint8_t* c = static_cast<uint8_t*>(codes);
  if (bits == 4) {
    for (int64_t i = 0; i < n / 2; ++i) {
      c[2 * i] = in[i] & 0xfu;
      c[2 * i + 1] = static_cast<uint8_t>(in[i] >> 4);
    }
  } else if (bits == 6) {
    for (int64_t i = 0; i < n; i += 4 * Vec::width) {
      const Words word = load_24(in + i / 4 * 3);
      const Words four = (word & 0x3fu) | (word << 2 & 0x3f00u) | (word << 4 & 0x3f0000u) | (word << 6 & 0x3f000000u);
      __builtin_memcpy(c + i, &four, sizeof(four));
    }
  } else {
    for (int64_t i = 0; i < n; i += 2 * Vec::width) {
      const Words word = load_24(in + i / 2 * 3);
      const Words two = (word & 0xfffu) | (word << 4 & 0xfff0000u);
      __builtin_memcpy(c + 2 * i, &two, sizeof(two));
    }
  }
  return codes;
}

// What all groups of a call share.
struct Call {
  const aa_fp_quantize_args& args;
  Encoder encoder;
  DirectEncoder direct;
  Random random;

  explicit Call(const aa_fp_quantize_args& a)
      : args(a), encoder(a.format), direct(encoder, a), random(a.seed, a.offset, a.stochastic != 0) {}
  Call(const Call&) = delete;  // `direct` refers to `encoder`
};

// Encodes the elements [begin, end) of one group. Fetch: an Ahead or, for what DirectEncoder encodes, a Part
// of a Meanwhile.
template <class Fetch>
AA_ONCE void write_codes(const Call& call, int64_t begin, int64_t end, const Scale& s, Fetch fetch, RandomWords& words,
                         Writer& out) {
  const aa_fp_quantize_args& a = call.args;
  const Encoder& encoder = call.encoder;
  alignas(64) float buffer[kBlock];
  alignas(64) uint16_t codes[kBlock + 64];
  alignas(64) uint8_t packed[2 * kBlock];
  const DirectEncoder::Group direct(call.direct, s, end - begin);
  for (int64_t i = begin; i < end; i += kBlock) {
    const int64_t n = smaller(kBlock, end - i);
    const Fetch here = fetch.behind((i - begin) * bytes_of(a.dtype));
    uint8_t* const room = out.room();
    uint8_t* const to = room ? room : packed;
    bool done = false;
    if (!s.finite) {
      __builtin_memset(codes, 0, sizeof(codes));
    } else {
      with_elements(a.x, a.dtype, i, n, buffer, [&](const auto* x) {
        if constexpr (__is_same(decltype(x), const bf16*)) done = direct.encode_block(x, n, here, to);
        if (done) return;
        Ahead ahead;
        if constexpr (__is_same(Fetch, Ahead)) ahead = here;
        if (call.random.used) {
          encode<true>(x, padded(n), encoder, s.inverse, words.draw(i, n), ahead, codes);
        } else {
          encode<false>(x, padded(n), encoder, s.inverse, nullptr, ahead, codes);
        }
      });
    }
    const void* const from = done ? to : pack(codes, n, a.format.bits, to);
    const int64_t bytes = n * a.format.bits / 8;
    if (room && from == to) {
      out.took(bytes);
    } else {
      out.put(from, bytes);
    }
  }
}

}  // namespace

AA_OP void fp_quantizer_quantize(const aa_fp_quantize_args* a) {
  const FlushDenormals flush;
  const int64_t code_bytes = a->group_size * a->format.bits / 8;
  const int64_t row_bytes = code_bytes + 4;
  const bool past_caches = a->groups * row_bytes >= kLargeOutput;
  const Call call(*a);
  if (!has_wide_groups(a->groups, a->group_size)) {
    for_groups(a->groups, a->group_size, [&](int64_t first, int64_t last) {
      Writer writer(a->out + first * row_bytes, past_caches);
      RandomWords words(call.random);
      const auto range_of = [&](int64_t g, Ahead ahead) {
        const int64_t begin = g * a->group_size;
        return range_of_dense<true>(a->x, a->dtype, begin, begin + a->group_size, ahead);
      };
      const auto scale_of = [&](const Range& range) { return make_scale(range, a->format); };
      const auto write_one = [&](int64_t g, const Scale& s, auto fetch) {
        write_codes(call, g * a->group_size, (g + 1) * a->group_size, s, fetch, words, writer);
        writer.put(&s.scale, 4);
      };
#if AA_VECTOR_AVX512
      if (gains_from_searching_meanwhile && a->group_size <= kFetchedGroup &&
          call.direct.gains_from_meanwhile(a->group_size)) {
        const auto range_of_one = [&](int64_t g) { return range_of(g, {}); };
        const bf16* const x = static_cast<const bf16*>(a->x);
        write_and_search<Scale>(first, last, a->group_size, range_of_one, scale_of,
                                [&](int64_t g, const Scale& s, int64_t next) {
                                  if (!s.finite) {
                                    write_one(g, s, Ahead());
                                    return range_of_one(next);
                                  }
                                  Meanwhile<bf16, true> meanwhile(x + next * a->group_size);
                                  write_one(g, s, Meanwhile<bf16, true>::Part{&meanwhile, 0});
                                  return meanwhile.range(a->dtype);
                                });
        return;
      }
#endif
      write_groups<Scale>(a->x, a->dtype, first, last, a->group_size, a->format.bits < 8, range_of, scale_of,
                          write_one);
    });
    return;
  }
  for (int64_t g = 0; g < a->groups; ++g) {
    const int64_t begin = g * a->group_size;
    const auto range = [&](int64_t first, int64_t last) { return range_of_dense<true>(a->x, a->dtype, first, last); };
    const Scale s = make_scale(range_of_wide_group(range, begin, begin + a->group_size), a->format);
    uint8_t* const row = a->out + g * row_bytes;
    __builtin_memcpy(row + code_bytes, &s.scale, 4);
    parallel_for(a->group_size, 16384, 128, [&](int64_t first, int64_t last) {
      Writer writer(row + first * a->format.bits / 8, past_caches);
      RandomWords words(call.random);
      write_codes(call, begin + first, begin + last, s, Ahead(), words, writer);
    });
  }
}

AA_OP void fp_quantizer_dequantize(const aa_fp_dequantize_args* a) {
  const int64_t count = a->groups * a->group_size;
  const int64_t item = bytes_of(a->dtype), bits = a->format.bits;
  const int64_t code_bytes = a->group_size * bits / 8;
  parallel_for(count, 16384, 128, [&](int64_t first, int64_t last) {
    DecodeBuffers buffers;
    alignas(64) uint8_t odd[2 * kBlock];
    alignas(64) float narrow[kBlock];
    Writer writer(static_cast<char*>(a->out) + first * item, count * item >= kLargeOutput);
    DirectDecoder direct(*a);
    for (int64_t i = first; i < last;) {
      const int64_t group = i / a->group_size;
      const int64_t group_begin = group * a->group_size;
      const int64_t end = smaller(last, group_begin + a->group_size);
      int64_t source = group;
      if (a->rows) source = a->rows[group / a->groups_per_row] * a->groups_per_row + group % a->groups_per_row;
      const uint8_t* row = a->codes + source * (code_bytes + 4);
      float scale;
      __builtin_memcpy(&scale, row + code_bytes, 4);
      direct.set_scale(scale);
      for (; i < end; i += kBlock) {
        const int64_t n = smaller(kBlock, end - i);
        const uint8_t* from = row + (i - group_begin) * bits / 8;
        if (n % 64 != 0) {
          // unpack() would read whole vectors, beyond the end of the codes.
          __builtin_memcpy(odd, from, static_cast<size_t>(n * bits / 8));
          from = odd;
        }
        if (direct.decode_block(from, n, buffers, writer)) continue;
        const void* const block = unpack(from, n, a->format.bits, buffers.codes);
        decode(block, padded(n), a->format, scale, buffers.result);
        writer.put(narrow_block(buffers.result, n, a->dtype, narrow), n * item);
      }
      i = end;
    }
  });
}

}  // namespace anyaccel::op::quant
