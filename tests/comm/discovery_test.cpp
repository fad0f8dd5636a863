// Tests how a process learns its rank from the variables of every launcher, and the errors when they are wrong.
#include "comm/job/discovery.h"

#include <gtest/gtest.h>

#include "anyaccel/error.h"

namespace anyaccel::comm {
namespace {

// The message of the error that discover() throws; "" when it throws none.
std::string error_of(const Environment& environment, const InitOptions& options = {}) {
  try {
    discover(environment, options);
    return "";
  } catch (const InvalidArgument& error) {
    return error.what();
  }
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(Discovery, WithoutAnySignItIsAJobOfOne) {
  for (const Environment& environment :
       {Environment{}, Environment{{"LOCAL_SIZE", "4"}}, Environment{{"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"}},
        Environment{{"RANK", ""}, {"WORLD_SIZE", ""}}}) {
    const JobPlace place = discover(environment, {});
    EXPECT_EQ(place.rank, 0);
    EXPECT_EQ(place.size, 1);
    EXPECT_EQ(place.master_addr, "");
    EXPECT_EQ(place.local_size, -1);
  }
}

TEST(Discovery, HowLongRanksMayTakeToJoin) {
  const Environment job{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}};
  EXPECT_EQ(discover(job, {}).join_timeout, std::chrono::minutes(5));
  Environment environment = job;
  environment["DEEPSPEED_TIMEOUT"] = "60";
  EXPECT_EQ(discover(environment, {}).join_timeout, std::chrono::minutes(5));
  environment["DEEPSPEED_TIMEOUT"] = "2";
  EXPECT_EQ(discover(environment, {}).join_timeout, std::chrono::minutes(2));
  environment["ANYACCEL_JOIN_TIMEOUT"] = "900";
  EXPECT_EQ(discover(environment, {}).join_timeout, std::chrono::seconds(900));
  InitOptions options;
  options.join_timeout = std::chrono::milliseconds(1500);
  EXPECT_EQ(discover(environment, options).join_timeout, std::chrono::milliseconds(1500));
  environment["ANYACCEL_JOIN_TIMEOUT"] = "soon";
  EXPECT_HAS(error_of(environment), "ANYACCEL_JOIN_TIMEOUT=soon: a whole number from 1 to 10000000 was expected");
}

TEST(Discovery, HostsOfRanks) {
  Environment job{
      {"RANK", "0"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "h"}, {"ANYACCEL_JOB_HOSTS", "node1:2,fe80::1:1"}};
  EXPECT_EQ(discover(job, {}).hosts, (std::vector<std::string>{"node1", "node1", "fe80::1"}));
  for (const char* wrong : {"", "node1:2", "node1:2,node2:2", "node1:x,node2:1", "node1", "node1:-1,a:4", "a:0,b:3"}) {
    job["ANYACCEL_JOB_HOSTS"] = wrong;
    EXPECT_TRUE(discover(job, {}).hosts.empty()) << wrong;
  }
}

TEST(Discovery, TheLaunchersOwnVariables) {
  const JobPlace place = discover({{"RANK", "3"},
                                   {"WORLD_SIZE", "4"},
                                   {"LOCAL_RANK", "1"},
                                   {"LOCAL_SIZE", "2"},
                                   {"MASTER_ADDR", "node1"},
                                   {"MASTER_PORT", "4711"},
                                   {"ANYACCEL_JOB_TOKEN", "secret"}},
                                  {});
  EXPECT_EQ(place.rank, 3);
  EXPECT_EQ(place.size, 4);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.local_size, 2);
  EXPECT_EQ(place.master_addr, "node1");
  EXPECT_EQ(place.master_port, 4711);
  EXPECT_EQ(place.token, "secret");
  EXPECT_EQ(place.timeout, std::chrono::minutes(30));
}

TEST(Discovery, OptionsComeFirst) {
  InitOptions options;
  options.rank = 2;
  options.world_size = 5;
  options.master_addr = "here";
  options.master_port = 99;
  options.timeout = std::chrono::seconds(7);
  const JobPlace place =
      discover({{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "there"}, {"MASTER_PORT", "1"}}, options);
  EXPECT_EQ(place.rank, 2);
  EXPECT_EQ(place.size, 5);
  EXPECT_EQ(place.master_addr, "here");
  EXPECT_EQ(place.master_port, 99);
  EXPECT_EQ(place.timeout, std::chrono::seconds(7));
}

TEST(Discovery, EveryMpi) {
  const std::vector<Environment> starters = {
      {{"OMPI_COMM_WORLD_RANK", "1"},
       {"OMPI_COMM_WORLD_SIZE", "3"},
       {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
       {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}},
      {{"MV2_COMM_WORLD_RANK", "1"},
       {"MV2_COMM_WORLD_SIZE", "3"},
       {"MV2_COMM_WORLD_LOCAL_RANK", "1"},
       {"MV2_COMM_WORLD_LOCAL_SIZE", "3"}},
      {{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "3"}},
  };
  for (const Environment& environment : starters) {
    SCOPED_TRACE(environment.begin()->first);
    const JobPlace place = discover(environment, {});
    EXPECT_EQ(place.rank, 1);
    EXPECT_EQ(place.size, 3);
    EXPECT_EQ(place.local_rank, 1);
    EXPECT_EQ(place.local_size, 3);
    EXPECT_EQ(place.master_addr, "127.0.0.1");  // all on one host
    EXPECT_EQ(place.master_port, 29500);
  }
  const JobPlace pals =
      discover({{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}, {"PALS_LOCAL_RANKID", "0"}, {"MASTER_ADDR", "nid1"}}, {});
  EXPECT_EQ(pals.local_rank, 0);
}

TEST(Discovery, MpiOnSeveralHostsNeedsAnAddress) {
  const std::string error = error_of({{"OMPI_COMM_WORLD_RANK", "1"},
                                      {"OMPI_COMM_WORLD_SIZE", "4"},
                                      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  EXPECT_HAS(error, "MASTER_ADDR is not set");
  EXPECT_HAS(error, "OMPI_COMM_WORLD_LOCAL_SIZE=2");
  EXPECT_HAS(error, "anyaccel launch");
  EXPECT_HAS(error_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}}), "MASTER_ADDR is not set");
}

TEST(Discovery, Slurm) {
  Environment environment = {{"SLURM_PROCID", "5"},
                             {"SLURM_NTASKS", "8"},
                             {"SLURM_LOCALID", "1"},
                             {"SLURM_JOB_NODELIST", "node[01-03,7],login"}};
  JobPlace place = discover(environment, {});
  EXPECT_EQ(place.rank, 5);
  EXPECT_EQ(place.size, 8);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.master_addr, "node01");

