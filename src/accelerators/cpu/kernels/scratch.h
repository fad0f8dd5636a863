// Working memory of the kernels: per thread, kept between calls, so that the hot path allocates nothing.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <new>

namespace anyaccel::cpu {

// Memory that only grows; its contents are lost when it does. Trivial, because the main thread's objects with
// destructors end before the program's static objects, whose destructors may still call ops.
class ScratchBuffer {
 public:
  void release() {
    std::free(data_);
    data_ = nullptr;
    size_ = 0;
  }
  bool has(size_t bytes) const { return bytes <= size_; }
  void* data() const { return data_; }
  // At least `bytes`, aligned to 64.
  void grow(size_t bytes) {
    release();
    // From 2 MiB on in huge pages: packed panels are read again and again, and then miss the TLB less.
    const size_t unit = bytes >= huge_page ? huge_page : 4096;
    const size_t rounded = (bytes + bytes / 4 + unit - 1) / unit * unit;
    data_ = std::aligned_alloc(unit, rounded);
    if (data_ == nullptr) throw std::bad_alloc();
    if (unit == huge_page) madvise(data_, rounded, MADV_HUGEPAGE);
    size_ = rounded;
  }

 private:
  static constexpr size_t huge_page = size_t{2} << 20;
  void* data_ = nullptr;
  size_t size_ = 0;
};

// Each use has a separate buffer, so that two buffers that are needed at once never overlap.
enum class Scratch { Row0, Row1, Row2, Row3, Tile, Partials, Spans, Tasks, Candidates, Decoded, Rounded, Count };

// Releases a thread's buffers when it ends. What grows afterwards stays.
struct ScratchOwner {
  ScratchBuffer* buffers;
  ~ScratchOwner() {
    for (size_t i = 0; i < static_cast<size_t>(Scratch::Count); ++i) buffers[i].release();
  }
};

// `count` elements of T for the calling thread, until the next call with the same use on this thread.
template <class T>
T* scratch(Scratch use, size_t count) {
  thread_local constinit ScratchBuffer buffers[static_cast<size_t>(Scratch::Count)];
  ScratchBuffer& buffer = buffers[static_cast<size_t>(use)];
  if (!buffer.has(count * sizeof(T))) [[unlikely]] {
    thread_local ScratchOwner owner{buffers};
    static_cast<void>(owner);  // named so that it exists; it may be destroyed already
    buffer.grow(count * sizeof(T));
  }
  return static_cast<T*>(buffer.data());
}

}  // namespace anyaccel::cpu
