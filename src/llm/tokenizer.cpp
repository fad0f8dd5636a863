// Loading a tokenizer from a model directory, and decoding.
#include "anyaccel/llm/tokenizer.h"

#include "anyaccel/error.h"
#include "llm/json.h"
#include "llm/tokenizer_stream.h"

namespace anyaccel::llm {
namespace {

constexpr size_t max_tokenizer_bytes = 512 << 20;
constexpr size_t max_config_bytes = 16 << 20;

// A special token of tokenizer_config.json: its text, or an object that has it as "content".
std::optional<std::string> special_token(const JsonRef& root, std::string_view key) {
  const auto value = root.find(key);
  if (!value) return std::nullopt;
  return value->is_object() ? value->at("content").string() : value->string();
}

std::optional<bool> optional_flag(const JsonRef& root, std::string_view key) {
  const auto value = root.find(key);
  if (!value) return std::nullopt;
  return value->boolean();
}

}  // namespace

// Has access to what load() sets on a tokenizer.
class TokenizerDirectory {
 public:
  static void apply_config(Tokenizer& tokenizer, const std::filesystem::path& path) {
    const JsonDocument document = JsonDocument::load(path, max_config_bytes);
    const JsonRef root = document.root();
    if (!root.is_object()) root.fail("an object");
    if (const auto token = special_token(root, "bos_token")) tokenizer.bos_id_ = tokenizer.token_to_id(*token);
    if (const auto token = special_token(root, "eos_token")) tokenizer.eos_id_ = tokenizer.token_to_id(*token);
    tokenizer.set_added_ends(optional_flag(root, "add_bos_token"), optional_flag(root, "add_eos_token"));
  }
};

Tokenizer::~Tokenizer() = default;

void Tokenizer::set_added_ends(std::optional<bool>, std::optional<bool>) {}

std::unique_ptr<Tokenizer> Tokenizer::load(const std::filesystem::path& dir) {
  std::error_code error;
  std::unique_ptr<Tokenizer> tokenizer;
  if (const auto path = dir / "tokenizer.json"; std::filesystem::exists(path, error)) {
    tokenizer = parse_json(read_whole_file(path, max_tokenizer_bytes), path.string());
  } else if (const auto model = dir / "tokenizer.model"; std::filesystem::exists(model, error)) {
    tokenizer = parse_sentencepiece(read_whole_file(model, max_tokenizer_bytes), model.string());
  } else {
    throw CheckpointError(dir.string() + ": has no tokenizer; expected tokenizer.json or tokenizer.model");
  }
  if (const auto path = dir / "tokenizer_config.json"; std::filesystem::exists(path, error)) {
    TokenizerDirectory::apply_config(*tokenizer, path);
  }
  return tokenizer;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string text;
  const std::unique_ptr<TokenTextStream> stream = text_stream(skip_special, false);
  for (const int32_t id : ids) stream->push(id, text);
  stream->finish(text);
  return text;
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
    : stream_(tokenizer.text_stream(skip_special, true)) {}
StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;

std::string StreamDecoder::push(int32_t id) {
  std::string text;
  stream_->push(id, text);
  return text;
}

std::string StreamDecoder::finish() {
  std::string text;
  stream_->finish(text);
  return text;
}

}  // namespace anyaccel::llm
