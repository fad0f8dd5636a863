// The section of kernels/portable/dialect.h for host C++, which AA_HOST_KERNELS selects when the simulators compile the
// portable kernels. A group's items are fibers; pointers to global memory check and record every access.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "simulators/engine/kernel.h"

using aa_i8 = std::int8_t;
using aa_u8 = std::uint8_t;
using aa_i16 = std::int16_t;
using aa_u16 = std::uint16_t;
using aa_i32 = std::int32_t;
using aa_u32 = std::uint32_t;
using aa_i64 = std::int64_t;
using aa_u64 = std::uint64_t;

#define AA_FN [[maybe_unused]] static inline
#define AA_KERNEL(name, group) static void name
#define AA_HOST_TEXT_(name) #name
#define AA_HOST_TEXT(name) AA_HOST_TEXT_(name)
#define AA_REGISTER(name, group) AA_HOST_REGISTER_(name, group)
#define AA_HOST_REGISTER_(name, group) \
  static const ::sim::KernelRegistration aa_register_##name(AA_HOST_TEXT(name), group, &name);
#define AA_IN(type) ::sim::GlobalPointer<type, false>
#define AA_OUT(type) ::sim::GlobalPointer<type, true>
#define AA_VALUE(type) type
#define AA_AS_IN(type, pointer) (::sim::host_cast<type, false>(pointer))
#define AA_AS_OUT(type, pointer) (::sim::host_cast<type, true>(pointer))
#define AA_RESTRICT
#define AA_LOCAL
#define AA_PRIVATE
#define AA_LOCAL_ARRAY(type, name, count) auto& name = ::sim::host_local_array<type[count]>()
#define AA_GROUP_ID(dimension) (::sim::launch_state().group[dimension])
#define AA_GROUP_COUNT(dimension) (::sim::launch_state().groups[dimension])
#define AA_LOCAL_ID (static_cast<aa_i32>(::sim::GroupRunner::current().item()))
#define AA_BARRIER() ::sim::GroupRunner::current().barrier()
#define AA_PRAGMA_UNROLL
#define AA_PRAGMA_NO_UNROLL

namespace sim {

template <typename T, bool kWrite, typename Pointer>
GlobalPointer<T, kWrite> host_cast(const Pointer& pointer) {
  return {pointer.at(), pointer.memory()};
}
template <typename Array>
Array& host_local_array() {
  static_assert(sizeof(Array) <= kTunedStaticLocalBytes, "a local array larger than any device allows");
  return *static_cast<Array*>(GroupRunner::current().local_array(sizeof(Array), 16));
}
inline std::uint32_t host_bits(float x) {
  std::uint32_t u;
  std::memcpy(&u, &x, sizeof u);
  return u;
}
inline float host_float(std::uint32_t u) {
  float x;
  std::memcpy(&x, &u, sizeof x);
  return x;
}
inline std::uint64_t host_bits_f64(double x) {
  std::uint64_t u;
  std::memcpy(&u, &x, sizeof u);
  return u;
}
// Items of a group take turns on one thread, so an addition that contains no barrier is atomic.
template <typename T, typename V>
T host_atomic_add_local(T* pointer, V value) {
  const T old = *pointer;
  *pointer = static_cast<T>(old + value);
  return old;
}

}  // namespace sim

#define aa_bits(x) ::sim::host_bits(static_cast<float>(x))
#define aa_float(u) ::sim::host_float(static_cast<aa_u32>(u))
#define aa_isnan(x) std::isnan(static_cast<float>(x))
#define aa_exp(x) std::exp(static_cast<float>(x))
#define aa_log(x) std::log(static_cast<float>(x))
#define aa_sqrt(x) std::sqrt(static_cast<float>(x))
#define aa_tanh(x) std::tanh(static_cast<float>(x))
#define aa_erf(x) std::erf(static_cast<float>(x))
#define aa_sin(x) std::sin(static_cast<float>(x))
#define aa_cos(x) std::cos(static_cast<float>(x))
#define aa_fabs(x) std::fabs(static_cast<float>(x))
#define aa_floor(x) std::floor(static_cast<float>(x))
#define aa_rint(x) std::nearbyint(static_cast<float>(x))
#define aa_fma(a, b, c) std::fma(static_cast<float>(a), static_cast<float>(b), static_cast<float>(c))
#define aa_fmin(a, b) std::fmin(static_cast<float>(a), static_cast<float>(b))
#define aa_fmax(a, b) std::fmax(static_cast<float>(a), static_cast<float>(b))
#define aa_ldexp(x, n) std::ldexp(static_cast<float>(x), static_cast<int>(n))
#define aa_mulhi(a, b) static_cast<aa_u32>((static_cast<aa_u64>(a) * static_cast<aa_u64>(b)) >> 32)
#define aa_atomic_add_local(pointer, value) ::sim::host_atomic_add_local(pointer, value)
#define aa_log_f64(x) std::log(static_cast<double>(x))
#define aa_sqrt_f64(x) std::sqrt(static_cast<double>(x))
#define aa_sin_f64(x) std::sin(static_cast<double>(x))
#define aa_cos_f64(x) std::cos(static_cast<double>(x))
#define aa_bits_f64(x) ::sim::host_bits_f64(static_cast<double>(x))

AA_FN float aa_load_f16(AA_IN(aa_u16) p, aa_i64 i) {
  const aa_u16 bits = p[i];
  _Float16 half;
  std::memcpy(&half, &bits, sizeof half);
  return static_cast<float>(half);
}
AA_FN void aa_store_f16(AA_OUT(aa_u16) p, aa_i64 i, float v) {
  const auto half = static_cast<_Float16>(v);
  aa_u16 bits;
  std::memcpy(&bits, &half, sizeof bits);
  p[i] = bits;
}

#define AA_HAS_DENORMALS
#define aa_subgroup_sum(v) ::sim::GroupRunner::current().subgroup_sum(v)
#define aa_subgroup_max(v) ::sim::GroupRunner::current().subgroup_max(v)
