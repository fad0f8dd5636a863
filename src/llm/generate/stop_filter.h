// Finds stop strings in text that arrives in pieces, and holds back what may still become one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace anyaccel::llm {

class StopFilter {
 public:
  // Empty strings among them stop nothing.
  explicit StopFilter(std::vector<std::string> stops);

  // Takes the next piece and returns the text that is certain by now. Once a stop string has appeared, it and
  // everything after it are dropped. Of several, the one that begins first counts.
  std::string push(std::string_view piece);
  // The text ends here: what was held back is no stop string.
  std::string finish();
  bool stopped() const noexcept { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace anyaccel::llm
