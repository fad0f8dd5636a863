// Implements `anyaccel tokenize`: prints the tokens of a text, or the text of tokens.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "anyaccel/llm/tokenizer.h"
#include "cli/commands/command_support.h"
#include "cli/commands/commands.h"
#include "cli/json_output.h"
#include "cli/prompt_file.h"

namespace anyaccel::cli {
namespace {

// Parses whole numbers that are separated by white space or commas.
std::vector<int32_t> read_ids(const std::string& text, int64_t vocab_size) {
  std::vector<int32_t> ids;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = text.find_first_not_of(" \t\r\n,", at);
    if (begin == std::string::npos) break;
    at = std::min(text.find_first_of(" \t\r\n,", begin), text.size());
    ids.push_back(
        static_cast<int32_t>(parse_integer("--decode: an id", text.substr(begin, at - begin), 0, vocab_size - 1)));
  }
  return ids;
}

// Formats a token on one line, with control characters and quotes escaped as in JSON.
std::string one_line(const std::string& token) { return json_text(JsonValue(token), -1, BadUtf8::Replace); }

}  // namespace

int run_tokenize(int argc, char** argv) {
  CommandLine line("Prints the tokens of a text, an id and a token a line, or with --decode the text of ids",
                   "anyaccel tokenize");
  std::string model;
  std::string file = "-";
  bool only_ids = false;
  bool decode = false;
  bool no_special = false;
  bool json = false;
  line.add_option("--model", model,
                  "A Hugging Face directory, of which the tokenizer's files are enough, or a .gguf file")
      .required()
      .not_empty();
  line.add_option("FILE", file, "The text or the ids; - reads standard input").show_default().not_empty();
  line.add_flag("--ids", only_ids, "Print the ids in one line, which --decode reads again");
  line.add_flag("--decode", decode, "Read ids and print their text");
  line.add_flag("--no-special", no_special,
                "Add no special tokens around the text; with --decode, leave special tokens out of it");
  line.add_json_flag(json, "Print one JSON object");

  return run_command(line, argc, argv, [&] {
    if (decode && only_ids) throw UsageError("--ids cannot go with --decode, which prints a text");
    const auto tokenizer = llm::Tokenizer::load(model);
    const std::string input = read_text_file(file, "FILE");
    const std::vector<int32_t> ids =
        decode ? read_ids(input, tokenizer->vocab_size()) : tokenizer->encode(input, !no_special);
    const std::string text = decode ? tokenizer->decode(ids, no_special) : input;
    if (json) {
      JsonValue tokens{JsonArray()};
      for (const int32_t id : ids) tokens.push_back(tokenizer->id_to_token(id).value_or(""));
      print_json({{"ids", JsonValue(ids)}, {"tokens", tokens}, {"text", text}});
    } else if (decode) {
      std::fwrite(text.data(), 1, text.size(), stdout);
    } else if (only_ids) {
      for (size_t i = 0; i < ids.size(); ++i) std::printf("%s%d", i == 0 ? "" : " ", ids[i]);
      std::printf("\n");
    } else {
      for (const int32_t id : ids) {
        std::printf("%7d  %s\n", id, one_line(tokenizer->id_to_token(id).value_or("")).c_str());
      }
    }
    return 0;
  });
}

}  // namespace anyaccel::cli
