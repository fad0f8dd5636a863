// The functions behind ops::FPQuantizer: small floating-point formats with a scale for each group of elements.
// include/anyaccel/ops/fp_quantizer.h defines the results and the layout, fp_quantizer_calls.h the arguments.
#include "fp_quantizer_calls.h"
#include "quant_blocks.h"

namespace anyaccel::op::quant {
namespace {

struct Scale {
  float scale = 0, inverse = 0;
  bool finite = true;
};

Scale make_scale(const Range& range, const aa_fp_format& format) {
  Scale s;
  s.finite = range.finite;
  s.scale = s.finite ? range.largest_magnitude() / format.max_value : bits_float(0x7fc00000u);
  if (s.finite && !(s.scale >= 0x1p-126f)) s.scale = 1.0f;
  s.inverse = 1.0f / s.scale;
  return s;
}

// Codes of x[i] * inverse. The exponent field `e` is that of the number, or that of the smallest normal; in units of the
// last mantissa bit under that exponent the number is `steps`, which is rounded to an integer. A carry goes into the
// exponent by itself.
AA_ONCE void encode(const float* x, int64_t n, const aa_fp_format& f, float inverse, const float* units,
                    uint32_t* codes) {
  const int32_t m = f.mantissa_bits, rebias = 127 - f.bias, unit_exponent = 127 + f.bias + m, max_code = f.max_code;
  const int32_t sign_shift = 32 - f.bits;
  const uint32_t sign_bit = 1u << (f.bits - 1);
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = float_bits(x[i] * inverse);
    const uint32_t magnitude = bits & 0x7fffffffu;
    int32_t e = static_cast<int32_t>(magnitude >> 23) - rebias;
    e = e > 1 ? e : 1;
    const float steps = bits_float(magnitude) * bits_float(static_cast<uint32_t>(unit_exponent - e) << 23);
    int32_t rounded;
    if (units) {
      rounded = static_cast<int32_t>(steps);
      rounded += units[i] < steps - static_cast<float>(rounded) ? 1 : 0;
    } else {
      // From 1.5 * 2^23 on the unit of a float is 1: the addition rounds.
      rounded = static_cast<int32_t>(float_bits(steps + 0x1.8p23f) - 0x4b400000u);
    }
    int32_t code = ((e - 1) << m) + rounded;
    code = code < max_code ? code : max_code;
    codes[i] = static_cast<uint32_t>(code) | (bits >> sign_shift & sign_bit);
  }
}

AA_ONCE void decode(const uint32_t* codes, int64_t n, const aa_fp_format& f, float scale, float* out) {
  const int32_t m = f.mantissa_bits;
  const uint32_t magnitude_mask = (1u << (f.bits - 1)) - 1, mantissa_mask = (1u << m) - 1;
  const uint32_t rebias = static_cast<uint32_t>(127 - f.bias) << 23;
  const float smallest = bits_float(static_cast<uint32_t>(128 - f.bias - m) << 23);
  const int32_t first_special = f.first_special;
  const int32_t up = 23 - m, sign_shift = 32 - f.bits;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t code = codes[i];
    const uint32_t magnitude = code & magnitude_mask;
    const uint32_t normal = (magnitude << up) + rebias;
    const uint32_t subnormal = float_bits(static_cast<float>(static_cast<int32_t>(magnitude)) * smallest);
    const uint32_t special = magnitude & mantissa_mask ? 0x7fc00000u : 0x7f800000u;
    // Chosen by masks: a condition would keep the loop from becoming vectors.
    const uint32_t is_normal = magnitude > mantissa_mask ? ~0u : 0u;
    const uint32_t is_special = static_cast<int32_t>(magnitude) >= first_special ? ~0u : 0u;
    uint32_t bits = (normal & is_normal) | (subnormal & ~is_normal);
    bits = (special & is_special) | (bits & ~is_special);
    out[i] = bits_float(bits | (code << sign_shift & 0x80000000u)) * scale;
  }
}

AA_INLINE void put_u64(uint8_t* to, uint64_t x) { __builtin_memcpy(to, &x, 8); }
AA_INLINE uint64_t get_u64(const uint8_t* from) {
  uint64_t x;
  __builtin_memcpy(&x, from, 8);
  return x;
}

// Codes to a stream of bits and back; n is a multiple of 8 (4 for 8 bits). The stream may be written up to 2 bytes behind
// its end, and read so. Codes of 6 and 12 bits go by way of words of 24 bits, so that the loops over codes become vectors.
AA_ONCE void pack(const uint32_t* c, int64_t n, int32_t bits, uint8_t* out) {
  if (bits == 8) {
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<uint8_t>(c[i]);
    return;
  }
  if (bits == 4) {
    for (int64_t i = 0; i < n / 2; ++i) out[i] = static_cast<uint8_t>(c[2 * i] | c[2 * i + 1] << 4);
    return;
  }
  uint32_t words[kBlock / 2];
  const int64_t count = n * bits / 24;
  if (bits == 6) {
    for (int64_t i = 0; i < count; ++i) {
      words[i] = c[4 * i] | c[4 * i + 1] << 6 | c[4 * i + 2] << 12 | c[4 * i + 3] << 18;
    }
  } else {
    for (int64_t i = 0; i < count; ++i) words[i] = c[2 * i] | c[2 * i + 1] << 12;
  }
  for (int64_t i = 0; i < count; i += 2) {
    const uint64_t two = words[i] | static_cast<uint64_t>(words[i + 1]) << 24;
    __builtin_memcpy(out + 3 * i, &two, 8);
  }
}

