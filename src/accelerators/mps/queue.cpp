// Implements queue.h: commits command buffers, keeps their order, and collects their failures.
#include "accelerators/mps/queue.h"

#include "accelerators/mps/metal.h"

namespace anyaccel::mps {
namespace {

// An open command buffer is committed after this many commands, so that the GPU begins while the CPU continues.
constexpr int items_of_a_buffer = 64;

}  // namespace

// ---- failures --------------------------------------------------------------------------------------------------------

void DeviceHealth::lose(const abi::Failure& failure) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = failure;
}

void DeviceHealth::check() const {
  const std::lock_guard lock(mutex_);
  if (failure_) throw abi::Failure(*failure_);
}

void Submission::raise() const {
  if (failure_) throw abi::Failure(*failure_);
}

// Call it with the lock held. Returns false if the command buffer is not complete yet.
bool Submission::settle() {
  if (settled_) return true;
  const Pool pool;
  const auto status = send<uint64_t>(buffer_.get(), sel.status);
  if (status < status_completed) return false;
  const auto take_over = [&](const std::shared_ptr<Submission>& earlier) {
    try {
      return earlier->complete();
    } catch (const abi::Failure& failure) {
      if (!failure_) failure_ = failure;
      return true;
    }
  };
  if (before_ && !take_over(before_)) return false;
  for (const std::shared_ptr<Submission>& other : waits_) {
    if (!take_over(other)) return false;
  }
  if (status == status_error && !failure_) {
    const Id error = send<Id>(buffer_.get(), sel.error);
    const auto code = error ? send<int64_t>(error, sel.code) : int64_t{0};
    const bool lost = code == error_device_removed;
    failure_.emplace(lost ? AA_DEVICE_LOST : AA_INTERNAL,
                     "work on the stream failed: " + error_text(error) +
                         (lost ? "; the device is lost" : "; the stream cannot be used any more"),
                     code);
    if (lost) health_->lose(*failure_);
  }
  if (timed_) end_time_ = send<double>(buffer_.get(), sel.GPUEndTime);
  settled_ = true;
  buffer_.reset();
  before_.reset();
  waits_.clear();
  return true;
}

bool Submission::complete() {
  health_->check();
  const std::lock_guard lock(mutex_);
  if (!settle()) return false;
  raise();
  return true;
}

bool Submission::ended() noexcept {
  try {
    return complete();
  } catch (...) {
    return true;
  }
}

void Submission::wait() {
  Owned buffer;
  std::shared_ptr<Submission> before;
  std::vector<std::shared_ptr<Submission>> waits;
  {
    const std::lock_guard lock(mutex_);
    if (settled_) return raise();
    buffer = buffer_;
    before = before_;
    waits = waits_;
  }
  const auto wait_quietly = [](const std::shared_ptr<Submission>& earlier) {
    try {
      earlier->wait();
    } catch (const abi::Failure&) {
      // settle() reports it
    }
  };
  // Waits for the earlier command buffers too, because their handlers may still run when this one has ended.
  if (before) wait_quietly(before);
  for (const std::shared_ptr<Submission>& other : waits) wait_quietly(other);
  {
    const Pool pool;
    send(buffer.get(), sel.waitUntilCompleted);
    buffer.reset();
  }
  if (!complete()) throw abi::Failure(AA_INTERNAL, "a command buffer that was waited for is not complete");
}

// ---- command buffers -------------------------------------------------------------------------------------------------

Queue::Queue(Id device, std::shared_ptr<DeviceHealth> health) : device_(device), health_(std::move(health)) {
  const Pool pool;
  queue_ = Owned::given(send<Id>(device, sel.newCommandQueue, command_buffers));
  timeline_ = Owned::given(send<Id>(device, sel.newSharedEvent));
  if (!queue_ || !timeline_) {
    throw abi::Failure(AA_RESOURCE_EXHAUSTED, "Metal gave no command queue or shared event for a stream");
  }
}

Owned Queue::new_buffer() const {
  Owned buffer = Owned::retained(send<Id>(queue_.get(), sel.commandBuffer));
  if (!buffer) throw abi::Failure(AA_RESOURCE_EXHAUSTED, "Metal gave no command buffer");
  return buffer;
}

Id Queue::buffer_locked() {
  if (!open_) {
    open_ = new_buffer();
    items_ = 0;
    has_work_ = false;
  }
  return open_.get();
}

void Queue::end_encoder_locked() {
  if (encoder_) send(encoder_.get(), sel.endEncoding);
  encoder_.reset();
  kind_ = Kind::none;
}

Id Queue::encoder_locked(Kind kind) {
  const Id buffer = buffer_locked();
  if (kind_ != kind) {
    end_encoder_locked();
    encoder_ =
        Owned::retained(send<Id>(buffer, kind == Kind::compute ? sel.computeCommandEncoder : sel.blitCommandEncoder));
    if (!encoder_) throw abi::Failure(AA_RESOURCE_EXHAUSTED, "Metal gave no command encoder");
    kind_ = kind;
  }
  has_work_ = true;
  return encoder_.get();
}

