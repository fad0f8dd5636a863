// Ranks that end in order while others go on. One that ended before it joined the job's process group will not come: the
// others, which wait for it, are told by the job's store, which rank 0 serves, or in its place where rank 0 is the one.
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

  // name: "rank 2 on node1". Returns at once; from then on a thread tries to tell, until there is somebody to tell or the
  // object goes.
  void add(int rank, const std::string& name);

 private:
  void run() noexcept;
  bool tell(int rank, const std::string& name);  // false: later, perhaps

  const comm::StorePlace store_;
  const int ranks_;
  std::unique_ptr<comm::StoreServer> in_place_of_rank_0_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, std::string> waiting_;  // names of ranks that nobody was told of
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace anyaccel::launcher
