// Damaged, unsupported and hostile tokenizer files: each is refused with a message that names the part.
#include <gtest/gtest.h>

#include "anyaccel/error.h"
#include "anyaccel/llm/tokenizer.h"
#include "llm/test_directory.h"
#include "llm/tokenizer/regex.h"

namespace anyaccel::llm {
namespace {

using testing::checkpoint_error;
using testing::expect_contains;

const std::filesystem::path tokenizers = std::filesystem::path(ANYACCEL_TEST_DATA) / "tokenizers";

// A small tokenizer.json; each part can be replaced.
struct Parts {
  std::string model = R"({"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]})";
  std::string added = "[]";
  std::string normalizer = "null";
  std::string pre_tokenizer = "null";
  std::string post_processor = "null";
  std::string decoder = "null";

  std::string text() const {
    return R"({"model": )" + model + R"(, "added_tokens": )" + added + R"(, "normalizer": )" + normalizer +
           R"(, "pre_tokenizer": )" + pre_tokenizer + R"(, "post_processor": )" + post_processor + R"(, "decoder": )" +
           decoder + "}";
  }
  std::unique_ptr<Tokenizer> load() const { return Tokenizer::parse_json(text(), "tokenizer.json"); }
  std::string error() const {
    const std::string message = checkpoint_error([&] { load(); });
    expect_contains(message, "tokenizer.json");
    return message;
  }
};

TEST(TokenizerJson, TheSmallOneWorks) {
  Parts parts;
  parts.added = R"([{"id": 3, "content": "<s>", "special": true}])";
  const auto tokenizer = parts.load();
  EXPECT_EQ(tokenizer->encode("abaab<s>xb"), (std::vector<int32_t>{2, 0, 2, 3, 1}));
  EXPECT_EQ(tokenizer->vocab_size(), 4);
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{2, 3, 0}), "ab a");
}

// What is removed at the end of a text is of its last token, which no token knows.
TEST(TokenizerJson, TextsOfTokensAreTheirOwn) {
  Parts parts;
  parts.decoder =
      R"({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "Strip", "content": "b", "start": 0, "stop": 0}]})";
  EXPECT_EQ(parts.load()->token_bytes(2, false), "ab");
  parts.decoder =
      R"({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "Strip", "content": "b", "start": 0, "stop": 1}]})";
  EXPECT_THROW(parts.load()->token_bytes(2, false), NotImplementedError);
}

