// The runtime part of the simulated libSynapse.so of Habana: devices, memory, streams and events. Prototypes, numbers
// and rules are those of the published source of the library (HabanaAI/Intel_Gaudi3_Software, folder synapse); what it
// leaves open is named where it is decided here, and in simulators/README.md.
#include "simulators/habana/habana.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

namespace sim::habana {
namespace {

const char* text_of(queue_face::Result code) {
  static const std::map<queue_face::Result, const char*> texts = {
      {kSuccess, "Success"},
      {kInvalidArgument, "Invalid argument"},
      {kOutOfHostMemory, "Out of HOST memory (OOM)"},
      {kOutOfDeviceMemory, "Out of Device memory (OOM)"},
      {kObjectNotInitialized, "Unexpected module not initialized"},
      {kNoDeviceFound, "Device not found"},
      {kDeviceReset, "Device in reset"},
      {kUnsupported, "Unsupported operation"},
      {kDeviceAlreadyAcquired, "Device already acquired"},
      {kBusy, "Device is busy - operation not yet completed"},
      {kFail, "Generic failure"},
      {kUninitialized, "Synapse was not initialized"},
      {kAlreadyInitialized, "Synapse was re-initialized"},
      {kInvalidEventHandle, "Invalid event-handle"},
      {kMappingNotFound, "MMU Mapping for given address is missing"},
  };
  const auto found = texts.find(code);
  return found == texts.end() ? nullptr : found->second;
}

}  // namespace
}  // namespace sim::habana

namespace sim::queue_face {

const Vendor& vendor() {
  static const Vendor vendor = [] {
    using namespace habana;  // NOLINT: the numbers
    Vendor v{};
    Codes& c = v.codes;
    c.invalid_argument = c.invalid_handle = c.invalid_device = c.bad_direction = c.timing = kInvalidArgument;
    c.already_registered = kInvalidArgument;
    c.not_initialized = kUninitialized;
    c.no_device = kNoDeviceFound;
    c.no_context = kFail;
    c.wrong_context = kInvalidArgument;
    c.not_supported = kUnsupported;
    c.out_of_memory = kOutOfDeviceMemory;
    c.not_ready = kBusy;
    c.unrecorded = kObjectNotInitialized;
    c.not_mapped = kMappingNotFound;
    c.stub = c.unknown = kFail;
    // The driver resets the device of work that fails; which call says what first is not documented.
    c.device_lost = kDeviceReset;
    c.failed = c.bad_access = c.launch_failed = c.uncorrectable = kFail;
    v.error_scope = ErrorScope::device;
    v.must_start = v.must_set_device = v.one_device = v.no_default_stream = true;
    v.pageable = Pageable::refused;
    v.text = [](Result code) { return std::string(text_of(code) == nullptr ? "unknown status" : text_of(code)); };
    return v;
  }();
  return vendor;
}

}  // namespace sim::queue_face

namespace sim::habana {

using namespace queue_face;  // NOLINT: the functions below are a layer over it

namespace {

// Modules that other processes have acquired are known by locks on files, "module-N", in the folder that
// SIM_HABANA_MACHINE names: processes with the same folder share a machine. Without it each has one of its own. The
// system gives the locks of a process back when it ends, however that happens, and no child inherits them.
class ModuleLock {
 public:
  bool take(int module) {
    const char* folder = std::getenv("SIM_HABANA_MACHINE");
    if (folder == nullptr || *folder == '\0') return true;
    const std::string path = std::string(folder) + "/module-" + std::to_string(module);
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) {
      std::fprintf(stderr, "SIM_HABANA_MACHINE: %s cannot be opened: is the folder there, and writable?\n",
                   path.c_str());
      std::abort();
    }
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    if (::fcntl(file, F_SETLK, &lock) != 0) {
      ::close(file);
      return false;
    }
    file_ = file;
    return true;
  }
  void give_back() {
    if (file_ >= 0) ::close(file_);
    file_ = -1;
  }

