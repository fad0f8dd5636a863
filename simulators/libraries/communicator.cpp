// Implements the communicators of the simulated libraries of collectives.
#include "simulators/libraries/communicator.h"

#include <cstring>
#include <utility>
#include <vector>

namespace sim_library {

thread_local std::string last_collective_error;

int refuse(const char* function, int result, const char* kind, const std::string& what) {
  last_collective_error = std::string(function) + ": " + what;
  violation(kind, last_collective_error);
  return result;
}

Handles<SimulatedCommunicator>& communicators() {
  static auto* handles = new Handles<SimulatedCommunicator>(collective_vendor().object);
  return *handles;
}

namespace {

constexpr char kIdMark = 'Z';

const CollectiveCodes& codes() { return collective_vendor().codes; }

// The communicator's context current for a while, whatever the caller's is.
class CurrentContext {
 public:
  explicit CurrentContext(void* context) {
    before_ = driver()->current_context();
    changed_ = before_ != context;
    if (changed_) driver()->set_context(context);
  }
  ~CurrentContext() {
    if (changed_) driver()->set_context(before_);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  void* before_ = nullptr;
  bool changed_ = false;
};

// The calls that a group has deferred to its end.
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
  void** out;
  const char* function;
};
struct CallGroup {
  int depth = 0;
  int error = kSuccess;
  std::vector<Work> work;
  std::vector<Start> starts;
};
thread_local CallGroup group;

void report(const std::shared_ptr<SimulatedCommunicator>& communicator, const Outcome& outcome) {
  if (outcome.text.empty()) return;
  communicator->error = outcome.violation == "collective-mismatch" ? codes().invalid_usage : codes().remote;
  if (!outcome.violation.empty()) violation(outcome.violation.c_str(), outcome.text);
}

sim_hooks::Range range(const void* pointer, std::size_t bytes, bool write) {
  return {reinterpret_cast<std::uint64_t>(pointer), bytes, write};
}

bool usable(const std::shared_ptr<SimulatedCommunicator>& communicator, const char* what) {
  if (!communicator->ended) return true;
  if (communicator->aborted) return false;
  violation("destroyed-in-use", std::string(what) + " runs after the end of its communicator");
  return false;
}

int enqueue(const Work& work, std::vector<Work> transfers) {
  const CurrentContext current(work.communicator->context);
  const auto communicator = work.communicator;
  std::vector<sim_hooks::Range> ranges;
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
    result = driver()->enqueue(work.stream, "sends and receives", ranges, [=](char* const* bytes) {
      if (!usable(communicator, "a send or a receive")) return;
      std::vector<Transfer> list;
      for (std::size_t i = 0; i < transfers.size(); ++i) {
        const Work& one = transfers[i];
        list.push_back({one.send != nullptr, one.peer, bytes[i], one.send_bytes + one.receive_bytes});
      }
      report(communicator, run_transfers(*communicator->channel, std::move(list)));
    });
  }
  return result == 0 ? kSuccess : codes().device;
}

// All of a group: transfers on one communicator and stream go together, since each may wait for the other side of
// another.
int enqueue_all(std::vector<Work> work) {
  int result = kSuccess;
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
    const int one = enqueue(work[i], std::move(together));
    if (result == kSuccess) result = one;
  }
  return result;
}

// Whoever waits in vain for another process, which has ended, has done nothing wrong.
int not_joined(const char* function, const std::string& problem, const char* kind) {
  if (*kind != '\0') return refuse(function, codes().invalid_usage, kind, problem);
  last_collective_error = std::string(function) + ": " + problem;
  return codes().remote;
}

int finish(const Start& start) {
  const char* kind = "";
  const std::string problem = start.communicator->channel->rendezvous->wait_for_all(&kind);
  if (!problem.empty()) return not_joined(start.function, problem, kind);
  *start.out = communicators().add(start.communicator);
  return kSuccess;
}

