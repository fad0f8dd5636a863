// Splits a chat template into text and tokens, with Jinja's rules about white space around blocks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace anyaccel::llm::jinja {

enum class TokenKind {
  Text,         // outside of blocks
  OutputBegin,  // {{
  OutputEnd,
  BlockBegin,  // {%
  BlockEnd,
  Name,
  String,   // text is the value
  Integer,  // text is the digits, without underscores
  Float,
  Operator,
  End,
};

struct Token {
  TokenKind kind = TokenKind::End;
  std::string text;
  int line = 1;
};

// Throws TemplateError, with the line, for text that is not a valid template.
std::vector<Token> tokenize(std::string_view source);

}  // namespace anyaccel::llm::jinja
