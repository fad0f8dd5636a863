// Handles ranks that end normally while others continue. A rank that ended before it joined the job's process group
// will not join: the ranks that wait for it are informed through the job's store, which rank 0 runs; if rank 0 itself
// has ended, a store is run in its place.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "comm/store/store_report.h"

namespace anyaccel::comm {
class StoreServer;
}

namespace anyaccel::launcher {

class EndedRanks {
 public:
  EndedRanks(comm::StorePlace store, int ranks);
  ~EndedRanks();
  EndedRanks(const EndedRanks&) = delete;
  EndedRanks& operator=(const EndedRanks&) = delete;

  // name: "rank 2 on node1". Returns at once; a thread then retries the report until it is delivered or the object is
  // destroyed.
  void add(int rank, const std::string& name);

 private:
  void run() noexcept;
  bool tell(int rank, const std::string& name);  // false: later, perhaps

  const comm::StorePlace store_;
  const int ranks_;
  std::unique_ptr<comm::StoreServer> in_place_of_rank_0_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, std::string> waiting_;  // names of ranks that could not be reported
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace anyaccel::launcher
