// Lists the rules for splitting words. The patterns are those of the models' own tokenizer.json.
#include "llm/tokenizer/gguf_word_rules.h"

#include <algorithm>

namespace anyaccel::llm {
namespace {

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

constexpr std::string_view digit = "\\p{N}";
constexpr std::string_view words_of_llama3 =
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES;
constexpr std::string_view words_of_qwen2 =
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES;
constexpr std::string_view words_of_seed_coder =
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" SPACES;

// Upper case precedes lower case; a letter without case counts as both.
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
constexpr std::string_view words_of_tekken = "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+|[^\\r\\n\\p{L}\\p{N}]?" UPPER
                                             "+" LOWER "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES;
constexpr std::string_view words_of_gpt4o =
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" CONTRACTIONS "?|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER
    "*" CONTRACTIONS "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES;

constexpr std::string_view words_of_deepseek3 =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
    " ?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACES;

constexpr std::array<WordRule, 11> rules = {
    {{{"llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "midm-2.0"}, {words_of_llama3}, false, true, true},
     {{"smaug-bpe", "dbrx"}, {words_of_llama3}},
     {{"qwen2", "deepseek-r1-qwen"}, {words_of_qwen2}, false, false, false, true},
     {{"megrez", "stablelm2", "hunyuan", "solar-open", "kormo"}, {words_of_qwen2}},
     {{"seed-coder"}, {words_of_seed_coder}},
     {{"gpt-2", "mpt", "phi-2", "mellum", "olmo", "a.x-4.0", "trillion"}, {}, true},
     {{"smollm", "starcoder", "refact", "command-r", "codeshell", "minerva-7b"}, {digit}, true},
     {{"tekken"}, {words_of_tekken}, false, true, true},
     {{"gpt-4o"}, {words_of_gpt4o}},
     {{"deepseek-coder"}, {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[一-龥ࠀ-一가-퟿]+", digit}},
     {{"deepseek-v3", "hunyuan-dense"}, {"\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", words_of_deepseek3}}}};

#undef CONTRACTIONS
#undef SPACES
#undef UPPER
#undef LOWER

}  // namespace

const WordRule* find_word_rule(std::string_view name) noexcept {
  if (name.empty()) return nullptr;
  const auto* found =
      std::ranges::find_if(rules, [&](const WordRule& rule) { return std::ranges::count(rule.names, name) > 0; });
  return found == rules.end() ? nullptr : found;
}

const WordRule* find_word_rule(const std::vector<std::string>& patterns, bool splits_as_gpt2, bool takes_whole_words,
                               bool composes) noexcept {
  const auto* found = std::ranges::find_if(rules, [&](const WordRule& rule) {
    const auto end = std::ranges::find(rule.patterns, std::string_view());
    return std::ranges::equal(rule.patterns.begin(), end, patterns.begin(), patterns.end()) &&
           rule.splits_as_gpt2 == splits_as_gpt2 && rule.takes_whole_words == takes_whole_words &&
           rule.composes == composes;
  });
  return found == rules.end() ? nullptr : found;
}

std::string word_rule_names() {
  std::string text;
  for (const WordRule& rule : rules) {
    for (const std::string_view name : rule.names) {
      if (!name.empty()) text += (text.empty() ? "" : ", ") + std::string(name);
    }
  }
  return text;
}

}  // namespace anyaccel::llm
