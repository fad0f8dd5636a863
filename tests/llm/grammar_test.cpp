// Grammars and JSON schemas: which texts they accept, beside xgrammar and jsonschema; what is refused; and answers of a
// model that are held to them.
#include "anyaccel/llm/grammar.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/llm/text_generation.h"
#include "llm/grammar/token_grammar.h"
#include "llm/model_fixtures.h"
#include "test_paths.h"

namespace anyaccel::llm {
namespace {

using OrderedJson = nlohmann::ordered_json;  // properties are written in the order of the schema

const OrderedJson& cases() {
  static const OrderedJson data = OrderedJson::parse(std::ifstream(anyaccel::testing::test_data() + "/grammars.json"));
  return data;
}

TEST(Grammar, AcceptsWhatXgrammarAccepts) {
  size_t accepted = 0;
  for (const OrderedJson& one : cases().at("grammars")) {
    const auto grammar = Grammar::parse_gbnf(one.at("grammar").get<std::string>(), "g");
    for (const OrderedJson& text : one.at("texts")) {
      accepted += text[1].get<bool>() ? 1 : 0;
      EXPECT_EQ(grammar->accepts(text[0].get<std::string>()), text[1].get<bool>())
          << one.at("grammar").get<std::string>() << text[0];
    }
  }
  EXPECT_GT(accepted, 150u);
}

TEST(Grammar, JsonTextsAreThoseThatJsonschemaFindsValid) {
  for (const OrderedJson& one : cases().at("schemas")) {
    const auto grammar = Grammar::parse_json_schema(one.at("schema").dump(), "s");
    for (const OrderedJson& text : one.at("texts")) {
      EXPECT_EQ(grammar->accepts(text[0].get<std::string>()), text[1].get<bool>())
          << one.at("schema") << " " << text[0];
    }
  }
}

TEST(Grammar, ReadsTheNotationOfLlamaCpp) {
  const auto accepts = [](const char* grammar, const char* text) {
    return Grammar::parse_gbnf(grammar, "g")->accepts(text);
  };
  // The forms that its README shows: comments, lines within groups, escapes, ranges, repetitions.
  const char* const list = R"(# a list
root ::= (
  "- " item   # one
  "\n"
)+ | "none"
item ::= [^\n\x41-\u0043]{1,3} "."?
)";
  EXPECT_TRUE(accepts(list, "- xé€.\n- y\n"));
  EXPECT_TRUE(accepts(list, "none"));
  EXPECT_FALSE(accepts(list, "- B\n"));
  EXPECT_FALSE(accepts(list, "- abcd.\n"));
  EXPECT_TRUE(accepts("root ::= .", "\xF0\x9F\x98\x80"));
  EXPECT_FALSE(accepts("root ::= .", "\xF0\x9F\x98"));
  EXPECT_FALSE(accepts("root ::= .", "\xED\xA0\x80"));  // a surrogate
  EXPECT_TRUE(accepts("root ::= [a-]+", "a-"));
  EXPECT_FALSE(accepts("root ::= [a-]+", "b"));
  EXPECT_TRUE(accepts("root ::= a\n  | b\na ::= \"x\"\nb ::= \"y\" | \"\"\r\n", "y"));
  // Nested brackets, deeper than any stack of calls allows.
  std::string nested(20000, '(');
  nested += std::string(20000, ')');
  EXPECT_TRUE(accepts("root ::= (\"(\" root \")\")?", nested.c_str()));
  EXPECT_FALSE(accepts("root ::= (\"(\" root \")\")?", (nested + ")").c_str()));
}

TEST(Grammar, RefusesWithTheLine) {
  const auto expect = [](const std::string& grammar, const char* message) {
    try {
      Grammar::parse_gbnf(grammar, "file");
      ADD_FAILURE() << grammar;
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
      EXPECT_EQ(std::string(error.what()).find("file"), 0u) << error.what();
    }
  };
  expect("", "there is no rule \"root\"");
  expect("a ::= \"x\"", "there is no rule \"root\"");
  expect("root ::= \"x\"\n\nroot ::= \"y\"", "line 3: the rule \"root\" is defined twice");
  expect("root ::= a\n", "line 1: the rule \"a\" is used and not defined");
  expect("root : \"x\"", "expected ::=");
  expect("root ::= \"x", "no closing quote");
  expect("root ::= [a", "no closing bracket");
  expect("root ::= [b-a]", "ends before it begins");
  expect("root ::= []", "is empty");
  expect("root ::= (\"a\"", "expected ) at the end of a group");
  expect("root ::= \"a\")", "expected the end of the rule");
  expect("root ::= \"\\q\"", "is not an escape");
  expect("root ::= \"\\u12\"", "hexadecimal digits");
  expect("root ::= \"\\uD800\"", "not a character of Unicode");
  expect("root ::= \"a\"{2,1}", "a maximum below its minimum");
  expect("root ::= \"a\"{1000000}", "expected a number from 0 to");
  expect("root ::= \"abcdefgh\"{100000}", "more than 400000 states");
  expect("root ::= <think>", "tokens such as");
  expect("root ::= \"\xff\"", "it is not UTF-8");
  expect("root ::= root \"a\" | \"b\"", "left recursion: \"root\" begins with \"root\"");
  expect("root ::= a\na ::= b? c\nb ::= \"x\"\nc ::= a*", "left recursion: \"a\" begins with \"c\" begins with \"a\"");
  expect("root ::= \"a\" root", "the rule \"root\" never ends: every way through it");
  expect("root ::= " + std::string(200, '(') + "\"a\"" + std::string(200, ')'), "nested more than");
  // Ambiguous without end: found where the text is read.
  const auto ambiguous = Grammar::parse_gbnf("root ::= (\"a\" root \"b\" | \"a\" root \"b\" \"b\" | \"\")", "g");
  EXPECT_THROW(ambiguous->accepts(std::string(200, 'a')), InvalidArgument);
}

// Every whole number from -130 to 130, and fractions around the bounds, is accepted if and only if it is within them.
TEST(JsonSchema, NumbersAreThoseWithinTheirBounds) {
  std::vector<std::string> wholes, all;
  for (int n = -130; n <= 130; ++n) wholes.push_back(std::to_string(n));
  all = wholes;
  for (const int n : {-13, -12, -2, -1, 0, 1, 6, 7, 88, 89, 97, 98, 99, 104, 105}) {
    for (const char* fraction : {"001", "2", "249", "25", "251", "4", "499", "5", "51", "75", "9", "999"}) {
      all.push_back(std::to_string(n) + "." + fraction);
      if (n == 0) all.push_back("-0." + std::string(fraction));
    }
  }
  struct Bound {
    const char* text;  // null: none
    double value;
  };
  const Bound lows[] = {{nullptr, -1e9}, {"-105", -105}, {"-12.5", -12.5}, {"-1", -1},
                        {"0", 0},        {"7", 7},       {"83", 83},       {"98.25", 98.25}};
  const Bound highs[] = {{nullptr, 1e9}, {"-1", -1}, {"0", 0}, {"0.5", 0.5}, {"7", 7}, {"89", 89}, {"105", 105}};
  for (const bool integer : {true, false}) {
    for (const Bound& low : lows) {
      for (const Bound& high : highs) {
        for (const int exclusive : {0, 1, 2, 3}) {  // the low bound, the high one
          std::string schema = std::string(R"({"type": ")") + (integer ? "integer\"" : "number\"");
          if (low.text)
            schema += std::string(exclusive & 1 ? R"(, "exclusiveMinimum": )" : R"(, "minimum": )") + low.text;
          if (high.text)
            schema += std::string(exclusive & 2 ? R"(, "exclusiveMaximum": )" : R"(, "maximum": )") + high.text;
          schema += "}";
          const auto is_within = [&](double value) {
            return (exclusive & 1 ? value > low.value : value >= low.value) &&
                   (exclusive & 2 ? value < high.value : value <= high.value);
          };
          std::shared_ptr<const Grammar> grammar;
          try {
            grammar = Grammar::parse_json_schema(schema, "s");
          } catch (const InvalidArgument&) {
            // There is none.
          }
          for (const std::string& text : integer ? wholes : all) {
            ASSERT_EQ(grammar != nullptr && grammar->accepts(text), is_within(std::stod(text)))
                << schema << " " << text;
          }
        }
      }
    }
  }
  const auto both = Grammar::parse_json_schema(R"({"type": "integer", "minimum": 3, "exclusiveMinimum": 3})", "s");
  EXPECT_FALSE(both->accepts("3"));
  EXPECT_TRUE(both->accepts("4"));
}

