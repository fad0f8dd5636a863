// Implements memory-mapped safetensors files.
#include "anyaccel/llm/safetensors.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#include "anyaccel/error.h"
#include "base/files/open_file.h"
#include "base/process/large_pages.h"
#include "llm/checkpoint/mapped_files.h"

namespace anyaccel::llm {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian and used in place");

constexpr uint64_t length_bytes = 8;
// The limit of the format's own reader.
constexpr uint64_t max_header_bytes = 100'000'000;

std::string system_error_text() { return std::strerror(errno); }

// Returns the whole pages inside [data, data + bytes), or with `touching` those that overlap it.
std::span<std::byte> pages(const std::byte* data, uint64_t bytes, bool touching) {
  if (data == nullptr) return {};
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

WeightFile::WeightFile(const std::filesystem::path& path)
    : path_(path), file_(std::make_unique<OpenFile>(path)), file_bytes_(file_->bytes()) {}

void WeightFile::set_tensors(std::vector<TensorInfo> tensors, FileAccess access) {
  tensors_ = std::move(tensors);
  by_name_.reserve(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) by_name_.emplace(tensors_[i].name, i);
  if (access != FileAccess::Map) return;
  const std::string name = path_.string();
  void* map = ::mmap(nullptr, file_bytes_, PROT_READ, MAP_PRIVATE, file_->descriptor(), 0);
  if (map == MAP_FAILED) throw CheckpointError(name + ": cannot be mapped: " + system_error_text());
  // What is not in the page cache yet comes into it in pages of 2 MiB when it is accessed, where the file system has them
  // (ext4 since Linux 6.16). Two cores of a Zen 4 decoded a Q4_0 model 1.5 times as fast from them as from pages of 4 KiB.
  advise({static_cast<std::byte*>(map), file_bytes_}, MADV_HUGEPAGE);
  map_ = static_cast<const std::byte*>(map);
  mapping_ = remember_mapping(map_, file_bytes_, name);
  large_pages_ = std::make_unique<LargePages>(mapping(), file_->descriptor());
}

WeightFile::~WeightFile() {
  if (map_ == nullptr) return;
  if (mapping_ != nullptr) forget_mapping(mapping_);
  ::munmap(const_cast<std::byte*>(map_), file_bytes_);
}

std::shared_ptr<const SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path, FileAccess access) {
  const std::string name = path.string();
  std::shared_ptr<SafetensorsFile> file(new SafetensorsFile(path));
  const uint64_t size = file->file_bytes();
  if (size < length_bytes) {
    throw CheckpointError(name + ": has " + std::to_string(size) +
                          " bytes; expected at least 8 for the header's length");
  }
  uint64_t header_bytes = 0;
  file->read(0, std::as_writable_bytes(std::span(&header_bytes, 1)));
  if (header_bytes > max_header_bytes || header_bytes > size - length_bytes) {
    throw CheckpointError(name + ": the first 8 bytes give the header's length as " + std::to_string(header_bytes) +
                          "; expected at most " + std::to_string(std::min(max_header_bytes, size - length_bytes)) +
                          ": the file is cut short or no safetensors file");
  }
  const uint64_t data_start = length_bytes + header_bytes;
  std::string json(header_bytes, '\0');
  file->read(length_bytes, std::as_writable_bytes(std::span(json)));
  file->set_tensors(parse_safetensors_header(json, data_start, size - data_start, name, &file->metadata_), access);
  return file;
}

void WeightFile::read(uint64_t offset, std::span<std::byte> out) const { file_->read(offset, out); }

void WeightFile::check_unchanged() const { file_->check_unchanged(); }

const TensorInfo* WeightFile::find(std::string_view name) const noexcept {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

void WeightFile::will_need(const std::byte* data, uint64_t bytes) const noexcept {
  advise(pages(data, bytes, true), MADV_WILLNEED);
}

void WeightFile::populate(const std::byte* data, uint64_t bytes) const noexcept {
  const std::span<std::byte> range = pages(data, bytes, true);
#ifdef MADV_POPULATE_READ
  if (range.empty() || ::madvise(range.data(), range.size(), MADV_POPULATE_READ) == 0) return;
#endif
  advise(range, MADV_WILLNEED);
}

size_t WeightFile::find_small_pages() const { return large_pages_ == nullptr ? 0 : large_pages_->find(); }

size_t WeightFile::move_to_large_pages(size_t bytes) const noexcept {
  return large_pages_ == nullptr ? 0 : large_pages_->move(bytes);
}

bool WeightFile::refuses_large_pages() const noexcept { return large_pages_ != nullptr && large_pages_->refused(); }

bool WeightFile::is_in_memory(const std::byte* data, uint64_t bytes) const noexcept {
  std::array<unsigned char, 4096> pages_in_memory;
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  std::span<std::byte> range = pages(data, bytes, true);
  while (!range.empty()) {
    const std::span<std::byte> some = range.first(std::min(range.size(), pages_in_memory.size() * page));
    if (::mincore(some.data(), some.size(), pages_in_memory.data()) != 0) return true;
    const auto count = static_cast<ptrdiff_t>((some.size() + page - 1) / page);
    if (!std::all_of(pages_in_memory.begin(), pages_in_memory.begin() + count,
                     [](auto state) { return (state & 1) != 0; })) {
      return false;
    }
    range = range.subspan(some.size());
  }
  return true;
}

void WeightFile::set_apart(const std::byte* data, uint64_t bytes) const noexcept {
  // If the page cache has a contiguous 2 MiB page, accessing any of it maps all of it, but not across a boundary
  // between mappings with different advice, which this call creates.
  advise(pages(data, bytes, false), MADV_NOHUGEPAGE);
}

void WeightFile::release(const std::byte* data, uint64_t bytes) const noexcept {
  if (large_pages_ != nullptr && large_pages_->has_moved()) return;
  advise(pages(data, bytes, false), MADV_DONTNEED);
}

}  // namespace anyaccel::llm
