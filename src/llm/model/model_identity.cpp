// Implements the comparison of the model's files between ranks.
#include "llm/model/model_identity.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "anyaccel/comm/process_group.h"
#include "anyaccel/error.h"
#include "base/hash.h"

namespace anyaccel::llm {
namespace {

namespace fs = std::filesystem;

constexpr size_t most_samples = 4096;
constexpr uint64_t sample_bytes = 64;

void add_small_files(Hash& hash, const std::string& directory, bool with_weights) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    const std::string kind = entry.path().extension();
    const bool small = kind == ".json" || kind == ".jinja" || kind == ".txt" || kind == ".model";
    if (small || (with_weights && (kind == ".safetensors" || kind == ".bin"))) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  for (const fs::path& path : paths) {
    const std::optional<std::string> contents = file_hash(path);
    if (!contents) throw CheckpointError(path.string() + ": cannot be read");
    hash.add(path.filename().string()).add(*contents);
  }
}

void add_bytes(Hash& hash, const WeightFile& file, uint64_t offset, uint64_t count) {
  std::string bytes(count, '\0');
  file.read(offset, std::as_writable_bytes(std::span(bytes)));
  hash.add(bytes);
}

void add_weights(Hash& hash, const Checkpoint& checkpoint) {
  const size_t step = checkpoint.names().size() / most_samples + 1;
  size_t number = 0;
  for (const auto& file : checkpoint.files()) {
    if (file->tensors().empty()) continue;
    add_bytes(hash, *file, 0, file->tensors().front().offset);
    for (const TensorInfo& tensor : file->tensors()) {
      if (number++ % step) continue;
      const uint64_t count = std::min(sample_bytes, tensor.bytes);
      add_bytes(hash, *file, tensor.offset + (tensor.bytes - count) / 2, count);
    }
  }
}

}  // namespace

std::string model_identity(const std::string& directory, const Checkpoint& checkpoint, DType dtype,
                           const LoadOptions& options) {
  Hash hash;
  hash.add(dtype_name(dtype)).add(options.quantize);
  add_small_files(hash, directory, false);
  add_weights(hash, checkpoint);
  if (!options.adapter.empty()) add_small_files(hash, options.adapter, true);
  for (const NamedAdapter& adapter : options.adapters) {
    hash.add(adapter.name);
    add_small_files(hash, adapter.directory, true);
  }
  return hash.text();
}

void check_same_model(const Model& model) {
  comm::ProcessGroup* const group = model.group().get();
  if (!group) return;
  // One rank's hash and the name of its host, both padded with zeros.
  constexpr size_t hash_bytes = 32;
  using Entry = std::array<char, hash_bytes + 256>;
  Entry own{};
  model.identity().copy(own.data(), hash_bytes);
  gethostname(own.data() + hash_bytes, own.size() - hash_bytes - 1);
  std::vector<Entry> all(static_cast<size_t>(group->size()));
  const auto tensor = [](Entry* entries, size_t count) {
    return Tensor::from_blob(entries, {static_cast<int64_t>(count * sizeof(Entry))}, DType::U8, nullptr);
  };
  group->all_gather(tensor(all.data(), all.size()), tensor(&own, 1));
  const auto name = [&](size_t rank) {
    return "rank " + std::to_string(rank) + " on " + std::string(all[rank].data() + hash_bytes);
  };
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (std::equal(all[0].begin(), all[0].begin() + hash_bytes, all[rank].begin())) continue;
    throw InvalidArgument("model: the files of " + name(rank) + " differ from those of " + name(0) +
                          " (configuration, tokenizer, weights or an adapter), or what they are loaded as (dtype, "
                          "quantization); expected the same model and options on every rank");
  }
}

}  // namespace anyaccel::llm