  environment["SLURM_JOB_NODELIST"] = "node01";
  EXPECT_EQ(discover(environment, {}).master_addr, "127.0.0.1");

  // A step of fewer tasks than the allocation, on its own hosts.
  environment["SLURM_STEP_NUM_TASKS"] = "6";
  environment["SLURM_STEP_NODELIST"] = "node[04-05]";
  place = discover(environment, {});
  EXPECT_EQ(place.size, 6);
  EXPECT_EQ(place.master_addr, "node04");

  // srun with PMI or PMIx: the same ranks, and the master from Slurm.
  environment["PMI_RANK"] = "5";
  environment["PMI_SIZE"] = "6";
  place = discover(environment, {});
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.master_addr, "node04");
  environment.erase("PMI_RANK");
  environment.erase("PMI_SIZE");
  environment["PMIX_RANK"] = "5";
  EXPECT_EQ(discover(environment, {}).size, 6);
  environment["PMIX_RANK"] = "4";
  EXPECT_HAS(error_of(environment), "PMIX_RANK=4");
}

// mpirun inside a Slurm job: its daemons are tasks of Slurm, and their variables mean nothing to the ranks.
TEST(Discovery, SlurmsVariablesUnderAnotherStarterDoNotCount) {
  const JobPlace place = discover({{"OMPI_COMM_WORLD_RANK", "3"},
                                   {"OMPI_COMM_WORLD_SIZE", "4"},
                                   {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                   {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                   {"SLURM_PROCID", "1"},
                                   {"SLURM_NTASKS", "2"},
                                   {"SLURM_LOCALID", "0"},
                                   {"MASTER_ADDR", "a"}},
                                  {});
  EXPECT_EQ(place.rank, 3);
  EXPECT_EQ(place.size, 4);
  EXPECT_EQ(place.local_rank, 1);
}

TEST(Discovery, FirstSlurmHost) {
  EXPECT_EQ(first_slurm_host("a"), "a");
  EXPECT_EQ(first_slurm_host("a,b"), "a");
  EXPECT_EQ(first_slurm_host("node[01-03,7]"), "node01");
  EXPECT_EQ(first_slurm_host("node[7,01-03],x"), "node7");
  EXPECT_EQ(first_slurm_host("rack[2-3]node[10,12]-ib,x[1]"), "rack2node10-ib");
  for (const char* wrong : {"", ",a", "node[", "node[]", "node[-3]", "node[1", "a]b"}) {
    EXPECT_THROW(first_slurm_host(wrong), InvalidArgument) << wrong;
  }
}

TEST(Discovery, ContradictionsQuoteBoth) {
  std::string error = error_of({{"RANK", "1"},
                                {"WORLD_SIZE", "4"},
                                {"OMPI_COMM_WORLD_RANK", "0"},
                                {"OMPI_COMM_WORLD_SIZE", "4"},
                                {"MASTER_ADDR", "a"}});
  EXPECT_HAS(error, "RANK=1");
  EXPECT_HAS(error, "OMPI_COMM_WORLD_RANK=0");

  // A launcher of another MPI: every process is rank 0 of 1.
  error = error_of({{"WORLD_SIZE", "4"}, {"PMI_RANK", "0"}, {"PMI_SIZE", "1"}, {"MASTER_ADDR", "a"}});
  EXPECT_HAS(error, "WORLD_SIZE=4");
  EXPECT_HAS(error, "PMI_SIZE=1");
  EXPECT_HAS(error, "another MPI");

  InitOptions options;
  options.world_size = 2;
  error = error_of({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}, options);
  EXPECT_HAS(error, "world_size = 2");
  EXPECT_HAS(error, "OMPI_COMM_WORLD_SIZE=1");

  error = error_of({{"OMPI_COMM_WORLD_RANK", "0"},
                    {"OMPI_COMM_WORLD_SIZE", "2"},
                    {"PMI_RANK", "1"},
                    {"PMI_SIZE", "2"},
                    {"MASTER_ADDR", "a"}});
  EXPECT_HAS(error, "OMPI_COMM_WORLD_RANK=0");
  EXPECT_HAS(error, "PMI_RANK=1");

  error = error_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}, {"MPI_LOCALRANKID", "0"}});
  EXPECT_HAS(error, "LOCAL_RANK=1");
  EXPECT_HAS(error, "MPI_LOCALRANKID=0");
}

