// See memory.h.
#include "accelerators/cpu/memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <string>

#include "accelerators/cpu/topology.h"
#include "anyaccel/error.h"

namespace anyaccel::cpu {
namespace {

constexpr size_t huge_page = size_t{2} << 20;

struct Range {
  size_t size;
  int32_t kind;
};

// Only raw allocations pass here, a few for each segment of the caching allocator, so a map under a lock is fine.
std::mutex ranges_mutex;
std::map<uintptr_t, Range>& ranges() {
  static auto* map = new std::map<uintptr_t, Range>();
  return *map;
}

void remember(void* pointer, size_t size, int32_t kind) {
  std::lock_guard lock(ranges_mutex);
  ranges()[reinterpret_cast<uintptr_t>(pointer)] = {size, kind};
}

bool forget(void* pointer) {
  std::lock_guard lock(ranges_mutex);
  return ranges().erase(reinterpret_cast<uintptr_t>(pointer)) != 0;
}

size_t page_round(size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

void* map_pages(size_t bytes) {
  void* pointer = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return pointer == MAP_FAILED ? nullptr : pointer;
}

// Maps on a huge-page boundary: maps more, then gives the ends back.
void* map_huge_aligned(size_t bytes) {
  auto* raw = static_cast<char*>(map_pages(bytes + huge_page));
  if (!raw) return nullptr;
  const auto address = reinterpret_cast<uintptr_t>(raw);
  const size_t head = (huge_page - address % huge_page) % huge_page;
  if (head) munmap(raw, head);
  if (head != huge_page) munmap(raw + head + bytes, huge_page - head);
  madvise(raw + head, bytes, MADV_HUGEPAGE);
  return raw + head;
}

std::string lock_limit_message(size_t bytes) {
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  const std::string found = limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur) + " bytes";
  return "cannot lock " + std::to_string(bytes) + " bytes of memory: " + std::strerror(errno) +
         ". The limit on locked memory of this process is " + found +
         "; raise it with `ulimit -l` (in KiB, or unlimited) or in /etc/security/limits.conf (memlock)";
}

int64_t read_number(const char* path) {
  std::ifstream file(path);
  int64_t value = -1;
  return file >> value ? value : -1;
}

}  // namespace

void* allocate(size_t bytes, int32_t kind, int numa_node) {
  void* pointer = nullptr;
  const bool mapped = kind == AA_MEMORY_PINNED || bytes >= huge_page;
  if (!mapped) {
    pointer =
        std::aligned_alloc(memory_alignment, (bytes + memory_alignment - 1) / memory_alignment * memory_alignment);
  } else if (bytes < huge_page) {
    pointer = map_pages(page_round(bytes));
  } else {
    // Devices take few, long pieces of memory: a disk reads into huge pages at three times the rate of 4 KiB ones.
    pointer = map_huge_aligned(page_round(bytes));
  }
  if (!pointer) {
    throw OutOfMemoryError("the operating system has no " + std::to_string(bytes) +
                               " bytes of memory left for this "
                               "process",
                           errno);
  }
  if (mapped && numa_node >= 0) bind_to_node(pointer, page_round(bytes), numa_node);
  if (kind == AA_MEMORY_PINNED && mlock(pointer, page_round(bytes)) != 0) {
    const std::string message = lock_limit_message(bytes);
    const int error = errno;
    munmap(pointer, page_round(bytes));
    throw OutOfMemoryError(message, error);
  }
  remember(pointer, bytes, kind);
  return pointer;
}

void release(void* pointer, size_t bytes, int32_t kind) noexcept {
  forget(pointer);
  if (kind == AA_MEMORY_PINNED || bytes >= huge_page) {
    munmap(pointer, page_round(bytes));
  } else {
    std::free(pointer);
  }
}

void register_range(void* pointer, size_t bytes) {
  {
    std::lock_guard lock(ranges_mutex);
    if (ranges().contains(reinterpret_cast<uintptr_t>(pointer))) {
      throw InvalidArgument("the memory range is registered, or allocated as pinned, already", AA_ALREADY_EXISTS);
    }
  }
  if (mlock(pointer, bytes) != 0) {
    const std::string message = lock_limit_message(bytes);
    throw OutOfMemoryError(message, errno);
  }
  remember(pointer, bytes, AA_MEMORY_PINNED);
}

void unregister_range(void* pointer) {
  size_t bytes = 0;
  {
    std::lock_guard lock(ranges_mutex);
    auto found = ranges().find(reinterpret_cast<uintptr_t>(pointer));
    if (found == ranges().end()) {
      throw InvalidArgument("the memory range was not registered", AA_NOT_FOUND);
    }
    bytes = found->second.size;
    ranges().erase(found);
  }
  munlock(pointer, bytes);
}

bool query(const void* pointer, aa_memory_info& info) noexcept {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  std::lock_guard lock(ranges_mutex);
  auto next = ranges().upper_bound(address);
  if (next == ranges().begin()) return false;
  const auto& [base, range] = *std::prev(next);
  if (address >= base + range.size) return false;
  info.kind = range.kind;
  info.device_index = range.kind == AA_MEMORY_DEVICE ? 0 : -1;
  info.base = reinterpret_cast<void*>(base);
  info.size = range.size;
  return true;
}

void memory_info(int64_t& free_bytes, int64_t& total_bytes) {
  free_bytes = 0;
  total_bytes = 0;
  std::ifstream meminfo("/proc/meminfo");
  for (std::string key; meminfo >> key;) {
    int64_t kib = 0;
    std::string unit;
    meminfo >> kib >> unit;
    if (key == "MemTotal:") total_bytes = kib * 1024;
    if (key == "MemAvailable:") free_bytes = kib * 1024;
    if (total_bytes && free_bytes) break;
  }
  // Version 2 of control groups; "max" does not parse as a number and means no limit.
  const int64_t limit = read_number("/sys/fs/cgroup/memory.max");
  const int64_t used = read_number("/sys/fs/cgroup/memory.current");
  if (limit > 0) {
    total_bytes = std::min(total_bytes, limit);
    if (used >= 0) free_bytes = std::min(free_bytes, std::max<int64_t>(0, limit - used));
  }
}

}  // namespace anyaccel::cpu
