// Implements device_files.h: transfers between files and device memory by the accelerator's own way.
#include "ops/aio/device_files.h"

#include <algorithm>

#include "anyaccel/driver_accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "runtime/driver/host_services.h"

namespace anyaccel::ops::aio {
namespace {

constexpr int64_t largest_transfer = int64_t{1} << 30;

// Native codes of drivers that are errnos, as extension "files" defines it, are smaller than this.
constexpr int64_t first_vendor_code = 4096;

std::string what_failed(bool write, const std::string& name, int64_t begin, int64_t end) {
  return std::string(write ? "writing " : "reading ") + std::to_string(end - begin) + " bytes at offset " +
         std::to_string(begin) + " of " + name + " failed: ";
}

}  // namespace

DeviceFile::~DeviceFile() {
  if (const StatusRef status(table_.file_close(file_)); !status.ok()) {
    log_warning("async I/O: a file could not be closed: " + std::string(status.message()));
  }
}

Failure DeviceFile::transfer(bool write, const std::string& name, char* memory, int64_t begin, int64_t end) const {
  for (int64_t at = begin; at < end;) {
    auto what = abi::sized<aa_file_transfer>();
    what.pointer = memory + (at - begin);
    what.size = static_cast<size_t>(std::min(end - at, largest_transfer));
    what.file_offset = at;
    size_t done = 0;
    const StatusRef status(write ? table_.write(file_, &what, &done) : table_.read(file_, &what, &done));
    if (!status.ok()) {
      const int64_t native = status.native_code();
      if (native > 0 && native < first_vendor_code) {
        return failure_of(static_cast<int>(native), write, name, begin, end - begin);
      }
      return {0, status.code(), what_failed(write, name, begin, end) + std::string(status.message())};
    }
    if (!write && done == 0) {
      return {0, AA_OUT_OF_RANGE, what_failed(write, name, begin, end) + "the file ended at " + std::to_string(at)};
    }
    if (done == 0 || done > what.size || (write && done % write_unit != 0)) {
      return {0, AA_INTERNAL,
              what_failed(write, name, begin, end) + "the accelerator says that it transferred " +
                  std::to_string(done) + " of " + std::to_string(what.size) + " bytes at offset " + std::to_string(at)};
    }
    at += static_cast<int64_t>(done);
  }
  return {};
}

std::shared_ptr<DeviceFiles> DeviceFiles::of(Accelerator& accelerator) {
  auto* driven = dynamic_cast<DriverAccelerator*>(&accelerator);
  if (!driven) return nullptr;
  const auto* table =
      static_cast<const abi::Calls<aa_files_table>*>(driven->extension(AA_FILES_EXTENSION, AA_FILES_VERSION));
  if (!table) return nullptr;
  auto files = std::make_shared<DeviceFiles>(*driven, *table);
  return files->is_usable(driven->current_device()) ? files : nullptr;
}

bool DeviceFiles::is_usable(int device) const {
  {
    const std::lock_guard lock(mutex_);
    usable_.resize(static_cast<size_t>(accelerator_.device_count()), -1);
    if (usable_[static_cast<size_t>(device)] >= 0) return usable_[static_cast<size_t>(device)] == 1;
  }
  auto info = abi::sized<aa_files_info>();
  check(table_.info(accelerator_.device_handle(device), &info), "files info", accelerator_.driver().name);
  log_debug("async I/O: files and memory of " + accelerator_.device_name(device) + ": " + info.text);
  const std::lock_guard lock(mutex_);
  usable_[static_cast<size_t>(device)] = info.usable == 1 ? 1 : 0;
  return info.usable == 1;
}

std::unique_ptr<DeviceFile> DeviceFiles::open(int device, int descriptor, const std::string& name) const {
  if (!is_usable(device)) return nullptr;
  auto params = abi::sized<aa_file_params>();
  params.descriptor = descriptor;
  aa_file* file = nullptr;
  const StatusRef status(table_.file_open(accelerator_.device_handle(device), &params, &file));
  if (status.ok()) return std::make_unique<DeviceFile>(table_, file);
  if (status.code() == AA_DEVICE_LOST || status.code() == AA_INTERNAL) {
    throw Error("opening " + name + " for transfers with a device failed: " + std::string(status.message()),
                status.code(), status.native_code());
  }
  log_debug("async I/O: " + name + " is transferred through host memory: " + std::string(status.message()));
  return nullptr;
}

void DeviceFiles::register_memory(const Tensor& tensor) const {
  if (!is_usable(tensor.device().index)) return;
  auto what = abi::sized<aa_file_memory>();
  what.pointer = tensor.data();
  what.size = tensor.nbytes();
  check(table_.memory_register(accelerator_.device_handle(tensor.device().index), &what), "pin_device_tensor",
        accelerator_.driver().name);
}

void DeviceFiles::unregister_memory(const Tensor& tensor) const {
  if (!is_usable(tensor.device().index)) return;
  check(table_.memory_unregister(accelerator_.device_handle(tensor.device().index), tensor.data()),
        "unpin_device_tensor", accelerator_.driver().name);
}

}  // namespace anyaccel::ops::aio