 private:
  int file_ = -1;
};
// The state of the device that the process has acquired; `acquiring` guards it.
ModuleLock module_lock;
std::mutex acquiring;

bool is_acquired() {
  const std::lock_guard lock(face_lock());
  return state().only != nullptr;
}

// `first` to `end`: the modules to try. The first that is free becomes the process's device.
Result acquire(std::uint32_t* id, int first, int end) {
  FACE_REQUIRE(id != nullptr, kInvalidArgument, "bad-argument", "the result is null");
  const std::lock_guard lock(acquiring);
  FACE_REQUIRE(!is_acquired(), kDeviceAlreadyAcquired, "bad-argument",
               "the process has acquired a device already, and can have but one");
  // As the library does when it fails.
  *id = ~std::uint32_t{0};
  if (settings().fault("busy") != nullptr) return kNoDeviceFound;
  for (int module = first; module < end; ++module) {
    if (!module_lock.take(module)) continue;
    if (const Result bad = set_device(module, true); bad != kSuccess) {
      module_lock.give_back();
      return bad;
    }
    *id = kDeviceId;
    return kSuccess;
  }
  return kNoDeviceFound;
}

Result check_id(std::uint32_t id) {
  FACE_REQUIRE(id == kDeviceId, kInvalidArgument, "bad-argument",
               "device " + std::to_string(id) + " is not the one that the process has acquired, which is 0");
  return kSuccess;
}

Result check_event(Handle event) {
  FACE_REQUIRE(event != nullptr, kInvalidEventHandle, "bad-handle", "the event is null");
  return get<EventObject>(event, "event") == nullptr ? Result{kInvalidEventHandle} : Result{kSuccess};
}

void* at(std::uint64_t address) { return reinterpret_cast<void*>(address); }

Result copy_text(char* to, std::size_t place, const std::string& text) {
  FACE_REQUIRE(to != nullptr && place > 0, kInvalidArgument, "bad-argument", "there is no place for the text");
  const std::size_t length = std::min(place - 1, text.size());
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
  return kSuccess;
}

// The properties that a device reports; the addresses of its memory are not those that a program gets from
// synDeviceMalloc.
struct Facts {
  std::uint64_t sram_bytes = 48 << 20, tpc_mask = 0xffffff, clock_mhz = 1650, alignment = 128, dimensions = 8;
};

// synDeviceAttribute
Result attribute(int which, int device, std::uint64_t* value) {
  const Facts facts;
  switch (which) {
    case 0:                               // where the SRAM begins
    case 1: *value = 0; return kSuccess;  // where the memory begins
    case 2: *value = facts.sram_bytes; return kSuccess;
    case 3: *value = settings().memory; return kSuccess;
    case 4: *value = settings().memory - engine().used(device); return kSuccess;
    case 5: *value = facts.tpc_mask; return kSuccess;
    case 6: *value = 1; return kSuccess;  // there is memory
    case 7: *value = kGaudi2; return kSuccess;
    case 8: *value = facts.clock_mhz; return kSuccess;
    case 11: *value = facts.alignment; return kSuccess;
    case 12: *value = facts.dimensions; return kSuccess;
    default:
      return refuse(kInvalidArgument, "bad-argument", "attribute " + std::to_string(which) + " is not simulated");
  }
}

Result attributes(std::uint64_t* values, const int* which, unsigned count, int device) {
  FACE_REQUIRE(values != nullptr && which != nullptr && count > 0, kInvalidArgument, "bad-argument",
               "there is nothing to ask for");
  for (unsigned i = 0; i < count; ++i) FACE_TRY(attribute(which[i], device, &values[i]));
  return kSuccess;
}

}  // namespace

// ---- the library, devices
// -----------------------------------------------------------------------------------------------------------

FACE_FUNCTION(synInitialize, Need::nothing, (), ()) {
  FACE_REQUIRE(!is_started(), kAlreadyInitialized, "bad-argument", "the library is initialized already");
  return start();
}

// A device that the process still has is released (it is not known whether the real library requires that to be done
// before).
FACE_FUNCTION(synDestroy, Need::started, (), ()) {
  const std::lock_guard lock(acquiring);
  Result bad = kSuccess;
  if (is_acquired()) {
    give_back_device(current_context(&bad)->device, true);
    module_lock.give_back();
  }
  return stop();
}

FACE_FUNCTION(synStatusGetBriefDescription, Need::nothing, (int status, char* text, std::size_t bytes),
              (status, text, bytes)) {
  if (text_of(status) == nullptr) return kFail;
  return copy_text(text, bytes, text_of(status));
}

FACE_FUNCTION(synDriverGetVersion, Need::started, (char* version, int bytes), (version, bytes)) {
  return copy_text(version, bytes > 0 ? static_cast<std::size_t>(bytes) : 0, "1.19.0-simulated");
}

FACE_FUNCTION(synDeviceGetCount, Need::started, (std::uint32_t * count), (count)) {
  FACE_REQUIRE(count != nullptr, kInvalidArgument, "bad-argument", "the result is null");
  *count = static_cast<std::uint32_t>(settings().devices);
  return kSuccess;
}

