// Implements shareable_memory.h.
#include "base/process/shareable_memory.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "base/files/file_descriptor.h"
#include "base/process/large_pages.h"

namespace anyaccel {
namespace {

// The largest range that is backed before it is touched.
constexpr size_t kMostAtOnce = size_t{64} << 20;

size_t rounded(size_t bytes) { return (bytes + kLargePage - 1) / kLargePage * kLargePage; }

// The state; never destroyed, since tensors may be freed while the program ends.
struct TensorFile {
  std::mutex mutex;
  FileDescriptor file;
  std::atomic<char*> data{nullptr};  // written last
  size_t bytes = 0;
  bool backs_at_once = false;     // the system gives no huge pages when memory is touched, only on request
  std::map<size_t, size_t> free;  // offset and length of ranges, which never touch each other
};
TensorFile& tensor_file() {
  static auto* const instance = new TensorFile;
  return *instance;
}

// Backs zeros, on boundaries of huge pages, with huge pages. Returns false if the system has none.
bool back(char* data, size_t bytes) noexcept {
  // The system makes huge pages of ranges that have at least one page.
  for (size_t at = 0; at < bytes; at += kLargePage) *static_cast<volatile char*>(data + at) = 0;
  return madvise(data, bytes, kCollapseAdvice) == 0;
}

// Takes a range out of the free ones. Returns its offset.
std::optional<size_t> take(TensorFile& s, size_t length) noexcept {
  const std::lock_guard lock(s.mutex);
  const auto found =
      std::find_if(s.free.begin(), s.free.end(), [&](const auto& range) { return range.second >= length; });
  if (found == s.free.end()) return {};
  const auto [offset, room] = *found;
  try {
    if (room > length) s.free.emplace(offset + length, room - length);
  } catch (const std::bad_alloc&) {
    return {};
  }
  s.free.erase(offset);
  return offset;
}

// Twice the machine's memory, so that freed ranges between used ones seldom leave an allocation without room.
size_t wanted_bytes() {
  const auto pages = static_cast<size_t>(std::max(sysconf(_SC_PHYS_PAGES), 1L));
  return rounded(2 * pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)));
}

// A child of fork() has none of the tensors, since it would write into the parent's: the addresses are not mapped there.
void before_fork() { tensor_file().mutex.lock(); }
void after_fork_in_parent() { tensor_file().mutex.unlock(); }
void after_fork_in_child() {
  TensorFile& s = tensor_file();
  s.data.store(nullptr, std::memory_order_release);
  s.free.clear();
  s.file = {};
  s.mutex.unlock();
}

}  // namespace

ShareableMemory& ShareableMemory::instance() {
  static ShareableMemory memory;
  return memory;
}

bool ShareableMemory::start() {
  TensorFile& s = tensor_file();
  const std::lock_guard lock(s.mutex);
  if (s.data.load(std::memory_order_relaxed) != nullptr) return true;
  const size_t bytes = wanted_bytes();
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes) return false;  // else ftruncate ends the process
  FileDescriptor file(memfd_create("anyaccel-tensors", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file || ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) return false;
  if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) return false;
  char* const data = map(file.get(), bytes);
  if (data == nullptr) return false;
  s.backs_at_once = gives_no_large_pages("shmem_enabled") && !gives_no_large_pages("enabled");
  if (s.backs_at_once) {
    const bool possible = back(data, kLargePage);
    madvise(data, kLargePage, MADV_REMOVE);
    if (!possible) {
      munmap(data, bytes);
      return false;
    }
  }
  madvise(data, bytes, MADV_DONTFORK);
  static const int registered = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  static_cast<void>(registered);
  s.free.emplace(0, bytes);
  s.file = std::move(file);
  s.bytes = bytes;
  s.data.store(data, std::memory_order_release);
  return true;
}

char* ShareableMemory::map(int file, size_t bytes) noexcept {
  auto* const data = reinterpret_cast<char*>(map_on_large_page(bytes, PROT_NONE, MAP_NORESERVE));
  if (data == nullptr) return nullptr;
  if (mmap(data, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file, 0) == MAP_FAILED) {
    munmap(data, bytes);
    return nullptr;
  }
  madvise(data, bytes, MADV_HUGEPAGE);
  return data;
}

void* ShareableMemory::allocate(size_t bytes) noexcept {
  TensorFile& s = tensor_file();
  char* const data = s.data.load(std::memory_order_acquire);
  if (data == nullptr || bytes == 0 || bytes > (s.backs_at_once ? kMostAtOnce : s.bytes)) return nullptr;
  const size_t length = rounded(bytes);
  const std::optional<size_t> offset = take(s, length);
  if (!offset) return nullptr;
  char* const range = data + *offset;
  if (s.backs_at_once && !back(range, length)) {
    release(range, length);
    return nullptr;
  }
  return range;
}

bool ShareableMemory::release(void* pointer, size_t bytes) noexcept {
  if (!contains(pointer, bytes)) return false;
  TensorFile& s = tensor_file();
  size_t length = rounded(bytes);
  // Also removes the pages from the mappings of other processes, for whom the range is zeros again.
  madvise(pointer, length, MADV_REMOVE);
  const std::lock_guard lock(s.mutex);
  auto offset = static_cast<size_t>(static_cast<char*>(pointer) - s.data.load(std::memory_order_relaxed));
  auto next = s.free.lower_bound(offset);
  if (next != s.free.end() && next->first == offset + length) {
    length += next->second;
    next = s.free.erase(next);
  }
  if (next != s.free.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += length;
      return true;
    }
  }
  try {
    s.free.emplace(offset, length);
  } catch (const std::bad_alloc&) {  // the addresses stay unused; the memory is free
  }
  return true;
}

int ShareableMemory::file() const noexcept { return tensor_file().file.get(); }

char* ShareableMemory::data() const noexcept { return tensor_file().data.load(std::memory_order_acquire); }

size_t ShareableMemory::bytes() const noexcept { return data() == nullptr ? 0 : tensor_file().bytes; }

bool ShareableMemory::contains(const void* pointer, size_t bytes) const noexcept {
  const char* const begin = data();
  const auto* const at = static_cast<const char*>(pointer);
  return begin != nullptr && at >= begin && at < begin + tensor_file().bytes &&
         bytes <= static_cast<size_t>(begin + tensor_file().bytes - at);
}

}  // namespace anyaccel
