// Helpers that the tests of groups of devices share: ranks that are threads or processes on the simulated CUDA, and a
// store for the latter.
#pragma once

#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "anyaccel/driver_accelerator.h"
#include "anyaccel/error.h"
#include "comm/device/device_communicator.h"
#include "cuda/simulated_test_support.h"

namespace anyaccel::cuda_test {

using comm::DeviceCommunicator;
using comm::ReduceOp;

// Keys as files of a folder: for processes of one test.
class FolderStore final : public comm::Store {
 public:
  explicit FolderStore(std::filesystem::path folder) : folder_(std::move(folder)) {}

  void set(std::string_view key, std::string_view value) override {
    const std::filesystem::path temporary = path(key).string() + "." + std::to_string(getpid());
    std::ofstream(temporary, std::ios::binary) << value;
    std::filesystem::rename(temporary, path(key));
  }
  std::string get(std::string_view key, std::chrono::milliseconds timeout) override {
    const auto end = std::chrono::steady_clock::now() + timeout;
    while (!std::filesystem::exists(path(key))) {
      if (std::chrono::steady_clock::now() > end) throw CommunicationError("no key " + std::string(key));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::ifstream file(path(key), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Each rank is a process: the counted keys contain the rank.
  int64_t add(std::string_view key, int64_t amount) override {
    const int64_t value = (std::filesystem::exists(path(key)) ? std::stoll(get(key, {})) : 0) + amount;
    set(key, std::to_string(value));
    return value;
  }
  void remove(std::string_view key) override { std::filesystem::remove(path(key)); }

 private:
  std::filesystem::path path(std::string_view key) const {
    std::string name(key);
    std::replace(name.begin(), name.end(), '/', '_');
    return folder_ / name;
  }
  std::filesystem::path folder_;
};

class TestWatch final : public comm::FailureWatch {
 public:
  bool failed() const noexcept override { return failed_.load(); }
  void check() const override {
    if (failed()) throw CommunicationError("rank 1 on test went away");
  }
  void fail() { failed_ = true; }

 private:
  std::atomic<bool> failed_{false};
};

inline comm::Membership membership(int rank, int size, std::shared_ptr<comm::Store> store) {
  comm::Membership made;
  made.rank = rank;
  made.size = size;
  for (int i = 0; i < size; ++i) made.names.push_back("rank " + std::to_string(i) + " on test");
  made.store = std::move(store);
  made.timeout = std::chrono::minutes(2);
  return made;
}

// One rank: its device is current, and a stream of its own. Ends before its accelerator.
struct Rank {
  Rank(DriverAccelerator& on, comm::Membership member) : accelerator(on), members(std::move(member)) {
    accelerator.set_device(members.rank);
    stream = accelerator.Stream();
    current = std::make_unique<ScopeGuard>(accelerator.stream(stream));
  }
  bool join() {
    group = DeviceCommunicator::create(accelerator, members.rank, members, why,
                                       [this](const std::string& text) { told.push_back(text); });
    return group != nullptr;
  }
  Tensor upload(const std::vector<double>& values, DType dtype) const {
    const Tensor host = Tensor::from_host(values.data(), {static_cast<int64_t>(values.size())}, DType::F64).to(dtype);
    return host.to(accelerator.device(members.rank));
  }
  int rank() const { return members.rank; }
  int size() const { return members.size; }

  DriverAccelerator& accelerator;
  comm::Membership members;
  Stream stream;
  std::unique_ptr<ScopeGuard> current;
  std::string why;
  std::vector<std::string> told;  // failures that the group told of
  std::unique_ptr<DeviceCommunicator> group;
};

// Every rank's program on a thread of its own, in this process, with a device of its own.
inline void on_threads(int ranks, const std::function<void(Rank&)>& program,
                       const std::function<void(comm::Membership&)>& adjust = {}) {
  DriverAccelerator accelerator(&cuda_table());
  const std::shared_ptr<comm::Store> store = comm::make_local_store();
  std::vector<std::thread> threads;
  for (int i = 0; i < ranks; ++i) {
    threads.emplace_back([&, i] {
      try {
        comm::Membership member = membership(i, ranks, store);
        if (adjust) adjust(member);
        Rank rank(accelerator, member);
        program(rank);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << i << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The message of the CommunicationError that `body` throws; empty, and a failure of the test, when it throws none.
inline std::string communication_error(const std::function<void()>& body) {
  try {
    body();
  } catch (const CommunicationError& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another error: " << error.what();
    return "";
  }
  ADD_FAILURE() << "no error";
  return "";
}

}  // namespace anyaccel::cuda_test
