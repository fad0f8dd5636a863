// Finds stop strings in text that arrives in pieces, and holds back text that may be the beginning of one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace anyaccel::llm {

class StopFilter {
 public:
  // Empty strings have no effect.
  explicit StopFilter(std::vector<std::string> stops);

  // Takes the next piece and returns the text that is final by now. Once a stop string has appeared, it and everything
  // after it are dropped. Of several, the one that is complete first is used, and of those the longest.
  std::string push(std::string_view piece);
  // Call at the end of the text: returns the text held back, which was not a stop string.
  std::string finish();
  bool stopped() const noexcept { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace anyaccel::llm
