// Represents the processes of a job after all have joined: their ranks and hosts, the store that connects them, and the
// failure watch.
//
// A job of one uses a store inside the process and opens no port.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/job/discovery.h"
#include "comm/job/job_times.h"
#include "comm/job/job_watch.h"
#include "comm/store/store_client.h"
#include "comm/store/store_server.h"

namespace anyaccel::comm {

struct JobOptions {
  JobPlace place;
  std::string host_id;          // as host_identity()
  std::string host_name;        // for messages
  bool device_library = false;  // the accelerator of this process has its own collectives
  std::string backend;          // the requested one; the same on every rank
  JobTimes times;
};

class Job {
 public:
  // Blocks until all ranks have joined. CommunicationError: see init_process_group(). InvalidArgument, on every rank,
  // if LOCAL_RANK and LOCAL_SIZE differ from the actual values.
  explicit Job(const JobOptions& options);
  // If leave() was not called before, the other ranks treat the destruction as a failure.
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  int rank() const noexcept { return options_.place.rank; }
  int size() const noexcept { return options_.place.size; }
  // These have for every rank its description, "rank 3 on node2", and a number that is the same for ranks on one host.
  const std::vector<std::string>& names() const noexcept { return names_; }
  const std::vector<int>& hosts() const noexcept { return hosts_; }
  // True if the accelerator of some rank has its own collectives.
  bool device_library() const noexcept { return device_library_; }
  const std::shared_ptr<Store>& store() const noexcept { return store_; }
  const std::shared_ptr<JobWatch>& watch() const noexcept { return watch_; }
  std::chrono::milliseconds timeout() const noexcept { return options_.place.timeout; }
  // The address of rank 0; empty for a job of one.
  const std::string& master_addr() const noexcept { return options_.place.master_addr; }

  // Tells the others that this rank failed.
  void report_failure(const std::string& message) noexcept;
  // Leaves the job normally. Rank 0, which runs the store, waits for the others to leave first, unless the job has
  // failed.
  void leave() noexcept;

 private:
  void take_members(const std::vector<wire::JoinInfo>& members);

  JobOptions options_;
  std::shared_ptr<JobWatch> watch_ = std::make_shared<JobWatch>();
  std::unique_ptr<StoreServer> server_;  // of rank 0
  std::shared_ptr<StoreClient> client_;
  std::shared_ptr<Store> store_;
  std::vector<std::string> names_;
  std::vector<int> hosts_;
  bool device_library_ = false;
};

}  // namespace anyaccel::comm