TEST(TokenizerJson, BadModels) {
  const auto error = [](const std::string& model) {
    Parts parts;
    parts.model = model;
    return parts.error();
  };
  expect_contains(error(R"({"type": "x\ny", "vocab": {}})"),
                  "the model \"x\\x0ay\" is not supported; supported are BPE");
  expect_contains(error(R"({"type": "Unigram", "vocab": {"a": 0}})"), "model.vocab");
  expect_contains(error(R"({"type": "Unigram", "vocab": []})"), "a token at least");
  expect_contains(error(R"({"type": "Unigram", "vocab": [["a"]]})"), "a token and its score");
  expect_contains(error(R"({"type": "Unigram", "vocab": [["a", "b"]]})"), "model.vocab[0][1]");
  expect_contains(error(R"({"type": "Unigram", "vocab": [["a", 0.5]], "unk_id": 1})"), "model.unk_id");
  expect_contains(error(R"({"vocab": [[")" + std::string(2000, 'a') + R"(", 0.5]]})"), "expected at most 1024");
  expect_contains(error(R"({"type": "WordPiece", "vocab": {"a": 0}})"), "unk_token");
  expect_contains(error(R"({"type": "WordPiece", "vocab": {"a": 0}, "unk_token": "a", "continuing_subword_prefix": "#",
                            "max_input_chars_per_word": -1})"),
                  "max_input_chars_per_word");
  expect_contains(error(R"({"type": "WordLevel", "vocab": ["a"], "unk_token": "a"})"), "model.vocab");
  expect_contains(error(R"({"type": "WordLevel", "vocab": {"a": 0}})"), "unk_token");
  expect_contains(error(R"({"vocab": {"a": "x"}, "merges": []})"), "model.vocab.a");
  expect_contains(error(R"({"vocab": {"a": 1.5}, "merges": []})"), "model.vocab.a");
  expect_contains(error(R"({"vocab": {"a": -1}, "merges": []})"), "model.vocab.a");
  expect_contains(error(R"({"vocab": {"a": 2000000000}, "merges": []})"), "model.vocab.a");
  expect_contains(error(R"({"vocab": {"a": 18446744073709551615}, "merges": []})"), "model.vocab.a");
  expect_contains(error(R"({"vocab": {"a": 1, "b": 1}, "merges": []})"), "also the id of");
  expect_contains(error(R"({"vocab": {"a": 1, "a": 2}, "merges": []})"), "twice");
  expect_contains(error(R"({"type": "BPE", "vocab": ["a"], "merges": []})"), "model.vocab");
  expect_contains(error(R"({"merges": []})"), "vocab");
  expect_contains(error(R"({"vocab": {"a": 0}})"), "model.merges");
  expect_contains(error(R"({"vocab": {"a": 0}, "merges": {"a": 1}})"), "a list of merges");
  for (const char* merge : {"\"a\"", "\"a b c\"", "[\"a\"]", "[\"a\", \"b\", \"c\"]", "[\"a\", 3]", "7", "null"}) {
    expect_contains(error(std::string(R"({"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [)") + merge + "]}"),
                    "model.merges[0]");
  }
  expect_contains(error(R"({"vocab": {"a": 0, "b": 1}, "merges": ["a b"]})"), "the part \"ab\"");
  expect_contains(error(R"({"vocab": {"a": 0, "ab": 1}, "merges": ["a b"]})"), "the part \"b\"");
  expect_contains(
      error(R"({"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"], "continuing_subword_prefix": "##"})"),
      "continuing_subword_prefix");
  expect_contains(error(R"({"vocab": {"a": 0}, "merges": [], "byte_fallback": "yes"})"), "model.byte_fallback");
  expect_contains(error("[]"), "model");
  checkpoint_error([] { Tokenizer::parse_json("[]", "x"); });
  checkpoint_error([] { Tokenizer::parse_json("", "x"); });
  checkpoint_error([] { Tokenizer::parse_json("{}", "x"); });
}

// Merges that lead back to their own parts cannot loop: every merge makes the word shorter.
TEST(TokenizerJson, MergesThatGoInCirclesEnd) {
  Parts parts;
  parts.model = R"({"vocab": {"a": 0, "#a": 1, "#": 2, "": 3}, "merges": [["a", "#"], ["#a", "#"], ["", "a"]],
                    "continuing_subword_prefix": "#"})";
  EXPECT_NO_THROW(parts.load()->encode("aaaa"));
}

TEST(TokenizerJson, UnknownTokenThatIsMissing) {
  Parts parts;
  parts.model = R"({"vocab": {"a": 0}, "merges": [], "unk_token": "<unk>"})";
  const auto tokenizer = parts.load();
  EXPECT_EQ(tokenizer->encode("aa").size(), 2u);
  expect_contains(checkpoint_error([&] { tokenizer->encode("z"); }), "<unk>");
}

TEST(TokenizerJson, BadAddedTokens) {
  const auto error = [](const std::string& added) {
    Parts parts;
    parts.added = added;
    return parts.error();
  };
  expect_contains(error(R"([{"id": 5}])"), "added_tokens[0].content");
  expect_contains(error(R"([{"content": "x"}])"), "added_tokens[0].id");
  expect_contains(error(R"([{"id": 1, "content": "x"}])"), "belongs to another token");
  expect_contains(error(R"([{"id": 7, "content": "a"}])"), "id of \"a\" in the vocabulary");
  expect_contains(error(R"([{"id": 7, "content": "x"}, {"id": 7, "content": "y"}])"), "belongs to another token");
  expect_contains(error(R"([{"id": 7, "content": "x"}, {"id": 8, "content": "x"}])"), "occurs twice");
  expect_contains(error(R"([{"id": 2147483647, "content": "x"}])"), "added_tokens[0].id");
  expect_contains(error(R"([{"id": 7, "content": "x", "special": 1}])"), "added_tokens[0].special");
  expect_contains(error(R"([7])"), "added_tokens[0]");
  expect_contains(error(R"({})"), "added_tokens");
}