int end_group() {
  CallGroup ended = std::move(group);
  group = CallGroup{};
  int result = ended.error;
  for (const Start& start : ended.starts) {
    const int one = finish(start);
    if (result == kSuccess) result = one;
  }
  return result == kSuccess ? enqueue_all(std::move(ended.work)) : result;
}

bool inside(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
  const auto x = reinterpret_cast<std::uint64_t>(a), y = reinterpret_cast<std::uint64_t>(b);
  return x < y + b_bytes && y < x + a_bytes;
}

// A buffer on the communicator's device, or memory that several devices may use.
int check_buffer(const SimulatedCommunicator& communicator, const void* pointer, std::size_t bytes,
                 const char* function) {
  if (bytes == 0) return kSuccess;
  if (pointer == nullptr) return refuse(function, codes().invalid_argument, "bad-argument", "a buffer is null");
  int device = -1;
  std::size_t left = 0;
  if (driver()->pointer(reinterpret_cast<std::uint64_t>(pointer), &device, &left) != 0) {
    return refuse(function, codes().invalid_argument, "bad-pointer", "a buffer is no memory of a device");
  }
  if (device >= 0 && device != communicator.device) {
    return refuse(function, codes().invalid_argument, "wrong-owner",
                  "a buffer is on another device than the communicator");
  }
  return kSuccess;
}

int submit(Work work, void* handle, const char* function) {
  const auto check = [&]() -> int {
    if (handle == nullptr) return refuse(function, codes().invalid_argument, "bad-handle", "the communicator is null");
    work.communicator = communicators().get(handle, function);
    if (work.communicator == nullptr) return codes().invalid_argument;
    SimulatedCommunicator& communicator = *work.communicator;
    if (communicator.finalized)
      return refuse(function, codes().invalid_usage, "destroyed-in-use", "the communicator was finalized");
    if (communicator.error != kSuccess) return communicator.error;
    const CurrentContext current(communicator.context);
    int device = -1;
    if (driver()->stream_device(work.stream, &device) != 0) return codes().device;
    if (device != communicator.device) {
      return refuse(function, codes().device, "wrong-owner", "the stream is on another device than the communicator");
    }
    if (const int bad = check_buffer(communicator, work.send, work.send_bytes, function); bad != kSuccess) return bad;
    return check_buffer(communicator, work.receive, work.receive_bytes, function);
  };
  if (const int bad = check(); bad != kSuccess) return note(bad);
  if (group.depth == 0) return enqueue_all({work});
  group.work.push_back(std::move(work));
  return kSuccess;
}

}  // namespace

// Remembers a mistake for the end of the group too.
int note(int result) {
  if (group.depth > 0 && group.error == kSuccess) group.error = result;
  return result;
}

int start_communicator(void** out, int ranks, const std::string& name, int rank, int device, void* context,
                       std::function<void()> on_end, const char* function) {
  if (out == nullptr || ranks < 1 || ranks > Rendezvous::kMostRanks || rank < 0 || rank >= ranks) {
    return note(refuse(function, codes().invalid_argument, "bad-argument", "the rank or the number of ranks is wrong"));
  }
  std::string problem;
  auto communicator = std::make_shared<SimulatedCommunicator>();
  communicator->device = device;
  communicator->context = context;
  communicator->on_end = std::move(on_end);
  communicator->name = name;
  const char* kind = "";
  communicator->channel->rendezvous.reset(Rendezvous::join(name, ranks, rank, device, &problem, &kind));
  if (communicator->channel->rendezvous == nullptr) return note(not_joined(function, problem, kind));
  if (group.depth > 0) {
    group.starts.push_back({communicator, out, function});
    return kSuccess;
  }
  return finish({communicator, out, function});
}

