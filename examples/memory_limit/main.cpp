// Generates text with a language model within a limit of device memory, using an accelerator whose allocator is
// replaced.
//
//     memory_limit MODEL_DIRECTORY BYTES PROMPT
//
// Exit codes: 0; 1 when the text cannot be generated, with the reason on standard error; 2 for wrong arguments.
#include <anyaccel/accelerator.h>
#include <anyaccel/caching_allocator.h>
#include <anyaccel/device_allocator.h>
#include <anyaccel/driver_accelerator.h>
#include <anyaccel/error.h>
#include <anyaccel/llm/text_generation.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

using namespace anyaccel;

// Prints the peak of allocated memory at the end.
static int64_t generate(const std::string& model, int64_t limit, const std::string& prompt) {
  auto* accelerator = dynamic_cast<DriverAccelerator*>(get_accelerator());
  if (!accelerator) throw Error("the accelerator has no allocator that could be replaced");
  accelerator->set_allocator([limit](MemorySource& memory, FenceSource& fences) {
    return std::make_unique<LimitingAllocator>(std::make_unique<CachingAllocator>(memory, fences), limit);
  });
  llm::TextGenerator generator = llm::TextGenerator::load(model);
  llm::GenerateOptions options = generator.default_options();
  options.sampling.temperature = 0;
  options.max_new_tokens = 32;
  const std::string prompts[] = {prompt};
  std::printf("%s%s\n", prompt.c_str(), generator.generate(prompts, options).completions[0].text.c_str());
  return accelerator->max_memory_allocated();
}

int main(int argc, char** argv) {
  if (argc != 4) return std::fprintf(stderr, "usage: memory_limit MODEL_DIRECTORY BYTES PROMPT\n"), 2;
  try {
    const long long peak = generate(argv[1], std::atoll(argv[2]), argv[3]);
    std::fprintf(stderr, "at most %lld bytes were allocated\n", peak);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "memory_limit: %s\n", error.what());
    return 1;
  }
}
