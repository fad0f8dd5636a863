/* The minimal driver with extension tables that an older or careless vendor might give. ANYACCEL_TEST_EXTENSIONS says which:
 *
 *   empty   every table ends after its head
 *   short   every table ends before its last function; the others are there
 *   nulls   every table is of full size, with no function in it
 *   mixed   what the host must have is there, the rest is null
 *
 * A function that is there fails with the code AA_DATA_LOSS, so that it is told from a stub. The memory behind a table is
 * not the table's, and must not be read.
 */
#include <stdlib.h>
#include <string.h>

#define anyaccel_driver_query minimal_driver_query
#include "minimal/minimal.c"
#undef anyaccel_driver_query

#include "anyaccel/abi/ceilings.h"
#include "anyaccel/abi/collectives.h"
#include "anyaccel/abi/compiler.h"
#include "anyaccel/abi/fault.h"
#include "anyaccel/abi/files.h"
#include "anyaccel/abi/graph.h"
#include "anyaccel/abi/host_code.h"
#include "anyaccel/abi/host_memory.h"
#include "anyaccel/abi/lazy.h"
#include "anyaccel/abi/memory_kinds.h"
#include "anyaccel/abi/ops.h"
#include "anyaccel/abi/peer.h"
#include "anyaccel/abi/profiler.h"

/* Stands in for a function of any type: the caller's arguments are not looked at. */
static aa_status* there(void) { return fail(AA_DATA_LOSS, "the function is there"); }

typedef struct table_shape {
  const char* name;
  uint32_t size;
  const char* needed; /* a letter a function: 'x' must be there, '.' may be missing */
} table_shape;

static const table_shape shapes[] = {
    {AA_GRAPH_EXTENSION, sizeof(aa_graph_table), "xx.x.x"},
    {AA_HOST_MEMORY_EXTENSION, sizeof(aa_host_memory_table), ".."},
    {AA_HOST_CODE_EXTENSION, sizeof(aa_host_code_table), "xxx"},
    {AA_OPS_EXTENSION, sizeof(aa_ops_table), "xxx...."},
    {AA_COMPILER_EXTENSION, sizeof(aa_compiler_table), "xxxx.."},
    {AA_PROFILER_EXTENSION, sizeof(aa_profiler_table), "..."},
    {AA_CEILINGS_EXTENSION, sizeof(aa_ceilings_table), "x"},
    {AA_COLLECTIVES_EXTENSION, sizeof(aa_collectives_table), "xxxxxxxxx......."},
    {AA_LAZY_EXTENSION, sizeof(aa_lazy_table), "xxx"},
    {AA_PEER_EXTENSION, sizeof(aa_peer_table), "xx"},
    {AA_MEMORY_KINDS_EXTENSION, sizeof(aa_memory_kinds_table), "xxx"},
    {AA_FILES_EXTENSION, sizeof(aa_files_table), "xxxxxxx"},
    {AA_FAULT_EXTENSION, sizeof(aa_fault_table), "xx"},
};
enum { shape_total = sizeof(shapes) / sizeof(shapes[0]) };

static void* tables[shape_total]; /* kept until the process ends, as the interface asks */

static void* make_table(const table_shape* shape, const char* mode) {
  const uint32_t header = 2 * sizeof(uint32_t) + sizeof(void*), pointer = sizeof(void*), version = 1;
  const uint32_t functions = (shape->size - header) / pointer;
  uint32_t size = shape->size;
  if (strcmp(mode, "empty") == 0) size = header;
  if (strcmp(mode, "short") == 0) size -= pointer;
  char* table = calloc(1, size);
  if (!table) return NULL;
  memcpy(table, &size, sizeof(size));
  memcpy(table + sizeof(size), &version, sizeof(version));
  aa_status* (*const function)(void) = there;
  for (uint32_t i = 0; i < functions && header + (i + 1) * pointer <= size; ++i) {
    const int present = strcmp(mode, "short") == 0 || (strcmp(mode, "mixed") == 0 && shape->needed[i] == 'x');
    if (present) memcpy(table + header + i * pointer, &function, pointer);
  }
  return table;
}

static aa_status* query_extension(void* self, aa_instance* instance, const char* name, uint32_t min_version,
                                  const void** out) {
  (void)self;
  (void)instance;
  const char* mode = getenv("ANYACCEL_TEST_EXTENSIONS");
  for (int i = 0; i < shape_total; ++i) {
    if (strcmp(name, shapes[i].name) != 0 || min_version > 1) continue;
    if (!tables[i]) tables[i] = make_table(&shapes[i], mode ? mode : "empty");
    if (!tables[i]) return fail(AA_RESOURCE_EXHAUSTED, "out of memory");
    *out = tables[i];
    return NULL;
  }
  return fail(AA_UNIMPLEMENTED, "no such extension");
}

__attribute__((visibility("default"))) const aa_driver* anyaccel_driver_query(uint32_t host_abi_min,
                                                                              uint32_t host_abi_max,
                                                                              const aa_host* services);

const aa_driver* anyaccel_driver_query(uint32_t host_abi_min, uint32_t host_abi_max, const aa_host* services) {
  static aa_driver with_extensions;
  const aa_driver* plain = minimal_driver_query(host_abi_min, host_abi_max, services);
  if (!plain) return NULL;
  with_extensions = *plain;
  with_extensions.query_extension = query_extension;
  return &with_extensions;
}
