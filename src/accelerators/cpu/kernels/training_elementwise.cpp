// The ops of training that work element by element: dropout and its gradient, the gradients of activations and of gated ones,
// scaled_add and multiply.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "accelerators/cpu/kernels/elementwise_plan.h"
#include "accelerators/cpu/kernels/parallel.h"
#include "accelerators/cpu/kernels/rows.h"
#include "accelerators/cpu/kernels/scratch.h"
#include "accelerators/cpu/ops.h"
#include "anyaccel/philox.h"
#include "base/scalar_convert.h"
#include "base/simd/dispatch.h"
#include "runtime/ops/op_params.h"

#ifndef AA_KERNEL_BATCH
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "accelerators/cpu/kernels/training_elementwise.cpp"
#include "hwy/foreach_target.h"
#endif
#include "base/simd/highway.h"
// After highway.h
#include "accelerators/cpu/kernels/activation-inl.h"
#include "accelerators/cpu/kernels/philox-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

// The derivatives of the functions of activation-inl.h.
struct SiluSlope {
  HWY_INLINE FloatVec operator()(FloatVec x) const {
    const auto bounded = at_most(104.0f, at_least(-104.0f, x));
    const auto s = Sigmoid()(bounded);
    return hn::Mul(s, hn::MulAdd(bounded, hn::Sub(constant(1.0f), s), constant(1.0f)));
  }
};

struct GeluSlope {
  HWY_INLINE FloatVec operator()(FloatVec x) const {
    // The distribution function of the normal distribution at x, plus x times its density.
    const auto bounded = at_most(20.0f, at_least(-20.0f, x));
    const auto magnitude = hn::Abs(bounded);
    const auto z = hn::Mul(magnitude, constant(0.70710678f));
    const auto t = hn::Div(constant(1.0f), hn::MulAdd(z, constant(0.5f), constant(1.0f)));
    const auto half_square = hn::Mul(hn::Mul(magnitude, constant(0.5f)), magnitude);
    const auto tail = hn::Mul(hn::Mul(t, constant(0.5f)), exp(hn::Sub(erfc_exponent(t), half_square)));
    const auto below = hn::IfThenElse(hn::Lt(bounded, constant(0.0f)), tail, hn::Sub(constant(1.0f), tail));
    const auto density = hn::Mul(exp(hn::Neg(half_square)), constant(0.39894228f));
    return hn::MulAdd(bounded, density, below);
  }
};

struct GeluTanhSlope {
  HWY_INLINE FloatVec operator()(FloatVec x) const {
    // The derivative of x sigmoid(2u).
    const auto bounded = at_most(20.0f, at_least(-20.0f, x));
    const auto square = hn::Mul(bounded, bounded);
    const auto u = hn::MulAdd(hn::Mul(square, bounded), constant(0.044715f), bounded);
    const auto s = Sigmoid()(hn::Mul(u, constant(1.59576912f)));
    const auto inner = hn::MulAdd(square, constant(0.21406859f), constant(1.59576912f));
    return hn::MulAdd(hn::Mul(bounded, inner), hn::Mul(s, hn::Sub(constant(1.0f), s)), s);
  }
};

struct ReluSlope {
  HWY_INLINE FloatVec operator()(FloatVec x) const {
    const auto slope = hn::IfThenElse(hn::Gt(x, constant(0.0f)), constant(1.0f), constant(0.0f));
    return hn::IfThenElse(hn::IsNaN(x), x, slope);
  }
};

struct SigmoidSlope {
  HWY_INLINE FloatVec operator()(FloatVec x) const {
    const auto s = Sigmoid()(x);
    return hn::Mul(s, hn::Sub(constant(1.0f), s));
  }
};

struct TanhSlope {
  HWY_INLINE FloatVec operator()(FloatVec x) const {
    const auto t = Tanh()(x);
    return hn::NegMulAdd(t, t, constant(1.0f));
  }
};

