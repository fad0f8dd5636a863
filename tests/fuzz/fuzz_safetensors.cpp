// Fuzz target: safetensors files.
#include <cstring>
#include <string_view>

#include "anyaccel/error.h"
#include "anyaccel/llm/safetensors.h"
#include "fuzz/fuzz_targets.h"

namespace anyaccel::fuzz {

void safetensors(const uint8_t* data, size_t size) {
  // As SafetensorsFile::open() does with the mapped bytes.
  uint64_t header = 0;
  if (size < sizeof header) return;
  std::memcpy(&header, data, sizeof header);
  if (header > size - sizeof header) return;
  const uint64_t start = sizeof header + header;
  const std::string_view json(reinterpret_cast<const char*>(data) + sizeof header, header);
  try {
    llm::SafetensorsMetadata metadata;
    for (const llm::TensorInfo& tensor :
         llm::parse_safetensors_header(json, start, size - start, "fuzz.safetensors", &metadata)) {
      // Every range that was let through lies in the file.
      if (tensor.offset < start || tensor.offset > size || tensor.bytes > size - tensor.offset) __builtin_trap();
    }
  } catch (const Error&) {
  }
}

}  // namespace anyaccel::fuzz

#ifdef ANYACCEL_LIBFUZZER
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  anyaccel::fuzz::safetensors(data, size);
  return 0;
}
#endif
