// Implements the shared memory in which the ranks of a simulated communicator synchronize.
#include "simulators/libraries/rendezvous.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <random>

#include "simulators/libraries/library.h"

namespace sim_library {

// What waiting ranks sleep on: a count of changes. (A condition variable hangs whoever wakes the others when a process is
// killed that waits for it.)
struct ChangeCount {
  std::atomic<std::uint32_t> count;

  void tell() {
    ++count;
    ::syscall(SYS_futex, &count, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
};

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
  pthread_mutex_t mutex;
  ChangeCount changed;
  int ranks;  // 0: nobody has come yet
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
  void wait(ChangeCount& changed) {
    const std::uint32_t seen = changed.count;
    ::pthread_mutex_unlock(&mutex_);
    const timespec most = {0, 20000000};
    ::syscall(SYS_futex, &changed.count, FUTEX_WAIT, seen, &most, nullptr, 0);
    if (::pthread_mutex_lock(&mutex_) == EOWNERDEAD) ::pthread_mutex_consistent(&mutex_);
  }

 private:
  pthread_mutex_t& mutex_;
};

std::size_t rounded(std::size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

void make_lock(pthread_mutex_t* mutex) {
  pthread_mutexattr_t attributes;
  ::pthread_mutexattr_init(&attributes);
  ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  ::pthread_mutex_init(mutex, &attributes);
  ::pthread_mutexattr_destroy(&attributes);
}

// The memory that this process has made and that not everybody has yet, by name.
struct MadeMemory {
  std::mutex mutex;
  std::map<std::string, int> files;
};
MadeMemory& made_memory() {
  static auto* made = new MadeMemory;
  return *made;
}
void forget_memory(const std::string& name) {
  const std::lock_guard lock(made_memory().mutex);
  const auto found = made_memory().files.find(name);
  if (found == made_memory().files.end()) return;
  ::close(found->second);
  made_memory().files.erase(found);
}

// Names are "TEXT_PID_N": descriptor N of the process PID.
pid_t maker_of(const std::string& name) {
  const auto last = name.rfind('_');
  return std::atoi(name.c_str() + name.rfind('_', last - 1) + 1);
}

// A descriptor of its own of that memory; -1 where the process or its descriptor N is no longer that.
int open_memory(const std::string& name) {
  const auto last = name.rfind('_'), before = name.rfind('_', last - 1);
  const std::string path = "/proc/" + std::to_string(maker_of(name)) + "/fd/" + name.substr(last + 1);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return -1;
  // Both numbers may be another's by now.
  char target[256] = {};
  const std::string own = "/proc/self/fd/" + std::to_string(file);
  const bool is_it = ::readlink(own.c_str(), target, sizeof target - 1) > 0 &&
                     std::string(target).rfind("/memfd:" + name.substr(0, before), 0) == 0;
  if (is_it) return file;
  ::close(file);
  return -1;
}

// A process that has ended and that its parent has not waited for yet counts as ended.
bool is_alive(pid_t process) {
  if (::kill(process, 0) != 0) return errno != ESRCH;
  char path[64], text[512] = {};
  std::snprintf(path, sizeof path, "/proc/%d/stat", static_cast<int>(process));
  std::FILE* file = std::fopen(path, "re");
  if (file == nullptr) return true;  // other users' processes may be hidden
  const std::size_t count = std::fread(text, 1, sizeof text - 1, file);
  std::fclose(file);
  const char* state = count == 0 ? nullptr : std::strrchr(text, ')');
  return state == nullptr || (state[2] != 'Z' && state[2] != 'X');
}

}  // namespace

std::string Rendezvous::make(const std::string& text) {
  std::random_device random;
  char name[128];
  std::snprintf(name, sizeof name, "%s%08x%08x%08x", text.c_str(), random(), random(), random());
  const int file = ::memfd_create(name, MFD_CLOEXEC);
  if (file < 0) return {};
  const std::size_t bytes = rounded(sizeof(Shared));
  void* memory = ::ftruncate(file, static_cast<off_t>(bytes)) != 0
                     ? MAP_FAILED
                     : ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) {
    ::close(file);
    return {};
  }
  auto* shared = static_cast<Shared*>(memory);
  make_lock(&shared->mutex);
  ::munmap(memory, bytes);
  std::string whole = std::string(name) + "_" + std::to_string(::getpid()) + "_" + std::to_string(file);
  const std::lock_guard lock(made_memory().mutex);
  made_memory().files[whole] = file;
  return whole;
}

Rendezvous* Rendezvous::join(const std::string& name, int ranks, int rank, int device, std::string* problem,
                             const char** violation) {
  *violation = "collective-mismatch";
  const std::size_t slots = rounded(sizeof(Shared));
  const std::size_t mail = slots + rounded(static_cast<std::size_t>(ranks) * sizeof(Slot));
  const std::size_t buffers = mail + rounded(static_cast<std::size_t>(ranks * ranks) * sizeof(Mail));
  const std::size_t bytes = buffers + static_cast<std::size_t>(ranks) * kBufferBytes;
  const int file = open_memory(name);
  if (file < 0) {
    *problem = "the unique id is of no use: the process that made it has ended, or everybody whom it was for has come";
    if (!is_alive(maker_of(name))) *violation = "";
    return nullptr;
  }
  // The lock first: how many ranks there are, and so how large the rest is, the first of them says.
  void* memory = ::mmap(nullptr, slots, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory != MAP_FAILED) {
    auto* shared = static_cast<Shared*>(memory);
    {
      const Lock lock(shared->mutex);
      // Pages of zeros appear when they are first used.
      if (shared->ranks == 0 && ::ftruncate(file, static_cast<off_t>(bytes)) == 0) shared->ranks = ranks;
      if (shared->ranks != ranks) *problem = "the ranks do not agree on how many they are";
    }
    ::munmap(memory, slots);
    memory = problem->empty() ? ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0)
                              : MAP_FAILED;
  }
  ::close(file);
  if (memory == MAP_FAILED) {
    if (problem->empty()) *problem = "no shared memory can be had";
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
      shared.changed.tell();
    }
  }
  if (problem->empty()) return made;
  delete made;
  return nullptr;
}

