// The work of a tokenizer's patterns is bounded for a whole text: patterns of real tokenizers use a small part of the limit
// on megabytes, hostile ones end at it, and looking through windows finds the same matches as PCRE2 does at once.
#include <gtest/gtest.h>

#include "llm/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <random>
#include <string>

#include "anyaccel/error.h"
#include "anyaccel/llm/tokenizer.h"
#include "base/text/utf8.h"
#include "llm/test_directory.h"

namespace anyaccel::llm {
namespace {

using testing::checkpoint_error;
using testing::expect_contains;

// The patterns of GPT-2, Llama 3, Qwen2, DeepSeek V3 (three in turn) and GPT-4o.
const char* const real_patterns[] = {
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"(\p{N}{1,3})",
    "[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83\xBF]+",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

// Words, numbers, signs and runs of everything, with lengths on both sides of the windows'.
std::string mixed_text(size_t bytes, uint32_t seed) {
  const char* const parts[] = {
      "the", " word", "It's", "\xE4\xBD\xA0\xE5\xA5\xBD", "e\xCC\x81", "12345",    " ", "\n", "\r\n",
      "\t",  "!?",    " {",   "\xF0\x9F\x98\x80",         "A",         "\xC3\x9F", "_"};
  const size_t runs[] = {1, 1, 1, 1, 1, 2, 3, 20, 63, 64, 65, 300, 1023, 1024, 1025};
  std::mt19937 random(seed);
  std::string text;
  while (text.size() < bytes) {
    const char* part = parts[random() % std::size(parts)];
    const size_t most = std::size(runs) - (random() % 8 == 0 ? 0 : 8);
    for (size_t count = runs[random() % most]; count > 0; --count) text += part;
  }
  return text;
}

// The same by PCRE2 alone.
std::vector<std::pair<size_t, size_t>> plain_matches(const char* pattern, const std::string& text) {
  const std::string translated = translate_regex(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.c_str()), translated.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &offset, nullptr);
  EXPECT_NE(code, nullptr) << pattern;
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  std::vector<std::pair<size_t, size_t>> matches;
  for (size_t from = 0; from < text.size();) {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    if (pcre2_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, data, nullptr) < 0) break;
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data);
    if (range[0] == range[1]) break;  // none of these patterns has an empty match
    matches.emplace_back(range[0], range[1]);
    from = range[1];
  }
  pcre2_match_data_free(data);
  pcre2_code_free(code);
  return matches;
}

TEST(TokenizerRegex, WindowsFindWhatPcre2Finds) {
  const char* const more[] = {"(?<=\\n)the", "x{2,}",       "\\bword\\b",   "(?=the)t",           "(a|the) ",
                              "[ \\t]+$",    "(?<! ) word", "\\s+\\S+\\s+", "(?: \\p{L}{1,8}){3}"};
  std::vector<const char*> patterns(std::begin(real_patterns), std::end(real_patterns));
  patterns.insert(patterns.end(), std::begin(more), std::end(more));
  for (uint32_t seed = 0; seed < 3; ++seed) {
    const std::string text = mixed_text(40000, seed);
    for (const char* pattern : patterns) {
      SCOPED_TRACE(pattern);
      PatternWork work(text.size());
      std::vector<std::pair<size_t, size_t>> found;
      for (const TextSpan& span : TextPattern::regex(pattern).spans(text, work)) {
        if (span.is_match) found.emplace_back(span.begin, span.end);
      }
      EXPECT_TRUE(found == plain_matches(pattern, text));
    }
  }
}

// As in Oniguruma: punctuation and marks that several scripts share belong to none of them.
TEST(TokenizerRegex, ScriptsAreWithoutTheirExtensions) {
  const std::string text = "\u6f22\u3001\u3042\u30fc";  // Han, a comma, Hiragana, a mark of length
  const auto matched = [&](const char* pattern) {
    std::string out;
    PatternWork work(text.size());
    for (const TextSpan& span : TextPattern::regex(pattern).spans(text, work)) {
      if (span.is_match) out += text.substr(span.begin, span.end - span.begin);
    }
    return out;
  };
  EXPECT_EQ(matched(R"(\p{Han}+)"), "\u6f22");
  EXPECT_EQ(matched(R"([\p{Hiragana}]+)"), "\u3042");
  EXPECT_EQ(matched(R"(\P{Han}+)"), "\u3001\u3042\u30fc");
}

