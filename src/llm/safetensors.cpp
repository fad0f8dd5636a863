// Memory-mapped safetensors files.
#include "anyaccel/llm/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>

#include "anyaccel/error.h"

namespace anyaccel::llm {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian and used in place");

constexpr uint64_t length_bytes = 8;
// The limit of the format's own reader.
constexpr uint64_t max_header_bytes = 100'000'000;

class FileDescriptor {
 public:
  // Not blocking: the path may be a pipe that nobody writes to.
  explicit FileDescriptor(const std::filesystem::path& path)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

std::string system_error_text() { return std::strerror(errno); }

// The whole pages inside [data, data + bytes), or those that touch it.
std::span<std::byte> pages(const std::byte* data, uint64_t bytes, bool touching) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  auto begin = reinterpret_cast<uintptr_t>(data);
  uintptr_t end = begin + bytes;
  if (touching) {
    begin = begin / page * page;
  } else {
    begin = (begin + page - 1) / page * page;
    end = end / page * page;
  }
  if (begin >= end) return {};
  return {reinterpret_cast<std::byte*>(begin), end - begin};  // NOLINT(performance-no-int-to-ptr)
}

void advise(std::span<std::byte> range, int advice) {
  if (!range.empty()) ::madvise(range.data(), range.size(), advice);
}

}  // namespace

std::shared_ptr<const SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  const std::string name = path.string();
  const FileDescriptor fd(path);
  if (fd.get() < 0) throw CheckpointError(name + ": cannot be opened: " + system_error_text());
  struct stat status = {};
  if (::fstat(fd.get(), &status) != 0) throw CheckpointError(name + ": cannot be read: " + system_error_text());
  if (!S_ISREG(status.st_mode)) throw CheckpointError(name + ": not a file");
  const auto size = static_cast<uint64_t>(status.st_size);
  if (size < length_bytes) {
    throw CheckpointError(name + ": has " + std::to_string(size) +
                          " bytes; expected at least 8 for the header's length");
  }
  void* map = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (map == MAP_FAILED) throw CheckpointError(name + ": cannot be mapped: " + system_error_text());

  std::shared_ptr<SafetensorsFile> file(new SafetensorsFile);
  file->path_ = path;
  file->map_ = static_cast<const std::byte*>(map);
  file->map_bytes_ = size;
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, map, sizeof header_bytes);
  if (header_bytes > max_header_bytes || header_bytes > size - length_bytes) {
    throw CheckpointError(name + ": the first 8 bytes give the header's length as " + std::to_string(header_bytes) +
                          "; expected at most " + std::to_string(std::min(max_header_bytes, size - length_bytes)) +
                          ": the file is cut short or no safetensors file");
  }
  const uint64_t data_start = length_bytes + header_bytes;
  const std::string_view json(static_cast<const char*>(map) + length_bytes, header_bytes);
  file->tensors_ = parse_safetensors_header(json, data_start, size - data_start, name, &file->metadata_);
  file->by_name_.reserve(file->tensors_.size());
  for (size_t i = 0; i < file->tensors_.size(); ++i) file->by_name_.emplace(file->tensors_[i].name, i);
  return file;
}

SafetensorsFile::~SafetensorsFile() {
  if (map_ != nullptr) ::munmap(const_cast<std::byte*>(map_), map_bytes_);
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const noexcept {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

void SafetensorsFile::will_need(const std::byte* data, uint64_t bytes) const noexcept {
  advise(pages(data, bytes, true), MADV_WILLNEED);
}

void SafetensorsFile::populate(const std::byte* data, uint64_t bytes) const noexcept {
  const std::span<std::byte> range = pages(data, bytes, true);
#ifdef MADV_POPULATE_READ
  if (range.empty() || ::madvise(range.data(), range.size(), MADV_POPULATE_READ) == 0) return;
#endif
  advise(range, MADV_WILLNEED);
}

void SafetensorsFile::set_apart(const std::byte* data, uint64_t bytes) const noexcept {
  // Where the page cache holds 2 MiB in one piece, touching any of it maps all, but not across a border of mappings of
  // different kinds, which this advice makes.
  advise(pages(data, bytes, false), MADV_NOHUGEPAGE);
}

void SafetensorsFile::release(const std::byte* data, uint64_t bytes) const noexcept {
  advise(pages(data, bytes, false), MADV_DONTNEED);
}

}  // namespace anyaccel::llm
