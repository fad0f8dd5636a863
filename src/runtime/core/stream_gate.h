// Keeps one thread's capture of a graph from recording another thread's work.
//
// Calls that enqueue on a stream pass its gate and are counted. A capture closes the gate when no call of another thread is
// under way; then those of the capturing thread alone pass, and others are refused, until it ends. An uncontended pass costs
// two atomic additions.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

namespace anyaccel {

// Which thread's a capture is.
struct CaptureOwner {
  const std::thread::id thread = std::this_thread::get_id();
  bool is_mine() const noexcept { return thread == std::this_thread::get_id(); }
};

class StreamGate {
 public:
  // A pass of the calling thread: from enter() to leave(), which gets what enter() gave. A thread that is within the gate
  // already is not counted again, so that what it has begun is not refused half-way. InvalidArgument
  // (AA_FAILED_PRECONDITION) while another thread captures.
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

  // Lets the calling thread alone pass from now on; waits for calls of others that are under way. False, and nothing done, when
  // the gate is closed already. `owner` is of the calling thread.
  bool close(std::shared_ptr<CaptureOwner> owner);
  void open() noexcept;
  bool closed() const noexcept { return (state_.load(std::memory_order_acquire) & kClosed) != 0; }
  // Returns the owner that close() was given; null if the gate is open.
  std::shared_ptr<CaptureOwner> owner() const;

 private:
  static constexpr uint32_t kClosed = 1u << 31;

  void refuse_unless_mine() const;

  std::atomic<uint32_t> state_{0};  // calls under way, and kClosed
  mutable std::mutex mutex_;
  std::shared_ptr<CaptureOwner> owner_;  // mutex_
};

}  // namespace anyaccel