TEST(JsonSchema, ListsObjectsAndReferences) {
  const auto accepts = [](const char* schema, const char* text) {
    return Grammar::parse_json_schema(schema, "s")->accepts(text);
  };
  const char* const two = R"({"type": "array", "items": {"type": "integer"}, "minItems": 2})";
  EXPECT_FALSE(accepts(two, "[]"));
  EXPECT_FALSE(accepts(two, "[1]"));
  EXPECT_TRUE(accepts(two, "[1,2]"));
  const char* const shorter =
      R"({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "maxItems": 1})";
  EXPECT_TRUE(accepts(shorter, "[1]"));
  EXPECT_FALSE(accepts(shorter, "[1,\"a\"]"));
  const char* const absent = R"({"type": "object", "properties": {"a": false, "b": {"type": "integer"}}})";
  EXPECT_TRUE(accepts(absent, "{\"b\":1}"));
  EXPECT_FALSE(accepts(absent, "{\"a\":1,\"b\":1}"));
  // An identifier that is the anchor of older drafts leaves the meaning of references.
  EXPECT_TRUE(accepts(R"({"type": "array", "items": {"$id": "#x", "allOf": [{"$ref": "#/definitions/y"}]},
                          "definitions": {"y": {"type": "null"}}})",
                      "[null]"));
  EXPECT_TRUE(accepts(R"({"type": "string", "pattern": "^.$"})", "\"\u00e9\""));
  for (const char* line : {"\u2028", "\u2029"}) {
    EXPECT_FALSE(accepts(R"({"type": "string", "pattern": "^.$"})", ("\"" + std::string(line) + "\"").c_str()));
  }
}

