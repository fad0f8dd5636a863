// Checks a prompt before it is tokenized.
#include "anyaccel/llm/prompt_text.h"

#include "base/text/utf8.h"

namespace anyaccel::llm {

size_t valid_utf8_prefix(std::string_view text) noexcept {
  size_t place = 0;
  while (place < text.size()) {
    const Utf8Step step = utf8_step(text.substr(place));
    if (!step.valid) break;
    place += step.length;
  }
  return place;
}

}  // namespace anyaccel::llm
