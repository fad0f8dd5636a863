// Simulates Cambricon's collectives library (libcncl.so), as CNCL 1.25: members join by lists of devices and ranks, with
// an id of 136 bytes that a process uses once; there is no average and no fp64. Names, numbers and orders of arguments
// are those of the published cncl.h.
#include <dlfcn.h>

#include <mutex>
#include <set>
#include <string>

#include "simulators/libraries/communicator.h"

namespace sim_library {

enum cnclResult_t : int {
  CNCL_RET_SUCCESS = 0x0,
  CNCL_RET_ERR_INTERNAL = 0x01,
  CNCL_RET_ERR_REINIT = 0x71,
  CNCL_RET_ERR_NULL_POINTER = 0x21,
  CNCL_RET_ERR_MLU_RUNTIME = 0x03,
  CNCL_RET_ASYNC_IN_PROGRESS = 0x06,
  CNCL_RET_ASYNC_ERROR = 0x16,
  CNCL_RET_ERR_ARGUMENTS = 0x07,
};
using cnclComm_t = void*;
using cnrtQueue_t = void*;
struct cnclCliqueId {
  char data[128];
  std::uint64_t hash;
};

const CollectiveVendor& collective_vendor() {
  static constexpr CollectiveVendor vendor = {
      "CNCL communicator",
      {CNCL_RET_ERR_MLU_RUNTIME, CNCL_RET_ERR_ARGUMENTS, CNCL_RET_ERR_ARGUMENTS, CNCL_RET_ASYNC_ERROR},
      [](int type) {
        switch (type) {
          case 0x10: return static_cast<int>(kHalf);
          case 0x11: return static_cast<int>(kBfloat16);
          case 0x12: return static_cast<int>(kFloat);
          case 0x20: return static_cast<int>(kInt8);
          case 0x21: return static_cast<int>(kInt16);
          case 0x22: return static_cast<int>(kInt32);
          case 0x23: return static_cast<int>(kInt64);
          case 0x30: return static_cast<int>(kUint8);
          case 0x31: return static_cast<int>(kUint16);
          case 0x32: return static_cast<int>(kUint32);
          case 0x33: return static_cast<int>(kUint64);
          default: return -1;
        }
      },
      [](int reduction) { return reduction >= kSum && reduction <= kMin ? reduction : -1; }};
  return vendor;
}

namespace {

constexpr char kIdText[] = "cncl_sim_";

cnclResult_t result_of(int result) { return static_cast<cnclResult_t>(result); }

std::uint64_t hash_of(const cnclCliqueId& id) {
  std::uint64_t hash = 14695981039346656037u;
  for (const char c : id.data) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

int set_device(int device) {
  static void* const library = ::dlopen(SIM_DRIVER, RTLD_NOW | RTLD_NOLOAD);
  auto* function = library == nullptr ? nullptr : reinterpret_cast<int (*)(int)>(::dlsym(library, "cnrtSetDevice"));
  return function == nullptr ? -1 : function(device);
}

bool used_before(const std::string& name) {
  static auto* mutex = new std::mutex;
  static auto* used = new std::set<std::string>;
  const std::lock_guard lock(*mutex);
  return !used->insert(name).second;
}

}  // namespace

const char* cnclGetErrorStr(cnclResult_t result) {
  switch (result) {
    case CNCL_RET_SUCCESS: return "no error";
    case CNCL_RET_ERR_INTERNAL: return "internal error";
    case CNCL_RET_ERR_REINIT: return "initialized already";
    case CNCL_RET_ERR_NULL_POINTER: return "a pointer is null";
    case CNCL_RET_ERR_MLU_RUNTIME: return "a call of the runtime has failed";
    case CNCL_RET_ASYNC_IN_PROGRESS: return "in progress";
    case CNCL_RET_ASYNC_ERROR: return "asynchronous error";
    case CNCL_RET_ERR_ARGUMENTS: return "illegal arguments";
  }
  return "unknown error";
}

cnclResult_t cnclGetCliqueId(cnclCliqueId* id) {
  if (id == nullptr) return CNCL_RET_ERR_NULL_POINTER;
  if (!make_id(id->data, sizeof id->data, kIdText)) return CNCL_RET_ERR_INTERNAL;
  id->hash = hash_of(*id);
  return CNCL_RET_SUCCESS;
}

// Without an id all ranks are in this process.
cnclResult_t cnclInitComms(cnclComm_t* comms, int count, const int* devices, const int* ranks, int size,
                           const cnclCliqueId* given) {
  if (comms == nullptr || devices == nullptr || ranks == nullptr) return CNCL_RET_ERR_NULL_POINTER;
  cnclCliqueId id;
  if (given != nullptr) {
    id = *given;
  } else {
    cnclGetCliqueId(&id);
    if (count != size) {
      return result_of(refuse(__func__, CNCL_RET_ERR_ARGUMENTS, "bad-argument",
                              "there is no id, and not all ranks are in this process"));
    }
  }
  if (count < 1 || !is_id(id.data, sizeof id.data, kIdText) || id.hash != hash_of(id)) {
    return result_of(refuse(__func__, CNCL_RET_ERR_ARGUMENTS, "bad-argument",
                            "there is no communicator to make, or the id was not made by cnclGetCliqueId"));
  }
  if (used_before(id.data)) {
    return result_of(refuse(__func__, CNCL_RET_ERR_REINIT, "bad-argument", "the id was used in this process before"));
  }
  if (driver() == nullptr) return CNCL_RET_ERR_MLU_RUNTIME;
  void* const before = driver()->current_context();
  begin_group();
  for (int i = 0; i < count; ++i) {
    int device = -1;
    void* context = nullptr;
    if (set_device(devices[i]) != 0 || !current_place(&device, &context, __func__)) {
      note(CNCL_RET_ERR_MLU_RUNTIME);
      continue;
    }
    start_communicator(&comms[i], size, id.data, ranks[i], device, context, nullptr, __func__);
  }
  driver()->set_context(before);
  return result_of(finish_group());
}

cnclResult_t cnclFreeComm(cnclComm_t comm) { return result_of(end_communicator(comm, false, __func__)); }
cnclResult_t cnclDestroyComms(cnclComm_t* comms, int count) {
  if (comms == nullptr || count < 1) return CNCL_RET_ERR_ARGUMENTS;
  int result = CNCL_RET_SUCCESS;
  for (int i = 0; i < count; ++i) {
    const int one = end_communicator(comms[i], false, __func__);
    if (result == CNCL_RET_SUCCESS) result = one;
  }
  return result_of(result);
}
cnclResult_t cnclAbortComm(cnclComm_t comm) { return result_of(end_communicator(comm, true, __func__)); }

cnclResult_t cnclGetCommAsyncError(cnclComm_t comm) {
  const auto communicator = communicators().get(comm, __func__);
  return communicator == nullptr ? CNCL_RET_ERR_ARGUMENTS : result_of(communicator->error);
}
cnclResult_t cnclGetCommCount(int* count, cnclComm_t comm) {
  const auto communicator = communicators().get(comm, __func__);
  if (communicator == nullptr || count == nullptr) return CNCL_RET_ERR_ARGUMENTS;
  *count = communicator->ranks();
  return CNCL_RET_SUCCESS;
}
cnclResult_t cnclGetCommRank(int* rank, cnclComm_t comm) {
  const auto communicator = communicators().get(comm, __func__);
  if (communicator == nullptr || rank == nullptr) return CNCL_RET_ERR_ARGUMENTS;
  *rank = communicator->rank();
  return CNCL_RET_SUCCESS;
}

cnclResult_t cnclGroupStart() {
  begin_group();
  return CNCL_RET_SUCCESS;
}
cnclResult_t cnclGroupEnd() {
  if (!in_group()) return result_of(refuse(__func__, CNCL_RET_ERR_ARGUMENTS, "bad-argument", "not in a group"));
  return result_of(finish_group());
}

cnclResult_t cnclAllReduce(const void* send, void* receive, std::size_t count, int type, int reduction, cnclComm_t comm,
                           cnrtQueue_t queue) {
  return result_of(
      collective(CollectiveKind::all_reduce, send, receive, count, type, reduction, 0, comm, queue, __func__));
}
cnclResult_t cnclReduce(const void* send, void* receive, std::size_t count, int type, int reduction, int root,
                        cnclComm_t comm, cnrtQueue_t queue) {
  return result_of(
      collective(CollectiveKind::reduce, send, receive, count, type, reduction, root, comm, queue, __func__));
}
cnclResult_t cnclBroadcast(const void* send, void* receive, std::size_t count, int type, int root, cnclComm_t comm,
                           cnrtQueue_t queue) {
  return result_of(collective(CollectiveKind::broadcast, send, receive, count, type, 0, root, comm, queue, __func__));
}
cnclResult_t cnclAllGather(const void* send, void* receive, std::size_t count, int type, cnclComm_t comm,
                           cnrtQueue_t queue) {
  return result_of(collective(CollectiveKind::all_gather, send, receive, count, type, 0, 0, comm, queue, __func__));
}
cnclResult_t cnclReduceScatter(const void* send, void* receive, std::size_t count, int type, int reduction,
                               cnclComm_t comm, cnrtQueue_t queue) {
  return result_of(
      collective(CollectiveKind::reduce_scatter, send, receive, count, type, reduction, 0, comm, queue, __func__));
}
cnclResult_t cnclSend(void* buffer, std::size_t count, int type, int peer, cnclComm_t comm, cnrtQueue_t queue) {
  return result_of(transfer(true, buffer, count, type, peer, comm, queue, __func__));
}
cnclResult_t cnclRecv(void* buffer, std::size_t count, int type, int peer, cnclComm_t comm, cnrtQueue_t queue) {
  return result_of(transfer(false, buffer, count, type, peer, comm, queue, __func__));
}

}  // namespace sim_library

SIM_EXPORT(cnclGetErrorStr, nullptr)
SIM_EXPORT(cnclGetCliqueId, sim_library::CNCL_RET_ERR_INTERNAL)
SIM_EXPORT(cnclInitComms, sim_library::CNCL_RET_ERR_INTERNAL)
SIM_EXPORT(cnclFreeComm, sim_library::CNCL_RET_ERR_INTERNAL)
SIM_EXPORT(cnclDestroyComms, sim_library::CNCL_RET_ERR_INTERNAL)
SIM_EXPORT(cnclAbortComm, sim_library::CNCL_RET_ERR_INTERNAL)
SIM_EXPORT(cnclGetCommAsyncError, sim_library::CNCL_RET_ERR_INTERNAL)
SIM_EXPORT(cnclGetCommCount, sim_library::CNCL_RET_ERR_INTERNAL)
SIM_EXPORT(cnclGetCommRank, sim_library::CNCL_RET_ERR_INTERNAL)
SIM_EXPORT(cnclGroupStart, sim_library::CNCL_RET_ERR_INTERNAL)
SIM_EXPORT(cnclGroupEnd, sim_library::CNCL_RET_ERR_INTERNAL)
SIM_EXPORT(cnclAllReduce, sim_library::CNCL_RET_ERR_INTERNAL)
SIM_EXPORT(cnclReduce, sim_library::CNCL_RET_ERR_INTERNAL)
SIM_EXPORT(cnclBroadcast, sim_library::CNCL_RET_ERR_INTERNAL)
SIM_EXPORT(cnclAllGather, sim_library::CNCL_RET_ERR_INTERNAL)
SIM_EXPORT(cnclReduceScatter, sim_library::CNCL_RET_ERR_INTERNAL)
SIM_EXPORT(cnclSend, sim_library::CNCL_RET_ERR_INTERNAL)
SIM_EXPORT(cnclRecv, sim_library::CNCL_RET_ERR_INTERNAL)
