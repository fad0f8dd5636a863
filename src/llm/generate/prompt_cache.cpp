// Reads and writes files of prompt caches.
#include "llm/generate/prompt_cache.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <set>
#include <span>
#include <utility>

#include "anyaccel/error.h"
#include "anyaccel/file_output.h"
#include "base/files/open_file.h"
#include "base/hash.h"
#include "base/text/json.h"
#include "llm/checkpoint/gguf.h"

namespace anyaccel::llm {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view any_version = "anyaccel prompt cache ";
constexpr std::string_view magic = "anyaccel prompt cache 1\n";
constexpr size_t max_header = size_t{64} << 20;
static_assert(std::endian::native == std::endian::little);

// The samples lie so close that matrices of a few hundred kilobytes have one in a file of a gigabyte: a model that was
// trained further may differ in few of them.
void add_samples(Hash& hash, const fs::path& path) {
  const OpenFile file(path);
  hash.add(path.filename().string()).add(std::to_string(file.bytes()));
  constexpr uint64_t block = 4096, blocks = 4096;
  std::vector<std::byte> bytes(block);
  for (uint64_t i = 0; i < blocks; ++i) {
    const uint64_t begin = file.bytes() <= block * blocks ? i * block : (file.bytes() - block) / (blocks - 1) * i;
    if (begin >= file.bytes()) break;
    bytes.resize(static_cast<size_t>(std::min(block, file.bytes() - begin)));
    file.read(begin, bytes);
    hash.add({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
}

void add_model(Hash& hash, const std::string& path) {
  if (!fs::is_directory(path)) {
    const std::shared_ptr<const GgufModel> model = open_gguf(path);
    for (const fs::path& part : model->paths) add_samples(hash, part);
    return;
  }
  std::set<fs::path> files;
  for (const auto& entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().filename().string();
    const bool counts = name == "config.json" || name == "adapter_config.json" || name.ends_with(".safetensors");
    if (counts && entry.is_regular_file()) files.insert(entry.path());
  }
  for (const fs::path& file : files) add_samples(hash, file);
}

[[noreturn]] void fail(const std::string& source, const std::string& problem) {
  throw CheckpointError(source + ": " + problem);
}

}  // namespace

std::string model_identity(const std::string& directory, const std::string& adapter, std::string_view settings) {
  Hash hash;
  try {
    add_model(hash, directory);
    hash.add(settings);
    if (!adapter.empty()) add_model(hash, adapter);
  } catch (const fs::filesystem_error& error) {
    throw CheckpointError(error.what());
  }
  return hash.text();
}

namespace {

constexpr const char* damaged = "the prompt cache is damaged: ";
constexpr const char* cure = "; delete it, and it is written again";
constexpr size_t header_begin = magic.size() + sizeof(uint64_t);

// Returns the size of the header, from the first header_begin bytes of a file (or fewer, if it is shorter) of
// `file_bytes` bytes.
size_t header_size(std::string_view bytes, uint64_t file_bytes, const std::string& source) {
  if (bytes.starts_with(any_version) && !bytes.starts_with(magic) && bytes.size() == header_begin) {
    fail(source,
         "the prompt cache was written by another version of anyaccel, and is left as it is; name another file, or "
         "delete this one");
  }
  if (!bytes.starts_with(magic)) {
    fail(source,
         "this is not a prompt cache of anyaccel, and is left as it is; expected a file that --prompt-cache has "
         "written, or the name of one that does not exist yet");
  }
  uint64_t size = 0;
  if (bytes.size() < header_begin) fail(source, std::string(damaged) + "it ends in its header" + cure);
  std::memcpy(&size, bytes.data() + magic.size(), sizeof size);
  if (size > std::min<uint64_t>(max_header, file_bytes - header_begin)) {
    fail(source, std::string(damaged) + "it ends in its header" + cure);
  }
  return static_cast<size_t>(size);
}

struct Header {
  std::vector<int32_t> tokens;
  std::string hash;
};

// `contents` is the number of bytes that follow the header.
Header parse_header(std::string_view text, uint64_t contents, const std::string& source, std::string_view identity,
                    uint64_t token_bytes) {
  const JsonDocument document = JsonDocument::parse(text, source);
  const JsonRef root = document.root();
  if (root.at("model").string() != identity) {
    fail(source,
         "the prompt cache was made with another model, adapter, dtype or kind of cache, and is left as it is; name "
         "another file, or delete this one");
  }
  Header header;
  const JsonRef tokens = root.at("tokens");
  if (!tokens.is_array() || tokens.size() == 0) tokens.fail("a list of tokens");
  for (size_t i = 0; i < tokens.size(); ++i) {
    header.tokens.push_back(static_cast<int32_t>(tokens[i].integer(0, std::numeric_limits<int32_t>::max())));
  }
  if (contents != header.tokens.size() * token_bytes) {
    fail(source, std::string(damaged) + "it has " + std::to_string(contents) + " bytes of keys and values for " +
                     std::to_string(header.tokens.size()) + " tokens of " + std::to_string(token_bytes) + " bytes" +
                     cure);
  }
  header.hash = root.at("hash").string();
  return header;
}

PromptCache checked(Header header, std::string contents, const std::string& source) {
  if (header.hash != Hash().add(contents).text()) {
    fail(source, std::string(damaged) + "the keys and values differ from what was written" + cure);
  }
  return {std::move(header.tokens), std::move(contents)};
}

}  // namespace

PromptCache parse_prompt_cache(std::string_view bytes, const std::string& source, std::string_view identity,
                               uint64_t token_bytes) {
  const size_t size = header_size(bytes.substr(0, header_begin), bytes.size(), source);
  const std::string_view contents = bytes.substr(header_begin + size);
  return checked(parse_header(bytes.substr(header_begin, size), contents.size(), source, identity, token_bytes),
                 std::string(contents), source);
}

// Reads the contents last, so that a file that does not belong costs no memory.
std::optional<PromptCache> read_prompt_cache(const std::string& path, std::string_view identity, uint64_t token_bytes) {
  if (!fs::exists(path)) return std::nullopt;
  const OpenFile file(path);
  const auto read = [&](uint64_t begin, uint64_t count) {
    std::string text(static_cast<size_t>(count), '\0');
    file.read(begin, std::as_writable_bytes(std::span(text)));
    return text;
  };
  const size_t size = header_size(read(0, std::min<uint64_t>(header_begin, file.bytes())), file.bytes(), path);
  const uint64_t begin = header_begin + size;
  const uint64_t contents = file.bytes() - begin;
  Header header = parse_header(read(header_begin, size), contents, path, identity, token_bytes);
  return checked(std::move(header), read(begin, contents), path);
}

void write_prompt_cache(const std::string& path, const PromptCache& cache, std::string_view identity) {
  const std::string header = json_text(
      {{"model", std::string(identity)}, {"tokens", cache.tokens}, {"hash", Hash().add(cache.contents).text()}});
  const uint64_t size = header.size();
  std::string bytes(magic);
  bytes.append(reinterpret_cast<const char*>(&size), sizeof size);
  bytes += header;
  bytes += cache.contents;
  const std::string problem = write_output_file(path, bytes);
  if (!problem.empty()) fail(path, "the prompt cache cannot be written: " + problem);
}

}  // namespace anyaccel::llm
