// Implements the store's server, which rank 0 runs on a separate thread: it stores keys and values, lists the ranks
// that have joined, and monitors all ranks.
//
// A client that does not know the token, or violates the protocol (wire.h), is disconnected and logged once; silent
// connections are closed after a while. No input from the network ends the thread.
//
// A rank that goes silent, or whose connection ends without a goodbye, is a failure, which is reported to all others at
// once; so is a failure that a rank reports itself. The first failure is kept.
#pragma once

#include <chrono>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/job/job_times.h"
#include "comm/store/socket.h"
#include "comm/store/wire.h"

namespace anyaccel::comm {

class StoreServer {
 public:
  struct Options {
    std::string address;  // MASTER_ADDR
    int port = 0;
    std::string token;
    int size = 1;                               // ranks of the job
    std::chrono::milliseconds join_timeout{0};  // from now until all must have joined
    std::vector<std::string> hosts;             // of every rank, for messages; empty: not known
    std::string failure;                        // why no rank can join; empty: all can
    JobTimes times;
  };

  // Listens; see listen_on() for what it throws.
  explicit StoreServer(Options options);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  // Blocks until every rank has left or ended, for at most this time; returns whether that happened.
  bool wait_until_all_left(std::chrono::milliseconds timeout);

 private:
  using Clock = std::chrono::steady_clock;
  enum class Stage { Greeted, Open, Closing };

  struct Connection {
    FileDescriptor socket;
    std::string peer;  // its address, for messages
    Stage stage = Stage::Greeted;
    std::string nonce;
    std::string in;
    std::string out;
    Clock::time_point since;  // time of acceptance or of the last message
    int rank = -1;            // once it has joined
    uint32_t join_number = 0;
    std::map<uint32_t, std::string> waiting;  // gets of keys that are not set yet
  };

  enum class Presence { Absent, Here, Left, Lost };
  struct Member {
    Presence presence = Presence::Absent;
    wire::JoinInfo info;
  };

  void serve() noexcept;
  void poll_once();
  void accept_all(int listener);
  void receive(Connection& connection);
  void handshake(Connection& connection);
  void handle(Connection& connection, const wire::Frame& frame);
  void join(Connection& connection, uint32_t number, wire::JoinInfo info);
  void answer_members();
  void ended(int64_t rank, const std::string& how);
  std::string missing_ranks() const;
  void flush(Connection& connection);
  void send(Connection& connection, std::string frame) { connection.out += std::move(frame); }
  void drop(Connection& connection);
  void complain(const Connection& connection, const std::string& why);
  void look_at_clocks();
  void lose(const std::vector<int>& ranks, const std::string& how);
  void fail(const std::string& message);
  void note_presence();
  std::string member_name(int rank) const;

  Options options_;
  std::vector<FileDescriptor> listeners_;
  FileDescriptor wake_;

  // Accessed by the thread only.
  std::list<Connection> connections_;
  std::map<std::string, std::string> values_;
  std::map<std::string, int64_t> counters_;
  std::vector<Member> members_;
  int come_ = 0;
  bool complete_ = false;
  std::string failure_;  // empty: none
  bool complained_ = false;
  bool full_ = false;  // a connection could not be accepted, and that was logged
  Clock::time_point join_deadline_;
  Clock::time_point next_beat_;
  Clock::time_point looked_ = Clock::now();  // at the clocks

  std::mutex mutex_;
  std::condition_variable changed_;
  bool all_left_ = false;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace anyaccel::comm
