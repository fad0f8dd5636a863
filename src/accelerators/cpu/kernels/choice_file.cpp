// Implements choice_file.h: reads and replaces the file of measured choices.
#include "accelerators/cpu/kernels/choice_file.h"

#include <charconv>
#include <locale>
#include <map>
#include <sstream>
#include <string_view>

#include "anyaccel/log.h"
#include "base/files/cache_dir.h"

namespace anyaccel::cpu {
namespace {

// Increase this when older measurements become invalid, for instance after our own kernels became faster.
constexpr std::string_view kHeader = "anyaccel cpu matmul choices 2";
// Far more than one machine writes; a larger file is not ours.
constexpr size_t kMostBytes = 1 << 20;

using Choices = std::map<std::string, MeasuredChoice>;

// Removes and returns the text up to the next tab, or all of it if there is none.
std::string_view next_field(std::string_view& line) {
  const size_t tab = line.find('\t');
  const std::string_view field = line.substr(0, tab);
  line = tab == std::string_view::npos ? std::string_view() : line.substr(tab + 1);
  return field;
}

bool parse_time(std::string_view text, double& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value > 0;
}

// key, "own" or "onednn", both times.
bool parse_line(std::string_view line, Choices& choices) {
  const std::string key(next_field(line));
  const std::string_view name = next_field(line);
  MeasuredChoice choice;
  choice.onednn = name == "onednn";
  if (key.empty() || (name != "own" && name != "onednn")) return false;
  if (!parse_time(next_field(line), choice.own_time) || !parse_time(next_field(line), choice.onednn_time)) return false;
  if (!line.empty()) return false;
  choices[key] = choice;
  return true;
}

// Returns all choices in the file; none if any line is malformed.
Choices read_file(const std::filesystem::path& path) {
  const std::optional<std::string> text = read_cache_file(path, kMostBytes);
  if (!text) return {};  // missing or not readable: nothing was measured yet
  const auto ignore = [&](const std::string& why) {
    log_debug("measured choices in " + path.string() + " are not used: " + why);
    return Choices();
  };
  std::istringstream file(*text);
  std::string line;
  if (!std::getline(file, line) || line != kHeader)
    return ignore("the first line is not \"" + std::string(kHeader) + "\"");
  Choices choices;
  for (int number = 2; std::getline(file, line); ++number) {
    if (!parse_line(line, choices)) return ignore("line " + std::to_string(number) + " cannot be read");
  }
  return choices;
}

std::string to_text(const Choices& choices) {
  std::ostringstream text;
  text.imbue(std::locale::classic());  // what from_chars() reads
  text << kHeader << '\n';
  for (const auto& [key, choice] : choices) {
    text << key << '\t' << (choice.onednn ? "onednn" : "own") << '\t' << choice.own_time << '\t' << choice.onednn_time
         << '\n';
  }
  return text.str();
}

}  // namespace

std::filesystem::path choice_file() {
  const std::filesystem::path folder = cache_directory();
  return folder.empty() ? folder : folder / "cpu_matmul_choices.txt";
}

std::optional<MeasuredChoice> load_choice(const std::string& key) {
  const std::filesystem::path path = choice_file();
  if (path.empty()) return std::nullopt;
  const Choices choices = read_file(path);
  const auto found = choices.find(key);
  if (found == choices.end()) return std::nullopt;
  return found->second;
}

void store_choice(const std::string& key, const MeasuredChoice& choice) {
  const std::filesystem::path path = choice_file();
  if (path.empty()) return;
  Choices choices = read_file(path);
  choices[key] = choice;
  const std::string reason = write_cache_file(path, to_text(choices));
  if (!reason.empty()) log_debug("a measured choice cannot be kept in " + path.string() + ": " + reason);
}

}  // namespace anyaccel::cpu
