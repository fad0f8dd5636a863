// Implements the common part of every function, cuInit, versions, errors, and the look-up of functions.
#include "simulators/cuda/cuda_face.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace sim::cuda {
namespace {

std::mutex state_mutex;
std::atomic<State*> the_state = nullptr;
std::atomic<bool> started = false;
std::atomic<bool> forked = false;  // a child of a process that had started the driver
std::atomic<bool> ending = false;
pid_t reporting_process = 0;

thread_local const char* running = "";
thread_local int callbacks = 0;

void report_at_exit() {
  ending = true;
  if (::getpid() != reporting_process || the_state == nullptr) return;
  // A program need not give anything back on a device that is dead.
  for (const auto& object : engine().handles().all()) {
    const Context* owner = owner_of(*object);
    if (owner != nullptr && sticky_error(owner->device) != kSuccess) engine().handles().forgive(*object);
  }
  engine().write_report();
}

// A child of a process that had not started the driver may do so itself; it gets memory of its own then.
void in_child() {
  if (started) {
    forked = true;
  } else {
    the_state = nullptr;
  }
}

}  // namespace

const Settings& settings() {
  static const Settings* const settings = new Settings(Settings::from_environment());
  return *settings;
}

State::State()
    : engine(settings(), ErrorScope::device),
      version(driver_version()),
      arch(architecture()),
      visible(visible_devices(settings().devices)),
      primary(static_cast<std::size_t>(settings().devices)) {
  engine.restrict_peers();
  for (Entry* entry : entries()) {
    entry->fault = nullptr;
    if (entry->legacy) continue;
    entry->calls = &engine.report().calls(entry->symbol);
    for (const Fault& fault : settings().faults) {
      if (fault.name == "fail" && (fault.words[0] == entry->symbol || fault.words[0] == entry->base)) {
        entry->fault = &fault;
      }
    }
  }
}

// Never destroyed: workers may still run when the process ends.
State& state() {
  if (State* known = the_state.load(std::memory_order_acquire)) return *known;
  const std::lock_guard lock(state_mutex);
  if (the_state == nullptr) {
    static const bool registered = [] {
      std::atexit(report_at_exit);
      ::pthread_atfork(nullptr, nullptr, in_child);
      return true;
    }();
    static_cast<void>(registered);
    reporting_process = ::getpid();
    the_state.store(new State, std::memory_order_release);
  }
  return *the_state;
}

std::mutex& face_lock() {
  static auto* lock = new std::mutex;
  return *lock;
}

Result refuse(Result code, const char* kind, const std::string& what) {
  engine().report().violation(kind, std::string(running) + ": " + what);
  return code;
}

const char* current_function() { return running; }

Result result_of(Status status) {
  switch (status) {
    case Status::ok: return kSuccess;
    case Status::not_ready: return kNotReady;
    case Status::out_of_memory: return kOutOfMemory;
    case Status::refused: return kInvalidValue;
    case Status::failed:
    case Status::bad_access: return kIllegalAddress;
    case Status::device_lost:
    case Status::launch_failed: return kLaunchFailed;
    case Status::uncorrectable: return kEccUncorrectable;
  }
  return kUnknown;
}

Result sticky_error(int device) { return result_of(engine().device_status(device)); }

int ordinal_of(int device) {
  const auto& visible = state().visible;
  const auto found = std::find(visible.begin(), visible.end(), device);
  return found == visible.end() ? -1 : static_cast<int>(found - visible.begin());
}

int device_of(Ordinal ordinal) {
  const auto& visible = state().visible;
  return ordinal >= 0 && static_cast<std::size_t>(ordinal) < visible.size() ? visible[static_cast<std::size_t>(ordinal)]
                                                                            : -1;
}

CallbackScope::CallbackScope() { ++callbacks; }
CallbackScope::~CallbackScope() { --callbacks; }

// ---- entries
// -----------------------------------------------------------------------------------------------------------

std::vector<Entry*>& entries() {
  static auto* all = new std::vector<Entry*>;
  return *all;
}

Entry::Entry(const char* symbol_name, const char* base_name, int version, void* function, bool is_legacy)
    : symbol(symbol_name), base(base_name), since(version), address(function), legacy(is_legacy) {
  entries().push_back(this);
}

bool Entry::available() const {
  return since <= driver_version() && !settings().hidden(symbol) && !settings().hidden(base);
}

