// Reads Mistral's tekken.json: tokens in base64 by rank, a pattern, and special tokens, whose ids come first.
#include <algorithm>
#include <array>
#include <set>

#include "base/text/base64.h"
#include "llm/tokenizer/ranked_tokens.h"

namespace anyaccel::llm {

namespace {

constexpr int64_t most_tokens = int64_t{1} << 24;

// Those of files without a list of their own, of the versions v1 to v7.
constexpr std::array<std::string_view, 20> first_special = {"<unk>",
                                                            "<s>",
                                                            "</s>",
                                                            "[INST]",
                                                            "[/INST]",
                                                            "[AVAILABLE_TOOLS]",
                                                            "[/AVAILABLE_TOOLS]",
                                                            "[TOOL_RESULTS]",
                                                            "[/TOOL_RESULTS]",
                                                            "[TOOL_CALLS]",
                                                            "[IMG]",
                                                            "<pad>",
                                                            "[IMG_BREAK]",
                                                            "[IMG_END]",
                                                            "[PREFIX]",
                                                            "[MIDDLE]",
                                                            "[SUFFIX]",
                                                            "[SYSTEM_PROMPT]",
                                                            "[/SYSTEM_PROMPT]",
                                                            "[TOOL_CONTENT]"};
constexpr std::array<std::string_view, 4> first_versions = {"v1", "v2", "v3", "v7"};

std::vector<std::string> read_special_tokens(const JsonRef& root, const JsonRef& config) {
  std::vector<std::string> names;
  if (const auto list = root.find("special_tokens")) {
    if (!list->is_array()) list->fail("a list of special tokens");
    for (size_t i = 0; i < list->size(); ++i) {
      const JsonRef entry = (*list)[i];
      const JsonRef rank = entry.at("rank");
      if (rank.integer(0, most_tokens) != static_cast<int64_t>(i))
        rank.fail(std::to_string(i) + ", in order and without gaps");
      names.push_back(entry.at("token_str").string());
    }
    return names;
  }
  const JsonRef version = config.at("version");
  if (std::ranges::count(first_versions, version.string()) == 0) {
    version.error("the version is " + quote_text(version.string()) +
                  ", whose files have a list special_tokens; expected one, or v1, v2, v3 or v7");
  }
  return {first_special.begin(), first_special.end()};
}

}  // namespace

RankedTokens read_tekken(const TokenizerFile& file) {
  const JsonDocument document = JsonDocument::parse(file.text, file.path);
  const JsonRef root = document.root();
  if (!root.is_object()) root.fail("an object");
  const JsonRef config = root.at("config"), vocabulary = root.at("vocab");
  RankedTokens ranked;
  ranked.patterns.push_back(config.at("pattern").string());
  if (!vocabulary.is_array()) vocabulary.fail("a list of tokens");
  const int64_t special = config.at("default_num_special_tokens").integer(0, 1 << 16);
  const JsonRef size = config.at("default_vocab_size");
  const int64_t total = size.integer(0, most_tokens), count = total - special;
  if (count < 0 || count > static_cast<int64_t>(vocabulary.size())) {
    size.fail("from " + std::to_string(special) + " to " +
              std::to_string(special + static_cast<int64_t>(vocabulary.size())) +
              ", the number of special tokens and that of all");
  }
  ranked.first_id = static_cast<int32_t>(special);

  std::vector<std::string> names = read_special_tokens(root, config);
  if (static_cast<int64_t>(names.size()) > special) {
    config.at("default_num_special_tokens")
        .fail("at least " + std::to_string(names.size()) + ", the special tokens of the file");
  }
  while (static_cast<int64_t>(names.size()) < special)
    names.push_back("<SPECIAL_" + std::to_string(names.size()) + ">");
  std::set<std::string> known;
  for (size_t id = 0; id < names.size(); ++id) {
    if (names[id].empty() || !known.insert(names[id]).second) {
      root.error("the special token " + quote_text(names[id]) + " is empty or occurs twice");
    }
    ranked.special.push_back({{"id", id}, {"content", names[id]}, {"special", true}, {"normalized", false}});
  }

  // Of more tokens than the vocabulary's size says, the last ones are not used.
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    const JsonRef entry = vocabulary[i];
    const JsonRef rank = entry.at("rank"), bytes = entry.at("token_bytes");
    if (rank.integer(0, most_tokens) != static_cast<int64_t>(i))
      rank.fail(std::to_string(i) + ", in order and without gaps");
    auto decoded = decode_base64(bytes.string());
    if (!decoded) bytes.fail("bytes in base64");
    ranked.tokens.push_back(std::move(*decoded));
  }
  const auto named = [&](const char* name) {
    return known.contains(name) ? std::optional<std::string>(name) : std::nullopt;
  };
  ranked.bos = named("<s>");
  ranked.eos = named("</s>");
  ranked.adds_bos = ranked.bos.has_value();
  return ranked;
}

}  // namespace anyaccel::llm
