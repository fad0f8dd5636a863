// Combines arrays element by element, in the given order. Compiled for several instruction sets in one binary; the one
// to use is chosen at run time.
#include "comm/shared_memory/reduction.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <string>
#include <type_traits>

#include "anyaccel/error.h"
#include "base/scalar_convert.h"
#include "base/simd/dispatch.h"

#ifndef AA_KERNEL_BATCH
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "comm/shared_memory/reduction.cpp"
#include "hwy/foreach_target.h"
#endif
#include "base/simd/highway.h"
// After highway.h
#include "base/simd/float_types-inl.h"

#ifndef ANYACCEL_COMM_REDUCTION_ARRAYS
#define ANYACCEL_COMM_REDUCTION_ARRAYS
namespace anyaccel::comm {
namespace {
struct Arrays {
  void* const* targets;
  int count_of_targets;
  const void* const* sources;
  int count;  // of sources
  int64_t elements;
};
}  // namespace
}  // namespace anyaccel::comm
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::comm::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// ---- fp32, bf16 and fp16, in vectors of fp32 ---------------------------------------------------------------------

using namespace simd::HWY_NAMESPACE;  // NOLINT(google-build-using-namespace)

struct Add {
  static HWY_INLINE FloatVec vector(FloatVec a, FloatVec b) { return hn::Add(a, b); }
  template <class T>
  static HWY_INLINE T scalar(T a, T b) {
    return static_cast<T>(a + b);
  }
};
struct Multiply {
  static HWY_INLINE FloatVec vector(FloatVec a, FloatVec b) { return hn::Mul(a, b); }
  template <class T>
  static HWY_INLINE T scalar(T a, T b) {
    return static_cast<T>(a * b);
  }
};
template <class T>
HWY_INLINE bool is_nan(T value) {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(value);
  return false;
}
// A NaN stays, whichever side it comes from.
struct Least {
  static HWY_INLINE FloatVec vector(FloatVec a, FloatVec b) {
    return hn::IfThenElse(hn::Or(hn::Lt(b, a), hn::IsNaN(b)), b, a);
  }
  template <class T>
  static HWY_INLINE T scalar(T a, T b) {
    return b < a || is_nan(b) ? b : a;
  }
};
struct Greatest {
  static HWY_INLINE FloatVec vector(FloatVec a, FloatVec b) {
    return hn::IfThenElse(hn::Or(hn::Gt(b, a), hn::IsNaN(b)), b, a);
  }
  template <class T>
  static HWY_INLINE T scalar(T a, T b) {
    return b > a || is_nan(b) ? b : a;
  }
};
struct BitsAnd {
  template <class T>
  static HWY_INLINE T scalar(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct BitsOr {
  template <class T>
  static HWY_INLINE T scalar(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct BitsXor {
  template <class T>
  static HWY_INLINE T scalar(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

template <class Type, class Op, bool kAverage>
void reduce_floats(const Arrays& arrays) {
  using Raw = typename Type::Raw;
  const auto source = [&](int s) HWY_ATTR { return static_cast<const Raw*>(arrays.sources[s]); };
  const auto target = [&](int t) HWY_ATTR { return static_cast<Raw*>(arrays.targets[t]); };
  const FloatVec members = hn::Set(kFloats, static_cast<float>(arrays.count));
  constexpr int kVectors = 4;
  int64_t i = 0;
  for (; i + kVectors * kLanes <= arrays.elements; i += kVectors * kLanes) {
    const Raw* from = source(0) + i;
    FloatVec a0 = load(Type(), from), a1 = load(Type(), from + kLanes), a2 = load(Type(), from + 2 * kLanes),
             a3 = load(Type(), from + 3 * kLanes);
    for (int s = 1; s < arrays.count; ++s) {
      from = source(s) + i;
      a0 = Op::vector(a0, load(Type(), from));
      a1 = Op::vector(a1, load(Type(), from + kLanes));
      a2 = Op::vector(a2, load(Type(), from + 2 * kLanes));
      a3 = Op::vector(a3, load(Type(), from + 3 * kLanes));
    }
    if constexpr (kAverage) {
      a0 = hn::Div(a0, members), a1 = hn::Div(a1, members), a2 = hn::Div(a2, members), a3 = hn::Div(a3, members);
    }
    for (int t = 0; t < arrays.count_of_targets; ++t) {
      Raw* const to = target(t) + i;
      store(Type(), a0, to);
      store(Type(), a1, to + kLanes);
      store(Type(), a2, to + 2 * kLanes);
      store(Type(), a3, to + 3 * kLanes);
    }
  }
  for (; i + kLanes <= arrays.elements; i += kLanes) {
    FloatVec sum = load(Type(), source(0) + i);
    for (int s = 1; s < arrays.count; ++s) sum = Op::vector(sum, load(Type(), source(s) + i));
    if constexpr (kAverage) sum = hn::Div(sum, members);
    for (int t = 0; t < arrays.count_of_targets; ++t) store(Type(), sum, target(t) + i);
  }
  if constexpr (std::is_same_v<Raw, float>) {
    // Few elements: a partial vector would wait for its stores.
    for (; i < arrays.elements; ++i) {
      float sum = source(0)[i];
      for (int s = 1; s < arrays.count; ++s) sum = Op::scalar(sum, source(s)[i]);
      if constexpr (kAverage) sum /= static_cast<float>(arrays.count);
      for (int t = 0; t < arrays.count_of_targets; ++t) target(t)[i] = sum;
    }
  }
  while (i < arrays.elements) {
    const int64_t n = std::min(kLanes, arrays.elements - i);
    const auto bytes = static_cast<size_t>(n) * sizeof(Raw);
    Raw part[static_cast<size_t>(kLanes)] = {};
    std::memcpy(part, source(0) + i, bytes);
    FloatVec sum = load(Type(), part);
    for (int s = 1; s < arrays.count; ++s) {
      std::memcpy(part, source(s) + i, bytes);
      sum = Op::vector(sum, load(Type(), part));
    }
    if constexpr (kAverage) sum = hn::Div(sum, members);
    store(Type(), sum, part);
    for (int t = 0; t < arrays.count_of_targets; ++t) std::memcpy(target(t) + i, part, bytes);
    i += n;
  }
}

// ---- the other dtypes, in loops that the compiler vectorizes -----------------------------------------------

// block[j] = block[j] op from[j]. T is unsigned for integers that wrap.
template <class T, class Op>
void combine_block(void* block, const void* from, int64_t n) {
  // Products of 16 bits would be promoted to int, and overflow.
  using Wide = std::conditional_t<std::is_same_v<T, uint16_t>, uint32_t, T>;
  T* HWY_RESTRICT to = static_cast<T*>(block);
  const T* HWY_RESTRICT other = static_cast<const T*>(from);
  for (int64_t j = 0; j < n; ++j) {
    to[j] = static_cast<T>(Op::scalar(static_cast<Wide>(to[j]), static_cast<Wide>(other[j])));
  }
}

template <class T>
void divide_block(void* block, int count, int64_t n) {
  T* values = static_cast<T*>(block);
  const auto members = static_cast<decltype(T{} / 1)>(count);  // of 8 bits, 256 ranks would be none
  for (int64_t j = 0; j < n; ++j) values[j] = static_cast<T>(values[j] / members);
}

// `divide`: null, or the function that converts a sum to an average. Only the loops over a block are compiled for each
// dtype.
void reduce_plain(const Arrays& arrays, size_t element, void (*combine)(void*, const void*, int64_t),
                  void (*divide)(void*, int, int64_t) = nullptr) {
  alignas(64) std::byte block[512];
  const auto block_elements = static_cast<int64_t>(sizeof block / element);
  for (int64_t i = 0; i < arrays.elements; i += block_elements) {
    const int64_t n = std::min(block_elements, arrays.elements - i);
    const size_t at = static_cast<size_t>(i) * element, bytes = static_cast<size_t>(n) * element;
    std::memcpy(block, static_cast<const std::byte*>(arrays.sources[0]) + at, bytes);
    for (int s = 1; s < arrays.count; ++s) combine(block, static_cast<const std::byte*>(arrays.sources[s]) + at, n);
    if (divide) divide(block, arrays.count, n);
    for (int t = 0; t < arrays.count_of_targets; ++t) {
      std::memcpy(static_cast<std::byte*>(arrays.targets[t]) + at, block, bytes);
    }
  }
}

template <class Op, bool kAverage>
void reduce_fp8(const Arrays& arrays, const Fp8Format& format) {
  const auto* const* sources = reinterpret_cast<const uint8_t* const*>(arrays.sources);
  for (int64_t i = 0; i < arrays.elements; ++i) {
    float sum = fp8_to_float(sources[0][i], format);
    for (int s = 1; s < arrays.count; ++s) sum = Op::scalar(sum, fp8_to_float(sources[s][i], format));
    if constexpr (kAverage) sum /= static_cast<float>(arrays.count);
    const uint8_t rounded = float_to_fp8(sum, format);
    for (int t = 0; t < arrays.count_of_targets; ++t) static_cast<uint8_t*>(arrays.targets[t])[i] = rounded;
  }
}

template <class Op, bool kAverage>
void reduce_numbers(const Arrays& arrays, DType dtype) {
  // The order of integers needs their sign; sums and products wrap, which only unsigned numbers may.
  constexpr bool kSigned = std::is_same_v<Op, Least> || std::is_same_v<Op, Greatest>;
  const auto plain = [&]<class Number, class Unsigned>(Number, Unsigned) {
    reduce_plain(arrays, sizeof(Number), combine_block<std::conditional_t<kSigned, Number, Unsigned>, Op>,
                 kAverage ? divide_block<Number> : nullptr);
  };
  switch (dtype) {
    case DType::F32: return reduce_floats<F32Type, Op, kAverage>(arrays);
    case DType::BF16: return reduce_floats<Bf16Type, Op, kAverage>(arrays);
    case DType::F16: return reduce_floats<F16Type, Op, kAverage>(arrays);
    case DType::F64: return plain(double{}, double{});
    case DType::F8E4M3: return reduce_fp8<Op, kAverage>(arrays, kE4M3);
    case DType::F8E5M2: return reduce_fp8<Op, kAverage>(arrays, kE5M2);
    case DType::U8: return plain(uint8_t{}, uint8_t{});
    case DType::I8: return plain(int8_t{}, uint8_t{});
    case DType::I16: return plain(int16_t{}, uint16_t{});
    case DType::I32: return plain(int32_t{}, uint32_t{});
    default: return plain(int64_t{}, uint64_t{});
  }
}

template <class Op>
void reduce_bits(const Arrays& arrays) {
  reduce_plain(arrays, 1, combine_block<uint8_t, Op>);
}

void reduce_any(const Arrays& arrays, DType dtype, ReduceOp op) {
  if (dtype == DType::Bool) {  // elements are 0 or 1
    switch (op) {
      case ReduceOp::Sum:
      case ReduceOp::Max:
      case ReduceOp::BitOr: return reduce_bits<BitsOr>(arrays);
      case ReduceOp::BitXor: return reduce_bits<BitsXor>(arrays);
      default: return reduce_bits<BitsAnd>(arrays);
    }
  }
  Arrays bytes = arrays;
  bytes.elements *= static_cast<int64_t>(dtype_size(dtype));
  switch (op) {
    case ReduceOp::Sum: return reduce_numbers<Add, false>(arrays, dtype);
    case ReduceOp::Product: return reduce_numbers<Multiply, false>(arrays, dtype);
    case ReduceOp::Min: return reduce_numbers<Least, false>(arrays, dtype);
    case ReduceOp::Max: return reduce_numbers<Greatest, false>(arrays, dtype);
    case ReduceOp::Avg: return reduce_numbers<Add, true>(arrays, dtype);
    case ReduceOp::BitAnd: return reduce_bits<BitsAnd>(bytes);
    case ReduceOp::BitOr: return reduce_bits<BitsOr>(bytes);
    case ReduceOp::BitXor: return reduce_bits<BitsXor>(bytes);
  }
}

}  // namespace anyaccel::comm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anyaccel::comm {

AA_CPU_EXPORT(reduce_any);

bool reduction_exists(DType dtype, ReduceOp op) noexcept {
  const bool bits = op == ReduceOp::BitAnd || op == ReduceOp::BitOr || op == ReduceOp::BitXor;
  return dtype_size(dtype) != 0 && !(bits && is_floating(dtype)) && !(dtype == DType::Bool && op == ReduceOp::Avg);
}

void reduce(void* target, const void* const* sources, int count_of_sources, int64_t elements, DType dtype,
            ReduceOp op) {
  reduce_to_all(&target, 1, sources, count_of_sources, elements, dtype, op);
}

void reduce_to_all(void* const* targets, int count_of_targets, const void* const* sources, int count_of_sources,
                   int64_t elements, DType dtype, ReduceOp op) {
  AA_CPU_DISPATCH(reduce_any)({targets, count_of_targets, sources, count_of_sources, elements}, dtype, op);
}

}  // namespace anyaccel::comm
#endif
