// Implements collectives.h: the vendors' libraries of collectives.
#include "accelerators/cuda/libraries/collectives.h"

#include <dlfcn.h>

#include "accelerators/collective_library/communicator.h"
#include "accelerators/cuda/device.h"
#include "accelerators/cuda/libraries/loading.h"
#include "anyaccel/log.h"

namespace anyaccel::cuda {
namespace {

using collectives::absent;
using collectives::LibraryTable;
using collectives::ResultCode;

constexpr ResultCode results[] = {
    {1, AA_INTERNAL},             // ncclUnhandledCudaError
    {2, AA_UNAVAILABLE},          // ncclSystemError: sockets, shared memory
    {3, AA_INTERNAL},             // ncclInternalError
    {4, AA_INVALID_ARGUMENT},     // ncclInvalidArgument
    {5, AA_FAILED_PRECONDITION},  // ncclInvalidUsage: two members on one device, calls in a wrong order
    {6, AA_UNAVAILABLE},          // ncclRemoteError: another member ended
};

// 22809: "2.28.9". Until 2.8 there was one digit less: 2708.
std::string version_text(int version) {
  const int major_unit = version < 10000 ? 1000 : 10000;
  return std::to_string(version / major_unit) + "." + std::to_string(version % major_unit / 100) + "." +
         std::to_string(version % 100);
}

constexpr LibraryTable table_called(const char* name) {
  return {.name = name,
          .names = {.id_create = "ncclGetUniqueId",
                    .join = "ncclCommInitRank",
                    .destroy = "ncclCommDestroy",
                    .all_reduce = "ncclAllReduce",
                    .version = "ncclGetVersion",
                    .error_text = "ncclGetErrorString",
                    .last_error = "ncclGetLastError",
                    .abort = "ncclCommAbort",
                    .async_error = "ncclCommGetAsyncError",
                    .group_begin = "ncclGroupStart",
                    .group_end = "ncclGroupEnd",
                    .reduce = "ncclReduce",
                    .broadcast = "ncclBroadcast",
                    .all_gather = "ncclAllGather",
                    .reduce_scatter = "ncclReduceScatter",
                    .send = "ncclSend",
                    .recv = "ncclRecv"},
          .id_bytes = 128,
          // fp8 is left out: only some versions and devices combine it.
          //        none    bool    u8 i8 i16     i32 i64 f16 bf16 f32 f64 e4m3    e5m2
          .types = {absent, absent, 1, 0, absent, 2, 4, 6, 9, 7, 8, absent, absent},
          .operations = {0, 1, 3, 2, 4},
          .carried = 1,
          .in_progress = 7,
          .results = results,
          .version_text = version_text};
}
constexpr LibraryTable nccl = table_called("nccl");
constexpr LibraryTable rccl = table_called("rccl");

class Binding final : public collectives::DeviceBinding {
 public:
  explicit Binding(DeviceState& state) : state_(state) {}
  void make_current() override { state_.bind(); }
  int number() const override { return state_.facts().ordinal; }

 private:
  DeviceState& state_;
};

struct Opened {
  explicit Opened(Runtime runtime) : library(open_collective_library(runtime, problem)) {}
  std::string problem;
  std::unique_ptr<collectives::Library> library;
};

}  // namespace

std::unique_ptr<collectives::Library> open_collective_library(Runtime runtime, std::string& problem) {
  const LibraryTable& table = runtime == Runtime::hip ? rccl : nccl;
  std::string tried;
  void* handle = open_library(runtime, {runtime == Runtime::hip ? "librccl.so.1" : "libnccl.so.2"}, tried);
  if (!handle) {
    problem = "no " + std::string(table.name) + ": " + tried;
    return nullptr;
  }
  std::string missing;
  auto library = collectives::Library::bind(table, handle, missing);
  if (!library) {
    problem = library_path(handle) + " cannot be used: " + missing;
    dlclose(handle);
    return nullptr;
  }
  log_info(std::string("cuda: collectives by ") + table.name + " " + library->version() + " (" + library_path(handle) +
           ")");
  return library;
}

const collectives::Library& collective_library(Runtime runtime) {
  // Never destroyed: groups that end with the process still use it. A process has one runtime.
  static const Opened& opened = *new Opened(runtime);
  if (!opened.library) throw abi::Failure(AA_UNAVAILABLE, opened.problem);
  return *opened.library;
}

std::unique_ptr<abi::Communicator> Device::comm_create(const void* id, int32_t rank, int32_t size) {
  const collectives::Library& library = collective_library(state_.api().runtime);
  state_.bind_surely();
  return std::make_unique<collectives::LibraryCommunicator>(library, std::make_unique<Binding>(state_), id, rank, size);
}

}  // namespace anyaccel::cuda