FACE_FUNCTION(synDeviceGetCountByDeviceType, Need::started, (std::uint32_t * count, int type), (count, type)) {
  FACE_REQUIRE(count != nullptr, kInvalidArgument, "bad-argument", "the result is null");
  *count = type == kGaudi2 ? static_cast<std::uint32_t>(settings().devices) : 0;
  return kSuccess;
}

// `size`: the place there is, and how many there are.
FACE_FUNCTION(synDeviceGetModuleIDs, Need::started, (std::uint32_t * modules, std::uint32_t* size), (modules, size)) {
  FACE_REQUIRE(modules != nullptr && size != nullptr && *size > 0, kInvalidArgument, "bad-argument",
               "there is no place for the modules");
  const auto count = static_cast<std::uint32_t>(settings().devices);
  FACE_REQUIRE(*size >= count, kInvalidArgument, "bad-argument",
               "place for " + std::to_string(*size) + " modules, of which there are " + std::to_string(count));
  for (std::uint32_t i = 0; i < count; ++i) modules[i] = i;
  *size = count;
  return kSuccess;
}

// One that another process has cannot be opened, which the library does not tell from one that is not there.
FACE_FUNCTION(synDeviceAcquireByModuleId, Need::started, (std::uint32_t * id, std::uint32_t module), (id, module)) {
  const auto count = static_cast<std::uint32_t>(settings().devices);
  const int first = module < count ? static_cast<int>(module) : 0;
  return acquire(id, first, module < count ? first + 1 : first);
}

FACE_FUNCTION(synDeviceAcquireByDeviceType, Need::started, (std::uint32_t * id, int type), (id, type)) {
  return acquire(id, 0, type == kGaudi2 ? settings().devices : 0);
}

// Waits for the device's work.
FACE_FUNCTION(synDeviceRelease, Need::started, (std::uint32_t id), (id)) {
  FACE_TRY(check_id(id));
  const std::lock_guard lock(acquiring);
  FACE_REQUIRE(is_acquired(), kNoDeviceFound, "bad-argument", "the process has acquired no device");
  Result bad = kSuccess;
  FACE_TRY(give_back_device(current_context(&bad)->device, true));
  module_lock.give_back();
  return kSuccess;
}

FACE_FUNCTION(synDeviceGetName, Need::context, (char* name, int bytes, std::uint32_t id), (name, bytes, id)) {
  FACE_TRY(check_id(id));
  return copy_text(name, bytes > 0 ? static_cast<std::size_t>(bytes) : 0, "GAUDI2");
}

// struct synDeviceInfoV2
struct DeviceInfo {
  std::uint64_t sram_base, memory_base;
  std::uint32_t sram_bytes;
  std::uint64_t memory_bytes, tpc_mask;
  std::uint8_t has_memory;
  std::uint32_t device, file;
  int type;
  std::uint8_t index;
  std::uint64_t reserved;
};
FACE_FUNCTION(synDeviceGetInfoV2, Need::context, (std::uint32_t id, DeviceInfo* info), (id, info)) {
  FACE_TRY(check_id(id));
  FACE_REQUIRE(info != nullptr, kInvalidArgument, "bad-argument", "the result is null");
  const Facts facts;
  *info = DeviceInfo{};
  info->sram_bytes = static_cast<std::uint32_t>(facts.sram_bytes);
  info->memory_bytes = settings().memory;
  info->tpc_mask = facts.tpc_mask;
  info->has_memory = 1;
  info->type = kGaudi2;
  info->index = static_cast<std::uint8_t>(thread_state().context->device);
  return kSuccess;
}

FACE_FUNCTION(synDeviceGetAttribute, Need::context,
              (std::uint64_t * values, const int* which, unsigned count, std::uint32_t id),
              (values, which, count, id)) {
  FACE_TRY(check_id(id));
  return attributes(values, which, count, thread_state().context->device);
}

// Also of modules that are not acquired.
FACE_FUNCTION(synDeviceGetAttributeByModuleId, Need::started,
              (std::uint64_t * values, const int* which, unsigned count, std::uint32_t module),
              (values, which, count, module)) {
  FACE_REQUIRE(module < static_cast<std::uint32_t>(settings().devices), kInvalidArgument, "bad-argument",
               "there is no module " + std::to_string(module));
  return attributes(values, which, count, static_cast<int>(module));
}