// A text next to an exclusive bound that a double would hold as the bound itself is not a number within it.
TEST(JsonSchema, NumbersDoNotRoundToAnExclusiveBound) {
  const auto accepts = [](const char* schema, const char* text) {
    return Grammar::parse_json_schema(schema, "s")->accepts(text);
  };
  const char* const below = R"({"type": "number", "exclusiveMaximum": 1000000})";
  EXPECT_TRUE(accepts(below, "999999.999999999"));
  EXPECT_FALSE(accepts(below, "999999.99999999999"));
  EXPECT_TRUE(accepts(below, "999998.99999999999"));
  EXPECT_TRUE(accepts(below, "-999999.9999999999"));
  const char* const above = R"({"type": "number", "exclusiveMinimum": 1000000})";
  EXPECT_TRUE(accepts(above, "1000000.00000001"));
  EXPECT_TRUE(accepts(above, "1000001"));
  EXPECT_FALSE(accepts(above, "1000000.00000000001"));
  const char* const between = R"({"type": "number", "exclusiveMinimum": 12345678.25, "exclusiveMaximum": 12345678.5})";
  EXPECT_TRUE(accepts(between, "12345678.2500001"));
  EXPECT_TRUE(accepts(between, "12345678.4999999"));
  EXPECT_FALSE(accepts(between, "12345678.2500000001"));
  EXPECT_FALSE(accepts(between, "12345678.4999999999"));
  EXPECT_TRUE(accepts(R"({"type": "number", "exclusiveMinimum": 0})", "0.000000000123456"));
  const char* const of_fifteen =
      R"({"type": "number", "exclusiveMinimum": 123456789012344, "exclusiveMaximum": 123456789012347})";
  EXPECT_TRUE(accepts(of_fifteen, "123456789012345"));
  EXPECT_TRUE(accepts(of_fifteen, "123456789012346"));
  EXPECT_FALSE(accepts(of_fifteen, "123456789012346.9"));
  EXPECT_FALSE(accepts(of_fifteen, "123456789012344.1"));
  for (const char* const bound :
       {"2000000000000000", "9007199254740992", "65235373.397225596", "-65235373.397225596"}) {
    for (const char* const side : {"exclusiveMinimum", "exclusiveMaximum"}) {
      const std::string schema = std::string(R"({"type": "number", ")") + side + "\": " + bound + "}";
      EXPECT_THROW(Grammar::parse_json_schema(schema, "s"), InvalidArgument) << schema;
    }
  }
}

