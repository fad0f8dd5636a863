// One library with the functions of four vendors, as their documentation has them: for threads of one process as members,
// on host memory, at once. Each face has its own numbers, checks what is handed over, and answers what the vendor's would.
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

enum Type { i8, i16, i32, i64, u8, f32, f64, unknown_type };
enum Operation { sum, product, smallest, largest, average, unknown_operation };
size_t bytes_of(Type type) {
  constexpr size_t sizes[] = {1, 2, 4, 8, 1, 4, 8, 0};
  return sizes[type];
}

struct Clique {
  explicit Clique(int members) : send(static_cast<size_t>(members)) {}
  std::mutex mutex;
  std::condition_variable changed;
  int size = 0, arrived = 0;
  uint64_t generation = 0;
  bool aborted = false;
  std::vector<const void*> send;
  std::map<std::pair<int, int>, std::vector<std::vector<char>>> mail;  // from, to
};
struct Comm {
  std::shared_ptr<Clique> clique;
  int rank, size, device;
};

std::mutex cliques_mutex;
std::map<std::string, std::shared_ptr<Clique>> cliques;
uint64_t next_id = 1;

// An id: a text at its beginning and a mark in its last bytes, so that one that was cut is noticed.
void write_id(void* id, size_t bytes) {
  const std::lock_guard lock(cliques_mutex);
  std::memset(id, 0, bytes);
  std::memcpy(id, &next_id, sizeof next_id);
  ++next_id;
  const uint64_t mark = 0xC0FFEE00 + bytes;
  std::memcpy(static_cast<char*>(id) + bytes - 4, &mark, 4);
}
bool id_is_whole(const void* id, size_t bytes) {
  uint32_t mark = 0;
  std::memcpy(&mark, static_cast<const char*>(id) + bytes - 4, 4);
  return mark == 0xC0FFEE00 + bytes;
}

bool barrier(Clique& clique) {
  std::unique_lock lock(clique.mutex);
  const uint64_t now = clique.generation;
  if (++clique.arrived == clique.size) {
    clique.arrived = 0;
    ++clique.generation;
    clique.changed.notify_all();
    return true;
  }
  clique.changed.wait(lock, [&] { return clique.generation != now || clique.aborted; });
  return clique.generation != now;
}

Comm* join(const void* id, size_t bytes, int rank, int size, int device) {
  if (!id_is_whole(id, bytes) || rank < 0 || rank >= size) return nullptr;
  std::shared_ptr<Clique> clique;
  {
    const std::lock_guard lock(cliques_mutex);
    auto& found = cliques[std::string(static_cast<const char*>(id), bytes)];
    if (!found) {
      found = std::make_shared<Clique>(size);
      found->size = size;
    }
    clique = found;
  }
  if (clique->size != size || !barrier(*clique)) return nullptr;
  return new Comm{clique, rank, size, device};
}

template <class T>
void combine(Comm& comm, const std::vector<const void*>& sources, size_t first, size_t count, Operation op, void* out) {
  std::vector<T> result(count);
  for (size_t i = 0; i < count; ++i) {
    T value = static_cast<const T*>(sources[0])[first + i];
    for (size_t rank = 1; rank < sources.size(); ++rank) {
      const T other = static_cast<const T*>(sources[rank])[first + i];
      if (op == sum || op == average) value = static_cast<T>(value + other);
      if (op == product) value = static_cast<T>(value * other);
      if (op == smallest) value = other < value ? other : value;
      if (op == largest) value = other > value ? other : value;
    }
    result[i] = op == average ? static_cast<T>(value / static_cast<T>(sources.size())) : value;
  }
  barrier(*comm.clique);  // everybody has read before anybody writes
  if (out) std::memcpy(out, result.data(), count * sizeof(T));
}

