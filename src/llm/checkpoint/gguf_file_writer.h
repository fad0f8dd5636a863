// Writes GGUF files (version 3, little-endian).
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files/new_file.h"
#include "llm/checkpoint/gguf.h"

namespace anyaccel::llm {

// Key-value pairs, encoded as in a file. A key must not be added twice.
class GgufKeys {
 public:
  void add(std::string_view key, const GgufValue& value);
  void add_text(std::string_view key, std::string_view text);
  void add_whole(std::string_view key, int64_t value);  // 0 to 2^32 - 1, stored as U32; else InvalidArgument
  void add_number(std::string_view key, double value);  // as F32
  void add_flag(std::string_view key, bool value);
  void add_texts(std::string_view key, const std::vector<std::string>& texts);
  void add_wholes(std::string_view key, const std::vector<int32_t>& values);
  void add_numbers(std::string_view key, const std::vector<float>& values);

  uint64_t count() const noexcept { return count_; }
  const std::string& bytes() const noexcept { return bytes_; }

 private:
  void begin(std::string_view key, GgufType type);
  void begin_list(std::string_view key, GgufType type, size_t count);

  std::string bytes_;
  uint64_t count_ = 0;
};

struct GgufTensorSpec {
  std::string name;
  uint32_t type = 0;           // of ggml: F32 0, F16 1, BF16 30, or the number of a BlockFormat
  std::vector<int64_t> shape;  // outermost first
};

// The data is written as it is supplied, tensor after tensor in the order of `tensors`, to a temporary file that
// finish() renames; until then, and on any failure, a file that exists at the path is unchanged.
class GgufFileWriter {
 public:
  // InvalidArgument for a name that occurs twice or a shape that does not consist of whole blocks; Error if writing
  // fails.
  GgufFileWriter(const std::filesystem::path& path, const GgufKeys& keys, std::vector<GgufTensorSpec> tensors);

  // Writes the next bytes; a call must not go beyond the end of the current tensor. Blocks. InvalidArgument for more
  // data than the tensor has; Error if writing fails.
  void append(std::span<const std::byte> bytes);
  // InvalidArgument if data is missing; Error if writing fails.
  void finish();

  uint64_t total() const noexcept { return total_; }  // bytes of all tensors, without padding

 private:
  void pad(uint64_t bytes);

  NewFile file_;
  std::vector<GgufTensorSpec> tensors_;
  std::vector<uint64_t> bytes_;  // of each tensor
  size_t current_ = 0;
  uint64_t written_ = 0;  // of the current tensor
  uint64_t total_ = 0;
};

}  // namespace anyaccel::llm
