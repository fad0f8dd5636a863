// Fuzz target: tokenizer.json and tokenizer.model.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "anyaccel/error.h"
#include "anyaccel/llm/tokenizer.h"
#include "fuzz/fuzz_targets.h"
#include "llm/utf8.h"

namespace anyaccel::fuzz {

void tokenizer(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    const bool json = bytes.starts_with('{');
    const std::unique_ptr<llm::Tokenizer> tokenizer =
        json ? llm::Tokenizer::parse_json(bytes, "tokenizer.json")
             : llm::Tokenizer::parse_sentencepiece(bytes, "tokenizer.model");
    const std::string texts[] = {"Hello  world's\n\n 123 \xC3\xA9\xF0\x9F\x98\x80 <s>the </s> \xE2\x96\x81x",
                                 std::string(bytes.substr(0, 64))};
    for (const std::string& text : texts) {
      std::vector<int32_t> ids = tokenizer->encode(text);
      for (int32_t id = -1; id < 40; ++id) ids.push_back(id);
      llm::StreamDecoder stream(*tokenizer, false);
      std::string streamed;
      for (const int32_t id : ids) streamed += stream.push(id);
      streamed += stream.finish();
      // Text that comes out is always UTF-8.
      if (!llm::is_valid_utf8(streamed) || !llm::is_valid_utf8(tokenizer->decode(ids))) __builtin_trap();
    }
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