// 0, or 1 when it was aborted. `first`: where this member's part begins.
int reduction(Comm& comm, const void* send, void* recv, size_t first, size_t count, Type type, Operation op) {
  {
    const std::lock_guard lock(comm.clique->mutex);
    comm.clique->send[static_cast<size_t>(comm.rank)] = send;
  }
  if (!barrier(*comm.clique)) return 1;
  const std::vector<const void*> sources = comm.clique->send;
  switch (type) {
    case i8: combine<int8_t>(comm, sources, first, count, op, recv); break;
    case i16: combine<int16_t>(comm, sources, first, count, op, recv); break;
    case i32: combine<int32_t>(comm, sources, first, count, op, recv); break;
    case i64: combine<int64_t>(comm, sources, first, count, op, recv); break;
    case u8: combine<uint8_t>(comm, sources, first, count, op, recv); break;
    case f32: combine<float>(comm, sources, first, count, op, recv); break;
    case f64: combine<double>(comm, sources, first, count, op, recv); break;
    case unknown_type: return 1;
  }
  return barrier(*comm.clique) ? 0 : 1;
}

// Every member's `bytes`, or only those of `root`.
int carry(Comm& comm, const void* send, void* recv, size_t bytes, int root) {
  {
    const std::lock_guard lock(comm.clique->mutex);
    comm.clique->send[static_cast<size_t>(comm.rank)] = send;
  }
  if (!barrier(*comm.clique)) return 1;
  std::vector<char> got;
  for (int rank = 0; rank < comm.size; ++rank) {
    if (root >= 0 && rank != root) continue;
    const auto* from = static_cast<const char*>(comm.clique->send[static_cast<size_t>(rank)]);
    got.insert(got.end(), from, from + bytes);
  }
  if (!barrier(*comm.clique)) return 1;
  std::memcpy(recv, got.data(), got.size());
  return barrier(*comm.clique) ? 0 : 1;
}

int post(Comm& comm, const void* data, size_t bytes, int peer) {
  const std::lock_guard lock(comm.clique->mutex);
  const auto* from = static_cast<const char*>(data);
  comm.clique->mail[{comm.rank, peer}].emplace_back(from, from + bytes);
  comm.clique->changed.notify_all();
  return 0;
}
int fetch(Comm& comm, void* data, size_t bytes, int peer) {
  std::unique_lock lock(comm.clique->mutex);
  auto& box = comm.clique->mail[{peer, comm.rank}];
  comm.clique->changed.wait(lock, [&] { return !box.empty() || comm.clique->aborted; });
  if (box.empty() || box.front().size() != bytes) return 1;
  std::memcpy(data, box.front().data(), bytes);
  box.erase(box.begin());
  return 0;
}
// An aborted communicator is kept: another thread may still be inside one of its calls.
void end(Comm* comm, bool aborts) {
  static std::vector<std::unique_ptr<Comm>> kept;
  std::unique_ptr<Comm> owned(comm);
  if (!aborts) return;
  const std::lock_guard lock(cliques_mutex);
  kept.push_back(std::move(owned));
  const std::lock_guard clique_lock(comm->clique->mutex);
  comm->clique->aborted = true;
  comm->clique->changed.notify_all();
}

Comm& object(void* comm) { return *static_cast<Comm*>(comm); }
size_t part(void* comm, size_t count) { return static_cast<size_t>(object(comm).rank) * count; }
thread_local int depth = 0;

}  // namespace

// ---- CNCL: an id of 136 bytes with a check, lists of devices and ranks, errors as results, no average ----

