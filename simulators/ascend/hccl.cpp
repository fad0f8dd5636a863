// Simulates Huawei's collectives library (libhccl.so): its numbers, broadcast in place, an id of 4108 bytes, no average,
// and batches of sends and receives instead of groups. Names and numbers are those of the published hccl.h and
// hccl_types.h.
#include <cstring>

#include "simulators/libraries/communicator.h"

namespace sim_library {

enum HcclResult : int {
  HCCL_SUCCESS = 0,
  HCCL_E_PARA = 1,
  HCCL_E_PTR = 2,
  HCCL_E_INTERNAL = 4,
  HCCL_E_NOT_SUPPORT = 5,
  HCCL_E_TIMEOUT = 9,
  HCCL_E_RUNTIME = 15,
  HCCL_E_REMOTE = 21,
};
using HcclComm = void*;
using aclrtStream = void*;
struct HcclRootInfo {
  char internal[4108];
};
struct HcclSendRecvItem {
  int type;  // 0: send, 1: receive
  void* buffer;
  std::uint64_t count;
  int data_type;
  std::uint32_t remote;
};
static_assert(sizeof(HcclSendRecvItem) == 32);

const CollectiveVendor& collective_vendor() {
  static constexpr CollectiveVendor vendor = {
      "HCCL communicator",
      {HCCL_E_RUNTIME, HCCL_E_PARA, HCCL_E_PARA, HCCL_E_REMOTE},
      [](int type) {
        constexpr int types[] = {kInt8,   kInt16, kInt32,  kHalf,   kFloat,  kInt64,
                                 kUint64, kUint8, kUint16, kUint32, kDouble, kBfloat16};
        return type >= 0 && type < 12 ? types[type] : -1;
      },
      [](int reduction) { return reduction >= kSum && reduction <= kMin ? reduction : -1; }};
  return vendor;
}

namespace {

constexpr char kIdText[] = "hccl_sim_";

HcclResult result_of(int result) { return static_cast<HcclResult>(result); }

}  // namespace

const char* HcclGetErrorString(HcclResult result) {
  switch (result) {
    case HCCL_SUCCESS: return "no error";
    case HCCL_E_PARA: return "parameter error";
    case HCCL_E_PTR: return "empty pointer";
    case HCCL_E_INTERNAL: return "internal error";
    case HCCL_E_NOT_SUPPORT: return "not support feature";
    case HCCL_E_TIMEOUT: return "timeout";
    case HCCL_E_RUNTIME: return "call runtime api fail";
    case HCCL_E_REMOTE: return "error cqe";
  }
  return "unknown error";
}

HcclResult HcclGetRootInfo(HcclRootInfo* id) {
  if (id == nullptr) return HCCL_E_PTR;
  if (!make_id(id->internal, sizeof id->internal, kIdText)) return HCCL_E_INTERNAL;
  return HCCL_SUCCESS;
}

HcclResult HcclCommInitRootInfo(std::uint32_t ranks, const HcclRootInfo* id, std::uint32_t rank, HcclComm* out) {
  if (id == nullptr || out == nullptr) return HCCL_E_PTR;
  int device = -1;
  void* context = nullptr;
  if (!current_place(&device, &context, __func__)) return HCCL_E_RUNTIME;
  if (!is_id(id->internal, sizeof id->internal, kIdText)) {
    return result_of(refuse(__func__, HCCL_E_PARA, "bad-argument", "the root info was not made by HcclGetRootInfo"));
  }
  return result_of(start_communicator(out, static_cast<int>(ranks), id->internal, static_cast<int>(rank), device,
                                      context, nullptr, __func__));
}

HcclResult HcclCommDestroy(HcclComm comm) { return result_of(end_communicator(comm, false, __func__)); }

HcclResult HcclGetCommAsyncError(HcclComm comm, HcclResult* error) {
  const auto communicator = communicators().get(comm, __func__);
  if (communicator == nullptr || error == nullptr) return HCCL_E_PTR;
  *error = result_of(communicator->error);
  return HCCL_SUCCESS;
}
HcclResult HcclGetRankSize(HcclComm comm, std::uint32_t* size) {
  const auto communicator = communicators().get(comm, __func__);
  if (communicator == nullptr || size == nullptr) return HCCL_E_PTR;
  *size = static_cast<std::uint32_t>(communicator->ranks());
  return HCCL_SUCCESS;
}
HcclResult HcclGetRankId(HcclComm comm, std::uint32_t* rank) {
  const auto communicator = communicators().get(comm, __func__);
  if (communicator == nullptr || rank == nullptr) return HCCL_E_PTR;
  *rank = static_cast<std::uint32_t>(communicator->rank());
  return HCCL_SUCCESS;
}
// Into 128 bytes.
HcclResult HcclGetCommName(HcclComm comm, char* name) {
  const auto communicator = communicators().get(comm, __func__);
  if (communicator == nullptr || name == nullptr) return HCCL_E_PTR;
  std::memset(name, 0, 128);
  std::strncpy(name, communicator->name.c_str(), 127);
  return HCCL_SUCCESS;
}

HcclResult HcclAllReduce(void* send, void* receive, std::uint64_t count, int type, int reduction, HcclComm comm,
                         aclrtStream stream) {
  return result_of(
      collective(CollectiveKind::all_reduce, send, receive, count, type, reduction, 0, comm, stream, __func__));
}
HcclResult HcclReduce(void* send, void* receive, std::uint64_t count, int type, int reduction, std::uint32_t root,
                      HcclComm comm, aclrtStream stream) {
  return result_of(collective(CollectiveKind::reduce, send, receive, count, type, reduction, static_cast<int>(root),
                              comm, stream, __func__));
}
HcclResult HcclBroadcast(void* buffer, std::uint64_t count, int type, std::uint32_t root, HcclComm comm,
                         aclrtStream stream) {
  return result_of(collective(CollectiveKind::broadcast, buffer, buffer, count, type, 0, static_cast<int>(root), comm,
                              stream, __func__));
}
HcclResult HcclAllGather(void* send, void* receive, std::uint64_t count, int type, HcclComm comm, aclrtStream stream) {
  return result_of(collective(CollectiveKind::all_gather, send, receive, count, type, 0, 0, comm, stream, __func__));
}
HcclResult HcclReduceScatter(void* send, void* receive, std::uint64_t count, int type, int reduction, HcclComm comm,
                             aclrtStream stream) {
  return result_of(
      collective(CollectiveKind::reduce_scatter, send, receive, count, type, reduction, 0, comm, stream, __func__));
}
HcclResult HcclSend(void* buffer, std::uint64_t count, int type, std::uint32_t peer, HcclComm comm,
                    aclrtStream stream) {
  return result_of(transfer(true, buffer, count, type, static_cast<int>(peer), comm, stream, __func__));
}
HcclResult HcclRecv(void* buffer, std::uint64_t count, int type, std::uint32_t peer, HcclComm comm,
                    aclrtStream stream) {
  return result_of(transfer(false, buffer, count, type, static_cast<int>(peer), comm, stream, __func__));
}
HcclResult HcclBatchSendRecv(HcclSendRecvItem* items, std::uint32_t count, HcclComm comm, aclrtStream stream) {
  if (items == nullptr || count == 0) {
    return result_of(refuse(__func__, HCCL_E_PARA, "bad-argument", "the batch is empty"));
  }
  begin_group();
  for (std::uint32_t i = 0; i < count; ++i) {
    const HcclSendRecvItem& item = items[i];
    if (item.type != 0 && item.type != 1) {
      note(refuse(__func__, HCCL_E_PARA, "bad-argument", "an item neither sends nor receives"));
      continue;
    }
    transfer(item.type == 0, item.buffer, item.count, item.data_type, static_cast<int>(item.remote), comm, stream,
             __func__);
  }
  return result_of(finish_group());
}

}  // namespace sim_library

