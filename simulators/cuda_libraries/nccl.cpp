// Simulates NVIDIA's collectives library (libnccl.so.2), as version 2.28: the work runs in stream order on the
// simulated driver. Ranks that do not do the same, or wait for one that never comes, are reported; so are buffers and
// streams of another device, overlaps that are not in place, and communicators used after their end.
// https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api.html
#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "simulators/cuda/facts.h"
#include "simulators/libraries/communicator.h"

namespace sim_library {

enum ncclResult_t : int {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
};
struct ncclUniqueId {
  char internal[128];
};
struct ncclConfig_t {  // what comes after these is not read
  std::size_t size;
  unsigned magic, version;
  int blocking;
};
using ncclComm_t = void*;
using cudaStream_t = void*;

const CollectiveVendor& collective_vendor() {
  static constexpr CollectiveVendor vendor = {
      "NCCL communicator",
      {ncclUnhandledCudaError, ncclInvalidArgument, ncclInvalidUsage, ncclRemoteError},
      [](int type) { return type >= kInt8 && type <= kE5m2 ? type : -1; },
      [](int reduction) { return reduction >= kSum && reduction <= kAverage ? reduction : -1; }};
  return vendor;
}

namespace {

constexpr char kIdText[] = "nccl_sim_";
constexpr unsigned kConfigMagic = 0xcafebeef;

template <typename... Args>
int cu(const char* name, Args... args) {
  static void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  auto* function = reinterpret_cast<int (*)(Args...)>(::dlsym(library, name));
  return function == nullptr ? 500 : function(args...);
}

ncclResult_t result_of(int result) { return static_cast<ncclResult_t>(result); }

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  if (version == nullptr) return ncclInvalidArgument;
  *version = 22809;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError: return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument: return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
  }
  return "unknown result code";
}
const char* ncclGetLastError(ncclComm_t) { return last_collective_error.c_str(); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (id == nullptr) return ncclInvalidArgument;
  if (!make_id(id->internal, sizeof id->internal, kIdText)) return ncclSystemError;
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* out, int ranks, ncclUniqueId id, int rank, const ncclConfig_t* config) {
  const char* function = "ncclCommInitRankConfig";
  if (config != nullptr && (config->magic != kConfigMagic || config->size < sizeof(ncclConfig_t))) {
    return result_of(
        note(refuse(function, ncclInvalidArgument, "bad-argument", "the configuration was not initialized")));
  }
  if (!is_id(id.internal, sizeof id.internal, kIdText)) {
    return result_of(
        note(refuse(function, ncclInvalidArgument, "bad-argument", "the unique id was not made by ncclGetUniqueId")));
  }
  int device = -1;
  void* context = nullptr;
  if (!current_place(&device, &context, function)) return result_of(note(ncclUnhandledCudaError));
  return result_of(start_communicator(out, ranks, id.internal, rank, device, context, nullptr, function));
}
ncclResult_t ncclCommInitRank(ncclComm_t* out, int ranks, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(out, ranks, id, rank, nullptr);
}

ncclResult_t ncclCommInitAll(ncclComm_t* out, int count, const int* devices) {
  if (out == nullptr || count < 1 || driver() == nullptr) return ncclInvalidArgument;
  const std::vector<int> visible = sim::cuda::visible_devices(settings().devices);
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  begin_group();
  for (int rank = 0; rank < count; ++rank) {
    const int ordinal = devices == nullptr ? rank : devices[rank];
    void* context = nullptr;
    if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= visible.size()) {
      note(refuse(__func__, ncclInvalidArgument, "bad-argument", "there is no such device"));
    } else if (cu("cuDevicePrimaryCtxRetain", &context, ordinal) != 0) {
      note(ncclUnhandledCudaError);
    } else {
      start_communicator(
          &out[rank], count, id.internal, rank, visible[static_cast<std::size_t>(ordinal)], context,
          [ordinal] { cu("cuDevicePrimaryCtxRelease_v2", ordinal); }, __func__);
    }
  }
  return result_of(finish_group());
}