AA_ONCE void unpack(const uint8_t* in, int64_t n, int32_t bits, uint32_t* c) {
  if (bits == 8) {
    for (int64_t i = 0; i < n; ++i) c[i] = in[i];
    return;
  }
  if (bits == 4) {
    for (int64_t i = 0; i < n / 2; ++i) {
      c[2 * i] = in[i] & 0xfu;
      c[2 * i + 1] = static_cast<uint32_t>(in[i] >> 4);
    }
    return;
  }
  uint32_t words[kBlock / 2];
  const int64_t count = n * bits / 24;
  for (int64_t i = 0; i < count; i += 2) {
    uint64_t two;
    __builtin_memcpy(&two, in + 3 * i, 8);
    words[i] = static_cast<uint32_t>(two & 0xffffffu);
    words[i + 1] = static_cast<uint32_t>(two >> 24 & 0xffffffu);
  }
  if (bits == 6) {
    for (int64_t i = 0; i < count; ++i) {
      c[4 * i] = words[i] & 63u;
      c[4 * i + 1] = words[i] >> 6 & 63u;
      c[4 * i + 2] = words[i] >> 12 & 63u;
      c[4 * i + 3] = words[i] >> 18;
    }
  } else {
    for (int64_t i = 0; i < count; ++i) {
      c[2 * i] = words[i] & 0xfffu;
      c[2 * i + 1] = words[i] >> 12;
    }
  }
}

// Elements [begin, end) of one group, as codes.
AA_ONCE void write_codes(const aa_fp_quantize_args& a, int64_t begin, int64_t end, const Scale& s, Writer& out) {
  const Random random{a.seed, a.offset, a.stochastic != 0};
  alignas(64) float buffer[kBlock], units[kWords];
  alignas(64) uint32_t codes[kBlock];
  alignas(64) uint8_t packed[2 * kBlock];
  for (int64_t i = begin; i < end; i += kBlock) {
    const int64_t n = smaller(kBlock, end - i);
    if (a.group_size <= kFetchedGroup) fetch_block(a.x, a.dtype, i + a.group_size, n);
    if (s.finite) {
      const float* x = read_block(a.x, a.dtype, i, n, buffer);
      encode(x, padded(n), a.format, s.inverse, draw(random, i, n, units), codes);
    } else {
      __builtin_memset(codes, 0, sizeof(codes));
    }
    pack(codes, n, a.format.bits, packed);
    out.put(packed, n * a.format.bits / 8);
  }
}

}  // namespace

AA_OP void fp_quantizer_quantize(const aa_fp_quantize_args* a) {
  const FlushDenormals flush;
  const int64_t code_bytes = a->group_size * a->format.bits / 8;
  const int64_t row_bytes = code_bytes + 4;
  const bool past_caches = a->groups * row_bytes >= kLargeOutput;
  const auto read = [&](int64_t begin, int64_t n, float* buffer) {
    return read_block(a->x, a->dtype, begin, n, buffer);
  };
  if (!has_wide_groups(a->groups, a->group_size)) {
    for_groups(a->groups, a->group_size, [&](int64_t first, int64_t last) {
      Writer writer(a->out + first * row_bytes, past_caches);
      for (int64_t g = first; g < last; ++g) {
        const int64_t begin = g * a->group_size, end = begin + a->group_size;
        const Scale s = make_scale(range_between(read, begin, end), a->format);
        write_codes(*a, begin, end, s, writer);
        writer.put(&s.scale, 4);
      }
    });
    return;
  }
  for (int64_t g = 0; g < a->groups; ++g) {
    const int64_t begin = g * a->group_size;
    const Scale s = make_scale(range_of_wide_group(read, begin, begin + a->group_size), a->format);
    uint8_t* const row = a->out + g * row_bytes;
    __builtin_memcpy(row + code_bytes, &s.scale, 4);
    parallel_for(a->group_size, 16384, 128, [&](int64_t first, int64_t last) {
      Writer writer(row + first * a->format.bits / 8, past_caches);
      write_codes(*a, begin + first, begin + last, s, writer);
    });
  }
}

AA_OP void fp_quantizer_dequantize(const aa_fp_dequantize_args* a) {
  const int64_t count = a->groups * a->group_size;
  const int64_t item = bytes_of(a->dtype), bits = a->format.bits;
  const int64_t code_bytes = a->group_size * bits / 8;
  parallel_for(count, 16384, 128, [&](int64_t first, int64_t last) {
    alignas(64) uint32_t codes[kBlock];
    alignas(64) float result[kBlock], narrow[kBlock];
    Writer writer(static_cast<char*>(a->out) + first * item, count * item >= kLargeOutput);
    for (int64_t i = first; i < last;) {
      const int64_t group = i / a->group_size;
      const int64_t group_begin = group * a->group_size;
      const int64_t end = smaller(last, group_begin + a->group_size);
      int64_t source = group;
      if (a->rows) source = a->rows[group / a->groups_per_row] * a->groups_per_row + group % a->groups_per_row;
      const uint8_t* row = a->codes + source * (code_bytes + 4);
      float scale;
      __builtin_memcpy(&scale, row + code_bytes, 4);
      for (; i < end; i += kBlock) {
        const int64_t n = smaller(kBlock, end - i);
        unpack(row + (i - group_begin) * bits / 8, n, a->format.bits, codes);
        decode(codes, padded(n), a->format, scale, result);
        writer.put(narrow_block(result, n, a->dtype, narrow), n * item);
      }
      i = end;
    }
  });
}

}  // namespace anyaccel::op::quant
