// See instruction_set.h.
#include "comm/shared_memory/instruction_set.h"

#include <cstdlib>
#include <string_view>

#include "hwy/targets.h"

namespace anyaccel::comm {

void choose_instruction_set() noexcept {
  if (hwy::GetChosenTarget().IsInitialized()) return;
  const char* asked = std::getenv("ANYACCEL_CPU_ISA");
  const std::string_view most = asked ? asked : "";
  int64_t allowed = HWY_STATIC_TARGET;
  if (most != "baseline") allowed |= HWY_AVX2;
  if (most != "baseline" && most != "avx2") allowed |= HWY_AVX3;
  hwy::GetChosenTarget().Update((hwy::SupportedTargets() & allowed) | HWY_STATIC_TARGET);
}

}  // namespace anyaccel::comm
