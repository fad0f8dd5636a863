// See trace.h. Format: the "Trace Event Format" (JSON array form, "X" complete events, microseconds).
#include "runtime/trace.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

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

class Trace {
 public:
  explicit Trace(std::string path) : path_(std::move(path)), start_(Clock::now()), pid_(getpid()) {}

  // Written from an atexit handler: the object itself is never destroyed, because threads may outlive main.
  void write() {
    if (getpid() != pid_) return;  // a forked child shares the parent's file
    std::lock_guard lock(mutex_);
    std::FILE* file = std::fopen(path_.c_str(), "w");
    if (!file) {
      log_error("ANYACCEL_TRACE: cannot write \"" + path_ + "\"; give a file in a folder that exists");
      return;
    }
    std::fputs("[\n", file);
    for (size_t i = 0; i < done_.size(); ++i) {
      const Range& r = done_[i];
      std::string category = json_escaped(r.domain);
      if (!r.category.empty()) category += (category.empty() ? "" : ",") + json_escaped(r.category);
      std::fprintf(file,
                   "{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,\"pid\":%d,\"tid\":%d}%s\n",
                   json_escaped(r.message).c_str(), category.c_str(), r.begin_us, r.duration_us, static_cast<int>(pid_),
                   r.thread, i + 1 < done_.size() ? "," : "");
    }
    std::fputs("]\n", file);
    std::fclose(file);
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
};

Trace* make_trace() {
  const char* path = std::getenv("ANYACCEL_TRACE");
  if (!path || !*path) return nullptr;
  static Trace* made = new Trace(path);
  std::atexit([] { made->write(); });
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

}  // namespace anyaccel
