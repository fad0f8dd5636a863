// Ranks for tests of shared memory: threads of this process, or processes.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "anyaccel/error.h"
#include "comm/host_communicator.h"
#include "comm/store/store.h"

namespace anyaccel::comm::test {

using RankBody = std::function<void(const Membership&)>;

inline Membership member(int rank, int size, std::shared_ptr<Store> store) {
  Membership membership;
  membership.rank = rank;
  membership.size = size;
  for (int r = 0; r < size; ++r) membership.names.push_back("rank " + std::to_string(r) + " on here");
  membership.store = std::move(store);
  membership.timeout = std::chrono::minutes(2);  // a loaded machine is slow
  return membership;
}

// Runs body on `size` threads and reports what they throw.
inline void run_threads(int size, const RankBody& body) {
  const auto store = make_local_store();
  std::vector<std::thread> threads;
  std::vector<std::string> errors(static_cast<size_t>(size));
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      try {
        body(member(r, size, store));
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(r)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int r = 0; r < size; ++r) EXPECT_EQ(errors[static_cast<size_t>(r)], "") << "rank " << r;
}

// A store in memory that forked processes share.
class ForkStore final : public Store {
 public:
  ForkStore() {
    void* memory = mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    table_ = new (memory) Table{};
  }
  ~ForkStore() override { munmap(table_, sizeof(Table)); }

  void set(std::string_view key, std::string_view value) override {
    const Lock lock(*table_);
    Entry* entry = find(key);
    for (Entry& candidate : table_->entries) {
      if (!entry && candidate.key[0] == '\0') entry = &candidate;
    }
    std::snprintf(entry->key, sizeof(entry->key), "%.*s", static_cast<int>(key.size()), key.data());
    entry->length = value.copy(entry->value, sizeof(entry->value));
  }
  std::string get(std::string_view key, std::chrono::milliseconds timeout) override {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (std::chrono::steady_clock::now() < deadline) {
      {
        const Lock lock(*table_);
        if (const Entry* entry = find(key)) return {entry->value, entry->length};
      }
      usleep(200);
    }
    throw CommunicationError("no key " + std::string(key));
  }
  int64_t add(std::string_view, int64_t) override { throw CommunicationError("this store has no counters"); }
  void remove(std::string_view key) override {
    const Lock lock(*table_);
    if (Entry* entry = find(key)) entry->key[0] = '\0';
  }

 private:
  struct Entry {
    char key[64];
    char value[256];
    size_t length;
  };
  struct Table {
    std::atomic<bool> locked;
    Entry entries[8];
  };
  struct Lock {
    explicit Lock(Table& t) : table(t) {
      while (table.locked.exchange(true, std::memory_order_acquire)) usleep(10);
    }
    ~Lock() { table.locked.store(false, std::memory_order_release); }
    Table& table;
  };
  Entry* find(std::string_view key) {
    for (Entry& entry : table_->entries) {
      if (key == entry.key) return &entry;
    }
    return nullptr;
  }
  Table* table_;
};

// The report of a forked rank.
struct Report {
  std::string text;  // of the exception; empty for none
  int status = 0;    // of waitpid
};

// Runs body in `size` processes, which end without destructors of the test program. A rank that throws reports the text.
// `meanwhile` gets the processes' numbers while they run.
inline std::vector<Report> run_processes(int size, const RankBody& body,
                                         const std::function<void(const std::vector<pid_t>&)>& meanwhile = {}) {
  const auto store = std::make_shared<ForkStore>();
  std::vector<pid_t> children;
  std::vector<int> pipes;
  for (int r = 0; r < size; ++r) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    std::fflush(nullptr);  // or the child would write it again
    const pid_t child = fork();
    if (child == 0) {
      std::string text;
      try {
        body(member(r, size, store));
      } catch (const std::exception& error) {
        text = error.what();
      }
      const ssize_t written = write(ends[1], text.data(), text.size());
      _exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
    }
    close(ends[1]);
    children.push_back(child);
    pipes.push_back(ends[0]);
  }
  if (meanwhile) meanwhile(children);
  std::vector<Report> reports(static_cast<size_t>(size));
  for (size_t r = 0; r < reports.size(); ++r) {
    char buffer[512];
    ssize_t got = 0;
    while ((got = read(pipes[r], buffer, sizeof(buffer))) > 0) reports[r].text.append(buffer, static_cast<size_t>(got));
    close(pipes[r]);
    waitpid(children[r], &reports[r].status, 0);
  }
  return reports;
}

}  // namespace anyaccel::comm::test
