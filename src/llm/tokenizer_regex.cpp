// Regular expressions through PCRE2: compiled to machine code where that works, with limits on steps and memory, so
// that no pattern can hang or exhaust the program.
#include "llm/tokenizer_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "anyaccel/error.h"
#include "llm/json.h"
#include "llm/utf8.h"

namespace anyaccel::llm {
namespace {

constexpr size_t max_pattern_bytes = 1 << 16;
constexpr uint32_t base_match_limit = 10'000'000;  // steps of one match, plus steps_per_byte for each byte of text
constexpr uint32_t steps_per_byte = 64;
constexpr uint32_t max_heap_kib = 256 << 10;
constexpr size_t jit_stack_start = 32 << 10;
constexpr size_t jit_stack_most = 8 << 20;

std::string message_of(int code) {
  PCRE2_UCHAR text[256];
  if (pcre2_get_error_message(code, text, sizeof text) < 0) return "error " + std::to_string(code);
  return reinterpret_cast<const char*>(text);
}

// What a match needs besides the pattern; one for each thread.
class MatchState {
 public:
  MatchState()
      : data_(pcre2_match_data_create(1, nullptr)),
        context_(pcre2_match_context_create(nullptr)),
        stack_(pcre2_jit_stack_create(jit_stack_start, jit_stack_most, nullptr)) {
    if (data_ == nullptr || context_ == nullptr) throw std::bad_alloc();
    if (stack_ != nullptr) pcre2_jit_stack_assign(context_, nullptr, stack_);
    pcre2_set_heap_limit(context_, max_heap_kib);
  }
  ~MatchState() {
    pcre2_match_data_free(data_);
    pcre2_match_context_free(context_);
    pcre2_jit_stack_free(stack_);
  }
  MatchState(const MatchState&) = delete;
  MatchState& operator=(const MatchState&) = delete;

  pcre2_match_data* data() { return data_; }
  pcre2_match_context* context(size_t text_bytes) {
    const uint64_t limit = base_match_limit + uint64_t{steps_per_byte} * text_bytes;
    pcre2_set_match_limit(context_, static_cast<uint32_t>(std::min<uint64_t>(limit, UINT32_MAX)));
    return context_;
  }

 private:
  pcre2_match_data* data_;
  pcre2_match_context* context_;
  pcre2_jit_stack* stack_;
};

}  // namespace

struct TextPattern::Compiled {
  ~Compiled() { pcre2_code_free(code); }
  std::string pattern;
  pcre2_code* code = nullptr;
};

TextPattern TextPattern::literal(std::string text) {
  if (text.empty()) throw InvalidArgument("the pattern is empty; expected a text to look for");
  TextPattern result;
  result.literal_ = std::move(text);
  return result;
}

TextPattern TextPattern::regex(std::string_view pattern) {
  if (pattern.size() > max_pattern_bytes) {
    throw InvalidArgument("the pattern has " + std::to_string(pattern.size()) + " bytes; expected at most " +
                          std::to_string(max_pattern_bytes));
  }
  const std::string translated = translate_regex(pattern);
  auto compiled = std::make_shared<Compiled>();
  compiled->pattern = pattern;
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  if (!context) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int code = 0;
  PCRE2_SIZE offset = 0;
  // In Ruby ^ and $ stand at every line.
  compiled->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code, &offset, context.get());
  if (compiled->code == nullptr) {
    throw InvalidArgument("the pattern " + quote_text(pattern) + " is malformed: " + message_of(code));
  }
  pcre2_jit_compile(compiled->code, PCRE2_JIT_COMPLETE);  // when it fails the pattern is interpreted
  TextPattern result;
  result.compiled_ = std::move(compiled);
  return result;
}

std::optional<std::pair<size_t, size_t>> TextPattern::find(std::string_view text, size_t from) const {
  if (!compiled_) {
    const size_t begin = text.find(literal_, from);
    if (begin == std::string_view::npos) return std::nullopt;
    return std::pair(begin, begin + literal_.size());
  }
  thread_local MatchState state;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const auto match = [&](uint32_t options) {
    return pcre2_match(compiled_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | options, state.data(),
                       state.context(text.size()));
  };
  int result = match(0);
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = match(PCRE2_NO_JIT);
  if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (result < 0) {
    throw CheckpointError("tokenizer: the pattern " + quote_text(compiled_->pattern) +
                          " failed on the text: " + message_of(result));
  }
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(state.data());
  if (range[0] < from || range[1] < range[0]) {
    throw CheckpointError("tokenizer: the pattern " + quote_text(compiled_->pattern) +
                          " matched backwards; \\K is not supported");
  }
  return std::pair(range[0], range[1]);
}

std::vector<TextSpan> TextPattern::spans(std::string_view text) const {
  std::vector<TextSpan> spans;
  if (text.empty()) return spans;
  size_t previous = 0;  // end of the last match
  size_t from = 0;
  bool any = false;
  while (from <= text.size()) {
    const auto found = find(text, from);
    if (!found) break;
    const auto [begin, end] = *found;
    if (begin == end && any && end == previous) {
      // No empty match right after a match.
      if (from >= text.size()) break;
      from += utf8_length(text[from]);
      continue;
    }
    if (previous != begin) spans.push_back({previous, begin, false});
    spans.push_back({begin, end, true});
    previous = from = end;
    any = true;
  }
  if (previous != text.size()) spans.push_back({previous, text.size(), false});
  return spans;
}

}  // namespace anyaccel::llm
