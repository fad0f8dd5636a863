// Sends messages with MPI, and creates the communicator on top.
//
// Every message is started and then tested until it is complete, so that a wait also checks the failure watch, the time
// limit and abort(). MPI itself does not report that a member has died or given up: the others learn it from the watch.
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "anyaccel/error.h"
#include "comm/host_communicator.h"
#include "comm/messages/message_communicator.h"
#include "comm/mpi/mpi_library.h"

namespace anyaccel::comm {
namespace {

using Clock = std::chrono::steady_clock;

// A wait yields its core after each test; after this time it sleeps in between.
constexpr auto kPatience = std::chrono::milliseconds(2);
constexpr auto kSleep = std::chrono::microseconds(50);

class MpiTransport final : public MessageTransport {
 public:
  MpiTransport(const MpiLibrary& mpi, const Membership& membership) : mpi_(mpi), members_(membership) { join(); }

  ~MpiTransport() override { mpi_.group_forget(group_); }

  std::unique_ptr<Pending> send(int peer, Lane lane, const void* data, size_t bytes) override {
    aa_mpi_message* message = nullptr;
    aa_mpi_words words;
    const auto guard = mpi_.guard();
    if (mpi_.send(group_, lane.tag >= 0, peer, tag_of(lane), data, static_cast<int32_t>(bytes), &message, &words)) {
      fail("sending to", peer, words.text);
    }
    return std::make_unique<Message>(*this, message, peer, "sending to");
  }

  std::unique_ptr<Pending> receive(int peer, Lane lane, void* data, size_t bytes) override {
    aa_mpi_message* message = nullptr;
    aa_mpi_words words;
    const auto guard = mpi_.guard();
    if (mpi_.receive(group_, lane.tag >= 0, peer, tag_of(lane), data, static_cast<int32_t>(bytes), &message, &words)) {
      fail("waiting for", peer, words.text);
    }
    return std::make_unique<Message>(*this, message, peer, "waiting for");
  }

  int largest_tag() const noexcept override { return (mpi_.world.largest_tag - 1) / 2; }
  void interrupt() noexcept override { interrupted_.store(true, std::memory_order_relaxed); }
  // Messages are cancelled when they are destroyed.
  void close() noexcept override {}

 private:
  class Message final : public Pending {
   public:
    Message(MpiTransport& transport, aa_mpi_message* message, int peer, const char* what)
        : transport_(transport), message_(message), peer_(peer), what_(what) {}
    ~Message() override {
      const auto guard = transport_.mpi_.guard();
      if (!complete_) transport_.mpi_.cancel(message_);
      transport_.mpi_.release(message_);
    }
    void wait(WaitLimit& limit) override {
      transport_.wait(message_, limit, what_, peer_);
      complete_ = true;
    }

   private:
    MpiTransport& transport_;
    aa_mpi_message* message_;
    int peer_;
    const char* what_;
    bool complete_ = false;
  };

  static int32_t tag_of(Lane lane) { return std::max(lane.tag, 0) * 2 + lane.bulk; }

  std::string name(int peer) const {
    const auto i = static_cast<size_t>(peer);
    return i < members_.names.size() ? members_.names[i] : "rank " + std::to_string(peer);
  }
  [[noreturn]] void fail(const char* what, int peer, const std::string& words) const {
    throw CommunicationError(std::string(what) + " " + name(peer) + ": " + words);
  }

  void wait(aa_mpi_message* message, WaitLimit& limit, const char* what, int peer) const {
    const auto begin = Clock::now();
    while (true) {
      int done = 0;
      aa_mpi_words words;
      {
        const auto guard = mpi_.guard();
        if (mpi_.test(message, &done, &words)) fail(what, peer, words.text);
      }
      if (done) return;
      if (interrupted_.load(std::memory_order_relaxed) || (members_.watch && members_.watch->failed())) {
        throw CommunicationError("the group was ended");
      }
      const auto now = Clock::now();
      if (limit.passed(now)) {
        throw CommunicationError(std::string(what) + " " + name(peer) + ": nothing within the group's time limit of " +
                                     std::to_string(members_.timeout.count()) + " ms",
                                 AA_DEADLINE_EXCEEDED);
      }
      if (now - begin < kPatience)
        sched_yield();
      else
        std::this_thread::sleep_for(kSleep);
    }
  }

  // The members' ranks in MPI_COMM_WORLD come from the group's store.
  void join() {
    check_world();
    members_.store->set("mpi/" + std::to_string(members_.rank), std::to_string(mpi_.world.rank));
    std::vector<int32_t> ranks;
    for (int peer = 0; peer < members_.size; ++peer) {
      const int32_t rank = std::atoi(members_.store->get("mpi/" + std::to_string(peer), members_.timeout).c_str());
      if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) {
        throw CommunicationError(name(peer) + " and another member both have rank " + std::to_string(rank) +
                                 " in MPI: they were not started by one mpirun");
      }
      ranks.push_back(rank);
    }
    const auto guard = mpi_.guard();
    aa_mpi_words words;
    if (mpi_.group_create(ranks.data(), members_.size, &group_, &words)) {
      throw CommunicationError("MPI cannot make a group of " + std::to_string(members_.size) + ": " + words.text);
    }
  }

  // If another MPI's launcher starts a program of one MPI, every process is a world of one rank.
  void check_world() const {
    const MpiLauncher& launcher = mpi_.launcher;
    const int expected = std::max(members_.size, launcher.size);
    if (mpi_.world.size >= expected) return;
    const std::string found = "this process is one of " + std::to_string(mpi_.world.size) + " for " + mpi_.description;
    const std::string fix =
        "start it with that MPI's mpirun (or srun --mpi=pmi2 where it knows PMI), or set MPICC to "
        "the compiler command of the launcher's MPI";
    if (launcher.mpi.empty()) {
      throw CommunicationError("the job has " + std::to_string(expected) + " processes, but " + found +
                               ", and no MPI's launcher has left its variables in the environment; " + fix);
    }
    // An MPI may be packaged without the protocol of its own mpirun, which then starts worlds of one rank.
    const std::string advice =
        mpi_.description.starts_with(launcher.mpi)
            ? "it does not understand this launcher (Ubuntu 24.04's MPICH does not understand its "
              "own mpirun); use another MPI, or start it with srun --mpi=pmi2"
            : "they are not the same MPI; " + fix;
    throw CommunicationError("the job of " + std::to_string(expected) + " processes was launched by " + launcher.mpi +
                             " (" + launcher.evidence + "), but " + found + ": " + advice);
  }

  const MpiLibrary& mpi_;
  const Membership members_;
  aa_mpi_group* group_ = nullptr;
  std::atomic<bool> interrupted_ = false;
};

}  // namespace

std::unique_ptr<HostCommunicator> make_mpi_communicator(const Membership& membership) {
  return std::make_unique<MessageCommunicator>("mpi", membership,
                                               std::make_unique<MpiTransport>(MpiLibrary::get(), membership));
}

}  // namespace anyaccel::comm
