// Writes safetensors files: the header first, then the data as it is supplied.
#include <algorithm>
#include <cstdio>
#include <unordered_set>

#include "anyaccel/error.h"
#include "anyaccel/llm/safetensors.h"
#include "base/files/new_file.h"
#include "base/text/json.h"
#include "base/text/utf8.h"
#include "llm/checkpoint/safetensors_names.h"

namespace anyaccel::llm {
namespace {

constexpr uint64_t alignment = 64;

std::string json_text(std::string_view text) {
  if (!is_valid_utf8(text)) throw InvalidArgument("write_safetensors: " + quote_text(text) + " is not UTF-8");
  std::string out = "\"";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
      out += escaped;
    } else {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out + "\"";
}

std::string_view dtype_text(const TensorSpec& tensor) {
  for (const auto& [name, dtype] : safetensors_dtypes) {
    if (dtype == tensor.dtype) return name;
  }
  throw InvalidArgument("write_safetensors: tensor " + quote_text(tensor.name) + " has the dtype " +
                        std::string(dtype_name(tensor.dtype)) + "; expected one that files can hold");
}

uint64_t checked_bytes(const TensorSpec& tensor) {
  const auto bytes = tensor_bytes(tensor.dtype, tensor.shape);
  if (!bytes) {
    throw InvalidArgument("write_safetensors: tensor " + quote_text(tensor.name) +
                          " has a negative or too large shape");
  }
  return *bytes;
}

// Returns the JSON, padded with spaces so that the data begins aligned; `total` receives the size of all tensors in
// bytes.
std::string make_header(const std::vector<TensorSpec>& tensors, const SafetensorsMetadata& metadata, uint64_t& total) {
  std::string json = "{";
  if (!metadata.empty()) {
    json += "\"__metadata__\":{";
    for (size_t i = 0; i < metadata.size(); ++i) {
      json += (i == 0 ? "" : ",") + json_text(metadata[i].first) + ":" + json_text(metadata[i].second);
    }
    json += "}";
  }
  std::unordered_set<std::string_view> names;
  for (const TensorSpec& tensor : tensors) {
    if (tensor.name.empty() || tensor.name == "__metadata__" || !names.insert(tensor.name).second) {
      throw InvalidArgument("write_safetensors: the tensor name " + quote_text(tensor.name) +
                            " is empty, reserved or given twice");
    }
    const uint64_t bytes = checked_bytes(tensor);
    if (bytes > static_cast<uint64_t>(INT64_MAX) - total) throw InvalidArgument("write_safetensors: too many bytes");
    json += (json.size() == 1 ? "" : ",") + json_text(tensor.name) + ":{\"dtype\":\"" +
            std::string(dtype_text(tensor)) + "\",\"shape\":[";
    for (size_t i = 0; i < tensor.shape.size(); ++i) json += (i == 0 ? "" : ",") + std::to_string(tensor.shape[i]);
    json += "],\"data_offsets\":[" + std::to_string(total) + "," + std::to_string(total + bytes) + "]}";
    total += bytes;
  }
  json += "}";
  json.resize((json.size() + sizeof(uint64_t) + alignment - 1) / alignment * alignment - sizeof(uint64_t), ' ');
  return json;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::filesystem::path path, std::vector<TensorSpec> tensors,
                                     const SafetensorsMetadata& metadata)
    : path_(std::move(path)), tensors_(std::move(tensors)) {
  const std::string header = make_header(tensors_, metadata, total_);
  file_ = std::make_unique<NewFile>(path_);
  const uint64_t header_bytes = header.size();
  file_->append(std::as_bytes(std::span(&header_bytes, 1)));
  file_->append(std::as_bytes(std::span(header)));
}

SafetensorsWriter::~SafetensorsWriter() = default;

void SafetensorsWriter::append(std::span<const std::byte> bytes) {
  if (file_->is_finished()) throw InvalidArgument(path_.string() + ": append() after finish()");
  if (bytes.size() > total_ - written_) {
    throw InvalidArgument(path_.string() + ": got " + std::to_string(bytes.size()) + " bytes of data where " +
                          std::to_string(total_ - written_) + " are left of the announced " + std::to_string(total_));
  }
  file_->append(bytes);
  written_ += bytes.size();
}

void SafetensorsWriter::finish() {
  if (file_->is_finished()) throw InvalidArgument(path_.string() + ": finish() called twice");
  if (written_ != total_) {
    uint64_t end = 0;
    const TensorSpec* missing = nullptr;
    for (const TensorSpec& tensor : tensors_) {
      end += checked_bytes(tensor);
      missing = &tensor;
      if (end > written_) break;
    }
    throw InvalidArgument(path_.string() + ": got " + std::to_string(written_) + " of " + std::to_string(total_) +
                          " bytes; the data ends in tensor " + quote_text(missing->name));
  }
  file_->finish();
}

void write_safetensors(const std::filesystem::path& path, std::vector<TensorSpec> tensors,
                       std::span<const std::span<const std::byte>> data, const SafetensorsMetadata& metadata) {
  if (tensors.size() != data.size()) {
    throw InvalidArgument("write_safetensors: got " + std::to_string(tensors.size()) + " tensors and data for " +
                          std::to_string(data.size()));
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (data[i].size() == checked_bytes(tensors[i])) continue;
    throw InvalidArgument("write_safetensors: tensor " + quote_text(tensors[i].name) + " has " +
                          std::to_string(data[i].size()) + " bytes of data; expected " +
                          std::to_string(checked_bytes(tensors[i])));
  }
  SafetensorsWriter writer(path, std::move(tensors), metadata);
  for (const auto bytes : data) writer.append(bytes);
  writer.finish();
}

}  // namespace anyaccel::llm