namespace {
Type cncl_type(int number) {
  switch (number) {
    case 0x12: return f32;
    case 0x20: return i8;
    case 0x21: return i16;
    case 0x22: return i32;
    case 0x23: return i64;
    case 0x30: return u8;
    default: return unknown_type;
  }
}
Operation cncl_operation(int number) {
  constexpr Operation numbers[] = {sum, product, largest, smallest};
  return number >= 0 && number < 4 ? numbers[number] : unknown_operation;
}
}  // namespace
struct cnclCliqueId {
  char data[128];
  uint64_t hash;
};
EXPORT int cnclGetCliqueId(cnclCliqueId* id) {
  write_id(id, sizeof *id);
  return 0;
}
EXPORT int cnclInitComms(void** comms, int count, const int* devices, const int* ranks, int size, cnclCliqueId* id) {
  if (count != 1) return 2;
  *comms = join(id, sizeof *id, ranks[0], size, devices[0]);
  return *comms ? 0 : 2;
}
EXPORT int cnclFreeComm(void* comm) {
  end(&object(comm), false);
  return 0;
}
EXPORT int cnclAbortComm(void* comm) {
  end(&object(comm), true);
  return 0;
}
EXPORT int cnclGetCommAsyncError(void* comm) { return object(comm).device == 13 ? 9 : 6; }  // 6: in progress
EXPORT const char* cnclGetErrorStr(int result) { return result == 9 ? "CNCL_RET_ERR_LINK" : "CNCL_RET_ERR_ARGUMENTS"; }
EXPORT int cnclGroupStart() { return ++depth > 0 ? 0 : 1; }
EXPORT int cnclGroupEnd() { return --depth >= 0 ? 0 : 1; }
EXPORT int cnclAllReduce(const void* send, void* recv, size_t count, int type, int op, void* comm, void*) {
  if (cncl_type(type) == unknown_type || cncl_operation(op) == unknown_operation) return 2;
  return reduction(object(comm), send, recv, 0, count, cncl_type(type), cncl_operation(op));
}
EXPORT int cnclBroadcast(const void* send, void* recv, size_t count, int type, int root, void* comm, void*) {
  if (cncl_type(type) == unknown_type) return 2;
  return carry(object(comm), send, recv, count * bytes_of(cncl_type(type)), root);
}
EXPORT int cnclSend(const void* data, size_t count, int type, int peer, void* comm, void*) {
  return post(object(comm), data, count * bytes_of(cncl_type(type)), peer);
}
EXPORT int cnclRecv(void* data, size_t count, int type, int peer, void* comm, void*) {
  return fetch(object(comm), data, count * bytes_of(cncl_type(type)), peer);
}

// ---- HCCL of Ascend: an id of 4108 bytes by its address, broadcast in place, no groups, no abort, no average ----

namespace {
Type ascend_type(int number) {
  constexpr Type numbers[] = {i8, i16, i32, unknown_type, f32, i64, unknown_type, u8};
  return number == 10 ? f64 : number >= 0 && number < 8 ? numbers[number] : unknown_type;
}
Operation ascend_operation(int number) {
  constexpr Operation numbers[] = {sum, product, largest, smallest};
  return number >= 0 && number < 4 ? numbers[number] : unknown_operation;
}
}  // namespace
EXPORT int HcclGetRootInfo(void* id) {
  write_id(id, 4108);
  return 0;
}
EXPORT int HcclCommInitRootInfo(uint32_t size, const void* id, uint32_t rank, void** comm) {
  *comm = join(id, 4108, static_cast<int>(rank), static_cast<int>(size), 0);
  return *comm ? 0 : 1;
}
EXPORT int HcclCommDestroy(void* comm) {
  end(&object(comm), false);
  return 0;
}
EXPORT int HcclGetCommAsyncError(void*, int* error) {
  *error = 0;
  return 0;
}
EXPORT const char* HcclGetErrorString(int) { return "HCCL_E_PARA"; }
EXPORT int HcclAllReduce(void* send, void* recv, uint64_t count, int type, int op, void* comm, void*) {
  if (ascend_type(type) == unknown_type || ascend_operation(op) == unknown_operation) return 5;
  return reduction(object(comm), send, recv, 0, count, ascend_type(type), ascend_operation(op));
}
EXPORT int HcclAllGather(void* send, void* recv, uint64_t count, int type, void* comm, void*) {
  return carry(object(comm), send, recv, count * bytes_of(ascend_type(type)), -1);
}
EXPORT int HcclReduceScatter(void* send, void* recv, uint64_t count, int type, int op, void* comm, void*) {
  return reduction(object(comm), send, recv, part(comm, count), count, ascend_type(type), ascend_operation(op));
}
EXPORT int HcclBroadcast(void* data, uint64_t count, int type, uint32_t root, void* comm, void*) {
  return carry(object(comm), data, data, count * bytes_of(ascend_type(type)), static_cast<int>(root));
}