TEST(Grammar, RefusesKeywordsThatItDoesNotKeep) {
  const auto expect = [](const char* schema, const char* message) {
    try {
      Grammar::parse_json_schema(schema, "file");
      ADD_FAILURE() << schema;
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
    }
  };
  expect("{", "file");
  expect("3", "a schema: an object, true or false");
  expect("false", "false allows no value");
  expect(R"({"type": "array", "uniqueItems": true})", "the keyword \"uniqueItems\" is not supported");
  expect(R"({"not": {}})", "the keyword \"not\" is not supported");
  expect(R"({"properties": {"a": {"multipleOf": 3}}})", "field \"properties.a.multipleOf\"");
  expect(R"({"patternProperties": {}})", "the keyword \"patternProperties\" is not supported");
  expect(R"({"enum": ["a"], "minLength": 3})", "\"minLength\" beside \"enum\" is not supported");
  expect(R"({"anyOf": [{}], "properties": {}})", "\"properties\" beside \"anyOf\" is not supported");
  expect(R"({"oneOf": [{"type": "number"}, {"type": "integer"}]})", "has types that no other has");
  expect(R"({"allOf": [{}, {}]})", "one schema only");
  expect(R"({"type": "text"})", "expected null, boolean");
  expect(R"({"type": "string", "format": "hostname"})", "other formats are not supported");
  expect(R"x({"type": "string", "pattern": "a(?=b)"})x", "only groups of the forms");
  expect(R"({"type": "string", "pattern": "\\bx"})", "is not supported");
  expect(R"({"type": "string", "pattern": "x", "minLength": 1})", "minLength or maxLength is not supported");
  expect(R"({"type": "string", "minLength": 3, "maxLength": 2})", "maxLength is below minLength");
  expect(R"({"type": "integer", "minimum": 3, "maximum": 2})", "no number is within the bounds");
  expect(R"({"type": "number", "exclusiveMinimum": 3, "maximum": 3})", "no number is within the bounds");
  expect(R"({"type": "array", "prefixItems": [{}], "items": false, "minItems": 2})", "as many elements");
  expect(R"({"enum": ["a"], "type": "integer"})", "no value here has the schema's type");
  expect(R"({"required": ["a"], "additionalProperties": false})", "\"a\" is required");
  expect(R"({"$ref": "#/$defs/x"})", "there is nothing at");
  expect(R"({"$ref": "other.json"})", "a reference within this file");
  // There "#" is the schema e, and the value an integer.
  const std::string embedded =
      R"({"$defs": {"t": {"type": "string"}, "e": {"$id": "http://x/e", "anyOf": [{"$ref": "#/$defs/t"}],
                                   "$defs": {"t": {"type": "integer"}}}}, "$ref": "#/$defs/e"})";
  expect(embedded.c_str(), "in a schema with an identifier of its own");
  expect(R"({"properties": {"a": {"$ref": "#"}}, "required": ["a"]})", "never ends");
}

// Each of the texts is read after the one before; a mask of all tokens then says of each token what reading its bytes one after
// the other says. Returns how many tokens were allowed in all.
size_t check_masks(const Tokenizer& tokenizer, const std::shared_ptr<const Grammar>& grammar,
                   const std::vector<std::string>& texts) {
  const int64_t count = tokenizer.vocab_size();
  const TokenGrammar tokens(grammar, std::make_shared<VocabularyTries>(tokenizer, count));
  TokenGrammar::Reading reading = tokens.start();
  size_t allowed_in_all = 0;
  for (const std::string& next : texts) {
    for (const int32_t id : tokenizer.encode(next, false)) tokens.read(reading, id);
    const auto allowed = tokens.allowed(reading);
    for (int64_t id = 0; id < count; ++id) {
      TokenGrammar::Reading further = reading;
      bool fits = true;
      try {
        tokens.read(further, static_cast<int32_t>(id));
      } catch (const InvalidArgument&) {
        fits = false;
      }
      EXPECT_EQ(allowed->has(static_cast<size_t>(id)), fits) << id << " after " << reading.text;
      if (allowed->has(static_cast<size_t>(id)) != fits) return 0;
      allowed_in_all += fits ? 1 : 0;
    }
  }
  return allowed_in_all;
}

