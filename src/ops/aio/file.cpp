// Implements file.h, the file of one request.
#include "ops/aio/file.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <system_error>

#include "anyaccel/log.h"

namespace anyaccel::ops::aio {
namespace {

// Used if statx does not report the alignment: every disk and file system in use accepts this one.
constexpr int64_t usual_offset_alignment = 4096;
constexpr int64_t usual_memory_alignment = 512;

aa_code code_of(int error) {
  switch (error) {
    case ENOENT:
    case ENXIO:
    case ENODEV: return AA_NOT_FOUND;
    case EACCES:
    case EPERM:
    case EROFS: return AA_PERMISSION_DENIED;
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
    case EMFILE:
    case ENFILE: return AA_RESOURCE_EXHAUSTED;
    case EFBIG: return AA_OUT_OF_RANGE;
    case EISDIR:
    case ENOTDIR:
    case EINVAL:
    case EBADF:
    case ESPIPE:
    case ELOOP:
    case ENAMETOOLONG: return AA_INVALID_ARGUMENT;
    default: return AA_UNKNOWN;
  }
}

std::string hint_of(int error, bool write) {
  switch (error) {
    case ENOSPC: return "; free space on that file system or write elsewhere";
    case EISDIR: return "; name a file, not a directory";
    case EMFILE: return "; raise the limit on open files (`ulimit -n`)";
    case EBADF: return write ? "; the descriptor must be open, for writing" : "";
    case ESPIPE: return "; pipes and sockets have no offsets: name a file or a block device";
    case EFBIG: {
      rlimit limit{};
      getrlimit(RLIMIT_FSIZE, &limit);
      if (limit.rlim_cur == RLIM_INFINITY) return "; the file system takes no file of that size";
      return "; the limit on the size of a file is " + std::to_string(limit.rlim_cur) +
             " bytes: raise it with `ulimit -f`";
    }
    default: return "";
  }
}

}  // namespace

Failure failure_of(int error, bool write, const std::string& name, int64_t offset, int64_t bytes) {
  return {error, code_of(error),
          std::string(write ? "writing " : "reading ") + std::to_string(bytes) + " bytes at offset " +
              std::to_string(offset) + " of " + name + " failed: " + std::generic_category().message(error) +
              " (errno " + std::to_string(error) + ')' + hint_of(error, write)};
}

Failure past_the_end(const std::string& name, int64_t offset, int64_t bytes, int64_t found) {
  return {0, AA_OUT_OF_RANGE,
          "reading " + std::to_string(bytes) + " bytes at offset " + std::to_string(offset) + " of " + name +
              " failed: the file has " + std::to_string(found) + " bytes, and " + std::to_string(offset + bytes) +
              " are needed; read less, or from an earlier offset"};
}

File::File(std::string path, int fd, bool write)
    : path_(std::move(path)),
      name_(fd < 0 ? path_ : "file descriptor " + std::to_string(fd)),
      write_(write),
      given_fd_(fd) {}

File::~File() { close(); }

void File::close() noexcept {
  for (int* fd : {&readable_fd_, &buffered_fd_, &direct_fd_}) {
    if (*fd >= 0) ::close(*fd);
    *fd = -1;
  }
}

const Failure& File::open(int64_t offset, int64_t bytes) {
  std::lock_guard lock(mutex_);
  if (!opened_) {
    failure_ = do_open(offset, bytes);
    opened_ = true;
  }
  return failure_;
}

// Opens the same file again, whatever has happened to its name since.
int File::reopen(int flags) const {
  const int known = given_fd_ >= 0 ? given_fd_ : direct_fd_ >= 0 ? direct_fd_ : buffered_fd_;
  return ::open(("/proc/self/fd/" + std::to_string(known)).c_str(), flags | O_CLOEXEC);
}

bool File::open_descriptors(int* error) {
  const int access = write_ ? O_WRONLY : O_RDONLY;
  if (given_fd_ >= 0) {
    const int flags = fcntl(given_fd_, F_GETFL);
    if (flags < 0 || (write_ && (flags & O_ACCMODE) == O_RDONLY)) {
      *error = EBADF;
      return false;
    }
    direct_fd_ = reopen(access | O_DIRECT);
    buffered_fd_ = reopen(access);
    // If the file cannot be opened again (its permissions have changed, or there is no /proc), the descriptor is
    // duplicated.
    if (buffered_fd_ < 0 && !(flags & (O_DIRECT | O_APPEND))) buffered_fd_ = fcntl(given_fd_, F_DUPFD_CLOEXEC, 0);
    if (buffered_fd_ < 0) *error = errno;
    return buffered_fd_ >= 0;
  }
  // Opening a pipe would block until its other end is opened.
  struct stat about {};
  if (::stat(path_.c_str(), &about) == 0 && (S_ISFIFO(about.st_mode) || S_ISSOCK(about.st_mode))) {
    *error = ESPIPE;
    return false;
  }
  const int flags = access | O_CLOEXEC | (write_ ? O_CREAT : 0);
  direct_fd_ = ::open(path_.c_str(), flags | O_DIRECT, 0666);
  if (direct_fd_ >= 0) return true;
  // O_CREAT may have created the file although O_DIRECT was refused; this opens it.
  if (errno == EINVAL) {
    buffered_fd_ = ::open(path_.c_str(), flags, 0666);
    if (buffered_fd_ >= 0) return true;
  }
  *error = errno;
  return false;
}

void File::find_alignments() {
  const int64_t page = sysconf(_SC_PAGESIZE);
  offset_alignment_ = usual_offset_alignment;
  memory_alignment_ = usual_memory_alignment;
  bool refused = false;
  struct statx about {};
  if (::statx(direct_fd_, "", AT_EMPTY_PATH, STATX_DIOALIGN, &about) == 0 && (about.stx_mask & STATX_DIOALIGN)) {
    refused = about.stx_dio_offset_align == 0;
    offset_alignment_ = about.stx_dio_offset_align;
    memory_alignment_ = about.stx_dio_mem_align;
  }
  // Bounce buffers are aligned only to a page.
  refused = refused || !std::has_single_bit(static_cast<uint64_t>(offset_alignment_)) ||
            !std::has_single_bit(static_cast<uint64_t>(memory_alignment_)) || memory_alignment_ > page ||
            offset_alignment_ > largest_granule;
  if (refused) {
    give_up_direct("the file system has no direct transfers for this file");
    offset_alignment_ = memory_alignment_ = 1;
    return;
  }
  // With this, an address is aligned either for every aligned offset of a request or for none.
  offset_alignment_ = std::max(offset_alignment_, memory_alignment_);
  struct stat sizes {};
  fstat(direct_fd_, &sizes);
  granule_ = std::max(offset_alignment_, page);
  // A file system that reports a larger "preferred" block means a stripe, not a unit that it writes as a whole.
  const auto block = static_cast<int64_t>(sizes.st_blksize);
  if (block <= largest_granule && std::has_single_bit(static_cast<uint64_t>(block))) {
    granule_ = std::max(granule_, block);
  }
}

Failure File::make_room(int64_t offset, int64_t bytes) {
  if (!regular_) return {};
  // Without this check, the system would kill the process with SIGXFSZ.
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      static_cast<uint64_t>(offset + bytes) > limit.rlim_cur) {
    return failure_of(EFBIG, true, name_, offset, bytes);
  }
  // Direct writes that extend a file are serialized; those into allocated space run in parallel.
  if (direct() && bytes >= 2 * granule_ && offset + bytes > size()) {
    if (fallocate(direct_fd_, 0, offset, bytes) != 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) {
      return failure_of(errno, true, name_, offset, bytes);
    }
  }
  return {};
}

