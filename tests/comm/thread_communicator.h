// A communicator between threads that is as plain as can be: everybody shows where its memory is, all meet, each takes
// what it needs, all meet again. For tests of what stands above communicators.
#pragma once

#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "comm/group/group.h"
#include "comm/host_communicator.h"

namespace anyaccel::comm {

// The state that the threads of one group share.
struct ThreadBoard {
  explicit ThreadBoard(int members) : size(members), send(static_cast<size_t>(members)) {}

  const int size;
  std::mutex mutex;
  std::condition_variable changed;
  int arrived = 0;
  uint64_t round = 0;
  std::string aborted;  // empty: not
  std::vector<const void*> send;
  std::map<std::pair<int, int>, std::vector<std::string>> messages;  // by (from * size + to, tag)
};

class ThreadCommunicator final : public HostCommunicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadBoard> board, int rank) : board_(std::move(board)), rank_(rank) {}

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return board_->size; }
  const std::string& name() const noexcept override { return name_; }

  void barrier() override { meet(); }

  void all_reduce(void* data, int64_t count, DType dtype, ReduceOp op) override {
    const std::string sum = reduced(data, count, dtype, op, 0, count);
    if (!sum.empty()) std::memcpy(data, sum.data(), sum.size());
    meet();
  }
  void reduce(void* data, int64_t count, DType dtype, ReduceOp op, int root) override {
    const std::string sum = reduced(data, count, dtype, op, 0, count);
    if (rank_ == root && !sum.empty()) std::memcpy(data, sum.data(), sum.size());
    meet();
  }
  void reduce_scatter(void* recv, const void* send, int64_t count, DType dtype, ReduceOp op) override {
    const std::string sum = reduced(send, count * size(), dtype, op, rank_ * count, count);
    if (!sum.empty()) std::memcpy(recv, sum.data(), sum.size());
    meet();
  }
  void broadcast(void* data, Amount amount, int root) override {
    const size_t bytes = amount.bytes;
    show(data);
    if (rank_ != root) copy(data, board_->send[static_cast<size_t>(root)], bytes);
    meet();
  }
  void all_gather(void* recv, const void* send, Amount amount) override {
    const size_t bytes = amount.bytes;
    show(send);
    for (int r = 0; r < size(); ++r) copy(at(recv, bytes, r), board_->send[static_cast<size_t>(r)], bytes);
    meet();
  }
  void gather(void* recv, const void* send, Amount amount, int root) override {
    const size_t bytes = amount.bytes;
    show(send);
    for (int r = 0; r < size() && rank_ == root; ++r) {
      copy(at(recv, bytes, r), board_->send[static_cast<size_t>(r)], bytes);
    }
    meet();
  }
  void scatter(void* recv, const void* send, Amount amount, int root) override {
    const size_t bytes = amount.bytes;
    show(send);
    copy(recv, static_cast<const char*>(board_->send[static_cast<size_t>(root)]) + static_cast<size_t>(rank_) * bytes,
         bytes);
    meet();
  }
  void all_to_all(void* recv, const void* send, Amount amount) override {
    const size_t bytes = amount.bytes;
    show(send);
    for (int r = 0; r < size(); ++r) {
      copy(at(recv, bytes, r),
           static_cast<const char*>(board_->send[static_cast<size_t>(r)]) + static_cast<size_t>(rank_) * bytes, bytes);
    }
    meet();
  }
  void send(const void* data, Amount amount, int peer, int tag) override {
    const size_t bytes = amount.bytes;
    const std::lock_guard lock(board_->mutex);
    check();
    board_->messages[{rank_ * size() + peer, tag}].emplace_back(static_cast<const char*>(data), bytes);
    board_->changed.notify_all();
  }
  void recv(void* data, Amount amount, int peer, int tag) override {
    const size_t bytes = amount.bytes;
    std::unique_lock lock(board_->mutex);
    auto& queue = board_->messages[{peer * size() + rank_, tag}];
    board_->changed.wait(lock, [&] { return !queue.empty() || !board_->aborted.empty(); });
    check();
    if (queue.front().size() != bytes) throw CommunicationError("the message has another size");
    copy(data, queue.front().data(), bytes);
    queue.erase(queue.begin());
  }
  void abort(const std::string& why) noexcept override {
    const std::lock_guard lock(board_->mutex);
    board_->aborted = why;
    board_->changed.notify_all();
  }

 private:
  static char* at(void* base, size_t bytes, int place) {
    return static_cast<char*>(base) + bytes * static_cast<size_t>(place);
  }
  static void copy(void* to, const void* from, size_t bytes) {
    if (to != from && bytes != 0) std::memmove(to, from, bytes);
  }
  void check() const {
    if (!board_->aborted.empty()) throw CommunicationError("aborted: " + board_->aborted);
  }

  void meet() {
    std::unique_lock lock(board_->mutex);
    check();
    const uint64_t round = board_->round;
    if (++board_->arrived == board_->size) {
      board_->arrived = 0;
      ++board_->round;
      board_->changed.notify_all();
      return;
    }
    board_->changed.wait(lock, [&] { return board_->round != round || !board_->aborted.empty(); });
    if (board_->round == round) check();
  }

  void show(const void* data) {
    {
      const std::lock_guard lock(board_->mutex);
      board_->send[static_cast<size_t>(rank_)] = data;
    }
    meet();
  }

  // Elements [first, first + count) of the combination; everybody's memory is unchanged until all have met.
  std::string reduced(const void* data, int64_t total, DType dtype, ReduceOp op, int64_t first, int64_t count) {
    show(data);
    std::string result(static_cast<size_t>(count) * dtype_size(dtype), '\0');
    static_cast<void>(total);
    if (dtype == DType::F32) {
      combine<float>(result, op, first, count);
    } else if (dtype == DType::I32) {
      combine<int32_t>(result, op, first, count);
    } else if (dtype == DType::U8) {
      combine<uint8_t>(result, op, first, count);
    } else {
      throw InvalidArgument("the test's communicator reduces float32, int32 and uint8 only");
    }
    meet();
    return result;
  }
  template <class T>
  void combine(std::string& result, ReduceOp op, int64_t first, int64_t count) {
    T* out = reinterpret_cast<T*>(result.data());
    for (int64_t i = 0; i < count; ++i) {
      T value = static_cast<const T*>(board_->send[0])[first + i];
      for (size_t r = 1; r < board_->send.size(); ++r) {
        const T other = static_cast<const T*>(board_->send[r])[first + i];
        value = static_cast<T>(op == ReduceOp::Max       ? std::max(value, other)
                               : op == ReduceOp::Product ? value * other
                                                         : value + other);
      }
      out[i] = value;
    }
  }

  std::shared_ptr<ThreadBoard> board_;
  int rank_;
  std::string name_ = "threads";
};

// Runs `body(rank)` on `size` threads; the first exception of each, by rank ("" where there is none).
inline std::vector<std::string> run_ranks(int size, const std::function<void(int)>& body) {
  std::vector<std::string> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(rank)] = *error.what() ? error.what() : "an exception without a text";
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

inline void expect_none(const std::vector<std::string>& errors) {
  for (size_t rank = 0; rank < errors.size(); ++rank) EXPECT_EQ(errors[rank], "") << "rank " << rank;
}

}  // namespace anyaccel::comm