TEST(Grammar, MasksAreWhatReadingTheBytesGives) {
  const auto tokenizer = Tokenizer::load(std::string(ANYACCEL_SOURCE_DIR) + "/models/stories");
  const auto masks_of = [&](const char* text, const std::vector<std::string>& read) {
    return check_masks(*tokenizer, Grammar::parse_gbnf(text, "g"), read);
  };
  EXPECT_GT(masks_of("root ::= (\"Once \" | [A-Z] [a-z]* \" \") rest\nrest ::= [a-d,é ]{0,9} \".\"",
                     {"", "O", "nce", " ", "b", ",", "é"}),
            20u);
  // Any characters, many and few of them; all but one; literals with a common beginning.
  const auto strings = Grammar::parse_json_schema(
      R"({"type": "array", "items": [{"type": "string", "maxLength": 30}, {"type": "string"}]})", "schema");
  EXPECT_GT(check_masks(*tokenizer, strings,
                        {"[", "\"", "a", " girl named Luna", " is so", "\"", ",", "\"", "\\", "\"", "x é"}),
            500u);
  EXPECT_GT(masks_of("root ::= [^é]* \"é\" .*", {"", "The", " ", "é", "é"}), 500u);
  EXPECT_GT(masks_of("root ::= [\\x20-\\x7E\\u00A0-\\uFFFF]*", {"The"}), 100u);
  EXPECT_GT(masks_of("root ::= (\"the\" | \"then\" | \"there\" | \"a\" | \"th\" [a-z])+", {"", "th", "e", "n", "a"}),
            10u);
}

// The first token of a text has no space before it, and the same token later has.
TEST(Grammar, SpacesOfTokensDependOnTheirPlace) {
  const auto tokenizer = Tokenizer::parse_json(R"({"added_tokens": [], "normalizer": null, "post_processor": null,
    "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
    "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
    "model": {"type": "BPE", "vocab": {"▁": 0, "a": 1, "▁a": 2}, "merges": ["▁ a"]}})",
                                               "tokenizer.json");
  const TokenGrammar tokens(Grammar::parse_gbnf("root ::= \"a a\"", "g"),
                            std::make_shared<VocabularyTries>(*tokenizer, 3));
  TokenGrammar::Reading reading = tokens.start();
  EXPECT_TRUE(tokens.allowed(reading)->has(2));
  tokens.read(reading, 2);
  EXPECT_TRUE(tokens.allowed(reading)->has(2));
  EXPECT_FALSE(tokens.allowed(reading)->has(1));
  tokens.read(reading, 2);
  EXPECT_TRUE(tokens.is_complete(reading));
}

// A byte-level tokenizer with `words` tokens of letters beside the printable characters, and 200 with quotes.
std::unique_ptr<Tokenizer> tokenizer_of_words(const anyaccel::testing::TemporaryDirectory& directory, int words) {
  nlohmann::json vocabulary;
  const auto add = [&](const std::string& text) { vocabulary.emplace(text, vocabulary.size()); };
  for (char c = '!'; c <= '~'; ++c) add(std::string(1, c));
  add("\xC4\xA0");  // a space
  uint32_t random = 1;
  const auto letters = [&] {
    std::string text;
    for (int i = 0; i < 7; ++i) text += static_cast<char>('a' + (random = random * 1664525 + 1013904223) / 256 % 26);
    return text;
  };
  for (int i = 0; i < 200; ++i) add(letters() + "\"");
  for (int i = 0; i < words; ++i) add(letters());
  const nlohmann::json file = {
      {"added_tokens", nlohmann::json::array()},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}}};
  std::ofstream(directory.path() + "/tokenizer.json") << file.dump();
  std::ofstream(directory.path() + "/tokenizer_config.json") << R"({"tokenizer_class": "PreTrainedTokenizerFast"})";
  return Tokenizer::load(directory.path());
}