// Calls function(slope) with the functor of an aa_activation.
template <class Function>
HWY_INLINE void with_slope(int kind, Function function) {
  switch (kind) {
    case AA_ACTIVATION_SILU: return function(SiluSlope());
    case AA_ACTIVATION_GELU: return function(GeluSlope());
    case AA_ACTIVATION_GELU_TANH: return function(GeluTanhSlope());
    case AA_ACTIVATION_RELU: return function(ReluSlope());
    case AA_ACTIVATION_SIGMOID: return function(SigmoidSlope());
    default: return function(TanhSlope());
  }
}

// out = function(a, b) for n elements; `out` may be one of the inputs. `b` may be absent, and is 0 then.
template <class Function>
HWY_INLINE void map_piece(const Row& out, const Row& left, const Row& right, int64_t n, Function function) {
  float* buffer = scratch<float>(Scratch::Row0, kElementwiseChunk + kLanes);
  float* other = scratch<float>(Scratch::Row1, kElementwiseChunk + kLanes);
  const float* a = row_floats(left, 0, n, buffer);
  const float* b = right.dtype == DType::None ? nullptr : row_floats(right, 0, n, other);
  float* to = row_target(out, 0, buffer);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    hn::StoreU(function(hn::LoadU(kFloats, a + i), b ? hn::LoadU(kFloats, b + i) : hn::Zero(kFloats)), kFloats, to + i);
  }
  if (i < n) {
    store_part(function(load_part(a + i, n - i), b ? load_part(b + i, n - i) : hn::Zero(kFloats)), to + i, n - i);
  }
  write_row(out, 0, n, to);
}

void slope_piece(const Row& dx, const Row& x, const Row& dy, int kind, int64_t n) {
  with_slope(kind, [&](auto slope) HWY_ATTR {
    map_piece(dx, x, dy, n, [&](FloatVec a, FloatVec b) HWY_ATTR { return hn::Mul(slope(a), b); });
  });
}

// Calls function(activation, slope) with the functors of an aa_activation.
template <class Function>
HWY_INLINE void with_activation_and_slope(int kind, Function function) {
  switch (kind) {
    case AA_ACTIVATION_SILU: return function(Silu(), SiluSlope());
    case AA_ACTIVATION_GELU: return function(Gelu(), GeluSlope());
    case AA_ACTIVATION_GELU_TANH: return function(GeluTanh(), GeluTanhSlope());
    case AA_ACTIVATION_RELU: return function(Relu(), ReluSlope());
    case AA_ACTIVATION_SIGMOID: return function(Sigmoid(), SigmoidSlope());
    default: return function(Tanh(), TanhSlope());
  }
}

// The gradients of activation(gate) * up, and that product unless `out` is absent. Everything is read before anything
// is written, since outputs may be inputs.
void gated_slope_piece(const Row& dgate, const Row& dup, const Row& out, const Row& gate, const Row& up, const Row& dy,
                       int kind, int64_t n) {
  float* g = scratch<float>(Scratch::Row0, kElementwiseChunk + kLanes);
  float* u = scratch<float>(Scratch::Row1, kElementwiseChunk + kLanes);
  float* d = scratch<float>(Scratch::Row2, kElementwiseChunk + kLanes);
  read_row(gate, 0, n, g);
  read_row(up, 0, n, u);
  read_row(dy, 0, n, d);
  std::fill_n(g + n, kLanes, 0.0f);
  std::fill_n(u + n, kLanes, 0.0f);
  std::fill_n(d + n, kLanes, 0.0f);
  with_activation_and_slope(kind, [&](auto activation, auto slope) HWY_ATTR {
    for (int64_t i = 0; i < n; i += kLanes) {
      const auto vg = hn::LoadU(kFloats, g + i), vu = hn::LoadU(kFloats, u + i), vd = hn::LoadU(kFloats, d + i);
      const auto value = activation(vg);
      hn::StoreU(hn::Mul(hn::Mul(vd, vu), slope(vg)), kFloats, g + i);
      hn::StoreU(hn::Mul(value, vu), kFloats, u + i);
      hn::StoreU(hn::Mul(value, vd), kFloats, d + i);
    }
  });
  write_row(dgate, 0, n, g);
  write_row(dup, 0, n, d);
  if (out.dtype != DType::None) write_row(out, 0, n, u);
}

