// Implements collectives.h: CNCL. Names and numbers are those of CNCL 1.25; it has no average and no double precision.
// A process may use an id only once: its members join by one call of cnclInitComms, whose lists name all of them. No member
// knows of the others, so that a process has one.
#include "accelerators/mlu/collectives.h"

#include "accelerators/mlu/library_search.h"
#include "accelerators/queue_runtime/collectives.h"

namespace anyaccel::mlu {
namespace {

using collectives::absent;

constexpr collectives::ResultCode results[] = {{2, AA_INVALID_ARGUMENT}, {9, AA_UNAVAILABLE}};

}  // namespace

constexpr collectives::LibraryTable cncl_table{
    .name = "cncl",
    .names = {.id_create = "cnclGetCliqueId",
              .join = "cnclInitComms",
              .destroy = "cnclFreeComm",
              .all_reduce = "cnclAllReduce",
              .error_text = "cnclGetErrorStr",
              .abort = "cnclAbortComm",
              .async_error = "cnclGetCommAsyncError",
              .group_begin = "cnclGroupStart",
              .group_end = "cnclGroupEnd",
              .reduce = "cnclReduce",
              .broadcast = "cnclBroadcast",
              .all_gather = "cnclAllGather",
              .reduce_scatter = "cnclReduceScatter",
              .send = "cnclSend",
              .recv = "cnclRecv"},
    .id_bytes = 136,
    .join = collectives::JoinCall::lists,
    .async_error = collectives::AsyncErrorCall::as_result,
    .one_member_per_process = true,
    //        none    bool    u8    i8    i16   i32   i64   f16   bf16  f32   f64     e4m3    e5m2
    .types = {absent, absent, 0x30, 0x20, 0x21, 0x22, 0x23, 0x10, 0x11, 0x12, absent, absent, absent},
    .operations = {0, 1, 3, 2, absent},
    .carried = 0x30,
    .in_progress = 6,
    .results = results};

const collectives::Library& collective_library() {
  static auto& library = *new queue_runtime::CollectiveLibrary(cncl_table, library_search(), "libcncl.so");
  return library.get();
}

}  // namespace anyaccel::mlu
