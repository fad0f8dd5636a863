// The only list of the tables of this folder and their functions: the C++ wrappers of tables (table_calls.hpp), the
// host's stubs and layers, and the conformance suite's counts and tests are generated from it.
//
// X(table, member, need): `need` is required or optional. Without a required function a driver is rejected, and an
// extension counts as absent. The order is that of the headers; a test checks that no function is missing.
#pragma once

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
#include "anyaccel/abi/ops.h"
#include "anyaccel/abi/peer.h"
#include "anyaccel/abi/profiler.h"

#define ANYACCEL_DRIVER_FUNCTIONS(X)         \
  X(aa_driver, probe, required)              \
  X(aa_driver, initialize, required)         \
  X(aa_driver, shutdown, required)           \
  X(aa_driver, query_extension, optional)    \
  X(aa_driver, device_count, required)       \
  X(aa_driver, device_props, required)       \
  X(aa_driver, device_open, required)        \
  X(aa_driver, device_close, required)       \
  X(aa_driver, device_synchronize, required) \
  X(aa_driver, device_memory_info, optional) \
  X(aa_driver, device_native, optional)      \
  X(aa_driver, mem_alloc, required)          \
  X(aa_driver, mem_free, required)           \
  X(aa_driver, mem_query, optional)          \
  X(aa_driver, copy_async, required)         \
  X(aa_driver, fill_async, optional)         \
  X(aa_driver, stream_create, required)      \
  X(aa_driver, stream_destroy, required)     \
  X(aa_driver, stream_query, optional)       \
  X(aa_driver, stream_synchronize, required) \
  X(aa_driver, stream_wait_event, optional)  \
  X(aa_driver, stream_native, optional)      \
  X(aa_driver, stream_host_call, optional)   \
  X(aa_driver, event_create, optional)       \
  X(aa_driver, event_destroy, optional)      \
  X(aa_driver, event_record, optional)       \
  X(aa_driver, event_query, optional)        \
  X(aa_driver, event_synchronize, optional)  \
  X(aa_driver, event_elapsed, optional)      \
  X(aa_driver, module_load, optional)        \
  X(aa_driver, module_unload, optional)      \
  X(aa_driver, kernel_get, optional)         \
  X(aa_driver, kernel_launch, optional)

#define ANYACCEL_GRAPH_FUNCTIONS(X)           \
  X(aa_graph_table, capture_begin, required)  \
  X(aa_graph_table, capture_end, required)    \
  X(aa_graph_table, capture_status, optional) \
  X(aa_graph_table, launch, required)         \
  X(aa_graph_table, node_count, optional)     \
  X(aa_graph_table, destroy, required)

#define ANYACCEL_HOST_MEMORY_FUNCTIONS(X)           \
  X(aa_host_memory_table, register_range, optional) \
  X(aa_host_memory_table, unregister_range, optional)

#define ANYACCEL_OPS_FUNCTIONS(X)        \
  X(aa_ops_table, find, required)        \
  X(aa_ops_table, supports, required)    \
  X(aa_ops_table, enqueue, required)     \
  X(aa_ops_table, packed_size, optional) \
  X(aa_ops_table, pack, optional)        \
  X(aa_ops_table, unpack, optional)      \
  X(aa_ops_table, packed_destroy, optional)

#define ANYACCEL_COMPILER_FUNCTIONS(X)          \
  X(aa_compiler_table, languages, required)     \
  X(aa_compiler_table, fingerprint, required)   \
  X(aa_compiler_table, compile, required)       \
  X(aa_compiler_table, release, required)       \
  X(aa_compiler_table, kernel_tuning, optional) \
  X(aa_compiler_table, dialect, optional)

#define ANYACCEL_PROFILER_FUNCTIONS(X)       \
  X(aa_profiler_table, range_push, optional) \
  X(aa_profiler_table, range_pop, optional)  \
  X(aa_profiler_table, mark, optional)

#define ANYACCEL_COLLECTIVES_FUNCTIONS(X)           \
  X(aa_collectives_table, library, required)        \
  X(aa_collectives_table, id_size, required)        \
  X(aa_collectives_table, id_create, required)      \
  X(aa_collectives_table, comm_create, required)    \
  X(aa_collectives_table, comm_destroy, required)   \
  X(aa_collectives_table, comm_abort, required)     \
  X(aa_collectives_table, async_error, required)    \
  X(aa_collectives_table, group_begin, required)    \
  X(aa_collectives_table, group_end, required)      \
  X(aa_collectives_table, all_reduce, optional)     \
  X(aa_collectives_table, reduce, optional)         \
  X(aa_collectives_table, broadcast, optional)      \
  X(aa_collectives_table, all_gather, optional)     \
  X(aa_collectives_table, reduce_scatter, optional) \
  X(aa_collectives_table, send, optional)           \
  X(aa_collectives_table, recv, optional)

#define ANYACCEL_HOST_CODE_FUNCTIONS(X)    \
  X(aa_host_code_table, target, required)  \
  X(aa_host_code_table, threads, required) \
  X(aa_host_code_table, run, required)

