// Elements of every dtype: reading them as float, integer or double, and writing them by the rules of the op "copy", each
// conversion rounded once. Include after dialect.h.
#ifndef ANYACCEL_KERNELS_FORMATS_H_
#define ANYACCEL_KERNELS_FORMATS_H_

// Values of aa_dtype; the others are in dialect.h.
#define AA_BOOL 1
#define AA_U8 2
#define AA_I8 3
#define AA_I16 4
#define AA_I32 5
#define AA_I64 6
#define AA_F64 10
#define AA_F8_E4M3 11
#define AA_F8_E5M2 12

#define AA_NAN_BITS 0x7fc00000u
#define AA_INFINITY_BITS 0x7f800000u

// ---- 8-bit floats: E4M3 has 3 bits of fraction, exponent bias 7 and no infinity; E5M2 has 2, 15 and infinities ----------

AA_FN float aa_from_f8(aa_u32 bits, aa_i32 dtype) {
  const aa_i32 fraction_bits = dtype == AA_F8_E4M3 ? 3 : 2;
  const aa_i32 bias = dtype == AA_F8_E4M3 ? 7 : 15;
  const aa_i32 magnitude = (aa_i32)(bits & 0x7fu);
  const aa_u32 sign = (bits & 0x80u) << 24;
  if (dtype == AA_F8_E4M3 ? magnitude == 0x7f : magnitude > 0x7c) return aa_float(AA_NAN_BITS);
  if (dtype != AA_F8_E4M3 && magnitude == 0x7c) return aa_float(sign | AA_INFINITY_BITS);
  const aa_i32 exponent = magnitude >> fraction_bits;
  const aa_i32 fraction = magnitude & ((1 << fraction_bits) - 1);
  const aa_i32 significand = exponent ? fraction + (1 << fraction_bits) : fraction;
  const float unit = aa_float((aa_u32)((exponent ? exponent : 1) - bias - fraction_bits + 127) << 23);
  return aa_float(sign | aa_bits((float)significand * unit));
}

// A finite number too large becomes infinity, in E4M3 a NaN.
AA_FN aa_u8 aa_to_f8(float v, aa_i32 dtype) {
  const aa_i32 fraction_bits = dtype == AA_F8_E4M3 ? 3 : 2;
  const aa_i32 bias = dtype == AA_F8_E4M3 ? 7 : 15;
  const float largest = dtype == AA_F8_E4M3 ? 448.0f : 57344.0f;
  const aa_u32 overflow = dtype == AA_F8_E4M3 ? 0x7fu : 0x7cu;
  const aa_u32 sign = (aa_bits(v) >> 24) & 0x80u;
  const aa_u32 magnitude = aa_bits(v) & 0x7fffffffu;
  if (magnitude > AA_INFINITY_BITS) return (aa_u8)(sign | 0x7fu);
  if (magnitude == AA_INFINITY_BITS) return (aa_u8)(sign | overflow);
  const aa_i32 lowest = 1 - bias;
  aa_i32 exponent = (aa_i32)(magnitude >> 23) - 127;
  if (exponent < lowest) exponent = lowest;
  const float per_quantum = aa_float((aa_u32)(fraction_bits - exponent + 127) << 23);
  const float quantum = aa_float((aa_u32)(exponent - fraction_bits + 127) << 23);
  const float steps = aa_rint(aa_float(magnitude) * per_quantum);
  if (steps * quantum > largest) return (aa_u8)(sign | overflow);
  const aa_i32 count = (aa_i32)steps;
  const aa_i32 one = 1 << fraction_bits;
  if (count < one) return (aa_u8)(sign | (aa_u32)count);  // subnormal or zero
  return (aa_u8)(sign | (aa_u32)(((exponent + bias) << fraction_bits) + count - one));
}

// ---- rounding once -------------------------------------------------------------------------------------------------------

