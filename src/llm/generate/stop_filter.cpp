// Finds stop strings across the boundaries of pieces.
#include "llm/generate/stop_filter.h"

#include <algorithm>
#include <utility>

namespace anyaccel::llm {

StopFilter::StopFilter(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

std::string StopFilter::push(std::string_view piece) {
  if (stopped_) return {};
  held_ += piece;
  // Where a stop string ends decides, not where it begins: text that comes byte by byte goes no further than that, and
  // pieces of any other size must give the same.
  constexpr size_t none = std::string::npos;
  size_t found = none, found_end = none;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at == none || std::pair(at + stop.size(), at) >= std::pair(found_end, found)) continue;
    found = at;
    found_end = at + stop.size();
  }
  if (found != none) {
    stopped_ = true;
    held_.resize(found);
    return std::exchange(held_, {});
  }
  // Keep the longest end of the text that is the beginning of a stop string.
  size_t keep = 0;
  for (const std::string& stop : stops_) {
    for (size_t length = std::min(stop.size() - 1, held_.size()); length > keep; --length) {
      if (std::string_view(held_).substr(held_.size() - length) == std::string_view(stop).substr(0, length)) {
        keep = length;
        break;
      }
    }
  }
  std::string certain = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return certain;
}

std::string StopFilter::finish() { return std::exchange(held_, {}); }

}  // namespace anyaccel::llm
