// Implements large_pages.h with the kernel's interfaces of Linux: /proc/self/pagemap, its PAGEMAP_SCAN (since 6.7) and smaps.
#include "base/process/large_pages.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/files/file_descriptor.h"
#include "base/process/kernel_text.h"

namespace anyaccel {
namespace {

using Range = std::span<const std::byte>;

uintptr_t address(const std::byte* p) { return reinterpret_cast<uintptr_t>(p); }
const std::byte* pointer(uintptr_t address) {
  return reinterpret_cast<const std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
}

// Appends the whole stretches of 2 MiB in [begin, end).
void add_stretches(uintptr_t begin, uintptr_t end, std::vector<Range>& found) {
  begin = (begin + kLargePage - 1) / kLargePage * kLargePage;
  end = end / kLargePage * kLargePage;
  if (begin < end) found.emplace_back(pointer(begin), end - begin);
}

// Sums a field of /proc/self/smaps over the mappings that overlap the range, in bytes.
int64_t sum_of_mappings(Range range, std::string_view field) {
  int64_t sum = 0;
  bool inside = false;
  const std::string text = kernel_file("/proc/self/smaps");
  for_lines(text, [&](std::string_view line) {
    unsigned long begin = 0, end = 0;
    if (std::sscanf(std::string(line.substr(0, 40)).c_str(), "%lx-%lx ", &begin, &end) == 2) {
      inside = begin < address(range.data() + range.size()) && end > address(range.data());
    } else if (inside) {
      sum += number_of(line, field).value_or(0) * 1024;
    }
  });
  return sum;
}

// The argument of PAGEMAP_SCAN, and what it reports (linux/fs.h, which Debian 12 has without them).
struct ScanArgument {
  uint64_t size, flags, start, end, walk_end, regions, most_regions, most_pages, inverted, all_of, any_of, returned;
};
struct ScanRegion {
  uint64_t start, end, categories;
};
constexpr unsigned long kScan = _IOWR('f', 16, ScanArgument);
constexpr uint64_t kIsFile = 1 << 2, kIsPresent = 1 << 3, kIsHuge = 1 << 6;

// Calls `each` with the address ranges of a mapping whose pages are of all these categories, of which `inverted` must not be. False
// before Linux 6.7.
template <class Each>
bool scan(Range mapping, int pagemap, uint64_t categories, uint64_t inverted, Each each) {
  std::array<ScanRegion, 256> regions;
  uintptr_t begin = address(mapping.data());
  const uintptr_t end = begin + mapping.size();
  while (begin < end) {
    ScanArgument argument{};
    argument.size = sizeof argument;
    argument.start = begin;
    argument.end = end;
    argument.regions = reinterpret_cast<uintptr_t>(regions.data());
    argument.most_regions = regions.size();
    argument.inverted = inverted;
    argument.all_of = argument.returned = categories;
    const int count = ioctl(pagemap, kScan, &argument);
    if (count < 0 || argument.walk_end <= begin) return false;
    for (int i = 0; i < count; ++i) {
      const ScanRegion& region = regions[static_cast<size_t>(i)];
      each(region.start, region.end);
    }
    begin = argument.walk_end;
  }
  return true;
}

// Finds pages of the file that are mapped, but not as large ones. Nothing before Linux 6.7.
std::optional<std::vector<Range>> scan_small(Range mapping, int pagemap) {
  std::vector<Range> found;
  const bool scanned = scan(mapping, pagemap, kIsFile | kIsPresent | kIsHuge, kIsHuge,
                            [&](uintptr_t begin, uintptr_t end) { add_stretches(begin, end, found); });
  if (!scanned) return {};
  return found;
}

// The same on older kernels, whose page cache rarely has large pages: nothing if it has some.
std::vector<Range> read_small(Range mapping, int pagemap) {
  if (sum_of_mappings(mapping, "FilePmdMapped:") > 0) return {};
  constexpr uint64_t present_file_page = (uint64_t{1} << 63) | (uint64_t{1} << 61);
  std::vector<Range> found;
  std::array<uint64_t, 4096> entries;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t end = address(mapping.data()) + mapping.size();
  uintptr_t run = 0;  // where a run of such pages begins; 0: there is none
  for (uintptr_t at = address(mapping.data()); at < end;) {
    const size_t wanted = std::min<size_t>(entries.size(), (end - at + page - 1) / page) * sizeof(uint64_t);
    const ssize_t got = pread(pagemap, entries.data(), wanted, static_cast<off_t>(at / page * sizeof(uint64_t)));
    if (got <= 0) return {};
    for (size_t i = 0; i < static_cast<size_t>(got) / sizeof(uint64_t); ++i, at += page) {
      const bool is_small = (entries[i] & present_file_page) == present_file_page;
      if (is_small && run == 0) run = at;
      if (!is_small && run != 0) add_stretches(run, at, found);
      if (!is_small) run = 0;
    }
  }
  if (run != 0) add_stretches(run, end, found);
  return found;
}

FileDescriptor open_pagemap() { return FileDescriptor(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)); }

// Before Linux 6.7 the answer for the first memory counts for all, since reading smaps takes long.
bool is_in_large_pages(Range memory) noexcept try {
  size_t large = 0;
  const FileDescriptor pagemap = open_pagemap();
  if (pagemap && scan(memory, pagemap.get(), kIsPresent | kIsHuge, 0,
                      [&](uintptr_t begin, uintptr_t end) { large += end - begin; })) {
    return large == memory.size();
  }
  static const bool first = sum_of_mappings(memory, "AnonHugePages:") >= static_cast<int64_t>(memory.size() / 2);
  return first;
} catch (const std::bad_alloc&) {
  return false;
}

bool has_several_nodes() {
  return kernel_file("/sys/devices/system/node/online").find_first_of(",-") != std::string::npos;
}
bool has_pages_of_2_mib() {
  const auto size = leading_number(kernel_file("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size"));
  return size && *size == static_cast<int64_t>(kLargePage);
}

// A file of a file system in memory cannot be dropped from there, so that a copy would need its memory for good.
bool is_only_in_memory(int descriptor) {
  struct statfs system {};
  return fstatfs(descriptor, &system) != 0 || system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC;
}

}  // namespace

