// Memory of this process that other processes of the user can map, from which the CPU accelerator allocates once the
// process is a rank beside others on its host: collectives then read and write each other's tensors in place.
//
// It is one file without a name (memfd), longer than the machine's memory and mapped as a whole. A process that was given
// its descriptor maps all of it as well, so that later allocations need no exchange. It has huge pages, as other memory of
// tensors does: where the system gives them to shared memory (/sys/kernel/mm/transparent_hugepage/shmem_enabled is not
// "never") they are backed when they are touched; elsewhere a range is backed at once, for which it may have 64 MiB, and
// the system must be Linux 6.1 or later. Memory is given back to the system when a range is released.
#pragma once

#include <cstddef>
#include <cstdint>

namespace anyaccel {

class ShareableMemory {
 public:
  // The process's. All functions may be called from any thread.
  static ShareableMemory& instance();

  // From now on allocate() gives memory. Returns false, and changes nothing, where it cannot have huge pages although
  // private memory has them, or the address space or the length of files is limited.
  bool start();

  // Returns zeros on a boundary of 2 MiB; null before start(), without room, or for more than can be had in huge pages.
  void* allocate(size_t bytes) noexcept;
  // Takes back a range that allocate() returned for as many bytes. Returns false if the address is not of this memory.
  bool release(void* pointer, size_t bytes) noexcept;

  // Maps a file of such memory, of this or another process, on a boundary of 2 MiB and in huge pages. Returns null if the
  // address space has no room.
  static char* map(int file, size_t bytes) noexcept;

  // Constant once start() has returned true.
  int file() const noexcept;  // the descriptor
  char* data() const noexcept;
  size_t bytes() const noexcept;
  bool contains(const void* pointer, size_t bytes) const noexcept;

 private:
  ShareableMemory() = default;
};

}  // namespace anyaccel
