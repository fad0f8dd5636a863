// Opens the weight files of a model directory.
#include <algorithm>
#include <string>

#include "anyaccel/error.h"
#include "anyaccel/llm/safetensors.h"
#include "base/files/open_file.h"
#include "base/text/json.h"
#include "llm/checkpoint/gguf.h"

namespace anyaccel::llm {
namespace {

constexpr const char* single_file = "model.safetensors";
constexpr const char* index_file = "model.safetensors.index.json";
constexpr size_t max_index_bytes = 256 << 20;

// Returns the path of a shard file, whose name is relative to the directory and must lie inside it.
std::filesystem::path shard_path(const std::filesystem::path& dir, const JsonRef& value) {
  const std::string& name = value.string();
  const std::filesystem::path relative(name);
  const bool escapes = relative.is_absolute() ||
                       std::any_of(relative.begin(), relative.end(), [](const auto& part) { return part == ".."; });
  if (name.empty() || escapes || name.find('\0') != std::string::npos)
    value.fail("the name of a file in the directory");
  return dir / relative;
}

[[noreturn]] void no_weights(const std::filesystem::path& dir) {
  std::string others;
  std::error_code error;
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.safetensors"}) {
    if (std::filesystem::exists(dir / name, error)) others += std::string("; ") + name + " cannot be read, convert it";
  }
  throw CheckpointError(dir.string() + ": has no weights; expected " + single_file + " or " + index_file + others);
}

}  // namespace

void Checkpoint::add(const TensorInfo& tensor, size_t file) {
  views_.emplace(tensor.name, TensorView{tensor.dtype, tensor.shape, files_[file]->data(tensor), tensor.offset,
                                         tensor.bytes, file, tensor.paired_rows, tensor.format, nullptr});
  total_bytes_ += tensor.bytes;
}

Checkpoint Checkpoint::open(const std::filesystem::path& dir, FileAccess access) {
  Checkpoint checkpoint;
  checkpoint.dir_ = dir;
  std::error_code error;
  if (is_gguf(dir)) {
    checkpoint.files_ = open_gguf_weights(dir, access);
    for (size_t i = 0; i < checkpoint.files_.size(); ++i) {
      for (const TensorInfo& tensor : checkpoint.files_[i]->tensors()) checkpoint.add(tensor, i);
    }
  } else if (!std::filesystem::is_directory(dir, error)) {
    throw CheckpointError(dir.string() + ": not a directory, and no file whose name ends in .gguf");
  } else if (has_name(dir / single_file)) {
    checkpoint.files_.push_back(SafetensorsFile::open(dir / single_file, access));
    for (const TensorInfo& tensor : checkpoint.files_[0]->tensors()) checkpoint.add(tensor, 0);
  } else if (has_name(dir / index_file)) {
    const JsonDocument document = JsonDocument::load(dir / index_file, max_index_bytes);
    const JsonRef weights = document.root().at("weight_map");
    if (!weights.is_object()) weights.fail("an object that maps tensors to files");
    std::unordered_map<std::string, size_t> opened;
    for (size_t i = 0; i < weights.size(); ++i) {
      const JsonRef shard = weights.member(i);
      const std::filesystem::path path = shard_path(dir, shard);
      const auto [found, is_new] = opened.emplace(path.string(), checkpoint.files_.size());
      if (is_new) checkpoint.files_.push_back(SafetensorsFile::open(path, access));
      const TensorInfo* tensor = checkpoint.files_[found->second]->find(weights.key(i));
      if (tensor == nullptr) {
        shard.error("the file " + quote_text(shard.string()) + " has no tensor " + quote_text(weights.key(i)));
      }
      checkpoint.add(*tensor, found->second);
    }
  } else {
    no_weights(dir);
  }
  checkpoint.names_.reserve(checkpoint.views_.size());
  for (const auto& [name, view] : checkpoint.views_) checkpoint.names_.emplace_back(name);
  std::sort(checkpoint.names_.begin(), checkpoint.names_.end());
  return checkpoint;
}

void Checkpoint::check_unchanged() const {
  for (const auto& file : files_) file->check_unchanged();
}

const TensorView* Checkpoint::find(std::string_view name) const noexcept {
  const auto found = views_.find(name);
  return found == views_.end() ? nullptr : &found->second;
}

const TensorView& Checkpoint::at(std::string_view name) const {
  if (const TensorView* view = find(name)) return *view;
  throw CheckpointError(dir_.string() + ": has no tensor " + quote_text(name));
}

}  // namespace anyaccel::llm
