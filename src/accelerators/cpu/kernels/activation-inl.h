// The activation functions on vectors of float, each within a few ulp of the exact value over the whole range. Included
// after base/simd/highway.h, once per instruction set.
#include "accelerators/cpu/kernels/vector-inl.h"
#include "anyaccel/abi/ops.h"

#if defined(ANYACCEL_CPU_KERNELS_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_ACTIVATION_INL_H_
#undef ANYACCEL_CPU_KERNELS_ACTIVATION_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_ACTIVATION_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

HWY_INLINE FloatVec constant(float value) { return hn::Set(kFloats, value); }

struct Sigmoid {
  HWY_INLINE FloatVec operator()(FloatVec x) const {
    return hn::Div(constant(1.0f), hn::Add(constant(1.0f), exp(hn::Neg(x))));
  }
};

struct Silu {
  HWY_INLINE FloatVec operator()(FloatVec x) const {
    // -infinity / infinity would be a NaN; below -104 the result is 0 in binary32 anyway.
    const auto bounded = at_least(-104.0f, x);
    return hn::Div(bounded, hn::Add(constant(1.0f), exp(hn::Neg(bounded))));
  }
};

struct Relu {
  HWY_INLINE FloatVec operator()(FloatVec x) const { return at_least(0.0f, x); }
};

struct Tanh {
  HWY_INLINE FloatVec operator()(FloatVec x) const {
    const auto magnitude = hn::Abs(x);
    // Near zero the odd polynomial of Cephes tanhf, elsewhere 1 - 2 / (e^2|x| + 1).
    const auto z = hn::Mul(x, x);
    auto p = constant(-5.70498872745e-3f);
    p = hn::MulAdd(p, z, constant(2.06390887954e-2f));
    p = hn::MulAdd(p, z, constant(-5.37397155531e-2f));
    p = hn::MulAdd(p, z, constant(1.33314422036e-1f));
    p = hn::MulAdd(p, z, constant(-3.33332819422e-1f));
    const auto small = hn::MulAdd(hn::Mul(p, z), x, x);
    const auto e = exp(hn::Add(magnitude, magnitude));
    const auto large = hn::Sub(constant(1.0f), hn::Div(constant(2.0f), hn::Add(e, constant(1.0f))));
    return hn::IfThenElse(hn::Lt(magnitude, constant(0.625f)), small, hn::CopySign(large, x));
  }
};

// erfc(z) = t e^(this - z^2) with t = 1 / (1 + z/2), z >= 0: the Chebyshev fit of Numerical Recipes (section 6.2), relative
// error below 1.2e-7.
HWY_INLINE FloatVec erfc_exponent(FloatVec t) {
  auto p = constant(0.17087277f);
  p = hn::MulAdd(p, t, constant(-0.82215223f));
  p = hn::MulAdd(p, t, constant(1.48851587f));
  p = hn::MulAdd(p, t, constant(-1.13520398f));
  p = hn::MulAdd(p, t, constant(0.27886807f));
  p = hn::MulAdd(p, t, constant(-0.18628806f));
  p = hn::MulAdd(p, t, constant(0.09678418f));
  p = hn::MulAdd(p, t, constant(0.37409196f));
  p = hn::MulAdd(p, t, constant(1.00002368f));
  p = hn::MulAdd(p, t, constant(-1.26551223f));
  return p;
}

struct Gelu {
  HWY_INLINE FloatVec operator()(FloatVec x) const {
    // x/2 (1 + erf(x / sqrt 2)) = max(x, 0) - |x|/2 erfc(|x| / sqrt 2), which keeps its precision for negative x.
    const auto magnitude = at_most(20.0f, hn::Abs(x));
    const auto z = hn::Mul(magnitude, constant(0.70710678f));
    const auto t = hn::Div(constant(1.0f), hn::MulAdd(z, constant(0.5f), constant(1.0f)));
    const auto half_square = hn::Mul(hn::Mul(magnitude, constant(0.5f)), magnitude);
    const auto erfc = hn::Mul(t, exp(hn::Sub(erfc_exponent(t), half_square)));
    return hn::NegMulAdd(hn::Mul(magnitude, constant(0.5f)), erfc, at_least(0.0f, x));
  }
};

struct GeluTanh {
  HWY_INLINE FloatVec operator()(FloatVec x) const {
    // x/2 (1 + tanh(u)) = x sigmoid(2u).
    const auto bounded = at_least(-20.0f, x);
    const auto cube = hn::Mul(hn::Mul(bounded, bounded), bounded);
    const auto u = hn::MulAdd(cube, constant(0.044715f), bounded);
    return hn::Div(bounded, hn::Add(constant(1.0f), exp(hn::Mul(u, constant(-1.59576912f)))));
  }
};

// Calls function(activation) with the functor of an aa_activation.
template <class Function>
HWY_INLINE void with_activation(int kind, Function function) {
  switch (kind) {
    case AA_ACTIVATION_SILU: return function(Silu());
    case AA_ACTIVATION_GELU: return function(Gelu());
    case AA_ACTIVATION_GELU_TANH: return function(GeluTanh());
    case AA_ACTIVATION_RELU: return function(Relu());
    case AA_ACTIVATION_SIGMOID: return function(Sigmoid());
    default: return function(Tanh());
  }
}

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
