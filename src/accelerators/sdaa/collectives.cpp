// Implements collectives.h: TCCL. Names and the order of arguments are those that Paddle's back end for these devices
// uses; the numbers of types are known from one public source only. TCCL has no average and no groups. Another vendor
// has a library of the same name, which is not distinguished from this one.
#include "accelerators/sdaa/collectives.h"

#include "accelerators/queue_runtime/collectives.h"
#include "accelerators/sdaa/library_search.h"

namespace anyaccel::sdaa {

using collectives::absent;

constexpr collectives::LibraryTable tccl_table{
    .name = "tccl",
    .names = {.id_create = "tcclGetUniqueId",
              .join = "tcclCommInitRank",
              .destroy = "tcclCommDestroy",
              .all_reduce = "tcclAllReduce",
              .error_text = "tcclGetErrorString",
              .reduce = "tcclReduce",
              .broadcast = "tcclBroadcast",
              .all_gather = "tcclAllGather",
              .reduce_scatter = "tcclReduceScatter",
              .send = "tcclSend",
              .recv = "tcclRecv"},
    .id_bytes = 128,
    //        none    bool    u8 i8 i16     i32 i64 f16 bf16 f32 f64 e4m3    e5m2
    .types = {absent, absent, 1, 0, absent, 2, 6, 8, 9, 4, 5, absent, absent},
    .operations = {0, 1, 3, 2, absent},
    .carried = 1};

const collectives::Library& collective_library() {
  static auto& library = *new queue_runtime::CollectiveLibrary(tccl_table, library_search(), "libtccl.so");
  return library.get();
}

}  // namespace anyaccel::sdaa