TEST(Discovery, WhatIsMissing) {
  EXPECT_HAS(error_of({{"RANK", "1"}}), "set WORLD_SIZE");
  EXPECT_HAS(error_of({{"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}}), "set RANK");
  EXPECT_EQ(discover({{"WORLD_SIZE", "1"}}, {}).size, 1);
}

TEST(Discovery, NumbersThatAreNone) {
  const Environment good = {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}};
  EXPECT_EQ(error_of(good), "");
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"RANK", "-1"},
      {"RANK", "one"},
      {"RANK", "1x"},
      {"RANK", "99999999999"},
      {"WORLD_SIZE", "0"},
      {"WORLD_SIZE", "2.0"},
      {"MASTER_PORT", "0"},
      {"MASTER_PORT", "65536"},
      {"MASTER_PORT", "ssh"},
      {"LOCAL_RANK", "-2"},
      {"LOCAL_SIZE", "0"},
      {"DEEPSPEED_TIMEOUT", "0"},
      {"DEEPSPEED_TIMEOUT", "soon"},
  };
  for (const auto& [name, value] : wrong) {
    Environment environment = good;
    environment[name] = value;
    EXPECT_HAS(error_of(environment), name + "=" + value);
  }
  for (const int port : {0, 65536}) {
    InitOptions options;
    options.master_port = port;
    EXPECT_HAS(error_of(good, options), "master_port = " + std::to_string(port));
  }
}

TEST(Discovery, NumbersThatDoNotFit) {
  EXPECT_HAS(error_of({{"RANK", "2"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}}), "RANK=2");
  EXPECT_HAS(error_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_SIZE", "3"}, {"MASTER_ADDR", "a"}}), "LOCAL_SIZE=3");
  EXPECT_HAS(
      error_of({{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"LOCAL_SIZE", "2"}, {"LOCAL_RANK", "2"}, {"MASTER_ADDR", "a"}}),
      "LOCAL_RANK=2");
}

TEST(Discovery, TimeoutInMinutes) {
  EXPECT_EQ(discover({{"DEEPSPEED_TIMEOUT", "5"}}, {}).timeout, std::chrono::minutes(5));
}

}  // namespace
}  // namespace anyaccel::comm
