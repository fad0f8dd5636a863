// Reads the protocol buffer wire format: a sequence of fields, each of which is a number and a kind followed by its
// bytes.
#include "llm/tokenizer/sentencepiece_model.h"

#include <cstring>
#include <optional>

#include "anyaccel/error.h"
#include "base/text/json.h"
#include "base/text/utf8.h"

namespace anyaccel::llm {
namespace {

enum class Wire { Varint = 0, Fixed64 = 1, Bytes = 2, Fixed32 = 5 };

struct Field {
  uint64_t number = 0;
  Wire wire = Wire::Varint;
  uint64_t value = 0;      // Varint
  std::string_view bytes;  // the others
};

class Reader {
 public:
  Reader(std::string_view bytes, std::string_view source, std::string_view message)
      : bytes_(bytes), source_(source), message_(message) {}

  // Returns the next field; nothing at the end.
  std::optional<Field> next() {
    if (at_ == bytes_.size()) return std::nullopt;
    const uint64_t key = varint();
    Field field;
    field.number = key >> 3;
    field.wire = static_cast<Wire>(key & 7);
    if (field.number == 0) fail("a field with the number 0");
    switch (field.wire) {
      case Wire::Varint: field.value = varint(); break;
      case Wire::Fixed64: field.bytes = take(8); break;
      case Wire::Bytes: field.bytes = take(varint()); break;
      case Wire::Fixed32: field.bytes = take(4); break;
      default: fail("a field of the unknown kind " + std::to_string(key & 7));
    }
    return field;
  }

  std::string_view message(const Field& field) {
    if (field.wire != Wire::Bytes) fail("a wrong kind of value in field " + std::to_string(field.number));
    return field.bytes;
  }
  std::string text(const Field& field) {
    const std::string_view value = message(field);
    if (!is_valid_utf8(value)) fail("text that is not UTF-8 in field " + std::to_string(field.number));
    return std::string(value);
  }
  uint64_t number(const Field& field) {
    if (field.wire != Wire::Varint) fail("a wrong kind of value in field " + std::to_string(field.number));
    return field.value;
  }
  bool flag(const Field& field) { return number(field) != 0; }
  float real(const Field& field) {
    if (field.wire != Wire::Fixed32) fail("a wrong kind of value in field " + std::to_string(field.number));
    float value = 0;
    std::memcpy(&value, field.bytes.data(), sizeof value);
    return value;
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw CheckpointError(std::string(source_) + ": is not a SentencePiece model: its " + std::string(message_) +
                          " has " + what + " before byte " + std::to_string(at_));
  }

 private:
  uint64_t varint() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
      if (at_ == bytes_.size()) fail("a number that is cut short");
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      if (shift < 64) value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    fail("a number of more than 10 bytes");
  }
  std::string_view take(uint64_t count) {
    if (count > bytes_.size() - at_) {
      fail("a field of " + std::to_string(count) + " bytes where " + std::to_string(bytes_.size() - at_) + " are left");
    }
    const std::string_view taken = bytes_.substr(at_, count);
    at_ += count;
    return taken;
  }

  std::string_view bytes_;
  std::string_view source_;
  std::string_view message_;
  size_t at_ = 0;
};

SentencePiece read_piece(std::string_view bytes, std::string_view source) {
  Reader reader(bytes, source, "piece");
  SentencePiece piece;
  while (const auto field = reader.next()) {
    if (field->number == 1) piece.text = reader.text(*field);
    if (field->number == 2) piece.score = reader.real(*field);
    if (field->number == 3) {
      const uint64_t type = reader.number(*field);
      if (type < 1 || type > 6) reader.fail("the type " + std::to_string(type));
      piece.type = static_cast<PieceType>(type);
    }
  }
  if (piece.text.empty()) reader.fail("no text");
  if (!(piece.score == piece.score)) reader.fail("a score that is not a number");
  return piece;
}

void read_trainer(std::string_view bytes, std::string_view source, SentencePieceModel& model) {
  Reader reader(bytes, source, "trainer_spec");
  while (const auto field = reader.next()) {
    switch (field->number) {
      case 3: model.model_type = static_cast<int64_t>(reader.number(*field)); break;
      case 24: model.whitespace_as_suffix = reader.flag(*field); break;
      case 35: model.byte_fallback = reader.flag(*field); break;
      case 44: model.unk_surface = reader.text(*field); break;
      case 45: model.unk_piece = reader.text(*field); break;
      case 46: model.bos_piece = reader.text(*field); break;
      case 47: model.eos_piece = reader.text(*field); break;
      default: break;
    }
  }
}

void read_normalizer_spec(std::string_view bytes, std::string_view source, SentencePieceModel& model) {
  Reader reader(bytes, source, "normalizer_spec");
  while (const auto field = reader.next()) {
    switch (field->number) {
      case 1: model.normalizer_name = reader.text(*field); break;
      case 2: model.charsmap = reader.message(*field); break;
      case 3: model.add_dummy_prefix = reader.flag(*field); break;
      case 4: model.remove_extra_whitespaces = reader.flag(*field); break;
      case 5: model.escape_whitespaces = reader.flag(*field); break;
      default: break;
    }
  }
}

bool has_charsmap(std::string_view bytes, std::string_view source) {
  SentencePieceModel ignored;
  read_normalizer_spec(bytes, source, ignored);
  return !ignored.charsmap.empty();
}

}  // namespace

SentencePieceModel parse_sentencepiece_model(std::string_view bytes, std::string_view source) {
  Reader reader(bytes, source, "message");
  SentencePieceModel model;
  while (const auto field = reader.next()) {
    switch (field->number) {
      case 1: model.pieces.push_back(read_piece(reader.message(*field), source)); break;
      case 2: read_trainer(reader.message(*field), source, model); break;
      case 3: read_normalizer_spec(reader.message(*field), source, model); break;
      case 5: model.has_denormalizer = has_charsmap(reader.message(*field), source); break;
      default: break;
    }
  }
  if (model.pieces.empty()) reader.fail("no pieces");
  return model;
}

}  // namespace anyaccel::llm
