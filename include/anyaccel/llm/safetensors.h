// Weights in safetensors files (https://huggingface.co/docs/safetensors): reading through memory maps, and writing.
//
// A file is mapped read-only and nothing is copied; pages come in when first touched. Its bytes are those of the disk, so
// the file must stay as it is while it is open: check_unchanged() tells whether it did, and what was mapped follows what is
// written to it. Touching what was cut off raises SIGBUS, which ends a process unless it has a handler;
// end_process_when_mapped_file_is_cut() installs one. FileAccess::Read does without the mapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "anyaccel/dtype.h"

namespace anyaccel {
class OpenFile;  // base/open_file.h
}

namespace anyaccel::llm {

// One entry of a file's header.
struct TensorInfo {
  std::string name;
  DType dtype = DType::None;
  std::vector<int64_t> shape;  // outermost first; empty for a scalar
  uint64_t offset = 0;         // of the data, in bytes from the start of the file
  uint64_t bytes = 0;
};

// Names and values of a header's "__metadata__".
using SafetensorsMetadata = std::vector<std::pair<std::string, std::string>>;

enum class FileAccess {
  Map,   // data() points into the file
  Read,  // no mapping; data comes by read()
};

// For programs of their own, like the command `anyaccel`: from now on SIGBUS in a file that is mapped here prints one line
// on standard error (the file, and which byte is gone) and ends the process with exit code 1; any other SIGBUS goes where it
// went before. The library never calls it, since signal handlers belong to the program. Any thread; later calls do nothing.
void end_process_when_mapped_file_is_cut();

struct MappedFile;  // llm/checkpoint/mapped_files.h

class SafetensorsFile {
 public:
  // Opens the file and checks its header: lengths against the file's size, every dtype, shape and data range, and that
  // the ranges cover the data without overlap or hole. Throws CheckpointError that names file, tensor and what was
  // expected.
  static std::shared_ptr<const SafetensorsFile> open(const std::filesystem::path& path,
                                                     FileAccess access = FileAccess::Map);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }
  // In the order of their data.
  std::span<const TensorInfo> tensors() const noexcept { return tensors_; }
  const SafetensorsMetadata& metadata() const noexcept { return metadata_; }
  // Null when there is no tensor of that name.
  const TensorInfo* find(std::string_view name) const noexcept;
  // Valid while this object lives. Aligned only as the file is: common writers align to 8 bytes. Null without a mapping.
  const std::byte* data(const TensorInfo& tensor) const noexcept {
    return map_ == nullptr ? nullptr : map_ + tensor.offset;
  }
  // Copies the file's bytes from `offset` on, with or without a mapping. Any thread; blocks. CheckpointError when the file
  // ends before, or cannot be read.
  void read(uint64_t offset, std::span<std::byte> out) const;
  // CheckpointError that names the file and what tells it, when somebody wrote to the file since it was opened: another
  // size, time of modification or time of change. One system call (0.2 us), any thread. What is written within the few
  // milliseconds of the clock of file times since the last change before opening goes unnoticed. A file that was renamed
  // or replaced under its name is unchanged: what is open here is the old one.
  void check_unchanged() const;
  uint64_t file_bytes() const noexcept { return file_bytes_; }

  // Hints to the operating system about `bytes` at `data` within this file's mapping; errors are ignored, as is everything
  // without a mapping.
  void will_need(const std::byte* data, uint64_t bytes) const noexcept;  // start reading, do not wait
  void populate(const std::byte* data, uint64_t bytes) const noexcept;   // read now; blocks where the system can
  void release(const std::byte* data, uint64_t bytes) const noexcept;  // drop this process's pages; data stays readable
  // It will not be read: keeps its pages from being mapped along with neighbours that are.
  void set_apart(const std::byte* data, uint64_t bytes) const noexcept;

 private:
  SafetensorsFile() = default;

  std::filesystem::path path_;
  std::unique_ptr<OpenFile> file_;
  const std::byte* map_ = nullptr;
  MappedFile* mapping_ = nullptr;
  uint64_t file_bytes_ = 0;
  std::vector<TensorInfo> tensors_;
  SafetensorsMetadata metadata_;
  std::unordered_map<std::string_view, size_t> by_name_;  // keys point into tensors_
};

