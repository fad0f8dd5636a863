// Fuzz target: the header of a GGUF file, and the tokenizer that its keys describe.
#include <cstring>

#include "anyaccel/error.h"
#include "fuzz/fuzz_targets.h"
#include "llm/checkpoint/gguf.h"
#include "llm/tokenizer/gguf_tokenizer.h"

namespace anyaccel::fuzz {

void gguf(const uint8_t* data, size_t size) {
  const auto read = [&](uint64_t offset, std::span<std::byte> out) {
    if (offset > size || out.size() > size - offset) __builtin_trap();
    if (!out.empty()) std::memcpy(out.data(), data + offset, out.size());
  };
  try {
    const llm::GgufHeader header = llm::parse_gguf_header(read, size, "fuzz.gguf");
    for (const llm::GgufTensor& tensor : header.tensors) {
      // Every range that was let through lies in the file.
      if (tensor.offset > size || tensor.bytes > size - tensor.offset) __builtin_trap();
    }
    const auto tokenizer = llm::make_gguf_tokenizer(header.metadata);
    tokenizer->decode(tokenizer->encode("Hello  w\xC3\xB6rld<s> 12"));
  } catch (const Error&) {
  }
}

}  // namespace anyaccel::fuzz

#ifdef ANYACCEL_LIBFUZZER
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  anyaccel::fuzz::gguf(data, size);
  return 0;
}
#endif