// The float next to a value toward zero, with its last bit set when anything was cut off, from the nearest float and the sign
// of what is missing (value - nearest): rounding it to a format at least two bits shorter gives what rounding the value once
// would give (Boldo and Melquiond 2008).
AA_FN float aa_round_to_odd(float nearest, aa_i32 missing) {
  const aa_u32 u = aa_bits(nearest);
  if (missing == 0 || (u & 0x7fffffffu) >= AA_INFINITY_BITS) return nearest;
  const aa_i32 away = (u >> 31) ? missing > 0 : missing < 0;
  return aa_float((u - (aa_u32)away) | 1u);
}

// An integer as a float of at least 16 significant bits, the last set when anything was cut off.
AA_FN float aa_odd_from_integer(aa_i64 v) {
  aa_u64 magnitude = v < 0 ? (aa_u64)0 - (aa_u64)v : (aa_u64)v;
  float scale = v < 0 ? -1.0f : 1.0f;
  while (magnitude >> 24) {
    magnitude = (magnitude >> 8) | (aa_u64)((magnitude & 0xffu) != 0);
    scale *= 256.0f;
  }
  return (float)(aa_u32)magnitude * scale;
}

// Truncation toward zero with saturation; NaN gives 0. `above` is the power of two next to `highest`.
#define AA_SATURATE(name, real)                                                        \
  AA_FN aa_i32 name(real v, real above, aa_i32 highest, aa_i32 lowest) {               \
    return v != v ? 0 : v >= above ? highest : v <= (real)lowest ? lowest : (aa_i32)v; \
  }                                                                                    \
  AA_FN aa_i64 AA_CAT(name, _i64)(real v) {                                            \
    const aa_i64 lowest = (aa_i64)((aa_u64)1 << 63);                                   \
    if (v != v) return 0;                                                              \
    if (v >= (real)9223372036854775808.0f) return ~lowest;                             \
    return v <= (real)-9223372036854775808.0f ? lowest : (aa_i64)v;                    \
  }

// Writes a float or double to an integer dtype other than BOOL; returns whether it was one.
#define AA_STORE_SATURATED(name, saturate, real)                                         \
  AA_FN aa_i32 name(AA_OUT(void) p, aa_i32 dtype, aa_i64 i, real v) {                    \
    if (dtype == AA_U8) {                                                                \
      AA_AS_OUT(aa_u8, p)[i] = (aa_u8)saturate(v, 256.0f, 255, 0);                       \
    } else if (dtype == AA_I8) {                                                         \
      AA_AS_OUT(aa_i8, p)[i] = (aa_i8)saturate(v, 128.0f, 127, -128);                    \
    } else if (dtype == AA_I16) {                                                        \
      AA_AS_OUT(aa_i16, p)[i] = (aa_i16)saturate(v, 32768.0f, 32767, -32768);            \
    } else if (dtype == AA_I32) {                                                        \
      AA_AS_OUT(aa_i32, p)[i] = saturate(v, 2147483648.0f, 2147483647, -2147483647 - 1); \
    } else if (dtype == AA_I64) {                                                        \
      AA_AS_OUT(aa_i64, p)[i] = AA_CAT(saturate, _i64)(v);                               \
    } else {                                                                             \
      return 0;                                                                          \
    }                                                                                    \
    return 1;                                                                            \
  }

AA_SATURATE(aa_saturate, float)
AA_STORE_SATURATED(aa_store_saturated, aa_saturate, float)

// ---- elements ------------------------------------------------------------------------------------------------------------

// F16, BF16, F32 and the 8-bit floats; all of their values are floats.
AA_FN float aa_load_float(AA_IN(void) p, aa_i32 dtype, aa_i64 i) {
  if (dtype >= AA_F8_E4M3) return aa_from_f8(AA_AS_IN(aa_u8, p)[i], dtype);
  return aa_load(p, dtype, i);
}

AA_FN aa_i64 aa_load_integer(AA_IN(void) p, aa_i32 dtype, aa_i64 i) {
  if (dtype == AA_I64) return AA_AS_IN(aa_i64, p)[i];
  if (dtype == AA_I32) return AA_AS_IN(aa_i32, p)[i];
  if (dtype == AA_I16) return AA_AS_IN(aa_i16, p)[i];
  if (dtype == AA_I8) return AA_AS_IN(aa_i8, p)[i];
  const aa_u8 byte = AA_AS_IN(aa_u8, p)[i];
  return dtype == AA_BOOL ? byte != 0 : byte;
}

