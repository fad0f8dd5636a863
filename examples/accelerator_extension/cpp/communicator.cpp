// Implements the collectives of acme. Yours: calls of the vendor's library of collectives, which enqueue and return;
// this device is synchronous, so a call returns when the work is complete.
//
// Each member has a slot in the shared memory. A call works in rounds: every member writes a part of its data into its
// slot, all meet, each reads what it needs from the slots, and all meet again before the slots are written anew.
#include "communicator.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

namespace acme {
namespace {

namespace abi = anyaccel::abi;

constexpr size_t slot_bytes = size_t{1} << 16;
constexpr int32_t most_members = 64;
constexpr std::chrono::minutes joining_limit{5};

struct Shared {
  std::atomic<int32_t> joined;
  std::atomic<int32_t> arrived;  // members that have come to the current meeting
  std::atomic<int32_t> meeting;  // how many meetings are over
  std::atomic<int32_t> aborted;
  static constexpr size_t head = 64;  // bytes before the slots
};
static_assert(sizeof(Shared) <= Shared::head && std::atomic<int32_t>::is_always_lock_free);

// Returns the bytes of an element; 0 for an unknown type.
size_t element_bytes(int32_t dtype) {
  switch (dtype) {
    case AA_DTYPE_BOOL:
    case AA_DTYPE_U8:
    case AA_DTYPE_I8:
    case AA_DTYPE_F8_E4M3:
    case AA_DTYPE_F8_E5M2: return 1;
    case AA_DTYPE_I16:
    case AA_DTYPE_F16:
    case AA_DTYPE_BF16: return 2;
    case AA_DTYPE_I32:
    case AA_DTYPE_F32: return 4;
    case AA_DTYPE_I64:
    case AA_DTYPE_F64: return 8;
    default: return 0;
  }
}

bool can_reduce(int32_t dtype, int32_t op) {
  if (op < AA_REDUCE_SUM || op > AA_REDUCE_AVG) return false;
  if (dtype == AA_DTYPE_I32 || dtype == AA_DTYPE_I64) return op != AA_REDUCE_AVG;
  return dtype == AA_DTYPE_F32 || dtype == AA_DTYPE_F64;
}

// Computes into = into (op) other. Sums and products of integers wrap: Wrapping is their unsigned type.
template <class Element, class Wrapping = Element>
void combine(void* into, const void* other, size_t count, int32_t op) {
  auto* to = static_cast<Element*>(into);
  const auto* from = static_cast<const Element*>(other);
  for (size_t i = 0; i < count; ++i) {
    switch (op) {
      case AA_REDUCE_PRODUCT:
        to[i] = static_cast<Element>(static_cast<Wrapping>(to[i]) * static_cast<Wrapping>(from[i]));
        break;
      case AA_REDUCE_MIN: to[i] = std::min(to[i], from[i]); break;
      case AA_REDUCE_MAX: to[i] = std::max(to[i], from[i]); break;
      default: to[i] = static_cast<Element>(static_cast<Wrapping>(to[i]) + static_cast<Wrapping>(from[i])); break;
    }
  }
}

template <class Element>
void divide(void* data, size_t count, int32_t by) {
  auto* elements = static_cast<Element*>(data);
  for (size_t i = 0; i < count; ++i) elements[i] /= static_cast<Element>(by);
}

// Describes one round of a call: the data that a member writes, and what it does with the slots.
struct Round {
  const void* write = nullptr;  // null: this member writes nothing
  void* reduce_to = nullptr;    // null: no reduction is wanted here
  void* copy_to = nullptr;  // null: no slot is copied; else those of the members first to last, `stride` bytes apart
  size_t stride = 0;
  int32_t first = 0;
  int32_t last = 0;
};

class Communicator final : public abi::Communicator {
 public:
  Communicator(const char* name, int32_t rank, int32_t size) : rank_(rank), size_(size) {
    const int file = shm_open(name, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (file < 0) throw abi::Failure(AA_UNAVAILABLE, "shared memory cannot be opened", errno);
    const size_t bytes = all_bytes();
    if (ftruncate(file, static_cast<off_t>(bytes)) == 0) {
      memory_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
    ::close(file);
    if (memory_ == MAP_FAILED) throw abi::Failure(AA_RESOURCE_EXHAUSTED, "no shared memory", errno);
    shared().joined.fetch_add(1);
    const auto begin = std::chrono::steady_clock::now();
    while (shared().joined.load() < size) {
      if (std::chrono::steady_clock::now() - begin > joining_limit) {
        munmap(memory_, bytes);
        throw abi::Failure(AA_DEADLINE_EXCEEDED, "other members did not come within five minutes");
      }
      std::this_thread::yield();
    }
  }
  ~Communicator() override { munmap(memory_, all_bytes()); }

  void abort() override { shared().aborted.store(1); }
  void async_error() override { check_abort(); }

  void all_reduce(abi::Stream& /*stream*/, const void* send, void* recv, size_t count, int32_t dtype,
                  int32_t op) override {
    check(dtype, op, true);
    run({.write = send, .reduce_to = recv}, count, dtype, op);
  }
  void reduce(abi::Stream& /*stream*/, const void* send, void* recv, size_t count, int32_t dtype, int32_t op,
              int32_t root) override {
    check(dtype, op, true);
    run({.write = send, .reduce_to = rank_ == root ? recv : nullptr}, count, dtype, op);
  }
  void broadcast(abi::Stream& /*stream*/, const void* send, void* recv, size_t count, int32_t dtype,
                 int32_t root) override {
    check(dtype, 0, false);
    run({.write = rank_ == root ? send : nullptr, .copy_to = recv, .first = root, .last = root}, count, dtype, 0);
  }
  void all_gather(abi::Stream& /*stream*/, const void* send, void* recv, size_t count, int32_t dtype) override {
    check(dtype, 0, false);
    run({.write = send, .copy_to = recv, .stride = count * element_bytes(dtype), .last = size_ - 1}, count, dtype, 0);
  }
  void reduce_scatter(abi::Stream& /*stream*/, const void* send, void* recv, size_t count, int32_t dtype,
                      int32_t op) override {
    check(dtype, op, true);
    const auto* parts = static_cast<const unsigned char*>(send);
    for (int32_t member = 0; member < size_; ++member) {
      run({.write = parts + static_cast<size_t>(member) * count * element_bytes(dtype),
           .reduce_to = member == rank_ ? recv : nullptr},
          count, dtype, op);
    }
  }
  // Groups, send and recv are not overridden: the host transfers messages between two members through its own memory.

 private:
  size_t all_bytes() const { return Shared::head + static_cast<size_t>(size_) * slot_bytes; }
  Shared& shared() const { return *static_cast<Shared*>(memory_); }
  unsigned char* slot(int32_t member) const {
    return static_cast<unsigned char*>(memory_) + Shared::head + static_cast<size_t>(member) * slot_bytes;
  }

  void check_abort() const {
    if (shared().aborted.load()) throw abi::Failure(AA_CANCELLED, "the communicator was aborted");
  }
  void check(int32_t dtype, int32_t op, bool reduces) const {
    if (reduces ? !can_reduce(dtype, op) : element_bytes(dtype) == 0) {
      throw abi::Failure(AA_UNIMPLEMENTED, "acmecl reduces F32, F64, I32 and I64, and carries every type");
    }
    check_abort();
  }

  // Returns when every member has arrived; throws if one of them has aborted.
  void meet() {
    const int32_t meeting = shared().meeting.load();
    if (shared().arrived.fetch_add(1) + 1 == size_) {
      shared().arrived.store(0);
      shared().meeting.fetch_add(1);
    }
    while (shared().meeting.load() == meeting) {
      check_abort();
      std::this_thread::yield();
    }
  }

  // Combines the slots of all members in the order of their ranks, so that every member gets the same bits.
  void reduce_slots(void* out, size_t count, int32_t dtype, int32_t op) const {
    std::memcpy(out, slot(0), count * element_bytes(dtype));
    for (int32_t member = 1; member < size_; ++member) {
      switch (dtype) {
        case AA_DTYPE_F32: combine<float>(out, slot(member), count, op); break;
        case AA_DTYPE_F64: combine<double>(out, slot(member), count, op); break;
        case AA_DTYPE_I32: combine<int32_t, uint32_t>(out, slot(member), count, op); break;
        default: combine<int64_t, uint64_t>(out, slot(member), count, op); break;
      }
    }
    if (op != AA_REDUCE_AVG) return;
    if (dtype == AA_DTYPE_F32) divide<float>(out, count, size_);
    if (dtype == AA_DTYPE_F64) divide<double>(out, count, size_);
  }

  // Runs the round for `count` elements, in pieces that fit in a slot.
  void run(const Round& round, size_t count, int32_t dtype, int32_t op) {
    const size_t width = element_bytes(dtype);
    const size_t most = slot_bytes / width;
    for (size_t done = 0; done < count; done += most) {
      const size_t now = std::min(count - done, most);
      const size_t offset = done * width;
      if (round.write) std::memcpy(slot(rank_), static_cast<const unsigned char*>(round.write) + offset, now * width);
      meet();
      if (round.reduce_to) reduce_slots(static_cast<unsigned char*>(round.reduce_to) + offset, now, dtype, op);
      auto* copies = static_cast<unsigned char*>(round.copy_to);
      for (int32_t member = round.first; copies && member <= round.last; ++member) {
        const auto place = static_cast<size_t>(member - round.first) * round.stride;
        std::memcpy(copies + place + offset, slot(member), now * width);
      }
      meet();
    }
  }

  const int32_t rank_;
  const int32_t size_;
  void* memory_ = MAP_FAILED;
};

}  // namespace

void create_id(void* id) {
  unsigned long long numbers[2];
  if (getrandom(numbers, sizeof(numbers), 0) != static_cast<ssize_t>(sizeof(numbers))) {
    throw abi::Failure(AA_UNAVAILABLE, "the system gave no random numbers", errno);
  }
  char name[id_bytes] = "";
  std::snprintf(name, sizeof(name), "/acme-%016llx%016llx", numbers[0], numbers[1]);
  std::memcpy(id, name, sizeof(name));
}

std::unique_ptr<abi::Communicator> join(const void* id, int32_t rank, int32_t size) {
  if (size < 1 || size > most_members || rank < 0 || rank >= size) {
    throw abi::Failure(AA_INVALID_ARGUMENT, "a group has 1 to 64 members, of rank 0 to size - 1");
  }
  const std::string name(static_cast<const char*>(id), strnlen(static_cast<const char*>(id), id_bytes - 1));
  // Removes the name of the memory, which the first member created: once all have joined, or one has failed, it is no
  // longer needed.
  struct Unlink {
    const std::string& name;
    ~Unlink() { shm_unlink(name.c_str()); }
  } const unlink{name};
  return std::make_unique<Communicator>(name.c_str(), rank, size);
}

}  // namespace acme