// Those of one color become a communicator of their own, in the order of their keys.
ncclResult_t ncclCommSplit(ncclComm_t handle, int color, int key, ncclComm_t* out, const ncclConfig_t*) {
  const auto parent = communicators().get(handle, __func__);
  if (parent == nullptr || out == nullptr) return result_of(note(ncclInvalidArgument));
  if (in_group())
    return result_of(
        note(refuse(__func__, ncclInvalidUsage, "bad-argument", "the simulator splits outside of groups")));
  *out = nullptr;
  Channel& channel = *parent->channel;
  Rendezvous& at = *channel.rendezvous;
  std::set<std::pair<int, int>> members;  // key, rank
  char name[128] = {};                    // of the rendezvous, which the first member makes
  {
    const std::lock_guard lock(channel.mutex);
    const int mine[2] = {color, key};
    std::memcpy(at.buffer(at.rank()), mine, sizeof mine);
    if (!at.barrier(__func__)) return result_of(refuse(__func__, ncclRemoteError, "hang", at.text()));
    for (int rank = 0; rank < at.ranks(); ++rank) {
      int other[2];
      std::memcpy(other, at.buffer(rank), sizeof other);
      if (other[0] == color) members.emplace(other[1], rank);
    }
    if (!at.barrier(__func__)) return result_of(refuse(__func__, ncclRemoteError, "hang", at.text()));
    const int first = members.begin()->second;
    if (first == at.rank() && color >= 0) {
      const std::string made = Rendezvous::make(kIdText);
      std::memcpy(at.buffer(first), made.c_str(), std::min(made.size() + 1, sizeof name));
    }
    if (!at.barrier(__func__)) return result_of(refuse(__func__, ncclRemoteError, "hang", at.text()));
    std::memcpy(name, at.buffer(first), sizeof name - 1);
    if (!at.barrier(__func__)) return result_of(refuse(__func__, ncclRemoteError, "hang", at.text()));
  }
  if (color < 0) return ncclSuccess;  // NCCL_SPLIT_NOCOLOR
  int rank = 0;
  for (const auto& [member_key, member] : members) {
    if (member == at.rank()) break;
    ++rank;
  }
  return result_of(start_communicator(out, static_cast<int>(members.size()), name, rank, parent->device,
                                      parent->context, nullptr, __func__));
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  if (handle == nullptr) return ncclSuccess;
  const auto communicator = communicators().get(handle, __func__);
  if (communicator == nullptr) return ncclInvalidArgument;
  if (communicator->finalized)
    return result_of(refuse(__func__, ncclInvalidArgument, "destroyed-in-use", "finalized already"));
  communicator->finalized = true;
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t handle) { return result_of(end_communicator(handle, false, __func__)); }
ncclResult_t ncclCommAbort(ncclComm_t handle) { return result_of(end_communicator(handle, true, __func__)); }

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* error) {
  const auto communicator = communicators().get(handle, __func__);
  if (communicator == nullptr || error == nullptr) return ncclInvalidArgument;
  *error = static_cast<ncclResult_t>(communicator->error.load());
  return ncclSuccess;
}
ncclResult_t ncclCommCount(ncclComm_t handle, int* count) {
  const auto communicator = communicators().get(handle, __func__);
  if (communicator == nullptr || count == nullptr) return ncclInvalidArgument;
  *count = communicator->ranks();
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(ncclComm_t handle, int* rank) {
  const auto communicator = communicators().get(handle, __func__);
  if (communicator == nullptr || rank == nullptr) return ncclInvalidArgument;
  *rank = communicator->rank();
  return ncclSuccess;
}
ncclResult_t ncclCommCuDevice(ncclComm_t handle, int* device) {
  const auto communicator = communicators().get(handle, __func__);
  if (communicator == nullptr || device == nullptr) return ncclInvalidArgument;
  const std::vector<int> visible = sim::cuda::visible_devices(settings().devices);
  *device = static_cast<int>(std::find(visible.begin(), visible.end(), communicator->device) - visible.begin());
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  begin_group();
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (!in_group()) return result_of(refuse(__func__, ncclInvalidUsage, "bad-argument", "not in a group call."));
  return result_of(finish_group());
}

ncclResult_t ncclAllReduce(const void* send, void* receive, std::size_t count, int type, int reduction, ncclComm_t comm,
                           cudaStream_t stream) {
  return result_of(
      collective(CollectiveKind::all_reduce, send, receive, count, type, reduction, 0, comm, stream, __func__));
}
ncclResult_t ncclReduce(const void* send, void* receive, std::size_t count, int type, int reduction, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return result_of(
      collective(CollectiveKind::reduce, send, receive, count, type, reduction, root, comm, stream, __func__));
}
ncclResult_t ncclBroadcast(const void* send, void* receive, std::size_t count, int type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return result_of(collective(CollectiveKind::broadcast, send, receive, count, type, 0, root, comm, stream, __func__));
}
ncclResult_t ncclAllGather(const void* send, void* receive, std::size_t count, int type, ncclComm_t comm,
                           cudaStream_t stream) {
  return result_of(collective(CollectiveKind::all_gather, send, receive, count, type, 0, 0, comm, stream, __func__));
}
ncclResult_t ncclReduceScatter(const void* send, void* receive, std::size_t count, int type, int reduction,
                               ncclComm_t comm, cudaStream_t stream) {
  return result_of(
      collective(CollectiveKind::reduce_scatter, send, receive, count, type, reduction, 0, comm, stream, __func__));
}
ncclResult_t ncclSend(const void* buffer, std::size_t count, int type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return result_of(transfer(true, buffer, count, type, peer, comm, stream, __func__));
}
ncclResult_t ncclRecv(void* buffer, std::size_t count, int type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return result_of(transfer(false, buffer, count, type, peer, comm, stream, __func__));
}

}  // namespace sim_library