TEST(TokenizerJson, UnknownComponentsAreNamed) {
  Parts parts;
  parts.normalizer = R"({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Replaces"}]})";
  std::string message = parts.error();
  expect_contains(message, "normalizer.normalizers[1]");
  expect_contains(message, "\"Replaces\" is not supported; supported are Sequence, NFC");
  parts = {};
  parts.pre_tokenizer = R"({"type": "UnicodeScripts"})";
  expect_contains(parts.error(), "\"UnicodeScripts\" is not supported; supported are Sequence, BertPreTokenizer");
  parts = {};
  parts.post_processor = R"({"type": "PairProcessing"})";
  expect_contains(parts.error(), "\"PairProcessing\" is not supported; supported are Sequence, BertProcessing");
  parts = {};
  parts.decoder = R"({"type": "CTC"})";
  expect_contains(parts.error(), "\"CTC\" is not supported; supported are Sequence, ByteLevel");
}

TEST(TokenizerJson, BadComponents) {
  const auto error = [](std::string Parts::*part, const std::string& value) {
    Parts parts;
    parts.*part = value;
    return parts.error();
  };
  for (const auto part : {&Parts::normalizer, &Parts::pre_tokenizer, &Parts::post_processor, &Parts::decoder}) {
    for (const char* value : {"7", "[]", "{}", R"({"type": 7})", R"({"type": "Sequence"})"}) error(part, value);
  }
  expect_contains(error(&Parts::normalizer, R"({"type": "Replace", "pattern": {"String": ""}, "content": "x"})"),
                  "normalizer.pattern");
  expect_contains(error(&Parts::normalizer, R"({"type": "Replace", "pattern": {"Regex": "(a"}, "content": "x"})"),
                  "malformed");
  expect_contains(
      error(&Parts::pre_tokenizer, R"({"type": "Split", "pattern": "a", "behavior": "Isolated", "invert": false})"),
      "pre_tokenizer.pattern");
  expect_contains(error(&Parts::pre_tokenizer,
                        R"({"type": "Split", "pattern": {"String": "a"}, "behavior": "Isolate", "invert": false})"),
                  "pre_tokenizer.behavior");
  expect_contains(error(&Parts::pre_tokenizer, R"({"type": "Metaspace", "replacement": "__"})"), "replacement");
  expect_contains(error(&Parts::pre_tokenizer, R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "x"})"),
                  "prepend_scheme");
  expect_contains(error(&Parts::decoder, R"({"type": "Strip", "content": "", "start": 1, "stop": 0})"), "content");
  expect_contains(error(&Parts::decoder, R"({"type": "Strip", "content": "x", "start": -1, "stop": 0})"), "start");
  expect_contains(error(&Parts::post_processor, R"({"type": "TemplateProcessing", "single":
      [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}], "special_tokens": {}})"),
                  "special_tokens.<s>");
  expect_contains(error(&Parts::post_processor, R"({"type": "TemplateProcessing", "single":
      [{"SpecialToken": {"id": "s"}}, {"Sequence": {"id": "A"}}], "special_tokens": {"s": {"ids": [99]}}})"),
                  "ids[0]");
  error(&Parts::post_processor, R"({"type": "TemplateProcessing", "single": [{"Sequence": {"id": "B"}}]})");
  error(&Parts::post_processor, R"({"type": "TemplateProcessing", "single": []})");
  std::string deep = "null";
  for (int i = 0; i < 100; ++i) deep = R"({"type": "Sequence", "normalizers": [)" + deep + "]}";
  expect_contains(error(&Parts::normalizer, deep), "nested");
  std::string many;
  for (int i = 0; i < 1000; ++i) many += R"({"type": "Fuse"},)";
  error(&Parts::decoder, R"({"type": "Sequence", "decoders": [)" + many + R"({"type": "Fuse"}]})");
}

// Patterns and steps that would take forever, or all memory, end with an error instead.
TEST(TokenizerJson, HostileStepsEnd) {
  Parts parts;
  parts.pre_tokenizer =
      R"({"type": "Split", "pattern": {"Regex": "(a|aa|a?a)+$b"}, "behavior": "Isolated", "invert": false})";
  expect_contains(checkpoint_error([&] { parts.load()->encode(std::string(5000, 'a') + "cb"); }), "limit");
  parts = {};
  std::string doubling;
  for (int i = 0; i < 60; ++i) {
    doubling += std::string(i == 0 ? "" : ",") + R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"})";
  }
  parts.normalizer = R"({"type": "Sequence", "normalizers": [)" + doubling + "]}";
  expect_contains(checkpoint_error([&] { parts.load()->encode("aaaa"); }), "at most 64 times");
}

