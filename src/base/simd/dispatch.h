// Compiles a kernel file for several instruction sets and calls the right version.
//
// Include this file before any header of Highway, and write a kernel file like this (name.cpp):
//
//   #include "base/simd/dispatch.h"
//   #ifndef AA_KERNEL_BATCH  // set where src/CMakeLists.txt compiles several files at once
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "accelerators/cpu/kernels/name.cpp"  // this very file, compiled once per set
//   #include "hwy/foreach_target.h"
//   #endif
//   #include "base/simd/highway.h"
//
//   HWY_BEFORE_NAMESPACE();
//   namespace anyaccel::cpu::HWY_NAMESPACE {
//   void add_rows(const aa_op_call& call) { ... }  // hn::ScalableTag<float> and so on
//   }  // namespace anyaccel::cpu::HWY_NAMESPACE
//   HWY_AFTER_NAMESPACE();
//
//   #if HWY_ONCE
//   namespace anyaccel::cpu {
//   AA_CPU_EXPORT(add_rows);
//   void add(const aa_op_call& call) { AA_CPU_DISPATCH(add_rows)(call); }
//   }  // namespace anyaccel::cpu
//   #endif
//
// Standard headers and project headers must be included before HWY_BEFORE_NAMESPACE(), so that their inline functions
// are compiled for the baseline only. Keep vector code out of lambdas that a template of such a header calls
// (WorkerPool::run): let the lambda call a function of HWY_NAMESPACE, so that it surely has the instruction set.
//
// Highway's sets stand for cpu::Isa: AVX3 is Avx512 and Amx (whose kernels use base/simd/amx.h), AVX2 is Avx2, and SCALAR
// (one lane), compiled for plain x86-64, is Baseline. cpu::set_isa() governs them all.
#pragma once

#include "base/simd/cpu_features.h"

#if defined(HIGHWAY_HWY_DETECT_TARGETS_H_)
#error "include base/simd/dispatch.h before the headers of Highway"
#endif
// Of the sets for x86, whose bits are 0 to 14, those named here are used. Later versions of Highway have more, for which every kernel would
// be compiled without ever being selected, and a baseline of 128 bits, which takes an infinite fp16 for 65536 (1.0.4 to 1.2).
#if defined(AA_WITHOUT_AVX512)  // some builds with a sanitizer (src/CMakeLists.txt)
#define HWY_DISABLED_TARGETS (0x7fff & ~HWY_AVX2)
#else
#define HWY_DISABLED_TARGETS (0x7fff & ~(HWY_AVX2 | HWY_AVX3))
#endif
#define HWY_BROKEN_EMU128 1  // the baseline has one lane, whatever the compiler

// Makes the versions of a function selectable, and selects the one for the instruction set in use. They take the place of
// HWY_EXPORT and HWY_DYNAMIC_DISPATCH, which need Highway's shared library: that measures the resolution of the clock when
// it is loaded, which takes 4 ms.
#if defined(HWY_COMPILE_ONLY_STATIC)  // by tools that read a file once: the other versions are not there
#define AA_CPU_EXPORT(function)                                                                       \
  constexpr decltype(&HWY_STATIC_DISPATCH(function)) function##_versions[4] = {                       \
      &HWY_STATIC_DISPATCH(function), &HWY_STATIC_DISPATCH(function), &HWY_STATIC_DISPATCH(function), \
      &HWY_STATIC_DISPATCH(function)}
#elif defined(AA_WITHOUT_AVX512)
#define AA_CPU_EXPORT(function)                                                                                \
  constexpr decltype(&HWY_STATIC_DISPATCH(function)) function##_versions[4] = {&HWY_STATIC_DISPATCH(function), \
                                                                               &N_AVX2::function}
#else
#define AA_CPU_EXPORT(function)                                                \
  constexpr decltype(&HWY_STATIC_DISPATCH(function)) function##_versions[] = { \
      &HWY_STATIC_DISPATCH(function), &N_AVX2::function, &N_AVX3::function, &N_AVX3::function}
#endif
#define AA_CPU_DISPATCH(function) (*function##_versions[static_cast<int>(::anyaccel::cpu::isa())])

// Unrolls a loop over accumulators wholly, so that they live in registers.
#if defined(__clang__)
#define AA_UNROLL _Pragma("unroll")
#else
#define AA_UNROLL _Pragma("GCC unroll 32")
#endif
