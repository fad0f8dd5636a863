// Hands the parts of requests to lanes, waits for them and concludes them.
#include "ops/aio/handle.h"

#include <signal.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "base/process/start_thread.h"

namespace anyaccel::ops {
namespace {

using aio::Backend;
using aio::Failure;
using aio::Lane;
using aio::Part;
using aio::Request;

Backend backend_wanted() {
  const char* text = std::getenv("ANYACCEL_AIO");
  const std::string_view value = text ? text : "";
  if (value.empty() || value == "auto") return Backend::automatic;
  if (value == "uring") return Backend::uring;
  if (value == "threads") return Backend::threads;
  throw InvalidArgument("ANYACCEL_AIO is \"" + std::string(value) + "\"; it must be uring, threads or auto");
}

// Compares a device tensor with the file again, after a transfer by the accelerator.
void validate_by_host(Request& request) {
  const Tensor copy = request.memory.to(Device{});
  request.data = static_cast<char*>(copy.data());
  if (Failure failure = aio::compare(request, request.offset, request.offset + request.bytes)) {
    request.fail(std::move(failure));
  }
  request.file.close();
}

AioResult result_of(const Request& request) {
  AioResult result;
  result.request = request.id;
  result.file = request.file.name();
  result.write = request.write;
  result.file_offset = request.offset;
  result.bytes = request.bytes;
  result.error = request.failure().error;
  result.message = request.failure().message;
  return result;
}

}  // namespace

AioHandle::Impl::Impl(Accelerator& active, const aio::Settings& wanted, int ranges,
                      std::shared_ptr<aio::DeviceFiles> direct)
    : accelerator(active),
      pins(active),
      settings(wanted),
      parallelism(ranges),
      device_files(std::move(direct)),
      backend(backend_wanted()) {
  own_lane = make_lane();
}

AioHandle::Impl::~Impl() {
  {
    std::lock_guard lock(mutex);
    stop = true;
  }
  for (auto& worker : workers) worker->wake.notify_one();
  for (auto& worker : workers) worker->thread.join();
}

void AioHandle::Impl::check_process() const {
  if (getpid() == process) return;
  throw InvalidArgument("this handle of asynchronous I/O was made in process " + std::to_string(process) +
                        "; make a new one in a process after fork()");
}

std::unique_ptr<Lane> AioHandle::Impl::make_lane() {
  if (backend != Backend::threads) {
    std::string why;
    if (auto queue = aio::make_uring_queue(settings.queue_depth, settings.single_submit, &why)) {
      return std::make_unique<Lane>(settings, std::move(queue));
    }
    if (backend == Backend::uring) {
      throw UnavailableError(
          "ANYACCEL_AIO=uring: the system refuses io_uring: " + why +
          "; see /proc/sys/kernel/io_uring_disabled, the container's seccomp profile and `ulimit -l`, or use "
          "ANYACCEL_AIO=auto");
    }
    log_debug("async I/O: the system refuses io_uring: " + why + "; a pool of threads does the transfers");
    // The first lane decides the result of backend(). Later ones may be refused io_uring, but both kinds of queue do
    // the same.
    if (!own_lane) backend = Backend::threads;
  }
  return std::make_unique<Lane>(settings, aio::make_thread_queue(settings.queue_depth));
}

// ---- asynchronous ---------------------------------------------------------------------------------------------------

void AioHandle::Impl::start_workers() {
  if (!workers.empty()) return;
  std::vector<std::unique_ptr<Worker>> made;
  for (int i = 0; i < parallelism; ++i) {
    made.push_back(std::make_unique<Worker>());
    made.back()->lane = make_lane();
  }
  workers = std::move(made);
  // The program's signals must be delivered to its own threads, so these threads block all of them.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  size_t started = 0;
  int refused = 0;
  try {
    for (; started < workers.size(); ++started) {
      Worker& worker = *workers[started];
      worker.thread = std::thread([this, &worker] { work(worker); });
    }
  } catch (const std::system_error& error) {
    refused = error.code().value();
    workers.resize(started);  // use the threads that could be started
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (workers.empty()) {
    throw UnavailableError("asynchronous I/O: " + refused_thread(refused), AA_RESOURCE_EXHAUSTED, refused);
  }
}

void AioHandle::Impl::work(Worker& worker) {
  std::deque<Part> taken;
  for (;;) {
    {
      std::unique_lock lock(mutex);
      if (worker.inbox.empty() && worker.lane->idle()) {
        worker.asleep = true;
        worker.wake.wait(lock, [&] { return stop || !worker.inbox.empty(); });
        worker.asleep = false;
        if (worker.inbox.empty()) return;
      }
      taken.swap(worker.inbox);
    }
    for (Part& part : taken) worker.lane->add(std::move(part));
    taken.clear();
    if (!worker.lane->idle()) worker.lane->step();
  }
}

void AioHandle::Impl::give(Worker& worker, Part part) {
  worker.inbox.push_back(std::move(part));
  if (worker.asleep) worker.wake.notify_one();
}

int64_t AioHandle::Impl::start(std::shared_ptr<Request> request) {
  const std::vector<int64_t> bounds = aio::part_bounds(request->offset, request->bytes, parallelism);
  std::lock_guard lock(mutex);
  start_workers();
  request->id = next_id++;
  request->parts_left = static_cast<int>(bounds.size()) - 1;
  pending.push_back(request);
  for (size_t i = 0; i + 1 < bounds.size(); ++i) {
    give(*workers[next_worker++ % workers.size()], {request, bounds[i], bounds[i + 1]});
  }
  return request->id;
}

// ---- blocking -------------------------------------------------------------------------------------------------------

void AioHandle::Impl::run(const Requests& requests, int ranges) {
  {
    std::lock_guard own(own_mutex);
    size_t lane = 0;  // 0 is this thread's lane
    for (const auto& request : requests) {
      const std::vector<int64_t> bounds = aio::part_bounds(request->offset, request->bytes, ranges);
      std::lock_guard lock(mutex);
      if (bounds.size() > 2) start_workers();
      request->id = next_id++;
      request->parts_left = static_cast<int>(bounds.size()) - 1;
      for (size_t i = 0; i + 1 < bounds.size(); ++i, ++lane) {
        Part part{request, bounds[i], bounds[i + 1]};
        const size_t chosen = workers.empty() ? 0 : lane % static_cast<size_t>(ranges);
        if (chosen == 0) {
          own_lane->add(std::move(part));
        } else {
          give(*workers[chosen % workers.size()], std::move(part));
        }
      }
    }
    while (!own_lane->idle()) own_lane->step();
  }
  for (const auto& request : requests) wait_for(*request);
  conclude(requests);
}

void AioHandle::Impl::conclude(const Requests& requests) {
  std::vector<AioResult> ended;
  ended.reserve(requests.size());
  const Failure* first = nullptr;
  size_t failures = 0;
  for (const auto& request : requests) {
    if (!request->failed && request->destination) request->destination.copy_from(request->memory);
    if (!request->failed && request->by_device && request->validate) validate_by_host(*request);
    ended.push_back(result_of(*request));
    if (!request->failed) continue;
    if (!first) first = &request->failure();
    ++failures;
  }
  {
    std::lock_guard lock(mutex);
    results = std::move(ended);
  }
  if (!first) return;
  std::string message = first->message;
  if (requests.size() > 1) {
    message += " (" + std::to_string(failures) + " of " + std::to_string(requests.size()) +
               " requests failed; results() has each)";
  }
  throw Error(message, first->code, first->error);
}

}  // namespace anyaccel::ops
