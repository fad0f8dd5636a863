// The conventions of four vendors, of which this project has three, for the library that keeps them (fake_collectives.cpp);
// and a device of host memory.
#pragma once

#include <dlfcn.h>

#include <cstring>
#include <string>

#include "accelerators/collective_library/communicator.h"
#include "accelerators/mlu/collectives.h"
#include "accelerators/npu/collectives.h"
#include "accelerators/sdaa/collectives.h"
#include "this_build.h"

namespace anyaccel::collectives {

inline void* fake_library() {
  static void* const handle =
      dlopen(test::built("tests/accelerators/fake_collectives.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  return handle;
}

inline std::string thousands_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000);
}

// Its members are threads here, which the real one does not allow.
inline const LibraryTable cncl = [] {
  LibraryTable table = mlu::cncl_table;
  table.one_member_per_process = false;
  return table;
}();
inline const LibraryTable& ascend = npu::hccl_table;
inline const LibraryTable& tccl = sdaa::tccl_table;

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
