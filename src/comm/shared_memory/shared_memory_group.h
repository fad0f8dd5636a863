// Manages the members of a group and the flags between them: opens an operation, publishes its steps, waits for others,
// and detects that one of them has ended.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/host_communicator.h"
#include "comm/shared_memory/exchange.h"
#include "comm/shared_memory/layout.h"
#include "comm/shared_memory/operation.h"
#include "comm/shared_memory/peer_process.h"
#include "comm/shared_memory/segment.h"

namespace anyaccel::comm::shm {

class SharedMemoryGroup {
 public:
  // Creates this member's segment and maps the others'. Blocks until all are ready.
  explicit SharedMemoryGroup(Membership membership);
  ~SharedMemoryGroup();
  SharedMemoryGroup(const SharedMemoryGroup&) = delete;
  SharedMemoryGroup& operator=(const SharedMemoryGroup&) = delete;

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  const std::string& name_of(int member) const { return membership_.names[static_cast<size_t>(member)]; }

  // ---- an operation of all members

  // Publishes this member's operation to the others, with `bytes` of `payload` (at most kInlineBytes).
  void open(const Operation& operation, const void* payload, size_t bytes) {
    throw_if_failed();
    ++number_;
    operation_ = operation;
    const uint64_t word = operation.packed();
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      Opening& opening = mine_->to(peer).openings[number_ & 1];
      opening.operation = word;
      copy_payload(opening.payload, static_cast<const char*>(payload), bytes);
      opening.number.store(number_, std::memory_order_release);
    }
    wake_sleepers();
  }
  // Returns when every member has opened the same operation. Their earlier writes are then visible.
  void await_open() {
    const uint64_t word = operation_.packed();
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      const Opening& opening = of(peer).openings[number_ & 1];
      wait([&] { return opening.number.load(std::memory_order_acquire) == number_; }, kEveryone, peer);
      if (opening.operation != word) fail_disagreement(peer, opening.operation);
    }
  }
  // The payload of a member; valid after await_open(), until the next operation ends.
  const char* payload(int peer) const noexcept { return of(peer).openings[number_ & 1].payload; }

  // Publishes a further step of the operation and returns its number.
  uint64_t publish() {
    ++step_;
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != rank_) mine_->to(peer).progress.value.store(step_, std::memory_order_release);
    }
    wake_sleepers();
    return step_;
  }
  // Returns when every member has published it.
  void await(uint64_t step) {
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      const std::atomic<uint64_t>& progress = of(peer).progress.value;
      wait([&] { return progress.load(std::memory_order_acquire) >= step; }, kEveryone, peer);
    }
  }

  // Slot of chunk `chunk`, counted over all operations.
  char* slot(int member, uint64_t chunk) const noexcept {
    return at(member).data() + layout_.slot(chunk % static_cast<uint64_t>(kSlots));
  }
  // Numbers the next `count` chunks.
  uint64_t take_chunks(uint64_t count) noexcept { return std::exchange(chunks_, chunks_ + count); }

  // ---- between two members

  ToPeer& mine(int peer) noexcept { return mine_->to(peer); }
  const ToPeer& of(int peer) const noexcept { return at(peer).to(rank_); }
  char* ring_to(int peer) noexcept { return mine_->data() + layout_.ring(peer); }
  const char* ring_from(int peer) const noexcept { return at(peer).data() + layout_.ring(rank_); }
  void wake_sleepers() {
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != rank_ && at(peer).header().sleeping.load(std::memory_order_relaxed) != 0) wake(peer);
    }
  }

  // ---- waiting

  static constexpr bool kEveryone = true;
  static constexpr bool kOnlyPeer = false;
  // Returns once ready() is true, which `peer` causes. Throws if that member (or, with kEveryone, any) has ended, if
  // the job failed, or if the time limit has passed.
  template <class Ready>
  void wait(const Ready& ready, bool everyone, int peer) {
    for (int i = 0; i < kQuickLooks; ++i) {
      if (ready()) return;
    }
    wait_slowly({&ready, [](const void* object) { return (*static_cast<const Ready*>(object))(); }}, everyone, peer);
  }
  // Describes the following waits if they are not part of a collective: "recv of 16 bytes from rank 1".
  void set_activity(std::string text) { activity_ = std::move(text); }
  void clear_activity() { activity_.clear(); }

  // ---- failure

  void throw_if_failed() {
    if (failed_.load(std::memory_order_relaxed)) throw_failure();
  }
  // Ends the group on this and all other members.
  [[noreturn]] void fail(const std::string& why, aa_code code = AA_UNAVAILABLE);
  // May be called from any thread; waiting calls throw soon.
  void abort(const std::string& why) noexcept;

  // ---- memory

  struct Blocks {
    std::vector<std::shared_ptr<Mapping>> members;  // by rank; empty: a member had no memory
  };
  // Collective: a block of `bytes` of each member, mapped by all.
  Blocks share(size_t bytes);
  // The members' ShareableMemory, by rank; empty if one has none.
  const std::vector<char*>& tensors() const noexcept { return tensors_; }

 private:
  // A member's segment.
  class Member {
   public:
    Member() = default;
    Member(std::shared_ptr<Mapping> mapping, const Layout& layout)
        : mapping_(std::move(mapping)), data_(mapping_->data()), to_peers_(data_ + layout.to_peer(0)) {}
    char* data() const noexcept { return data_; }
    Header& header() const noexcept { return *reinterpret_cast<Header*>(data_); }
    ToPeer& to(int peer) const noexcept { return reinterpret_cast<ToPeer*>(to_peers_)[peer]; }

   private:
    std::shared_ptr<Mapping> mapping_;
    char* data_ = nullptr;
    char* to_peers_ = nullptr;
  };
  struct Condition {
    const void* object;
    bool (*call)(const void*);
    bool operator()() const { return call(object); }
  };
  // Number of polls before the first pause: about a microsecond.
  static constexpr int kQuickLooks = 200;

  // Copies words, because the data were often just written in words: a vector that memcpy() loads would wait until all of
  // them have left the store buffer (which makes an all-reduce of 64 bytes take twice as long).
  static void copy_payload(char* target, const char* source, size_t bytes) noexcept {
    size_t i = 0;
    for (uint64_t word; i + sizeof(word) <= bytes; i += sizeof(word)) {
      std::memcpy(&word, source + i, sizeof(word));
      asm("" : "+r"(word));  // so that the compiler makes no memcpy() of the loop
      std::memcpy(target + i, &word, sizeof(word));
    }
    for (; i < bytes; ++i) target[i] = source[i];
  }
  const Member& at(int member) const noexcept { return members_[static_cast<size_t>(member)]; }
  void join(FileDescriptor segment);
  // `check`, and the time limit of an operation that begins now.
  Exchange::Check until_time_is_up(Exchange::Check check);
  void fill_header(Header& header) const;
  // Maps a member's ShareableMemory.
  void map_tensors(int member, const Header& header, const FileDescriptor& file);
  void check_member(int member, const Parcel& parcel) const;
  void compare_cores();
  void wake(int peer);
  void wait_slowly(const Condition& ready, bool everyone, int peer);
  void check_members(const Condition& ready, bool everyone, int peer);
  void check_job();
  std::string activity() const { return activity_.empty() ? operation_.text() : activity_; }
  [[noreturn]] void fail_disagreement(int peer, uint64_t word);
  [[noreturn]] void throw_failure();
  // Stores the first failure and publishes it to the other members. Returns false if there was one.
  bool record_failure(const std::string& why, aa_code code) noexcept;

  const Membership membership_;
  const int rank_;
  const int size_;
  const Layout layout_;
  std::unique_ptr<Exchange> exchange_;
  std::vector<Member> members_;
  std::vector<PeerProcess> processes_;
  std::vector<char*> tensors_;
  std::vector<std::shared_ptr<Mapping>> tensor_mappings_;
  const Member* mine_ = nullptr;
  bool yields_ = false;     // more members than cores: spinning would keep others from running
  bool own_cores_ = false;  // members have separate cores

  uint64_t number_ = 0;  // of the last operation
  uint64_t step_ = 0;
  uint64_t chunks_ = 0;
  Operation operation_;
  std::string activity_;

  std::atomic<bool> failed_{false};
  std::mutex failure_mutex_;
  std::string failure_;
  aa_code failure_code_ = AA_UNAVAILABLE;
};

}  // namespace anyaccel::comm::shm
