// Parses the header of a GGUF file. The file may come from anywhere, so nothing in it is trusted.
#include "llm/checkpoint/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "anyaccel/error.h"
#include "base/block_format.h"
#include "base/copy_bytes.h"
#include "base/files/open_file.h"
#include "base/text/json.h"
#include "base/text/utf8.h"

namespace anyaccel::llm {
namespace {

constexpr uint32_t magic = 0x46554747;  // "GGUF"
constexpr uint64_t most_alignment = uint64_t{1} << 20;
constexpr uint64_t most_key_bytes = 65535;
constexpr uint32_t most_dimensions = 4;
constexpr int64_t most_parts = 99999;  // a file's name has five digits
// The smallest sizes of an entry in bytes. A pair has the key's length, at least one byte of key, a type and at least
// one byte of value; a tensor has the name's length, at least one byte of name, the number of dimensions, at least one
// dimension, a type and an offset.
constexpr uint64_t least_pair_bytes = 8 + 1 + 4 + 1;
constexpr uint64_t least_tensor_bytes = 8 + 1 + 4 + 8 + 4 + 8;

using enum GgufType;

struct GgmlType {
  std::string_view name;
  uint64_t values;  // of a block
  uint64_t bytes;   // of a block
};

constexpr std::array<std::pair<uint32_t, GgmlType>, 6> plain_types = {{{0, {"F32", 1, 4}},
                                                                       {1, {"F16", 1, 2}},
                                                                       {24, {"I8", 1, 1}},
                                                                       {25, {"I16", 1, 2}},
                                                                       {26, {"I32", 1, 4}},
                                                                       {30, {"BF16", 1, 2}}}};

std::optional<GgmlType> find_type(uint32_t id) {
  for (const auto& [known, type] : plain_types) {
    if (known == id) return type;
  }
  const BlockFormat* format = find_block_format(id);
  if (format == nullptr) return std::nullopt;
  return GgmlType{format->name, format->values, format->bytes};
}

std::string known_type_names() {
  std::string names;
  for (const auto& [id, type] : plain_types) names += (names.empty() ? "" : ", ") + std::string(type.name);
  for (const BlockFormat& format : block_formats()) names += ", " + std::string(format.name);
  return names;
}

// Reads the header from front to back, through a buffer.
class HeaderReader {
 public:
  HeaderReader(const GgufRead& read, uint64_t file_bytes, const std::string& source)
      : read_(read), file_bytes_(file_bytes), source_(source) {}

  uint64_t position() const { return position_; }
  uint64_t left() const { return file_bytes_ - position_; }
  [[noreturn]] void fail(const std::string& what) const { throw CheckpointError(source_ + ": " + what); }

  template <typename T>
  T value(const std::string& what) {
    need(sizeof(T), what);
    std::array<std::byte, sizeof(T)> bytes;
    take(bytes);
    return std::bit_cast<T>(bytes);
  }
  std::string text(const std::string& what) {
    const auto bytes = value<uint64_t>(what);
    need(bytes, what);
    std::string out(bytes, '\0');
    take(std::as_writable_bytes(std::span(out)));
    return out;
  }
  // Fails unless `count` entries of at least `least_bytes` fit in the rest of the file.
  void check_count(uint64_t count, uint64_t least_bytes, const std::string& what) const {
    if (count > left() / least_bytes) {
      fail("gives " + std::to_string(count) + " as the number of " + what + "; expected at most " +
           std::to_string(left() / least_bytes) + ", which is what the " + std::to_string(left()) +
           " bytes behind it can hold: the file is cut short or damaged");
    }
  }

 private:
  void need(uint64_t bytes, const std::string& what) const {
    if (bytes <= left()) return;
    fail("ends within " + what + ": " + std::to_string(bytes) + " bytes are needed at byte " +
         std::to_string(position_) + ", and " + std::to_string(left()) +
         " are there; the file is cut short or damaged");
  }
  void take(std::span<std::byte> out) {
    while (!out.empty()) {
      if (position_ < begin_ || position_ - begin_ >= buffer_.size()) {
        begin_ = position_;
        buffer_.resize(std::min(buffer_bytes, left()));
        read_(begin_, buffer_);
      }
      const std::span<const std::byte> here = std::span(buffer_).subspan(position_ - begin_);
      const size_t now = std::min(here.size(), out.size());
      copy_bytes(out.data(), here.data(), now);
      out = out.subspan(now);
      position_ += now;
    }
  }