void scaled_add_piece(const Row& out, const Row& left, const Row& right, float alpha, float beta, int64_t n) {
  const auto fa = hn::Set(kFloats, alpha), fb = hn::Set(kFloats, beta);
  map_piece(out, left, right, n, [&](FloatVec a, FloatVec b) HWY_ATTR { return hn::MulAdd(b, fb, hn::Mul(a, fa)); });
}

void scale_piece(const Row& out, const Row& x, float alpha, int64_t n) {
  const auto f = hn::Set(kFloats, alpha);
  map_piece(out, x, Row{}, n, [&](FloatVec a, FloatVec) HWY_ATTR { return hn::Mul(a, f); });
}

void multiply_piece(const Row& out, const Row& left, const Row& right, int64_t n) {
  map_piece(out, left, right, n, [&](FloatVec a, FloatVec b) HWY_ATTR { return hn::Mul(a, b); });
}

// to[i] = kept[i] ? x[i] * scale : 0.
void mask_floats(const float* x, const uint8_t* kept, int64_t n, float scale, float* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = kept[i] != 0 ? x[i] * scale : 0.0f;
}

// kept[i] = 1 where the upper 24 bits of word i are at least `limit`.
void words_kept(const uint32_t* words, uint32_t limit, int64_t n, uint8_t* kept) {
  for (int64_t i = 0; i < n; ++i) kept[i] = (words[i] >> 8) >= limit ? 1 : 0;
}

void dropout_words(uint64_t seed, uint64_t first, int64_t counters, uint32_t* words) {
  philox_fill(seed, first, counters, words);
}