TEST(TokenizerRegex, DialectIsTranslated) {
  EXPECT_EQ(translate_regex(R"(\s+(?!\S)|a)"), R"(\p{White_Space}+(?!\P{White_Space})|a)");
  EXPECT_EQ(translate_regex(R"([^(\s|[.,])]+)"), R"([^(\p{White_Space}|.,)]+)");
  EXPECT_EQ(translate_regex(R"(\\s)"), R"(\\s)");
  EXPECT_EQ(translate_regex(R"((?mi:.))"), R"((?si:.))");
  EXPECT_EQ(translate_regex(R"(\u00e9)"), R"(\x{00e9})");
  EXPECT_EQ(translate_regex(R"(\p{Han}\p{L}[\p{Lu}\P{Greek}\p{^Hira}\P{^Nd}]\pL)"),
            R"(\p{sc:Han}\p{L}[\p{Lu}\P{sc:Greek}\P{sc:Hira}\P{^Nd}]\pL)");
  for (const char* bad : {"[a&&b]", "[a[^b]]", "[[:x", R"([\W])"}) EXPECT_THROW(translate_regex(bad), InvalidArgument);
  EXPECT_THROW(TextPattern::regex("(" + std::string(1 << 17, 'a')), InvalidArgument);
  EXPECT_THROW(TextPattern::regex(std::string(1000, '(')), InvalidArgument);
}

// -- tokenizer.model --

std::string model_error(const std::string& bytes) {
  const std::string message = checkpoint_error([&] { Tokenizer::parse_sentencepiece(bytes, "tokenizer.model"); });
  expect_contains(message, "tokenizer.model");
  return message;
}

// One field of a protocol buffer that holds bytes.
std::string field(int number, const std::string& content) {
  EXPECT_LT(content.size(), 128u);
  return std::string({static_cast<char>(number << 3 | 2), static_cast<char>(content.size())}) + content;
}
std::string piece(const std::string& text, int type) {
  return field(1, field(1, text) + std::string({3 << 3, static_cast<char>(type)}));
}
const std::string unknown_piece = piece("<unk>", 2);
const std::string bpe = field(2, {3 << 3, 2});

TEST(TokenizerModel, TheSmallOneWorks) {
  const auto tokenizer = Tokenizer::parse_sentencepiece(
      unknown_piece + piece("<s>", 3) + piece("\xE2\x96\x81", 1) + piece("a", 1) + bpe, "tokenizer.model");
  EXPECT_EQ(tokenizer->encode("a"), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{1, 2, 3}), "a");
}

// Beside a config.json without a class, the file itself says whether a space is put before a text.
TEST(TokenizerModel, SpacesBeforeATextAreThoseOfTheFile) {
  for (const char prefix : {0, 1}) {
    const testing::TestDirectory dir;
    dir.write("tokenizer.model", unknown_piece + piece("<s>", 3) + piece("\xE2\x96\x81", 1) + piece("a", 1) + bpe +
                                     field(3, std::string({3 << 3, prefix, 4 << 3, 0})));
    dir.write("config.json", R"({"model_type": "mistral"})");
    EXPECT_EQ(Tokenizer::load(dir.path())->encode("a"),
              prefix ? (std::vector<int32_t>{1, 2, 3}) : (std::vector<int32_t>{1, 3}));
  }
}

TEST(TokenizerModel, UnsupportedKindsAreNamed) {
  expect_contains(model_error(unknown_piece + field(2, {3 << 3, 3})), "word");
  expect_contains(model_error(unknown_piece + bpe + field(3, field(1, "nmt_nfkc") + field(2, "x"))),
                  "the table of characters");
  expect_contains(model_error(unknown_piece + bpe + field(3, {5 << 3, 0})), "escape_whitespaces");
  expect_contains(model_error(unknown_piece + bpe + field(5, field(2, "x"))), "denormalizer");
}