  static constexpr uint64_t buffer_bytes = uint64_t{1} << 18;
  const GgufRead& read_;
  uint64_t file_bytes_;
  const std::string& source_;
  uint64_t position_ = 0;
  uint64_t begin_ = 0;  // of the buffer in the file
  std::vector<std::byte> buffer_;
};

uint64_t element_bytes(HeaderReader& reader, GgufType type, const std::string& what) {
  switch (type) {
    case U8:
    case I8:
    case Bool: return 1;
    case U16:
    case I16: return 2;
    case U32:
    case I32:
    case F32: return 4;
    case U64:
    case I64:
    case F64:
    case Text: return 8;
    default: break;
  }
  reader.fail(what + " has the value type " + std::to_string(static_cast<uint32_t>(type)) +
              (type == List ? ", a list of lists; expected a list of single values" : "; expected one of 0 to 12"));
}

int64_t whole_value(HeaderReader& reader, GgufType type, const std::string& what) {
  switch (type) {
    case U8: return reader.value<uint8_t>(what);
    case I8: return reader.value<int8_t>(what);
    case U16: return reader.value<uint16_t>(what);
    case I16: return reader.value<int16_t>(what);
    case U32: return reader.value<uint32_t>(what);
    case I32: return reader.value<int32_t>(what);
    case I64: return reader.value<int64_t>(what);
    case U64: return static_cast<int64_t>(reader.value<uint64_t>(what));
    default: break;
  }
  const auto value = reader.value<uint8_t>(what);  // Bool
  if (value > 1) reader.fail(what + " is " + std::to_string(value) + " as a truth value; expected 0 or 1");
  return value;
}

GgufValue read_value(HeaderReader& reader, const std::string& what) {
  GgufValue value;
  auto type = static_cast<GgufType>(reader.value<uint32_t>("the type of " + what));
  uint64_t count = 1;
  value.is_list = type == List;
  if (value.is_list) {
    type = static_cast<GgufType>(reader.value<uint32_t>("the type of the elements of " + what));
    count = reader.value<uint64_t>("the number of elements of " + what);
    reader.check_count(count, element_bytes(reader, type, what), "elements of " + what);
  }
  element_bytes(reader, type, what);
  value.is_bool = type == Bool;
  value.type = type;
  if (type == Text) {
    std::vector<std::string> texts;
    for (uint64_t i = 0; i < count; ++i) texts.push_back(reader.text(what));
    value.elements = std::move(texts);
  } else if (type == F32 || type == F64) {
    std::vector<double> numbers;
    for (uint64_t i = 0; i < count; ++i) {
      numbers.push_back(type == F32 ? static_cast<double>(reader.value<float>(what)) : reader.value<double>(what));
    }
    value.elements = std::move(numbers);
  } else {
    std::vector<int64_t> wholes;
    for (uint64_t i = 0; i < count; ++i) wholes.push_back(whole_value(reader, type, what));
    value.elements = std::move(wholes);
  }
  return value;
}

// The offset in the result is still relative to the start of the data.
GgufTensor read_tensor(HeaderReader& reader, uint64_t index) {
  GgufTensor tensor;
  tensor.name = reader.text("the name of tensor " + std::to_string(index));
  const std::string what = "tensor " + quote_text(tensor.name);
  if (tensor.name.empty() || !is_valid_utf8(tensor.name)) {
    reader.fail(what + " (number " + std::to_string(index) + ") has no proper name; expected UTF-8 text");
  }
  const auto dimensions = reader.value<uint32_t>("the number of dimensions of " + what);
  if (dimensions == 0 || dimensions > most_dimensions) {
    reader.fail(what + " has " + std::to_string(dimensions) + " dimensions; expected 1 to 4");
  }
  for (uint32_t i = 0; i < dimensions; ++i) {
    const auto size = reader.value<uint64_t>("the shape of " + what);
    if (size == 0 || size > static_cast<uint64_t>(INT64_MAX)) {
      reader.fail(what + " has " + std::to_string(size) + " as a size; expected 1 to " + std::to_string(INT64_MAX));
    }
    tensor.shape.push_back(static_cast<int64_t>(size));  // innermost first
  }
  tensor.type = reader.value<uint32_t>("the type of " + what);
  const std::optional<GgmlType> type = find_type(tensor.type);
  if (!type) {
    reader.fail(what + " has the type " + std::to_string(tensor.type) + ", which is not known; known are " +
                known_type_names());
  }
  const auto row = static_cast<uint64_t>(tensor.shape.front());
  if (row % type->values != 0) {
    reader.fail(what + " has rows of " + std::to_string(row) + " values; expected a multiple of " +
                std::to_string(type->values) + ", the block of " + std::string(type->name));
  }
  tensor.bytes = row / type->values;
  bool overflows = __builtin_mul_overflow(tensor.bytes, type->bytes, &tensor.bytes);
  for (size_t i = 1; i < tensor.shape.size(); ++i) {
    overflows |= __builtin_mul_overflow(tensor.bytes, static_cast<uint64_t>(tensor.shape[i]), &tensor.bytes);
  }
  if (overflows) reader.fail(what + " is so large that its bytes cannot be counted");
  std::ranges::reverse(tensor.shape);
  tensor.offset = reader.value<uint64_t>("the offset of " + what);
  return tensor;
}

// Returns the distance to the next multiple of the alignment.
uint64_t padding(uint64_t bytes, uint64_t alignment) { return (alignment - bytes % alignment) % alignment; }

void place_tensors(const HeaderReader& reader, uint64_t alignment, std::vector<GgufTensor>& tensors) {
  const uint64_t gap = padding(reader.position(), alignment);
  if (tensors.empty()) return;
  if (gap > reader.left()) reader.fail("ends before the data of its tensors; the file is cut short");
  const uint64_t data_start = reader.position() + gap;
  const uint64_t data_bytes = reader.left() - gap;
  uint64_t expected = 0;
  for (GgufTensor& tensor : tensors) {
    const std::string what = "tensor " + quote_text(tensor.name);
    if (tensor.offset != expected) {
      reader.fail(what + " begins at byte " + std::to_string(tensor.offset) + " of the data; expected " +
                  std::to_string(expected) + ", behind the tensor before it");
    }
    if (tensor.offset > data_bytes || tensor.bytes > data_bytes - tensor.offset) {
      reader.fail(what + " takes " + std::to_string(tensor.bytes) + " bytes from byte " +
                  std::to_string(tensor.offset) + " of the data on, which has " + std::to_string(data_bytes) +
                  " bytes: the file is cut short or damaged");
    }
    // This cannot overflow: both are at most the file's size.
    expected = tensor.offset + tensor.bytes + padding(tensor.bytes, alignment);
    tensor.offset += data_start;
  }
}

void check_start(HeaderReader& reader) {
  const auto found = reader.value<uint32_t>("the magic number");
  if (found != magic) reader.fail("does not begin with \"GGUF\"; this is not a GGUF file");
  const auto version = reader.value<uint32_t>("the version");
  if ((version & 0xFFFF) == 0) reader.fail("is big-endian, which is not supported; expected a little-endian file");
  if (version != 2 && version != 3) {
    reader.fail("is GGUF version " + std::to_string(version) + "; supported are versions 2 and 3");
  }
}

}  // namespace

std::string ggml_type_name(uint32_t type) {
  const std::optional<GgmlType> known = find_type(type);
  return known ? std::string(known->name) : "type " + std::to_string(type);
}

GgmlBlock ggml_block(uint32_t type) {
  const std::optional<GgmlType> known = find_type(type);
  if (!known) throw InvalidArgument("gguf: there is no type " + std::to_string(type));
  return {known->values, known->bytes};
}

GgufHeader parse_gguf_header(const GgufRead& read, uint64_t file_bytes, const std::string& source) {
  HeaderReader reader(read, file_bytes, source);
  check_start(reader);
  const auto tensor_count = reader.value<uint64_t>("the number of tensors");
  const auto pair_count = reader.value<uint64_t>("the number of keys");
  reader.check_count(tensor_count, least_tensor_bytes, "tensors");
  reader.check_count(pair_count, least_pair_bytes, "keys");

  GgufHeader header;
  header.metadata = GgufMetadata(source);
  for (uint64_t i = 0; i < pair_count; ++i) {
    std::string key = reader.text("key " + std::to_string(i));
    if (key.empty() || key.size() > most_key_bytes || !is_valid_utf8(key)) {
      reader.fail("key " + std::to_string(i) + " is " + quote_text(key) + " of " + std::to_string(key.size()) +
                  " bytes; expected UTF-8 text of 1 to " + std::to_string(most_key_bytes) + " bytes");
    }
    GgufValue value = read_value(reader, "the key " + quote_text(key));
    if (!header.metadata.add(key, std::move(value))) reader.fail("the key " + quote_text(key) + " occurs twice");
  }
  std::unordered_set<std::string> names;
  for (uint64_t i = 0; i < tensor_count; ++i) {
    header.tensors.push_back(read_tensor(reader, i));
    const std::string& name = header.tensors.back().name;
    if (!names.insert(name).second) reader.fail("the tensor " + quote_text(name) + " occurs twice");
  }
  const auto alignment =
      static_cast<uint64_t>(header.metadata.whole("general.alignment", 1, most_alignment).value_or(32));
  if (!std::has_single_bit(alignment)) {
    header.metadata.error("general.alignment", "is " + std::to_string(alignment) + "; expected a power of two");
  }
  place_tensors(reader, alignment, header.tensors);
  return header;
}

bool is_gguf(const std::filesystem::path& model) {
  std::error_code error;
  return model.extension() == ".gguf" && !std::filesystem::is_directory(model, error);
}

namespace {

void read_part(const std::filesystem::path& path, GgufModel& model) {
  const OpenFile& file = model.files.emplace_back(path);
  model.paths.push_back(path);
  model.parts.push_back(parse_gguf_header(
      [&file](uint64_t offset, std::span<std::byte> out) { file.read(offset, out); }, file.bytes(), path.string()));
  file.check_unchanged();
}

// Returns "-00002-of-00003.gguf", for example.
std::string part_suffix(int64_t part, int64_t count) {
  const auto digits = [](int64_t number) {
    const std::string text = std::to_string(number);
    return std::string(5 - text.size(), '0') + text;
  };
  return "-" + digits(part + 1) + "-of-" + digits(count) + ".gguf";
}

GgufModel read_parts(const std::filesystem::path& path) {
  GgufModel model;
  read_part(path, model);
  const GgufMetadata& metadata = model.metadata();
  const int64_t count = metadata.whole("split.count", 0, most_parts).value_or(1);
  if (const int64_t number = metadata.whole("split.no", 0, most_parts).value_or(0); number != 0) {
    metadata.error("split.no", "is " + std::to_string(number) + ": this is part " + std::to_string(number + 1) +
                                   " of a split file; give the first part, whose name ends in " +
                                   part_suffix(0, std::max<int64_t>(count, 1)));
  }
  if (count > 1) {
    const std::string name = path.string();
    const std::string suffix = part_suffix(0, count);
    if (!name.ends_with(suffix)) {
      metadata.error("split.count", "is " + std::to_string(count) + "; expected a file whose name ends in " + suffix +
                                        ", from which the names of the other parts follow");
    }
    const std::string prefix = name.substr(0, name.size() - suffix.size());
    for (int64_t i = 1; i < count; ++i) {
      read_part(prefix + part_suffix(i, count), model);
      const GgufMetadata& part = model.parts.back().metadata;
      const int64_t number = part.required_whole("split.no", 0, most_parts);
      if (number != i) {
        part.error("split.no", "is " + std::to_string(number) + "; expected " + std::to_string(i) + " by its name");
      }
      const int64_t its_count = part.required_whole("split.count", 0, most_parts);
      if (its_count != count) {
        part.error("split.count", "is " + std::to_string(its_count) + "; the first part has " + std::to_string(count));
      }
    }
  }
  std::unordered_set<std::string_view> names;
  for (const GgufHeader& part : model.parts) {
    for (const GgufTensor& tensor : part.tensors) {
      if (names.insert(tensor.name).second) continue;
      throw CheckpointError(part.metadata.source() + ": the tensor " + quote_text(tensor.name) +
                            " is in an earlier part too");
    }
  }
  if (const auto total = metadata.whole("split.tensors.count", 0, INT64_MAX);
      total && static_cast<uint64_t>(*total) != names.size()) {
    metadata.error("split.tensors.count",
                   "is " + std::to_string(*total) + "; the parts have " + std::to_string(names.size()) + " tensors");
  }
  return model;
}

bool is_current(const GgufModel& model) {
  for (size_t i = 0; i < model.paths.size(); ++i) {
    if (!model.files[i].is_unchanged_at(model.paths[i])) return false;
  }
  return true;
}

}  // namespace

std::shared_ptr<const GgufModel> open_gguf(const std::filesystem::path& path) {
  static std::mutex lock;
  static std::map<std::filesystem::path, std::weak_ptr<const GgufModel>> held;
  const std::lock_guard guard(lock);
  std::weak_ptr<const GgufModel>& place = held[path];
  if (auto model = place.lock(); model && is_current(*model)) return model;
  try {
    auto model = std::make_shared<const GgufModel>(read_parts(path));
    place = model;
    return model;
  } catch (...) {
    held.erase(path);
    throw;
  }
}

const GgufTensor* GgufModel::find(std::string_view name, size_t* part) const {
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto found = std::ranges::find(parts[i].tensors, name, &GgufTensor::name);
    if (found == parts[i].tensors.end()) continue;
    if (part != nullptr) *part = i;
    return &*found;
  }
  return nullptr;
}

}  // namespace anyaccel::llm
