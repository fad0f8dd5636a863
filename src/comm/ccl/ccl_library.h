// Opens oneCCL (libccl.so.2), Intel's library of collectives, and prepares it for host memory.
#pragma once

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <string>

namespace anyaccel::comm {

// The id by which the members of a communicator find each other: created by one of them and passed to the others.
struct CclId {
  char bytes[4096];
};

// The functions of its C interface. Functions of type int return 0 or an error number. Calls on host memory have no
// stream (null) and block until the result is complete.
struct CclLibrary {
  // The library's numbers of types and operations.
  static constexpr int kInt8 = 0, kUint8 = 1, kInt32 = 2, kInt64 = 4, kFloat16 = 6, kFloat32 = 7, kFloat64 = 8,
                       kBfloat16 = 9;
  static constexpr int kSum = 0, kProduct = 1, kMax = 2, kMin = 3;

  // Opens the library on the first call; returns the same object each time. Any thread. UnavailableError, whose message
  // says what to install or to set.
  //
  // Sets these variables of the environment where they are unset, because the library reads its settings from there only:
  // CCL_PLUGIN=ONECCL_LEGACY_CPU (the one that serves host memory), CCL_ATL_TRANSPORT=ofi (its default needs an MPI's
  // launcher, and ends the process without one), CCL_ZE_ENABLE=0 and FI_HMEM=system (no search for GPUs, by it and by its
  // libfabric), CCL_LOG_LEVEL=error.
  static const CclLibrary& get();

  // UnavailableError for every result but 0, CommunicationError if `joined`.
  void check(int result, const char* function, bool joined) const;

  std::string version;  // "2022.1.0"

  int (*get_version)(int* version);
  int (*get_unique_id)(CclId* id);
  int (*comm_init_rank)(void** comm, size_t size, CclId id, int rank);
  const char* (*get_error_string)(int result);
  const char* (*get_last_error)(void* comm);
  int (*all_reduce)(void* send, void* recv, size_t count, int type, int op, void* comm, void* stream);
  int (*reduce)(const void* send, void* recv, size_t count, int type, int op, int root, void* comm, void* stream);
  int (*reduce_scatter)(const void* send, void* recv, size_t recv_count, int type, int op, void* comm, void* stream);
  int (*broadcast)(const void* send, void* recv, size_t count, int type, int root, void* comm, void* stream);
  int (*all_gather)(const void* send, void* recv, size_t send_count, int type, void* comm, void* stream);
  int (*all_to_all)(const void* send, void* recv, size_t count, int type, void* comm, void* stream);
};

// Exists while the library starts. The library's output (at least one line on its settings) then goes to standard error
// instead of standard output, as does the output of other threads meanwhile; and the threads that the library creates
// ignore broken connections, which would end the process with SIGPIPE. Objects may overlap on several threads. The
// thread that created an object must destroy it.
class CclStart {
 public:
  CclStart();
  ~CclStart();
  CclStart(const CclStart&) = delete;
  CclStart& operator=(const CclStart&) = delete;

 private:
  sigset_t before_;
};
// Makes the calling thread, and the threads that it creates, get an error instead of SIGPIPE. Returns the previous
// signal mask.
sigset_t block_broken_pipes() noexcept;

// Returns why the library was not found; empty if it was.
std::string ccl_problem();

}  // namespace anyaccel::comm
