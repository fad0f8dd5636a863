// Files of the reference driver (extension "files"): read and written through the page cache, on the caller's thread.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "anyaccel/abi/driver_class.hpp"

namespace reference {

namespace abi = anyaccel::abi;
class Device;

// Ranges of a device's memory that are registered.
class FileMemory {
 public:
  void add(void* pointer, size_t size);
  void remove(void* pointer);

 private:
  std::mutex mutex_;
  std::map<char*, size_t> ranges_;
};

void describe_files(aa_files_info& info);
std::unique_ptr<abi::DirectFile> open_file(Device& device, int descriptor);

}  // namespace reference
