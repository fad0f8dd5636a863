// Implements the shared memory in which the ranks of a simulated communicator synchronize.
#include "simulators/libraries/rendezvous.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "simulators/libraries/library.h"

namespace sim_library {

struct Rendezvous::Slot {
  bool joined;
  pid_t process;
  int device;
  std::uint64_t generation;  // of the barrier that it has come to
  OperationHeader header;
};
struct Rendezvous::Mail {
  bool full;
  std::size_t count;
  char bytes[kMailBytes];
};
struct Rendezvous::Shared {
  std::atomic<std::uint32_t> ready;  // 1: made
  int ranks;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int joined, arrived;
  std::uint64_t generation;
  std::atomic<bool> aborted;
};

namespace {

std::uint64_t now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
}
// Shorter than what the engine allows a wait of the host: the ranks are told who is missing.
std::uint64_t patience_ns() { return settings().hang_seconds * 500000000; }

class Lock {
 public:
  explicit Lock(pthread_mutex_t& mutex) : mutex_(mutex) {
    // A process that died while it held the lock left the data as they were: it only sets numbers.
    if (::pthread_mutex_lock(&mutex_) == EOWNERDEAD) ::pthread_mutex_consistent(&mutex_);
  }
  ~Lock() { ::pthread_mutex_unlock(&mutex_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  // For a change, 20 ms at most: then the caller looks whether everybody is still alive.
  void wait(pthread_cond_t& changed) {
    timespec until;
    ::clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += 20000000;
    if (until.tv_nsec >= 1000000000) {
      until.tv_nsec -= 1000000000;
      ++until.tv_sec;
    }
    if (::pthread_cond_timedwait(&changed, &mutex_, &until) == EOWNERDEAD) ::pthread_mutex_consistent(&mutex_);
  }

 private:
  pthread_mutex_t& mutex_;
};

std::size_t rounded(std::size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

void make_lock(pthread_mutex_t* mutex, pthread_cond_t* changed) {
  pthread_mutexattr_t mutex_attributes;
  ::pthread_mutexattr_init(&mutex_attributes);
  ::pthread_mutexattr_setpshared(&mutex_attributes, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&mutex_attributes, PTHREAD_MUTEX_ROBUST);
  ::pthread_mutex_init(mutex, &mutex_attributes);
  ::pthread_mutexattr_destroy(&mutex_attributes);
  pthread_condattr_t attributes;
  ::pthread_condattr_init(&attributes);
  ::pthread_condattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  ::pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  ::pthread_cond_init(changed, &attributes);
  ::pthread_condattr_destroy(&attributes);
}

}  // namespace

Rendezvous* Rendezvous::join(const std::string& name, int ranks, int rank, int device, std::string* problem) {
  const std::size_t slots = rounded(sizeof(Shared));
  const std::size_t mail = slots + rounded(static_cast<std::size_t>(ranks) * sizeof(Slot));
  const std::size_t buffers = mail + rounded(static_cast<std::size_t>(ranks * ranks) * sizeof(Mail));
  const std::size_t bytes = buffers + static_cast<std::size_t>(ranks) * kBufferBytes;
  int file = ::shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
  const bool first = file >= 0;
  if (!first) file = ::shm_open(name.c_str(), O_RDWR, 0600);
  const std::uint64_t began = now();
  struct stat status {};
  // Pages of zeros appear when they are first used.
  if (file >= 0 && first && ::ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    ::close(file);
    file = -1;
  }
  while (file >= 0 && !first && ::fstat(file, &status) == 0 && status.st_size == 0 && now() - began < patience_ns()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (file >= 0 && !first && static_cast<std::size_t>(status.st_size) != bytes) {
    ::close(file);
    *problem = "the ranks do not agree on how many they are";
    return nullptr;
  }
  void* memory =
      file < 0 ? MAP_FAILED : ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (file >= 0) ::close(file);
  if (memory == MAP_FAILED) {
    *problem = "no shared memory can be had";
    return nullptr;
  }
  auto* made = new Rendezvous;
  made->name_ = name;
  made->ranks_ = ranks;
  made->rank_ = rank;
  made->bytes_ = bytes;
  made->shared_ = static_cast<Shared*>(memory);
  made->slots_ = reinterpret_cast<Slot*>(static_cast<char*>(memory) + slots);
  made->mail_ = reinterpret_cast<Mail*>(static_cast<char*>(memory) + mail);
  made->buffers_ = static_cast<char*>(memory) + buffers;
  Shared& shared = *made->shared_;
  if (first) {
    shared.ranks = ranks;
    make_lock(&shared.mutex, &shared.changed);
    shared.ready.store(1, std::memory_order_release);
  }
  while (shared.ready.load(std::memory_order_acquire) == 0 && now() - began < patience_ns()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  {
    const Lock lock(shared.mutex);
    Slot& slot = made->slots_[rank];
    if (slot.joined) {
      *problem = "rank " + std::to_string(rank) + " is there twice";
    } else {
      slot.joined = true;
      slot.process = ::getpid();
      slot.device = device;
      ++shared.joined;
      ::pthread_cond_broadcast(&shared.changed);
      // Everybody has it mapped: nothing stays behind, however the processes end.
      if (shared.joined == ranks) ::shm_unlink(name.c_str());
    }
  }
  if (problem->empty()) return made;
  delete made;
  return nullptr;
}

Rendezvous::~Rendezvous() { ::munmap(shared_, bytes_); }

std::string Rendezvous::wait_for_all() {
  const std::uint64_t began = now();
  Lock lock(shared_->mutex);
  while (shared_->joined < ranks_ && now() - began < patience_ns()) lock.wait(shared_->changed);
  if (shared_->joined < ranks_) {
    ::shm_unlink(name_.c_str());
    std::string missing;
    for (int rank = 0; rank < ranks_; ++rank) {
      if (!slots_[rank].joined) missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
    }
    return "ranks that never joined: " + missing;
  }
  for (int rank = 0; rank < ranks_; ++rank) {
    for (int other = 0; other < rank; ++other) {
      if (slots_[rank].device != slots_[other].device) continue;
      return "ranks " + std::to_string(other) + " and " + std::to_string(rank) + " are on one device";
    }
  }
  return {};
}

bool Rendezvous::give_up(const char* doing, std::uint64_t began_ns, const std::function<std::string()>& missing) {
  if (shared_->aborted) {
    text_ = std::string(doing) + " ended by an abort";
    return true;
  }
  for (int rank = 0; rank < ranks_; ++rank) {
    if (::kill(slots_[rank].process, 0) == 0 || errno != ESRCH) continue;
    text_ = std::string(doing) + ": the process of rank " + std::to_string(rank) + " has ended";
    return true;
  }
  if (now() - began_ns < patience_ns()) return false;
  text_ = std::string(doing) + ": rank " + std::to_string(rank_) + " has waited for " +
          std::to_string(patience_ns() / 1000000) + " ms; " + missing();
  return true;
}

bool Rendezvous::barrier(const char* doing) {
  const std::uint64_t began = now();
  Lock lock(shared_->mutex);
  if (shared_->aborted) {
    text_ = std::string(doing) + " ended by an abort";
    return false;
  }
  const std::uint64_t generation = shared_->generation;
  slots_[rank_].generation = generation + 1;
  if (++shared_->arrived == ranks_) {
    shared_->arrived = 0;
    ++shared_->generation;
    ::pthread_cond_broadcast(&shared_->changed);
    return true;
  }
  while (shared_->generation == generation) {
    lock.wait(shared_->changed);
    if (shared_->generation != generation) break;
    const bool over = give_up(doing, began, [&] {
      std::string ranks;
      for (int rank = 0; rank < ranks_; ++rank) {
        if (slots_[rank].generation <= generation) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
      }
      return "ranks that have not come: " + ranks;
    });
    if (over) return false;
  }
  return true;
}

char* Rendezvous::buffer(int rank) const { return buffers_ + static_cast<std::size_t>(rank) * kBufferBytes; }
OperationHeader& Rendezvous::header(int rank) const { return slots_[rank].header; }

bool Rendezvous::fill(int to, const char* bytes, std::size_t count) {
  const Lock lock(shared_->mutex);
  Mail& mail = mail_[rank_ * ranks_ + to];
  if (mail.full) return false;
  std::memcpy(mail.bytes, bytes, count);
  mail.count = count;
  mail.full = true;
  ::pthread_cond_broadcast(&shared_->changed);
  return true;
}

bool Rendezvous::empty(int from, char* bytes, std::size_t* count) {
  const Lock lock(shared_->mutex);
  Mail& mail = mail_[from * ranks_ + rank_];
  if (!mail.full) return false;
  const std::size_t place = *count;
  *count = mail.count;
  std::memcpy(bytes, mail.bytes, std::min(place, mail.count));
  mail.full = false;
  ::pthread_cond_broadcast(&shared_->changed);
  return true;
}

bool Rendezvous::wait_for_mail(const char* doing, std::uint64_t began_ns) {
  Lock lock(shared_->mutex);
  if (give_up(doing, began_ns, [] { return std::string("no other rank sends or receives"); })) return false;
  lock.wait(shared_->changed);
  return true;
}

void Rendezvous::abort() {
  const Lock lock(shared_->mutex);
  shared_->aborted = true;
  ::pthread_cond_broadcast(&shared_->changed);
}
bool Rendezvous::aborted() const { return shared_->aborted; }

}  // namespace sim_library
