// The services that the host lends to drivers (aa_host), and the conversion of their status objects into C++ exceptions and
// back.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "anyaccel/abi/base.h"

// The operations that the services need from a device. Implemented by the accelerator that opened the device;
// thread-safe.
struct aa_host_device {
  // As aa_host::scratch_acquire, scratch_release and reclaim; acquire and reclaim throw.
  virtual void acquire_scratch(aa_scratch& scratch) = 0;
  virtual void release_scratch(aa_scratch& scratch) noexcept = 0;
  virtual size_t reclaim() = 0;

 protected:
  ~aa_host_device() = default;
};

// The operations that the services need from a stream.
struct aa_host_stream {
  aa_host_device* device = nullptr;
};

namespace anyaccel {

// The services that the host itself uses, and tests. Valid until the process ends.
const aa_host* host_services() noexcept;

// The services for one driver, whose name precedes its log lines and is that of its cache folder. `origin` is its file,
// or its name if it is built in; the same origin gives the same object. Valid until the process ends. Thread-safe.
const aa_host* services_for(const std::string& origin);
// Sets the driver's name, once it is known.
void name_services(const aa_host* services, const std::string& driver_name);

// As the functions of aa_host.
void release_status(aa_status* status) noexcept;
aa_code status_code(const aa_status* status) noexcept;
const char* status_message(const aa_status* status) noexcept;

// Status objects that exist now, the preallocated one not counted; for tests that look for leaks.
int64_t live_status_count() noexcept;

// Makes a status, as aa_host::status_create. Never null.
aa_status* make_status(aa_code code, std::string_view message, int64_t native_code = 0) noexcept;

// The name of a code, "RESOURCE_EXHAUSTED"; "code 99" is named "UNKNOWN".
const char* code_name(int32_t code) noexcept;

// The status for the exception that is being handled: Error and abi::Failure keep their codes, std::bad_alloc becomes
// AA_RESOURCE_EXHAUSTED, std::invalid_argument AA_INVALID_ARGUMENT, anything else AA_INTERNAL. For C++ code below a
// table; call it only inside a catch block.
aa_status* status_from_current_exception() noexcept;

// Owns a status that is inspected instead of thrown.
class StatusRef {
 public:
  StatusRef() = default;
  explicit StatusRef(aa_status* status) noexcept : status_(status) {}
  StatusRef(StatusRef&& other) noexcept : status_(std::exchange(other.status_, nullptr)) {}
  StatusRef& operator=(StatusRef&& other) noexcept {
    std::swap(status_, other.status_);
    return *this;
  }
  ~StatusRef() { release_status(status_); }

  bool ok() const noexcept { return status_ == nullptr; }
  aa_code code() const noexcept;
  int64_t native_code() const noexcept;
  // "" for success. Lives as long as this object.
  std::string_view message() const noexcept;
  // "RESOURCE_EXHAUSTED: the message (vendor error 2)"; "OK" for success.
  std::string text() const;
  // Releases ownership of the status.
  aa_status* release() noexcept { return std::exchange(status_, nullptr); }

 private:
  aa_status* status_ = nullptr;
};

// Throws the exception that belongs to a status and releases the status. The message is "cuda: mem_alloc: ...".
//   UNAVAILABLE, INCOMPATIBLE, PERMISSION_DENIED                            UnavailableError
//   RESOURCE_EXHAUSTED                                                      OutOfMemoryError
//   INVALID_ARGUMENT, OUT_OF_RANGE, FAILED_PRECONDITION, NOT_FOUND, ALREADY_EXISTS   InvalidArgument
//   UNIMPLEMENTED                                                           NotImplementedError
//   everything else                                                         Error
[[noreturn]] void throw_status(aa_status* status, const char* what, const char* driver_name);

// Turns a status into an exception unless it is success. `what` names the function that was called.
inline void check(aa_status* status, const char* what, const char* driver_name) {
  if (status) [[unlikely]]
    throw_status(status, what, driver_name);
}

// Throws unless there is the object that a successful call had to make.
[[noreturn]] void throw_nothing_made(const char* what, const char* driver_name);
inline void check_made(const void* object, const char* what, const char* driver_name) {
  if (!object) [[unlikely]]
    throw_nothing_made(what, driver_name);
}

}  // namespace anyaccel
