// Formats the progress of long work as one line for a terminal.
#include "base/text/progress_line.h"

#include <algorithm>

#include "anyaccel/format_bytes.h"

namespace anyaccel {
namespace {

std::string amount(ProgressUnit unit, double value) {
  if (unit == ProgressUnit::Bytes) return format_bytes(value);
  return std::to_string(static_cast<uint64_t>(value));
}

std::string duration(double seconds) {
  const auto whole = static_cast<uint64_t>(seconds + 0.5);
  if (whole < 60) return std::to_string(whole) + " s";
  if (whole < 3600) return std::to_string(whole / 60) + " min " + std::to_string(whole % 60) + " s";
  return std::to_string(whole / 3600) + " h " + std::to_string(whole % 3600 / 60) + " min";
}

}  // namespace

std::string progress_line(std::string_view what, ProgressUnit unit, uint64_t done, uint64_t total, double seconds,
                          size_t columns) {
  constexpr size_t bar_length = 20;
  done = std::min(done, total);
  const double part = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1.0;
  std::string figures = amount(unit, static_cast<double>(done)) + " of " + amount(unit, static_cast<double>(total));
  if (seconds >= 0.5 && done > 0) {
    const double rate = static_cast<double>(done) / seconds;
    if (unit == ProgressUnit::Bytes) figures += ", " + format_bytes(rate) + "/s";
    figures += ", " + duration(static_cast<double>(total - done) / rate) + " left";
  }
  const auto filled = static_cast<size_t>(part * bar_length);
  std::string bar = "[" + std::string(filled, '=') + (filled < bar_length ? ">" : "");
  bar.resize(bar_length + 1, ' ');
  std::string line = std::string(what) + " " + bar + "] " + figures;
  if (line.size() > columns) line = std::string(what) + " " + figures;
  if (line.size() > columns) line.resize(columns);
  return line;
}

}  // namespace anyaccel
