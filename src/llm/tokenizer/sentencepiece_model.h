// Reads SentencePiece's tokenizer.model, which is a protocol buffer message, without the protobuf library
// (https://github.com/google/sentencepiece, sentencepiece_model.proto).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace anyaccel::llm {

enum class PieceType { Normal = 1, Unknown = 2, Control = 3, UserDefined = 4, Unused = 5, Byte = 6 };

struct SentencePiece {
  std::string text;
  float score = 0;
  PieceType type = PieceType::Normal;
};

// The fields that say how to encode and decode, with the defaults of the format.
struct SentencePieceModel {
  std::vector<SentencePiece> pieces;  // by id
  int64_t model_type = 1;             // 1 unigram, 2 bpe, 3 word, 4 char
  bool byte_fallback = false;
  bool whitespace_as_suffix = false;
  std::string unk_piece = "<unk>";
  std::string bos_piece = "<s>";
  std::string eos_piece = "</s>";
  std::string unk_surface = " \xE2\x81\x87 ";  // the decoded text of an unknown token
  std::string charsmap;                        // the normalizer's table of characters (charsmap.h); empty: none
  std::string normalizer_name;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
  bool has_denormalizer = false;
  // Control, unknown and user-defined pieces are found in a text as they are written, the longest first; the text
  // before and after each is tokenized by itself, as if it were the beginning of a text. This is the rule for GGUF
  // files.
  bool finds_special = false;
};

// Parses a message. CheckpointError for bytes that are not such a message: truncated, a wrong field type, text that is
// not UTF-8.
SentencePieceModel parse_sentencepiece_model(std::string_view bytes, std::string_view source);

}  // namespace anyaccel::llm