void read_piece(const Row& row, int64_t begin, int64_t n, float* to) { read_row(row, begin, n, to); }
void write_piece(const Row& row, int64_t begin, int64_t n, const float* from) { write_row(row, begin, n, from); }

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anyaccel::cpu {

AA_CPU_EXPORT(slope_piece);
AA_CPU_EXPORT(gated_slope_piece);
AA_CPU_EXPORT(scaled_add_piece);
AA_CPU_EXPORT(scale_piece);
AA_CPU_EXPORT(multiply_piece);
AA_CPU_EXPORT(mask_floats);
AA_CPU_EXPORT(words_kept);
AA_CPU_EXPORT(dropout_words);
AA_CPU_EXPORT(read_piece);
AA_CPU_EXPORT(write_piece);

namespace {

// The cost of a derivative relative to that of copying an element.
constexpr int64_t kSlopeWork = 4;

// Elements of dropout made at once.
constexpr int64_t kChunk = 1024;

// Returns the limit of words_kept() for a ratio: the smallest 24-bit number that is kept.
uint32_t lowest_kept(float ratio) { return static_cast<uint32_t>(std::ceil(static_cast<double>(ratio) * 0x1p24)); }

// Elements [begin, begin + n) of rows whose element 0 has the row-major number `number`; n <= kChunk.
void drop_piece(const aa_dropout_params& params, const Row& out, const Row& mask, const Row& x, uint64_t number,
                int64_t begin, int64_t n) {
  const uint64_t first = number + static_cast<uint64_t>(begin);
  const auto skip = static_cast<int64_t>(first % 4);
  alignas(64) uint32_t words[kChunk + 4 + 4 * 64];
  AA_CPU_DISPATCH(dropout_words)(params.seed, params.offset + first / 4, (skip + n + 3) / 4, words);
  uint8_t kept[kChunk];
  AA_CPU_DISPATCH(words_kept)(words + skip, lowest_kept(params.ratio), n, kept);
  float values[kChunk];
  AA_CPU_DISPATCH(read_piece)(x, begin, n, values);
  AA_CPU_DISPATCH(mask_floats)(values, kept, n, 1.0f / (1.0f - params.ratio), values);
  AA_CPU_DISPATCH(write_piece)(out, begin, n, values);
  char* const bytes = mask.data + begin * mask.stride;
  if (mask.stride == 1) {
    std::memcpy(bytes, kept, static_cast<size_t>(n));
  } else {
    for (int64_t i = 0; i < n; ++i) bytes[i * mask.stride] = static_cast<char>(kept[i]);
  }
}

}  // namespace

void activation_backward(const aa_op_call& call) {
  const auto piece = AA_CPU_DISPATCH(slope_piece);
  const int kind = params_of<aa_activation_params>(call).kind;
  ElementwisePlan<3>(call.tensors).run(kSlopeWork, [&](const auto& p, int64_t n) { piece(p[0], p[1], p[2], kind, n); });
}

void gated_activation_backward(const aa_op_call& call) {
  const auto piece = AA_CPU_DISPATCH(gated_slope_piece);
  const int kind = params_of<aa_activation_params>(call).kind;
  const aa_tensor* t = call.tensors;
  if (t[2].dtype == AA_DTYPE_NONE) {
    const std::array<aa_tensor, 5> present = {t[0], t[1], t[3], t[4], t[5]};
    ElementwisePlan<5>(present.data()).run(2 * kSlopeWork, [&](const auto& p, int64_t n) {
      piece(p[0], p[1], Row{}, p[2], p[3], p[4], kind, n);
    });
    return;
  }
  ElementwisePlan<6>(t).run(2 * kSlopeWork,
                            [&](const auto& p, int64_t n) { piece(p[0], p[1], p[2], p[3], p[4], p[5], kind, n); });
}

void scaled_add(const aa_op_call& call) {
  const auto& params = params_of<aa_scaled_add_params>(call);
  if (call.tensors[2].dtype == AA_DTYPE_NONE) {
    const auto piece = AA_CPU_DISPATCH(scale_piece);
    ElementwisePlan<2>(call.tensors).run(1, [&](const auto& p, int64_t n) { piece(p[0], p[1], params.alpha, n); });
    return;
  }
  const auto piece = AA_CPU_DISPATCH(scaled_add_piece);
  ElementwisePlan<3>(call.tensors).run(1, [&](const auto& p, int64_t n) {
    piece(p[0], p[1], p[2], params.alpha, params.beta, n);
  });
}

void multiply(const aa_op_call& call) {
  const auto piece = AA_CPU_DISPATCH(multiply_piece);
  ElementwisePlan<3>(call.tensors).run(1, [&](const auto& p, int64_t n) { piece(p[0], p[1], p[2], n); });
}

void apply_mask(const aa_op_call& call) {
  const float scale = params_of<aa_softmax_params>(call).scale;
  const auto read = AA_CPU_DISPATCH(read_piece);
  const auto drop = AA_CPU_DISPATCH(mask_floats);
  const auto write = AA_CPU_DISPATCH(write_piece);
  ElementwisePlan<3>(call.tensors).run(1, [&](const auto& p, int64_t n) {
    float* values = scratch<float>(Scratch::Row0, kElementwiseChunk);
    uint8_t kept[kElementwiseChunk];
    read(p[1], 0, n, values);
    for (int64_t i = 0; i < n; ++i) kept[i] = static_cast<uint8_t>(p[2].data[i * p[2].stride]);
    drop(values, kept, n, scale, values);
    write(p[0], 0, n, values);
  });
}

void dropout(const aa_op_call& call) {
  const auto& params = params_of<aa_dropout_params>(call);
  std::array<aa_tensor, 3> t = {call.tensors[0], call.tensors[1], call.tensors[2]};
  for (aa_tensor& tensor : t) {
    if (tensor.ndim > 0) continue;
    tensor.ndim = 1;
    tensor.shape[0] = tensor.strides[0] = 1;
  }
  const Rows out(t[0]), mask(t[1]), x(t[2]);
  const int64_t length = x.length();
  if (length == 0) return;
  const int64_t chunks = (length + kChunk - 1) / kChunk;
  parallel_for(x.count() * chunks, 6 * std::min(length, kChunk), [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      const int64_t r = i / chunks, begin = i % chunks * kChunk;
      drop_piece(params, out.row(r), mask.row(r), x.row(r), static_cast<uint64_t>(r * length), begin,
                 std::min(kChunk, length - begin));
    }
  });
}

}  // namespace anyaccel::cpu
#endif
