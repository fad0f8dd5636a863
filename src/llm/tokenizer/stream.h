// Declares the state machine of a tokenizer for decode(), which takes ids and returns text.
#pragma once

#include <cstdint>
#include <string>

namespace anyaccel::llm {

class TokenTextStream {
 public:
  TokenTextStream() = default;
  virtual ~TokenTextStream() = default;
  TokenTextStream(const TokenTextStream&) = delete;
  TokenTextStream& operator=(const TokenTextStream&) = delete;

  // Appends the text that is final now.
  virtual void push(int32_t id, std::string& out) = 0;
  virtual void finish(std::string& out) = 0;
};

// With `streaming`, a run of byte tokens returns its complete characters when it is this long.
inline constexpr size_t longest_held_run = 64;

}  // namespace anyaccel::llm
