// Runs regular expressions with PCRE2: compiled to machine code where possible, with limits on steps and memory, so
// that no pattern can hang or exhaust the program.
//
// PCRE2 limits the backtracking for each start position of a match, not the total work on a text, and a single step may
// scan the whole rest of the text. So a match is first searched for in a short window with a small limit, which bounds
// the work by the product of the two (real patterns hardly ever need more); if it reaches the window's end, in a wider
// window; and finally without either limit, but with a callout before every item of the pattern that counts the steps.
#include "llm/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <mutex>

#include "anyaccel/error.h"
#include "base/text/json.h"
#include "base/text/utf8.h"

namespace anyaccel::llm {
namespace {

constexpr size_t max_pattern_bytes = 1 << 16;
constexpr size_t narrow_window = 64;
constexpr size_t wide_window = 1024;
constexpr uint32_t window_limit = 64;      // backtracking at one position in a window
constexpr uint64_t steps_of_place = 4;     // steps counted for a position in a narrow window
constexpr uint64_t repeats_per_step = 16;  // number of characters that a pattern counts before it can fail
constexpr uint32_t max_heap_kib = 256 << 10;
constexpr size_t jit_stack_start = 32 << 10;
constexpr size_t jit_stack_most = 8 << 20;

std::string message_of(int code) {
  PCRE2_UCHAR text[256];
  if (pcre2_get_error_message(code, text, sizeof text) < 0) return "error " + std::to_string(code);
  return reinterpret_cast<const char*>(text);
}

// The data that matching needs in addition to the pattern; one for each thread.
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
  pcre2_match_context* context(uint32_t match_limit, int (*callout)(pcre2_callout_block*, void*), void* argument) {
    pcre2_set_match_limit(context_, match_limit);
    pcre2_set_callout(context_, callout, argument);
    return context_;
  }

 private:
  pcre2_match_data* data_;
  pcre2_match_context* context_;
  pcre2_jit_stack* stack_;
};

// Counts the steps of a match; count_item() updates it at each callout.
struct Counter {
  PatternWork* work = nullptr;
  uint64_t weight = 1;  // steps of an item
  size_t last = 0;      // position of the latest item
  size_t place = 0;     // start of the current match attempt
};

// Called before an item: counts it, and the characters that the previous item consumed.
int count_item(pcre2_callout_block* block, void* data) {
  auto* counter = static_cast<Counter*>(data);
  const size_t at = block->current_position;
  const uint64_t steps = counter->weight + (at > counter->last ? at - counter->last : 0);
  counter->last = at;
  counter->place = block->start_match;
  return counter->work->spend(steps) ? 0 : PCRE2_ERROR_CALLOUT;
}

// Returns the largest number in any {n,m}: PCRE2 counts characters up to it without a callout.
uint64_t largest_repeat(std::string_view pattern) {
  uint64_t largest = 0;
  uint64_t number = 0;
  bool inside = false;
  for (const char c : pattern) {
    if (c == '{') inside = true;
    if (c == '}') inside = false;
    const bool is_digit = inside && c >= '0' && c <= '9';
    number = is_digit ? std::min<uint64_t>(number * 10 + static_cast<uint64_t>(c - '0'), 1 << 16) : 0;
    largest = std::max(largest, number);
  }
  return largest;
}

pcre2_code* compile(std::string_view translated, uint32_t options, int& error) {
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  if (!context) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  PCRE2_SIZE offset = 0;
  // In Ruby, ^ and $ match at every line.
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | options, &error,
                                   &offset, context.get());
  // If this fails the pattern is interpreted.
  if (code != nullptr) pcre2_jit_compile(code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
  return code;
}

}  // namespace

struct TextPattern::Compiled {
  ~Compiled() {
    pcre2_code_free(code);
    pcre2_code_free(counted);
  }
  // Returns the pattern with callouts, which is compiled when it is first needed.
  const pcre2_code* counted_code() const {
    std::call_once(counted_once, [this] {
      int error = 0;
      counted = compile(translated, PCRE2_AUTO_CALLOUT, error);
      if (counted == nullptr) throw CheckpointError("tokenizer: the pattern " + quote_text(pattern) + " is too large");
    });
    return counted;
  }

