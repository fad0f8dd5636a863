// Strided, converting copies on the host: dimensions that are contiguous in memory are merged, and the innermost one is
// copied by a loop instantiated for its pair of dtypes.
#include "runtime/tensor/host_copy.h"

#include <cstring>

#include "base/copy_bytes.h"
#include "base/scalar_convert.h"

namespace anyaccel {

namespace {

// Strides in bytes.
using RowLoop = void (*)(char* out, int64_t out_stride, const char* in, int64_t in_stride, int64_t n, DType to,
                         DType from);

template <size_t Size>
void copy_row(char* out, int64_t out_stride, const char* in, int64_t in_stride, int64_t n, DType, DType) {
  if (out_stride == static_cast<int64_t>(Size) && in_stride == static_cast<int64_t>(Size)) {
    copy_bytes(out, in, static_cast<size_t>(n) * Size);
    return;
  }
  for (int64_t i = 0; i < n; ++i) std::memcpy(out + i * out_stride, in + i * in_stride, Size);
}

struct F32 {
  using Bits = float;
  static float load(float v) { return v; }
  static float store(float v) { return v; }
};
struct Bf16 {
  using Bits = uint16_t;
  static float load(uint16_t v) { return bf16_to_float(v); }
  static uint16_t store(float v) { return float_to_bf16(v); }
};
struct Fp16 {
  using Bits = uint16_t;
  static float load(uint16_t v) { return fp16_to_float(v); }
  static uint16_t store(float v) { return float_to_fp16(v); }
};

template <class To, class From>
void convert_row(char* out, int64_t out_stride, const char* in, int64_t in_stride, int64_t n, DType, DType) {
  for (int64_t i = 0; i < n; ++i) {
    const float value = From::load(load_bits<typename From::Bits>(in + i * in_stride));
    store_bits<typename To::Bits>(out + i * out_stride, To::store(value));
  }
}

template <class To>
RowLoop convert_from(DType from) {
  switch (from) {
    case DType::F32: return convert_row<To, F32>;
    case DType::BF16: return convert_row<To, Bf16>;
    case DType::F16: return convert_row<To, Fp16>;
    default: return nullptr;
  }
}

void convert_any_row(char* out, int64_t out_stride, const char* in, int64_t in_stride, int64_t n, DType to,
                     DType from) {
  const bool floating = is_floating(from);
  for (int64_t i = 0; i < n; ++i) {
    const char* p = in + i * in_stride;
    if (floating) {
      store_number(out + i * out_stride, to, load_floating(p, from));
    } else {
      store_number(out + i * out_stride, to, load_integer(p, from));
    }
  }
}

RowLoop choose(DType to, DType from) {
  if (to == from && to != DType::Bool) {
    switch (dtype_size(to)) {
      case 1: return copy_row<1>;
      case 2: return copy_row<2>;
      case 4: return copy_row<4>;
      default: return copy_row<8>;
    }
  }
  RowLoop loop = nullptr;
  if (to == DType::F32) loop = convert_from<F32>(from);
  if (to == DType::BF16) loop = convert_from<Bf16>(from);
  if (to == DType::F16) loop = convert_from<Fp16>(from);
  return loop ? loop : convert_any_row;
}

}  // namespace

void host_copy(const aa_tensor& out, const aa_tensor& in) {
  const auto to = static_cast<DType>(out.dtype);
  const auto from = static_cast<DType>(in.dtype);
  const auto out_size = static_cast<int64_t>(dtype_size(to));
  const auto in_size = static_cast<int64_t>(dtype_size(from));

  struct Dim {
    int64_t n, out, in;  // strides in bytes
  };
  Dim dims[AA_MAX_DIMS];  // innermost first
  int count = 0;
  for (int d = out.ndim - 1; d >= 0; --d) {
    const Dim dim{out.shape[d], out.strides[d] * out_size, in.strides[d] * in_size};
    if (dim.n == 0) return;
    if (dim.n == 1) continue;
    if (count > 0) {
      Dim& inner = dims[count - 1];
      if (dim.out == inner.out * inner.n && dim.in == inner.in * inner.n) {
        inner.n *= dim.n;
        continue;
      }
    }
    dims[count++] = dim;
  }
  if (count == 0) dims[count++] = {1, out_size, in_size};

  const RowLoop loop = choose(to, from);
  auto* out_row = static_cast<char*>(out.data);
  const auto* in_row = static_cast<const char*>(in.data);
  int64_t index[AA_MAX_DIMS] = {};
  for (;;) {
    loop(out_row, dims[0].out, in_row, dims[0].in, dims[0].n, to, from);
    int d = 1;
    for (; d < count; ++d) {
      out_row += dims[d].out;
      in_row += dims[d].in;
      if (++index[d] < dims[d].n) break;
      out_row -= dims[d].out * dims[d].n;
      in_row -= dims[d].in * dims[d].n;
      index[d] = 0;
    }
    if (d >= count) return;
  }
}

void host_store(void* out, int32_t dtype, double value) { store_number(out, static_cast<DType>(dtype), value); }

}  // namespace anyaccel
