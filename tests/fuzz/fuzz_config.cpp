// Fuzz target: config.json and generation_config.json.
#include <cmath>
#include <string_view>

#include "anyaccel/error.h"
#include "anyaccel/llm/generation_config.h"
#include "anyaccel/llm/model_config.h"
#include "fuzz/fuzz_targets.h"

namespace anyaccel::fuzz {

void config(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const llm::ModelConfig config = llm::parse_model_config(text, "config.json");
    for (const int64_t length : {int64_t{0}, int64_t{1} << 20}) {
      for (const float frequency : llm::rope_inv_freq(config, length).inv_freq) {
        if (!std::isfinite(frequency)) __builtin_trap();
      }
    }
    if (config.num_attention_heads % config.num_key_value_heads != 0) __builtin_trap();
    config.window_of_layer(config.num_hidden_layers - 1);
  } catch (const Error&) {
  }
  try {
    llm::parse_generation_config(text, "generation_config.json");
  } catch (const Error&) {
  }
}

}  // namespace anyaccel::fuzz

#ifdef ANYACCEL_LIBFUZZER
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  anyaccel::fuzz::config(data, size);
  return 0;
}
#endif
