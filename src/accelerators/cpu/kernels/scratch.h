// Working memory of the kernels: per thread, kept between calls, so that the hot path allocates nothing.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <new>

namespace anyaccel::cpu {

// Memory that only grows; its contents are lost when it does.
class ScratchBuffer {
 public:
  ScratchBuffer() = default;
  ScratchBuffer(const ScratchBuffer&) = delete;
  ScratchBuffer& operator=(const ScratchBuffer&) = delete;
  ~ScratchBuffer() { std::free(data_); }

  // At least `bytes`, aligned to 64.
  void* reserve(size_t bytes) {
    if (bytes > size_) {
      std::free(data_);
      size_ = 0;
      // From 2 MiB on in huge pages: packed panels are read again and again, and then miss the TLB less.
      const size_t unit = bytes >= huge_page ? huge_page : 4096;
      const size_t rounded = (bytes + bytes / 4 + unit - 1) / unit * unit;
      data_ = std::aligned_alloc(unit, rounded);
      if (data_ == nullptr) throw std::bad_alloc();
      if (unit == huge_page) madvise(data_, rounded, MADV_HUGEPAGE);
      size_ = rounded;
    }
    return data_;
  }

 private:
  static constexpr size_t huge_page = size_t{2} << 20;
  void* data_ = nullptr;
  size_t size_ = 0;
};

// Each use has a separate buffer, so that two buffers that are needed at once never overlap.
enum class Scratch { Row0, Row1, Row2, Row3, Tile, Partials, Spans, Tasks, Candidates, Decoded, Rounded, Count };

// `count` elements of T for the calling thread, until the next call with the same use on this thread.
template <class T>
T* scratch(Scratch use, size_t count) {
  thread_local ScratchBuffer buffers[static_cast<size_t>(Scratch::Count)];
  return static_cast<T*>(buffers[static_cast<size_t>(use)].reserve(count * sizeof(T)));
}

}  // namespace anyaccel::cpu
