// Reports ranks that ended normally to the job's store.
#include "launcher/processes/ended_ranks.h"

#include <chrono>
#include <utility>

#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "base/process/start_thread.h"
#include "comm/store/store_server.h"

namespace anyaccel::launcher {
namespace {

using std::chrono::milliseconds;

// Ranks of a finished job end one after the other: usually no process is left to be informed.
constexpr milliseconds first_pause{100};
constexpr milliseconds pause{500};
constexpr milliseconds patience{1000};
constexpr char how[] = "with exit code 0";

}  // namespace

EndedRanks::EndedRanks(comm::StorePlace store, int ranks) : store_(std::move(store)), ranks_(ranks) {}

EndedRanks::~EndedRanks() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void EndedRanks::add(int rank, const std::string& name) {
  const std::lock_guard lock(mutex_);
  waiting_.emplace(rank, name);
  if (!thread_.joinable()) thread_ = start_thread("telling the job of ranks that have ended", [this] { run(); });
  changed_.notify_all();
}

void EndedRanks::run() noexcept {
  std::unique_lock lock(mutex_);
  milliseconds wait = first_pause;
  while (!stop_) {
    if (waiting_.empty()) {
      changed_.wait(lock);
      continue;
    }
    if (changed_.wait_for(lock, wait, [this] { return stop_; })) return;
    wait = pause;
    const std::map<int, std::string> now = waiting_;
    for (const auto& [rank, name] : now) {
      lock.unlock();
      const bool told = tell(rank, name);
      lock.lock();
      if (stop_) return;
      if (told) waiting_.erase(rank);
    }
  }
}

bool EndedRanks::tell(int rank, const std::string& name) {
  try {
    if (rank == 0) {
      comm::StoreServer::Options options;
      options.address = store_.address;
      options.port = store_.port;
      options.token = store_.token;
      options.size = ranks_;
      options.join_timeout = std::chrono::hours(24 * 365);
      options.failure = comm::ended_early(name, how, ranks_) + ", which cannot be made without it";
      in_place_of_rank_0_ = std::make_unique<comm::StoreServer>(std::move(options));
    } else {
      comm::report_ended_rank(store_, rank, how, patience);
    }
    return true;
  } catch (const std::exception& error) {
    log_debug("that " + name + " has ended could not be told: " + error.what());
    return false;
  }
}

}  // namespace anyaccel::launcher
