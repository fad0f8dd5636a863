// Reads weights in safetensors files (https://huggingface.co/docs/safetensors) and GGUF files
// (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md) through memory maps, and writes safetensors.
//
// A file is mapped read-only and nothing is copied; pages are read when first accessed. The file must not change while
// it is open, since changes show through the mapping: check_unchanged() detects them. Accessing a truncated part raises
// SIGBUS, which ends a process unless it has a handler; end_process_when_mapped_file_is_cut() installs one.
// FileAccess::Read does not use a mapping.
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
struct BlockFormat;  // base/block_format.h
class NewFile;       // base/files/new_file.h
class OpenFile;      // base/files/open_file.h
class LargePages;    // base/process/large_pages.h
}  // namespace anyaccel

namespace anyaccel::llm {

// One entry of a file's header.
struct TensorInfo {
  std::string name;
  DType dtype = DType::None;   // of the values: F32 for quantized ones
  std::vector<int64_t> shape;  // outermost first; empty for a scalar
  uint64_t offset = 0;         // of the data, in bytes from the start of the file
  uint64_t bytes = 0;
  // 0, or the number of rows of a head, if its rows are stored as pairs that are rotated together: stored row 2 j + p
  // of a head is row p * head / 2 + j (GGUF files of llama models).
  int64_t paired_rows = 0;
  // The format in which the data is quantized (tensors of GGUF files with two dimensions, whose rows are whole blocks);
  // null: it is not quantized.
  const BlockFormat* format = nullptr;
};

// Names and values of a header's "__metadata__".
using SafetensorsMetadata = std::vector<std::pair<std::string, std::string>>;

enum class FileAccess {
  Map,   // data() points into the file
  Read,  // no mapping; data is read with read()
};

// For programs such as the command `anyaccel`: after this call a SIGBUS in a file that is mapped here prints one line
// on standard error (the file and the offset of the missing byte) and ends the process with exit code 1; any other
// SIGBUS is passed to the previous handler. The library never calls this itself, since signal handlers belong to the
// program. May be called by any thread; later calls do nothing.
void end_process_when_mapped_file_is_cut();

struct MappedFile;   // llm/checkpoint/mapped_files.h
class PackedMatrix;  // llm/checkpoint/packed_matrix.h

// An open file of tensors, in either format.
class WeightFile {
 public:
  virtual ~WeightFile();
  WeightFile(const WeightFile&) = delete;
  WeightFile& operator=(const WeightFile&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }
  // Returns the tensors in the order of their data.
  std::span<const TensorInfo> tensors() const noexcept { return tensors_; }
  // Returns null if there is no tensor of that name.
  const TensorInfo* find(std::string_view name) const noexcept;
  // Returns the address of the data, which is valid while this object lives; null without a mapping. It is aligned as
  // in the file: common writers align to 8 bytes.
  const std::byte* data(const TensorInfo& tensor) const noexcept {
    return map_ == nullptr ? nullptr : map_ + tensor.offset;
  }
  // Returns the whole file; empty without a mapping. Valid while this object lives.
  std::span<const std::byte> mapping() const noexcept { return {map_, map_ == nullptr ? 0 : file_bytes_}; }
  // Copies the file's bytes from `offset` on, with or without a mapping. May be called by any thread; blocks. Throws
  // CheckpointError if the file ends too early or cannot be read.
  void read(uint64_t offset, std::span<std::byte> out) const;
  // Throws CheckpointError, naming the file and the difference, if the file was written to since it was opened: its
  // size, modification time or change time differs. It makes one system call (0.2 us) and may be called by any thread.
  // A write within the few milliseconds of timestamp resolution after the last change before opening is not detected. A
  // file that was renamed or replaced counts as unchanged: this object keeps the old one open.
  void check_unchanged() const;
  uint64_t file_bytes() const noexcept { return file_bytes_; }

  // Hints to the operating system about `bytes` at `data` within this file's mapping; errors are ignored, as is
  // everything without a mapping.
  void will_need(const std::byte* data, uint64_t bytes) const noexcept;  // starts reading, does not wait
  void populate(const std::byte* data, uint64_t bytes) const noexcept;   // reads now; blocks if the system supports it
  void release(const std::byte* data, uint64_t bytes) const noexcept;    // drops pages; data stays readable
  // says that the data will not be read, so that its pages are not mapped together with neighbours that will be
  void set_apart(const std::byte* data, uint64_t bytes) const noexcept;

  // Returns the bytes of the mapping that this process accessed and that lie in small pages; `move_to_large_pages` moves up to `bytes`
  // of these into pages of 2 MiB, at the same addresses, and returns how many it moved: 0 if there are no more, or if the system
  // refuses memory or large pages. One thread at a time, while others may read, but not call release(), which does nothing from then
  // on. Without a mapping both return 0.
  size_t find_small_pages() const;
  size_t move_to_large_pages(size_t bytes) const noexcept;
  bool refuses_large_pages() const noexcept;

  // Returns whether every page is in the system's page cache; true without a mapping, or if the system does not say.
  bool is_in_memory(const std::byte* data, uint64_t bytes) const noexcept;

 protected:
  explicit WeightFile(const std::filesystem::path& path);
  // Stores the tensors, and maps the file if `access` says so. Called once, after the header was read.
  void set_tensors(std::vector<TensorInfo> tensors, FileAccess access);

