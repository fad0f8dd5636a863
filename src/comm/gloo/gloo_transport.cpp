// Sends messages over TCP with the library Gloo, and creates the communicator on top.
//
// Members find each other through the group's store: each publishes the addresses at which it listens for its peers, on
// the interface that reaches MASTER_ADDR. Gloo's own waits cannot be interrupted, so a thread of the communicator
// checks the group's failure watch and the clock during a wait.
#include <dlfcn.h>

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <thread>

#include "anyaccel/error.h"
#include "base/files/install_paths.h"
#include "base/files/open_files.h"
#include "base/process/start_thread.h"
#include "comm/gloo/gloo_table.h"
#include "comm/gloo/local_address.h"
#include "comm/host_communicator.h"
#include "comm/messages/message_communicator.h"

namespace anyaccel::comm {
namespace {

using std::chrono::milliseconds;

// Connecting takes at most five times as long as this (gloo_table.h).
constexpr milliseconds kConnect{12000};
constexpr milliseconds kWatchInterval{5};
constexpr milliseconds kNever = std::chrono::hours(24 * 365);

std::string library_file() { return install_library_dir() + "/libanyaccel_gloo.so"; }

const aa_gloo_table* open_library() {
  const std::string file = library_file();
  if (!std::filesystem::exists(file)) {
    throw UnavailableError(
        "the backend gloo is not in this build of anyaccel (there is no " + file +
        "): build it with Gloo's headers installed (Debian: apt-get install libgloo-dev), or use the "
        "backend mpi");
  }
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    throw UnavailableError("the backend gloo cannot be used: " + std::string(dlerror()) +
                           "; install Gloo (Debian: apt-get install libgloo0)");
  }
  const auto open = reinterpret_cast<aa_gloo_open_fn>(dlsym(library, AA_GLOO_OPEN));
  const aa_gloo_table* table = open ? open(AA_GLOO_VERSION) : nullptr;
  if (!table) throw UnavailableError(file + " belongs to another version of anyaccel; install both from one build");
  return table;
}

class GlooTransport final : public MessageTransport {
 public:
  GlooTransport(const aa_gloo_table& table, const Membership& membership) : table_(table), members_(membership) {
    connect();
  }

  ~GlooTransport() override {
    {
      const std::lock_guard lock(mutex_);
      leaving_ = true;
    }
    changed_.notify_all();
    watcher_.join();
    table_.destroy(gloo_);
  }

  std::unique_ptr<Pending> send(int peer, Lane lane, const void* data, size_t bytes) override {
    aa_gloo_message* message = nullptr;
    aa_gloo_words words;
    if (table_.send(gloo_, peer, slot(lane, bytes), data, bytes, &message, &words)) fail("sending to", peer, words);
    return std::make_unique<Message>(*this, message, peer, "sending to");
  }

  std::unique_ptr<Pending> receive(int peer, Lane lane, void* data, size_t bytes) override {
    aa_gloo_message* message = nullptr;
    aa_gloo_words words;
    if (table_.receive(gloo_, peer, slot(lane, bytes), data, bytes, &message, &words)) fail("waiting for", peer, words);
    return std::make_unique<Message>(*this, message, peer, "waiting for");
  }

  int largest_tag() const noexcept override { return 0x7ffffffe; }

  void interrupt() noexcept override {
    const std::lock_guard lock(mutex_);
    interrupted_ = true;
    if (waiting_) table_.interrupt(waiting_);
  }

  void close() noexcept override { table_.close(gloo_); }

 private:
  class Message final : public Pending {
   public:
    Message(GlooTransport& transport, aa_gloo_message* message, int peer, const char* what)
        : transport_(transport), message_(message), peer_(peer), what_(what) {}
    ~Message() override { transport_.table_.release(message_); }
    void wait(WaitLimit& limit) override { transport_.wait(message_, limit, what_, peer_); }

   private:
    GlooTransport& transport_;
    aa_gloo_message* message_;
    int peer_;
    const char* what_;
  };

  // Gloo ends the process when a message is longer than its receive. Frames are received into room for the longest; for
  // bulk data the length is part of the slot, so that messages of different lengths never match (the preceding frames
  // reveal the difference).
  static uint64_t slot(Lane lane, size_t bytes) {
    return static_cast<uint64_t>(lane.bulk) << 63 | static_cast<uint64_t>(lane.tag + 1) << 31 |
           (lane.bulk ? static_cast<uint64_t>(bytes) : 0);
  }

  [[noreturn]] void fail(const char* what, int peer, const aa_gloo_words& words) const {
    throw CommunicationError(std::string(what) + " " + name(peer) + ": " + words.text);
  }
  std::string name(int peer) const {
    const auto i = static_cast<size_t>(peer);
    return i < members_.names.size() ? members_.names[i] : "rank " + std::to_string(peer);
  }