// The item is in the command buffer, so that a failure would make the caller repeat it: without memory the buffer is committed later.
void Queue::item_locked() {
  if (++items_ < items_of_a_buffer) return;
  try {
    commit_locked();
  } catch (const std::bad_alloc&) {
    // With the next item, or when something is waited for.
  }
}

struct Queue::Handler {
  void (*function)(void* user);
  void* user;
  Owned timeline;
  uint64_t value;
};

std::unique_ptr<Queue::Handler> Queue::next_handler_locked(void (*function)(void* user), void* user) const {
  return std::make_unique<Handler>(Handler{function, user, timeline_, value_ + 1});
}

uint64_t Queue::add_locked(std::unique_ptr<Handler> handler) {
  HandlerBlock block(
      [](void* context, Id buffer) {
        const Pool pool;
        const std::unique_ptr<Handler> self(static_cast<Handler*>(context));
        const bool failed = send<uint64_t>(buffer, sel.status) == status_error;
        if (self->function && !failed) self->function(self->user);
        if (send<uint64_t>(self->timeline.get(), sel.signaledValue) < self->value) {
          send(self->timeline.get(), sel.setSignaledValue, self->value);
        }
      },
      handler.get());
  send(open_.get(), sel.addCompletedHandler, block.get());
  static_cast<void>(handler.release());  // the handler's own, which runs once
  return ++value_;
}

std::shared_ptr<Submission> Queue::submission_locked(bool timed) {
  running_.emplace_back();
  try {
    running_.back() = std::make_shared<Submission>(open_, last_, waits_, health_, this, timed);
  } catch (...) {
    running_.pop_back();
    throw;
  }
  return running_.back();
}

void Queue::commit_locked() {
  if (open_) commit_locked(submission_locked(false));
}

void Queue::commit_locked(std::shared_ptr<Submission> submission) {
  end_encoder_locked();
  waits_.clear();
  last_ = std::move(submission);
  send(open_.get(), sel.commit);
  open_.reset();
  items_ = 0;
  while (!running_.empty() && running_.front()->ended()) running_.pop_front();
}

void Queue::flush() {
  const Pool pool;
  const std::lock_guard lock(mutex_);
  commit_locked();
}

std::shared_ptr<Submission> Queue::last() {
  const Pool pool;
  const std::lock_guard lock(mutex_);
  commit_locked();
  return last_;
}

bool Queue::idle() {
  health_->check();
  const std::shared_ptr<Submission> latest = last();
  return !latest || latest->complete();
}

void Queue::finish() {
  if (const std::shared_ptr<Submission> latest = last()) latest->wait();
  health_->check();
}

// ---- points and host functions ---------------------------------------------------------------------------------------

Point Queue::record(bool timed) {
  health_->check();
  const Pool pool;
  const std::lock_guard lock(mutex_);
  const Id buffer = buffer_locked();
  // The time of a command buffer is measured by its work on the GPU, so it must have some.
  if (timed && !has_work_) {
    if (!scratch_)
      scratch_ = Owned::given(send<Id>(device_, sel.newBufferWithLength, uint64_t{blit_alignment}, storage_shared));
    if (!scratch_) throw abi::Failure(AA_RESOURCE_EXHAUSTED, "Metal gave no buffer for an event with timing");
    send(encoder_locked(Kind::blit), sel.fillBuffer, scratch_.get(), Range{0, blit_alignment}, uint8_t{0});
  }
  // All memory first: nothing fails once the record has begun.
  std::unique_ptr<Handler> handler = next_handler_locked(nullptr, nullptr);
  std::shared_ptr<Submission> submission = submission_locked(timed);
  end_encoder_locked();
  const uint64_t value = add_locked(std::move(handler));
  send(buffer, sel.encodeSignalEvent, timeline_.get(), value);
  commit_locked(std::move(submission));
  return {last_, timeline_, value};
}

void Queue::wait_for(const Point& point) {
  if (!point.submission || point.submission->is_of(this)) return;
  health_->check();
  bool passed = false;
  try {
    passed = point.submission->complete();
    if (passed) return;
  } catch (const abi::Failure&) {
    passed = true;  // this queue fails with it
  }
  const Pool pool;
  const std::lock_guard lock(mutex_);
  const Id buffer = buffer_locked();
  waits_.push_back(point.submission);
  if (!passed) {
    end_encoder_locked();
    send(buffer, sel.encodeWaitForEvent, point.event.get(), point.value);
  }
  item_locked();
}

void Queue::host_call(void (*function)(void* user), void* user) {
  health_->check();
  const Pool pool;
  const std::lock_guard lock(mutex_);
  buffer_locked();
  // All that can fail first: nothing does once the function is on its way.
  Owned next = new_buffer();
  std::unique_ptr<Handler> handler = next_handler_locked(function, user);
  std::shared_ptr<Submission> submission = submission_locked(false);
  end_encoder_locked();
  const uint64_t value = add_locked(std::move(handler));
  commit_locked(std::move(submission));
  send(next.get(), sel.encodeWaitForEvent, timeline_.get(), value);
  open_ = std::move(next);
  items_ = 1;
  has_work_ = false;
}

}  // namespace anyaccel::mps
