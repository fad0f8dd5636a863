// Turns tokens with ranks into a model of byte pair encoding.
#include "llm/tokenizer/ranked_tokens.h"

#include <unordered_map>
#include <utility>

#include "anyaccel/error.h"
#include "llm/tokenizer/components.h"

namespace anyaccel::llm {

namespace {

constexpr size_t longest_token = 1024;
// A bound for hostile files; 200,000 tokens of real ones need less than a hundredth of it.
constexpr size_t most_work = size_t{1} << 30;

std::string printable(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += byte_text(static_cast<unsigned char>(byte));
  return text;
}

using IdsOfBytes = std::unordered_map<std::string_view, int32_t>;

// Checks the tokens and returns their ids.
IdsOfBytes ids_of(const RankedTokens& ranked, const std::string& source) {
  IdsOfBytes ids;
  ids.reserve(ranked.tokens.size());
  size_t work = 0;
  for (size_t rank = 0; rank < ranked.tokens.size(); ++rank) {
    const std::string& token = ranked.tokens[rank];
    const auto fail = [&](const std::string& what) {
      throw CheckpointError(source + ": the token of rank " + std::to_string(rank) + " " + what);
    };
    if (token.empty()) fail("is empty; expected at least one byte");
    if (token.size() > longest_token) {
      fail("has " + std::to_string(token.size()) + " bytes; expected at most " + std::to_string(longest_token));
    }
    work += token.size() * token.size();
    if (work > most_work) fail("and those before are too long together: their merges would take very long to find");
    const auto [found, is_new] = ids.emplace(token, ranked.first_id + static_cast<int32_t>(rank));
    if (!is_new)
      fail("is that of rank " + std::to_string(found->second - ranked.first_id) + " again; expected different ones");
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    if (!ids.contains(std::string_view(&text, 1))) {
      throw CheckpointError(source + ": the byte " + std::to_string(byte) +
                            " is no token; expected all 256, from which the others are merged");
    }
  }
  return ids;
}

}  // namespace

std::unique_ptr<BpeModel> make_ranked_model(const RankedTokens& ranked, const std::string& source) {
  const IdsOfBytes ids = ids_of(ranked, source);
  std::vector<BpeModel::IdMerge> merges;
  for (const std::string& token : ranked.tokens) {
    const std::string_view whole = token;
    // Every way to split the token into two others.
    for (size_t length = 1; length < whole.size(); ++length) {
      const auto left = ids.find(whole.substr(0, length)), right = ids.find(whole.substr(length));
      if (left != ids.end() && right != ids.end()) merges.push_back({left->second, right->second, ids.at(whole)});
    }
  }
  std::vector<std::string> vocabulary;
  vocabulary.reserve(static_cast<size_t>(ranked.first_id) + ranked.tokens.size());
  for (int32_t id = 0; id < ranked.first_id; ++id) {
    vocabulary.push_back(std::get<std::string>(ranked.special[static_cast<size_t>(id)].find("content")->data));
  }
  for (const std::string& token : ranked.tokens) vocabulary.push_back(printable(token));
  BpeOptions options;
  options.ignore_merges = true;
  options.rank_is_token = true;
  return std::make_unique<BpeModel>(Vocabulary(std::move(vocabulary)), merges, std::move(options));
}

JsonDocument byte_level_steps(std::span<const std::string> patterns, bool splits_as_gpt2, bool composes) {
  JsonArray steps;
  for (const std::string& pattern : patterns) {
    steps.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
  }
  steps.push_back(
      {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", splits_as_gpt2}});
  JsonValue json = {{"decoder", {{"type", "ByteLevel"}}}};
  if (composes) json["normalizer"] = {{"type", "NFC"}};
  json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
  return JsonDocument::parse(json_text(json), "steps");
}

}  // namespace anyaccel::llm
