// Reads tiktoken's files: a token in base64 and its rank on each line. Neither pattern nor special tokens are in them, so
// these are the ones that each family's own code has.
#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>

#include "anyaccel/error.h"
#include "base/text/base64.h"
#include "llm/tokenizer/gguf_word_rules.h"
#include "llm/tokenizer/ranked_tokens.h"

namespace anyaccel::llm {

namespace {

struct SpecialRange {
  std::string_view name;  // with a % where the number goes, if there are several
  int32_t first = 0;      // id, counted from the number of ranks
  int32_t count = 1;
  int32_t number = 0;  // of the first one
};

struct TiktokenFamily {
  std::string_view name;                  // in error messages
  std::array<std::string_view, 3> files;  // names that say which family it is
  std::array<std::string_view, 4> types;  // model types and classes that do
  std::string_view words;                 // a rule of gguf_word_rules.h
  std::array<SpecialRange, 10> special;
  std::string_view bos, eos;
  bool adds_bos = false;
};

// Sources: tiktoken 0.14 (openai_public.py), Qwen's tokenization_qwen.py, Llama 3's
// tokenizer.py.
constexpr std::array<TiktokenFamily, 5> tiktoken_families = {{
    {"Qwen (qwen.tiktoken)",
     {"qwen.tiktoken"},
     {"qwen", "QWenTokenizer"},
     "qwen2",
     {{{"<|endoftext|>", 0}, {"<|im_start|>", 1}, {"<|im_end|>", 2}, {"<|extra_%|>", 3, 205}}},
     "",
     "<|endoftext|>"},
    {"Llama 3 (tokenizer.model of model type llama)",
     {},
     {"llama", "PreTrainedTokenizer", "LlamaTokenizer", "Tokenizer"},
     "llama3",
     {{{"<|begin_of_text|>", 0},
       {"<|end_of_text|>", 1},
       {"<|reserved_special_token_%|>", 2, 4},
       {"<|start_header_id|>", 6},
       {"<|end_header_id|>", 7},
       {"<|reserved_special_token_%|>", 8, 1, 4},
       {"<|eot_id|>", 9},
       {"<|reserved_special_token_%|>", 10, 246, 5}}},
     "<|begin_of_text|>",
     "<|end_of_text|>",
     true},
    {"cl100k_base.tiktoken",
     {"cl100k_base.tiktoken"},
     {},
     "smaug-bpe",
     {{{"<|endoftext|>", 1},
       {"<|fim_prefix|>", 2},
       {"<|fim_middle|>", 3},
       {"<|fim_suffix|>", 4},
       {"<|endofprompt|>", 20}}},
     "",
     "<|endoftext|>"},
    {"o200k_base.tiktoken",
     {"o200k_base.tiktoken"},
     {},
     "gpt-4o",
     {{{"<|endoftext|>", 1}, {"<|endofprompt|>", 20}}},
     "",
     "<|endoftext|>"},
    {"r50k_base.tiktoken", {"r50k_base.tiktoken"}, {}, "gpt-2", {{{"<|endoftext|>", 0}}}, "", "<|endoftext|>"},
}};

std::string text_member(const std::optional<TokenizerFile>& file, std::string_view key) {
  if (!file) return {};
  const JsonDocument document = JsonDocument::parse(file->text, file->path);
  if (!document.root().is_object()) document.root().fail("an object");
  const auto value = document.root().find(key);
  return value && value->is_string() ? value->string() : std::string();
}

const TiktokenFamily& find_tiktoken_family(const TokenizerFile& file, const TokenizerFiles& files) {
  const std::string name = std::filesystem::path(file.path).filename().string();
  const std::string type = text_member(files.config, "model_type");
  const std::string kind = text_member(files.tokenizer_config, "tokenizer_class");
  for (const TiktokenFamily& family : tiktoken_families) {
    if (std::ranges::count(family.files, name) > 0) return family;
  }
  // A tokenizer.model that is alone is Llama 3's, as Meta ships it.
  if (name == "tokenizer.model" && type.empty() && kind.empty()) return tiktoken_families[1];
  for (const TiktokenFamily& family : tiktoken_families) {
    const auto names = [&](const std::string& text) {
      return !text.empty() && std::ranges::count(family.types, text) > 0;
    };
    if (type.empty() ? names(kind) : names(type)) return family;
  }
  std::string known;
  for (const TiktokenFamily& family : tiktoken_families)
    known += (known.empty() ? "" : ", ") + std::string(family.name);
  throw CheckpointError(
      file.path + ": is a list of tokens as tiktoken writes it, and " +
      (type.empty() && kind.empty() ? std::string("neither its name nor another file tells")
                                    : "neither its name nor " + quote_text(type.empty() ? kind : type) + " tells") +
      " how a text is split into words; known are " + known + ". A tokenizer.json of the same model can be used");
}

// Reads "IQ== 0".
std::pair<std::string, size_t> read_line(std::string_view line, const std::string& where) {
  const size_t space = line.find(' ');
  if (space != std::string_view::npos) {
    const std::string_view number = line.substr(space + 1);
    size_t rank = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), rank);
    auto bytes = decode_base64(line.substr(0, space));
    if (bytes && error == std::errc() && end == number.data() + number.size()) return {std::move(*bytes), rank};
  }
  throw CheckpointError(where + "found " + quote_text(line.substr(0, 64)) +
                        "; expected a token in base64, a space and its rank");
}

std::string_view next_line(std::string_view& rest) {
  const size_t end = rest.find('\n');
  std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

}  // namespace

bool is_tiktoken(std::string_view text) {
  const std::string_view line = next_line(text).substr(0, 4096);
  const size_t space = line.find(' ');
  return space != std::string_view::npos && space > 0 && decode_base64(line.substr(0, space)) &&
         line.find_first_not_of("0123456789", space + 1) == std::string_view::npos;
}

RankedTokens read_tiktoken(const TokenizerFile& file, const TokenizerFiles& files) {
  const TiktokenFamily& family = find_tiktoken_family(file, files);
  RankedTokens ranked;
  std::string_view rest = file.text;
  for (size_t number = 1; !rest.empty(); ++number) {
    const std::string_view line = next_line(rest);
    if (line.empty()) continue;
    const std::string where = file.path + ": line " + std::to_string(number) + ": ";
    auto [bytes, rank] = read_line(line, where);
    if (rank != ranked.tokens.size()) {
      throw CheckpointError(where + "the rank is " + std::to_string(rank) + "; expected " +
                            std::to_string(ranked.tokens.size()) + ", in order and without gaps");
    }
    ranked.tokens.push_back(std::move(bytes));
  }
  const auto count = static_cast<int32_t>(ranked.tokens.size());
  for (const SpecialRange& range : family.special) {
    if (range.name.empty()) continue;
    for (int32_t i = 0; i < range.count; ++i) {
      std::string content(range.name);
      if (const size_t at = content.find('%'); at != std::string::npos) {
        content.replace(at, 1, std::to_string(range.number + i));
      }
      ranked.special.push_back(
          {{"id", count + range.first + i}, {"content", content}, {"special", true}, {"normalized", false}});
    }
  }
  const WordRule& rule = *find_word_rule(family.words);
  for (const std::string_view pattern : rule.patterns) {
    if (!pattern.empty()) ranked.patterns.emplace_back(pattern);
  }
  ranked.composes = rule.composes;
  ranked.splits_as_gpt2 = rule.splits_as_gpt2;
  if (!family.bos.empty()) ranked.bos = family.bos;
  ranked.eos = family.eos;
  ranked.adds_bos = family.adds_bos;
  return ranked;
}

}  // namespace anyaccel::llm
