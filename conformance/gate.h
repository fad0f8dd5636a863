// A gate: a host call that waits until the test opens it. While it is shut the stream certainly cannot proceed,
// whatever the timing, so a case may judge strictly what it observes of the stream's work.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "conformance/context.h"

namespace anyaccel::conformance {

// Ends the case as unsupported if the driver cannot hold a stream.
inline void needs_gates(const Context& c) {
  if (c.has(AA_CAP_SYNCHRONOUS)) c.unsupported("work is complete when the enqueuing call returns: nothing can be held");
  if (!c.has(AA_CAP_HOST_CALL)) {
    c.unavailable(
        "not tested: without AA_CAP_HOST_CALL no stream can be held; order.long_work_holds_its_stream tests the main "
        "rules");
  }
}

// The same, and a second stream must be able to run meanwhile.
inline void needs_gates_and_free_streams(const Context& c) {
  needs_gates(c);
  if (!c.has(AA_CAP_CONCURRENT_STREAMS))
    c.unsupported("AA_CAP_CONCURRENT_STREAMS is clear: no stream runs beside a held one");
}

// The number of items that, according to the driver, a stream accepts behind an incomplete one. No case tries more than
// 4096.
inline int queue_depth(const Context& c) { return std::clamp(c.props.queue_depth, 128, 4096); }

class Gate {
 public:
  using Clock = std::chrono::steady_clock;

  // Enqueues it, shut. A driver may run the functions of all streams on one thread: of two gates the second may be
  // entered only when the first was opened.
  Gate(const Context& c, aa_stream* stream) : state_(new_state()) {
    c.ok(c.driver.stream_host_call(stream, wait, state_), "stream_host_call");
  }
  // Opens it. Declare gates after the streams and the memory of the work behind them.
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void open() {
    std::lock_guard lock(state_->mutex);
    if (state_->open) return;
    state_->open = true;
    state_->opened_at = Clock::now();
    state_->changed.notify_all();
  }
  // Waits until the stream has reached it; if that never happens, the watchdog ends the case.
  void until_entered() const {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] { return state_->entered; });
  }
  bool is_open() const {
    std::lock_guard lock(state_->mutex);
    return state_->open;
  }
  // Returns how long the stream was held, by the host's clock. Valid only if the gate was entered and then opened.
  double milliseconds() const {
    std::lock_guard lock(state_->mutex);
    return std::chrono::duration<double, std::milli>(state_->opened_at - state_->entered_at).count();
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool open = false;
    bool entered = false;
    Clock::time_point entered_at;
    Clock::time_point opened_at;
  };
  // Never deleted: a broken driver may call the function at any later time.
  static State* new_state() {
    static auto& all = *new std::vector<State*>;
    all.push_back(new State);
    return all.back();
  }
  static void wait(void* user) {
    auto* state = static_cast<State*>(user);
    std::unique_lock lock(state->mutex);
    state->entered = true;
    state->entered_at = Clock::now();
    state->changed.notify_all();
    state->changed.wait(lock, [&] { return state->open; });
  }

  State* state_;
};

// Watches streams that must not complete. Make it before a gate is shut and destroy it after the gate was opened, because
// making and freeing memory may wait for all work of the device.
class Watch {
 public:
  explicit Watch(const Context& context) : context_(context), memory_(context, 128) {
    // If streams do not run concurrently, a stream that waits for the held one could not be destroyed.
    if (context.has(AA_CAP_CONCURRENT_STREAMS)) other_.emplace(context);
  }

  // Returns true if a stream that must not complete does complete within a short time, which is an error; an error that
  // shows later than that is not detected. The time is 20 ms, or on a busy machine the time in which another stream
  // copies something ten times, at most half a second.
  bool gets_done(aa_stream* stream) {
    using namespace std::chrono_literals;
    const Context& c = context_;
    const auto start = std::chrono::steady_clock::now();
    int32_t done = 0;
    int32_t copied = 1;
    int copies = other_ ? 0 : 10;
    while (true) {
      c.ok(c.driver.stream_query(stream, &done), "stream_query");
      const auto passed = std::chrono::steady_clock::now() - start;
      if (done != 0 || (passed > 20ms && copies >= 10) || passed > 500ms) return done != 0;
      if (other_ && copied) {
        c.ok(c.driver.copy_async(*other_, memory_.data() + 64, memory_.data(), 64, AA_COPY_DEVICE_TO_DEVICE),
             "copy_async");
        ++copies;
      }
      std::this_thread::sleep_for(1ms);
      if (other_) c.ok(c.driver.stream_query(*other_, &copied), "stream_query");
    }
  }

 private:
  const Context& context_;
  Memory memory_;
  std::optional<Stream> other_;
};

// Opens a gate from another thread a little later, while this one is inside a call that must wait. A call that does not
// wait returns with the gate still shut.
class LaterOpened {
 public:
  explicit LaterOpened(Gate& gate)
      : thread_([&gate] {
          std::this_thread::sleep_for(std::chrono::milliseconds(30));
          gate.open();
        }) {}
  ~LaterOpened() { thread_.join(); }
  LaterOpened(const LaterOpened&) = delete;
  LaterOpened& operator=(const LaterOpened&) = delete;

 private:
  std::thread thread_;
};

}  // namespace anyaccel::conformance
