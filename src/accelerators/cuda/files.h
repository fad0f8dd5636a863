// Files whose transfers go directly between a disk and device memory: the extension "files", by NVIDIA's cuFile.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "accelerators/cuda/device_state.h"

namespace anyaccel::cuda {

// The memory of one device that is registered with cuFile. Thread-safe.
class FileMemory {
 public:
  explicit FileMemory(DeviceState& device) : device_(device) {}
  // Ends the registrations that are left.
  ~FileMemory();
  FileMemory(const FileMemory&) = delete;
  FileMemory& operator=(const FileMemory&) = delete;

  void add(void* pointer, size_t size);
  void remove(void* pointer);
  // Returns the beginning of the registered memory that [pointer, pointer + size) lies in; else `pointer`. cuFile looks
  // up registered memory by its first address.
  char* base_of(char* pointer, size_t size) const;

 private:
  DeviceState& device_;
  mutable std::mutex mutex_;
  std::map<char*, size_t> ranges_;
};

void describe_files(DeviceState& device, aa_files_info& info);
std::unique_ptr<abi::DirectFile> open_file(DeviceState& device, const FileMemory& memory, int descriptor);

}  // namespace anyaccel::cuda