Call::Call(Entry& entry, Need need) : outer_(running), need_(need) {
  running = entry.symbol;
  refused_ = begin(entry);
}

Call::~Call() { running = outer_; }

Result Call::begin(Entry& entry) {
  if (forked) return need_ == Need::nothing ? kSuccess : kNotInitialized;
  if (ending) return kDeinitialized;
  state();
  if (entry.calls != nullptr) {
    const std::uint64_t number = ++*entry.calls;
    if (entry.fault != nullptr && *entry.fault->call == number) return kUnknown;
  }
  if (settings().fault("stub") != nullptr) return kStubLibrary;
  if (need_ == Need::nothing) return kSuccess;
  if (callbacks > 0) return refuse(kNotPermitted, "callback", "a host function calls the driver");
  if (!started) return refuse(kNotInitialized, "not-initialized", "cuInit was not called");
  if (need_ == Need::started) return kSuccess;
  const auto context = current_context();
  if (context == nullptr) return refuse(kInvalidContext, "no-context", "the thread has no current context");
  if (context->destroyed) return refuse(kContextIsDestroyed, "no-context", "the thread's context was destroyed");
  return need_ == Need::healthy ? sticky_error(context->device) : kSuccess;
}

Result Call::end(Result result) const {
  if (result != kSuccess || need_ != Need::healthy_at_end) return result;
  const auto context = current_context();
  return context == nullptr ? result : sticky_error(context->device);
}

// ---- functions
// ---------------------------------------------------------------------------------------------------------

