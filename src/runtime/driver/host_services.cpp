// Status objects, and the services that drivers get from the host.
#include "runtime/driver/host_services.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <new>
#include <stdexcept>

#include "anyaccel/abi/driver_class.hpp"
#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "base/files/cache_dir.h"

// One block of memory: this header, then the text and its terminating zero.
struct aa_status {
  int64_t native_code;
  int32_t code;
  const char* message;
};

namespace anyaccel {
namespace {

constexpr const char* code_names[] = {
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "DEVICE_LOST",    "INCOMPATIBLE"};
constexpr int32_t code_count = sizeof(code_names) / sizeof(code_names[0]);
static_assert(code_count == AA_INCOMPATIBLE + 1);

// Messages of drivers are cut here: a length that was never set must not make the host copy the address space.
constexpr size_t max_message = 1u << 20;

std::atomic<int64_t> live_statuses{0};

aa_status out_of_memory_status = {0, AA_RESOURCE_EXHAUSTED, "out of host memory while an error was being reported"};

aa_status* create_status(int32_t code, int64_t native_code, const char* message, size_t length) noexcept {
  if (!message) length = 0;
  if (length > max_message) length = max_message;
  void* block = std::malloc(sizeof(aa_status) + length + 1);
  if (!block) return &out_of_memory_status;
  char* text = static_cast<char*>(block) + sizeof(aa_status);
  if (length > 0) std::memcpy(text, message, length);
  text[length] = '\0';
  // AA_OK and unknown numbers are errors too, because the driver created a status.
  const int32_t known = code > AA_OK && code < code_count ? code : AA_UNKNOWN;
  live_statuses.fetch_add(1, std::memory_order_relaxed);
  return new (block) aa_status{native_code, known, text};
}

struct DriverHost : aa_host {
  std::mutex mutex;
  std::string name;  // mutex; empty: not known yet

  std::string driver_name() {
    const std::lock_guard lock(mutex);
    return name;
  }
};

DriverHost& own(const aa_host* host) { return static_cast<DriverHost&>(const_cast<aa_host&>(*host)); }

aa_status* host_status_create(const aa_host*, int32_t code, int64_t native_code, const char* message,
                              size_t length) noexcept {
  return create_status(code, native_code, message, length);
}
void host_status_release(const aa_host*, aa_status* status) noexcept { release_status(status); }
int32_t host_status_code(const aa_host*, const aa_status* status) noexcept { return status_code(status); }
int64_t host_status_native_code(const aa_host*, const aa_status* status) noexcept {
  return status ? status->native_code : 0;
}
const char* host_status_message(const aa_host*, const aa_status* status) noexcept { return status_message(status); }

void host_log(const aa_host* host, int32_t level, const char* message, size_t length) noexcept {
  if (!message) return;
  const auto known =
      static_cast<LogLevel>(level < AA_LOG_DEBUG ? AA_LOG_DEBUG : std::min<int32_t>(level, AA_LOG_ERROR));
  try {
    const std::string name = own(host).driver_name();
    const std::string_view text(message, length);
    log(known, name.empty() || text.starts_with(name) ? std::string(text) : name + ": " + std::string(text));
  } catch (...) {
    log(known, {message, length});
  }
}

aa_status* host_cache_dir(const aa_host* host, char* out_path, size_t size) noexcept {
  try {
    const std::string name = own(host).driver_name();
    const std::filesystem::path top = cache_directory();
    if (top.empty() || name.empty()) {
      return make_status(AA_UNAVAILABLE,
                         "there is no cache folder: none of ANYACCEL_CACHE_DIR, XDG_CACHE_HOME and HOME is set");
    }
    const std::filesystem::path folder = top / "drivers" / name;
    const TrustedPath opened = make_cache_folder(folder);
    if (!opened.ok()) {
      return make_status(AA_UNAVAILABLE, "the cache folder \"" + folder.string() + "\" is not used: " + opened.reason);
    }
    if (folder.native().size() >= size) {
      return make_status(AA_OUT_OF_RANGE, "the path of the cache folder has " + std::to_string(folder.native().size()) +
                                              " bytes; there is room for " + std::to_string(size));
    }
    std::memcpy(out_path, folder.c_str(), folder.native().size() + 1);
    return nullptr;
  } catch (...) {
    return status_from_current_exception();
  }
}

aa_host_device* device_of(const aa_scratch& scratch) {
  aa_host_device* device = scratch.stream ? scratch.stream->device : scratch.device;
  if (!device) throw InvalidArgument("scratch memory was asked for without a stream or a device");
  return device;
}

aa_status* host_scratch_acquire(const aa_host*, aa_scratch* scratch) noexcept {
  try {
    if (scratch->struct_size < sizeof(aa_scratch) || scratch->size == 0) {
      throw InvalidArgument("scratch memory of " + std::to_string(scratch->size) +
                            " bytes was asked for by a struct of " + std::to_string(scratch->struct_size) + " bytes");
    }
    if ((scratch->flags & ~AA_SCRATCH_IDLE) != 0) {
      throw NotImplementedError("scratch_acquire: flags " + std::to_string(scratch->flags) + " are not known");
    }
    device_of(*scratch)->acquire_scratch(*scratch);
    return nullptr;
  } catch (...) {
    return status_from_current_exception();
  }
}

void host_scratch_release(const aa_host*, aa_scratch* scratch) noexcept {
  aa_host_device* device = scratch->stream ? scratch->stream->device : scratch->device;
  if (device && scratch->pointer) device->release_scratch(*scratch);
  scratch->pointer = nullptr;
}

aa_status* host_reclaim(const aa_host*, aa_host_device* device, size_t* out_released) noexcept {
  try {
    *out_released = device->reclaim();
    return nullptr;
  } catch (...) {
    return status_from_current_exception();
  }
}

DriverHost* make_host() {
  auto* host = new DriverHost;
  static_cast<aa_host&>(*host) = {
      .struct_size = sizeof(aa_host),
      .abi_version = AA_ABI_CURRENT,
      .status_create = host_status_create,
      .status_release = host_status_release,
      .status_code = host_status_code,
      .status_native_code = host_status_native_code,
      .status_message = host_status_message,
      .log = host_log,
      .cache_dir = host_cache_dir,
      .scratch_acquire = host_scratch_acquire,
      .scratch_release = host_scratch_release,
      .reclaim = host_reclaim,
  };
  return host;
}

}  // namespace

const aa_host* host_services() noexcept {
  static const DriverHost& host = *make_host();
  return &host;
}

const aa_host* services_for(const std::string& origin) {
  static std::mutex& mutex = *new std::mutex;
  static auto& hosts = *new std::map<std::string, DriverHost*>;
  const std::lock_guard lock(mutex);
  DriverHost*& host = hosts[origin];
  if (!host) host = make_host();
  return host;
}

void name_services(const aa_host* services, const std::string& driver_name) {
  DriverHost& host = own(services);
  const std::lock_guard lock(host.mutex);
  host.name = driver_name;
}

void release_status(aa_status* status) noexcept {
  if (!status || status == &out_of_memory_status) return;
  live_statuses.fetch_sub(1, std::memory_order_relaxed);
  std::free(status);
}

aa_code status_code(const aa_status* status) noexcept { return status ? static_cast<aa_code>(status->code) : AA_OK; }
const char* status_message(const aa_status* status) noexcept { return status ? status->message : ""; }

int64_t live_status_count() noexcept { return live_statuses.load(std::memory_order_relaxed); }

aa_status* make_status(aa_code code, std::string_view message, int64_t native_code) noexcept {
  return create_status(code, native_code, message.data(), message.size());
}

const char* code_name(int32_t code) noexcept {
  return code_names[code >= 0 && code < code_count ? code : static_cast<int32_t>(AA_UNKNOWN)];
}

aa_status* status_from_current_exception() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    return make_status(error.code(), error.what(), error.native_code());
  } catch (const abi::Failure& failure) {
    return make_status(failure.code(), failure.what(), failure.native_code());
  } catch (const std::bad_alloc&) {
    return make_status(AA_RESOURCE_EXHAUSTED, "out of host memory");
  } catch (const std::invalid_argument& error) {
    return make_status(AA_INVALID_ARGUMENT, error.what());
  } catch (const std::exception& error) {
    return make_status(AA_INTERNAL, error.what());
  } catch (...) {
    return make_status(AA_INTERNAL, "an exception that is not a std::exception");
  }
}

