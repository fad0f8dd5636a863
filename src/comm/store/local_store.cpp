// Implements the store of one process, and a store that adds a prefix to keys.
#include <condition_variable>
#include <map>
#include <mutex>

#include "anyaccel/error.h"
#include "comm/store/store.h"

namespace anyaccel::comm {

namespace {

class LocalStore final : public Store {
 public:
  void set(std::string_view key, std::string_view value) override {
    const std::lock_guard lock(mutex_);
    values_[std::string(key)] = value;
    changed_.notify_all();
  }

  std::string get(std::string_view key, std::chrono::milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (true) {
      const auto found = values_.find(key);
      if (found != values_.end()) return found->second;
      if (changed_.wait_until(lock, deadline) == std::cv_status::timeout && values_.find(key) == values_.end()) {
        throw CommunicationError(
            "the key \"" + std::string(key) + "\" was not set within " + std::to_string(timeout.count()) + " ms",
            AA_DEADLINE_EXCEEDED);
      }
    }
  }

  int64_t add(std::string_view key, int64_t amount) override {
    const std::lock_guard lock(mutex_);
    return counters_[std::string(key)] += amount;
  }

  void remove(std::string_view key) override {
    const std::lock_guard lock(mutex_);
    if (const auto found = values_.find(key); found != values_.end()) values_.erase(found);
    if (const auto found = counters_.find(key); found != counters_.end()) counters_.erase(found);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string, std::less<>> values_;
  std::map<std::string, int64_t, std::less<>> counters_;
};

class PrefixedStore final : public Store {
 public:
  PrefixedStore(std::shared_ptr<Store> store, std::string prefix)
      : store_(std::move(store)), prefix_(std::move(prefix)) {}

  void set(std::string_view key, std::string_view value) override { store_->set(full(key), value); }
  std::string get(std::string_view key, std::chrono::milliseconds timeout) override {
    return store_->get(full(key), timeout);
  }
  int64_t add(std::string_view key, int64_t amount) override { return store_->add(full(key), amount); }
  void remove(std::string_view key) override { store_->remove(full(key)); }

 private:
  std::string full(std::string_view key) const { return prefix_ + std::string(key); }

  std::shared_ptr<Store> store_;
  std::string prefix_;
};

}  // namespace

std::shared_ptr<Store> make_local_store() { return std::make_shared<LocalStore>(); }

std::shared_ptr<Store> make_prefixed_store(std::shared_ptr<Store> store, std::string prefix) {
  return std::make_shared<PrefixedStore>(std::move(store), std::move(prefix));
}

}  // namespace anyaccel::comm
