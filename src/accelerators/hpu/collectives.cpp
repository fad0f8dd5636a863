// Implements collectives.h: Habana's HCCL. Names and numbers are from its public sources. An id is 1024 bytes and their
// count. Compared with other vendors' libraries, the numbers of minimum and maximum are swapped.
#include "accelerators/hpu/collectives.h"

#include "accelerators/hpu/library_search.h"
#include "accelerators/queue_runtime/collectives.h"

namespace anyaccel::hpu {
namespace {

using collectives::absent;

constexpr collectives::ResultCode results[] = {
    {1, AA_UNAVAILABLE},          // no device
    {2, AA_UNIMPLEMENTED},        // not supported
    {3, AA_RESOURCE_EXHAUSTED},   // memory
    {4, AA_INTERNAL},             // Synapse failed
    {5, AA_UNAVAILABLE},          // the system
    {6, AA_INTERNAL},             // HCCL itself
    {7, AA_INVALID_ARGUMENT},     // an argument
    {8, AA_FAILED_PRECONDITION},  // calls in a wrong order
    {9, AA_UNAVAILABLE},          // a socket
    {10, AA_UNAVAILABLE},         // the network between hosts
};

}  // namespace

constexpr collectives::LibraryTable hccl_table{.name = "hccl",
                                               .names = {.id_create = "hcclGetUniqueId",
                                                         .join = "hcclCommInitRank",
                                                         .destroy = "hcclCommDestroy",
                                                         .all_reduce = "hcclAllReduce",
                                                         .error_text = "hcclGetErrorString",
                                                         .abort = "hcclCommAbort",
                                                         .async_error = "hcclCommGetAsyncError",
                                                         .group_begin = "hcclGroupStart",
                                                         .group_end = "hcclGroupEnd",
                                                         .reduce = "hcclReduce",
                                                         .broadcast = "hcclBroadcast",
                                                         .all_gather = "hcclAllGather",
                                                         .reduce_scatter = "hcclReduceScatter",
                                                         .send = "hcclSend",
                                                         .recv = "hcclRecv"},
                                               .id_bytes = 1032,
                                               //        none    bool    u8 i8 i16     i32 i64 f16 bf16 f32 f64
                                               .types = {absent, absent, 1, 0, absent, 2, 4, 6, 9, 7, 8,
                                                         //     e4m3    e5m2
                                                         absent, absent},
                                               .operations = {0, 1, 2, 3, 4},
                                               .carried = 1,
                                               .results = results};

const collectives::Library& collective_library() {
  static auto& library = *new queue_runtime::CollectiveLibrary(hccl_table, library_search(), library_name);
  return library.get();
}

}  // namespace anyaccel::hpu
