// The report of a simulator: standard error at once, JSON at the end.
#include "simulators/engine/report.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace sim {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      out += escape;
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace

void Report::violation(std::string kind, std::string message) {
  std::fprintf(stderr, "simulator: violation: %s: %s\n", kind.c_str(), message.c_str());
  if (abort_) std::abort();
  const std::lock_guard lock(mutex_);
  violations_.push_back({std::move(kind), std::move(message)});
}

std::vector<Violation> Report::violations() const {
  const std::lock_guard lock(mutex_);
  return violations_;
}

bool Report::has(const std::string& kind) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(violations_.begin(), violations_.end(), [&](const Violation& v) { return v.kind == kind; });
}

std::atomic<std::uint64_t>& Report::calls(const std::string& symbol) {
  const std::lock_guard lock(mutex_);
  return calls_[symbol];
}

std::string Report::json(const std::vector<std::string>& leaks) const {
  const std::lock_guard lock(mutex_);
  std::string out = "{\"violations\": [";
  const char* comma = "";
  for (const Violation& v : violations_) {
    out += comma + std::string("\n  {\"kind\": ") + quoted(v.kind) + ", \"message\": " + quoted(v.message) + "}";
    comma = ",";
  }
  out += "],\n\"leaks\": [";
  comma = "";
  for (const std::string& leak : leaks) {
    out += comma + std::string("\n  ") + quoted(leak);
    comma = ",";
  }
  out += "],\n\"calls\": {";
  comma = "";
  for (const auto& [symbol, count] : calls_) {
    out += comma + std::string("\n  ") + quoted(symbol) + ": " + std::to_string(count.load());
    comma = ",";
  }
  return out + "}}\n";
}

}  // namespace sim