#define ANYACCEL_CEILINGS_FUNCTIONS(X) X(aa_ceilings_table, measure, required)

#define ANYACCEL_LAZY_FUNCTIONS(X)       \
  X(aa_lazy_table, flush, required)      \
  X(aa_lazy_table, step_begin, required) \
  X(aa_lazy_table, step_end, required)

#define ANYACCEL_PEER_FUNCTIONS(X)     \
  X(aa_peer_table, can_copy, required) \
  X(aa_peer_table, copy_async, required)

#define ANYACCEL_MEMORY_KINDS_FUNCTIONS(X)  \
  X(aa_memory_kinds_table, count, required) \
  X(aa_memory_kinds_table, info, required)  \
  X(aa_memory_kinds_table, usage, required)

#define ANYACCEL_FILES_FUNCTIONS(X)              \
  X(aa_files_table, info, required)              \
  X(aa_files_table, memory_register, required)   \
  X(aa_files_table, memory_unregister, required) \
  X(aa_files_table, file_open, required)         \
  X(aa_files_table, file_close, required)        \
  X(aa_files_table, read, required)              \
  X(aa_files_table, write, required)

#define ANYACCEL_FAULT_FUNCTIONS(X)   \
  X(aa_fault_table, inject, required) \
  X(aa_fault_table, executed, required)

#define ANYACCEL_ALL_FUNCTIONS(X)    \
  ANYACCEL_DRIVER_FUNCTIONS(X)       \
  ANYACCEL_GRAPH_FUNCTIONS(X)        \
  ANYACCEL_HOST_MEMORY_FUNCTIONS(X)  \
  ANYACCEL_HOST_CODE_FUNCTIONS(X)    \
  ANYACCEL_OPS_FUNCTIONS(X)          \
  ANYACCEL_COMPILER_FUNCTIONS(X)     \
  ANYACCEL_PROFILER_FUNCTIONS(X)     \
  ANYACCEL_CEILINGS_FUNCTIONS(X)     \
  ANYACCEL_COLLECTIVES_FUNCTIONS(X)  \
  ANYACCEL_LAZY_FUNCTIONS(X)         \
  ANYACCEL_PEER_FUNCTIONS(X)         \
  ANYACCEL_MEMORY_KINDS_FUNCTIONS(X) \
  ANYACCEL_FILES_FUNCTIONS(X)        \
  ANYACCEL_FAULT_FUNCTIONS(X)

// T(member, table, name, version, functions): `member` is its name in the host's structs of tables.
#define ANYACCEL_EXTENSIONS(T)                                                                                 \
  T(graph, aa_graph_table, AA_GRAPH_EXTENSION, AA_GRAPH_VERSION, ANYACCEL_GRAPH_FUNCTIONS)                     \
  T(host_memory, aa_host_memory_table, AA_HOST_MEMORY_EXTENSION, AA_HOST_MEMORY_VERSION,                       \
    ANYACCEL_HOST_MEMORY_FUNCTIONS)                                                                            \
  T(host_code, aa_host_code_table, AA_HOST_CODE_EXTENSION, AA_HOST_CODE_VERSION, ANYACCEL_HOST_CODE_FUNCTIONS) \
  T(ops, aa_ops_table, AA_OPS_EXTENSION, AA_OPS_VERSION, ANYACCEL_OPS_FUNCTIONS)                               \
  T(compiler, aa_compiler_table, AA_COMPILER_EXTENSION, AA_COMPILER_VERSION, ANYACCEL_COMPILER_FUNCTIONS)      \
  T(profiler, aa_profiler_table, AA_PROFILER_EXTENSION, AA_PROFILER_VERSION, ANYACCEL_PROFILER_FUNCTIONS)      \
  T(ceilings, aa_ceilings_table, AA_CEILINGS_EXTENSION, AA_CEILINGS_VERSION, ANYACCEL_CEILINGS_FUNCTIONS)      \
  T(collectives, aa_collectives_table, AA_COLLECTIVES_EXTENSION, AA_COLLECTIVES_VERSION,                       \
    ANYACCEL_COLLECTIVES_FUNCTIONS)                                                                            \
  T(lazy, aa_lazy_table, AA_LAZY_EXTENSION, AA_LAZY_VERSION, ANYACCEL_LAZY_FUNCTIONS)                          \
  T(peer, aa_peer_table, AA_PEER_EXTENSION, AA_PEER_VERSION, ANYACCEL_PEER_FUNCTIONS)                          \
  T(memory_kinds, aa_memory_kinds_table, AA_MEMORY_KINDS_EXTENSION, AA_MEMORY_KINDS_VERSION,                   \
    ANYACCEL_MEMORY_KINDS_FUNCTIONS)                                                                           \
  T(files, aa_files_table, AA_FILES_EXTENSION, AA_FILES_VERSION, ANYACCEL_FILES_FUNCTIONS)                     \
  T(fault, aa_fault_table, AA_FAULT_EXTENSION, AA_FAULT_VERSION, ANYACCEL_FAULT_FUNCTIONS)
