// Simulates Habana's collectives (hccl*), which libSynapse.so exports itself. Prototypes and numbers are those of its
// published headers (HabanaAI/Intel_Gaudi3_Software, hcl/include): NCCL's, but for the smallest and the largest, which
// have changed places, and an id of 1024 bytes and their count. A process has one device, so one rank.
#include "simulators/libraries/communicator.h"

namespace sim_library {

enum hcclResult_t : int {
  hcclSuccess = 0,
  hcclNoDeviceFound = 1,
  hcclUnsupported = 2,
  hcclOutOfMemory = 3,
  hcclUnhandledSynapseError = 4,
  hcclSystemError = 5,
  hcclInternalError = 6,
  hcclInvalidArgument = 7,
  hcclInvalidUsage = 8,
  hcclSocketError = 9,
  hcclLibfabricError = 10,
};
using hcclComm_t = void*;
using synStreamHandle = void*;
struct hcclUniqueId {
  char internal[1024];
  std::size_t length;
};

const CollectiveVendor& collective_vendor() {
  static constexpr CollectiveVendor vendor = {
      "HCCL communicator",
      {hcclUnhandledSynapseError, hcclInvalidArgument, hcclInvalidUsage, hcclSocketError},
      [](int type) { return type >= kInt8 && type <= kBfloat16 ? type : -1; },
      [](int reduction) {
        constexpr int reductions[] = {kSum, kProduct, kMin, kMax, kAverage};
        return reduction >= 0 && reduction < 5 ? reductions[reduction] : -1;
      }};
  return vendor;
}

namespace {

constexpr char kIdText[] = "hccl_sim_";

hcclResult_t result_of(int result) { return static_cast<hcclResult_t>(result); }

}  // namespace

// The real library's message is not published.
const char* hcclGetErrorString(hcclResult_t result) {
  switch (result) {
    case hcclSuccess: return "success";
    case hcclNoDeviceFound: return "no device found";
    case hcclUnsupported: return "unsupported";
    case hcclOutOfMemory: return "out of memory";
    case hcclUnhandledSynapseError: return "unhandled Synapse error";
    case hcclSystemError: return "system error";
    case hcclInternalError: return "internal error";
    case hcclInvalidArgument: return "invalid argument";
    case hcclInvalidUsage: return "invalid usage";
    case hcclSocketError: return "socket error";
    case hcclLibfabricError: return "libfabric error";
  }
  return "unknown result code";
}

hcclResult_t hcclGetVersion(int* version) {
  if (version == nullptr) return hcclInvalidArgument;
  *version = 20604;
  return hcclSuccess;
}

hcclResult_t hcclGetUniqueId(hcclUniqueId* id) {
  if (id == nullptr) return hcclInvalidArgument;
  if (!make_id(id->internal, sizeof id->internal, kIdText)) return hcclInternalError;
  id->length = sizeof id->internal;
  return hcclSuccess;
}

hcclResult_t hcclCommInitRank(hcclComm_t* out, int ranks, hcclUniqueId id, int rank) {
  int device = -1;
  void* context = nullptr;
  if (!current_place(&device, &context, __func__)) return hcclNoDeviceFound;
  if (id.length != sizeof id.internal || !is_id(id.internal, sizeof id.internal, kIdText)) {
    return result_of(refuse(__func__, hcclInvalidArgument, "bad-argument",
                            "the unique id was not made by hcclGetUniqueId, or not carried whole"));
  }
  return result_of(start_communicator(out, ranks, id.internal, rank, device, context, nullptr, __func__));
}

hcclResult_t hcclCommDestroy(hcclComm_t comm) { return result_of(end_communicator(comm, false, __func__)); }
hcclResult_t hcclCommAbort(hcclComm_t comm) { return result_of(end_communicator(comm, true, __func__)); }

hcclResult_t hcclCommGetAsyncError(hcclComm_t comm, hcclResult_t* error) {
  const auto communicator = communicators().get(comm, __func__);
  if (communicator == nullptr || error == nullptr) return hcclInvalidArgument;
  *error = result_of(communicator->error);
  return hcclSuccess;
}
hcclResult_t hcclCommCount(hcclComm_t comm, int* count) {
  const auto communicator = communicators().get(comm, __func__);
  if (communicator == nullptr || count == nullptr) return hcclInvalidArgument;
  *count = communicator->ranks();
  return hcclSuccess;
}
hcclResult_t hcclCommUserRank(hcclComm_t comm, int* rank) {
  const auto communicator = communicators().get(comm, __func__);
  if (communicator == nullptr || rank == nullptr) return hcclInvalidArgument;
  *rank = communicator->rank();
  return hcclSuccess;
}

hcclResult_t hcclAllReduce(const void* send, void* receive, std::size_t count, int type, int reduction, hcclComm_t comm,
                           synStreamHandle stream) {
  return result_of(
      collective(CollectiveKind::all_reduce, send, receive, count, type, reduction, 0, comm, stream, __func__));
}
hcclResult_t hcclReduce(const void* send, void* receive, std::size_t count, int type, int reduction, int root,
                        hcclComm_t comm, synStreamHandle stream) {
  return result_of(
      collective(CollectiveKind::reduce, send, receive, count, type, reduction, root, comm, stream, __func__));
}
hcclResult_t hcclBroadcast(const void* send, void* receive, std::size_t count, int type, int root, hcclComm_t comm,
                           synStreamHandle stream) {
  return result_of(collective(CollectiveKind::broadcast, send, receive, count, type, 0, root, comm, stream, __func__));
}
hcclResult_t hcclAllGather(const void* send, void* receive, std::size_t count, int type, hcclComm_t comm,
                           synStreamHandle stream) {
  return result_of(collective(CollectiveKind::all_gather, send, receive, count, type, 0, 0, comm, stream, __func__));
}
hcclResult_t hcclReduceScatter(const void* send, void* receive, std::size_t count, int type, int reduction,
                               hcclComm_t comm, synStreamHandle stream) {
  return result_of(
      collective(CollectiveKind::reduce_scatter, send, receive, count, type, reduction, 0, comm, stream, __func__));
}
hcclResult_t hcclSend(const void* buffer, std::size_t count, int type, int peer, hcclComm_t comm,
                      synStreamHandle stream) {
  return result_of(transfer(true, buffer, count, type, peer, comm, stream, __func__));
}
hcclResult_t hcclRecv(void* buffer, std::size_t count, int type, int peer, hcclComm_t comm, synStreamHandle stream) {
  return result_of(transfer(false, buffer, count, type, peer, comm, stream, __func__));
}

hcclResult_t hcclGroupStart() {
  begin_group();
  return hcclSuccess;
}
hcclResult_t hcclGroupEnd() {
  if (!in_group()) {
    return result_of(refuse(__func__, hcclInvalidUsage, "bad-argument", "there is no hcclGroupStart before it"));
  }
  return result_of(finish_group());
}

}  // namespace sim_library

