// Implements the comparison of the model's files between ranks.
#include "llm/model/model_identity.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "anyaccel/comm/process_group.h"
#include "anyaccel/error.h"
#include "base/hash.h"

namespace anyaccel::llm {
namespace {

namespace fs = std::filesystem;

constexpr size_t most_samples = 512;
constexpr uint64_t sample_bytes = 64;

// The files that the loader, the tokenizer and the chat template read (model_config.cpp, generation_config.cpp,
// tokenizer/directory.cpp, chat_template.cpp, checkpoint.cpp, lora_adapter.cpp). Others may differ between hosts.
constexpr std::string_view configuration_files[] = {"config.json", "generation_config.json"};
constexpr std::string_view tokenizer_files[] = {
    "tokenizer.json",        "tokenizer.model",         "vocab.json",        "merges.txt",         "tekken.json",
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"};
constexpr std::string_view tokenizer_extension = ".tiktoken";
constexpr std::string_view templates_folder = "additional_chat_templates", template_extension = ".jinja";
constexpr std::string_view weights_index[] = {"model.safetensors.index.json"};  // of weights in several files
constexpr std::string_view adapter_files[] = {"adapter_config.json", "adapter_model.safetensors"};

// What the parts of an identity are hashes of, in their order. A GGUF file's configuration and tokenizer are in its
// header.
constexpr std::array<std::string_view, 5> part_names = {"configuration", "tokenizer or chat template",
                                                        "weights or the headers of their files", "adapters",
                                                        "options of loading (dtype, quantization, activations)"};
constexpr size_t hash_digits = 32;
constexpr size_t identity_bytes = part_names.size() * hash_digits;

void add_file(Hash& hash, const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return;
  const std::optional<std::string> contents = file_hash(path);
  if (!contents) throw CheckpointError(path.string() + ": cannot be read");
  hash.add(path.filename().string()).add(*contents);
}

void add_files(Hash& hash, const fs::path& folder, std::span<const std::string_view> names) {
  for (const std::string_view name : names) add_file(hash, folder / name);
}

void add_files_of_kind(Hash& hash, const fs::path& folder, std::string_view extension) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == extension) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  for (const fs::path& path : paths) add_file(hash, path);
}

void add_bytes(Hash& hash, const WeightFile& file, uint64_t offset, uint64_t count) {
  std::string bytes(count, '\0');
  file.read(offset, std::as_writable_bytes(std::span(bytes)));
  hash.add(bytes);
}

void add_weights(Hash& hash, const Checkpoint& checkpoint) {
  size_t tensors = 0;
  for (const auto& file : checkpoint.files()) tensors += file->tensors().size();
  const size_t step = tensors / most_samples + 1;
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

std::string hash_loaded_model(const std::string& directory, const Checkpoint& checkpoint, DType dtype,
                              const LoadOptions& options) {
  const fs::path folder = directory;
  Hash configuration, tokenizer, weights, adapters, loading;
  add_files(configuration, folder, configuration_files);
  add_files(tokenizer, folder, tokenizer_files);
  add_files_of_kind(tokenizer, folder, tokenizer_extension);
  add_files_of_kind(tokenizer, folder / templates_folder, template_extension);
  if (checkpoint.files().size() > 1) add_files(weights, folder, weights_index);
  add_weights(weights, checkpoint);
  if (!options.adapter.empty()) add_files(adapters.add("merged"), options.adapter, adapter_files);
  for (const NamedAdapter& adapter : options.adapters) {
    add_files(adapters.add("named").add(adapter.name), adapter.directory, adapter_files);
  }
  loading.add(dtype_name(dtype)).add(options.quantize).add(std::to_string(static_cast<int>(options.activations)));
  return configuration.text() + tokenizer.text() + weights.text() + adapters.text() + loading.text();
}

void check_same_model(const Model& model) {
  comm::ProcessGroup* const group = model.group().get();
  if (!group) return;
  // One rank's identity and the name of its host, both padded with zeros.
  using Entry = std::array<char, identity_bytes + 256>;
  Entry own{};
  model.identity().copy(own.data(), identity_bytes);
  gethostname(own.data() + identity_bytes, own.size() - identity_bytes - 1);
  std::vector<Entry> all(static_cast<size_t>(group->size()));
  const auto tensor = [](Entry* entries, size_t count) {
    return Tensor::from_blob(entries, {static_cast<int64_t>(count * sizeof(Entry))}, DType::U8, nullptr);
  };
  group->all_gather(tensor(all.data(), all.size()), tensor(&own, 1));
  const auto name = [&](size_t rank) {
    return "rank " + std::to_string(rank) + " on " + std::string(all[rank].data() + identity_bytes);
  };
  for (size_t rank = 1; rank < all.size(); ++rank) {
    std::string differing;
    for (size_t part = 0; part < part_names.size(); ++part) {
      const auto hash_of = [&](const Entry& entry) {
        return std::string_view(entry.data() + part * hash_digits, hash_digits);
      };
      if (hash_of(all[0]) == hash_of(all[rank])) continue;
      if (!differing.empty()) differing += ", ";
      differing += part_names[part];
    }
    if (differing.empty()) continue;
    throw InvalidArgument("model: " + name(rank) + " loaded another model than " + name(0) +
                          "; what differs: " + differing + "; expected the same files and options on every rank");
  }
}

}  // namespace anyaccel::llm
