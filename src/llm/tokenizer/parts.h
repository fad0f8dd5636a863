// Declares the parts of a tokenizer, independent of the files that they come from.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "anyaccel/llm/tokenizer.h"
#include "base/text/json.h"
#include "llm/tokenizer/added_tokens.h"
#include "llm/tokenizer/bpe.h"
#include "llm/tokenizer/components.h"
#include "llm/tokenizer/decoders.h"
#include "llm/tokenizer/sentencepiece_model.h"
#include "llm/tokenizer/token_model.h"

namespace anyaccel::llm {

struct TokenizerParts {
  std::unique_ptr<TokenModel> model;
  std::unique_ptr<Normalizer> normalizer;         // may be null, like the next two
  std::unique_ptr<PreTokenizer> pre_tokenizer;    //
  std::unique_ptr<PostProcessor> post_processor;  //
  std::unique_ptr<DecoderChain> decoders;
  bool split_special = false;  // special tokens in a text are ordinary text
};

// The tokens at the ends of a text.
struct TextEnds {
  std::optional<int32_t> bos;
  std::optional<int32_t> eos;
  // Say whether encoding adds them, for SentencePiece's models; the defaults are what Llama and Mistral expect. In
  // other tokenizers, the post-processor adds them.
  bool add_bos = true;
  bool add_eos = false;
};

// Builds a tokenizer from TokenizerParts. `added` belongs to the vocabulary of the model.
std::unique_ptr<Tokenizer> make_tokenizer(TokenizerParts parts, const AddedTokenList& added, const TextEnds& ends = {});
// Builds a tokenizer that merges like SentencePiece, by scores. Ids that `ends` does not have are those of the pieces
// that the model names. CheckpointError as for check_sentencepiece_model().
std::unique_ptr<Tokenizer> make_sentencepiece(SentencePieceModel model, const std::string& source,
                                              const TextEnds& ends);

// Reads the model of a tokenizer.json: BPE, Unigram, WordPiece or WordLevel. `options` replaces those of the file, and
// then only BPE is accepted. CheckpointError for any other kind, naming it.
std::unique_ptr<TokenModel> read_token_model(const JsonDocument& document,
                                             const std::optional<BpeOptions>& options = {});
// Reads the steps around the model from a tokenizer.json, or from a document that has only these. The post-processor is
// read later, because its ids may be those of tokens that other files add.
void read_steps(const JsonDocument& document, TokenizerParts& parts);
// Returns null if the document has none. `max_id` is the largest id that the template may have.
std::unique_ptr<PostProcessor> read_post_processor(const JsonDocument& document, int64_t max_id);
// Reads the "added_tokens" of a tokenizer.json.
void read_added_tokens(const JsonDocument& document, AddedTokenList& list);

// Throws CheckpointError for a kind of SentencePiece model that is not supported, naming it, and for pieces that
// contradict each other.
void check_sentencepiece_model(const SentencePieceModel& model, const std::string& source);
// Builds a BPE model of the pieces with the merges that transformers derives: every way to combine two pieces into a
// third, pieces with smaller ids first. CheckpointError if that would take very long.
std::unique_ptr<BpeModel> make_bpe(const SentencePieceModel& model, const std::string& source, BpeOptions options);

}  // namespace anyaccel::llm
