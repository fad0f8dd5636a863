// Loads a tokenizer from a model directory, and decodes.
#include "anyaccel/llm/tokenizer.h"

#include "llm/checkpoint/gguf.h"
#include "llm/tokenizer/directory.h"
#include "llm/tokenizer/gguf_tokenizer.h"
#include "llm/tokenizer/stream.h"

namespace anyaccel::llm {
Tokenizer::~Tokenizer() = default;

void Tokenizer::set_added_ends(std::optional<bool>, std::optional<bool>) {}

std::unique_ptr<Tokenizer> Tokenizer::load(const std::filesystem::path& dir) {
  if (is_gguf(dir)) return load_gguf_tokenizer(dir);
  return load_tokenizer(read_tokenizer_files(dir), dir.string());
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
