// Declares the file of one request, which is opened with O_DIRECT if the file system supports it and also without, its
// alignments, and the conversion of the operating system's errors to text.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "anyaccel/error.h"

namespace anyaccel::ops::aio {

// The error of a request, or none.
struct Failure {
  int error = 0;  // errno
  aa_code code = AA_OK;
  std::string message;

  explicit operator bool() const noexcept { return code != AA_OK; }
};

// Returns "reading 4096 bytes at offset 512 of /data/x failed: Input/output error (errno 5)", for example, with a hint
// for some errors.
Failure failure_of(int error, bool write, const std::string& name, int64_t offset, int64_t bytes);

// Returns the error for a read beyond the end of a file. `found` is the file's size.
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

  // Opens the file and checks that [offset, offset + bytes) can be read, or allocates space for writing it. Only the
  // first call has an effect; all return its result.
  const Failure& open(int64_t offset, int64_t bytes);

  // Call when the descriptors are no longer in use.
  void close() noexcept;

  // Returns the path, or "file descriptor 7", for example.
  const std::string& name() const noexcept { return name_; }

  // Returns whether transfers may bypass the page cache; if so, direct_fd() is open and the alignments are valid.
  bool direct() const noexcept { return direct_.load(std::memory_order_relaxed); }
  int direct_fd() const noexcept { return direct_fd_; }
  // Call when the system has refused a direct transfer that the alignments allow.
  void give_up_direct(const char* why);
  // Offsets and lengths of direct transfers must be multiples of this.
  int64_t offset_alignment() const noexcept { return offset_alignment_; }
  // The memory addresses of direct transfers must be multiples of this, which divides offset_alignment().
  int64_t memory_alignment() const noexcept { return memory_alignment_; }
  // A direct write must cover whole units of this: a page of the page cache, or a block of the file if that is larger.
  // The rest goes through the page cache, which joins what different requests write to one page.
  int64_t granule() const noexcept { return granule_; }

  // Returns a descriptor for transfers through the page cache; -1 with errno set if it cannot be opened.
  int buffered_fd();
  // Returns a readable descriptor, for comparing; -1 with errno set if it cannot be opened.
  int readable_fd();
  // Returns the current size; -1 for a file without one (a terminal, a pipe).
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
