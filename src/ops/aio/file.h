// The file of one request: opened with O_DIRECT where the file system takes it and without beside it, its alignments,
// and the errors of the operating system as text.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "anyaccel/error.h"

namespace anyaccel::ops::aio {

// An error of a request, or none.
struct Failure {
  int error = 0;  // errno
  aa_code code = AA_OK;
  std::string message;

  explicit operator bool() const noexcept { return code != AA_OK; }
};

// "reading 4096 bytes at offset 512 of /data/x failed: Input/output error (errno 5)", with a hint for some errors.
Failure failure_of(int error, bool write, const std::string& name, int64_t offset, int64_t bytes);

// The error for a read beyond the end of a file. `found` is the file's size.
Failure past_the_end(const std::string& name, int64_t offset, int64_t bytes, int64_t found);

// The largest unit that direct writes are rounded to (a block of a file system).
inline constexpr int64_t largest_granule = 65536;

// May be used by several threads.
class File {
 public:
  // `fd` is -1, or a descriptor that the caller opened for writing and keeps open.
  File(std::string path, int fd, bool write);
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  // Opens it, checks that [offset, offset + bytes) can be read, or makes room for it to be written. Only the first call
  // does something; all return its result.
  const Failure& open(int64_t offset, int64_t bytes);

  // Once nobody uses the descriptors any more.
  void close() noexcept;

  // The path, or "file descriptor 7".
  const std::string& name() const noexcept { return name_; }

  // True when transfers may bypass the page cache; then direct_fd() is open and the alignments hold.
  bool direct() const noexcept { return direct_.load(std::memory_order_relaxed); }
  int direct_fd() const noexcept { return direct_fd_; }
  // The system refused a direct transfer that the alignments allow.
  void give_up_direct(const char* why);
  // Offsets and lengths of direct transfers are multiples of this,
  int64_t offset_alignment() const noexcept { return offset_alignment_; }
  // their addresses in memory of this (which divides the other),
  int64_t memory_alignment() const noexcept { return memory_alignment_; }
  // and a direct write covers whole units of this: a page of the page cache, or a block of the file if that is larger.
  // The rest goes through the page cache, which joins what different requests write to one page.
  int64_t granule() const noexcept { return granule_; }

  // For transfers through the page cache. -1 with errno set when it cannot be opened.
  int buffered_fd();
  // For comparing: readable. -1 with errno set when it cannot be opened.
  int readable_fd();
  // Its size now; -1 for a file without one (a terminal, a pipe).
  int64_t size() const;

 private:
  Failure do_open(int64_t offset, int64_t bytes);
  bool open_descriptors(int* error);
  int reopen(int flags) const;
  void find_alignments();
  Failure make_room(int64_t offset, int64_t bytes);

  const std::string path_;
  const std::string name_;
  const bool write_;
  std::mutex mutex_;
  bool opened_ = false;
  Failure failure_;
  const int given_fd_;
  int direct_fd_ = -1;
  int buffered_fd_ = -1;
  int readable_fd_ = -1;
  bool regular_ = false;
  std::atomic<bool> direct_{false};
  int64_t offset_alignment_ = 4096;
  int64_t memory_alignment_ = 512;
  int64_t granule_ = 4096;
};

}  // namespace anyaccel::ops::aio
