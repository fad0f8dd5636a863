// Implements range_trace.h: ANYACCEL_TRACE=FILE: profiler ranges as a trace that chrome://tracing and Perfetto open.
// Format: the "Trace Event Format" (JSON array form, "X" complete events, microseconds).
#include "runtime/range_trace.h"

#include <unistd.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "anyaccel/error.h"
#include "anyaccel/file_output.h"
#include "anyaccel/log.h"

namespace anyaccel {
namespace {

using Clock = std::chrono::steady_clock;

struct Range {
  std::string message;
  std::string domain;
  std::string category;
  double begin_us;
  double duration_us;
  int thread;
};

std::string json_escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof(code), "\\u%04x", static_cast<unsigned>(c));
      result += code;
    } else {
      result += c;
    }
  }
  return result;
}

// JSON has no decimal commas, which printf() writes in some locales.
std::string number_text(double number) {
  char digits[64];
  const auto [end, error] = std::to_chars(digits, digits + sizeof digits, number, std::chars_format::fixed, 3);
  return {digits, end};
}

class Trace {
 public:
  explicit Trace(std::string path) : path_(std::move(path)), start_(Clock::now()), pid_(getpid()) {}

  // Once. The object itself is never destroyed, because threads may outlive main.
  bool write() {
    if (getpid() != pid_) return true;  // a forked child shares the parent's file
    std::lock_guard lock(mutex_);
    if (std::exchange(written_, true)) return true;
    std::string text = "[\n";
    for (size_t i = 0; i < done_.size(); ++i) {
      const Range& r = done_[i];
      std::string category = json_escaped(r.domain);
      if (!r.category.empty()) category += (category.empty() ? "" : ",") + json_escaped(r.category);
      text += R"({"name":")" + json_escaped(r.message) + R"(","cat":")" + category + R"(","ph":"X","ts":)" +
              number_text(r.begin_us) + R"(,"dur":)" + number_text(r.duration_us) + R"(,"pid":)" +
              std::to_string(pid_) + R"(,"tid":)" + std::to_string(r.thread) + "}";
      text += i + 1 < done_.size() ? ",\n" : "\n";
    }
    const std::string reason = write_output_file(path_, text + "]\n");
    if (!reason.empty()) log_error("ANYACCEL_TRACE: \"" + path_ + "\" cannot be written: " + reason);
    return reason.empty();
  }

  double now_us() const { return std::chrono::duration<double, std::micro>(Clock::now() - start_).count(); }

  void add(Range range) {
    std::lock_guard lock(mutex_);
    done_.push_back(std::move(range));
  }

  int next_thread() {
    std::lock_guard lock(mutex_);
    return ++threads_;
  }

 private:
  std::string path_;
  Clock::time_point start_;
  pid_t pid_;
  std::mutex mutex_;
  std::vector<Range> done_;
  int threads_ = 0;
  bool written_ = false;
};

// Empty: there is none.
std::string trace_path() {
  const char* path = std::getenv("ANYACCEL_TRACE");
  return path ? path : "";
}

std::atomic<Trace*> made{nullptr};

Trace* make_trace() {
  if (trace_path().empty()) return nullptr;
  made = new Trace(trace_path());
  std::atexit([] { made.load()->write(); });
  return made;
}

Trace* trace() {
  static Trace* const instance = make_trace();
  return instance;
}

thread_local std::vector<Range> open_ranges;

}  // namespace

void trace_range_push(std::string_view message, std::string_view domain, std::string_view category) {
  Trace* t = trace();
  if (!t) return;
  static thread_local const int thread = t->next_thread();
  open_ranges.push_back({std::string(message), std::string(domain), std::string(category), t->now_us(), 0.0, thread});
}

void trace_range_pop(std::string_view domain) {
  Trace* t = trace();
  if (!t) return;
  for (size_t i = open_ranges.size(); i-- > 0;) {
    if (open_ranges[i].domain != domain) continue;
    Range range = std::move(open_ranges[i]);
    open_ranges.erase(open_ranges.begin() + static_cast<std::ptrdiff_t>(i));
    range.duration_us = t->now_us() - range.begin_us;
    t->add(std::move(range));
    return;
  }
}

void check_trace_file() {
  const std::string path = trace_path();
  const std::string reason = path.empty() ? "" : output_file_problem(path);
  if (!reason.empty()) {
    throw InvalidArgument("ANYACCEL_TRACE: \"" + path + "\" cannot be written (" + reason +
                          "); give a file in a folder that exists and that you may write to");
  }
}

bool finish_trace() {
  Trace* t = made.load();
  return !t || t->write();
}

}  // namespace anyaccel