// The table of characters: 4 bytes of size, units of 4 bytes, texts.
TEST(TokenizerModel, DamagedTablesOfCharactersAreRefused) {
  const auto unit = [](uint32_t value) {
    std::string bytes;
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(value >> shift);
    return bytes;
  };
  const auto model = [](const std::string& table) {
    return unknown_piece + piece("a", 1) + bpe + field(3, field(1, "own") + field(2, table));
  };
  expect_contains(model_error(model("abc")), "has 3 bytes");
  expect_contains(model_error(model(unit(8) + unit(0))), "a trie of 8");
  expect_contains(model_error(model(unit(3) + "abc")), "a trie of 3");
  expect_contains(model_error(model(unit(4) + unit(0) + "text")), "has no end");
  const auto encoding = [&](const std::string& table) {
    const auto tokenizer = Tokenizer::parse_sentencepiece(model(table), "tokenizer.model");
    return checkpoint_error([&] { tokenizer->encode("a"); });
  };
  // The root's children lie outside.
  expect_contains(encoding(unit(4) + unit(4000u << 10)), "refers to its unit");
  // The node of "a" (unit 0 ^ 'a') is a leaf, whose value (at offset 1 from it) lies outside of the texts or is not UTF-8.
  const auto leaf = [&](uint32_t value, const std::string& texts) {
    std::string units;
    for (uint32_t i = 0; i < 98; ++i)
      units += unit(i == 'a' ? (1u << 10) | (1u << 8) | 'a' : i == ('a' ^ 1u) ? value : 0);
    return unit(static_cast<uint32_t>(units.size())) + units + texts;
  };
  const auto with_leaf = [&](uint32_t value, const std::string& texts) {
    std::string table = leaf(value, texts);
    std::string length = {static_cast<char>(0x80 | (table.size() & 0x7F)), static_cast<char>(table.size() >> 7)};
    table = std::string({2 << 3 | 2}) + length + table;
    length = {static_cast<char>(0x80 | (table.size() & 0x7F)), static_cast<char>(table.size() >> 7)};
    return unknown_piece + piece("a", 1) + bpe + std::string({3 << 3 | 2}) + length + table;
  };
  const auto bad_leaf = [&](uint32_t value, const std::string& texts) {
    const auto tokenizer = Tokenizer::parse_sentencepiece(with_leaf(value, texts), "tokenizer.model");
    return checkpoint_error([&] { tokenizer->encode("a"); });
  };
  const std::string a("a\0", 2);
  EXPECT_EQ(Tokenizer::parse_sentencepiece(with_leaf(0, a), "x")->encode("a"), (std::vector<int32_t>{0, 1}));
  expect_contains(bad_leaf(2, a), "refers to byte 2");
  expect_contains(bad_leaf(0, std::string("\xFF\0", 2)), "not UTF-8");
  expect_contains(bad_leaf(0, std::string(5000, 'b') + std::string(1, '\0')), "4096");
}

TEST(TokenizerModel, DamagedFilesAreRefused) {
  expect_contains(model_error(""), "no pieces");
  expect_contains(model_error(bpe), "no pieces");
  expect_contains(model_error(piece("a", 1) + bpe), "no unknown piece");
  expect_contains(model_error(unknown_piece + unknown_piece + bpe), "twice");
  expect_contains(model_error(unknown_piece + piece("x", 2) + bpe), "second unknown piece");
  expect_contains(model_error(unknown_piece + piece("a", 1) + piece("a", 1) + bpe), "\"a\" (id 2) occurs twice");
  expect_contains(model_error(unknown_piece + piece("a", 7) + bpe), "the type 7");
  expect_contains(model_error(unknown_piece + piece("", 1) + bpe), "no text");
  expect_contains(model_error(unknown_piece + piece("\xff", 1) + bpe), "not UTF-8");
  expect_contains(model_error(unknown_piece + piece("x", 6) + bpe), "byte piece");
  expect_contains(model_error(unknown_piece + field(2, {3 << 3, 2, '\x98', 2, 1})), "256 byte pieces");
  expect_contains(model_error(field(1, field(1, "a") + std::string("\x15\x00\x00\xC0\x7F", 5)) + bpe), "not a number");
  model_error("\x0a\x7f");
  model_error(std::string(20, '\xff'));
  model_error("\x0b");
  model_error(std::string(1, '\0') + "x");
  model_error("tokenizer");
  const std::string good = testing::read_text(tokenizers / "sentencepiece_bpe" / "tokenizer.model");
  for (const size_t size : {good.size() - 1, good.size() / 2, size_t{1}, size_t{10}}) model_error(good.substr(0, size));
}

}  // namespace
}  // namespace anyaccel::llm
