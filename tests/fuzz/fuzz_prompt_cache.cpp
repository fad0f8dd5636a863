// Fuzz target: a file of --prompt-cache.
#include "anyaccel/error.h"
#include "fuzz/fuzz_targets.h"
#include "llm/generate/prompt_cache.h"

namespace anyaccel::fuzz {

void prompt_cache(const uint8_t* data, size_t size) {
  try {
    llm::parse_prompt_cache({reinterpret_cast<const char*>(data), size}, "fuzzed", "0123456789abcdef", 4);
  } catch (const CheckpointError&) {
  }
}

}  // namespace anyaccel::fuzz

#ifdef ANYACCEL_LIBFUZZER
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  anyaccel::fuzz::prompt_cache(data, size);
  return 0;
}
#endif