// Nodes and states that are visited for each token of a long string, whose positions all differ.
TEST(Grammar, WorkForATokenDoesNotGrowWithTheVocabulary) {
  const auto grammar = Grammar::parse_json_schema(R"({"type": "string", "maxLength": 20000})", "schema");
  std::vector<uint64_t> visits;
  for (const int words : {2'000, 20'000}) {
    const anyaccel::testing::TemporaryDirectory directory;
    const auto tokenizer = tokenizer_of_words(directory, words);
    const int64_t count = tokenizer->vocab_size();
    const TokenGrammar tokens(grammar, std::make_shared<VocabularyTries>(*tokenizer, count));
    TokenGrammar::Reading reading = tokens.start();
    tokens.read(reading, *tokenizer->token_to_id("\""));
    tokens.allowed(reading);
    const uint64_t before = tokens.visits();
    for (int i = 0; i < 100; ++i) {
      tokens.read(reading, static_cast<int32_t>(count - 1 - i));
      EXPECT_TRUE(tokens.allowed(reading)->has(static_cast<size_t>(count - 1)));
    }
    visits.push_back((tokens.visits() - before) / 100);
  }
  EXPECT_LT(visits[0], 4'000u);
  EXPECT_LT(visits[1], visits[0] + visits[0] / 4);
}

// The states that a position has: literal texts share their beginnings.
TEST(Grammar, WorkForATokenDoesNotGrowWithTheNumberOfLiterals) {
  const anyaccel::testing::TemporaryDirectory directory;
  const auto tokenizer = tokenizer_of_words(directory, 2'000);
  std::vector<uint64_t> visits;
  for (const int count : {100, 2'000}) {
    nlohmann::json texts;
    for (int i = 0; i < count; ++i) texts.push_back("word " + std::to_string(100'000 + i));
    const nlohmann::json schema = {{"type", "array"}, {"items", {{"enum", texts}}}, {"minItems", 50}};
    const auto grammar = Grammar::parse_json_schema(schema.dump(), "schema");
    const TokenGrammar tokens(grammar, std::make_shared<VocabularyTries>(*tokenizer, tokenizer->vocab_size()));
    TokenGrammar::Reading reading = tokens.start();
    for (const char c : std::string("[\"word 100042\",\"word 100017\",\"")) {
      const std::string byte = c == ' ' ? "\xC4\xA0" : std::string(1, c);
      tokens.read(reading, *tokenizer->token_to_id(byte));
      tokens.allowed(reading);
    }
    visits.push_back(tokens.visits());
  }
  EXPECT_LT(visits[1], 2 * visits[0]);
}

// The texts of tokens in a row are what decoding them gives, or the tokenizer is refused.
TEST(Grammar, TokensHaveTheirBytes) {
  size_t compared = 0, refused = 0;
  const auto compare = [&](const Tokenizer& tokenizer, const std::string& name) {
    for (const char* text : {"Once upon a time", " a b", "\u00e9t\u00e9 \U0001F44B\n\n  x", "\"{}\"", "The", "1 2"}) {
      const std::vector<int32_t> ids = tokenizer.encode(text, false);
      std::string bytes;
      for (size_t i = 0; i < ids.size(); ++i) bytes += tokenizer.token_bytes(ids[i], i == 0);
      EXPECT_EQ(bytes, tokenizer.decode(ids)) << name << " " << text;
    }
  };
  std::vector<std::filesystem::path> paths = {std::string(ANYACCEL_SOURCE_DIR) + "/models/stories"};
  for (const char* folder : {"/tokenizers", "/tokenizer_directories", "/models"}) {
    for (const auto& entry : std::filesystem::directory_iterator(anyaccel::testing::test_data() + folder)) {
      if (entry.is_directory()) paths.push_back(entry.path());
    }
  }
  for (const std::filesystem::path& path : paths) {
    std::unique_ptr<Tokenizer> tokenizer;
    try {
      tokenizer = Tokenizer::load(path);
    } catch (const CheckpointError&) {
      continue;  // a directory without a tokenizer, or one for the tests of errors
    }
    try {
      compare(*tokenizer, path.string());
      ++compared;
    } catch (const NotImplementedError& error) {
      EXPECT_NE(std::string(error.what()).find("depends on their neighbours"), std::string::npos) << error.what();
      ++refused;
    }
  }
  EXPECT_GE(compared, 5u);
  EXPECT_GE(refused, 1u);
}

class HeldAnswers : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    LoadOptions options;
    options.dtype = DType::F32;
    generator_.emplace(TextGenerator::load(std::string(ANYACCEL_SOURCE_DIR) + "/models/stories", options));
  }
  static void TearDownTestSuite() { generator_.reset(); }
  static GenerateOptions sampled(uint64_t seed) {
    GenerateOptions options = generator_->default_options();
    options.sampling = {.temperature = 1.3f};
    options.max_new_tokens = 120;
    options.seed = seed;
    return options;
  }
  static inline std::optional<TextGenerator> generator_;
};

// Batches whose answers end at different times, greedy and sampled.
TEST_F(HeldAnswers, AreTextsOfTheGrammar) {
  const auto schema = Grammar::parse_json_schema(
      R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0,
          "maximum": 99}, "likes": {"type": "array", "items": {"enum": ["cats", "dogs"]}, "maxItems": 2}},
          "required": ["name", "age"], "additionalProperties": false})",
      "s");
  const std::vector<std::string> prompts = {"Once upon a time", "Tom", "The cat said"};
  size_t complete = 0;
  for (const float temperature : {0.0f, 1.3f}) {
    GenerateOptions options = sampled(4);
    options.sampling.temperature = temperature;
    options.grammar = schema;
    const GenerateResult result = generator_->generate(prompts, options);
    for (const Completion& completion : result.completions) {
      if (completion.finish_reason == FinishReason::Length) continue;
      ++complete;
      EXPECT_EQ(completion.finish_reason, FinishReason::Stop);  // nothing can follow the closing brace
      EXPECT_TRUE(schema->accepts(completion.text)) << completion.text;
      const OrderedJson value = OrderedJson::parse(completion.text);
      EXPECT_TRUE(value.at("name").is_string());
      EXPECT_LE(value.at("age").get<int>(), 99);
    }
  }
  EXPECT_GE(complete, 4u);
}

