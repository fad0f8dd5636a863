// Implements files.h: files of the reference driver.
#include "files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "device.h"
#include "mutations.h"

namespace reference {
namespace {

class File final : public abi::DirectFile {
 public:
  File(Device& device, int descriptor) : device_(device) {
    const int access = fcntl(descriptor, F_GETFL) & O_ACCMODE;
    fd_ = ::open(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), access | O_CLOEXEC);
    if (fd_ < 0) throw abi::Failure(AA_INVALID_ARGUMENT, std::string("the descriptor: ") + std::strerror(errno), errno);
  }
  ~File() override { ::close(fd_); }

  size_t read(const aa_file_transfer& what) override {
    unsigned char* const to = memory_of(what);
    ssize_t got = ::pread(fd_, to, what.size, what.file_offset);
    if (got < 0) fail();
    if (mutated(Mutation::file_reads_lose_a_byte)) to[what.size - 1] ^= 1;
    if (mutated(Mutation::file_reads_do_not_end)) got = static_cast<ssize_t>(what.size);
    return static_cast<size_t>(got);
  }
  size_t write(const aa_file_transfer& what) override {
    const off_t at = mutated(Mutation::file_writes_begin_with_the_file) ? 0 : what.file_offset;
    const ssize_t put = ::pwrite(fd_, memory_of(what), what.size, at);
    if (put < 0 && mutated(Mutation::files_for_reading_are_written)) return what.size;
    if (put < 0) fail();
    return static_cast<size_t>(put);
  }

 private:
  unsigned char* memory_of(const aa_file_transfer& what) const {
    unsigned char* const found = device_.view(what.pointer, what.size);
    if (!found) throw abi::Failure(AA_INVALID_ARGUMENT, "the range is in no memory of the device");
    return found;
  }
  [[noreturn]] static void fail() {
    throw abi::Failure(AA_UNKNOWN, std::string("the file: ") + std::strerror(errno), errno);
  }

  Device& device_;
  int fd_ = -1;
};

}  // namespace

void FileMemory::add(void* pointer, size_t size) {
  auto* const begin = static_cast<char*>(pointer);
  const std::lock_guard lock(mutex_);
  const auto after = ranges_.lower_bound(begin + size);
  const bool taken = after != ranges_.begin() && std::prev(after)->first + std::prev(after)->second > begin;
  if (taken && !mutated(Mutation::memory_is_registered_twice)) {
    throw abi::Failure(AA_ALREADY_EXISTS, "the memory is registered");
  }
  ranges_[begin] = size;
}

void FileMemory::remove(void* pointer) {
  const std::lock_guard lock(mutex_);
  if (ranges_.erase(static_cast<char*>(pointer)) == 0 && !mutated(Mutation::unregistered_memory_is_unregistered)) {
    throw abi::Failure(AA_NOT_FOUND, "the memory is not registered");
  }
}

void describe_files(aa_files_info& info) {
  info.usable = mutated(Mutation::files_are_denied) ? 0 : 1;
  if (!mutated(Mutation::files_have_no_text)) abi::copy_text(info.text, "the reference driver's page cache");
}

std::unique_ptr<abi::DirectFile> open_file(Device& device, int descriptor) {
  return std::make_unique<File>(device, descriptor);
}

}  // namespace reference
