// Ranks that are threads of one process, for tests of tensor parallelism: each with a process group and a stream of its own.
#pragma once

#include <gtest/gtest.h>

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
#include "comm/thread_communicator.h"

namespace anyaccel::testing {

// What connects the ranks: shared memory, as on one host, or messages, so that the ranks have no common memory.
enum class Between { SharedMemory, Messages };

// Returns whether the ranks of a model split all products by their outputs, and gather.
inline bool gathers(Between between) {
  const Accelerator& accelerator = *get_accelerator();
  return between == Between::SharedMemory && (accelerator.device_properties(0).caps & AA_CAP_IS_HOST) != 0;
}

// Runs body(group) on `ranks` threads and rethrows what the first of them threw; those that only lost a peer come last.
inline void run_ranks(int ranks, const std::function<void(const std::shared_ptr<comm::ProcessGroup>&)>& body,
                      Between between = Between::SharedMemory) {
  if (!get_accelerator()->is_host_coherent()) {
    // Two threads on one device wait for each other's operations there; processes do not.
    throw std::runtime_error("ranks as threads need an accelerator that works on host memory");
  }
  const std::shared_ptr<comm::Store> store = comm::make_local_store();
  const auto board = std::make_shared<comm::ThreadBoard>(ranks);
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
        std::unique_ptr<comm::HostCommunicator> communicator;
        if (between == Between::SharedMemory) {
          communicator = comm::make_shared_memory_communicator(membership);
        } else {
          communicator = std::make_unique<comm::ThreadCommunicator>(board, rank);
        }
        const auto group = comm::make_process_group(std::move(communicator), membership, accelerator);
        body(group);
        group->barrier();
      } catch (const CommunicationError&) {
        const std::lock_guard lock(mutex);
        lost_peers.push_back(std::current_exception());
      } catch (const std::exception& error) {
        comm::ThreadCommunicator(board, rank).abort(error.what());
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