 private:
  std::filesystem::path path_;
  std::unique_ptr<OpenFile> file_;
  const std::byte* map_ = nullptr;
  MappedFile* mapping_ = nullptr;
  std::unique_ptr<LargePages> large_pages_;  // null without a mapping
  uint64_t file_bytes_ = 0;
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string_view, size_t> by_name_;  // keys point into tensors_
};

class SafetensorsFile : public WeightFile {
 public:
  // Opens the file and checks its header: lengths against the file's size, every dtype, shape and data range, and that
  // the ranges cover the data without overlap or hole. Throws CheckpointError that names file, tensor and what was
  // expected.
  static std::shared_ptr<const SafetensorsFile> open(const std::filesystem::path& path,
                                                     FileAccess access = FileAccess::Map);
  const SafetensorsMetadata& metadata() const noexcept { return metadata_; }

 private:
  using WeightFile::WeightFile;

  SafetensorsMetadata metadata_;
};

// Parses a header's JSON for data of `data_bytes` that begins `data_start` bytes into the file. For SafetensorsFile and
// its tests. `source` names the file in errors.
std::vector<TensorInfo> parse_safetensors_header(std::string_view json, uint64_t data_start, uint64_t data_bytes,
                                                 std::string_view source, SafetensorsMetadata* metadata = nullptr);

// A tensor of a Checkpoint; valid while the checkpoint, or the file it is in, exists.
struct TensorView {
  DType dtype = DType::None;
  std::span<const int64_t> shape;
  const std::byte* data = nullptr;  // null without a mapping
  uint64_t offset = 0;              // of the data in its file
  uint64_t bytes = 0;
  size_t file = 0;                      // which of Checkpoint::files()
  int64_t paired_rows = 0;              // as in TensorInfo
  const BlockFormat* format = nullptr;  // as in TensorInfo
  // Not null: the weights are in several tensors of a quantized directory, and `data`, `offset` and `file` mean
  // nothing.
  const PackedMatrix* packed = nullptr;
};

// The weights of a model directory: model.safetensors, or the shards that model.safetensors.index.json lists; or a GGUF
// file with its further parts, whose tensors have the names that they have in a directory.
class Checkpoint {
 public:
  // Opens and checks every file. Throws CheckpointError for a directory without weights, a damaged file, an index that
  // names a file outside the directory, a tensor that is not in the file that the index names, or a GGUF file with a
  // tensor whose name or type is not known.
  static Checkpoint open(const std::filesystem::path& model, FileAccess access = FileAccess::Map);

  // Returns null if there is no tensor of that name.
  const TensorView* find(std::string_view name) const noexcept;
  // The same, but throws CheckpointError that names the directory.
  const TensorView& at(std::string_view name) const;
  // Returns the names in alphabetical order.
  const std::vector<std::string>& names() const noexcept { return names_; }
  const std::vector<std::shared_ptr<const WeightFile>>& files() const noexcept { return files_; }
  // Returns the bytes of all tensors.
  uint64_t total_bytes() const noexcept { return total_bytes_; }

  // The same as in SafetensorsFile; check_unchanged() checks every file.
  void check_unchanged() const;
  void read(const TensorView& view, std::span<std::byte> out) const { files_[view.file]->read(view.offset, out); }
  void will_need(const TensorView& view) const noexcept { files_[view.file]->will_need(view.data, view.bytes); }
  void populate(const TensorView& view) const noexcept { files_[view.file]->populate(view.data, view.bytes); }
  bool is_in_memory(const TensorView& view) const noexcept {
    return files_[view.file]->is_in_memory(view.data, view.bytes);
  }
  void release(const TensorView& view) const noexcept { files_[view.file]->release(view.data, view.bytes); }
  void set_apart(const TensorView& view) const noexcept { files_[view.file]->set_apart(view.data, view.bytes); }

 private:
  Checkpoint() = default;
  void add(const TensorInfo& tensor, size_t file);

  std::filesystem::path dir_;
  std::vector<std::shared_ptr<const WeightFile>> files_;
  std::unordered_map<std::string_view, TensorView> views_;  // keys point into the files' tensors
  std::vector<std::string> names_;
  uint64_t total_bytes_ = 0;
};

// The description of a tensor that a writer needs before its data.
struct TensorSpec {
  std::string name;
  DType dtype = DType::None;
  std::vector<int64_t> shape;
};

// Writes a safetensors file whose tensors need not be in memory at once. The data is written to a temporary file beside
// `path`, which finish() renames to `path`; until then, and on any failure, `path` is unchanged.
class SafetensorsWriter {
 public:
  // Writes the header. The data of the first tensor begins at a multiple of 64 bytes; the others follow without gaps.
  // Throws InvalidArgument for a repeated, empty or reserved name, text that is not UTF-8, or a bad dtype or shape;
  // Error when the file cannot be written.
  SafetensorsWriter(std::filesystem::path path, std::vector<TensorSpec> tensors,
                    const SafetensorsMetadata& metadata = {});
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // Writes the next bytes of the data, tensor after tensor in the declared order; a call may begin and end anywhere.
  // Blocks. Throws InvalidArgument for more data than was declared; Error if writing fails.
  void append(std::span<const std::byte> bytes);
  // Flushes the file to disk and renames it; call it after all data was written. Throws InvalidArgument if data is
  // missing (naming the tensor); Error if writing fails.
  void finish();

  // Return the bytes of data written so far, and declared in total.
  uint64_t written() const noexcept { return written_; }
  uint64_t total() const noexcept { return total_; }

 private:
  std::filesystem::path path_;
  std::vector<TensorSpec> tensors_;
  std::unique_ptr<NewFile> file_;
  uint64_t written_ = 0;
  uint64_t total_ = 0;
};

// Writes a file in one call; data[i] holds the bytes of tensors[i].
void write_safetensors(const std::filesystem::path& path, std::vector<TensorSpec> tensors,
                       std::span<const std::span<const std::byte>> data, const SafetensorsMetadata& metadata = {});

}  // namespace anyaccel::llm