Failure File::do_open(int64_t offset, int64_t bytes) {
  int error = 0;
  if (!open_descriptors(&error)) return failure_of(error, write_, name_, offset, bytes);
  struct stat about {};
  if (fstat(direct_fd_ >= 0 ? direct_fd_ : buffered_fd_, &about) != 0) {
    return failure_of(errno, write_, name_, offset, bytes);
  }
  if (S_ISDIR(about.st_mode)) return failure_of(EISDIR, write_, name_, offset, bytes);
  if (S_ISFIFO(about.st_mode) || S_ISSOCK(about.st_mode)) return failure_of(ESPIPE, write_, name_, offset, bytes);
  regular_ = S_ISREG(about.st_mode);
  if (direct_fd_ >= 0) {
    direct_ = true;
    find_alignments();
  } else if (log_enabled(LogLevel::debug)) {
    log_debug("async I/O: " + name_ + ": O_DIRECT is refused; transfers go through the page cache");
  }
  if (!write_) {
    const int64_t found = size();
    if (found >= 0 && offset + bytes > found) return past_the_end(name_, offset, bytes, found);
    return {};
  }
  return make_room(offset, bytes);
}

int64_t File::size() const {
  const int fd = direct_fd_ >= 0 ? direct_fd_ : buffered_fd_;
  struct stat about {};
  if (fstat(fd, &about) != 0) return -1;
  if (S_ISREG(about.st_mode)) return about.st_size;
  uint64_t bytes = 0;
  if (S_ISBLK(about.st_mode) && ioctl(fd, BLKGETSIZE64, &bytes) == 0) return static_cast<int64_t>(bytes);
  return -1;
}

void File::give_up_direct(const char* why) {
  if (direct_.exchange(false) && log_enabled(LogLevel::debug)) {
    log_debug("async I/O: " + name_ + ": transfers go through the page cache: " + why);
  }
}

int File::buffered_fd() {
  std::lock_guard lock(mutex_);
  if (buffered_fd_ < 0) {
    buffered_fd_ = reopen(write_ ? O_WRONLY : O_RDONLY);
    if (buffered_fd_ < 0 && errno == ENOENT && given_fd_ < 0) {  // no /proc
      buffered_fd_ = ::open(path_.c_str(), (write_ ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
    }
    // Only single pages are read, so reading ahead gains nothing.
    if (buffered_fd_ >= 0 && direct_fd_ >= 0) posix_fadvise(buffered_fd_, 0, 0, POSIX_FADV_RANDOM);
  }
  return buffered_fd_;
}

int File::readable_fd() {
  if (!write_) return buffered_fd();
  std::lock_guard lock(mutex_);
  if (readable_fd_ < 0) {
    readable_fd_ = reopen(O_RDONLY);
    if (readable_fd_ < 0 && errno == ENOENT && given_fd_ < 0)
      readable_fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  }
  return readable_fd_;
}

}  // namespace anyaccel::ops::aio