// ---- hccl of Habana: an id of 1032 bytes by value, smallest and largest swapped ----

namespace {
Type habana_type(int number) {
  constexpr Type numbers[] = {i8, u8, i32, unknown_type, i64, unknown_type, unknown_type, f32, f64};
  return number >= 0 && number < 9 ? numbers[number] : unknown_type;
}
Operation habana_operation(int number) {
  constexpr Operation numbers[] = {sum, product, smallest, largest, average};
  return number >= 0 && number < 5 ? numbers[number] : unknown_operation;
}
}  // namespace
struct hcclUniqueId {
  uint8_t internal[1024];
  size_t length;
};
EXPORT int hcclGetVersion(int* version) {
  *version = 1190;
  return 0;
}
EXPORT int hcclGetUniqueId(hcclUniqueId* id) {
  write_id(id, sizeof *id);
  return 0;
}
EXPORT int hcclCommInitRank(void** comm, int size, hcclUniqueId id, int rank) {
  *comm = join(&id, sizeof id, rank, size, 0);
  return *comm ? 0 : 4;
}
EXPORT int hcclCommDestroy(void* comm) {
  end(&object(comm), false);
  return 0;
}
EXPORT int hcclCommAbort(void* comm) {
  end(&object(comm), true);
  return 0;
}
EXPORT int hcclGetAsyncError(void*, int* error) {
  *error = 0;
  return 0;
}
EXPORT int hcclGroupStart() { return ++depth > 0 ? 0 : 1; }
EXPORT int hcclGroupEnd() { return --depth >= 0 ? 0 : 1; }
EXPORT int hcclAllReduce(const void* send, void* recv, size_t count, int type, int op, void* comm, void*) {
  if (habana_type(type) == unknown_type || habana_operation(op) == unknown_operation) return 4;
  return reduction(object(comm), send, recv, 0, count, habana_type(type), habana_operation(op));
}
EXPORT int hcclReduce(const void* send, void* recv, size_t count, int type, int op, int root, void* comm, void*) {
  void* target = object(comm).rank == root ? recv : nullptr;
  return reduction(object(comm), send, target, 0, count, habana_type(type), habana_operation(op));
}
EXPORT int hcclReduceScatter(const void* send, void* recv, size_t count, int type, int op, void* comm, void*) {
  return reduction(object(comm), send, recv, part(comm, count), count, habana_type(type), habana_operation(op));
}

// ---- TCCL: an id of 128 bytes by value, its own numbers, no groups, no average, nothing to ask for errors ----

namespace {
Type tccl_type(int number) {
  constexpr Type numbers[] = {i8, u8, i32, unknown_type, f32, f64, i64};
  return number >= 0 && number < 7 ? numbers[number] : unknown_type;
}
}  // namespace
struct tcclUniqueId {
  char internal[128];
};
EXPORT int tcclGetUniqueId(tcclUniqueId* id) {
  write_id(id, sizeof *id);
  return 0;
}
EXPORT int tcclCommInitRank(void** comm, int size, tcclUniqueId id, int rank) {
  *comm = join(&id, sizeof id, rank, size, 0);
  return *comm ? 0 : 4;
}
EXPORT int tcclCommDestroy(void* comm) {
  end(&object(comm), false);
  return 0;
}
EXPORT int tcclAllReduce(const void* send, void* recv, size_t count, int type, int op, void* comm, void*) {
  if (tccl_type(type) == unknown_type || cncl_operation(op) == unknown_operation) return 4;
  return reduction(object(comm), send, recv, 0, count, tccl_type(type), cncl_operation(op));
}
