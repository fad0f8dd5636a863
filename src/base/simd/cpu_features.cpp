// Detects and selects the instruction set.
#include "base/simd/cpu_features.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <string>

#include "anyaccel/error.h"

namespace anyaccel::cpu {
namespace {

constexpr std::array<Isa, 4> kAllIsas = {Isa::Baseline, Isa::Avx2, Isa::Avx512, Isa::Amx};

CpuFeatures detect() noexcept {
  CpuFeatures features;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  // The builtin also checks that the operating system saves the registers.
  __builtin_cpu_init();
  const bool vectors = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                       __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C) && (ecx & bit_AES) &&
                       (ecx & bit_PCLMUL);
  const bool bits = __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                    __get_cpuid(0x80000001, &eax, &ebx, &ecx, &edx) && (ecx & bit_LZCNT);
  features.avx2 = vectors && bits;
  features.avx512 = features.avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
                    __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512vl");
#if defined(AA_WITHOUT_AVX512)
  features.avx512 = false;  // these kernels were not compiled
#endif
  bool reports_avx10 = false;
  if (features.avx512 && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) {
    features.avx512_vbmi = (ecx >> 1) & 1u;
    features.avx512_vnni = (ecx >> 11) & 1u;
    const bool tiles = (edx >> 24) & 1u;
    features.amx_bf16 = tiles && ((edx >> 22) & 1u);
    features.amx_int8 = tiles && ((edx >> 25) & 1u);
    if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx)) {
      features.avx512_bf16 = (eax >> 5) & 1u;
      reports_avx10 = (edx >> 19) & 1u;
    }
  }
  __get_cpuid(0, &eax, &ebx, &ecx, &edx);
  const bool is_amd = ebx == signature_AMD_ebx && ecx == signature_AMD_ecx && edx == signature_AMD_edx;
  const bool is_intel = ebx == signature_INTEL_ebx && ecx == signature_INTEL_ecx && edx == signature_INTEL_edx;
  features.granite_rapids = is_intel && reports_avx10;
  features.fast_bf16_dot = features.avx512_bf16 && is_amd;
  features.fast_bf16 = features.amx_bf16 || features.fast_bf16_dot;
  // Family: bits 8 to 11, plus bits 20 to 27 where these are 15.
  features.zen5 = is_amd && __get_cpuid(1, &eax, &ebx, &ecx, &edx) && ((eax >> 8) & 0xf) + ((eax >> 20) & 0xff) == 0x1a;
  return features;
}

// The kernel gives a process the registers of tiles only when it asks, because they make its signal frames 8 KiB larger.
bool may_use_tiles() noexcept {
  constexpr long kRequestPermission = 0x1023,
                 kTileData = 18;  // ARCH_REQ_XCOMP_PERM and XFEATURE_XTILEDATA of asm/prctl.h
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// -1 until chosen.
std::atomic<int> chosen_isa{-1};

std::string available_names() {
  std::string names;
  for (Isa candidate : kAllIsas) {
    if (!is_isa_available(candidate)) continue;
    if (!names.empty()) names += ", ";
    names += isa_name(candidate);
  }
  return names;
}

Isa initial_isa() {
  const char* asked = std::getenv("ANYACCEL_CPU_ISA");
  if (asked == nullptr || *asked == '\0') {
    for (Isa candidate : {Isa::Amx, Isa::Avx512, Isa::Avx2}) {
      if (is_isa_available(candidate)) return candidate;
    }
    return Isa::Baseline;
  }
  for (Isa candidate : kAllIsas) {
    if (isa_name(candidate) != asked) continue;
    if (is_isa_available(candidate)) return candidate;
    throw InvalidArgument("ANYACCEL_CPU_ISA=" + std::string(asked) +
                          ": this machine does not have that instruction set; it has " + available_names());
  }
  throw InvalidArgument("ANYACCEL_CPU_ISA=" + std::string(asked) +
                        " is not known; expected baseline, avx2, avx512 or amx (available here: " + available_names() +
                        ")");
}

}  // namespace

std::string_view isa_name(Isa isa) noexcept {
  switch (isa) {
    case Isa::Baseline: return "baseline";
    case Isa::Avx2: return "avx2";
    case Isa::Avx512: return "avx512";
    case Isa::Amx: return "amx";
  }
  return "invalid";
}

const CpuFeatures& cpu_features() noexcept {
  static const CpuFeatures features = detect();
  return features;
}

bool is_isa_available(Isa isa) noexcept {
  switch (isa) {
    case Isa::Baseline: return true;
    case Isa::Avx2: return cpu_features().avx2;
    case Isa::Avx512: return cpu_features().avx512;
    case Isa::Amx: {
      const CpuFeatures& features = cpu_features();
      static const bool granted =
          features.avx512_vnni && features.avx512_bf16 && features.amx_bf16 && features.amx_int8 && may_use_tiles();
      return granted;
    }
  }
  return false;
}

Isa isa() {
  const int chosen = chosen_isa.load(std::memory_order_acquire);
  if (chosen >= 0) return static_cast<Isa>(chosen);
  // Runs once; after an exception the next call tries (and reports) again.
  static const bool applied = (chosen_isa.store(static_cast<int>(initial_isa()), std::memory_order_release), true);
  static_cast<void>(applied);
  return static_cast<Isa>(chosen_isa.load(std::memory_order_acquire));
}

void set_isa(Isa isa) {
  if (!is_isa_available(isa)) {
    throw InvalidArgument("instruction set '" + std::string(isa_name(isa)) +
                          "' is not available on this machine; it has " + available_names());
  }
  anyaccel::cpu::isa();  // makes the initial choice first, so that it cannot override this one
  chosen_isa.store(static_cast<int>(isa), std::memory_order_release);
}

bool is_bf16_supported() { return true; }
bool is_fp16_supported() { return isa() >= Isa::Avx2; }

}  // namespace anyaccel::cpu
