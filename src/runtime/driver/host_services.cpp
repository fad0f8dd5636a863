// Status objects, and the services that drivers get from the host.
#include "runtime/driver/host_services.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>

#include "anyaccel/abi/driver_class.hpp"
#include "anyaccel/error.h"
#include "anyaccel/log.h"

// One block of memory: this head, then the text and its zero.
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

aa_status* status_create(int32_t code, int64_t native_code, const char* message, size_t length) noexcept {
  if (!message) length = 0;
  if (length > max_message) length = max_message;
  void* block = std::malloc(sizeof(aa_status) + length + 1);
  if (!block) return &out_of_memory_status;
  char* text = static_cast<char*>(block) + sizeof(aa_status);
  if (length > 0) std::memcpy(text, message, length);
  text[length] = '\0';
  // AA_OK and numbers this host does not know are errors all the same: the driver made a status.
  const int32_t known = code > AA_OK && code < code_count ? code : AA_UNKNOWN;
  live_statuses.fetch_add(1, std::memory_order_relaxed);
  return new (block) aa_status{native_code, known, text};
}

void status_release(aa_status* status) noexcept {
  if (!status || status == &out_of_memory_status) return;
  live_statuses.fetch_sub(1, std::memory_order_relaxed);
  std::free(status);
}

int32_t status_code(const aa_status* status) noexcept { return status ? status->code : static_cast<int32_t>(AA_OK); }
int64_t status_native_code(const aa_status* status) noexcept { return status ? status->native_code : 0; }
const char* status_message(const aa_status* status) noexcept { return status ? status->message : ""; }

void host_log(int32_t level, const char* message, size_t length) noexcept {
  if (!message) return;
  const auto known = level < AA_LOG_DEBUG ? AA_LOG_DEBUG : level > AA_LOG_ERROR ? AA_LOG_ERROR : level;
  log(static_cast<LogLevel>(known), {message, length});
}

constexpr aa_host services = {
    .struct_size = sizeof(aa_host),
    .abi_version = AA_ABI_CURRENT,
    .status_create = status_create,
    .status_release = status_release,
    .status_code = status_code,
    .status_native_code = status_native_code,
    .status_message = status_message,
    .log = host_log,
};

}  // namespace

const aa_host* host_services() noexcept { return &services; }

int64_t live_status_count() noexcept { return live_statuses.load(std::memory_order_relaxed); }

aa_status* make_status(aa_code code, std::string_view message, int64_t native_code) noexcept {
  return status_create(code, native_code, message.data(), message.size());
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

aa_code StatusRef::code() const noexcept { return static_cast<aa_code>(status_code(status_)); }
int64_t StatusRef::native_code() const noexcept { return status_native_code(status_); }
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

}  // namespace anyaccel