// One collective; which buffers a rank uses, how large they are and how they may lie follows from its kind.
int collective(CollectiveKind kind, const void* send, void* receive, std::size_t count, int vendor_type,
               int vendor_reduction, int root, void* handle, void* stream, const char* function) {
  const int type = collective_vendor().type_of(vendor_type);
  const std::size_t size = nccl_type_bytes(type);
  const bool reduces =
      kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce || kind == CollectiveKind::reduce_scatter;
  const bool rooted = kind == CollectiveKind::reduce || kind == CollectiveKind::broadcast;
  if (size == 0) return note(refuse(function, codes().invalid_argument, "bad-argument", "unknown data type"));
  const int reduction = reduces ? collective_vendor().reduction_of(vendor_reduction) : 0;
  if (reduction < 0) {
    return note(refuse(function, codes().invalid_argument, "bad-argument", "unknown reduction"));
  }
  if (reduces && !nccl_reducible(type)) {
    return note(refuse(function, codes().invalid_argument, "bad-argument", "the simulator does not reduce this type"));
  }
  const auto communicator = handle == nullptr ? nullptr : communicators().get(handle, function);
  if (communicator == nullptr) {
    if (handle == nullptr) refuse(function, codes().invalid_argument, "bad-handle", "the communicator is null");
    return note(codes().invalid_argument);
  }
  const auto ranks = static_cast<std::size_t>(communicator->ranks());
  const auto rank = static_cast<std::size_t>(communicator->rank());
  if (rooted && (root < 0 || root >= communicator->ranks())) {
    return note(refuse(function, codes().invalid_argument, "bad-argument", "the root is no rank"));
  }
  const bool is_root = communicator->rank() == root;
  Work work{};
  work.stream = stream;
  work.collective = {kind, count, type, reduction, rooted ? root : 0};
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
    return note(refuse(function, codes().invalid_argument, "bad-argument", "the buffers overlap and are not in place"));
  }
  // Nothing to do is nothing to agree on either.
  if (count == 0) return kSuccess;
  return submit(std::move(work), handle, function);
}

int transfer(bool sends, const void* buffer, std::size_t count, int vendor_type, int peer, void* handle, void* stream,
             const char* function) {
  const int type = collective_vendor().type_of(vendor_type);
  if (nccl_type_bytes(type) == 0)
    return note(refuse(function, codes().invalid_argument, "bad-argument", "unknown data type"));
  const auto communicator = handle == nullptr ? nullptr : communicators().get(handle, function);
  if (communicator == nullptr) return note(codes().invalid_argument);
  if (peer < 0 || peer >= communicator->ranks()) {
    return note(refuse(function, codes().invalid_argument, "bad-argument", "the peer is no rank"));
  }
  if (count == 0) return kSuccess;
  Work work{};
  work.stream = stream;
  work.is_transfer = true;
  work.peer = peer;
  (sends ? work.send : work.receive) = buffer;
  (sends ? work.send_bytes : work.receive_bytes) = count * nccl_type_bytes(type);
  return submit(std::move(work), handle, function);
}

int end_communicator(void* handle, bool aborts, const char* function) {
  if (handle == nullptr) return kSuccess;
  const auto communicator = communicators().get(handle, function);
  if (communicator == nullptr) return codes().invalid_argument;
  communicator->aborted = aborts;
  communicator->ended = true;
  if (aborts) communicator->channel->rendezvous->abort();
  if (communicator->on_end) communicator->on_end();
  communicators().remove(handle);
  return kSuccess;
}

bool make_id(char* id, std::size_t bytes, const char* text) {
  const std::string name = Rendezvous::make(text);
  if (name.empty() || name.size() + 2 > bytes) return false;
  std::memset(id, 0, bytes);
  std::memcpy(id, name.data(), name.size());
  id[bytes - 1] = kIdMark;
  return true;
}

bool is_id(const char* id, std::size_t bytes, const char* text) {
  return std::strncmp(id, text, std::strlen(text)) == 0 && id[bytes - 1] == kIdMark && id[bytes - 2] == '\0';
}

bool current_place(int* device, void** context, const char* function) {
  if (driver() == nullptr || driver()->current_device(device) != 0) {
    refuse(function, codes().device, "no-context", "the calling thread has no current device");
    return false;
  }
  *context = driver()->current_context();
  return true;
}

void begin_group() { ++group.depth; }
bool in_group() { return group.depth > 0; }
int finish_group() { return --group.depth == 0 ? end_group() : group.error; }

}  // namespace sim_library
