// Gives access to the key-value pairs of a GGUF file, with checks of their types and ranges.
#include <cmath>
#include <cstdio>

#include "anyaccel/error.h"
#include "base/text/json.h"
#include "llm/checkpoint/gguf.h"

namespace anyaccel::llm {
namespace {

std::string float_text(double value) {
  if (std::isnan(value)) return "not a number";
  char text[32];
  std::snprintf(text, sizeof text, "%.7g", value);
  return text;
}

std::string describe(const GgufValue& value) {
  constexpr const char* kinds[] = {"whole numbers", "numbers", "texts"};
  const size_t kind = value.elements.index();
  if (value.is_list) return std::string("a list of ") + (value.is_bool ? "truth values" : kinds[kind]);
  if (kind == 0 && value.type == GgufType::U64) {
    return std::to_string(static_cast<uint64_t>(std::get<0>(value.elements)[0]));
  }
  if (kind == 0) return std::to_string(std::get<0>(value.elements)[0]);
  if (kind == 1) return float_text(std::get<1>(value.elements)[0]);
  return quote_text(std::get<2>(value.elements)[0]);
}

}  // namespace

void GgufMetadata::error(std::string_view key, const std::string& what) const {
  throw CheckpointError(source_ + ": the key " + quote_text(key) + " " + what);
}

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return nullptr;
  found->second.is_read.store(true, std::memory_order_relaxed);
  return &found->second.value;
}

const GgufValue* GgufMetadata::single(std::string_view key, const char* expected) const {
  const GgufValue* value = find(key);
  if (value != nullptr && value->is_list) error(key, "is " + describe(*value) + "; expected " + expected);
  return value;
}

std::optional<std::string> GgufMetadata::text(std::string_view key) const {
  const GgufValue* value = single(key, "a text");
  if (value == nullptr) return std::nullopt;
  const auto* texts = std::get_if<std::vector<std::string>>(&value->elements);
  if (texts == nullptr) error(key, "is " + describe(*value) + "; expected a text");
  return texts->front();
}

std::optional<int64_t> GgufMetadata::whole(std::string_view key, int64_t least, int64_t most) const {
  const GgufValue* value = single(key, "a whole number");
  if (value == nullptr) return std::nullopt;
  const auto* wholes = std::get_if<std::vector<int64_t>>(&value->elements);
  const bool beyond = wholes != nullptr && value->type == GgufType::U64 && wholes->front() < 0;  // 63 bits
  if (wholes == nullptr || value->is_bool || beyond || wholes->front() < least || wholes->front() > most) {
    error(key, "is " + describe(*value) + "; expected a whole number from " + std::to_string(least) + " to " +
                   std::to_string(most));
  }
  return wholes->front();
}

std::optional<double> GgufMetadata::number(std::string_view key, double least, double most) const {
  const GgufValue* value = single(key, "a number");
  if (value == nullptr) return std::nullopt;
  const auto* numbers = std::get_if<std::vector<double>>(&value->elements);
  // A comparison with NaN is false, so NaN is rejected too.
  if (numbers == nullptr || !(numbers->front() >= least && numbers->front() <= most)) {
    error(key, "is " + describe(*value) + "; expected a floating-point number from " + float_text(least) + " to " +
                   float_text(most));
  }
  return numbers->front();
}

bool GgufMetadata::flag(std::string_view key, bool fallback) const {
  const GgufValue* value = single(key, "true or false");
  if (value == nullptr) return fallback;
  if (!value->is_bool) error(key, "is " + describe(*value) + "; expected true or false");
  return std::get<0>(value->elements).front() != 0;
}

std::string GgufMetadata::required_text(std::string_view key) const {
  if (auto value = text(key)) return *value;
  error(key, "is missing; expected a text");
}

int64_t GgufMetadata::required_whole(std::string_view key, int64_t least, int64_t most) const {
  if (const auto value = whole(key, least, most)) return *value;
  error(key, "is missing; expected a whole number");
}

double GgufMetadata::required_number(std::string_view key, double least, double most) const {
  if (const auto value = number(key, least, most)) return *value;
  error(key, "is missing; expected a number");
}

std::optional<int64_t> GgufMetadata::whole_of_layers(std::string_view key, int64_t least, int64_t most,
                                                     int64_t layers) const {
  const GgufValue* value = find(key);
  if (value == nullptr || !value->is_list) return whole(key, least, most);
  const std::vector<int64_t>& all = *wholes(key);
  if (all.size() != static_cast<size_t>(layers)) {
    error(key, "has " + std::to_string(all.size()) + " elements; expected one for each of the " +
                   std::to_string(layers) + " layers");
  }
  for (const int64_t one : all) {
    if (one < least || one > most || one != all.front()) {
      error(key, "has the element " + std::to_string(one) + "; expected the same number from " + std::to_string(least) +
                     " to " + std::to_string(most) + " for every layer: layers that differ are not supported");
    }
  }
  return all.front();
}

const std::vector<std::string>* GgufMetadata::texts(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return nullptr;
  const auto* texts = std::get_if<std::vector<std::string>>(&value->elements);
  if (!value->is_list || texts == nullptr) error(key, "is " + describe(*value) + "; expected a list of texts");
  return texts;
}

const std::vector<int64_t>* GgufMetadata::wholes(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return nullptr;
  const auto* wholes = std::get_if<std::vector<int64_t>>(&value->elements);
  if (!value->is_list || value->is_bool || wholes == nullptr) {
    error(key, "is " + describe(*value) + "; expected a list of whole numbers");
  }
  return wholes;
}

std::vector<uint8_t> GgufMetadata::flags(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr || !value->is_list) return {};
  if (!value->is_bool) error(key, "is " + describe(*value) + "; expected a list of truth values");
  std::vector<uint8_t> all;
  for (const int64_t one : std::get<0>(value->elements)) all.push_back(one != 0 ? 1 : 0);
  return all;
}

std::vector<double> GgufMetadata::numbers(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return {};
  if (value->is_list && !value->is_bool) {
    if (const auto* numbers = std::get_if<std::vector<double>>(&value->elements)) return *numbers;
    if (const auto* wholes = std::get_if<std::vector<int64_t>>(&value->elements)) {
      std::vector<double> found;
      for (const int64_t whole : *wholes) {
        found.push_back(value->type == GgufType::U64 ? static_cast<double>(static_cast<uint64_t>(whole))
                                                     : static_cast<double>(whole));
      }
      return found;
    }
  }
  error(key, "is " + describe(*value) + "; expected a list of numbers");
}

std::vector<std::string> GgufMetadata::unread(std::string_view prefix) const {
  std::vector<std::string> keys;
  for (auto at = values_.lower_bound(prefix); at != values_.end() && at->first.starts_with(prefix); ++at) {
    if (!at->second.is_read.load(std::memory_order_relaxed)) keys.push_back(at->first);
  }
  return keys;
}

}  // namespace anyaccel::llm
