// Transfers between files and device memory by the accelerator's own way (extension "files"), which bypasses the host's
// memory.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "anyaccel/abi/table_calls.hpp"
#include "anyaccel/tensor.h"
#include "ops/aio/file.h"

namespace anyaccel {
class DriverAccelerator;
}

namespace anyaccel::ops::aio {

// Writes of a DeviceFile consist of whole blocks of this size.
inline constexpr int64_t write_unit = 4096;

// A file that is open for transfers with one device. Several threads may transfer at once.
class DeviceFile {
 public:
  DeviceFile(const abi::Calls<aa_files_table>& table, aa_file* file) : table_(table), file_(file) {}
  ~DeviceFile();
  DeviceFile(const DeviceFile&) = delete;
  DeviceFile& operator=(const DeviceFile&) = delete;

  // Transfers [begin, end) of the file from or to the device address `memory`; blocks. For a write both bounds are
  // multiples of write_unit. `name` is for messages.
  Failure transfer(bool write, const std::string& name, char* memory, int64_t begin, int64_t end) const;

 private:
  const abi::Calls<aa_files_table>& table_;
  aa_file* file_;
};

// Any thread may call it.
class DeviceFiles {
 public:
  // Null if the accelerator has no such way on its current device; the reason is logged (debug).
  static std::shared_ptr<DeviceFiles> of(Accelerator& accelerator);

  DeviceFiles(DriverAccelerator& accelerator, const abi::Calls<aa_files_table>& table)
      : accelerator_(accelerator), table_(table) {}

  // Opens a file, given a descriptor that is open with O_DIRECT and stays so until the DeviceFile is destroyed. Null if
  // the accelerator does not support this file; the reason is logged (debug).
  std::unique_ptr<DeviceFile> open(int device, int descriptor, const std::string& name) const;

  // Prepare the memory of a contiguous tensor for transfers, and end that. They throw the driver's errors.
  void register_memory(const Tensor& tensor) const;
  void unregister_memory(const Tensor& tensor) const;

 private:
  bool is_usable(int device) const;

  DriverAccelerator& accelerator_;
  const abi::Calls<aa_files_table>& table_;
  mutable std::mutex mutex_;
  mutable std::vector<int> usable_;  // of each device: 1, 0, or -1 as long as it is not known
};

}  // namespace anyaccel::ops::aio
