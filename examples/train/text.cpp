// Implements text.h: generates and reads documents, and writes the tokenizer of bytes.
#include "text.h"

#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string_view>

namespace {

class Grammar {
 public:
  explicit Grammar(uint64_t seed) : random_(seed) {}

  // Generates a document: an animal does something somewhere, and the rest depends on what it did.
  std::string document() {
    static const std::vector<std::string> animals = {"fox", "owl", "hare", "bear", "mouse", "duck", "wolf", "goat"};
    static const std::vector<std::string> kinds = {"old",    "young",  "brown", "quiet",
                                                   "clever", "hungry", "tired", "small"};
    static const std::vector<std::string> places = {"by the river",     "in the wood",
                                                    "on the hill",      "near the old mill",
                                                    "under the bridge", "at the edge of the field"};
    struct Deed {
      std::string does, follows;
    };
    static const std::vector<Deed> deeds = {
        {"found a red apple", "ate it at once"},       {"saw the moon", "sang to it all night"},
        {"lost its way", "asked a friend for help"},   {"built a little house", "slept in it until morning"},
        {"heard a strange noise", "ran home quickly"}, {"caught a silver fish", "gave half of it away"}};
    const std::string kind = pick(kinds), animal = pick(animals);
    const Deed& deed = pick(deeds);
    return "The " + kind + " " + animal + " " + deed.does + " " + pick(places) + ". Then the " + animal + " " +
           deed.follows + ".";
  }

 private:
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[random_() % from.size()];
  }
  std::mt19937_64 random_;
};

// Returns GPT-2's letter for a byte as JSON text: the byte itself if it is printable, else one of the characters from
// U+0100 on.
std::string byte_letter(int byte) {
  const auto printable = [](int b) {
    return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff);
  };
  int code = byte;
  if (!printable(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
  }
  if (code == '"' || code == '\\') return {'\\', static_cast<char>(code)};
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3f))};
}

}  // namespace

std::vector<std::string> make_documents(uint64_t seed, size_t count) {
  Grammar grammar(seed);
  std::vector<std::string> documents;
  while (documents.size() < count) documents.push_back(grammar.document());
  return documents;
}

std::vector<std::string> read_documents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path)) throw std::runtime_error("--text: cannot read '" + path + "'");
  std::vector<std::string> documents;
  std::string document, line;
  const auto add = [&] {
    const size_t begin = document.find_first_not_of(" \n\r\t");
    if (begin != std::string::npos) {
      documents.push_back(document.substr(begin, document.find_last_not_of(" \n\r\t") - begin + 1));
    }
    document.clear();
  };
  while (std::getline(file, line)) {
    // Lines may end in CR LF, and editors leave blanks at their ends.
    const std::string_view bare(line.data(), line.find_last_not_of(" \t\r") + 1);
    if (bare.size() >= 3 && bare.find_first_not_of('-') == std::string_view::npos) {
      add();
    } else {
      document += line + "\n";
    }
  }
  if (file.bad()) throw std::runtime_error("--text: '" + path + "' could be read in part only");
  add();
  if (documents.empty()) throw std::runtime_error("--text: '" + path + "' holds no text");
  return documents;
}

std::vector<int32_t> byte_tokens(const std::string& text) {
  std::vector<int32_t> tokens;
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c) + kFirstByte);
  return tokens;
}

std::string byte_tokenizer_json() {
  const std::string flags = R"("single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true)";
  std::string json = R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[)";
  json +=
      R"({"id":0,"content":"<|begin_of_text|>",)" + flags + R"(},{"id":1,"content":"<|end_of_text|>",)" + flags + "}],";
  json +=
      R"("normalizer":null,)"
      R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false},)"
      R"("post_processor":{"type":"TemplateProcessing",)"
      R"("single":[{"SpecialToken":{"id":"<|begin_of_text|>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],)"
      R"("pair":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":1}}],)"
      R"("special_tokens":{"<|begin_of_text|>":{"id":"<|begin_of_text|>","ids":[0],"tokens":["<|begin_of_text|>"]}}},)"
      R"("decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true},)"
      R"("model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,)"
      R"("end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"ignore_merges":false,"vocab":{)"
      R"("<|begin_of_text|>":0,"<|end_of_text|>":1)";
  for (int byte = 0; byte < 256; ++byte) {
    json += ",\"" + byte_letter(byte) + "\":" + std::to_string(byte + kFirstByte);
  }
  return json + R"(},"merges":[]}})" + "\n";
}