Rendezvous::~Rendezvous() { ::munmap(shared_, bytes_); }

std::string Rendezvous::wait_for_all(const char** violation) {
  const std::uint64_t began = now();
  *violation = "";
  Lock lock(shared_->mutex);
  int ended = -1;
  while (shared_->joined < ranks_ && now() - began < patience_ns()) {
    lock.wait(shared_->changed);
    if (shared_->joined < ranks_ && (ended = ended_rank()) >= 0) break;
  }
  forget_memory(name_);
  if (ended >= 0) return "the process of rank " + std::to_string(ended) + " has ended before all ranks had joined";
  if (shared_->joined < ranks_) {
    *violation = "collective-mismatch";
    std::string missing;
    for (int rank = 0; rank < ranks_; ++rank) {
      if (!slots_[rank].joined) missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
    }
    return "ranks that never joined: " + missing;
  }
  for (int rank = 0; rank < ranks_; ++rank) {
    for (int other = 0; other < rank; ++other) {
      if (slots_[rank].device != slots_[other].device) continue;
      *violation = "collective-mismatch";
      return "ranks " + std::to_string(other) + " and " + std::to_string(rank) + " are on one device";
    }
  }
  return {};
}

int Rendezvous::ended_rank() const {
  for (int rank = 0; rank < ranks_; ++rank) {
    if (slots_[rank].joined && !is_alive(slots_[rank].process)) return rank;
  }
  return -1;
}

bool Rendezvous::give_up(const char* doing, std::uint64_t began_ns, const std::function<std::string()>& missing) {
  if (shared_->aborted) {
    text_ = std::string(doing) + " ended by an abort";
    return true;
  }
  if (const int rank = ended_rank(); rank >= 0) {
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
    shared_->changed.tell();
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
  shared_->changed.tell();
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
  shared_->changed.tell();
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
  shared_->changed.tell();
}
bool Rendezvous::aborted() const { return shared_->aborted; }

}  // namespace sim_library