SIM_EXPORT(ncclGetVersion, sim_library::ncclInternalError)
SIM_EXPORT(ncclGetErrorString, nullptr)
SIM_EXPORT(ncclGetLastError, nullptr)
SIM_EXPORT(ncclGetUniqueId, sim_library::ncclInternalError)
SIM_EXPORT(ncclCommInitRankConfig, sim_library::ncclInternalError)
SIM_EXPORT(ncclCommInitRank, sim_library::ncclInternalError)
SIM_EXPORT(ncclCommInitAll, sim_library::ncclInternalError)
SIM_EXPORT(ncclCommSplit, sim_library::ncclInternalError)
SIM_EXPORT(ncclCommFinalize, sim_library::ncclInternalError)
SIM_EXPORT(ncclCommDestroy, sim_library::ncclInternalError)
SIM_EXPORT(ncclCommAbort, sim_library::ncclInternalError)
SIM_EXPORT(ncclCommGetAsyncError, sim_library::ncclInternalError)
SIM_EXPORT(ncclCommCount, sim_library::ncclInternalError)
SIM_EXPORT(ncclCommUserRank, sim_library::ncclInternalError)
SIM_EXPORT(ncclCommCuDevice, sim_library::ncclInternalError)
SIM_EXPORT(ncclGroupStart, sim_library::ncclInternalError)
SIM_EXPORT(ncclGroupEnd, sim_library::ncclInternalError)
SIM_EXPORT(ncclAllReduce, sim_library::ncclInternalError)
SIM_EXPORT(ncclReduce, sim_library::ncclInternalError)
SIM_EXPORT(ncclBroadcast, sim_library::ncclInternalError)
SIM_EXPORT(ncclAllGather, sim_library::ncclInternalError)
SIM_EXPORT(ncclReduceScatter, sim_library::ncclInternalError)
SIM_EXPORT(ncclSend, sim_library::ncclInternalError)
SIM_EXPORT(ncclRecv, sim_library::ncclInternalError)