bool gives_no_large_pages(const char* name) {
  const std::string text = kernel_file(std::string("/sys/kernel/mm/transparent_hugepage/") + name);
  return text.empty() || text.find("[never]") != std::string::npos || text.find("[deny]") != std::string::npos;
}

std::byte* map_on_large_page(size_t bytes, int protection, int flags) noexcept {
  void* const raw = mmap(nullptr, bytes + kLargePage, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(raw);
  const size_t head = (kLargePage - address(begin) % kLargePage) % kLargePage;
  if (head > 0) munmap(begin, head);
  munmap(begin + head + bytes, kLargePage - head);  // never nothing: the head is smaller
  return begin + head;
}

size_t LargePages::find(bool scans) {
  small_.clear();
  refused_ = false;
  const FileDescriptor pagemap = open_pagemap();
  if (!pagemap || gives_no_large_pages("enabled") || !has_pages_of_2_mib() || has_several_nodes() ||
      is_only_in_memory(descriptor_)) {
    return 0;
  }
  auto found = scans ? scan_small(mapping_, pagemap.get()) : std::nullopt;
  small_ = found ? std::move(*found) : read_small(mapping_, pagemap.get());
  std::reverse(small_.begin(), small_.end());
  size_t bytes = 0;
  for (const Range range : small_) bytes += range.size();
  return bytes;
}

size_t LargePages::move(size_t bytes) noexcept {
  const Range range = take(std::max(bytes / kLargePage * kLargePage, kLargePage));
  if (range.empty()) return 0;
  if (collapses_ && madvise(const_cast<std::byte*>(range.data()), range.size(), kCollapseAdvice) == 0) {
    moved_.store(true, std::memory_order_relaxed);
    return range.size();
  }
  collapses_ = collapses_ && errno != EINVAL;
  if (copy(range)) return range.size();
  small_.clear();
  refused_ = true;
  return 0;
}

// The next stretches, which are neighbours.
Range LargePages::take(size_t bytes) noexcept {
  if (small_.empty()) return {};
  Range& next = small_.back();
  const Range taken = next.first(std::min(bytes, next.size()));
  next = next.subspan(taken.size());
  if (next.empty()) small_.pop_back();
  return taken;
}

bool LargePages::copy(Range range) noexcept {
  const size_t bytes = range.size();
  std::byte* const data = map_on_large_page(bytes, PROT_READ | PROT_WRITE, 0);
  if (!data) return false;
  madvise(data, bytes, MADV_HUGEPAGE);
  std::memcpy(data, range.data(), bytes);
  // Pages of a file are in no core dump, and so their copies should not be.
  madvise(data, bytes, MADV_DONTDUMP);
  if (!is_in_large_pages({data, bytes}) || mprotect(data, bytes, PROT_READ) != 0) {
    munmap(data, bytes);
    return false;
  }
  moved_.store(true, std::memory_order_relaxed);
  // A thread that reads the range meanwhile waits in its page fault and then reads the copy.
  auto* const place = const_cast<std::byte*>(range.data());
  if (mremap(data, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, place) != MAP_FAILED) return true;
  // The kernel looks for what it needs before it removes the old mapping. If the memory for page tables ran out after that, the range
  // is empty until the next line, and a thread that reads it meanwhile ends the process.
  const int error = errno;
  const void* const restored = mmap(place, bytes, PROT_READ, MAP_PRIVATE | MAP_FIXED_NOREPLACE, descriptor_,
                                    static_cast<off_t>(range.data() - mapping_.data()));
  if (restored != place && errno != EEXIST) {
    std::fprintf(stderr,
                 "anyaccel: a part of the weights could not be mapped again after mremap failed: %s; out of memory\n",
                 std::strerror(error));
    std::abort();
  }
  munmap(data, bytes);
  return false;
}

}  // namespace anyaccel
