/* The interface from plain C11: it compiles pedantically, its layout is the same as from C++, and a table can be
 * written with designated initializers. Exits 0 when all is well.
 */
#include <stddef.h>

#include "abi/abi_offsets.h"
#include "anyaccel/abi/base.h"
#include "anyaccel/abi/ceilings.h"
#include "anyaccel/abi/collectives.h"
#include "anyaccel/abi/compiler.h"
#include "anyaccel/abi/driver.h"
#include "anyaccel/abi/fault.h"
#include "anyaccel/abi/files.h"
#include "anyaccel/abi/graph.h"
#include "anyaccel/abi/host_code.h"
#include "anyaccel/abi/host_memory.h"
#include "anyaccel/abi/lazy.h"
#include "anyaccel/abi/memory_kinds.h"
#include "anyaccel/abi/op_library.h"
#include "anyaccel/abi/ops.h"
#include "anyaccel/abi/optimizer_ops.h"
#include "anyaccel/abi/peer.h"
#include "anyaccel/abi/profiler.h"

#define PIN_OFFSET(type, member, offset) _Static_assert(offsetof(type, member) == (offset), #type "." #member " moved");
ANYACCEL_ABI_MEMBERS(PIN_OFFSET)
#define PIN_SIZE(type, size) _Static_assert(sizeof(type) == (size), #type " has another size");
ANYACCEL_ABI_STRUCTS(PIN_SIZE)

static aa_status* probe(void* self, aa_probe* out_probe) {
  (void)self;
  out_probe->state = AA_PROBE_ABSENT;
  out_probe->device_count = 0;
  out_probe->reason[0] = '\0';
  return NULL;
}

static const aa_driver driver = {
    .struct_size = sizeof(aa_driver),
    .abi_version = AA_ABI_CURRENT,
    .name = "c11",
    .probe = probe,
};

static const aa_driver* query(uint32_t host_abi_min, uint32_t host_abi_max, const aa_host* host) {
  (void)host;
  return host_abi_min <= AA_ABI_CURRENT && AA_ABI_CURRENT <= host_abi_max ? &driver : NULL;
}

int main(void) {
  aa_driver_query_fn function = query;
  const aa_driver* table = function(AA_ABI_VERSION(2, 0), AA_ABI_CURRENT, NULL);
  aa_probe out_probe = {.struct_size = sizeof(aa_probe), .state = AA_PROBE_USABLE};
  if (!table || table->probe(table->self, &out_probe) != NULL || out_probe.state != AA_PROBE_ABSENT) return 1;
  if (AA_HAS_MEMBER(table, aa_driver, kernel_launch) == 0 || table->kernel_launch != NULL) return 2;
  return 0;
}