SIM_EXPORT(HcclGetErrorString, nullptr)
SIM_EXPORT(HcclGetRootInfo, sim_library::HCCL_E_INTERNAL)
SIM_EXPORT(HcclCommInitRootInfo, sim_library::HCCL_E_INTERNAL)
SIM_EXPORT(HcclCommDestroy, sim_library::HCCL_E_INTERNAL)
SIM_EXPORT(HcclGetCommAsyncError, sim_library::HCCL_E_INTERNAL)
SIM_EXPORT(HcclGetRankSize, sim_library::HCCL_E_INTERNAL)
SIM_EXPORT(HcclGetRankId, sim_library::HCCL_E_INTERNAL)
SIM_EXPORT(HcclGetCommName, sim_library::HCCL_E_INTERNAL)
SIM_EXPORT(HcclAllReduce, sim_library::HCCL_E_INTERNAL)
SIM_EXPORT(HcclReduce, sim_library::HCCL_E_INTERNAL)
SIM_EXPORT(HcclBroadcast, sim_library::HCCL_E_INTERNAL)
SIM_EXPORT(HcclAllGather, sim_library::HCCL_E_INTERNAL)
SIM_EXPORT(HcclReduceScatter, sim_library::HCCL_E_INTERNAL)
SIM_EXPORT(HcclSend, sim_library::HCCL_E_INTERNAL)
SIM_EXPORT(HcclRecv, sim_library::HCCL_E_INTERNAL)
SIM_EXPORT(HcclBatchSendRecv, sim_library::HCCL_E_INTERNAL)
