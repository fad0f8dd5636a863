// Implements product_choices.h: the file of measured choices among cuBLASLt's algorithms.
#include "accelerators/cuda/ops/product_choices.h"

#include <charconv>
#include <cstdio>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

#include "anyaccel/log.h"
#include "base/files/cache_dir.h"

namespace anyaccel::cuda {
namespace {

// Increase this when older measurements become invalid.
constexpr std::string_view header = "anyaccel cublaslt choices 1";
// Far more than one machine writes; a larger file is not ours.
constexpr size_t most_bytes = 4 << 20;

// FNV-1a: an algorithm is opaque to us, and a damaged one might not be detected by the library.
uint64_t checksum(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

std::string hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(value));
  return text;
}

template <class Number>
bool parse(std::string_view text, Number& value, int base) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size();
}
bool parse(std::string_view text, double& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

// Key, algorithm (eight words), workspace, microseconds; without the checksum.
std::string body_of(const std::string& key, const ProductChoice& choice) {
  std::string text = key + '\t';
  for (const uint64_t word : choice.algorithm.data) text += hex(word);
  char digits[64];
  const auto [end, error] =
      std::to_chars(digits, digits + sizeof digits, choice.microseconds, std::chars_format::fixed, 3);
  return text + '\t' + std::to_string(choice.workspace) + '\t' + std::string(digits, end);
}

bool parse_line(std::string_view line, ProductChoices& choices) {
  std::vector<std::string_view> fields;
  std::string_view rest = line;
  for (size_t tab = rest.find('\t'); tab != std::string_view::npos; tab = rest.find('\t')) {
    fields.push_back(rest.substr(0, tab));
    rest = rest.substr(tab + 1);
  }
  if (fields.size() != 4 || fields[0].empty() || fields[1].size() != 128) return false;
  uint64_t sum = 0;
  if (!parse(rest, sum, 16) || sum != checksum(line.substr(0, line.size() - rest.size() - 1))) return false;
  ProductChoice choice;
  for (size_t i = 0; i < 8; ++i) {
    if (!parse(fields[1].substr(16 * i, 16), choice.algorithm.data[i], 16)) return false;
  }
  if (!parse(fields[2], choice.workspace, 10) || !parse(fields[3], choice.microseconds)) return false;
  choices[std::string(fields[0])] = choice;
  return true;
}

ProductChoices read_file(const std::filesystem::path& path) {
  const std::optional<std::string> text = read_cache_file(path, most_bytes);
  if (!text) return {};  // nothing was measured yet, or not by this user
  const auto note = [&](const std::string& why) {
    log_debug("measured algorithms in " + path.string() + " are not used: " + why);
  };
  std::istringstream file(*text);
  std::string line;
  if (!std::getline(file, line) || line != header) {
    note("the first line is not \"" + std::string(header) + "\"");
    return {};
  }
  ProductChoices choices;
  for (int number = 2; std::getline(file, line); ++number) {
    if (!parse_line(line, choices)) note("line " + std::to_string(number) + " cannot be read");
  }
  return choices;
}

}  // namespace

std::filesystem::path product_choice_file() {
  const std::filesystem::path folder = cache_directory();
  return folder.empty() ? folder : folder / "cublaslt_choices.txt";
}

ProductChoices load_product_choices() {
  const std::filesystem::path path = product_choice_file();
  return path.empty() ? ProductChoices() : read_file(path);
}

void store_product_choice(const std::string& key, const ProductChoice& choice) {
  const std::filesystem::path path = product_choice_file();
  if (path.empty()) return;
  ProductChoices choices = read_file(path);
  choices[key] = choice;
  std::string text = std::string(header) + '\n';
  for (const auto& [name, stored] : choices) {
    const std::string body = body_of(name, stored);
    text += body + '\t' + hex(checksum(body)) + '\n';
  }
  const std::string reason = write_cache_file(path, text);
  if (!reason.empty()) log_debug("a measured algorithm cannot be kept in " + path.string() + ": " + reason);
}

}  // namespace anyaccel::cuda