TEST(TokenizerRegex, RealPatternsUseLittleOfTheLimit) {
  constexpr size_t bytes = 1 << 20;
  std::string spaces;  // long indentation
  while (spaces.size() < bytes) spaces += std::string(300, ' ') + "x";
  const std::string texts[] = {
      mixed_text(bytes, 1),    std::string(bytes, 'a'),      std::string(bytes, ' '), std::string(bytes, '\n'), spaces,
      std::string(bytes, '7'), std::string(bytes, ' ') + 'x'};
  for (const std::string& text : texts) {
    PatternWork work(text.size());  // all patterns in turn, as the steps of one tokenizer
    for (const char* pattern : real_patterns) {
      EXPECT_FALSE(TextPattern::regex(pattern).spans(text, work).empty());
    }
    EXPECT_LT(work.spent(), work.limit() / 5) << text.substr(0, 20);
  }
}

struct Hostile {
  const char* pattern;
  std::string text;
};

TEST(TokenizerRegex, HostilePatternsEndAtTheLimit) {
  const std::string letters(400, 'a');
  std::string groups;  // each far below what one match may take, all of them far above
  for (int i = 0; i < 20; ++i) groups += std::string(19, 'a') + "c";
  const std::string many(20000, 'a');
  const Hostile cases[] = {{"(a|aa|a?a)+$b", letters + "cb"},
                           {"(a+)+b", letters + "cb"},
                           {"(?:(?:a|a)+b|.)", groups + "b"},
                           {"(?:(?:a|a|a)+b|[^b])", groups + "b"},
                           {"(?:(?=.*)a)*b", letters + "cb"},
                           {"(a*)\\1\\1b", letters + "cb"},
                           {"(a|b|ab)*bc", letters + "cb"},
                           {"(?=.*)a|.", many},
                           {"a*b", many + "cb"},
                           {"a*+b", many + "cb"},
                           {"a{1,60000}b", many + "cb"},
                           {"(?:a{60000}|b)", many + "cb"}};
  for (const auto& [pattern, text] : cases) {
    SCOPED_TRACE(pattern);
    PatternWork work(text.size());
    const std::string message =
        checkpoint_error([&, &pattern = pattern, &text = text] { TextPattern::regex(pattern).spans(text, work); });
    expect_contains(message, pattern);
    expect_contains(message, "reached the limit of " + std::to_string(work.limit()) + " steps for a text of " +
                                 std::to_string(text.size()) + " bytes, at byte ");
    expect_contains(message, " of a part of " + std::to_string(text.size()) + " bytes");
    EXPECT_EQ(work.limit(), PatternWork::least_steps + PatternWork::steps_per_byte * text.size());
    // No single step may overshoot by much: nothing is done behind the limit.
    EXPECT_LT(work.spent(), 2 * work.limit());
  }
}

// The limit is the text's, not that of a piece or a match.
TEST(TokenizerRegex, PiecesShareOneLimit) {
  const std::string json = R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, " ": 2}, "merges": []},
      "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"String": " "}, "behavior": "Isolated", "invert": false},
        {"type": "Split", "pattern": {"Regex": "(?:a|a)+b"}, "behavior": "Isolated", "invert": false}]}})";
  const auto tokenizer = Tokenizer::parse_json(json, "tokenizer.json");
  const std::string piece = std::string(12, 'a') + "cb ";
  EXPECT_EQ(tokenizer->encode(piece).size(), 14u);
  std::string text;
  for (int i = 0; i < 100; ++i) text += piece;
  expect_contains(checkpoint_error([&] { tokenizer->encode(text); }), "of a part of 14 bytes");
}

}  // namespace
}  // namespace anyaccel::llm
