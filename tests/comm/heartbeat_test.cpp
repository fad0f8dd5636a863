// The watch over a job: ranks and hosts that end, go silent or fail are named to all others; a goodbye is no failure.
//
// Times are shorter than a job's, so that the test is; nothing here fails because something takes longer.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "anyaccel/error.h"
#include "comm/job/job.h"
#include "comm/store/handshake.h"
#include "comm/store/store_connect.h"
#include "free_port.h"
#include "thread_communicator.h"

namespace anyaccel::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

JobOptions options_of(int rank, int size, int port) {
  JobOptions options;
  options.place.rank = rank;
  options.place.size = size;
  options.place.master_addr = "127.0.0.1";
  options.place.master_port = port;
  options.place.timeout = seconds(60);
  options.place.join_timeout = seconds(60);
  options.host_name = "node" + std::to_string(rank / 2 + 1);
  options.host_id = options.host_name;
  return options;
}

JobOptions impatient(JobOptions options) {
  options.times.beat = milliseconds(100);
  options.times.silence = milliseconds(1500);
  return options;
}

// Blocks until the job has failed; what it says.
std::string failure_of(const Job& job) {
  for (int i = 0; i < 6000 && !job.watch()->failed(); ++i) std::this_thread::sleep_for(milliseconds(10));
  try {
    job.watch()->check();
  } catch (const CommunicationError& error) {
    return error.what();
  }
  return "";
}

TEST(Heartbeat, ARankThatEndsIsNamedAtOnce) {
  const int port = free_port();
  expect_none(run_ranks(4, [&](int rank) {
    Job job(options_of(rank, 4, port));  // with the usual times: no silence is involved
    if (rank == 3) return;               // without a goodbye
    EXPECT_EQ(failure_of(job), "rank 3 on node2 ended");
    EXPECT_THROW(job.store()->get("anything", seconds(60)), CommunicationError);
    job.leave();
  }));
}

TEST(Heartbeat, AGoodbyeIsNoFailure) {
  const int port = free_port();
  std::atomic<int> left{0};
  expect_none(run_ranks(4, [&](int rank) {
    Job job(impatient(options_of(rank, 4, port)));
    if (rank != 2) {
      job.leave();
      ++left;
      return;
    }
    // Rank 0 waits for this one.
    while (left < 2) std::this_thread::sleep_for(milliseconds(5));
    std::this_thread::sleep_for(milliseconds(300));
    EXPECT_FALSE(job.watch()->failed());
    job.store()->set("still", "served");
    EXPECT_EQ(left, 2);
    job.leave();
  }));
}

TEST(Heartbeat, TheEndOfTheServersRankIsNoticed) {
  const int port = free_port();
  expect_none(run_ranks(2, [&](int rank) {
    Job job(options_of(rank, 2, port));
    if (rank == 0) return;
    const std::string failure = failure_of(job);
    // The end of the rank and that of the store it serves: one of them is noticed first.
    EXPECT_TRUE(failure.starts_with("rank 0 on node1") || failure.starts_with("rank 0, which serves the job's store"))
        << failure;
    EXPECT_HAS(failure, "ended");
  }));
}

TEST(Heartbeat, AnErrorOfOneRankIsToldToTheOthers) {
  const int port = free_port();
  expect_none(run_ranks(3, [&](int rank) {
    Job job(options_of(rank, 3, port));
    if (rank == 1) job.report_failure("no more paper");
    EXPECT_EQ(failure_of(job), "rank 1 on node1 failed: no more paper");
    job.leave();
  }));
}

// Joins as a rank and then says nothing any more, as a process of a host that was cut off.
FileDescriptor join_and_fall_silent(int rank, int size, int port) {
  FileDescriptor socket = connect_to_store("127.0.0.1", port, "", seconds(60));
  wire::JoinInfo info;
  info.rank = rank;
  info.size = size;
  info.host_name = info.host_id = "node" + std::to_string(rank / 2 + 1);
  const std::string frame = wire::Writer(wire::Kind::Join, 1).info(info).frame();
  EXPECT_EQ(::send(socket.get(), frame.data(), frame.size(), MSG_NOSIGNAL), static_cast<ssize_t>(frame.size()));
  return socket;
}

TEST(Heartbeat, ARankThatGoesSilentIsNamed) {
  const int port = free_port();
  FileDescriptor silent;
  expect_none(run_ranks(4, [&](int rank) {
    if (rank == 3) {
      silent = join_and_fall_silent(3, 4, port);
      return;
    }
    Job job(impatient(options_of(rank, 4, port)));
    EXPECT_HAS(failure_of(job), "rank 3 on node2 has not been heard of for 1.5 s");
    job.leave();
  }));
}