SIM_EXPORT(hcclGetErrorString, nullptr)
SIM_EXPORT(hcclGetVersion, sim_library::hcclInternalError)
SIM_EXPORT(hcclGetUniqueId, sim_library::hcclInternalError)
SIM_EXPORT(hcclCommInitRank, sim_library::hcclInternalError)
SIM_EXPORT(hcclCommDestroy, sim_library::hcclInternalError)
SIM_EXPORT(hcclCommAbort, sim_library::hcclInternalError)
SIM_EXPORT(hcclCommGetAsyncError, sim_library::hcclInternalError)
SIM_EXPORT(hcclCommCount, sim_library::hcclInternalError)
SIM_EXPORT(hcclCommUserRank, sim_library::hcclInternalError)
SIM_EXPORT(hcclAllReduce, sim_library::hcclInternalError)
SIM_EXPORT(hcclReduce, sim_library::hcclInternalError)
SIM_EXPORT(hcclBroadcast, sim_library::hcclInternalError)
SIM_EXPORT(hcclAllGather, sim_library::hcclInternalError)
SIM_EXPORT(hcclReduceScatter, sim_library::hcclInternalError)
SIM_EXPORT(hcclSend, sim_library::hcclInternalError)
SIM_EXPORT(hcclRecv, sim_library::hcclInternalError)
SIM_EXPORT(hcclGroupStart, sim_library::hcclInternalError)
SIM_EXPORT(hcclGroupEnd, sim_library::hcclInternalError)
