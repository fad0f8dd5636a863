// The conventions of four vendors whose accelerators this project does not have yet, as their documentation has them, for
// the library that keeps them (fake_collectives.cpp); and a device of host memory.
#pragma once

#include <dlfcn.h>

#include <cstring>
#include <string>

#include "accelerators/collective_library/communicator.h"

namespace anyaccel::collectives {

inline void* fake_library() {
  static void* const handle =
      dlopen(ANYACCEL_BINARY_DIR "/tests/accelerators/fake_collectives.so", RTLD_NOW | RTLD_LOCAL);
  return handle;
}

inline std::string thousands_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000);
}

inline constexpr ResultCode cncl_results[] = {{2, AA_INVALID_ARGUMENT}, {9, AA_UNAVAILABLE}};
inline constexpr LibraryTable cncl{
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
              .broadcast = "cnclBroadcast",
              .send = "cnclSend",
              .recv = "cnclRecv"},
    .id_bytes = 136,
    .join = JoinCall::lists,
    .async_error = AsyncErrorCall::as_result,
    //        none    bool    u8    i8    i16   i32   i64   f16   bf16  f32   f64     e4m3    e5m2
    .types = {absent, absent, 0x30, 0x20, 0x21, 0x22, 0x23, 0x10, 0x11, 0x12, absent, absent, absent},
    .operations = {0, 1, 3, 2, absent},
    .carried = 0x30,
    .in_progress = 6,
    .results = cncl_results};

inline constexpr ResultCode ascend_results[] = {{1, AA_INVALID_ARGUMENT}, {5, AA_UNIMPLEMENTED}};
inline constexpr LibraryTable ascend{.name = "hccl",
                                     .names = {.id_create = "HcclGetRootInfo",
                                               .join = "HcclCommInitRootInfo",
                                               .destroy = "HcclCommDestroy",
                                               .all_reduce = "HcclAllReduce",
                                               .error_text = "HcclGetErrorString",
                                               .async_error = "HcclGetCommAsyncError",
                                               .broadcast = "HcclBroadcast",
                                               .all_gather = "HcclAllGather",
                                               .reduce_scatter = "HcclReduceScatter"},
                                     .id_bytes = 4108,
                                     .join = JoinCall::id_by_pointer,
                                     .broadcast = BroadcastCall::in_place,
                                     .types = {absent, absent, 7, 0, 1, 2, 5, 3, 11, 4, 10, absent, absent},
                                     .operations = {0, 1, 3, 2, absent},
                                     .carried = 7,
                                     .results = ascend_results};

inline constexpr LibraryTable habana{.name = "hccl",
                                     .names = {.id_create = "hcclGetUniqueId",
                                               .join = "hcclCommInitRank",
                                               .destroy = "hcclCommDestroy",
                                               .all_reduce = "hcclAllReduce",
                                               .version = "hcclGetVersion",
                                               .abort = "hcclCommAbort",
                                               .async_error = "hcclGetAsyncError",
                                               .group_begin = "hcclGroupStart",
                                               .group_end = "hcclGroupEnd",
                                               .reduce = "hcclReduce",
                                               .reduce_scatter = "hcclReduceScatter"},
                                     .id_bytes = 1032,
                                     .types = {absent, absent, 1, 0, absent, 2, 4, 6, 9, 7, 8, absent, absent},
                                     .operations = {0, 1, 2, 3, 4},
                                     .carried = 1,
                                     .version_text = thousands_text};

inline constexpr LibraryTable tccl{.name = "tccl",
                                   .names = {.id_create = "tcclGetUniqueId",
                                             .join = "tcclCommInitRank",
                                             .destroy = "tcclCommDestroy",
                                             .all_reduce = "tcclAllReduce"},
                                   .id_bytes = 128,
                                   .types = {absent, absent, 1, 0, absent, 2, 6, 8, 9, 4, 5, absent, absent},
                                   .operations = {0, 1, 3, 2, absent},
                                   .carried = 1};

class HostStream final : public abi::Stream {
 public:
  void copy(const aa_copy& what) override { std::memcpy(what.destination, what.source, what.size); }
  void synchronize() override {}
};

class HostDevice final : public DeviceBinding {
 public:
  explicit HostDevice(int number) : number_(number) {}
  void make_current() override {}
  int number() const override { return number_; }

 private:
  int number_;
};

}  // namespace anyaccel::collectives
