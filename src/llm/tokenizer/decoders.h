// Declares the decoders of tokenizer.json, which convert tokens to text, one token after the other.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/json.h"
#include "llm/tokenizer/regex.h"

namespace anyaccel::llm {

struct TextDecoderStep;

// The decoders of a file in order, with nested sequences flattened. If there are none, tokens are joined with spaces.
class DecoderChain {
 public:
  // CheckpointError for an unknown type, naming the supported ones. `value` may be null.
  explicit DecoderChain(const JsonRef& value);
  ~DecoderChain();
  DecoderChain(const DecoderChain&) = delete;
  DecoderChain& operator=(const DecoderChain&) = delete;

  const std::vector<TextDecoderStep>& steps() const { return steps_; }
  // Returns the bytes that a token adds to a text, as the first token (`at_start`) or a later one. NotImplementedError
  // if they depend on the other tokens.
  std::string token_bytes(std::string token, bool at_start) const;

 private:
  void read(const JsonRef& value);
  std::vector<TextDecoderStep> steps_;
};

// Decodes one text through a chain. Each step receives tokens (or, after a step that joins them all into one, fragments
// of that one) and passes on the text that is final.
class DecoderRun {
 public:
  DecoderRun(const DecoderChain& chain, bool streaming);
  ~DecoderRun();

  void push(std::string token, std::string& out);
  void finish(std::string& out);

 private:
  struct State;
  void enter(size_t step, std::string text, std::string& out);
  void enter_joined(size_t step, std::string text, std::string& out);
  void leave_held_bytes(size_t step, std::string& out);

  const std::vector<TextDecoderStep>& steps_;
  bool streaming_;
  PatternWork work_{0};
  std::vector<State> states_;
};

}  // namespace anyaccel::llm