aa_code StatusRef::code() const noexcept { return status_code(status_); }
int64_t StatusRef::native_code() const noexcept { return status_ ? status_->native_code : 0; }
std::string_view StatusRef::message() const noexcept { return status_message(status_); }

std::string StatusRef::text() const {
  if (!status_) return "OK";
  std::string text = std::string(code_name(code())) + ": " + status_->message;
  if (native_code() != 0) text += " (vendor error " + std::to_string(native_code()) + ")";
  return text;
}

void throw_status(aa_status* status, const char* what, const char* driver_name) {
  const StatusRef owner(status);
  const aa_code code = owner.code();
  const int64_t native = owner.native_code();
  std::string message = std::string(driver_name) + ": " + what + ": " + std::string(owner.message());
  if (owner.message().empty()) message += std::string(code_name(code)) + ", without a message of the driver";
  if (native != 0) message += " (vendor error " + std::to_string(native) + ")";
  switch (code) {
    case AA_UNAVAILABLE:
    case AA_INCOMPATIBLE:
    case AA_PERMISSION_DENIED: throw UnavailableError(message, code, native);
    case AA_RESOURCE_EXHAUSTED: throw OutOfMemoryError(message, native);
    case AA_INVALID_ARGUMENT:
    case AA_OUT_OF_RANGE:
    case AA_FAILED_PRECONDITION:
    case AA_NOT_FOUND:
    case AA_ALREADY_EXISTS: throw InvalidArgument(message, code);
    case AA_UNIMPLEMENTED: throw NotImplementedError(message);
    default: throw Error(message, code, native);
  }
}

void throw_nothing_made(const char* what, const char* driver_name) {
  throw Error(std::string(driver_name) + ": " + what +
                  " reported success but made nothing (null), which is an error of the driver; `anyaccel conformance` "
                  "checks it",
              AA_INTERNAL);
}

}  // namespace anyaccel
