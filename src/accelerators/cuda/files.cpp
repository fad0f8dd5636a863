// Implements files.h: files whose transfers go directly between a disk and device memory.
#include "accelerators/cuda/files.h"

#include <cerrno>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "accelerators/cuda/libraries/cufile.h"

namespace anyaccel::cuda {
namespace {

// Makes the device's context current, which cuFile uses for all that it does on the GPU.
const CuFile& library_for(const DeviceState& device) {
  if (device.api().runtime != Runtime::cuda) {
    throw abi::Failure(AA_UNAVAILABLE, device.label() + ": cuFile is for NVIDIA's GPUs");
  }
  device.bind_surely();
  std::string problem;
  const CuFile* library = cufile(problem);
  if (!library) throw abi::Failure(AA_UNAVAILABLE, device.label() + ": " + problem);
  return *library;
}

aa_code code_of_cufile(int error) {
  switch (error) {
    case cufile_platform_not_supported:
    case cufile_io_not_supported:
    case cufile_device_not_supported:
    case cufile_invalid_file_type:
    case cufile_invalid_file_open_flag:
    case cufile_dio_not_set:
    case cufile_io_disabled: return AA_UNIMPLEMENTED;
    case cufile_driver_not_initialized:
    case cufile_driver_version_mismatch:
    case cufile_nvfs_setup_error: return AA_UNAVAILABLE;
    case cufile_invalid_value: return AA_INVALID_ARGUMENT;
    case cufile_memory_already_registered: return AA_ALREADY_EXISTS;
    case cufile_memory_not_registered: return AA_NOT_FOUND;
    case cufile_permission_denied: return AA_PERMISSION_DENIED;
    case cufile_gpu_memory_pinning_failed: return AA_RESOURCE_EXHAUSTED;
    default: return AA_UNKNOWN;
  }
}

void check(const DeviceState& device, CuFileStatus status, const char* call) {
  if (status.error == cufile_success) return;
  std::string text = device.label() + ": " + call + " gave " + cufile_error_text(status.error);
  if (status.error == cufile_cuda_driver_error) {
    text += ", " + result_text(device.api(), static_cast<Result>(status.cuda_error));
  }
  throw abi::Failure(code_of_cufile(status.error), text, status.error);
}

aa_code code_of_errno(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case ENOMEM: return AA_RESOURCE_EXHAUSTED;
    case EFBIG: return AA_OUT_OF_RANGE;
    case EACCES:
    case EPERM:
    case EROFS: return AA_PERMISSION_DENIED;
    case EINVAL:
    case EBADF: return AA_INVALID_ARGUMENT;
    default: return AA_UNKNOWN;
  }
}

class CuFileFile final : public abi::DirectFile {
 public:
  CuFileFile(DeviceState& device, const FileMemory& memory, const CuFile& library, int descriptor)
      : device_(device), memory_(memory), library_(library) {
    CuFileDescription description{};
    description.type = cufile_type_descriptor;
    description.descriptor = descriptor;
    check(device, library.handle_register(&handle_, &description), "cuFileHandleRegister");
  }
  ~CuFileFile() override {
    if (!is_forked_child()) library_.handle_deregister(handle_);
  }

  size_t read(const aa_file_transfer& what) override {
    const auto [base, offset] = place_of(what);
    return bytes_of(library_.read(handle_, base, what.size, what.file_offset, offset), "cuFileRead");
  }
  size_t write(const aa_file_transfer& what) override {
    const auto [base, offset] = place_of(what);
    return bytes_of(library_.write(handle_, base, what.size, what.file_offset, offset), "cuFileWrite");
  }

 private:
  std::pair<char*, off_t> place_of(const aa_file_transfer& what) const {
    device_.bind_surely();
    auto* const pointer = static_cast<char*>(what.pointer);
    char* const base = memory_.base_of(pointer, what.size);
    errno = 0;
    return {base, pointer - base};
  }
  size_t bytes_of(ssize_t result, const char* call) const {
    if (result >= 0) return static_cast<size_t>(result);
    const std::string text = device_.label() + ": " + call + " gave ";
    if (result == -1) {
      const int error = errno;
      throw abi::Failure(code_of_errno(error), text + std::strerror(error) + " (errno " + std::to_string(error) + ")",
                         error);
    }
    const int error = static_cast<int>(-result);
    throw abi::Failure(code_of_cufile(error), text + cufile_error_text(error), error);
  }

  DeviceState& device_;
  const FileMemory& memory_;
  const CuFile& library_;
  CuFileHandle handle_ = nullptr;
};

}  // namespace

FileMemory::~FileMemory() {
  if (ranges_.empty() || is_forked_child()) return;
  std::string problem;
  const CuFile* library = cufile(problem);
  for (const auto& [pointer, size] : ranges_) library->buffer_deregister(pointer);
}

void FileMemory::add(void* pointer, size_t size) {
  const CuFile& library = library_for(device_);
  auto* const begin = static_cast<char*>(pointer);
  const std::lock_guard lock(mutex_);
  const auto after = ranges_.lower_bound(begin + size);
  if (after != ranges_.begin() && std::prev(after)->first + std::prev(after)->second > begin) {
    throw abi::Failure(AA_ALREADY_EXISTS, device_.label() + ": a part of this memory is registered for files already");
  }
  check(device_, library.buffer_register(pointer, size, 0), "cuFileBufRegister");
  ranges_.emplace(begin, size);
}

void FileMemory::remove(void* pointer) {
  const std::lock_guard lock(mutex_);
  const auto found = ranges_.find(static_cast<char*>(pointer));
  if (found == ranges_.end()) {
    throw abi::Failure(AA_NOT_FOUND, device_.label() + ": this memory is not registered for files");
  }
  const CuFile& library = library_for(device_);
  ranges_.erase(found);
  check(device_, library.buffer_deregister(pointer), "cuFileBufDeregister");
}

char* FileMemory::base_of(char* pointer, size_t size) const {
  const std::lock_guard lock(mutex_);
  auto after = ranges_.upper_bound(pointer);
  if (after == ranges_.begin()) return pointer;
  const auto& [begin, bytes] = *--after;
  return pointer + size <= begin + bytes ? begin : pointer;
}

void describe_files(DeviceState& device, aa_files_info& info) {
  try {
    abi::copy_text(info.text, library_for(device).description());
    info.usable = 1;
  } catch (const abi::Failure& failure) {
    if (failure.code() != AA_UNAVAILABLE) throw;
    abi::copy_text(info.text, failure.what());
  }
}

std::unique_ptr<abi::DirectFile> open_file(DeviceState& device, const FileMemory& memory, int descriptor) {
  return std::make_unique<CuFileFile>(device, memory, library_for(device), descriptor);
}

}  // namespace anyaccel::cuda
