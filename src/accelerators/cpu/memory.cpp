// Implements memory.h: memory of the CPU accelerator.
#include "accelerators/cpu/memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "accelerators/cpu/memory_limits.h"
#include "accelerators/cpu/topology.h"
#include "anyaccel/error.h"
#include "anyaccel/format_bytes.h"
#include "base/process/large_pages.h"
#include "base/process/shareable_memory.h"

namespace anyaccel::cpu {
namespace {

struct Range {
  size_t size;
  int32_t kind;
  bool registered = false;  // the program's own memory
};

// Only raw allocations pass here, a few for each segment of the caching allocator, so a map under a lock is fine.
std::mutex ranges_mutex;
std::map<uintptr_t, Range>& ranges() {
  static auto* map = new std::map<uintptr_t, Range>();
  return *map;
}

// Memory that this process has allocated and may not have touched: device memory from a huge page on.
int64_t held_bytes = 0;
bool may_be_untouched(const Range& range) { return range.kind == AA_MEMORY_DEVICE && range.size >= kLargePage; }

// The caller of these holds ranges_mutex.
void remember(void* pointer, size_t size, int32_t kind) {
  const Range range{size, kind, false};
  ranges()[reinterpret_cast<uintptr_t>(pointer)] = range;
  if (may_be_untouched(range)) held_bytes += static_cast<int64_t>(size);
}

void forget(void* pointer) {
  const auto found = ranges().find(reinterpret_cast<uintptr_t>(pointer));
  if (found == ranges().end()) return;
  if (may_be_untouched(found->second)) held_bytes -= static_cast<int64_t>(found->second.size);
  ranges().erase(found);
}

size_t page_round(size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

void* map_pages(size_t bytes) {
  void* pointer = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return pointer == MAP_FAILED ? nullptr : pointer;
}

void* map_in_large_pages(size_t bytes) {
  std::byte* const data = map_on_large_page(bytes, PROT_READ | PROT_WRITE, MAP_NORESERVE);
  if (data) madvise(data, bytes, MADV_HUGEPAGE);
  return data;
}

std::string lock_limit_message(size_t bytes) {
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  const std::string found = limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur) + " bytes";
  return "cannot lock " + std::to_string(bytes) + " bytes of memory: " + std::strerror(errno) +
         ". The limit on locked memory of this process is " + found +
         "; raise it with `ulimit -l` (in KiB, or unlimited) or in /etc/security/limits.conf (memlock)";
}

// Bytes of a range of ordinary pages that were touched.
size_t resident_bytes(uintptr_t base, size_t size) {
  constexpr size_t pages_at_once = size_t{1} << 16;
  static unsigned char state[pages_at_once];  // ranges_mutex is held
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  size_t pages = 0;
  for (size_t begin = 0; begin < size; begin += pages_at_once * page) {
    const size_t bytes = std::min(size - begin, pages_at_once * page);
    const size_t count = (bytes + page - 1) / page;
    if (mincore(reinterpret_cast<void*>(base + begin), bytes, state) != 0) return size;
    for (size_t i = 0; i < count; ++i) pages += state[i] & 1;
  }
  return std::min(pages * page, size);
}

// Returns the allocated bytes that were never touched, which the system therefore still counts as available. Walks the
// page tables: milliseconds for tens of gigabytes. ranges_mutex is held.
int64_t promised_bytes() {
  int64_t promised = 0;
  for (const auto& [base, range] : ranges()) {
    if (may_be_untouched(range)) promised += static_cast<int64_t>(range.size - resident_bytes(base, range.size));
  }
  return promised;
}

// Returns the bytes that the limit leaves for an allocation beside `promised` bytes.
int64_t room(const MemoryLimit& limit, int64_t promised) {
  return std::max<int64_t>(0, limit.available - (limit.of_addresses ? 0 : promised) - margin_of(limit));
}

// Throws when a limit has no room for so many bytes. ranges_mutex is held.
void check_room(size_t bytes) {
  if (overcommits()) return;
  const std::vector<MemoryLimit> limits = read_memory_limits();
  const auto fits = [&](int64_t promised) {
    return std::all_of(limits.begin(), limits.end(),
                       [&](const MemoryLimit& limit) { return bytes <= static_cast<size_t>(room(limit, promised)); });
  };
  // First as if nothing had been touched, which needs no walk; nearly always there is enough room even so.
  if (fits(held_bytes)) return;
  const int64_t promised = promised_bytes();
  if (fits(promised)) return;
  const auto tightest = std::min_element(limits.begin(), limits.end(), [&](const auto& a, const auto& b) {
    return room(a, promised) < room(b, promised);
  });
  const auto text = [](int64_t amount) { return format_bytes(static_cast<double>(amount)); };
  std::string message = text(static_cast<int64_t>(std::min<size_t>(bytes, INT64_MAX))) +
                        " of memory do not fit: " + tightest->source + " has " + text(tightest->available) +
                        " left of " + text(tightest->total);
  if (!tightest->of_addresses) {
    message += ", of which " + text(promised) + " are allocated by this process and not used yet, and " +
               text(margin_of(*tightest)) + " are kept free; ANYACCEL_CPU_OVERCOMMIT=1 allocates all the same";
  }
  throw OutOfMemoryError(message, ENOMEM);
}

}  // namespace

bool overcommits() {
  const char* text = std::getenv("ANYACCEL_CPU_OVERCOMMIT");
  const std::string value = text ? text : "";
  if (value == "1") return true;
  if (value.empty() || value == "0") return false;
  throw InvalidArgument("ANYACCEL_CPU_OVERCOMMIT is \"" + value +
                        "\"; expected 1 (memory is allocated without asking what is left) or 0");
}

void* allocate(size_t bytes, int32_t kind, int numa_node) {
  void* pointer = nullptr;
  const bool mapped = kind == AA_MEMORY_PINNED || bytes >= kLargePage;
  // Held from the check to the allocation, so that two threads do not both count on the same free memory.
  std::unique_lock lock(ranges_mutex);
  if (mapped) check_room(bytes);
  if (!mapped) {
    pointer =
        std::aligned_alloc(memory_alignment, (bytes + memory_alignment - 1) / memory_alignment * memory_alignment);
  } else if (bytes < kLargePage) {
    pointer = map_pages(page_round(bytes));
  } else {
    // A direct read is split into few, long pieces of memory this way: a disk reads into huge pages at three times the
    // rate of 4 KiB ones.
    if (kind == AA_MEMORY_DEVICE) pointer = ShareableMemory::instance().allocate(bytes);
    if (pointer == nullptr) pointer = map_in_large_pages(page_round(bytes));
  }
  if (!pointer) {
    throw OutOfMemoryError(
        "the operating system has no " + std::to_string(bytes) + " bytes of memory left for this process", errno);
  }
  if (kind == AA_MEMORY_DEVICE) remember(pointer, bytes, kind);
  lock.unlock();
  if (mapped && numa_node >= 0) bind_to_node(pointer, page_round(bytes), numa_node);
  if (kind == AA_MEMORY_PINNED) {
    if (mlock(pointer, page_round(bytes)) != 0) {  // touches every page
      const std::string message = lock_limit_message(bytes);
      const int error = errno;
      munmap(pointer, page_round(bytes));
      throw OutOfMemoryError(message, error);
    }
    lock.lock();
    remember(pointer, bytes, kind);
  }
  return pointer;
}

void release(void* pointer, size_t bytes, int32_t kind) noexcept {
  {
    const std::lock_guard lock(ranges_mutex);
    forget(pointer);
  }
  if (kind == AA_MEMORY_PINNED || bytes >= kLargePage) {
    if (!ShareableMemory::instance().release(pointer, bytes)) munmap(pointer, page_round(bytes));
  } else {
    std::free(pointer);
  }
}

void register_range(void* pointer, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(pointer);
  {
    std::lock_guard lock(ranges_mutex);
    // Ranges that do not overlap each other: only the last one that begins before the end can reach into this one.
    const auto after = ranges().lower_bound(begin + bytes);
    const auto last = after == ranges().begin() ? ranges().end() : std::prev(after);
    if (last != ranges().end() && last->first + last->second.size > begin) {
      throw InvalidArgument("part of the memory range is registered, or allocated by this accelerator, already",
                            AA_ALREADY_EXISTS);
    }
    ranges()[begin] = {bytes, AA_MEMORY_PINNED, true};
  }
  if (mlock(pointer, bytes) != 0) {
    const int error = errno;
    const std::string message = lock_limit_message(bytes);
    const std::lock_guard lock(ranges_mutex);
    forget(pointer);
    throw OutOfMemoryError(message, error);
  }
}

void unregister_range(void* pointer) {
  size_t bytes = 0;
  {
    std::lock_guard lock(ranges_mutex);
    auto found = ranges().find(reinterpret_cast<uintptr_t>(pointer));
    if (found == ranges().end() || !found->second.registered) {
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
  const std::lock_guard lock(ranges_mutex);
  const int64_t promised = promised_bytes();
  free_bytes = total_bytes = 0;
  bool first = true;
  for (const MemoryLimit& limit : read_memory_limits()) {
    free_bytes = first ? room(limit, promised) : std::min(free_bytes, room(limit, promised));
    total_bytes = first ? limit.total : std::min(total_bytes, limit.total);
    first = false;
  }
}

}  // namespace anyaccel::cpu