namespace {

struct ErrorText {
  Result code;
  const char *name, *text;
};
constexpr ErrorText kErrors[] = {
    {kSuccess, "CUDA_SUCCESS", "no error"},
    {kInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {kDeinitialized, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {kStubLibrary, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"},
    {kDeviceUnavailable, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {kNoDevice, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {kInvalidImage, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {kNoBinaryForGpu, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {kEccUncorrectable, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {kPeerAccessUnsupported, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
     "peer access is not supported between these two devices"},
    {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {kIllegalState, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {kNotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {kNotReady, "CUDA_ERROR_NOT_READY", "device not ready"},
    {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {kPeerAccessAlreadyEnabled, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
    {kPeerAccessNotEnabled, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled"},
    {kContextIsDestroyed, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {kHostMemoryAlreadyRegistered, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part or all of the requested memory range is already mapped"},
    {kHostMemoryNotRegistered, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
     "pointer does not correspond to a registered memory region"},
    {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {kCooperativeLaunchTooLarge, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "too many blocks in cooperative launch"},
    {kNotPermitted, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {kNotSupported, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {kCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {kCaptureInvalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {kCaptureMerge, "CUDA_ERROR_STREAM_CAPTURE_MERGE",
     "operation would result in a merge of separate capture sequences"},
    {kCaptureUnmatched, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "capture was not ended in the same stream as it began"},
    {kCaptureUnjoined, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {kCaptureIsolation, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {kCaptureImplicit, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {kCapturedEvent, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
    {kCaptureWrongThread, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {kUnknown, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

const ErrorText* error_text(Result code) {
  const auto* found =
      std::find_if(std::begin(kErrors), std::end(kErrors), [&](const ErrorText& e) { return e.code == code; });
  return found == std::end(kErrors) ? nullptr : found;
}

// The newest form of a function that `version` has.
QueryResult look_up(const char* symbol, int version, void** function) {
  *function = nullptr;
  bool known = false;
  const Entry* best = nullptr;
  for (const Entry* entry : entries()) {
    if (std::strcmp(entry->base, symbol) != 0) continue;
    if (!entry->available()) continue;
    known = true;
    if (entry->since <= version && (best == nullptr || entry->since > best->since)) best = entry;
  }
  if (best == nullptr) return known ? kVersionNotSufficient : kSymbolNotFound;
  *function = best->address;
  return kFound;
}

Result get_address(const char* symbol, void** function, int version, std::uint64_t flags, QueryResult* status) {
  CUDA_REQUIRE(symbol != nullptr && function != nullptr, kInvalidValue, "bad-argument", "a pointer is null");
  CUDA_REQUIRE(flags <= 2, kInvalidValue, "bad-argument", "unknown flags");
  *function = nullptr;
  // The per-thread default stream has its handle; forms of the functions that use it for stream 0 are not there.
  if ((flags & kPerThreadStreamFunctions) != 0) return kNotSupported;
  if (version > state().version) return kInvalidValue;
  *status = look_up(symbol, version, function);
  return kSuccess;
}

}  // namespace

CUDA_FUNCTION(cuInit, "cuInit", 2000, Need::nothing, (unsigned flags), (flags)) {
  if (forked) return kNotInitialized;
  CUDA_REQUIRE(flags == 0, kInvalidValue, "bad-argument", "the flags must be 0");
  if (callbacks > 0) return refuse(kNotPermitted, "callback", "a host function calls the driver");
  if (settings().fault("init") != nullptr) return kUnknown;
  if (state().visible.empty()) return kNoDevice;
  reporting_process = ::getpid();
  started = true;
  return kSuccess;
}

CUDA_FUNCTION(cuDriverGetVersion, "cuDriverGetVersion", 2020, Need::nothing, (int* version), (version)) {
  CUDA_REQUIRE(version != nullptr, kInvalidValue, "bad-argument", "the result is null");
  *version = driver_version();
  return kSuccess;
}

// Tables that NVIDIA's own libraries look up and that are not documented. NVRTC 13 keeps its cache of compiled programs
// through one, does without the cache when there is no such table, and takes the function itself for granted.
CUDA_FUNCTION(cuGetExportTable, "cuGetExportTable", 3000, Need::nothing, (const void** table, const void* id),
              (table, id)) {
  CUDA_REQUIRE(table != nullptr && id != nullptr, kInvalidValue, "bad-argument",
               "the result or the identifier is null");
  *table = nullptr;
  return kInvalidValue;
}

CUDA_FUNCTION(cuGetErrorName, "cuGetErrorName", 6000, Need::nothing, (Result code, const char** text), (code, text)) {
  const ErrorText* found = error_text(code);
  *text = found == nullptr ? nullptr : found->name;
  return found == nullptr ? kInvalidValue : kSuccess;
}

CUDA_FUNCTION(cuGetErrorString, "cuGetErrorString", 6000, Need::nothing, (Result code, const char** text),
              (code, text)) {
  const ErrorText* found = error_text(code);
  *text = found == nullptr ? nullptr : found->text;
  return found == nullptr ? kInvalidValue : kSuccess;
}

CUDA_FUNCTION(cuGetProcAddress, "cuGetProcAddress", 11030, Need::nothing,
              (const char* symbol, void** function, int version, std::uint64_t flags),
              (symbol, function, version, flags)) {
  QueryResult status = kFound;
  CUDA_TRY(get_address(symbol, function, version, flags, &status));
  return status == kFound ? kSuccess : kNotFound;
}

CUDA_FUNCTION(cuGetProcAddress_v2, "cuGetProcAddress", 12000, Need::nothing,
              (const char* symbol, void** function, int version, std::uint64_t flags, int* result),
              (symbol, function, version, flags, result)) {
  QueryResult status = kFound;
  CUDA_TRY(get_address(symbol, function, version, flags, &status));
  if (result != nullptr) *result = status;
  return kSuccess;
}

CUDA_LEGACY_FUNCTION(cuDeviceTotalMem, 2000)
CUDA_LEGACY_FUNCTION(cuMemGetInfo, 2000)
CUDA_LEGACY_FUNCTION(cuMemAlloc, 2000)
CUDA_LEGACY_FUNCTION(cuMemFree, 2000)
CUDA_LEGACY_FUNCTION(cuMemcpyHtoDAsync, 2000)
CUDA_LEGACY_FUNCTION(cuMemcpyDtoHAsync, 2000)
CUDA_LEGACY_FUNCTION(cuMemcpyDtoDAsync, 2000)
CUDA_LEGACY_FUNCTION(cuMemHostRegister, 4000)
CUDA_LEGACY_FUNCTION(cuStreamDestroy, 2000)
CUDA_LEGACY_FUNCTION(cuEventDestroy, 2000)
CUDA_LEGACY_FUNCTION(cuStreamBeginCapture, 10000)
CUDA_LEGACY_FUNCTION(cuDevicePrimaryCtxRelease, 7000)
CUDA_LEGACY_FUNCTION(cuCtxPushCurrent, 2000)
CUDA_LEGACY_FUNCTION(cuCtxPopCurrent, 2000)

}  // namespace sim::cuda
