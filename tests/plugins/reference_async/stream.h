// Streams of the reference driver: a queue of items and one thread each. An event is a name for a record; a record is a
// place in a stream, and whoever waits for it keeps it alive.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "anyaccel/abi/driver_class.hpp"

namespace reference {

namespace abi = anyaccel::abi;

class Device;
class Queue;

// One event_record. Every function may be called from any thread.
class Record {
 public:
  using Clock = std::chrono::steady_clock;

  Record(std::weak_ptr<Queue> queue, uint64_t position) : queue(std::move(queue)), position(position) {}

  void complete(const std::optional<abi::Failure>& failure);
  bool done() const;
  void wait() const;
  std::optional<abi::Failure> failure() const;
  Clock::time_point time() const;

  const std::weak_ptr<Queue> queue;  // where it lies, for drivers that hold work back
  const uint64_t position;           // items of the queue up to and with it
  const Clock::time_point enqueued = Clock::now();

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool done_ = false;
  std::optional<abi::Failure> failure_;
  Clock::time_point time_;
};

// A task of a worker. Its failure stays with the stream.
struct Item {
  std::function<void()> run;
  std::shared_ptr<Record> records;  // completed in any case
  std::shared_ptr<Record> awaits;
  bool host_call = false;
  std::optional<abi::Failure> fails;  // instead of running
};

// The part of a stream that its thread, and records, may outlive.
class Queue : public std::enable_shared_from_this<Queue> {
 public:
  // Held items a lazy queue takes before it lets go of them by itself.
  static constexpr size_t depth = 128;

  explicit Queue(bool lazy);

  void start();
  void add(Item item);
  // Records here.
  std::shared_ptr<Record> record();
  bool idle();
  // For what was added before.
  void wait();
  // Runs what there is, then ends the thread. `drop` leaves out what has not begun.
  void stop(bool drop);
  std::optional<abi::Failure> failure();
  int64_t executed();
  uint64_t added();
  uint64_t completed();
  // For a lazy queue: lets items up to a position run, and all that they wait for.
  void release(uint64_t position = UINT64_MAX);
  // The position of the next item.
  void fail_next(abi::Failure failure);

  bool lazy() const noexcept { return lazy_; }

 private:
  void work();
  void run(Item& item);

  const bool lazy_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  uint64_t added_ = 0;
  uint64_t released_ = 0;  // items that may run, counted from the first
  uint64_t completed_ = 0;
  int64_t executed_ = 0;
  bool stops_ = false;
  bool drops_ = false;
  std::optional<abi::Failure> failure_;
  std::optional<abi::Failure> next_failure_;
  std::thread thread_;
};

class Stream;

// Shared by the streams of one capture, and by the events that were recorded in it.
struct SharedCapture {
  const Stream* const origin;  // where it began and must end
  const std::shared_ptr<std::vector<Item>> items;
  std::atomic<bool> open{true};
};

class Event final : public abi::Event {
 public:
  Event(Device& device, uint32_t flags);
  ~Event() override;

  void close() override;
  void record(abi::Stream& stream) override;
  bool query() override;
  void synchronize() override;
  double elapsed(abi::Event& end) override;

  std::shared_ptr<Record> latest() const;
  // In which it was recorded last; null: in none.
  std::shared_ptr<SharedCapture> capture() const;

 private:
  const Device& device_;
  const uint32_t flags_;
  mutable std::mutex mutex_;
  std::shared_ptr<Record> latest_;  // null: never recorded
  std::shared_ptr<SharedCapture> capture_;
  std::vector<std::shared_ptr<Record>> earlier_;
};

class Stream final : public abi::Stream {
 public:
  Stream(Device& device, bool lazy, aa_host_stream* host);
  ~Stream() override;

  void close() override;
  void copy(const aa_copy& what) override;
  void copy_peer(const aa_peer_copy& what) override;
  void fill(const aa_fill& what) override;
  bool query() override;
  void synchronize() override;
  void wait_event(abi::Event& event) override;
  void* native() override;
  void host_call(void (*function)(void* user), void* user) override;
  bool enqueue_op(const aa_op_call& call) override;
  void flush() override;
  void step_begin(const aa_step& step) override;
  void step_end() override;
  void inject_fault(int32_t code, int64_t native_code) override;
  int64_t executed_items() override { return queue_->executed(); }
  void capture_begin() override;
  std::unique_ptr<abi::Graph> capture_end() override;
  bool capturing() override;

  Device& device() const noexcept { return device_; }
  const std::shared_ptr<Queue>& queue() const noexcept { return queue_; }
  // Runs it now in order, or keeps it for the graph that is being recorded.
  void add(std::function<void()> run, bool host_call = false);
  // Null: not capturing.
  std::shared_ptr<SharedCapture> capture();
  // For mutations: enqueues a wait that some items do not wait for.
  void wait_late();

 private:
  // Memory that held items use, and how many items of the queue are complete when it is free again.
  struct Idle {
    std::unique_ptr<abi::Scratch> memory;
    uint64_t needed_until;
  };
  // Gives the host back what completed items used.
  void give_back_idle();
  bool captures();
  void leave_ended_capture();

  Device& device_;
  aa_host_stream* const host_;
  std::shared_ptr<Queue> queue_;
  std::mutex mutex_;
  std::shared_ptr<std::vector<Item>> captured_;  // null: not capturing
  std::shared_ptr<SharedCapture> shared_;        // that capture
  std::optional<uint64_t> step_;                 // the key of the step that it is in
  std::map<uint64_t, std::vector<Item>> steps_;  // for a mutation: what ran in the first step of a key
  bool repeats_ = false;
  std::shared_ptr<Record> late_wait_;  // for mutations
  std::vector<Idle> idle_;
};

class Graph final : public abi::Graph {
 public:
  explicit Graph(std::shared_ptr<std::vector<Item>> items) : items_(std::move(items)) {}

  void launch(abi::Stream& stream) override;
  int64_t node_count() const override;

 private:
  std::shared_ptr<std::vector<Item>> items_;
  std::shared_ptr<Record> last_;  // of the latest launch; null: never launched
  int launches_ = 0;
};

}  // namespace reference