// Parses a header's JSON for data of `data_bytes` that begins `data_start` bytes into the file. For SafetensorsFile and
// its tests. `source` names the file in errors.
std::vector<TensorInfo> parse_safetensors_header(std::string_view json, uint64_t data_start, uint64_t data_bytes,
                                                 std::string_view source, SafetensorsMetadata* metadata = nullptr);

// A tensor of a Checkpoint; valid while the checkpoint, or the file it is in, lives.
struct TensorView {
  DType dtype = DType::None;
  std::span<const int64_t> shape;
  const std::byte* data = nullptr;  // null without a mapping
  uint64_t offset = 0;              // of the data in its file
  uint64_t bytes = 0;
  size_t file = 0;  // which of Checkpoint::files()
};

// The weights of a model directory: model.safetensors, or the shards that model.safetensors.index.json lists.
class Checkpoint {
 public:
  // Opens and checks every file. Throws CheckpointError: for a directory without weights, a damaged file, an index that
  // names a file outside the directory, or a tensor that is not in the shard it should be in.
  static Checkpoint open(const std::filesystem::path& dir, FileAccess access = FileAccess::Map);

  // Null when there is no tensor of that name.
  const TensorView* find(std::string_view name) const noexcept;
  // The same; throws CheckpointError that names the directory instead.
  const TensorView& at(std::string_view name) const;
  // In alphabetical order.
  const std::vector<std::string>& names() const noexcept { return names_; }
  const std::vector<std::shared_ptr<const SafetensorsFile>>& files() const noexcept { return files_; }
  // Bytes of all tensors.
  uint64_t total_bytes() const noexcept { return total_bytes_; }

  // As in SafetensorsFile; check_unchanged() looks at every file.
  void check_unchanged() const;
  void read(const TensorView& view, std::span<std::byte> out) const { files_[view.file]->read(view.offset, out); }
  void will_need(const TensorView& view) const noexcept { files_[view.file]->will_need(view.data, view.bytes); }
  void populate(const TensorView& view) const noexcept { files_[view.file]->populate(view.data, view.bytes); }
  void release(const TensorView& view) const noexcept { files_[view.file]->release(view.data, view.bytes); }
  void set_apart(const TensorView& view) const noexcept { files_[view.file]->set_apart(view.data, view.bytes); }

 private:
  Checkpoint() = default;
  void add(const TensorInfo& tensor, size_t file);

  std::filesystem::path dir_;
  std::vector<std::shared_ptr<const SafetensorsFile>> files_;
  std::unordered_map<std::string_view, TensorView> views_;  // keys point into the files' tensors
  std::vector<std::string> names_;
  uint64_t total_bytes_ = 0;
};

// What a writer is told about a tensor before its data comes.
struct TensorSpec {
  std::string name;
  DType dtype = DType::None;
  std::vector<int64_t> shape;
};

// Writes a safetensors file whose tensors need not be in memory at once. The data goes to a temporary file beside
// `path`, which takes its name in finish(); until then, and when anything fails, `path` is as it was before.
class SafetensorsWriter {
 public:
  // Writes the header. The data of the first tensor begins at a multiple of 64 bytes; the others follow without gaps.
  // InvalidArgument for a repeated, empty or reserved name, text that is not UTF-8, or a bad dtype or shape; Error when
  // the file cannot be written.
  SafetensorsWriter(std::filesystem::path path, std::vector<TensorSpec> tensors,
                    const SafetensorsMetadata& metadata = {});
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // The next bytes of the data, tensor after tensor in the order announced; a call may end or begin anywhere. Blocks.
  // InvalidArgument for more than was announced; Error when writing fails.
  void append(std::span<const std::byte> bytes);
  // All data was given: the file goes to disk and gets its name. InvalidArgument when data is missing (naming the
  // tensor); Error when writing fails.
  void finish();

  // Bytes of data given so far, and announced.
  uint64_t written() const noexcept { return written_; }
  uint64_t total() const noexcept { return total_; }

 private:
  void write_all(const void* data, size_t bytes);

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  std::vector<TensorSpec> tensors_;
  int fd_ = -1;
  uint64_t written_ = 0;
  uint64_t total_ = 0;
};

// The same in one call; data[i] holds the bytes of tensors[i].
void write_safetensors(const std::filesystem::path& path, std::vector<TensorSpec> tensors,
                       std::span<const std::span<const std::byte>> data, const SafetensorsMetadata& metadata = {});

}  // namespace anyaccel::llm
