// Synchronizes the ranks of a simulated communicator, which are threads or processes of one machine: shared memory with
// one buffer per rank, one mailbox per pair of ranks, and a barrier that knows which ranks are missing.
//
// The memory has no file: the process that makes the unique id holds it open until everybody has it, and the id tells the
// others where (/proc/PID/fd/N). So nothing is left over, however the processes end; and as with the real libraries, an id
// is worth nothing once the process that made it has ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace sim_library {

// The operation that a rank is about to do; ranks that meet must agree. `name` is a literal's text.
struct OperationHeader {
  char name[24];
  std::uint64_t count, sequence;
  std::int32_t type, reduction, root, device;
};

class Rendezvous {
 public:
  static constexpr std::size_t kBufferBytes = 1 << 18, kMailBytes = 1 << 14;
  static constexpr int kMostRanks = 64;

  // Makes the memory of a rendezvous, and the name by which this and other processes join it: `text`, then where it is.
  // Empty: there is no memory.
  static std::string make(const std::string& text);
  // Maps the memory and takes the rank's place in it. Null, with a sentence and the kind of the violation, when the ranks
  // contradict each other; the kind is empty where the process that made the name has ended and this one is not to blame.
  // Does not wait.
  static Rendezvous* join(const std::string& name, int ranks, int rank, int device, std::string* problem,
                          const char** violation);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  // Until all ranks have joined. Empty, or what is wrong (several on one device; who is missing), with the kind as above.
  std::string wait_for_all(const char** violation);
  int ranks() const { return ranks_; }
  int rank() const { return rank_; }

  // Until every rank has come here. False when one has left, when it takes too long, or after abort(); then text() says
  // so.
  bool barrier(const char* doing);
  char* buffer(int rank) const;
  OperationHeader& header(int rank) const;

  // The mailbox from one rank to another: fill() and empty() return false when it is full or empty, and never wait.
  bool fill(int to, const char* bytes, std::size_t count);
  bool empty(int from, char* bytes, std::size_t* count);
  // Waits a little for a mailbox to change. False as barrier().
  bool wait_for_mail(const char* doing, std::uint64_t began_ns);

  void abort();
  bool aborted() const;
  const std::string& text() const { return text_; }

 private:
  struct Shared;
  struct Slot;
  struct Mail;
  Rendezvous() = default;
  bool give_up(const char* doing, std::uint64_t began_ns, const std::function<std::string()>& missing);
  // The rank of a process that has joined and ended; -1: all live.
  int ended_rank() const;

  std::string name_, text_;
  int ranks_ = 0, rank_ = 0;
  Shared* shared_ = nullptr;
  std::size_t bytes_ = 0;
  Slot* slots_ = nullptr;
  Mail* mail_ = nullptr;
  char* buffers_ = nullptr;
};

}  // namespace sim_library
