// Memory in pages of 2 MiB: moves what a process uses of a mapped file from pages of 4 KiB into pages of 2 MiB, at the same
// addresses.
//
// A file that was downloaded, copied or written lies in the page cache in small pages on most systems, and a loop that reads all of
// it spends much of its time looking up addresses: two cores of a Granite Rapids read 23 GB/s from small pages and 31 from large
// ones. Where the kernel can merge the pages of the page cache itself (MADV_COLLAPSE), that costs no memory; otherwise they are
// copied to memory of the process.
#pragma once

#include <atomic>
#include <cstddef>
#include <span>
#include <vector>

namespace anyaccel {

constexpr size_t kLargePage = size_t{2} << 20;
constexpr int kCollapseAdvice = 25;  // MADV_COLLAPSE, which glibc 2.36 lacks

// True if the system gives memory no large pages when it is touched. `name` says which: "enabled" is a process's own memory,
// "shmem_enabled" shared memory.
bool gives_no_large_pages(const char* name);

// Maps memory of no file that begins on a boundary of 2 MiB, as mmap does with this protection and MAP_PRIVATE | MAP_ANONYMOUS |
// `flags`: more of it, of which the ends are given back. `bytes` are whole pages. Null if there is no room.
std::byte* map_on_large_page(size_t bytes, int protection, int flags) noexcept;

class LargePages {
 public:
  // `mapping` is a private read-only mapping of a file, from the file's beginning on, and `descriptor` the open file. Both outlive
  // this object, and the mapping may be read by any thread meanwhile.
  LargePages(std::span<const std::byte> mapping, int descriptor) noexcept
      : mapping_(mapping), descriptor_(descriptor) {}

  // Finds what was accessed so far and lies in small pages, in whole stretches of 2 MiB; returns its bytes. It takes some ten
  // milliseconds for each GB. Returns 0 where moving them is not possible or not wanted: the system has no large pages or those of
  // another size, the machine has several memory nodes (copies would all lie on one), the file lies in a file system in memory (which
  // could not drop it), or the system does not say where pages lie. Kernels before 6.7 do not say which pages are
  // small, so that nothing is found there once a part of the file lies in large ones.
  // `scans`: by the interface that Linux has since 6.7, where there is one; tests choose the older one.
  size_t find(bool scans = true);
  // Moves up to `bytes` of that, at least one stretch of 2 MiB. Returns how many bytes were moved: 0 at the end, and if the system
  // refuses memory or large pages, which refused() tells. The data is the same at all times. One thread at a time. A call that copies
  // leaves one more mapping, of which a process may have 65,530. Copies are not locked (mlock) because the file's pages were.
  size_t move(size_t bytes) noexcept;
  bool refused() const noexcept { return refused_; }
  // Whether anything was moved: MADV_DONTNEED would lose what was copied. Any thread.
  bool has_moved() const noexcept { return moved_.load(std::memory_order_relaxed); }

 private:
  std::span<const std::byte> take(size_t bytes) noexcept;
  bool copy(std::span<const std::byte> range) noexcept;

  std::span<const std::byte> mapping_;
  int descriptor_;
  std::vector<std::span<const std::byte>> small_;  // whole stretches, the last ones first
  bool collapses_ = true;                          // until the kernel says that it cannot merge pages of this file
  bool refused_ = false;
  std::atomic<bool> moved_{false};
};

}  // namespace anyaccel
