// Reads GGUF files (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md): the header with its key-value pairs and
// tensor descriptions, versions 2 and 3, little-endian, also split over several files.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "anyaccel/llm/safetensors.h"
#include "base/files/open_file.h"

namespace anyaccel::llm {

// The types of values of keys, as files number them.
enum class GgufType : uint32_t { U8, I8, U16, I16, U32, I32, F32, Bool, Text, List, U64, I64, F64 };

// A value of one key: a single value is a list of one. Booleans are whole numbers 0 and 1.
struct GgufValue {
  bool is_list = false;
  bool is_bool = false;
  GgufType type = GgufType::U8;  // of the elements; not List
  std::variant<std::vector<int64_t>, std::vector<double>, std::vector<std::string>> elements;
};

// The key-value pairs. Every read of a key throws CheckpointError that names the file, the key, what was found and what
// was expected; keys that were never read can be listed.
class GgufMetadata {
 public:
  explicit GgufMetadata(std::string source = {}) : source_(std::move(source)) {}

  // False if the key is there already.
  bool add(std::string key, GgufValue value) { return values_.try_emplace(std::move(key), std::move(value)).second; }
  bool has(std::string_view key) const { return find(key) != nullptr; }
  // A missing key: nothing; `fallback`; or, in required_...(), an error.
  std::optional<std::string> text(std::string_view key) const;
  std::optional<int64_t> whole(std::string_view key, int64_t least, int64_t most) const;
  std::optional<double> number(std::string_view key, double least, double most) const;
  bool flag(std::string_view key, bool fallback) const;
  std::string required_text(std::string_view key) const;
  int64_t required_whole(std::string_view key, int64_t least, int64_t most) const;
  double required_number(std::string_view key, double least, double most) const;
  // A whole number that may be given once or once for each layer; the values of all layers must be equal.
  std::optional<int64_t> whole_of_layers(std::string_view key, int64_t least, int64_t most, int64_t layers) const;
  // Null for a missing key.
  const std::vector<std::string>* texts(std::string_view key) const;
  const std::vector<int64_t>* wholes(std::string_view key) const;
  std::vector<double> numbers(std::string_view key) const;  // of either kind of number; empty for a missing key

  // The keys with this prefix that no call has read.
  std::vector<std::string> unread(std::string_view prefix) const;
  // Calls use(key, value) for every pair, in the order of the keys.
  template <class Use>
  void for_each(const Use& use) const {
    for (const auto& [key, entry] : values_) use(key, entry.value);
  }
  const std::string& source() const noexcept { return source_; }
  [[noreturn]] void error(std::string_view key, const std::string& what) const;

 private:
  const GgufValue* find(std::string_view key) const;
  const GgufValue* single(std::string_view key, const char* expected) const;

  struct Entry {
    explicit Entry(GgufValue from) : value(std::move(from)) {}
    GgufValue value;
    mutable std::atomic<bool> is_read{false};  // several threads may read
  };

  std::string source_;
  std::map<std::string, Entry, std::less<>> values_;
};

struct GgufTensor {
  std::string name;
  uint32_t type = 0;           // of ggml
  std::vector<int64_t> shape;  // outermost first
  uint64_t offset = 0;         // of the data, in bytes from the start of the file
  uint64_t bytes = 0;
};

struct GgufHeader {
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;  // in the order of the file
};

// Fills the span with the file's bytes from an offset on; asked only for bytes within the file.
using GgufRead = std::function<void(uint64_t offset, std::span<std::byte> out)>;

// Reads and checks a header: every count and length against the file's size before memory is allocated, types, shapes,
// alignment, and that each tensor's data follows the one before it and lies in the file. CheckpointError names
// `source`, the key or tensor, what was found and what was expected.
GgufHeader parse_gguf_header(const GgufRead& read, uint64_t file_bytes, const std::string& source);

// "Q4_0"; "type 77" for one that is not known.
std::string ggml_type_name(uint32_t type);

struct GgmlBlock {
  uint64_t values = 0;
  uint64_t bytes = 0;
};
// The size of a block of a type that is known; of single values for types that are not quantized.
GgmlBlock ggml_block(uint32_t type);

bool is_gguf(const std::filesystem::path& model);

// The files of a model: a first one, and the further parts of a split one in their order. The first part has the
// metadata. Any thread may read it.
struct GgufModel {
  std::vector<std::filesystem::path> paths;
  std::deque<GgufHeader> parts;  // keeps its elements in place, so that metadata() stays valid while parts are added
  std::deque<OpenFile> files;

  const GgufMetadata& metadata() const { return parts.front().metadata; }
  // Null when no part has the tensor. `part`: receives the index of its part.
  const GgufTensor* find(std::string_view name, size_t* part = nullptr) const;
};

// Opens the file and its further parts. CheckpointError if `path` is not the first part, a part is missing or is another
// part than its name says, or a tensor is in two parts. While a result is held anywhere, further calls for the same
// unchanged files give it again without reading them: what starts a model holds one, so that each header is read once.
// Any thread.
std::shared_ptr<const GgufModel> open_gguf(const std::filesystem::path& path);

// Rows of a query or key head: the key_length, else what follows from the other sizes.
int64_t gguf_head_size(const GgufMetadata& metadata);
// The same for an architecture whose files store the rows of a head as pairs (TensorInfo::paired_rows); else 0.
int64_t gguf_paired_head(const GgufMetadata& metadata);

// Opens the parts as files of tensors with the names of a Hugging Face directory. CheckpointError for a tensor whose
// name is not known, or whose type cannot be computed with.
std::vector<std::shared_ptr<const WeightFile>> open_gguf_weights(const std::filesystem::path& path, FileAccess access);

}  // namespace anyaccel::llm
