// Simulates NVIDIA's library for transfers between disks and device memory (libcufile.so.0), as version 1.14. Files are
// read and written through the page cache, and device memory on a stream of the library's own, so that a transfer which
// does not wait for earlier work on its memory is a race. In brackets the certainty, as in simulators/README.md: H is
// the vendor's header (cufile.h of 1.14.1).
//
//  - The first call opens the driver (H); a driver opened twice is closed twice (L).
//  - The mode follows the real library's variables: with CUFILE_USE_PCIP2PDMA=true, or nvidia-fs loaded, transfers are
//    direct; else, and with CUFILE_FORCE_COMPAT_MODE=true, in compatibility mode, and with CUFILE_ALLOW_COMPAT_MODE=false
//    the driver does not open (5001; H, and seen with the real library without a GPU).
//  - A descriptor is registered once (5028; H), of a regular file (5018; H), opened with O_DIRECT (5019; H) unless in
//    compatibility mode (M), and stays open and the same file while it is registered.
//  - Memory of a device is registered once (5023; H for the same address, L for parts), in bounds (5014; L), unregistered
//    by its first address (5022; H) and before it is freed (M).
//  - Transfers need a current context, that of the memory (5015; M). They name the first address of registered memory and
//    an offset in its bounds (5017; H); other addresses go through buffers of the library (H). They return bytes, -1 with
//    errno, or the negative of an error (H); reading at the end of the file returns 0 (H).
//  - Not there: batches, streams, host memory, settings other than the variables above.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <vector>

#include "simulators/libraries/library.h"