// As when a scheduler suspends a job or a laptop sleeps.
TEST(Heartbeat, AJobThatIsStoppedAsAWholeContinues) {
  const int port = free_port();
  int ready[2], go[2];
  ASSERT_EQ(::pipe2(ready, O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(go, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  // With one end of each pipe in each process, one that ends early is an error of the other instead of a wait without end.
  ::close(child == 0 ? ready[0] : ready[1]);
  ::close(child == 0 ? go[1] : go[0]);
  if (child == 0) {
    std::atomic<int> joined{0}, failures{0};
    std::atomic<bool> resumed{false};
    const auto errors = run_ranks(2, [&](int rank) {
      Job job(impatient(options_of(rank, 2, port)));
      if (++joined == 2) {
        char byte = 0;
        if (::write(ready[1], &byte, 1) != 1 || ::read(go[0], &byte, 1) != 1) ++failures;
        resumed = true;
      }
      while (!resumed) std::this_thread::sleep_for(milliseconds(5));
      std::this_thread::sleep_for(milliseconds(500));
      if (job.watch()->failed()) ++failures;
      job.leave();
    });
    for (const std::string& error : errors) failures += !error.empty();
    ::_exit(failures);
  }
  char byte = 0;
  EXPECT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_EQ(::kill(child, SIGSTOP), 0);
  std::this_thread::sleep_for(milliseconds(2500));
  EXPECT_EQ(::kill(child, SIGCONT), 0);
  EXPECT_EQ(::write(go[1], &byte, 1), 1);
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ::close(ready[0]);
  ::close(go[1]);
}

TEST(Heartbeat, AHostThatGoesSilentIsNamedAsOne) {
  const int port = free_port();
  FileDescriptor silent[2];
  expect_none(run_ranks(4, [&](int rank) {
    if (rank >= 2) {
      silent[rank - 2] = join_and_fall_silent(rank, 4, port);
      return;
    }
    Job job(impatient(options_of(rank, 4, port)));
    EXPECT_HAS(failure_of(job), "all ranks of node2 (2, 3) have not been heard of for 1.5 s");
    job.leave();
  }));
}

// A rank whose own host was cut off notices that the server has stopped answering.
TEST(Heartbeat, AServerThatGoesSilentIsNamed) {
  const int port = free_port();
  std::vector<FileDescriptor> listening = listen_on("127.0.0.1", port);
  FileDescriptor connection;
  std::thread server([&] {
    pollfd entry{listening[0].get(), POLLIN, 0};
    ::poll(&entry, 1, 60000);
    connection = FileDescriptor(::accept(listening[0].get(), nullptr, nullptr));
    const std::string nonce = wire::random_nonce();
    const std::string greeting = wire::greeting(false, nonce);
    EXPECT_GT(::send(connection.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL), 0);
    std::string answer(wire::greeting_size + wire::proof_size, '\0');
    EXPECT_EQ(::recv(connection.get(), answer.data(), answer.size(), MSG_WAITALL), static_cast<ssize_t>(answer.size()));
    const std::string verdict =
        "\1" + wire::proof("", "server", nonce, answer.substr(wire::magic.size() + 1, wire::nonce_size));
    EXPECT_GT(::send(connection.get(), verdict.data(), verdict.size(), MSG_NOSIGNAL), 0);
  });
  JobOptions options = impatient(options_of(1, 2, port));
  StoreClient::Options client_options;
  client_options.address = "127.0.0.1";
  client_options.port = port;
  client_options.timeout = seconds(60);
  client_options.times = options.times;
  const auto watch = std::make_shared<JobWatch>();
  StoreClient client(client_options, watch);
  try {
    client.get("key", seconds(60));
    ADD_FAILURE();
  } catch (const CommunicationError& error) {
    EXPECT_HAS(std::string(error.what()), "serves the job's store");
    EXPECT_HAS(std::string(error.what()), "has not been heard of for 1.5 s");
  }
  server.join();
}

TEST(Heartbeat, ListenersHearOfTheFailureOnce) {
  JobWatch watch;
  std::vector<std::string> heard;
  watch.add_listener([&](const std::string& message) { heard.push_back("a " + message); });
  EXPECT_NO_THROW(watch.check());
  watch.fail("first");
  watch.fail("second");
  watch.add_listener([&](const std::string& message) { heard.push_back("b " + message); });
  EXPECT_EQ(heard, (std::vector<std::string>{"a first", "b first"}));
  EXPECT_THROW(watch.check(), CommunicationError);
}

}  // namespace
}  // namespace anyaccel::comm
