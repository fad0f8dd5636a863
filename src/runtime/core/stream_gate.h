// Keeps one thread's capture of a graph from recording another thread's work.
//
// Every call that enqueues on a stream passes through the stream's gate and is counted. A capture closes the gate once
// no call of another thread is in progress; until the capture ends, only calls of the capturing thread pass and all
// others are rejected. An uncontended pass costs two atomic additions.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

namespace anyaccel {

// Identifies the thread that a capture belongs to.
struct CaptureOwner {
  const std::thread::id thread = std::this_thread::get_id();
  bool is_mine() const noexcept { return thread == std::this_thread::get_id(); }
};

class StreamGate {
 public:
  // A pass of the calling thread lasts from enter() to leave(), which takes the value that enter() returned. A thread
  // that is already inside the gate is not counted again, so that a call it has begun is not rejected half-way.
  // InvalidArgument (AA_FAILED_PRECONDITION) while another thread captures.
  void* enter();
  void leave(void* entered) noexcept;
  class Pass {
   public:
    explicit Pass(StreamGate& gate) : gate_(gate), entered_(gate.enter()) {}
    ~Pass() { gate_.leave(entered_); }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;

   private:
    StreamGate& gate_;
    void* entered_;
  };
  // Throws as enter() does.
  void refuse_others() const {
    if (closed()) [[unlikely]]
      refuse_unless_mine();
  }

  // From now on only the calling thread passes; waits for calls of other threads that are in progress. Returns false
  // and does nothing if the gate is already closed. `owner` identifies the calling thread.
  bool close(std::shared_ptr<CaptureOwner> owner);
  void open() noexcept;
  bool closed() const noexcept { return (state_.load(std::memory_order_acquire) & kClosed) != 0; }
  // Returns the owner that close() was given; null if the gate is open.
  std::shared_ptr<CaptureOwner> owner() const;

 private:
  static constexpr uint32_t kClosed = 1u << 31;

  void refuse_unless_mine() const;

  std::atomic<uint32_t> state_{0};  // calls in progress, and kClosed
  mutable std::mutex mutex_;
  std::shared_ptr<CaptureOwner> owner_;  // mutex_
};

}  // namespace anyaccel
