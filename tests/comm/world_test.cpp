// init_process_group and its kin, with real processes as ranks: each is this program again, told by a variable what to do.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <stdexcept>

#include "anyaccel/accelerator.h"
#include "anyaccel/comm/process_group.h"
#include "anyaccel/error.h"
#include "free_port.h"

namespace anyaccel::comm {
namespace {

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)
#define EXPECT_HAS_NOT(text, part) EXPECT_EQ((text).find(part), std::string::npos) << (text)

// ---- what a rank does ----------------------------------------------------------------------------------------------

void say(const std::string& text) {
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

// Waits until every rank has said how it ended. A rank whose process ends at once could be what the others notice first,
// rank 0 above all, which serves the store.
void wait_for_the_others() {
  char byte;
  while (::read(STDIN_FILENO, &byte, 1) < 0 && errno == EINTR) {
  }
}

void act(const std::string& role) {
  const std::shared_ptr<ProcessGroup> group = init_process_group();
  EXPECT_EQ(world(), group);
  const Tensor t = Tensor::zeros({4}, DType::F32, get_accelerator()->device());
  t.fill(group->rank() + 1);
  group->all_reduce(t);
  say("sum " + std::to_string(t.to_vector<float>()[3]) + " by " + group->backend());
  if (role == "killed" && group->rank() == 1) ::raise(SIGKILL);
  if (role == "exits" && group->rank() == 1) ::_exit(0);
  if (role == "aborts" && group->rank() == 1) {
    abort_process_group("out of paper");
    EXPECT_EQ(world(), nullptr);
    EXPECT_THROW(group->barrier(), CommunicationError);
    say("aborted");
    wait_for_the_others();
    return;
  }
  if (role == "leaves" && group->rank() == 1) {
    destroy_process_group();
    say("aborted");
    wait_for_the_others();
    return;
  }
  if (role == "twice") {
    EXPECT_THROW(init_process_group(), InvalidArgument);
    InitOptions options;
    destroy_process_group();
    options.backend = "pigeons";
    try {
      init_process_group(options);
    } catch (const InvalidArgument& error) {
      say(error.what());
    }
    return;
  }
  for (int i = 0; i < 10; ++i) group->inference_all_reduce(t);
  group->barrier();
  destroy_process_group();
  EXPECT_EQ(world(), nullptr);
  try {
    group->all_reduce(t);
    ADD_FAILURE();
  } catch (const CommunicationError& error) {
    EXPECT_HAS(std::string(error.what()), "destroy_process_group");
  }
  destroy_process_group();  // nothing to leave any more
  say("left");
}

TEST(Rank, Acts) {
  const char* role = std::getenv("WORLD_TEST_ROLE");
  if (!role) GTEST_SKIP() << "run by the tests below";
  try {
    act(role);
  } catch (const Error& error) {
    say(std::string("error: ") + error.what());
    wait_for_the_others();
  }
}

// ---- the tests ------------------------------------------------------------------------------------------------------

using Variables = std::map<std::string, std::string>;

struct Ended {
  int status = 0;      // as waitpid gives it
  std::string output;  // standard output and standard error
};

class Processes {
 public:
  Processes() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    held_ = FileDescriptor(ends[0]);
    release_ = FileDescriptor(ends[1]);
  }
  void start(Variables variables) {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, held_.get(), 0);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
    for (char** entry = environ; *entry; ++entry) {
      const std::string text = *entry;
      variables.try_emplace(text.substr(0, text.find('=')), text.substr(text.find('=') + 1));
    }
    std::vector<std::string> texts;
    for (const auto& [name, value] : variables) texts.push_back(name + "=" + value);
    std::vector<char*> environment;
    for (std::string& text : texts) environment.push_back(text.data());
    environment.push_back(nullptr);
    std::string program = "/proc/self/exe";
    std::string filter = "--gtest_filter=Rank.Acts";
    std::string brief = "--gtest_brief=1";
    char* arguments[] = {program.data(), filter.data(), brief.data(), nullptr};
    pid_t pid = 0;
    ASSERT_EQ(::posix_spawn(&pid, program.c_str(), &actions, nullptr, arguments, environment.data()), 0);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    pids_.push_back(pid);
    pipes_.emplace_back(ends[0]);
  }

  std::vector<Ended> wait() {
    std::vector<Ended> result(pids_.size());
    const auto has_ended = [](const std::string& output) {
      return output.ends_with('\n') && (output.find("error: ") != output.npos || output.find("aborted") != output.npos);
    };
    for (size_t i = 0; i < pids_.size(); ++i) {
      while (!has_ended(result[i].output) && read_more(i, result[i].output)) {
      }
    }
    release_ = FileDescriptor();  // swaps, so the pipe is closed with the temporary object
    for (size_t i = 0; i < pids_.size(); ++i) {
      while (read_more(i, result[i].output)) {
      }
      ::waitpid(pids_[i], &result[i].status, 0);
    }
    return result;
  }

 private:
  // Returns false at the end of the output.
  bool read_more(size_t i, std::string& output) {
    char buffer[4096];
    const ssize_t count = ::read(pipes_[i].get(), buffer, sizeof(buffer));
    if (count > 0) output.append(buffer, static_cast<size_t>(count));
    return count > 0;
  }

