// The table of the CPU's ops.
#include "accelerators/cpu/ops.h"

namespace anyaccel::cpu {

std::span<const OpEntry> op_entries() {
#define ANYACCEL_CPU_ENTRY(op, name, ...) {#name, name, name##_reference},
#define ANYACCEL_CPU_ENTRY_BY_ROW(op, name, base, base_name) {#name, name, base_name##_reference},
  static constexpr OpEntry kEntries[] = {ANYACCEL_OPS(ANYACCEL_CPU_ENTRY)
                                             ANYACCEL_OPS_BY_ROW(ANYACCEL_CPU_ENTRY_BY_ROW)};
#undef ANYACCEL_CPU_ENTRY
#undef ANYACCEL_CPU_ENTRY_BY_ROW
  return kEntries;
}

}  // namespace anyaccel::cpu
