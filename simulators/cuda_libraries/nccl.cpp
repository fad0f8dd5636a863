// Simulates NVIDIA's collectives library (libnccl.so.2), as version 2.28: the work runs in stream order on the
// simulated driver. Ranks that do not do the same, or wait for one that never comes, are reported; so are buffers and
// streams of another device, overlaps that are not in place, and communicators used after their end.
// https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api.html
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <random>
#include <set>
#include <vector>

#include "simulators/cuda/facts.h"
#include "simulators/cuda_libraries/collective.h"
#include "simulators/cuda_libraries/library.h"

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

namespace {

constexpr char kIdText[] = "nccl_sim_";
constexpr unsigned kConfigMagic = 0xcafebeef;

thread_local std::string last_error;

ncclResult_t refuse(const char* function, ncclResult_t result, const char* kind, const std::string& what) {
  last_error = std::string(function) + ": " + what;
  violation(kind, last_error);
  return result;
}

template <typename... Args>
int cu(const char* name, Args... args) {
  static void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  auto* function = reinterpret_cast<int (*)(Args...)>(::dlsym(library, name));
  return function == nullptr ? 500 : function(args...);
}

struct SimulatedCommunicator {
  int device = 0;   // among all simulated ones
  int ordinal = 0;  // as CUDA numbers it
  void* context = nullptr;
  bool retained = false;  // the context, by ncclCommInitAll
  std::string name;       // of the rendezvous
  int splits = 0;
  std::shared_ptr<Channel> channel = std::make_shared<Channel>();
  bool finalized = false;
  std::atomic<bool> ended = false;    // destroyed or aborted
  std::atomic<bool> aborted = false;  // what is still queued on streams does nothing
  std::atomic<int> error = ncclSuccess;
  int rank() const { return channel->rendezvous->rank(); }
  int ranks() const { return channel->rendezvous->ranks(); }
};
Handles<SimulatedCommunicator>& communicators() {
  static auto* handles = new Handles<SimulatedCommunicator>("NCCL communicator");
  return *handles;
}

// The communicator's context current for a while, whatever the caller's is.
class CurrentContext {
 public:
  explicit CurrentContext(void* context) {
    cu("cuCtxGetCurrent", &before_);
    if (before_ != context) cu("cuCtxSetCurrent", context);
    changed_ = before_ != context;
  }
  ~CurrentContext() {
    if (changed_) cu("cuCtxSetCurrent", before_);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  void* before_ = nullptr;
  bool changed_ = false;
};

// What a group has put off to its end.
struct Work {
  std::shared_ptr<SimulatedCommunicator> communicator;
  void* stream;
  bool is_transfer;
  Collective collective;
  const void *send, *receive;
  std::size_t send_bytes, receive_bytes;
  int peer;
};
struct Start {
  std::shared_ptr<SimulatedCommunicator> communicator;
  ncclComm_t* out;
};
struct CallGroup {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<Work> work;
  std::vector<Start> starts;
};
thread_local CallGroup group;

void report(const std::shared_ptr<SimulatedCommunicator>& communicator, const Outcome& outcome) {
  if (outcome.text.empty()) return;
  communicator->error = outcome.violation == "collective-mismatch" ? ncclInvalidUsage : ncclRemoteError;
  if (!outcome.violation.empty()) violation(outcome.violation.c_str(), outcome.text);
}

sim_cuda::Range range(const void* pointer, std::size_t bytes, bool write) {
  return {reinterpret_cast<std::uint64_t>(pointer), bytes, write};
}

bool usable(const std::shared_ptr<SimulatedCommunicator>& communicator, const char* what) {
  if (!communicator->ended) return true;
  if (communicator->aborted) return false;
  violation("destroyed-in-use", std::string(what) + " runs after the end of its communicator");
  return false;
}

ncclResult_t enqueue(const Work& work, std::vector<Work> transfers) {
  const CurrentContext current(work.communicator->context);
  const auto communicator = work.communicator;
  std::vector<sim_cuda::Range> ranges;
  int result = 0;
  if (!work.is_transfer) {
    const Collective collective = work.collective;
    const bool sends = work.send_bytes > 0, receives = work.receive_bytes > 0;
    if (sends) ranges.push_back(range(work.send, work.send_bytes, false));
    if (receives) ranges.push_back(range(work.receive, work.receive_bytes, true));
    result = driver()->enqueue(work.stream, name_of(collective.kind), ranges, [=](char* const* bytes) {
      if (!usable(communicator, name_of(collective.kind))) return;
      report(communicator, run_collective(*communicator->channel, collective, sends ? bytes[0] : nullptr,
                                          receives ? bytes[sends ? 1 : 0] : nullptr));
    });
  } else {
    for (const Work& one : transfers) {
      ranges.push_back(one.send != nullptr ? range(one.send, one.send_bytes, false)
                                           : range(one.receive, one.receive_bytes, true));
    }
    result = driver()->enqueue(work.stream, "ncclSend and ncclRecv", ranges, [=](char* const* bytes) {
      if (!usable(communicator, "ncclSend or ncclRecv")) return;
      std::vector<Transfer> list;
      for (std::size_t i = 0; i < transfers.size(); ++i) {
        const Work& one = transfers[i];
        list.push_back({one.send != nullptr, one.peer, bytes[i], one.send_bytes + one.receive_bytes});
      }
      report(communicator, run_transfers(*communicator->channel, std::move(list)));
    });
  }
  return result == 0 ? ncclSuccess : ncclUnhandledCudaError;
}

// All of a group: transfers on one communicator and stream go together, since each may wait for the other side of
// another.
ncclResult_t enqueue_all(std::vector<Work> work) {
  ncclResult_t result = ncclSuccess;
  std::vector<bool> done(work.size());
  for (std::size_t i = 0; i < work.size(); ++i) {
    if (done[i]) continue;
    std::vector<Work> together;
    for (std::size_t k = i; work[i].is_transfer && k < work.size(); ++k) {
      if (!work[k].is_transfer || work[k].communicator != work[i].communicator || work[k].stream != work[i].stream)
        continue;
      together.push_back(work[k]);
      done[k] = true;
    }
    const ncclResult_t one = enqueue(work[i], std::move(together));
    if (result == ncclSuccess) result = one;
  }
  return result;
}

ncclResult_t finish(const Start& start) {
  const std::string problem = start.communicator->channel->rendezvous->wait_for_all();
  if (!problem.empty()) {
    return refuse("ncclCommInitRank", ncclInvalidUsage, problem[0] == 'r' ? "collective-mismatch" : "bad-argument",
                  problem);
  }
  *start.out = communicators().add(start.communicator);
  return ncclSuccess;
}

ncclResult_t end_group() {
  CallGroup ended = std::move(group);
  group = CallGroup{};
  ncclResult_t result = ended.error;
  for (const Start& start : ended.starts) {
    const ncclResult_t one = finish(start);
    if (result == ncclSuccess) result = one;
  }
  return result == ncclSuccess ? enqueue_all(std::move(ended.work)) : result;
}

// Remembers a mistake for the end of the group too.
ncclResult_t note(ncclResult_t result) {
  if (group.depth > 0 && group.error == ncclSuccess) group.error = result;
  return result;
}

ncclResult_t start(ncclComm_t* out, int ranks, const std::string& name, int rank, int device, void* context,
                   bool retained, const char* function) {
  if (out == nullptr || ranks < 1 || ranks > Rendezvous::kMostRanks || rank < 0 || rank >= ranks) {
    return note(refuse(function, ncclInvalidArgument, "bad-argument", "the rank or the number of ranks is wrong"));
  }
  std::string problem;
  auto communicator = std::make_shared<SimulatedCommunicator>();
  communicator->device = device;
  communicator->context = context;
  communicator->retained = retained;
  communicator->name = name;
  const std::vector<int> visible = sim::cuda::visible_devices(settings().devices);
  for (std::size_t i = 0; i < visible.size(); ++i) {
    if (visible[i] == device) communicator->ordinal = static_cast<int>(i);
  }
  communicator->channel->rendezvous.reset(Rendezvous::join(name, ranks, rank, device, &problem));
  if (communicator->channel->rendezvous == nullptr) {
    return note(refuse(function, ncclInvalidUsage, "collective-mismatch", problem));
  }
  if (group.depth > 0) {
    group.starts.push_back({communicator, out});
    return ncclSuccess;
  }
  return finish({communicator, out});
}

bool inside(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
  const auto x = reinterpret_cast<std::uint64_t>(a), y = reinterpret_cast<std::uint64_t>(b);
  return x < y + b_bytes && y < x + a_bytes;
}

// A buffer on the communicator's device, or memory that several devices may use.
ncclResult_t check_buffer(const SimulatedCommunicator& communicator, const void* pointer, std::size_t bytes,
                          const char* function) {
  if (bytes == 0) return ncclSuccess;
  if (pointer == nullptr) return refuse(function, ncclInvalidArgument, "bad-argument", "a buffer is null");
  int device = -1;
  std::size_t left = 0;
  if (driver()->pointer(reinterpret_cast<std::uint64_t>(pointer), &device, &left) != 0) {
    return refuse(function, ncclInvalidArgument, "bad-pointer", "a buffer is no memory of a device");
  }
  if (device >= 0 && device != communicator.device) {
    return refuse(function, ncclInvalidArgument, "wrong-owner", "a buffer is on another device than the communicator");
  }
  return ncclSuccess;
}

ncclResult_t submit(Work work, ncclComm_t handle, const char* function) {
  const auto check = [&]() -> ncclResult_t {
    if (handle == nullptr) return refuse(function, ncclInvalidArgument, "bad-handle", "the communicator is null");
    work.communicator = communicators().get(handle, function);
    if (work.communicator == nullptr) return ncclInvalidArgument;
    SimulatedCommunicator& communicator = *work.communicator;
    if (communicator.finalized)
      return refuse(function, ncclInvalidUsage, "destroyed-in-use", "the communicator was finalized");
    if (communicator.error != ncclSuccess) return static_cast<ncclResult_t>(communicator.error.load());
    const CurrentContext current(communicator.context);
    int device = -1;
    if (driver()->stream_device(work.stream, &device) != 0) return ncclUnhandledCudaError;
    if (device != communicator.device) {
      return refuse(function, ncclUnhandledCudaError, "wrong-owner",
                    "the stream is on another device than the communicator");
    }
    if (const ncclResult_t bad = check_buffer(communicator, work.send, work.send_bytes, function)) return bad;
    return check_buffer(communicator, work.receive, work.receive_bytes, function);
  };
  if (const ncclResult_t bad = check()) return note(bad);
  if (group.depth == 0) return enqueue_all({work});
  group.work.push_back(std::move(work));
  return ncclSuccess;
}

// One collective; which buffers a rank uses, how large they are and how they may lie follows from its kind.
ncclResult_t collective(CollectiveKind kind, const void* send, void* receive, std::size_t count, int type,
                        int reduction, int root, ncclComm_t handle, cudaStream_t stream) {
  const char* function = name_of(kind);
  const std::size_t size = nccl_type_bytes(type);
  const bool reduces =
      kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce || kind == CollectiveKind::reduce_scatter;
  const bool rooted = kind == CollectiveKind::reduce || kind == CollectiveKind::broadcast;
  if (size == 0) return note(refuse(function, ncclInvalidArgument, "bad-argument", "unknown data type"));
  if (reduces && (reduction < kSum || reduction > kAverage)) {
    return note(refuse(function, ncclInvalidArgument, "bad-argument", "unknown reduction"));
  }
  if (reduces && !nccl_reducible(type)) {
    return note(refuse(function, ncclInvalidArgument, "bad-argument", "the simulator does not reduce this type"));
  }
  const auto communicator = handle == nullptr ? nullptr : communicators().get(handle, function);
  if (communicator == nullptr) {
    if (handle == nullptr) refuse(function, ncclInvalidArgument, "bad-handle", "the communicator is null");
    return note(ncclInvalidArgument);
  }
  const auto ranks = static_cast<std::size_t>(communicator->ranks());
  const auto rank = static_cast<std::size_t>(communicator->rank());
  if (rooted && (root < 0 || root >= communicator->ranks())) {
    return note(refuse(function, ncclInvalidArgument, "bad-argument", "the root is no rank"));
  }
  const bool is_root = communicator->rank() == root;
  Work work{};
  work.stream = stream;
  work.collective = {kind, count, type, reduces ? reduction : 0, rooted ? root : 0};
  work.send = send;
  work.receive = receive;
  work.send_bytes = work.receive_bytes = count * size;
  const char* in_place = static_cast<const char*>(receive);  // where send may lie then
  switch (kind) {
    case CollectiveKind::reduce:
      if (!is_root) work.receive_bytes = 0;
      break;
    case CollectiveKind::broadcast:
      if (!is_root) work.send_bytes = 0;
      break;
    case CollectiveKind::all_gather:
      work.receive_bytes *= ranks;
      in_place += rank * count * size;
      break;
    case CollectiveKind::reduce_scatter:
      work.send_bytes *= ranks;
      in_place -= rank * count * size;
      break;
    default: break;
  }
  if (send != in_place && inside(send, work.send_bytes, receive, work.receive_bytes)) {
    return note(refuse(function, ncclInvalidArgument, "bad-argument", "the buffers overlap and are not in place"));
  }
  // Nothing to do is nothing to agree on either.
  if (count == 0) return ncclSuccess;
  return submit(std::move(work), handle, function);
}

ncclResult_t transfer(bool sends, const void* buffer, std::size_t count, int type, int peer, ncclComm_t handle,
                      cudaStream_t stream) {
  const char* function = sends ? "ncclSend" : "ncclRecv";
  if (nccl_type_bytes(type) == 0)
    return note(refuse(function, ncclInvalidArgument, "bad-argument", "unknown data type"));
  const auto communicator = handle == nullptr ? nullptr : communicators().get(handle, function);
  if (communicator == nullptr) return note(ncclInvalidArgument);
  if (peer < 0 || peer >= communicator->ranks()) {
    return note(refuse(function, ncclInvalidArgument, "bad-argument", "the peer is no rank"));
  }
  if (count == 0) return ncclSuccess;
  Work work{};
  work.stream = stream;
  work.is_transfer = true;
  work.peer = peer;
  (sends ? work.send : work.receive) = buffer;
  (sends ? work.send_bytes : work.receive_bytes) = count * nccl_type_bytes(type);
  return submit(std::move(work), handle, function);
}

ncclResult_t end(ncclComm_t handle, bool aborts, const char* function) {
  if (handle == nullptr) return ncclSuccess;
  const auto communicator = communicators().get(handle, function);
  if (communicator == nullptr) return ncclInvalidArgument;
  communicator->aborted = aborts;
  communicator->ended = true;
  if (aborts) communicator->channel->rendezvous->abort();
  if (communicator->retained) cu("cuDevicePrimaryCtxRelease_v2", communicator->ordinal);
  communicators().remove(handle);
  return ncclSuccess;
}

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
const char* ncclGetLastError(ncclComm_t) { return last_error.c_str(); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (id == nullptr) return ncclInvalidArgument;
  std::random_device random;
  *id = {};
  std::snprintf(id->internal, sizeof id->internal, "/%s%08x%08x%08x", kIdText, random(), random(), random());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* out, int ranks, ncclUniqueId id, int rank, const ncclConfig_t* config) {
  const char* function = "ncclCommInitRankConfig";
  if (config != nullptr && (config->magic != kConfigMagic || config->size < sizeof(ncclConfig_t))) {
    return note(refuse(function, ncclInvalidArgument, "bad-argument", "the configuration was not initialized"));
  }
  if (std::strncmp(id.internal + 1, kIdText, sizeof kIdText - 1) != 0 || id.internal[sizeof id.internal - 1] != '\0') {
    return note(refuse(function, ncclInvalidArgument, "bad-argument", "the unique id was not made by ncclGetUniqueId"));
  }
  int device = -1;
  if (driver() == nullptr) return note(ncclUnhandledCudaError);
  if (driver()->current_device(&device) != 0) {
    return note(refuse(function, ncclUnhandledCudaError, "no-context", "the calling thread has no current context"));
  }
  void* context = nullptr;
  cu("cuCtxGetCurrent", &context);
  return start(out, ranks, id.internal, rank, device, context, false, function);
}
ncclResult_t ncclCommInitRank(ncclComm_t* out, int ranks, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(out, ranks, id, rank, nullptr);
}

ncclResult_t ncclCommInitAll(ncclComm_t* out, int count, const int* devices) {
  if (out == nullptr || count < 1 || driver() == nullptr) return ncclInvalidArgument;
  const std::vector<int> visible = sim::cuda::visible_devices(settings().devices);
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  ++group.depth;
  for (int rank = 0; rank < count; ++rank) {
    const int ordinal = devices == nullptr ? rank : devices[rank];
    void* context = nullptr;
    if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= visible.size()) {
      note(refuse(__func__, ncclInvalidArgument, "bad-argument", "there is no such device"));
    } else if (cu("cuDevicePrimaryCtxRetain", &context, ordinal) != 0) {
      note(ncclUnhandledCudaError);
    } else {
      start(&out[rank], count, id.internal, rank, visible[static_cast<std::size_t>(ordinal)], context, true, __func__);
    }
  }
  return --group.depth == 0 ? end_group() : group.error;
}

// Those of one color become a communicator of their own, in the order of their keys.
ncclResult_t ncclCommSplit(ncclComm_t handle, int color, int key, ncclComm_t* out, const ncclConfig_t*) {
  const auto parent = communicators().get(handle, __func__);
  if (parent == nullptr || out == nullptr) return note(ncclInvalidArgument);
  if (group.depth > 0)
    return note(refuse(__func__, ncclInvalidUsage, "bad-argument", "the simulator splits outside of groups"));
  *out = nullptr;
  Channel& channel = *parent->channel;
  Rendezvous& at = *channel.rendezvous;
  std::set<std::pair<int, int>> members;  // key, rank
  {
    const std::lock_guard lock(channel.mutex);
    const int mine[2] = {color, key};
    std::memcpy(at.buffer(at.rank()), mine, sizeof mine);
    if (!at.barrier(__func__)) return refuse(__func__, ncclRemoteError, "hang", at.text());
    for (int rank = 0; rank < at.ranks(); ++rank) {
      int other[2];
      std::memcpy(other, at.buffer(rank), sizeof other);
      if (other[0] == color) members.emplace(other[1], rank);
    }
    if (!at.barrier(__func__)) return refuse(__func__, ncclRemoteError, "hang", at.text());
  }
  const int split = parent->splits++;
  if (color < 0) return ncclSuccess;  // NCCL_SPLIT_NOCOLOR
  int rank = 0;
  for (const auto& [member_key, member] : members) {
    if (member == at.rank()) break;
    ++rank;
  }
  return start(out, static_cast<int>(members.size()),
               parent->name + "_" + std::to_string(split) + "_" + std::to_string(color), rank, parent->device,
               parent->context, false, __func__);
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  if (handle == nullptr) return ncclSuccess;
  const auto communicator = communicators().get(handle, __func__);
  if (communicator == nullptr) return ncclInvalidArgument;
  if (communicator->finalized) return refuse(__func__, ncclInvalidArgument, "destroyed-in-use", "finalized already");
  communicator->finalized = true;
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t handle) { return end(handle, false, __func__); }
ncclResult_t ncclCommAbort(ncclComm_t handle) { return end(handle, true, __func__); }

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
  *device = communicator->ordinal;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (group.depth == 0) return refuse(__func__, ncclInvalidUsage, "bad-argument", "not in a group call.");
  return --group.depth == 0 ? end_group() : ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* send, void* receive, std::size_t count, int type, int reduction, ncclComm_t comm,
                           cudaStream_t stream) {
  return collective(CollectiveKind::all_reduce, send, receive, count, type, reduction, 0, comm, stream);
}
ncclResult_t ncclReduce(const void* send, void* receive, std::size_t count, int type, int reduction, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return collective(CollectiveKind::reduce, send, receive, count, type, reduction, root, comm, stream);
}
ncclResult_t ncclBroadcast(const void* send, void* receive, std::size_t count, int type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return collective(CollectiveKind::broadcast, send, receive, count, type, 0, root, comm, stream);
}
ncclResult_t ncclAllGather(const void* send, void* receive, std::size_t count, int type, ncclComm_t comm,
                           cudaStream_t stream) {
  return collective(CollectiveKind::all_gather, send, receive, count, type, 0, 0, comm, stream);
}
ncclResult_t ncclReduceScatter(const void* send, void* receive, std::size_t count, int type, int reduction,
                               ncclComm_t comm, cudaStream_t stream) {
  return collective(CollectiveKind::reduce_scatter, send, receive, count, type, reduction, 0, comm, stream);
}
ncclResult_t ncclSend(const void* buffer, std::size_t count, int type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return transfer(true, buffer, count, type, peer, comm, stream);
}
ncclResult_t ncclRecv(void* buffer, std::size_t count, int type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return transfer(false, buffer, count, type, peer, comm, stream);
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
