// Fuzz target: the text of a chat template, and a conversation rendered with it.
#include "anyaccel/error.h"
#include "anyaccel/llm/chat_template.h"
#include "fuzz/fuzz_targets.h"

namespace anyaccel::fuzz {

void chat_template(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const llm::ChatTemplate parsed =
        llm::ChatTemplate::parse(text, "fuzzed", {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    llm::ChatOptions options;
    options.now = 0;
    options.tools_json =
        R"([{"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}}}])";
    parsed.render_json(R"([{"role": "system", "content": "s"}, {"role": "user", "content": " ü 👋 \n"},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "123456789", "function": {"name": "f", "arguments": {"a": 1.5}}}]}])",
                       options);
  } catch (const CheckpointError&) {
  } catch (const InvalidArgument&) {
  }
}

}  // namespace anyaccel::fuzz

#ifdef ANYACCEL_LIBFUZZER
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  anyaccel::fuzz::chat_template(data, size);
  return 0;
}
#endif
