// Parses the JSON header of a safetensors file, with the checks of the format's reference reader.
#include <algorithm>
#include <string>

#include "anyaccel/error.h"
#include "anyaccel/llm/safetensors.h"
#include "base/text/json.h"
#include "llm/checkpoint/safetensors_names.h"

namespace anyaccel::llm {
namespace {

constexpr size_t max_dimensions = 64;

DType read_dtype(const JsonRef& value) {
  for (const auto& [name, dtype] : safetensors_dtypes) {
    if (value.string() == name) return dtype;
  }
  std::string known;
  for (const auto& [name, dtype] : safetensors_dtypes) known += (known.empty() ? "" : ", ") + std::string(name);
  value.fail("one of " + known);
}

TensorInfo read_tensor(const std::string& name, const JsonRef& value, uint64_t data_start, uint64_t data_bytes) {
  if (!value.is_object()) value.fail("an object with dtype, shape and data_offsets");
  TensorInfo tensor;
  tensor.name = name;
  tensor.dtype = read_dtype(value.at("dtype"));
  const JsonRef shape = value.at("shape");
  if (!shape.is_array() || shape.size() > max_dimensions) {
    shape.fail("a list of at most " + std::to_string(max_dimensions) + " sizes");
  }
  for (size_t i = 0; i < shape.size(); ++i) tensor.shape.push_back(shape[i].integer(0, INT64_MAX));
  const auto expected_bytes = tensor_bytes(tensor.dtype, tensor.shape);
  if (!expected_bytes) shape.error("is so large that its bytes cannot be counted");

  const JsonRef offsets = value.at("data_offsets");
  if (!offsets.is_array() || offsets.size() != 2) offsets.fail("a list of two offsets");
  const auto begin = static_cast<uint64_t>(offsets[0].integer(0, INT64_MAX));
  const auto end = static_cast<uint64_t>(offsets[1].integer(0, INT64_MAX));
  if (begin > end || end > data_bytes) {
    offsets.error("is [" + std::to_string(begin) + ", " + std::to_string(end) +
                  "]; expected a rising range within the " + std::to_string(data_bytes) + " bytes of data");
  }
  if (end - begin != *expected_bytes) {
    offsets.error("holds " + std::to_string(end - begin) + " bytes; expected " + std::to_string(*expected_bytes) +
                  " for the dtype and shape");
  }
  tensor.offset = data_start + begin;
  tensor.bytes = end - begin;
  return tensor;
}

void read_metadata(const JsonRef& value, SafetensorsMetadata* metadata) {
  if (!value.is_object()) value.fail("an object of texts");
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string& text = value.member(i).string();
    if (metadata != nullptr) metadata->emplace_back(value.key(i), text);
  }
}

}  // namespace

std::vector<TensorInfo> parse_safetensors_header(std::string_view json, uint64_t data_start, uint64_t data_bytes,
                                                 std::string_view source, SafetensorsMetadata* metadata) {
  if (json.empty() || json.front() != '{') {
    throw CheckpointError(std::string(source) + ": the header begins with " + quote_text(json.substr(0, 1)) +
                          "; expected \"{\": this is not a safetensors file");
  }
  const JsonDocument document = JsonDocument::parse(json, source);
  const JsonRef root = document.root();
  std::vector<TensorInfo> tensors;
  tensors.reserve(root.size());
  for (size_t i = 0; i < root.size(); ++i) {
    if (root.key(i) == "__metadata__") {
      read_metadata(root.member(i), metadata);
    } else {
      tensors.push_back(read_tensor(root.key(i), root.member(i), data_start, data_bytes));
    }
  }
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.bytes < b.bytes;
  });
  uint64_t position = data_start;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.offset != position) {
      throw CheckpointError(std::string(source) + ": tensor " + quote_text(tensor.name) + " begins at byte " +
                            std::to_string(tensor.offset - data_start) + " of the data, " +
                            (tensor.offset < position ? "inside the tensor before it" : "after a gap") + "; expected " +
                            std::to_string(position - data_start));
    }
    position += tensor.bytes;
  }
  if (position - data_start != data_bytes) {
    throw CheckpointError(std::string(source) + ": the tensors end at byte " + std::to_string(position - data_start) +
                          " of the data; expected " + std::to_string(data_bytes) + ", where the file ends");
  }
  return tensors;
}

}  // namespace anyaccel::llm
