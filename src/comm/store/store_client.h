// Implements a rank's connection to the job's store: requests, and the heartbeat, on a separate thread.
//
// A failure reported by the server, or a server that is silent or ends, sets the watch; requests then throw it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "comm/job/job_times.h"
#include "comm/job/job_watch.h"
#include "comm/store/socket.h"
#include "comm/store/store.h"
#include "comm/store/wire.h"

namespace anyaccel::comm {

class StoreClient final : public Store {
 public:
  struct Options {
    std::string address;  // MASTER_ADDR
    int port = 0;
    std::string token;
    std::chrono::milliseconds timeout{0};  // until the server must be reached
    JobTimes times;
  };

  // Retries until the server is reachable. CommunicationError if the time limit has passed, the token is rejected, or
  // something else answers.
  StoreClient(const Options& options, std::shared_ptr<JobWatch> watch);
  ~StoreClient() override;

  void set(std::string_view key, std::string_view value) override;
  std::string get(std::string_view key, std::chrono::milliseconds timeout) override;
  int64_t add(std::string_view key, int64_t amount) override;
  void remove(std::string_view key) override;

  // Blocks until all ranks have joined; returns all of them, in rank order. The server enforces the time limit.
  std::vector<wire::JoinInfo> join(const wire::JoinInfo& self, std::chrono::milliseconds timeout);
  // Leaves the job: later errors of the connection are not failures. Does not throw.
  void goodbye() noexcept;
  // Tells the job that this rank failed. Does not block or throw.
  void report_failure(const std::string& message) noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  struct Answer {
    wire::Kind kind = wire::Kind::Done;
    std::string contents;
  };

  // Sends the request that `build` creates for a request number, and waits for its answer.
  Answer request(const std::function<wire::Writer(uint32_t)>& build, std::chrono::milliseconds timeout,
                 const std::function<std::string()>& late);
  void post(const std::string& frame);
  void run() noexcept;
  bool receive();
  void handle(const wire::Frame& frame);
  void lose_server(const std::string& how);
  std::string server_name() const;

  const Options options_;
  const std::shared_ptr<JobWatch> watch_;
  FileDescriptor socket_;
  FileDescriptor wake_;
  std::string in_;  // used only by the thread

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string out_;
  uint32_t next_number_ = 1;
  std::set<uint32_t> pending_;  // requests without an answer
  std::map<uint32_t, Answer> answers_;
  std::string master_name_;  // "rank 0 on node1", once it is known
  bool leaving_ = false;
  bool lost_ = false;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace anyaccel::comm