  std::vector<pid_t> pids_;
  std::vector<FileDescriptor> pipes_;
  FileDescriptor held_, release_;  // what all processes have as their input, and its other end
};

std::vector<Ended> run(const std::string& role, int size, const Variables& more = {}) {
  Processes processes;
  const std::string port = std::to_string(free_port());
  for (int rank = 0; rank < size; ++rank) {
    Variables variables = {{"WORLD_TEST_ROLE", role},
                           {"RANK", std::to_string(rank)},
                           {"WORLD_SIZE", std::to_string(size)},
                           {"LOCAL_RANK", std::to_string(rank)},
                           {"LOCAL_SIZE", std::to_string(size)},
                           {"MASTER_ADDR", "localhost"},
                           {"MASTER_PORT", port},
                           {"ANYACCEL_JOB_TOKEN", "secret"},
                           {"DS_ACCELERATOR", "cpu"}};
    for (const auto& [name, value] : more) variables[name] = value;
    processes.start(variables);
  }
  return processes.wait();
}

TEST(World, RanksComeWorkAndLeave) {
  const std::vector<Ended> ended = run("works", 3);
  for (const Ended& rank : ended) {
    EXPECT_EQ(rank.status, 0) << rank.output;
    EXPECT_HAS(rank.output, "sum 6.000000 by shm");
    EXPECT_HAS(rank.output, "left");
  }
}

TEST(World, OneProcessWithoutAnyVariable) {
  Processes processes;
  processes.start({{"WORLD_TEST_ROLE", "works"}, {"DS_ACCELERATOR", "cpu"}});
  const Ended alone = processes.wait().at(0);
  EXPECT_EQ(alone.status, 0) << alone.output;
  EXPECT_HAS(alone.output, "sum 1.000000");
  EXPECT_HAS(alone.output, "left");
}

TEST(World, ADeadRankIsNamedByTheOthers) {
  for (const char* role : {"killed", "exits"}) {
    const std::vector<Ended> ended = run(role, 3);
    for (const size_t rank : {0, 2}) {
      EXPECT_HAS(ended[rank].output, "error: ");
      EXPECT_HAS(ended[rank].output, "rank 1 on ");
      EXPECT_HAS_NOT(ended[rank].output, "left");
    }
    EXPECT_EQ(WIFSIGNALED(ended[1].status), std::string(role) == "killed");
  }
}

TEST(World, WhatARankAbortsWithIsQuoted) {
  const std::vector<Ended> ended = run("aborts", 3);
  for (const size_t rank : {0, 2}) {
    EXPECT_HAS(ended[rank].output, "error: ");
    EXPECT_HAS(ended[rank].output, "rank 1 on ");
    EXPECT_HAS(ended[rank].output, "failed: out of paper");
  }
  EXPECT_EQ(ended[1].status, 0) << ended[1].output;
}

TEST(World, ARankThatLeavesEarlyIsNamedByTheOthers) {
  const std::vector<Ended> ended = run("leaves", 3);
  for (const size_t rank : {0, 2}) {
    EXPECT_HAS(ended[rank].output, "error: ");
    EXPECT_HAS(ended[rank].output, "rank 1 on ");
  }
  EXPECT_EQ(ended[1].status, 0) << ended[1].output;
}

TEST(World, TheLogIsPrintedByRankZero) {
  const std::vector<Ended> ended = run("works", 2, {{"ANYACCEL_COMMS_LOG", "1"}});
  EXPECT_HAS(ended[0].output, "collectives of rank 0 of 2");
  EXPECT_HAS(ended[0].output, "all_reduce");
  EXPECT_HAS(ended[0].output, "inference_all_reduce");
  EXPECT_HAS(ended[0].output, "barrier");
  EXPECT_HAS(ended[0].output, "least rank us");
  EXPECT_HAS_NOT(ended[1].output, "collectives of rank");
  EXPECT_HAS_NOT(run("works", 1)[0].output, "collectives of rank");
}

TEST(World, TheLogOfAProgramThatDoesNotLeave) {
  const std::vector<Ended> ended = run("exits", 2, {{"ANYACCEL_COMMS_LOG", "1"}});
  EXPECT_HAS(ended[0].output, "collectives of rank 0 of 2");
}

TEST(World, CalledTwiceAndWithAnUnknownBackend) {
  const std::vector<Ended> ended = run("twice", 2);
  for (const Ended& rank : ended) {
    EXPECT_EQ(rank.status, 0) << rank.output;
    EXPECT_HAS(rank.output, "there is no backend \"pigeons\" for process groups of ");
    EXPECT_HAS(rank.output, "What could run: shm (inside one host)");
  }
}

TEST(World, ALauncherOfAnotherMpi) {
  const std::vector<Ended> ended =
      run("works", 2, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}, {"RANK", ""}});
  for (const Ended& rank : ended) {
    EXPECT_HAS(rank.output, "error: ");
    EXPECT_HAS(rank.output, "WORLD_SIZE=2");
    EXPECT_HAS(rank.output, "OMPI_COMM_WORLD_SIZE=1");
  }
}

}  // namespace
}  // namespace anyaccel::comm