namespace sim_library {

enum Error : int {
  kSuccess = 0,
  kDriverNotInitialized = 5001,
  kIoNotSupported = 5008,
  kCudaDriverError = 5011,
  kPointerInvalid = 5012,
  kPointerRange = 5014,
  kContextMismatch = 5015,
  kMappingRange = 5017,
  kFileType = 5018,
  kFileOpenFlag = 5019,
  kInvalidValue = 5022,
  kAlreadyRegistered = 5023,
  kHandleNotRegistered = 5027,
  kHandleAlreadyRegistered = 5028,
  kInternalError = 5030,
  kPinningFailed = 5036,
};
struct CUfileError_t {
  int error;
  int cuda_error;
};
struct CUfileDescr_t {
  int type;
  union {
    int fd;
    void* handle;
  };
  const void* operations;
};
struct CUfileDrvProps_t {
  struct {
    unsigned major_version, minor_version;
    std::size_t poll_threshold, max_direct_io;
    unsigned status_flags, control_flags;
  } nvfs;
  unsigned feature_flags, max_device_cache, per_buffer_cache, max_device_pinned, max_batch, max_batch_timeout;
};
using CUfileHandle_t = void*;

namespace {

constexpr unsigned kP2pStatus = 1u << 11;
constexpr int kVersion = 1140;

// An open file behind a handle. The descriptor of its own goes through the page cache.
struct Registered {
  int fd = -1, own = -1;
  dev_t device = 0;
  ino_t inode = 0;
  std::atomic<int> transfers = 0;
  ~Registered() {
    if (own >= 0) ::close(own);
  }
  // Returns whether the descriptor is still this file's.
  bool is_open() const {
    struct stat now {};
    return ::fstat(fd, &now) == 0 && now.st_dev == device && now.st_ino == inode;
  }
};
Handles<Registered>& files() {
  static auto* handles = new Handles<Registered>("cuFile handle");
  return *handles;
}

struct Buffer {
  std::size_t bytes;
  std::uint64_t object;  // of the report
};
std::mutex mutex;  // guards the following
std::map<int, void*> handles;
std::map<std::uint64_t, Buffer> buffers;
long users = 0;

bool is_true(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && (std::string(value) == "true" || std::string(value) == "1");
}
bool has_module() { return ::access("/proc/driver/nvidia-fs/version", F_OK) == 0; }
bool is_compatible_mode() {
  return is_true("CUFILE_FORCE_COMPAT_MODE") || !(has_module() || is_true("CUFILE_USE_PCIP2PDMA"));
}

template <typename... Args>
int cu(const char* name, Args... args) {
  static void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  auto* function = reinterpret_cast<int (*)(Args...)>(::dlsym(library, name));
  return function == nullptr ? 500 : function(args...);
}

int refuse(const char* function, int error, const char* kind, const std::string& what) {
  violation(kind, std::string(function) + ": " + what);
  return error;
}

// Every function but those of the driver's own calls this first.
int open_implicitly() {
  if (driver() == nullptr) return kDriverNotInitialized;
  const char* allowed = std::getenv("CUFILE_ALLOW_COMPAT_MODE");
  if (is_compatible_mode() && allowed != nullptr && std::string(allowed) == "false") return kDriverNotInitialized;
  const std::lock_guard lock(mutex);
  if (users == 0) users = 1;
  return kSuccess;
}

// Checks that [base + offset, ... + bytes) is memory of the device whose context is current.
int check_memory(const char* function, std::uint64_t base, std::size_t bytes, off_t offset) {
  int current = -1, device = -1;
  std::size_t rest = 0;
  if (driver()->current_device(&current) != 0) {
    return refuse(function, kContextMismatch, "no-context", "the thread has no current context");
  }
  if (driver()->pointer(base, &device, &rest) != 0) {
    return refuse(function, kPointerInvalid, "bad-pointer", "the address is in no living memory of a device");
  }
  if (device != current && device != -1) {
    return refuse(function, kContextMismatch, "wrong-owner", "the memory is of another context");
  }
  if (offset < 0 || static_cast<std::size_t>(offset) > rest || bytes > rest - static_cast<std::size_t>(offset)) {
    return refuse(function, kPointerRange, "out-of-bounds", "the range ends behind its memory");
  }
  return kSuccess;
}

// Runs `body` on the bytes in the current context, on a stream that nothing else is ordered with, and waits.
template <typename Copy>
bool on_device(const char* function, std::uint64_t pointer, std::size_t bytes, bool write, Copy copy) {
  void* stream = nullptr;
  if (cu("cuStreamCreate", &stream, 1U) != 0) return false;
  const bool ran = driver()->enqueue(stream, function, {{pointer, bytes, write}}, [=](char* const* reached) {
    copy(reached[0]);
  }) == 0 && cu("cuStreamSynchronize", stream) == 0;
  return cu("cuStreamDestroy_v2", stream) == 0 && ran;
}

ssize_t transfer(const char* function, CUfileHandle_t handle, std::uint64_t base, std::size_t bytes, off_t file_offset,
                 off_t base_offset, bool write) {
  if (const int error = open_implicitly(); error != kSuccess) return -error;
  const auto file = files().get(handle, function);
  if (file == nullptr) return -kHandleNotRegistered;
  struct Active {
    Registered& file;
    explicit Active(Registered& of) : file(of) { ++file.transfers; }
    ~Active() { --file.transfers; }
  } const active(*file);
  if (!file->is_open()) {
    return -refuse(function, kInvalidValue, "bad-handle", "the descriptor was closed before its handle");
  }
  if (file_offset < 0) return -refuse(function, kInvalidValue, "bad-argument", "a negative offset in the file");
  if (bytes == 0) return -refuse(function, kInvalidValue, "bad-argument", "no bytes");
  {
    const std::lock_guard lock(mutex);
    const auto found = buffers.find(base);
    if (found != buffers.end() && (base_offset < 0 || static_cast<std::size_t>(base_offset) > found->second.bytes ||
                                   bytes > found->second.bytes - static_cast<std::size_t>(base_offset))) {
      return -refuse(function, kMappingRange, "out-of-bounds", "the range ends behind the registered memory");
    }
  }
  if (const int error = check_memory(function, base, bytes, base_offset); error != kSuccess) return -error;
  const std::uint64_t pointer = base + static_cast<std::uint64_t>(base_offset);
  const auto host = std::make_shared<std::vector<char>>(bytes);
  if (write) {
    if (!on_device(function, pointer, bytes, false, [=](char* at) { std::copy_n(at, bytes, host->data()); })) {
      return -kCudaDriverError;
    }
    return ::pwrite(file->own, host->data(), bytes, file_offset);
  }
  const ssize_t got = ::pread(file->own, host->data(), bytes, file_offset);
  if (got <= 0) return got;
  const auto read = static_cast<std::size_t>(got);
  if (!on_device(function, pointer, read, true, [=](char* at) { std::copy_n(host->data(), read, at); })) {
    return -kCudaDriverError;
  }
  return got;
}

}  // namespace

CUfileError_t cuFileGetVersion(int* version) {
  if (version == nullptr) return {kInvalidValue, 0};
  *version = kVersion;
  return {kSuccess, 0};
}

CUfileError_t cuFileDriverOpen() {
  if (const int error = open_implicitly(); error != kSuccess) return {error, 0};
  return {kSuccess, 0};
}

CUfileError_t cuFileDriverClose_v2() {
  const std::lock_guard lock(mutex);
  if (users == 0) return {kDriverNotInitialized, 0};
  if (!handles.empty() || !buffers.empty()) {
    violation("destroyed-in-use", "cuFileDriverClose: handles or memory are still registered");
  }
  --users;
  return {kSuccess, 0};
}

long cuFileUseCount() {
  const std::lock_guard lock(mutex);
  return users;
}

CUfileError_t cuFileDriverGetProperties(CUfileDrvProps_t* properties) {
  if (properties == nullptr) return {kInvalidValue, 0};
  if (const int error = open_implicitly(); error != kSuccess) return {error, 0};
  *properties = {};
  properties->nvfs.max_direct_io = 16384;
  properties->nvfs.control_flags = 1u << 1;
  if (!is_compatible_mode()) {
    if (has_module()) properties->nvfs.major_version = 2;
    if (is_true("CUFILE_USE_PCIP2PDMA")) properties->nvfs.status_flags = kP2pStatus;
  }
  return {kSuccess, 0};
}

CUfileError_t cuFileHandleRegister(CUfileHandle_t* out, CUfileDescr_t* description) {
  if (const int error = open_implicitly(); error != kSuccess) return {error, 0};
  if (out == nullptr || description == nullptr || description->type != 1) {
    return {refuse(__func__, kInvalidValue, "bad-argument", "no result, or no descriptor of Linux"), 0};
  }
  auto file = std::make_shared<Registered>();
  file->fd = description->fd;
  const int flags = ::fcntl(file->fd, F_GETFL);
  struct stat about {};
  if (flags < 0 || ::fstat(file->fd, &about) != 0) {
    return {refuse(__func__, kInvalidValue, "bad-argument", "the descriptor is not open"), 0};
  }
  if (!S_ISREG(about.st_mode)) return {kFileType, 0};
  if (!(flags & O_DIRECT) && !is_compatible_mode()) return {kFileOpenFlag, 0};
  const std::lock_guard lock(mutex);
  if (handles.contains(file->fd)) return {kHandleAlreadyRegistered, 0};
  file->device = about.st_dev;
  file->inode = about.st_ino;
  file->own = ::open(("/proc/self/fd/" + std::to_string(file->fd)).c_str(), (flags & O_ACCMODE) | O_CLOEXEC);
  if (file->own < 0) return {kIoNotSupported, 0};
  handles[file->fd] = *out = files().add(file);
  return {kSuccess, 0};
}

void cuFileHandleDeregister(CUfileHandle_t handle) {
  const auto file = files().get(handle, __func__);
  if (file == nullptr) return;
  if (file->transfers > 0) violation("destroyed-in-use", "cuFileHandleDeregister: transfers of the file are running");
  if (!file->is_open()) violation("bad-handle", "cuFileHandleDeregister: the descriptor was closed before");
  const std::lock_guard lock(mutex);
  handles.erase(file->fd);
  files().remove(handle);
}

CUfileError_t cuFileBufRegister(const void* pointer, std::size_t bytes, int flags) {
  if (const int error = open_implicitly(); error != kSuccess) return {error, 0};
  if (bytes == 0 || (flags & ~3) != 0) {
    return {refuse(__func__, kInvalidValue, "bad-argument", "no bytes, or unknown flags"), 0};
  }
  const auto base = reinterpret_cast<std::uint64_t>(pointer);
  if (const int error = check_memory(__func__, base, bytes, 0); error != kSuccess) return {error, 0};
  const std::lock_guard lock(mutex);
  const auto after = buffers.lower_bound(base + bytes);
  if (after != buffers.begin() && std::prev(after)->first + std::prev(after)->second.bytes > base) {
    return {kAlreadyRegistered, 0};
  }
  buffers[base] = {bytes, driver()->add_object("memory registered with cuFile")};
  return {kSuccess, 0};
}

CUfileError_t cuFileBufDeregister(const void* pointer) {
  const auto base = reinterpret_cast<std::uint64_t>(pointer);
  const std::lock_guard lock(mutex);
  const auto found = buffers.find(base);
  if (found == buffers.end()) {
    return {refuse(__func__, kInvalidValue, "bad-pointer", "no memory is registered at the address"), 0};
  }
  int device = -1;
  std::size_t rest = 0;
  if (driver()->pointer(base, &device, &rest) != 0 || rest < found->second.bytes) {
    violation("free-while-in-use", "cuFileBufDeregister: the memory was freed before");
  }
  driver()->remove_object(found->second.object);
  buffers.erase(found);
  return {kSuccess, 0};
}

ssize_t cuFileRead(CUfileHandle_t handle, void* base, std::size_t bytes, off_t file_offset, off_t base_offset) {
  return transfer(__func__, handle, reinterpret_cast<std::uint64_t>(base), bytes, file_offset, base_offset, false);
}

ssize_t cuFileWrite(CUfileHandle_t handle, const void* base, std::size_t bytes, off_t file_offset, off_t base_offset) {
  return transfer(__func__, handle, reinterpret_cast<std::uint64_t>(base), bytes, file_offset, base_offset, true);
}

}  // namespace sim_library

constexpr sim_library::CUfileError_t kFailed{sim_library::kInternalError, 0};
SIM_EXPORT(cuFileGetVersion, kFailed)
SIM_EXPORT(cuFileDriverOpen, kFailed)
SIM_EXPORT(cuFileDriverClose_v2, kFailed)
SIM_EXPORT(cuFileUseCount, 0)
SIM_EXPORT(cuFileDriverGetProperties, kFailed)
SIM_EXPORT(cuFileHandleRegister, (sim_library::CUfileError_t{sim_library::kIoNotSupported, 0}))
SIM_EXPORT(cuFileHandleDeregister, nullptr)
SIM_EXPORT(cuFileBufRegister, (sim_library::CUfileError_t{sim_library::kPinningFailed, 0}))
SIM_EXPORT(cuFileBufDeregister, kFailed)
SIM_EXPORT(cuFileRead, -sim_library::kInternalError)
SIM_EXPORT(cuFileWrite, -sim_library::kInternalError)
