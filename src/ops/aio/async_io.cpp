// Implements anyaccel/ops/async_io.h with the handle's state.
#include "anyaccel/ops/async_io.h"

#include <unistd.h>

#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "ops/aio/engine.h"
#include "ops/aio/handle.h"
#include "ops/builders.h"

namespace anyaccel::ops {
namespace {

using aio::Request;

void check_range(const char* name, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return;
  throw InvalidArgument(std::string("aio_handle: ") + name + " is " + std::to_string(value) + "; it must be " +
                        std::to_string(least) + " to " + std::to_string(most));
}

}  // namespace

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
    log_warning(std::string("async I/O: a handle was destroyed before anybody waited for a request that failed: ") +
                error.what());
  }
}

int64_t AioHandle::get_block_size() const noexcept { return impl_->settings.block_size; }
int AioHandle::get_queue_depth() const noexcept { return static_cast<int>(impl_->settings.queue_depth); }
bool AioHandle::get_single_submit() const noexcept { return impl_->settings.single_submit; }
bool AioHandle::get_overlap_events() const noexcept { return impl_->settings.overlap_events; }
int AioHandle::get_intra_op_parallelism() const noexcept { return impl_->parallelism; }
int64_t AioHandle::get_alignment() const noexcept {
  return impl_->parallelism == 1 ? aio::page : impl_->parallelism * aio::largest_granule;
}
const char* AioHandle::backend() const noexcept {
  return impl_->backend == aio::Backend::threads ? "threads" : "io_uring";
}

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
  check_range("block_size", block_size, aio::page, int64_t{1} << 30);
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
