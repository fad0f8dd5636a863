// Fuzz targets: tokenizer.json and tokenizer.model alone, and the files of a directory together: those, tiktoken's files,
// tekken.json, and vocab.json with merges.txt.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "anyaccel/error.h"
#include "anyaccel/llm/tokenizer.h"
#include "base/text/utf8.h"
#include "fuzz/fuzz_targets.h"
#include "llm/tokenizer/directory.h"
#include "llm/tokenizer/merges_file.h"

namespace anyaccel::fuzz {
namespace {

void use(const llm::Tokenizer& tokenizer, std::string_view own_text) {
  const std::string texts[] = {"Hello  world's\n\n 123 \xC3\xA9\xF0\x9F\x98\x80 <s>the </s> \xE2\x96\x81x",
                               std::string(own_text.substr(0, 64))};
  for (const std::string& text : texts) {
    std::vector<int32_t> ids = tokenizer.encode(text);
    for (int32_t id = -1; id < 40; ++id) ids.push_back(id);
    llm::StreamDecoder stream(tokenizer, false);
    std::string streamed;
    for (const int32_t id : ids) streamed += stream.push(id);
    streamed += stream.finish();
    // Text that comes out is always UTF-8.
    if (!is_valid_utf8(streamed) || !is_valid_utf8(tokenizer.decode(ids))) __builtin_trap();
  }
}

llm::TokenizerFiles split_files(std::string_view bytes) {
  llm::TokenizerFiles files;
  std::optional<llm::TokenizerFile> vocabulary, merges;
  const std::pair<std::string_view, std::optional<llm::TokenizerFile>*> names[] = {
      {"tokenizer.json", &files.tokenizer_json},
      {"tokenizer.model", &files.tokenizer_model},
      {"tokenizer_config.json", &files.tokenizer_config},
      {"special_tokens_map.json", &files.special_tokens_map},
      {"added_tokens.json", &files.added_tokens},
      {"config.json", &files.config},
      {"cl100k_base.tiktoken", &files.tiktoken},
      {"tekken.json", &files.tekken},
      {"vocab.json", &vocabulary},
      {"merges.txt", &merges}};
  constexpr std::string_view mark = "=== ";
  while (bytes.starts_with(mark)) {
    const size_t line = std::min(bytes.find('\n'), bytes.size() - 1);
    const std::string_view name = bytes.substr(mark.size(), std::max(line, mark.size()) - mark.size());
    bytes.remove_prefix(line + 1);
    const size_t end = bytes.find("\n=== ");
    const std::string_view text = bytes.substr(0, end);
    for (const auto& [known, file] : names) {
      if (name == known) *file = llm::TokenizerFile{std::string(known), std::string(text)};
    }
    bytes.remove_prefix(end == std::string_view::npos ? bytes.size() : end + 1);
  }
  if (vocabulary && merges && !files.tokenizer_json) files.tokenizer_json = llm::join_merges(*vocabulary, *merges);
  return files;
}

}  // namespace

void tokenizer(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    const std::unique_ptr<llm::Tokenizer> tokenizer =
        bytes.starts_with("=== ") ? llm::load_tokenizer(split_files(bytes), "dir")
        : bytes.starts_with('{')  ? llm::Tokenizer::parse_json(bytes, "tokenizer.json")
                                  : llm::Tokenizer::parse_sentencepiece(bytes, "tokenizer.model");
    use(*tokenizer, bytes);
  } catch (const Error&) {
  }
}

}  // namespace anyaccel::fuzz

#ifdef ANYACCEL_LIBFUZZER
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  anyaccel::fuzz::tokenizer(data, size);
  return 0;
}
#endif