FACE_FUNCTION(synDeviceGetMemoryInfo, Need::healthy, (std::uint32_t id, std::uint64_t* free, std::uint64_t* total),
              (id, free, total)) {
  FACE_TRY(check_id(id));
  return memory_info(free, total);
}

FACE_FUNCTION(synDeviceSynchronize, Need::healthy, (std::uint32_t id), (id)) {
  FACE_TRY(check_id(id));
  return synchronize_device();
}

// ---- memory
// ------------------------------------------------------------------------------------------------------------

// 0 bytes are address 0, which may be freed.
FACE_FUNCTION(synDeviceMalloc, Need::healthy,
              (std::uint32_t id, std::uint64_t bytes, std::uint64_t wanted, std::uint32_t flags,
               std::uint64_t* address),
              (id, bytes, wanted, flags, address)) {
  FACE_TRY(check_id(id));
  FACE_REQUIRE(address != nullptr && flags == 0, kInvalidArgument, "bad-argument",
               "the result is null, or the flags are not 0");
  FACE_REQUIRE(wanted == 0, kUnsupported, "bad-argument", "memory at an address of one's choice is not simulated");
  *address = 0;
  if (bytes == 0) return kSuccess;
  void* pointer = nullptr;
  FACE_TRY(allocate(MemoryKind::device, &pointer, bytes, Facts().alignment));
  *address = reinterpret_cast<std::uint64_t>(pointer);
  return kSuccess;
}

FACE_FUNCTION(synDeviceFree, Need::context, (std::uint32_t id, std::uint64_t address, std::uint32_t flags),
              (id, address, flags)) {
  FACE_TRY(check_id(id));
  FACE_REQUIRE(flags == 0, kInvalidArgument, "bad-argument", "the flags are not 0");
  return address == 0 ? Result{kSuccess} : release(MemoryKind::device, at(address));
}

FACE_FUNCTION(synHostMalloc, Need::healthy,
              (std::uint32_t id, std::uint64_t bytes, std::uint32_t flags, void** pointer),
              (id, bytes, flags, pointer)) {
  FACE_TRY(check_id(id));
  FACE_REQUIRE(pointer != nullptr && flags == 0, kInvalidArgument, "bad-argument",
               "the result is null, or the flags are not 0");
  *pointer = nullptr;
  if (bytes == 0) return kSuccess;
  const Result result = allocate(MemoryKind::host, pointer, bytes, Facts().alignment);
  return result == kOutOfDeviceMemory ? Result{kOutOfHostMemory} : result;
}

FACE_FUNCTION(synHostFree, Need::context, (std::uint32_t id, const void* pointer, std::uint32_t flags),
              (id, pointer, flags)) {
  FACE_TRY(check_id(id));
  FACE_REQUIRE(flags == 0, kInvalidArgument, "bad-argument", "the flags are not 0");
  return pointer == nullptr ? Result{kSuccess} : release(MemoryKind::host, const_cast<void*>(pointer));
}

// Memory that is mapped already stays as it is.
FACE_FUNCTION(synHostMap, Need::healthy, (std::uint32_t id, std::uint64_t bytes, const void* pointer),
              (id, bytes, pointer)) {
  FACE_TRY(check_id(id));
  const auto known = engine().memory().find(pointer);
  const auto* p = static_cast<const char*>(pointer);
  if (known != nullptr && !known->freed && known->kind == MemoryKind::host && p >= known->pointer &&
      bytes <= static_cast<std::size_t>(known->pointer + known->size - p)) {
    return kSuccess;
  }
  return register_host(const_cast<void*>(pointer), bytes);
}

// An address that is not the beginning of a mapping is ignored: that is no error.
FACE_FUNCTION(synHostUnmap, Need::context, (std::uint32_t id, const void* pointer), (id, pointer)) {
  FACE_TRY(check_id(id));
  const auto known = engine().memory().find(pointer);
  FACE_REQUIRE(known == nullptr || known->registered, kInvalidArgument, "bad-pointer",
               "memory of synHostMalloc is unmapped by synHostFree");
  return unregister_host(const_cast<void*>(pointer));
}

// The source comes before the size, and that before the destination.
FACE_FUNCTION(synMemCopyAsync, Need::healthy,
              (Handle stream, std::uint64_t from, std::uint64_t bytes, std::uint64_t to, int direction),
              (stream, from, bytes, to, direction)) {
  if (bytes == 0) return kSuccess;
  switch (direction) {
    case 0: return copy_async(at(to), at(from), bytes, Direction::host_to_device, stream);
    case 1: return copy_async(at(to), at(from), bytes, Direction::device_to_host, stream);
    case 2: return copy_async(at(to), at(from), bytes, Direction::device_to_device, stream);
    default: return refuse(kInvalidArgument, "bad-argument", "unknown direction " + std::to_string(direction));
  }
}

