// Streams: the vendor's, created non-blocking if the host asks for that.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "accelerators/cuda/device_state.h"
#include "accelerators/cuda/pending_writes.h"

namespace anyaccel::cuda {

class OpLibrary;
struct Capture;

// State that outlives a Stream while Device::synchronize waits for it.
struct StreamCore {
  StreamCore(DeviceState& state, StreamHandle stream) : device(state), handle(stream) {}
  ~StreamCore();
  StreamCore(const StreamCore&) = delete;
  StreamCore& operator=(const StreamCore&) = delete;

  // The capture that the stream takes part in, because it began it or waited for one of its events. Null: none.
  std::shared_ptr<Capture> capture() const;

  DeviceState& device;
  const StreamHandle handle;
  std::atomic<bool> capturing{false};
  // Held while the stream begins or joins a capture, and while another thread waits for it: the vendor ends a capture whose
  // stream is waited for.
  std::mutex waiting;

 private:
  friend struct Capture;
  std::shared_ptr<Capture> capture_;  // guarded by Capture's lock
};

class Stream final : public abi::Stream {
 public:
  // `ops` may be null: a device without tuned ops.
  Stream(DeviceState& device, OpLibrary* ops, const aa_stream_params& params);

  StreamHandle handle() const noexcept { return handle_; }
  DeviceState& state() noexcept { return device_; }
  const std::shared_ptr<StreamCore>& core() const noexcept { return core_; }

  void close() override;
  void copy(const aa_copy& what) override;
  void copy_peer(const aa_peer_copy& what) override;
  void fill(const aa_fill& what) override;
  bool query() override;
  void synchronize() override;
  void wait_event(abi::Event& event) override;
  // The caller may enqueue work with the handle.
  void* native() override {
    forget_writes();
    return handle_;
  }
  void host_call(void (*function)(void* user), void* user) override;
  void launch(abi::Kernel& kernel, const aa_launch& launch) override;
  bool enqueue_op(const aa_op_call& call) override;
  void capture_begin() override;
  std::unique_ptr<abi::Graph> capture_end() override;
  bool capturing() override;

  // For an op that is being enqueued (enqueue_op).
  PendingWrites& pending_writes() noexcept { return pending_writes_; }
  // Called before anything is enqueued except an op that reports its writes.
  void forget_writes() {
    const std::lock_guard lock(ops_mutex_);
    pending_writes_.forget();
  }

  // Returns true if the stream takes part in a capture that this driver began.
  bool captures() const noexcept { return core_->capturing.load(std::memory_order_acquire); }

 private:
  void fill_wide(DevicePointer to, const unsigned char* pattern, size_t size);
  void fill_by_doubling(DevicePointer to, const unsigned char* pattern, size_t pattern_size, size_t size);
  void refuse_while_capturing(const char* what) const;

  DeviceState& device_;
  const Api& api_;
  OpLibrary* const ops_;
  StreamHandle handle_ = nullptr;
  std::shared_ptr<StreamCore> core_;
  std::mutex ops_mutex_;  // held while an op is enqueued: guards pending_writes_
  PendingWrites pending_writes_;
};

}  // namespace anyaccel::cuda
