// Writes GGUF files: the keys and the descriptions of all tensors, then the data, each tensor at a multiple of 32
// bytes.
#include "llm/checkpoint/gguf_file_writer.h"

#include <array>
#include <unordered_set>

#include "anyaccel/error.h"
#include "base/text/json.h"

namespace anyaccel::llm {
namespace {

constexpr uint64_t gguf_alignment = 32;  // the readers' default without general.gguf_alignment

template <class T>
void append_gguf(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_gguf_text(std::string& out, std::string_view text) {
  append_gguf<uint64_t>(out, text.size());
  out += text;
}

void append_gguf_whole(std::string& out, GgufType type, int64_t value) {
  switch (type) {
    case GgufType::U8:
    case GgufType::I8:
    case GgufType::Bool: return append_gguf(out, static_cast<uint8_t>(value));
    case GgufType::U16:
    case GgufType::I16: return append_gguf(out, static_cast<uint16_t>(value));
    case GgufType::U32:
    case GgufType::I32: return append_gguf(out, static_cast<uint32_t>(value));
    default: return append_gguf(out, value);
  }
}

uint64_t gguf_padding(uint64_t bytes) { return (gguf_alignment - bytes % gguf_alignment) % gguf_alignment; }

uint64_t gguf_tensor_bytes(const GgufTensorSpec& tensor) {
  const GgmlBlock block = ggml_block(tensor.type);
  if (tensor.shape.empty() || tensor.shape.back() % static_cast<int64_t>(block.values) != 0) {
    throw InvalidArgument("write_gguf: the tensor " + quote_text(tensor.name) +
                          " has rows that are not whole blocks of " + ggml_type_name(tensor.type));
  }
  uint64_t values = 1;
  for (const int64_t size : tensor.shape) values *= static_cast<uint64_t>(size);
  return values / block.values * block.bytes;
}

}  // namespace

void GgufKeys::begin(std::string_view key, GgufType type) {
  append_gguf_text(bytes_, key);
  append_gguf(bytes_, type);
  ++count_;
}

void GgufKeys::begin_list(std::string_view key, GgufType type, size_t count) {
  begin(key, GgufType::List);
  append_gguf(bytes_, type);
  append_gguf<uint64_t>(bytes_, count);
}

void GgufKeys::add(std::string_view key, const GgufValue& value) {
  const size_t count = std::visit([](const auto& list) { return list.size(); }, value.elements);
  if (value.is_list) {
    begin_list(key, value.type, count);
  } else {
    begin(key, value.type);
  }
  if (const auto* texts = std::get_if<std::vector<std::string>>(&value.elements)) {
    for (const std::string& text : *texts) append_gguf_text(bytes_, text);
  } else if (const auto* numbers = std::get_if<std::vector<double>>(&value.elements)) {
    for (const double number : *numbers) {
      if (value.type == GgufType::F64) {
        append_gguf(bytes_, number);
      } else {
        append_gguf(bytes_, static_cast<float>(number));
      }
    }
  } else {
    for (const int64_t whole : std::get<std::vector<int64_t>>(value.elements))
      append_gguf_whole(bytes_, value.type, whole);
  }
}

void GgufKeys::add_text(std::string_view key, std::string_view text) {
  begin(key, GgufType::Text);
  append_gguf_text(bytes_, text);
}

void GgufKeys::add_whole(std::string_view key, int64_t value) {
  if (value < 0 || value > int64_t{UINT32_MAX}) {
    throw InvalidArgument("write_gguf: " + std::string(key) + " is " + std::to_string(value) +
                          "; expected 0 to 4294967295");
  }
  begin(key, GgufType::U32);
  append_gguf(bytes_, static_cast<uint32_t>(value));
}

void GgufKeys::add_number(std::string_view key, double value) {
  begin(key, GgufType::F32);
  append_gguf(bytes_, static_cast<float>(value));
}

void GgufKeys::add_flag(std::string_view key, bool value) {
  begin(key, GgufType::Bool);
  append_gguf<uint8_t>(bytes_, value ? 1 : 0);
}

void GgufKeys::add_texts(std::string_view key, const std::vector<std::string>& texts) {
  begin_list(key, GgufType::Text, texts.size());
  for (const std::string& text : texts) append_gguf_text(bytes_, text);
}

void GgufKeys::add_wholes(std::string_view key, const std::vector<int32_t>& values) {
  begin_list(key, GgufType::I32, values.size());
  for (const int32_t value : values) append_gguf(bytes_, value);
}

void GgufKeys::add_numbers(std::string_view key, const std::vector<float>& values) {
  begin_list(key, GgufType::F32, values.size());
  for (const float value : values) append_gguf(bytes_, value);
}

GgufFileWriter::GgufFileWriter(const std::filesystem::path& path, const GgufKeys& keys,
                               std::vector<GgufTensorSpec> tensors)
    : file_(path), tensors_(std::move(tensors)) {
  std::string header = "GGUF";
  append_gguf<uint32_t>(header, 3);
  append_gguf<uint64_t>(header, tensors_.size());
  append_gguf<uint64_t>(header, keys.count());
  header += keys.bytes();
  uint64_t offset = 0;
  std::unordered_set<std::string_view> names;
  for (const GgufTensorSpec& tensor : tensors_) {
    if (!names.insert(tensor.name).second) {
      throw InvalidArgument("write_gguf: the tensor " + quote_text(tensor.name) + " is given twice");
    }
    bytes_.push_back(gguf_tensor_bytes(tensor));
    append_gguf_text(header, tensor.name);
    append_gguf<uint32_t>(header, static_cast<uint32_t>(tensor.shape.size()));
    for (size_t i = tensor.shape.size(); i-- > 0;)
      append_gguf<uint64_t>(header, static_cast<uint64_t>(tensor.shape[i]));
    append_gguf<uint32_t>(header, tensor.type);
    append_gguf<uint64_t>(header, offset);
    offset += bytes_.back() + gguf_padding(bytes_.back());
    total_ += bytes_.back();
  }
  header.resize(header.size() + gguf_padding(header.size()), '\0');
  file_.append(std::as_bytes(std::span(header)));
}

void GgufFileWriter::pad(uint64_t bytes) {
  constexpr std::array<std::byte, gguf_alignment> zeros{};
  file_.append(std::span(zeros).first(gguf_padding(bytes)));
}

void GgufFileWriter::append(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  if (current_ == tensors_.size() || bytes.size() > bytes_[current_] - written_) {
    throw InvalidArgument("write_gguf: got more data than the tensors have");
  }
  file_.append(bytes);
  written_ += bytes.size();
  if (written_ < bytes_[current_]) return;
  pad(written_);
  ++current_;
  written_ = 0;
}

void GgufFileWriter::finish() {
  if (current_ < tensors_.size()) {
    throw InvalidArgument("write_gguf: the data of the tensor " + quote_text(tensors_[current_].name) + " is missing");
  }
  file_.finish();
}

}  // namespace anyaccel::llm