TEST_F(HeldAnswers, EndWhereTheModelEndsThem) {
  // The text may end after each word, so the end-of-text token decides, and is allowed nowhere else.
  GenerateOptions options = sampled(7);
  options.grammar = Grammar::parse_gbnf("root ::= (\" \"? [a-z]{3} \".\")+", "g");
  options.max_new_tokens = 400;
  const GenerateResult result = generator_->generate(std::vector<std::string>{"A", "B"}, options);
  for (const Completion& completion : result.completions) {
    if (completion.finish_reason == FinishReason::Eos) {
      EXPECT_TRUE(options.grammar->accepts(completion.text)) << completion.text;
    }
    EXPECT_EQ(completion.text.find_first_not_of("abcdefghijklmnopqrstuvwxyz ."), std::string::npos);
  }
}

TEST_F(HeldAnswers, AreNotEndedByATokenThatHasATextOfTheGrammarToo) {
  GenerateOptions options = sampled(7);
  options.sampling = {};
  options.grammar = Grammar::parse_gbnf("root ::= [a-zA-Z ,]{30} \".\"", "g");
  const std::vector<std::string> prompts = {"Once upon a time"};
  options.more_eos_ids = generator_->generate(prompts, options).completions[0].token_ids;
  options.more_eos_ids.resize(3);
  const Completion completion = generator_->generate(prompts, options).completions[0];
  EXPECT_EQ(completion.finish_reason, FinishReason::Stop);
  EXPECT_TRUE(options.grammar->accepts(completion.text)) << completion.text;
}

TEST_F(HeldAnswers, AGrammarThatAllowsWhatTheModelSaysChangesNothing) {
  GenerateOptions options = sampled(11);
  options.max_new_tokens = 30;
  const std::vector<std::string> prompts = {"Once upon a time", "Tom"};
  const GenerateResult plain = generator_->generate(prompts, options);
  options.grammar = Grammar::parse_gbnf("root ::= .*", "g");
  const GenerateResult held = generator_->generate(prompts, options);
  for (size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ(held.completions[i].text, plain.completions[i].text);
}

TEST_F(HeldAnswers, RefuseWhatCannotBeKept) {
  GenerateOptions options = sampled(1);
  options.grammar = Grammar::parse_gbnf("root ::= \"x\"", "g");
  options.rules.forced_bos_token_id = 3;
  EXPECT_THROW(generator_->generate(std::vector<std::string>{"A"}, options), InvalidArgument);
  options.rules.forced_bos_token_id.reset();
  // The letter x is forbidden as a token.
  for (int32_t id = 0; id < generator_->tokenizer()->vocab_size(); ++id) {
    if (generator_->tokenizer()->token_bytes(id, true) == "x") options.rules.suppress_tokens.push_back(id);
  }
  try {
    generator_->generate(std::vector<std::string>{"A"}, options);
    ADD_FAILURE();
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("the grammar and the other rules leave none"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace anyaccel::llm
