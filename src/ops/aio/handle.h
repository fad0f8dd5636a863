// The state of a handle of asynchronous I/O: requests.cpp makes requests of calls, handle.cpp hands their parts to lanes and
// concludes them, async_io.cpp has the public functions.
#pragma once

#include <unistd.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "anyaccel/ops/async_io.h"
#include "anyaccel/ops/pin_memory.h"
#include "ops/aio/engine.h"

namespace anyaccel::ops {

namespace aio {

enum class Backend { automatic, uring, threads };

constexpr int64_t page = 4096;

}  // namespace aio

struct AioHandle::Impl {
  using Requests = std::vector<std::shared_ptr<aio::Request>>;

  // `direct` is null, or carries out the requests of device tensors whose files it supports.
  Impl(Accelerator& active, const aio::Settings& wanted, int ranges, std::shared_ptr<aio::DeviceFiles> direct);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::unique_ptr<aio::Lane> make_lane();
  void check_process() const;  // InvalidArgument in a child of fork()

  std::shared_ptr<aio::Request> prepare(const Tensor& buffer, const std::string& path, int fd, bool write,
                                        bool validate, int64_t offset, bool async);
  // Makes the request one that the accelerator carries out by itself. False if it does not.
  bool give_to_device(aio::Request& request, const Tensor& buffer) const;
  int64_t start(std::shared_ptr<aio::Request> request);
  // Carries out requests with this thread's help, waits for them and concludes them.
  void run(const Requests& requests, int ranges);
  // Copies data to tensors, fills `results`, and throws the first failure.
  void conclude(const Requests& requests);
  static void wait_for(const aio::Request& request) { request.done.wait(false); }

  // A lane with its own thread.
  struct Worker {
    std::unique_ptr<aio::Lane> lane;
    std::deque<aio::Part> inbox;
    bool asleep = false;
    std::condition_variable wake;
    std::thread thread;
  };
  void start_workers();  // once, with the mutex held
  void work(Worker& worker);
  void give(Worker& worker, aio::Part part);  // with the mutex held

  Accelerator& accelerator;
  PinMemory pins;
  const aio::Settings settings;
  const int parallelism;
  const std::shared_ptr<aio::DeviceFiles> device_files;
  aio::Backend backend;
  const pid_t process = getpid();

  std::mutex own_mutex;  // guards own_lane, which the blocking calls drive
  std::unique_ptr<aio::Lane> own_lane;

  std::mutex wait_mutex;     // held while waiting: a second thread waits for the first one's requests too
  mutable std::mutex mutex;  // guards everything below
  std::vector<std::unique_ptr<Worker>> workers;
  bool stop = false;
  Requests pending;  // asynchronous requests that nobody has waited for yet
  std::vector<AioResult> results;
  int64_t next_id = 1;
  size_t next_worker = 0;
};

}  // namespace anyaccel::ops
