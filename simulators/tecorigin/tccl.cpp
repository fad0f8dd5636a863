// Simulates Tecorigin's collectives library (libtccl.so), shaped like NCCL: its own numbers of types, no average and no
// groups. Orders of arguments are those that PaddlePaddle's backend calls it with; the numbers of types are from one
// header, and those of errors are NCCL's in the order that the library names them.
#include "simulators/libraries/communicator.h"

namespace sim_library {

enum tcclResult_t : int {
  tcclSuccess = 0,
  tcclUnhandledSdaaError = 1,
  tcclSystemError = 2,
  tcclInternalError = 3,
  tcclInvalidArgument = 4,
  tcclInvalidUsage = 5,
};
using tcclComm_t = void*;
using sdaaStream_t = void*;
struct tcclUniqueId {
  char internal[128];
};

const CollectiveVendor& collective_vendor() {
  static constexpr CollectiveVendor vendor = {
      "TCCL communicator",
      {tcclUnhandledSdaaError, tcclInvalidArgument, tcclInvalidUsage, tcclSystemError},
      [](int type) {
        constexpr int types[] = {kInt8, kUint8, kInt32, kUint32, kFloat, kDouble, kInt64, kUint64, kHalf, kBfloat16};
        return type >= 0 && type < 10 ? types[type] : -1;
      },
      [](int reduction) { return reduction >= kSum && reduction <= kMin ? reduction : -1; }};
  return vendor;
}

namespace {

constexpr char kIdText[] = "tccl_sim_";

tcclResult_t result_of(int result) { return static_cast<tcclResult_t>(result); }

}  // namespace

const char* tcclGetErrorString(tcclResult_t result) {
  switch (result) {
    case tcclSuccess: return "no error";
    case tcclUnhandledSdaaError: return "unhandled sdaa error";
    case tcclSystemError: return "unhandled system error";
    case tcclInternalError: return "internal error";
    case tcclInvalidArgument: return "invalid argument";
    case tcclInvalidUsage: return "invalid usage";
  }
  return "unknown result code";
}

tcclResult_t tcclGetUniqueId(tcclUniqueId* id) {
  if (id == nullptr) return tcclInvalidArgument;
  if (!make_id(id->internal, sizeof id->internal, kIdText)) return tcclSystemError;
  return tcclSuccess;
}

tcclResult_t tcclCommInitRank(tcclComm_t* out, int ranks, tcclUniqueId id, int rank) {
  int device = -1;
  void* context = nullptr;
  if (!current_place(&device, &context, __func__)) return tcclUnhandledSdaaError;
  if (!is_id(id.internal, sizeof id.internal, kIdText)) {
    return result_of(
        refuse(__func__, tcclInvalidArgument, "bad-argument", "the unique id was not made by tcclGetUniqueId"));
  }
  return result_of(start_communicator(out, ranks, id.internal, rank, device, context, nullptr, __func__));
}

tcclResult_t tcclCommDestroy(tcclComm_t comm) { return result_of(end_communicator(comm, false, __func__)); }

tcclResult_t tcclCommCount(tcclComm_t comm, int* count) {
  const auto communicator = communicators().get(comm, __func__);
  if (communicator == nullptr || count == nullptr) return tcclInvalidArgument;
  *count = communicator->ranks();
  return tcclSuccess;
}
tcclResult_t tcclCommUserRank(tcclComm_t comm, int* rank) {
  const auto communicator = communicators().get(comm, __func__);
  if (communicator == nullptr || rank == nullptr) return tcclInvalidArgument;
  *rank = communicator->rank();
  return tcclSuccess;
}

tcclResult_t tcclAllReduce(const void* send, void* receive, std::size_t count, int type, int reduction, tcclComm_t comm,
                           sdaaStream_t stream) {
  return result_of(
      collective(CollectiveKind::all_reduce, send, receive, count, type, reduction, 0, comm, stream, __func__));
}
tcclResult_t tcclReduce(const void* send, void* receive, std::size_t count, int type, int reduction, int root,
                        tcclComm_t comm, sdaaStream_t stream) {
  return result_of(
      collective(CollectiveKind::reduce, send, receive, count, type, reduction, root, comm, stream, __func__));
}
tcclResult_t tcclBroadcast(const void* send, void* receive, std::size_t count, int type, int root, tcclComm_t comm,
                           sdaaStream_t stream) {
  return result_of(collective(CollectiveKind::broadcast, send, receive, count, type, 0, root, comm, stream, __func__));
}
tcclResult_t tcclAllGather(const void* send, void* receive, std::size_t count, int type, tcclComm_t comm,
                           sdaaStream_t stream) {
  return result_of(collective(CollectiveKind::all_gather, send, receive, count, type, 0, 0, comm, stream, __func__));
}
tcclResult_t tcclReduceScatter(const void* send, void* receive, std::size_t count, int type, int reduction,
                               tcclComm_t comm, sdaaStream_t stream) {
  return result_of(
      collective(CollectiveKind::reduce_scatter, send, receive, count, type, reduction, 0, comm, stream, __func__));
}
tcclResult_t tcclSend(const void* buffer, std::size_t count, int type, int peer, tcclComm_t comm, sdaaStream_t stream) {
  return result_of(transfer(true, buffer, count, type, peer, comm, stream, __func__));
}
tcclResult_t tcclRecv(void* buffer, std::size_t count, int type, int peer, tcclComm_t comm, sdaaStream_t stream) {
  return result_of(transfer(false, buffer, count, type, peer, comm, stream, __func__));
}

}  // namespace sim_library

SIM_EXPORT(tcclGetErrorString, nullptr)
SIM_EXPORT(tcclGetUniqueId, sim_library::tcclInternalError)
SIM_EXPORT(tcclCommInitRank, sim_library::tcclInternalError)
SIM_EXPORT(tcclCommDestroy, sim_library::tcclInternalError)
SIM_EXPORT(tcclCommCount, sim_library::tcclInternalError)
SIM_EXPORT(tcclCommUserRank, sim_library::tcclInternalError)
SIM_EXPORT(tcclAllReduce, sim_library::tcclInternalError)
SIM_EXPORT(tcclReduce, sim_library::tcclInternalError)
SIM_EXPORT(tcclBroadcast, sim_library::tcclInternalError)
SIM_EXPORT(tcclAllGather, sim_library::tcclInternalError)
SIM_EXPORT(tcclReduceScatter, sim_library::tcclInternalError)
SIM_EXPORT(tcclSend, sim_library::tcclInternalError)
SIM_EXPORT(tcclRecv, sim_library::tcclInternalError)
