// Fuzz target: the adapter_config.json of a LoRA adapter and the header of its tensors.
#include <string_view>
#include <vector>

#include "anyaccel/error.h"
#include "anyaccel/llm/safetensors.h"
#include "base/text/json.h"
#include "fuzz/fuzz_targets.h"
#include "llm/config/lora_config.h"

namespace anyaccel::fuzz {

void adapter(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t line = bytes.find("\n===\n");
  const std::string_view header = line == std::string_view::npos ? "{}" : bytes.substr(line + 5);
  try {
    const JsonDocument config = JsonDocument::parse(bytes.substr(0, line), "adapter_config.json");
    constexpr uint64_t data_bytes = 3072;  // of the seed files
    const std::vector<llm::TensorInfo> tensors =
        llm::parse_safetensors_header(header, 8 + header.size(), data_bytes, "adapter");
    const llm::LoraFactors factors = llm::read_lora_factors(config, tensors, "adapter_model.safetensors");
    for (const auto& [name, pair] : factors.pairs) {
      if (pair.a == nullptr || pair.b == nullptr || pair.a->shape[0] != pair.b->shape[1]) __builtin_trap();
    }
  } catch (const Error&) {
  }
}

}  // namespace anyaccel::fuzz

#ifdef ANYACCEL_LIBFUZZER
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  anyaccel::fuzz::adapter(data, size);
  return 0;
}
#endif
