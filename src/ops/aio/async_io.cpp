// Implements the handles of asynchronous I/O, see anyaccel/ops/async_io.h. engine.cpp carries out the requests.
#include "anyaccel/ops/async_io.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <limits>
#include <mutex>
#include <thread>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "anyaccel/ops/pin_memory.h"
#include "ops/aio/engine.h"
#include "ops/builders.h"

namespace anyaccel::ops {
namespace {

using aio::Failure;
using aio::Lane;
using aio::Part;
using aio::Request;

constexpr int64_t page = 4096;

enum class Backend { automatic, uring, threads };

Backend backend_wanted() {
  const char* text = std::getenv("ANYACCEL_AIO");
  const std::string_view value = text ? text : "";
  if (value.empty() || value == "auto") return Backend::automatic;
  if (value == "uring") return Backend::uring;
  if (value == "threads") return Backend::threads;
  throw InvalidArgument("ANYACCEL_AIO is \"" + std::string(value) + "\"; it must be uring, threads or auto");
}

void check_range(const char* name, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return;
  throw InvalidArgument(std::string("aio_handle: ") + name + " is " + std::to_string(value) + "; it must be " +
                        std::to_string(least) + " to " + std::to_string(most));
}

bool usable_by_host(const Tensor& tensor) {
  return tensor.device().is_host() || tensor.device().accelerator->is_host_coherent();
}

// Returns whether several elements share one place in memory, so that a read would have to choose.
bool overlaps_itself(const Tensor& tensor) {
  for (int d = 0; d < tensor.ndim(); ++d) {
    if (tensor.size(d) > 1 && tensor.stride(d) == 0) return true;
  }
  return false;
}

// Returns an event after the work that is enqueued on the tensor's device now; empty if work there is always complete.
Event work_so_far(const Tensor& tensor) {
  const Device device = tensor.device();
  if (device.is_host() || device.accelerator->is_synchronized_device()) return {};
  Accelerator& accelerator = *device.accelerator;
  const int before = accelerator.current_device();
  accelerator.set_device(device.index);
  Event event = accelerator.Event();
  event.record(accelerator.current_stream(device.index));
  accelerator.set_device(before);
  return event;
}

// Returns a contiguous tensor of the same shape in host memory; page-locked if the accelerator copies from and to such
// memory by itself.
Tensor host_memory_for(const Tensor& tensor) {
  if (!usable_by_host(tensor)) {
    Accelerator& accelerator = *tensor.device().accelerator;
    try {
      if (accelerator.device_properties(tensor.device().index).caps & AA_CAP_PINNED_HOST) {
        return accelerator.pin_memory(tensor, /*make_copy=*/false);
      }
    } catch (const OutOfMemoryError& error) {
      log_debug(std::string("async I/O: goes on with ordinary host memory for a tensor: ") + error.what());
    }
  }
  return Tensor::empty(tensor.shape(), tensor.dtype());
}

// Copies what a write of a device tensor has before and after whole blocks to host memory, on the current stream.
Tensor copy_ends(const Request& request, const Tensor& buffer) {
  const int64_t head = request.middle_begin - request.offset;
  const int64_t tail = request.offset + request.bytes - request.middle_end;
  if (head + tail == 0) return {};
  const int64_t first = buffer.storage_offset() * static_cast<int64_t>(dtype_size(buffer.dtype()));
  const int64_t one = 1;
  const auto bytes_of = [&](int64_t begin, int64_t count) {
    return Tensor(buffer.storage(), DType::U8, {count}, {&one, 1}, first + begin);
  };
  Tensor ends = Tensor::empty({head + tail}, DType::U8);
  if (head > 0) ends.slice(0, 0, head).copy_from(bytes_of(0, head));
  if (tail > 0) ends.slice(0, head, head + tail).copy_from(bytes_of(request.bytes - tail, tail));
  return ends;
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

struct AioHandle::Impl {
  using Requests = std::vector<std::shared_ptr<Request>>;

  // `direct` is null, or carries out the requests of device tensors whose files it supports.
  Impl(Accelerator& active, const aio::Settings& wanted, int ranges, std::shared_ptr<aio::DeviceFiles> direct)
      : accelerator(active),
        pins(active),
        settings(wanted),
        parallelism(ranges),
        device_files(std::move(direct)),
        backend(backend_wanted()) {
    own_lane = make_lane();
  }

  ~Impl() {
    {
      std::lock_guard lock(mutex);
      stop = true;
    }
    for (auto& worker : workers) worker->wake.notify_one();
    for (auto& worker : workers) worker->thread.join();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::unique_ptr<Lane> make_lane();
  void check_process() const {
    if (getpid() != process) {
      throw InvalidArgument("this handle of asynchronous I/O was made in process " + std::to_string(process) +
                            "; make a new one in a process after fork()");
    }
  }

  std::shared_ptr<Request> prepare(const Tensor& buffer, const std::string& path, int fd, bool write, bool validate,
                                   int64_t offset, bool async);
  // Makes the request one that the accelerator carries out by itself. False if it does not.
  bool give_to_device(Request& request, const Tensor& buffer) const;
  int64_t start(std::shared_ptr<Request> request);
  // Carries out requests with this thread's help, waits for them and concludes them.
  void run(const Requests& requests, int ranges);
  // Copies data to tensors, fills `results`, and throws the first failure.
  void conclude(const Requests& requests);
  static void wait_for(const Request& request) { request.done.wait(false); }

  // A lane with its own thread.
  struct Worker {
    std::unique_ptr<Lane> lane;
    std::deque<Part> inbox;
    bool asleep = false;
    std::condition_variable wake;
    std::thread thread;
  };
  void start_workers();  // once, with the mutex held
  void work(Worker& worker);
  void give(Worker& worker, Part part);  // with the mutex held

  Accelerator& accelerator;
  PinMemory pins;
  const aio::Settings settings;
  const int parallelism;
  const std::shared_ptr<aio::DeviceFiles> device_files;
  Backend backend;
  const pid_t process = getpid();

  std::mutex own_mutex;  // guards own_lane, which the blocking calls drive
  std::unique_ptr<Lane> own_lane;

  std::mutex wait_mutex;     // held while waiting: a second thread waits for the first one's requests too
  mutable std::mutex mutex;  // guards everything below
  std::vector<std::unique_ptr<Worker>> workers;
  bool stop = false;
  Requests pending;  // asynchronous requests that nobody has waited for yet
  std::vector<AioResult> results;
  int64_t next_id = 1;
  size_t next_worker = 0;
};

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

std::shared_ptr<Request> AioHandle::Impl::prepare(const Tensor& buffer, const std::string& path, int fd, bool write,
                                                  bool validate, int64_t offset, bool async) {
  check_process();
  const char* what = write ? "writing a file: " : "reading a file: ";
  if (!buffer) throw InvalidArgument(std::string(what) + "the tensor is empty");
  if (fd < 0 && (path.empty() || path.find('\0') != std::string::npos)) {
    throw InvalidArgument(std::string(what) + (path.empty() ? "the path is empty" : "the path contains a zero byte"));
  }
  const auto bytes = static_cast<int64_t>(buffer.nbytes());
  if (offset < 0 || offset > std::numeric_limits<int64_t>::max() - bytes - page) {
    throw InvalidArgument(std::string(what) + "the offset " + std::to_string(offset) + " is not possible for " +
                          std::to_string(bytes) + " bytes");
  }
  if (!write && overlaps_itself(buffer)) {
    throw InvalidArgument(std::string(what) + "the tensor of shape " + buffer.shape().to_string() +
                          " repeats elements (a stride is 0); read into an ordinary tensor and expand that");
  }
  // Another thread opens the file, perhaps after the working directory has changed.
  const bool relative = fd < 0 && async && path.front() != '/';
  auto request = std::make_shared<Request>(relative ? std::filesystem::absolute(path).string() : path, fd, write);
  request->validate = validate;
  request->offset = offset;
  request->bytes = bytes;
  if (give_to_device(*request, buffer)) return request;
  if (usable_by_host(buffer) && buffer.is_contiguous()) {
    request->memory = buffer;
    request->ready = work_so_far(buffer);
  } else {
    request->memory = host_memory_for(buffer);
    if (write) {
      request->memory.copy_from(buffer);
      request->ready = work_so_far(buffer);
    } else {
      request->destination = buffer;
    }
  }
  request->data = static_cast<char*>(request->memory.data());
  request->locked = request->memory.storage()->pinned();
  return request;
}

bool AioHandle::Impl::give_to_device(Request& request, const Tensor& buffer) const {
  if (!device_files || buffer.device().accelerator != &accelerator || usable_by_host(buffer) ||
      !buffer.is_contiguous() || request.bytes == 0) {
    return false;
  }
  request.middle_begin = request.offset;
  request.middle_end = request.offset + request.bytes;
  // Failures are reported where the request is carried out, which asks again.
  if (request.file.open(request.offset, request.bytes) || !request.file.direct()) return false;
  if (request.write) {
    const int64_t unit = std::max(aio::write_unit, request.file.granule());
    request.middle_begin = (request.middle_begin + unit - 1) / unit * unit;
    request.middle_end = request.middle_end / unit * unit;
    if (request.middle_begin >= request.middle_end) return false;
  }
  request.device_file = device_files->open(buffer.device().index, request.file.direct_fd(), request.file.name());
  if (!request.device_file) return false;
  request.ends = copy_ends(request, buffer);
  request.memory = buffer;
  request.data = static_cast<char*>(buffer.data());
  request.by_device = true;
  request.ready = work_so_far(buffer);
  return true;
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
  try {
    for (; started < workers.size(); ++started) {
      Worker& worker = *workers[started];
      worker.thread = std::thread([this, &worker] { work(worker); });
    }
  } catch (const std::system_error&) {
    workers.resize(started);  // use the threads that could be started
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (workers.empty()) {
    throw UnavailableError("asynchronous I/O: the system refuses to start a thread; raise `ulimit -u`",
                           AA_RESOURCE_EXHAUSTED);
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

// ---- the handle -----------------------------------------------------------------------------------------------------

AioHandle::AioHandle(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
AioHandle::AioHandle(AioHandle&&) noexcept = default;

AioHandle& AioHandle::operator=(AioHandle&& other) noexcept {
  std::swap(impl_, other.impl_);
  return *this;
}

AioHandle::~AioHandle() {
  if (!impl_) return;
  if (getpid() != impl_->process) {
    // The threads and the rings belong to the parent process.
    (void)impl_.release();
    return;
  }
  try {
    wait();
  } catch (const std::exception& error) {
    log_warning(std::string("async I/O: a handle was destroyed, and nobody waited for a request that failed: ") +
                error.what());
  }
}

int64_t AioHandle::get_block_size() const noexcept { return impl_->settings.block_size; }
int AioHandle::get_queue_depth() const noexcept { return static_cast<int>(impl_->settings.queue_depth); }
bool AioHandle::get_single_submit() const noexcept { return impl_->settings.single_submit; }
bool AioHandle::get_overlap_events() const noexcept { return impl_->settings.overlap_events; }
int AioHandle::get_intra_op_parallelism() const noexcept { return impl_->parallelism; }
int64_t AioHandle::get_alignment() const noexcept {
  return impl_->parallelism == 1 ? page : impl_->parallelism * aio::largest_granule;
}
const char* AioHandle::backend() const noexcept { return impl_->backend == Backend::threads ? "threads" : "io_uring"; }

void AioHandle::read(const Tensor& buffer, const std::string& file, bool validate, int64_t file_offset) {
  const auto request = impl_->prepare(buffer, file, -1, false, validate, file_offset, false);
  request->whole_file = true;
  impl_->run({request}, 1);
}

void AioHandle::write(const Tensor& buffer, const std::string& file, bool validate, int64_t file_offset) {
  impl_->run({impl_->prepare(buffer, file, -1, true, validate, file_offset, false)}, 1);
}

int64_t AioHandle::pread(const Tensor& buffer, const std::string& file, bool validate, bool async,
                         int64_t file_offset) {
  const auto request = impl_->prepare(buffer, file, -1, false, validate, file_offset, async);
  if (async) return impl_->start(request);
  impl_->run({request}, impl_->parallelism);
  return request->id;
}

int64_t AioHandle::pwrite(const Tensor& buffer, const std::string& file, bool validate, bool async,
                          int64_t file_offset) {
  const auto request = impl_->prepare(buffer, file, -1, true, validate, file_offset, async);
  if (async) return impl_->start(request);
  impl_->run({request}, impl_->parallelism);
  return request->id;
}

void AioHandle::sync_pread(const Tensor& buffer, const std::string& file, int64_t file_offset) {
  pread(buffer, file, false, false, file_offset);
}

void AioHandle::sync_pwrite(const Tensor& buffer, const std::string& file, int64_t file_offset) {
  pwrite(buffer, file, false, false, file_offset);
}

int64_t AioHandle::async_pread(const Tensor& buffer, const std::string& file, int64_t file_offset) {
  return pread(buffer, file, false, true, file_offset);
}

int64_t AioHandle::async_pwrite(const Tensor& buffer, const std::string& file, int64_t file_offset) {
  return pwrite(buffer, file, false, true, file_offset);
}

int64_t AioHandle::async_pwrite(const Tensor& buffer, int fd, int64_t file_offset) {
  if (fd < 0) {
    throw InvalidArgument("writing a file: " + std::to_string(fd) +
                          " is not a file descriptor; was open() successful?");
  }
  return impl_->start(impl_->prepare(buffer, "", fd, true, false, file_offset, true));
}

namespace {

// Every argument is checked before the first request starts.
template <class Prepare>
std::vector<std::shared_ptr<Request>> prepare_all(std::span<const AioRequest> list, Prepare&& prepare) {
  std::vector<std::shared_ptr<Request>> requests;
  requests.reserve(list.size());
  for (const AioRequest& one : list) requests.push_back(prepare(one));
  return requests;
}

}  // namespace

void AioHandle::sync_pread(std::span<const AioRequest> requests) {
  impl_->run(prepare_all(requests,
                         [&](const AioRequest& one) {
                           return impl_->prepare(one.buffer, one.file, -1, false, false, one.file_offset, false);
                         }),
             impl_->parallelism);
}

void AioHandle::sync_pwrite(std::span<const AioRequest> requests) {
  impl_->run(prepare_all(requests,
                         [&](const AioRequest& one) {
                           return impl_->prepare(one.buffer, one.file, -1, true, false, one.file_offset, false);
                         }),
             impl_->parallelism);
}

std::vector<int64_t> AioHandle::async_pread(std::span<const AioRequest> requests) {
  std::vector<int64_t> ids;
  for (auto& request : prepare_all(requests, [&](const AioRequest& one) {
         return impl_->prepare(one.buffer, one.file, -1, false, false, one.file_offset, true);
       })) {
    ids.push_back(impl_->start(std::move(request)));
  }
  return ids;
}

std::vector<int64_t> AioHandle::async_pwrite(std::span<const AioRequest> requests) {
  std::vector<int64_t> ids;
  for (auto& request : prepare_all(requests, [&](const AioRequest& one) {
         return impl_->prepare(one.buffer, one.file, -1, true, false, one.file_offset, true);
       })) {
    ids.push_back(impl_->start(std::move(request)));
  }
  return ids;
}

size_t AioHandle::wait() {
  impl_->check_process();
  std::lock_guard one(impl_->wait_mutex);
  Impl::Requests requests;
  {
    std::lock_guard lock(impl_->mutex);
    requests.swap(impl_->pending);
  }
  for (const auto& request : requests) Impl::wait_for(*request);
  impl_->conclude(requests);
  return requests.size();
}

std::vector<AioResult> AioHandle::results() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->results;
}

Tensor AioHandle::new_cpu_locked_tensor(int64_t num_elem, DType dtype) {
  return impl_->pins.new_cpu_locked_tensor(num_elem, dtype);
}

Tensor AioHandle::new_cpu_locked_tensor(int64_t num_elem, const Tensor& example) {
  return impl_->pins.new_cpu_locked_tensor(num_elem, example);
}

void AioHandle::finish_transfers() const {
  Impl::Requests requests;
  {
    std::lock_guard lock(impl_->mutex);
    requests = impl_->pending;
  }
  for (const auto& request : requests) Impl::wait_for(*request);
}

bool AioHandle::free_cpu_locked_tensor(Tensor& tensor) { return impl_->pins.free_cpu_locked_tensor(tensor); }
bool AioHandle::is_pinned(const Tensor& tensor) const { return impl_->pins.is_pinned(tensor); }

// ---- the library ----------------------------------------------------------------------------------------------------

AioHandle AsyncIO::aio_handle(int64_t block_size, int queue_depth, bool single_submit, bool overlap_events,
                              int intra_op_parallelism) const {
  return make_handle(block_size, queue_depth, single_submit, overlap_events, intra_op_parallelism, nullptr);
}

AioHandle AsyncIO::make_handle(int64_t block_size, int queue_depth, bool single_submit, bool overlap_events,
                               int intra_op_parallelism, std::shared_ptr<aio::DeviceFiles> device_files) const {
  check_range("block_size", block_size, page, int64_t{1} << 30);
  check_range("queue_depth", queue_depth, 1, 4096);
  check_range("intra_op_parallelism", intra_op_parallelism, 1, 256);
  const aio::Settings settings{block_size, static_cast<unsigned>(queue_depth), single_submit, overlap_events};
  return AioHandle(
      std::make_unique<AioHandle::Impl>(accelerator_, settings, intra_op_parallelism, std::move(device_files)));
}

void AsyncIO::aio_read(const Tensor& buffer, const std::string& file, int64_t block_size, int queue_depth,
                       bool single_submit, bool overlap_events, bool validate) const {
  aio_handle(block_size, queue_depth, single_submit, overlap_events).read(buffer, file, validate);
}

void AsyncIO::aio_write(const Tensor& buffer, const std::string& file, int64_t block_size, int queue_depth,
                        bool single_submit, bool overlap_events, bool validate) const {
  aio_handle(block_size, queue_depth, single_submit, overlap_events).write(buffer, file, validate);
}

std::unique_ptr<OpBuilder> make_async_io_builder(Accelerator& accelerator) {
  return std::make_unique<IncludedOpBuilder<AsyncIO>>("AsyncIOBuilder", accelerator);
}

}  // namespace anyaccel::ops
