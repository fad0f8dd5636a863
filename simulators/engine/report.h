// The report of a simulator: violations of the rules, objects never destroyed, and how often each function was called.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace sim {

// `kind` is one of a fixed set of words (simulators/README.md lists them), `message` a sentence for people.
struct Violation {
  std::string kind, message;
};

class Report {
 public:
  explicit Report(bool abort_on_violation) : abort_(abort_on_violation) {}

  // Thread-safe. Also written to standard error.
  void violation(std::string kind, std::string message);
  std::vector<Violation> violations() const;
  bool has(const std::string& kind) const;

  // The counter of one function; the same one for the same name. Lives as long as the report.
  std::atomic<std::uint64_t>& calls(const std::string& symbol);

  // {"violations": [{"kind", "message"}], "leaks": [text], "calls": {symbol: count}}
  std::string json(const std::vector<std::string>& leaks) const;

 private:
  const bool abort_;
  mutable std::mutex mutex_;
  std::vector<Violation> violations_;
  std::map<std::string, std::atomic<std::uint64_t>> calls_;
};

}  // namespace sim
