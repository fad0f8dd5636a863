// Creates and maps memory that processes share.
#include "comm/shared_memory/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "anyaccel/error.h"
#include "base/files/open_files.h"
#include "base/process/shareable_memory.h"

namespace anyaccel::comm::shm {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// The mappings of this process, by file. One mapping for all threads lets the thread sanitizer see that two ranks
// access the same memory.
struct Registry {
  std::mutex mutex;
  std::map<std::pair<dev_t, ino_t>, std::weak_ptr<Mapping>> mappings;
};
Registry& registry() {
  static auto* const instance = new Registry;  // outlives every thread
  return *instance;
}

std::shared_ptr<Mapping> map_file(int fd, const struct stat& file) {
  const std::lock_guard lock(registry().mutex);
  auto& mappings = registry().mappings;
  std::erase_if(mappings, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<Mapping>& known = mappings[{file.st_dev, file.st_ino}];
  if (auto mapping = known.lock()) return mapping;
  const auto bytes = static_cast<size_t>(file.st_size);
  void* data = ShareableMemory::map(fd, bytes);
  if (data == nullptr) {
    throw OutOfMemoryError("cannot map " + std::to_string(bytes) + " bytes of shared memory: " + std::strerror(errno),
                           errno);
  }
  auto mapping = std::make_shared<Mapping>(data, bytes);
  known = mapping;
  return mapping;
}

}  // namespace

Mapping::~Mapping() { munmap(data_, bytes_); }

Segment create_segment(const char* name, size_t bytes, bool reserve) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t rounded = (bytes + page - 1) / page * page;
  const auto failed = [&](const char* what) {
    return OutOfMemoryError(
        "cannot make " + std::to_string(bytes) + " bytes of shared memory: " + what + ": " + system_error_text(errno),
        errno);
  };
  FileDescriptor fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) throw failed("memfd_create");
  if (ftruncate(fd.get(), static_cast<off_t>(rounded)) != 0) throw failed("ftruncate");
  if (reserve && fallocate(fd.get(), 0, 0, static_cast<off_t>(rounded)) != 0) throw failed("fallocate");
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) throw failed("sealing");
  struct stat file {};
  if (fstat(fd.get(), &file) != 0) throw failed("fstat");
  auto mapping = map_file(fd.get(), file);
  return {std::move(fd), std::move(mapping)};
}

std::shared_ptr<Mapping> map_segment(int fd, size_t bytes, const std::string& owner) {
  struct stat file {};
  if (fstat(fd, &file) != 0 || static_cast<size_t>(file.st_size) < bytes) {
    throw CommunicationError("the shared memory of " + owner + " has " + std::to_string(file.st_size) +
                             " bytes where " + std::to_string(bytes) +
                             " were announced; do all ranks run the same version?");
  }
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    throw CommunicationError("the shared memory of " + owner + " is not sealed against a change of its length");
  }
  return map_file(fd, file);
}

}  // namespace anyaccel::comm::shm
