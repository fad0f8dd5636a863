// Implements collectives.h: HCCL. Names and numbers are from the public sources of CANN's adapter for PyTorch. HCCL has
// no average, no abort, and no groups that all releases support.
#include "accelerators/npu/collectives.h"

#include "accelerators/npu/library_search.h"
#include "accelerators/queue_runtime/collectives.h"

namespace anyaccel::npu {
namespace {

using collectives::absent;

constexpr collectives::ResultCode results[] = {
    {1, AA_INVALID_ARGUMENT},  // a parameter
    {5, AA_UNIMPLEMENTED},     // not supported
    {9, AA_UNAVAILABLE},       // another member did not come in time
    {20, AA_UNAVAILABLE},      // to be tried again
};

}  // namespace

constexpr collectives::LibraryTable hccl_table{.name = "hccl",
                                               .names = {.id_create = "HcclGetRootInfo",
                                                         .join = "HcclCommInitRootInfo",
                                                         .destroy = "HcclCommDestroy",
                                                         .all_reduce = "HcclAllReduce",
                                                         .error_text = "HcclGetErrorString",
                                                         .async_error = "HcclGetCommAsyncError",
                                                         .reduce = "HcclReduce",
                                                         .broadcast = "HcclBroadcast",
                                                         .all_gather = "HcclAllGather",
                                                         .reduce_scatter = "HcclReduceScatter",
                                                         .send = "HcclSend",
                                                         .recv = "HcclRecv"},
                                               .id_bytes = 4108,
                                               .join = collectives::JoinCall::id_by_pointer,
                                               .broadcast = collectives::BroadcastCall::in_place,
                                               //        none    bool    u8 i8 i16 i32 i64 f16 bf16 f32 f64 e4m3    e5m2
                                               .types = {absent, absent, 7, 0, 1, 2, 5, 3, 11, 4, 10, absent, absent},
                                               .operations = {0, 1, 3, 2, absent},
                                               .carried = 7,
                                               .results = results};

const collectives::Library& collective_library() {
  static auto& library = *new queue_runtime::CollectiveLibrary(hccl_table, library_search(), "libhccl.so");
  return library.get();
}

}  // namespace anyaccel::npu
