// Ranks that are threads of one process, for tests of tensor parallelism: each with a process group over shared memory
// and a stream of its own.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/comm/process_group.h"
#include "anyaccel/error.h"
#include "comm/group/group.h"
#include "comm/host_communicator.h"
#include "comm/store/store.h"

namespace anyaccel::testing {

// Runs body(group) on `ranks` threads and rethrows what the first of them threw; those that only lost a peer come last.
inline void run_ranks(int ranks, const std::function<void(const std::shared_ptr<comm::ProcessGroup>&)>& body) {
  if (!get_accelerator()->is_host_coherent()) {
    // Two threads on one device wait for each other's operations there; processes do not.
    throw std::runtime_error("ranks as threads need an accelerator that works on host memory");
  }
  const std::shared_ptr<comm::Store> store = comm::make_local_store();
  std::vector<std::exception_ptr> errors, lost_peers;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Accelerator& accelerator = *get_accelerator();
        // Threads share the default stream, and only one may capture it.
        const ScopeGuard scope = accelerator.stream(accelerator.Stream());
        comm::Membership membership;
        membership.rank = rank;
        membership.size = ranks;
        for (int i = 0; i < ranks; ++i) membership.names.push_back("rank " + std::to_string(i));
        membership.store = store;
        membership.timeout = std::chrono::minutes(5);
        const auto group =
            comm::make_process_group(comm::make_shared_memory_communicator(membership), membership, accelerator);
        body(group);
        group->barrier();
      } catch (const CommunicationError&) {
        const std::lock_guard lock(mutex);
        lost_peers.push_back(std::current_exception());
      } catch (...) {
        const std::lock_guard lock(mutex);
        errors.push_back(std::current_exception());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  errors.insert(errors.end(), lost_peers.begin(), lost_peers.end());
  if (!errors.empty()) std::rethrow_exception(errors[0]);
}

}  // namespace anyaccel::testing
