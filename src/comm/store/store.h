// The meeting place of a job: a small key-value store over TCP, served by rank 0 at MASTER_ADDR:MASTER_PORT.
//
// Keys are texts, values bytes. Used while groups are made and to tell peers of failures, never on the path of a
// collective. A client must know the job's token (ANYACCEL_JOB_TOKEN, made by the launcher; without one the port is open
// to whoever reaches it, and the server listens on MASTER_ADDR's own interface only). Thread-safe; one connection each.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

namespace anyaccel::comm {

class Store {
 public:
  virtual ~Store() = default;
  virtual void set(std::string_view key, std::string_view value) = 0;
  // Blocks until the key is set. CommunicationError that names key and time limit, or the server when it is gone.
  virtual std::string get(std::string_view key, std::chrono::milliseconds timeout) = 0;
  // Adds to a counter (0 at first) and returns its new value.
  virtual int64_t add(std::string_view key, int64_t amount) = 0;
  virtual void remove(std::string_view key) = 0;
};

// A store of this process alone: for groups of one, and for tests whose ranks are threads.
std::shared_ptr<Store> make_local_store();
// Keys of `store` behind a prefix.
std::shared_ptr<Store> make_prefixed_store(std::shared_ptr<Store> store, std::string prefix);

}  // namespace anyaccel::comm