namespace {

Result fill(std::uint64_t to, std::uint32_t value, std::size_t width, std::size_t count, Handle stream) {
  FACE_REQUIRE(to % width == 0, kInvalidArgument, "bad-argument",
               "the address is not aligned to the elements' " + std::to_string(width) + " bytes");
  return count == 0 ? Result{kSuccess} : fill_elements_async(at(to), value, width, count, stream);
}

}  // namespace

FACE_FUNCTION(synMemsetD8Async, Need::healthy,
              (std::uint64_t to, unsigned char value, std::size_t count, Handle stream), (to, value, count, stream)) {
  return fill(to, value, 1, count, stream);
}

FACE_FUNCTION(synMemsetD16Async, Need::healthy,
              (std::uint64_t to, std::uint16_t value, std::size_t count, Handle stream), (to, value, count, stream)) {
  return fill(to, value, 2, count, stream);
}

FACE_FUNCTION(synMemsetD32Async, Need::healthy,
              (std::uint64_t to, std::uint32_t value, std::size_t count, Handle stream), (to, value, count, stream)) {
  return fill(to, value, 4, count, stream);
}

// ---- streams
// -----------------------------------------------------------------------------------------------------------

FACE_FUNCTION(synStreamCreateGeneric, Need::healthy, (Handle * stream, std::uint32_t id, std::uint32_t flags),
              (stream, id, flags)) {
  FACE_TRY(check_id(id));
  FACE_REQUIRE(flags == 0, kInvalidArgument, "bad-argument", "the flags are not 0");
  return create_stream(stream);
}

FACE_FUNCTION(synStreamDestroy, Need::context, (Handle stream), (stream)) {
  return destroy_stream(stream, Ending::goes_on);
}

FACE_FUNCTION(synStreamSynchronize, Need::healthy, (Handle stream), (stream)) {
  return wait_for_stream(stream, kForever);
}

FACE_FUNCTION(synStreamQuery, Need::healthy, (Handle stream), (stream)) { return wait_for_stream(stream, 0); }

FACE_FUNCTION(synStreamWaitEvent, Need::healthy, (Handle stream, Handle event, std::uint32_t flags),
              (stream, event, flags)) {
  FACE_REQUIRE(flags == 0, kInvalidArgument, "bad-argument", "the flags are not 0");
  FACE_TRY(check_event(event));
  return stream_wait_event(stream, event);
}

// ---- events
// -----------------------------------------------------------------------------------------------------------

FACE_FUNCTION(synEventCreate, Need::healthy, (Handle * event, std::uint32_t id, std::uint32_t flags),
              (event, id, flags)) {
  FACE_TRY(check_id(id));
  FACE_REQUIRE(flags <= 1, kInvalidArgument, "bad-argument", "the flags are neither 0 nor EVENT_COLLECT_TIME");
  return create_event(event, {flags == 1, true, true});
}

FACE_FUNCTION(synEventDestroy, Need::context, (Handle event), (event)) {
  FACE_TRY(check_event(event));
  return destroy_event(event);
}

FACE_FUNCTION(synEventRecord, Need::healthy, (Handle event, Handle stream), (event, stream)) {
  FACE_TRY(check_event(event));
  return record_event(event, stream);
}

// According to the header an event that was never recorded is complete, but the source returns errors that differ
// between generations of devices: here it is a violation.
FACE_FUNCTION(synEventQuery, Need::healthy, (Handle event), (event)) {
  FACE_TRY(check_event(event));
  return wait_for_event(event, 0);
}

FACE_FUNCTION(synEventSynchronize, Need::healthy, (Handle event), (event)) {
  FACE_TRY(check_event(event));
  return wait_for_event(event, kForever);
}

// With no second event, the real one gives the time of the first, which nothing compares with: not simulated.
FACE_FUNCTION(synEventElapsedTime, Need::healthy, (std::uint64_t * nanoseconds, Handle start, Handle end),
              (nanoseconds, start, end)) {
  FACE_TRY(check_event(start));
  FACE_TRY(check_event(end));
  return elapsed_nanoseconds(nanoseconds, start, end);
}

}  // namespace sim::habana

extern "C" __attribute__((visibility("default"))) int syn_is_simulator() { return 1; }
