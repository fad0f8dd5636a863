// Hashes contents, to detect differences: XXH3 with 128 bits, as 32 hexadecimal digits.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace anyaccel {

class Hash {
 public:
  Hash();
  ~Hash();
  // Each piece is hashed together with its length, so that {"ab", "c"} and {"a", "bc"} differ.
  Hash& add(std::string_view piece);
  std::string text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Hashes one long piece that arrives in parts.
class FileHash {
 public:
  FileHash();
  ~FileHash();
  void add(const char* data, size_t size);
  std::string text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Returns the FileHash of a file's contents; nothing (and errno) if it cannot be read.
std::optional<std::string> file_hash(const std::string& file);

}  // namespace anyaccel