  void wait(aa_gloo_message* message, WaitLimit& limit, const char* what, int peer) {
    {
      const std::lock_guard lock(mutex_);
      if (interrupted_ || (members_.watch && members_.watch->failed())) throw CommunicationError("the group was ended");
      waiting_ = message;
      limit_ = &limit;
      late_ = false;
      if (watcher_sleeps_) changed_.notify_all();
    }
    // The watcher enforces the time limit: if a wait inside Gloo times out, connections break before the reason can be
    // sent to others.
    aa_gloo_words words;
    const int result = table_.wait(message, kNever.count(), &words);
    bool late = false;
    {
      const std::lock_guard lock(mutex_);
      waiting_ = nullptr;
      late = late_;
    }
    if (result == AA_GLOO_DONE) return;
    if (result == AA_GLOO_FAILED) fail(what, peer, words);
    if (!late) throw CommunicationError("the group was ended");
    throw CommunicationError(std::string(what) + " " + name(peer) + ": nothing within the group's time limit of " +
                                 std::to_string(members_.timeout.count()) + " ms",
                             AA_DEADLINE_EXCEEDED);
  }

  void watch() {
    std::unique_lock lock(mutex_);
    while (!leaving_) {
      if (!waiting_) {
        watcher_sleeps_ = true;
        changed_.wait(lock, [&] { return waiting_ || leaving_; });
        watcher_sleeps_ = false;
      }
      const bool failed = members_.watch && members_.watch->failed();
      if (waiting_ && limit_->passed()) late_ = true;
      if (waiting_ && (failed || late_)) table_.interrupt(waiting_);
      changed_.wait_for(lock, kWatchInterval, [&] { return leaving_; });
    }
  }

  // -- joining --

  // Returns the value of a member's key: its address as text, then for each peer the length and bytes of the data with
  // which that peer connects.
  std::string card(const std::string& address) const {
    std::string text = address + "\n";
    for (int peer = 0; peer < members_.size; ++peer) {
      const char* data = "";
      size_t bytes = 0;
      aa_gloo_words words;
      if (peer != members_.rank && table_.address(gloo_, peer, &data, &bytes, &words))
        fail("listening for", peer, words);
      text += std::to_string(bytes) + "\n" + std::string(data, bytes);
    }
    return text;
  }

  // Returns the part of a peer's published value that is for this member; `address` receives its first line.
  std::string own_entry(const std::string& card, std::string& address) const {
    size_t at = card.find('\n');
    if (at == std::string::npos) return {};
    address = card.substr(0, at++);
    for (int member = 0;; ++member) {
      const size_t end = card.find('\n', at);
      if (end == std::string::npos) return {};
      const size_t bytes = std::strtoull(card.c_str() + at, nullptr, 10);
      if (bytes > card.size() - end - 1) return {};
      if (member == members_.rank) return card.substr(end + 1, bytes);
      at = end + 1 + bytes;
    }
  }

  void connect() {
    const std::string& master = members_.master_addr;
    const std::string address = master.empty() ? "127.0.0.1" : local_address_towards(master);
    // A socket that listens and one that is connected for each peer, and Gloo's own.
    const std::string room = make_room_for_files(2 * static_cast<size_t>(members_.size) + 8);
    if (!room.empty()) {
      throw CommunicationError("Gloo cannot connect " + std::to_string(members_.size) + " ranks: " + room);
    }
    aa_gloo_words words;
    const milliseconds patience = std::min(kConnect, members_.timeout / 5 + milliseconds(1));
    if (table_.create(address.c_str(), members_.rank, members_.size, patience.count(), &gloo_, &words)) {
      throw CommunicationError("Gloo cannot listen on " + address + ": " + words.text);
    }
    try {
      members_.store->set("gloo/" + std::to_string(members_.rank), card(address));
      for (int peer = 0; peer < members_.size; ++peer) {
        if (peer == members_.rank) continue;
        std::string there;
        const std::string entry =
            own_entry(members_.store->get("gloo/" + std::to_string(peer), members_.timeout), there);
        if (entry.empty()) throw CommunicationError(name(peer) + " published a malformed address for Gloo");
        if (is_loopback(address) != is_loopback(there)) {
          throw CommunicationError(
              name(members_.rank) + " listens on " + address + " and " + name(peer) + " on " + there +
              ", which cannot reach each other: MASTER_ADDR=" + master +
              " means the loopback interface on one host; pass an address of the network (--master_addr)");
        }
        if (table_.connect(gloo_, peer, entry.data(), entry.size(), &words)) {
          throw CommunicationError("connecting to " + name(peer) + ": " + words.text +
                                   "; every rank must reach those of other hosts at ports that their kernels choose: "
                                   "allow these connections where a firewall forbids them");
        }
      }
      watcher_ = start_thread("the watch over a group of gloo", [this] { watch(); });
    } catch (...) {
      table_.close(gloo_);
      table_.destroy(gloo_);
      throw;
    }
  }

  const aa_gloo_table& table_;
  const Membership members_;
  aa_gloo* gloo_ = nullptr;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  aa_gloo_message* waiting_ = nullptr;  // object that the caller's thread waits for
  WaitLimit* limit_ = nullptr;          // of that wait
  bool late_ = false;                   // whether it has passed
  bool interrupted_ = false;
  bool leaving_ = false;
  bool watcher_sleeps_ = false;
  std::thread watcher_;
};

}  // namespace

bool gloo_is_built() { return std::filesystem::exists(library_file()); }

std::unique_ptr<HostCommunicator> make_gloo_communicator(const Membership& membership) {
  static const aa_gloo_table* const table = open_library();
  return std::make_unique<MessageCommunicator>("gloo", membership, std::make_unique<GlooTransport>(*table, membership));
}

}  // namespace anyaccel::comm
