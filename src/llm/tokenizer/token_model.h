// Declares the model of a tokenizer: the step that turns a piece of text into tokens.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "llm/tokenizer/vocabulary.h"

namespace anyaccel::llm {

class TokenModel {
 public:
  TokenModel() = default;
  virtual ~TokenModel() = default;
  TokenModel(const TokenModel&) = delete;
  TokenModel& operator=(const TokenModel&) = delete;

  virtual const Vocabulary& vocabulary() const = 0;
  // Appends the tokens of one piece of text (valid UTF-8). Any number of threads may call this at once. CheckpointError
  // if the unknown token is needed but the model has none.
  virtual void encode(std::string_view piece, std::vector<int32_t>& ids) const = 0;
};

}  // namespace anyaccel::llm
