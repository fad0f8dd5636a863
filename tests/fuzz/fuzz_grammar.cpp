// Fuzz target: a grammar in GBNF, or a JSON Schema if the bytes begin with "{"; texts are read with it.
#include "anyaccel/error.h"
#include "anyaccel/llm/grammar.h"
#include "fuzz/fuzz_targets.h"

namespace anyaccel::fuzz {

void grammar(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const auto parsed = text.starts_with('{') ? llm::Grammar::parse_json_schema(text, "fuzzed")
                                              : llm::Grammar::parse_gbnf(text, "fuzzed");
    for (const std::string_view read :
         {"", "{\"a\": [1, \"x\\u00e9\", -2.5e3]}", "aaaabbbb\n- x", "\"\xF0\x9F\x98\x80\""}) {
      parsed->accepts(read);
    }
  } catch (const InvalidArgument&) {
  }
}

}  // namespace anyaccel::fuzz

#ifdef ANYACCEL_LIBFUZZER
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  anyaccel::fuzz::grammar(data, size);
  return 0;
}
#endif
