// Implements merges_file.h.
#include "llm/tokenizer/merges_file.h"

#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "anyaccel/error.h"
#include "base/text/json.h"
#include "base/text/utf8.h"

namespace anyaccel::llm {

TokenizerFile join_merges(const TokenizerFile& vocab_json, const TokenizerFile& merges_txt) {
  const JsonDocument vocabulary = JsonDocument::parse(vocab_json.text, vocab_json.path);
  if (!vocabulary.root().is_object()) vocabulary.root().fail("an object that maps tokens to ids");
  std::unordered_set<std::string_view> tokens;
  for (size_t i = 0; i < vocabulary.root().size(); ++i) tokens.insert(vocabulary.root().key(i));
  JsonArray merges;
  std::string_view rest = merges_txt.text;
  for (size_t number = 1; !rest.empty(); ++number) {
    const size_t end = rest.find('\n');
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with("#version")) continue;
    const size_t space = line.find(' ');
    const bool is_pair = space != std::string_view::npos && space > 0 && space + 1 < line.size() &&
                         line.find(' ', space + 1) == std::string_view::npos && is_valid_utf8(line);
    const auto fail = [&](const std::string& what) {
      throw CheckpointError(merges_txt.path + ": line " + std::to_string(number) + ": " + what);
    };
    if (!is_pair) fail("found " + quote_text(line.substr(0, 64)) + "; expected two tokens with a space between them");
    const std::string_view left = line.substr(0, space), right = line.substr(space + 1);
    for (const std::string& token : {std::string(left), std::string(right), std::string(left).append(right)}) {
      if (!tokens.contains(token)) {
        fail("the merge " + quote_text(line.substr(0, 64)) + " needs the token " + quote_text(token) + ", which " +
             vocab_json.path + " does not have");
      }
    }
    merges.emplace_back(line);
  }
  return {vocab_json.path,
          R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "decoder": {"type": "ByteLevel"}, )"
          R"("model": {"type": "BPE", "merges": )" +
              json_text(JsonValue(std::move(merges))) + R"(, "vocab": )" + vocab_json.text + "}}"};
}

}  // namespace anyaccel::llm
