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

// The types of the keys' values, numbered as in the files.
enum class GgufType : uint32_t { U8, I8, U16, I16, U32, I32, F32, Bool, Text, List, U64, I64, F64 };

// The value of a key: a single value is a list of one element. Booleans are the integers 0 and 1.
struct GgufValue {
  bool is_list = false;
  bool is_bool = false;
  GgufType type = GgufType::U8;  // of the elements; not List
  // Those of type U64 as the same 64 bits. No key that is read may have a number beyond 63 bits; those of other programs do (hashes, seeds).
  std::variant<std::vector<int64_t>, std::vector<double>, std::vector<std::string>> elements;
};

// The key-value pairs. Reading a key throws a CheckpointError that names the file, the key, what was found and what was
// expected; the keys that were never read can be listed.
class GgufMetadata {
 public:
  explicit GgufMetadata(std::string source = {}) : source_(std::move(source)) {}

  // Returns false if the key exists already.
  bool add(std::string key, GgufValue value) { return values_.try_emplace(std::move(key), std::move(value)).second; }
  bool has(std::string_view key) const { return find(key) != nullptr; }
  // If the key is missing, these return nothing or `fallback`; required_...() fail.
  std::optional<std::string> text(std::string_view key) const;
  std::optional<int64_t> whole(std::string_view key, int64_t least, int64_t most) const;
  std::optional<double> number(std::string_view key, double least, double most) const;
  bool flag(std::string_view key, bool fallback) const;
  std::string required_text(std::string_view key) const;
  int64_t required_whole(std::string_view key, int64_t least, int64_t most) const;
  double required_number(std::string_view key, double least, double most) const;
  // Returns an integer that may be given once or once for each layer; the values of all layers must be equal.
  std::optional<int64_t> whole_of_layers(std::string_view key, int64_t least, int64_t most, int64_t layers) const;
  // Returns a list of truth values; empty for a missing key or a single number.
  std::vector<uint8_t> flags(std::string_view key) const;
  // These return null for a missing key.
  const std::vector<std::string>* texts(std::string_view key) const;
  const std::vector<int64_t>* wholes(std::string_view key) const;
  std::vector<double> numbers(std::string_view key) const;  // of either kind of number; empty for a missing key

  // Returns the keys with this prefix that no call has read.
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

// Fills the span with the file's bytes starting at an offset; it is called only for bytes within the file.
using GgufRead = std::function<void(uint64_t offset, std::span<std::byte> out)>;

// Reads a header and checks every count and length against the file's size before memory is allocated, types, shapes,
// alignment, and that each tensor's data follows that of the previous one and lies in the file. CheckpointError names
// `source`, the key or tensor, what was found and what was expected.
GgufHeader parse_gguf_header(const GgufRead& read, uint64_t file_bytes, const std::string& source);

// Returns "Q4_0", for example; "type 77" for an unknown type.
std::string ggml_type_name(uint32_t type);

struct GgmlBlock {
  uint64_t values = 0;
  uint64_t bytes = 0;
};
// Returns the size of a block of a known type; for types that are not quantized, a block is a single value.
GgmlBlock ggml_block(uint32_t type);

bool is_gguf(const std::filesystem::path& model);

// The files of a model: one, or all parts of a split one in order. The first part has the metadata. Any thread may read
// it.
struct GgufModel {
  std::vector<std::filesystem::path> paths;
  std::deque<GgufHeader> parts;  // keeps its elements in place, so that metadata() stays valid while parts are added
  std::deque<OpenFile> files;

  const GgufMetadata& metadata() const { return parts.front().metadata; }
  // Returns null when no part has the tensor. `part` receives the index of its part.
  const GgufTensor* find(std::string_view name, size_t* part = nullptr) const;
};

// Opens the file and its further parts. CheckpointError if `path` is not the first part, a part is missing or is not
// the part that its name says, or a tensor is in two parts. As long as a result is held anywhere, further calls for the
// same unchanged files return it again without reading them: code that starts a model holds one, so that each header is
// read once. Any thread.
std::shared_ptr<const GgufModel> open_gguf(const std::filesystem::path& path);

// Returns whether the model is one of the first four families (or InternLM 2, which is computed as Llama), whose tensors
// get the names of a Hugging Face directory. Those of other families keep the names of the file.
bool gguf_is_of_first_families(const GgufMetadata& metadata);
// Returns the number of rows of a query or key head: the key_length, else the number that follows from the other sizes.
int64_t gguf_head_size(const GgufMetadata& metadata);
// Returns the same for an architecture whose files store the rows of a head as pairs (TensorInfo::paired_rows); else 0.
int64_t gguf_paired_head(const GgufMetadata& metadata);

// Opens the parts as files of tensors. CheckpointError for a tensor whose name is unknown in the first four families, or
// whose type is not supported in computations.
std::vector<std::shared_ptr<const WeightFile>> open_gguf_weights(const std::filesystem::path& path, FileAccess access);

}  // namespace anyaccel::llm