// An index: I32 or I64.
AA_FN aa_i64 aa_load_index(AA_IN(void) p, aa_i32 dtype, aa_i64 i) {
  return dtype == AA_I64 ? AA_AS_IN(aa_i64, p)[i] : AA_AS_IN(aa_i32, p)[i];
}
AA_FN void aa_store_index(AA_OUT(void) p, aa_i32 dtype, aa_i64 i, aa_i64 v) {
  if (dtype == AA_I64) {
    AA_AS_OUT(aa_i64, p)[i] = v;
  } else {
    AA_AS_OUT(aa_i32, p)[i] = (aa_i32)v;
  }
}

// Writes what has been rounded to odd to a float of 16 or 8 bits.
AA_FN void aa_store_short(AA_OUT(void) p, aa_i32 dtype, aa_i64 i, float odd) {
  if (dtype >= AA_F8_E4M3) {
    AA_AS_OUT(aa_u8, p)[i] = aa_to_f8(odd, dtype);
  } else {
    aa_store(p, dtype, i, odd);
  }
}

AA_FN void aa_store_float(AA_OUT(void) p, aa_i32 dtype, aa_i64 i, float v) {
  if (aa_store_saturated(p, dtype, i, v)) return;
  if (dtype == AA_BOOL) {
    AA_AS_OUT(aa_u8, p)[i] = (aa_u8)((aa_bits(v) & 0x7fffffffu) != 0);
#if AA_HAS_F64
  } else if (dtype == AA_F64) {
    AA_AS_OUT(double, p)[i] = (double)v;
#endif
  } else {
    aa_store_short(p, dtype, i, v);
  }
}

AA_FN void aa_store_integer(AA_OUT(void) p, aa_i32 dtype, aa_i64 i, aa_i64 v) {
  if (dtype == AA_I64) {
    AA_AS_OUT(aa_i64, p)[i] = v;
  } else if (dtype == AA_I32) {
    AA_AS_OUT(aa_i32, p)[i] = (aa_i32)v;
  } else if (dtype == AA_I16) {
    AA_AS_OUT(aa_i16, p)[i] = (aa_i16)v;
  } else if (dtype == AA_I8 || dtype == AA_U8) {
    AA_AS_OUT(aa_u8, p)[i] = (aa_u8)v;
  } else if (dtype == AA_BOOL) {
    AA_AS_OUT(aa_u8, p)[i] = (aa_u8)(v != 0);
  } else if (dtype == AA_F32) {
    AA_AS_OUT(float, p)[i] = (float)v;
#if AA_HAS_F64
  } else if (dtype == AA_F64) {
    AA_AS_OUT(double, p)[i] = (double)v;
#endif
  } else {
    aa_store_short(p, dtype, i, aa_odd_from_integer(v));
  }
}

#if AA_HAS_F64
AA_SATURATE(aa_saturate_f64, double)
AA_STORE_SATURATED(aa_store_saturated_f64, aa_saturate_f64, double)

AA_FN void aa_store_f64(AA_OUT(void) p, aa_i32 dtype, aa_i64 i, double v) {
  if (aa_store_saturated_f64(p, dtype, i, v)) return;
  if (dtype == AA_BOOL) {
    AA_AS_OUT(aa_u8, p)[i] = (aa_u8)(v != 0);
  } else if (dtype == AA_F64) {
    AA_AS_OUT(double, p)[i] = v;
  } else if (dtype == AA_F32) {
    AA_AS_OUT(float, p)[i] = (float)v;
  } else {
    const float nearest = (float)v;
    aa_store_short(p, dtype, i, aa_round_to_odd(nearest, (v > (double)nearest) - (v < (double)nearest)));
  }
}
#endif

#endif  // ANYACCEL_KERNELS_FORMATS_H_
