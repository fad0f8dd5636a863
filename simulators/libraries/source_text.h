// The part that simulated compilers share: the machine's C++ compiler preprocesses the source of kernels, and its
// tokens are read afterwards. Kernels run as they were compiled for the host (kernels/), so nothing is translated.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace sim_library {

struct PreprocessRequest {
  std::string name, source;                    // as diagnostics call it
  std::map<std::string, std::string> headers;  // by the name they are included by
  std::vector<std::string> options;            // for the preprocessor, without the compiler's own -E
};
struct Preprocessed {
  bool started = false;    // else the compiler that `compiler` names could not be
  bool succeeded = false;  // else `text` is what it complained of
  std::string compiler, text;
};
// In a temporary folder of its own. No header of the system is found unless an option names its folder.
Preprocessed preprocess(const PreprocessRequest& request);

struct Token {
  std::string text;
  int line;
};
bool is_word(char c);
// Words, string literals as one token, other characters one by one. Line markers of the preprocessor set the line.
std::vector<Token> tokens_of(const std::string& text);
// A sentence about brackets that do not match or a declaration that does not end; empty when there is none. A compiler would
// find more.
std::string syntax_error(const std::vector<Token>& tokens, int* line);

}  // namespace sim_library
