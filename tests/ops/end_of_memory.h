// Memory behind which there is none, so that a read beyond it ends the process.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>

namespace anyaccel::testing {

class EndOfMemory {
 public:
  explicit EndOfMemory(size_t most) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    size_ = (most + page - 1) / page * page;
    mapped_ = size_ + page;
    memory_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
    if (mprotect(static_cast<char*>(memory_) + size_, page, PROT_NONE) != 0) throw std::bad_alloc();
  }
  ~EndOfMemory() { munmap(memory_, mapped_); }
  EndOfMemory(const EndOfMemory&) = delete;
  EndOfMemory& operator=(const EndOfMemory&) = delete;

  // Returns a copy of at most `most` bytes, which ends where the memory does. It replaces an earlier one.
  void* put(const void* from, size_t bytes) {
    return std::memcpy(static_cast<char*>(memory_) + size_ - bytes, from, bytes);
  }

 private:
  void* memory_ = nullptr;
  size_t size_ = 0, mapped_ = 0;
};

}  // namespace anyaccel::testing