  std::string pattern;
  std::string translated;
  pcre2_code* code = nullptr;
  uint64_t weight = 1;  // steps of an item, larger for a pattern with repeats
  bool has_references = false;
  mutable std::once_flag counted_once;
  mutable pcre2_code* counted = nullptr;
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
  auto compiled = std::make_shared<Compiled>();
  compiled->pattern = pattern;
  compiled->translated = translate_regex(pattern);
  int error = 0;
  compiled->code = compile(compiled->translated, 0, error);
  if (compiled->code == nullptr) {
    throw InvalidArgument("the pattern " + quote_text(pattern) + " is malformed: " + message_of(error));
  }
  compiled->weight = 1 + largest_repeat(compiled->translated) / repeats_per_step;
  uint32_t references = 0;
  pcre2_pattern_info(compiled->code, PCRE2_INFO_BACKREFMAX, &references);
  compiled->has_references = references > 0;
  TextPattern result;
  result.compiled_ = std::move(compiled);
  return result;
}

std::optional<std::pair<size_t, size_t>> TextPattern::find(std::string_view text, size_t from,
                                                           PatternWork& work) const {
  if (!compiled_) {
    const size_t begin = text.find(literal_, from);
    if (begin == std::string_view::npos) return std::nullopt;
    return std::pair(begin, begin + literal_.size());
  }
  thread_local MatchState state;
  const auto refuse = [&](size_t place) {
    throw CheckpointError("tokenizer: the pattern " + quote_text(compiled_->pattern) + " reached the limit of " +
                          std::to_string(work.limit()) + " steps for a text of " + std::to_string(work.text_bytes()) +
                          " bytes, at byte " + std::to_string(place) + " of a part of " + std::to_string(text.size()) +
                          " bytes; expected patterns that look at each character a few times");
  };
  const auto match = [&](const pcre2_code* code, size_t end, uint32_t options, pcre2_match_context* context) {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    const int result = pcre2_match(code, subject, end, from, PCRE2_NO_UTF_CHECK | options, state.data(), context);
    if (result != PCRE2_ERROR_JIT_STACKLIMIT) return result;
    return pcre2_match(code, subject, end, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT | options, state.data(), context);
  };
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(state.data());
  const auto found = [&]() -> std::pair<size_t, size_t> {
    if (range[0] < from || range[1] < range[0]) {
      throw CheckpointError("tokenizer: the pattern " + quote_text(compiled_->pattern) +
                            " matched backwards; \\K is not supported");
    }
    return {range[0], range[1]};
  };
  // Searches for a match in a window that begins at `from`.
  const auto try_window = [&](size_t bytes, uint32_t options) {
    size_t end = std::min(from + bytes, text.size());
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
    const int result = match(compiled_->code, end, options | (end < text.size() ? PCRE2_PARTIAL_HARD : 0),
                             state.context(window_limit, nullptr, nullptr));
    // A match, even one that needs text after the window, shows how many positions were tried.
    const bool tells = (options & PCRE2_ANCHORED) == 0 && (result >= 0 || result == PCRE2_ERROR_PARTIAL);
    const size_t last = (options & PCRE2_ANCHORED) != 0 ? from : tells ? std::max(range[0], from) : end;
    if (!work.spend((last - from + 1) * steps_of_place * (bytes / narrow_window))) refuse(from);
    return std::pair(result, end);
  };
  for (;;) {
    const auto [result, end] = try_window(narrow_window, 0);
    if (result >= 0) return found();
    if (result == PCRE2_ERROR_NOMATCH) {
      if (end == text.size()) return std::nullopt;
      from = end;
      continue;
    }
    if (result != PCRE2_ERROR_PARTIAL) break;
    from = std::max(from, range[0]);
    const int wide = try_window(wide_window, PCRE2_ANCHORED).first;
    if (wide >= 0) return found();
    if (wide != PCRE2_ERROR_NOMATCH) break;
    from += utf8_length(text[from]);
  }
  Counter counter;
  counter.work = &work;
  counter.weight = compiled_->weight;
  // Comparing with an earlier group counts no steps when it fails late.
  if (compiled_->has_references) counter.weight += text.size() / repeats_per_step;
  counter.last = counter.place = from;
  const int result = match(compiled_->counted_code(), text.size(), 0, state.context(UINT32_MAX, &count_item, &counter));
  if (result >= 0) return found();
  if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (result == PCRE2_ERROR_CALLOUT) refuse(counter.place);
  throw CheckpointError("tokenizer: the pattern " + quote_text(compiled_->pattern) + " failed at byte " +
                        std::to_string(counter.place) + " of a part of " + std::to_string(text.size()) +
                        " bytes: " + message_of(result));
}

std::vector<TextSpan> TextPattern::spans(std::string_view text, PatternWork& work) const {
  std::vector<TextSpan> spans;
  if (text.empty()) return spans;
  size_t previous = 0;  // end of the last match
  size_t from = 0;
  bool any = false;
  while (from <= text.size()) {
    const auto found = find(text, from, work);
    if (!found) break;
    const auto [begin, end] = *found;
    if (begin == end && any && end == previous) {
      // There is no empty match right after a match.
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
