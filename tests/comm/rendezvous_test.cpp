// Tests how the ranks of a job find each other, with threads as ranks: who has not come, who came twice, who was told
// otherwise, and who shares a host.
#include <gtest/gtest.h>

#include <thread>

#include "anyaccel/error.h"
#include "comm/job/job.h"
#include "comm/store/store_report.h"
#include "free_port.h"
#include "thread_communicator.h"

namespace anyaccel::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

JobOptions job_options(int rank, int size, int port, milliseconds timeout = seconds(60)) {
  JobOptions options;
  options.place.rank = rank;
  options.place.size = size;
  options.place.master_addr = "127.0.0.1";
  options.place.master_port = port;
  options.place.token = "token";
  options.place.timeout = seconds(60);
  options.place.join_timeout = timeout;
  options.host_id = "id of the host";
  options.host_name = "here";
  return options;
}

TEST(Rendezvous, EveryRankLearnsOfAll) {
  const int port = free_port();
  const std::vector<std::string> errors = run_ranks(5, [&](int rank) {
    JobOptions options = job_options(rank, 5, port);
    const int node = rank < 2 ? 0 : rank < 4 ? 1 : 2;
    options.host_id = "host " + std::to_string(node);
    options.host_name = "node" + std::to_string(node + 1);
    options.place.local_rank = rank % 2;
    options.place.local_size = node == 2 ? 1 : 2;
    if (rank == 4) options.place.local_rank = 0;
    Job job(options);
    const std::vector<std::string> names = {"rank 0 on node1", "rank 1 on node1", "rank 2 on node2", "rank 3 on node2",
                                            "rank 4 on node3"};
    EXPECT_EQ(job.names(), names);
    EXPECT_EQ(job.hosts(), (std::vector<int>{0, 0, 1, 1, 2}));
    job.store()->set("from " + std::to_string(rank), std::to_string(rank * rank));
    EXPECT_EQ(job.store()->get("from 4", seconds(60)), "16");
    job.leave();
    EXPECT_FALSE(job.watch()->failed());
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(Rendezvous, AJobOfOneOpensNoPort) {
  JobOptions options = job_options(0, 1, 1);
  options.place.master_addr.clear();
  Job job(options);
  EXPECT_EQ(job.names().size(), 1u);
  EXPECT_EQ(job.store()->add("n", 1), 1);
  job.leave();
}

// The time limit is longer than a busy machine takes to start a thread.
TEST(Rendezvous, NamesWhoHasNotCome) {
  const int port = free_port();
  const std::vector<std::string> errors =
      run_ranks(2, [&](int place) { const Job job(job_options(place == 0 ? 0 : 2, 4, port, milliseconds(1500))); });
  for (const std::string& error : errors) EXPECT_HAS(error, "2 of 4 ranks came within 1.5 s; missing: 1, 3");
}

TEST(Rendezvous, NamesTheHostsOfThoseWhoHaveNotCome) {
  const int port = free_port();
  const std::vector<std::string> errors = run_ranks(2, [&](int place) {
    JobOptions options = job_options(place == 0 ? 0 : 2, 6, port, milliseconds(1500));
    options.place.hosts = {"node1", "node1", "node2", "node2", "node3", "node3"};
    const Job job(options);
  });
  for (const std::string& error : errors) {
    EXPECT_HAS(error, "2 of 6 ranks came within 1.5 s; missing: 1 on node1; 3 on node2; 4, 5 on node3.");
    EXPECT_HAS(error, "--join_timeout");
  }
}

// The time limit is a minute here.
TEST(Rendezvous, ARankThatHasEndedIsNotWaitedFor) {
  StoreServer::Options options;  // it outlives the ranks, so that each hears of it whenever it comes
  options.address = "127.0.0.1";
  options.port = free_port();
  options.token = "token";
  options.size = 4;
  options.join_timeout = seconds(60);
  options.hosts = {"node1", "node1", "node2", "node2"};
  const StoreServer server(options);
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<std::string> errors = run_ranks(3, [&](int place) {
    if (place < 2) {
      const Job job(job_options(place + 1, 4, options.port));
      return;
    }
    report_ended_rank({"127.0.0.1", options.port, "token"}, 3, "with exit code 0", seconds(30));
  });
  for (int rank = 0; rank < 2; ++rank) {
    const std::string& error = errors[static_cast<size_t>(rank)];
    EXPECT_HAS(error,
               "rank 3 on node2 ended with exit code 0 before it joined the process group of 4 ranks; missing: 0");
    EXPECT_HAS(error, "3 on node2");
  }
  EXPECT_EQ(errors[2], "");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(30));
}

TEST(Rendezvous, ARankThatEndsAfterItHasJoinedIsNoFailure) {
  const int port = free_port();
  const std::vector<std::string> errors = run_ranks(2, [&](int rank) {
    Job job(job_options(rank, 2, port));
    if (rank == 1) {
      job.leave();
      try {  // rank 0 may have ended by now
        report_ended_rank({"127.0.0.1", port, "token"}, 1, "with exit code 0", seconds(1));
      } catch (const CommunicationError&) {
      }
      return;
    }
    job.leave();
    EXPECT_FALSE(job.watch()->failed());
  });
  EXPECT_EQ(errors[0], "");
}

TEST(Rendezvous, AStoreThatCannotBeJoinedSaysWhy) {
  StoreServer::Options server;
  server.address = "127.0.0.1";
  server.port = free_port();
  server.token = "token";
  server.size = 2;
  server.join_timeout = seconds(60);
  server.failure = "rank 0 ended";
  const StoreServer store(server);
  const std::vector<std::string> errors = run_ranks(1, [&](int) { const Job job(job_options(1, 2, server.port)); });
  EXPECT_HAS(errors[0], "rank 0 ended");
}

TEST(Rendezvous, TheSameRankTwice) {
  const int port = free_port();
  const std::vector<std::string> errors =
      run_ranks(3, [&](int place) { const Job job(job_options(place == 0 ? 0 : 1, 3, port)); });
  for (const std::string& error : errors) {
    EXPECT_HAS(error, "two processes say that they are rank 1");
    EXPECT_HAS(error, "here");
  }
}

TEST(Rendezvous, DifferentNumbersOfRanks) {
  const int port = free_port();
  const std::vector<std::string> errors =
      run_ranks(2, [&](int rank) { const Job job(job_options(rank, rank == 0 ? 2 : 3, port)); });
  for (const std::string& error : errors) {
    EXPECT_HAS(error, "3 ranks");
    EXPECT_HAS(error, "rank 0 that there are 2");
    EXPECT_HAS(error, "WORLD_SIZE");
  }
}

TEST(Rendezvous, DifferentBackends) {
  const int port = free_port();
  const std::vector<std::string> errors = run_ranks(3, [&](int rank) {
    JobOptions options = job_options(rank, 3, port);
    if (rank < 2) options.backend = "gloo";
    const Job job(options);
  });
  for (const std::string& error : errors) {
    EXPECT_HAS(error, "rank 0 on here asks for the backend \"gloo\", rank 2 on here asks for no backend");
    EXPECT_HAS(error, "all ranks must ask for the same");
  }
}

TEST(Rendezvous, LocalSizeThatIsNotTrue) {
  const int port = free_port();
  const std::vector<std::string> errors = run_ranks(3, [&](int rank) {
    JobOptions options = job_options(rank, 3, port);
    options.place.local_size = 3;
    options.host_id = rank == 2 ? "another" : "one";
    options.host_name = rank == 2 ? "node2" : "node1";
    const Job job(options);
  });
  for (const std::string& error : errors) {  // the same on every rank
    EXPECT_HAS(error, "rank 0 on node1 has LOCAL_SIZE=3, but 2 of the job's ranks are on node1");
  }
}

TEST(Rendezvous, LocalRanksThatCollide) {
  const int port = free_port();
  const std::vector<std::string> errors = run_ranks(2, [&](int rank) {
    JobOptions options = job_options(rank, 2, port);
    options.place.local_rank = 0;
    const Job job(options);
  });
  for (const std::string& error : errors) EXPECT_HAS(error, "both have LOCAL_RANK=0");
}

TEST(Rendezvous, ATokenThatOneRankLacks) {
  const int port = free_port();
  const std::vector<std::string> errors = run_ranks(2, [&](int rank) {
    JobOptions options = job_options(rank, 2, port, seconds(rank == 0 ? 1 : 60));
    if (rank == 1) options.place.token.clear();
    const Job job(options);
  });
  EXPECT_HAS(errors[0], "1 of 2 ranks came within 1 s; missing: 1");
  EXPECT_HAS(errors[1], "ANYACCEL_JOB_TOKEN is not set in this process");
}

TEST(Rendezvous, ANewcomerDoesNotDisturbACompleteJob) {
  const int port = free_port();
  std::atomic<bool> complete{false};
  std::atomic<bool> refused{false};
  const std::vector<std::string> errors = run_ranks(3, [&](int place) {
    if (place == 2) {
      while (!complete) std::this_thread::sleep_for(milliseconds(5));
      try {
        const Job job(job_options(1, 2, port));
        ADD_FAILURE() << "a third process was let in";
      } catch (const CommunicationError& error) {
        EXPECT_HAS(std::string(error.what()), "are all there already");
      }
      refused = true;
      return;
    }
    Job job(job_options(place, 2, port));
    if (place == 0) complete = true;
    while (!refused) std::this_thread::sleep_for(milliseconds(5));
    EXPECT_FALSE(job.watch()->failed());
    job.leave();
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// A rank that ends while others still wait for one more.
TEST(Rendezvous, ARankThatEndsBeforeAllHaveCome) {
  const int port = free_port();
  std::string error;
  std::thread first([&] {
    try {
      const Job job(job_options(0, 3, port));
    } catch (const CommunicationError& failure) {
      error = failure.what();
    }
  });
  {
    StoreClient::Options options;
    options.address = "127.0.0.1";
    options.port = port;
    options.token = "token";
    options.timeout = seconds(60);
    StoreClient client(options, std::make_shared<JobWatch>());
    wire::JoinInfo info;
    info.rank = 2;
    info.size = 3;
    info.host_name = "node7";
    EXPECT_THROW(client.join(info, milliseconds(-4900)), CommunicationError);  // asks, and does not wait
  }
  first.join();
  EXPECT_HAS(error, "rank 2 on node7 ended");
}

}  // namespace
}  // namespace anyaccel::comm
