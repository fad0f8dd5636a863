// Makes the requests of asynchronous I/O from the arguments of calls.
#include <algorithm>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "ops/aio/handle.h"

namespace anyaccel::ops {
namespace {

using aio::Request;

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
      log_debug(std::string("async I/O: a tensor gets ordinary host memory: ") + error.what());
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

}  // namespace

std::shared_ptr<Request> AioHandle::Impl::prepare(const Tensor& buffer, const std::string& path, int fd, bool write,
                                                  bool validate, int64_t offset, bool async) {
  check_process();
  const char* what = write ? "writing a file: " : "reading a file: ";
  if (!buffer) throw InvalidArgument(std::string(what) + "the tensor is empty");
  if (fd < 0 && (path.empty() || path.find('\0') != std::string::npos)) {
    throw InvalidArgument(std::string(what) + (path.empty() ? "the path is empty" : "the path contains a zero byte"));
  }
  const auto bytes = static_cast<int64_t>(buffer.nbytes());
  if (offset < 0 || offset > std::numeric_limits<int64_t>::max() - bytes - aio::page) {
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

}  // namespace anyaccel::ops
