// Implements a rank's connection to the job's store.
#include "comm/store/store_client.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "anyaccel/error.h"
#include "base/process/start_thread.h"
#include "comm/store/store_connect.h"

namespace anyaccel::comm {

StoreClient::StoreClient(const Options& options, std::shared_ptr<JobWatch> watch)
    : options_(options),
      watch_(std::move(watch)),
      socket_(connect_to_store(options.address, options.port, options.token, options.timeout)),
      wake_(make_wake()),
      thread_(start_thread("the connection to the job's store", [this] { run(); })) {}

StoreClient::~StoreClient() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake(wake_);
  thread_.join();
}

std::string StoreClient::server_name() const {
  const std::string at = options_.address + ":" + std::to_string(options_.port);
  return (master_name_.empty() ? "rank 0" : master_name_) + ", which serves the job's store at " + at + ",";
}

void StoreClient::set(std::string_view key, std::string_view value) {
  if (value.size() > wire::max_value) {
    throw InvalidArgument("the store's key \"" + std::string(key) + "\": a value of " + std::to_string(value.size()) +
                          " bytes is longer than " + std::to_string(wire::max_value));
  }
  request([&](uint32_t number) { return wire::Writer(wire::Kind::Set, number).text(key).text(value); }, {}, {});
}

std::string StoreClient::get(std::string_view key, std::chrono::milliseconds timeout) {
  const Answer answer =
      request([&](uint32_t number) { return wire::Writer(wire::Kind::Get, number).text(key); }, timeout,
              [&] {
                return "the key \"" + std::string(key) + "\" was not set in the job's store within " +
                       std::to_string(timeout.count()) + " ms";
              });
  return wire::Reader(answer.contents).text();
}

int64_t StoreClient::add(std::string_view key, int64_t amount) {
  const Answer answer =
      request([&](uint32_t number) { return wire::Writer(wire::Kind::Add, number).text(key).i64(amount); }, {}, {});
  return wire::Reader(answer.contents).i64();
}

void StoreClient::remove(std::string_view key) {
  request([&](uint32_t number) { return wire::Writer(wire::Kind::Remove, number).text(key); }, {}, {});
}

std::vector<wire::JoinInfo> StoreClient::join(const wire::JoinInfo& self, std::chrono::milliseconds timeout) {
  // The server, which knows the missing ranks, gives up first; this adds time for its answer.
  const Answer answer = request([&](uint32_t number) { return wire::Writer(wire::Kind::Join, number).info(self); },
                                timeout + options_.times.silence,
                                [&] {
                                  return "not all ranks came within " + std::to_string(timeout.count()) +
                                         " ms, and rank 0 does not report the missing ranks";
                                });
  wire::Reader reader(answer.contents);
  std::vector<wire::JoinInfo> members(reader.u32());
  for (wire::JoinInfo& member : members) member = reader.info();
  const std::lock_guard lock(mutex_);
  if (!members.empty()) master_name_ = "rank 0 on " + members[0].host_name;
  return members;
}

void StoreClient::goodbye() noexcept {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  try {
    request([](uint32_t number) { return wire::Writer(wire::Kind::Goodbye, number); }, options_.times.silence,
            [] { return "no answer"; });
  } catch (const std::exception&) {  // a server that has ended needs no goodbye message
  }
}

void StoreClient::report_failure(const std::string& message) noexcept {
  try {
    post(wire::Writer(wire::Kind::Fail).text(message.substr(0, 4096)).frame());
  } catch (const std::exception&) {  // without memory the others will notice the end of the connection
  }
}

void StoreClient::post(const std::string& frame) {
  {
    const std::lock_guard lock(mutex_);
    out_ += frame;
  }
  wake(wake_);
}

StoreClient::Answer StoreClient::request(const std::function<wire::Writer(uint32_t)>& build,
                                         std::chrono::milliseconds timeout, const std::function<std::string()>& late) {
  std::unique_lock lock(mutex_);
  const uint32_t number = next_number_++;
  pending_.insert(number);
  out_ += build(number).frame();
  wake(wake_);
  const auto ready = [&] { return answers_.contains(number) || lost_ || (watch_->failed() && !leaving_); };
  // The server answers requests without a time limit at once; if it does not, the heartbeat detects it.
  if (late) {
    changed_.wait_for(lock, timeout, ready);
  } else {
    changed_.wait(lock, ready);
  }
  pending_.erase(number);
  if (const auto found = answers_.find(number); found != answers_.end()) {
    Answer answer = std::move(found->second);
    answers_.erase(found);
    return answer;
  }
  const bool lost = lost_;
  lock.unlock();
  post(wire::Writer(wire::Kind::Cancel, number).frame());
  watch_->check();
  if (lost) throw CommunicationError("the connection to the job's store is closed");
  throw CommunicationError(late(), AA_DEADLINE_EXCEEDED);
}

void StoreClient::run() noexcept {
  Clock::time_point heard = Clock::now();
  Clock::time_point looked = heard;
  Clock::time_point next_beat = heard + options_.times.beat;
  while (true) {
    short events = POLLIN;
    {
      const std::lock_guard lock(mutex_);
      if (lost_) return;
      if (stop_ && out_.empty()) return;
      if (!out_.empty()) events |= POLLOUT;
    }
    pollfd entries[2] = {{socket_.get(), events, 0}, {wake_.get(), POLLIN, 0}};
    const auto until = std::chrono::ceil<std::chrono::milliseconds>(next_beat - Clock::now());
    ::poll(entries, 2, static_cast<int>(std::max<int64_t>(until.count(), 0)));
    uint64_t woken = 0;
    if ((entries[1].revents & POLLIN) && ::read(wake_.get(), &woken, sizeof(woken)) < 0) woken = 0;
    if (entries[0].revents & (POLLIN | POLLHUP | POLLERR)) {
      // Messages received before a failure are processed first.
      if (!receive()) return;
      heard = Clock::now();
    }
    const Clock::time_point now = Clock::now();
    // While this process was stopped, as a suspended job is, it could not hear anything.
    if (was_stopped(now - looked, options_.times)) heard = std::min(heard + (now - looked), now);
    looked = now;
    std::unique_lock lock(mutex_);
    if (now >= next_beat) {
      out_ += wire::Writer(wire::Kind::Beat).frame();
      next_beat = now + options_.times.beat;
    }
    while (!out_.empty()) {
      const ssize_t count = ::send(socket_.get(), out_.data(), out_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count <= 0) break;  // full, or closed: then reading reports it
      out_.erase(0, static_cast<size_t>(count));
    }
    if (stop_) {  // no caller waits any more; unsent data remains
      return;
    }
    lock.unlock();
    if (now - heard >= options_.times.silence) {
      lose_server("has not been heard of for " + seconds_text(options_.times.silence));
      return;
    }
  }
}

// Returns false if the connection has ended.
bool StoreClient::receive() {
  constexpr size_t most = 65536;
  const auto bytes = std::make_unique_for_overwrite<char[]>(most);
  while (true) {
    const ssize_t count = ::recv(socket_.get(), bytes.get(), most, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (count <= 0) {
      lose_server("ended");
      return false;
    }
    in_.append(bytes.get(), static_cast<size_t>(count));
    try {
      size_t used = 0;
      while (true) {
        const wire::Frame frame = wire::first_frame(std::string_view(in_).substr(used));
        if (frame.size == 0) break;
        handle(frame);
        used += frame.size;
      }
      in_.erase(0, used);
    } catch (const std::exception& error) {
      lose_server(std::string("sent ") + error.what());
      return false;
    }
  }
}

void StoreClient::handle(const wire::Frame& frame) {
  wire::Reader reader(frame.contents);
  switch (frame.kind) {
    case wire::Kind::Beat:
    case wire::Kind::Left: return;
    case wire::Kind::Failed: {
      const std::string message = reader.text();
      watch_->fail(message);
      break;
    }
    case wire::Kind::Done:
    case wire::Kind::Text:
    case wire::Kind::Number:
    case wire::Kind::Members: {
      const std::lock_guard lock(mutex_);
      if (pending_.erase(frame.number) != 0) answers_[frame.number] = {frame.kind, std::string(frame.contents)};
      break;
    }
    default: throw wire::Malformed("an unknown message");
  }
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

void StoreClient::lose_server(const std::string& how) {
  bool leaving = false;
  std::string name;
  {
    const std::lock_guard lock(mutex_);
    leaving = leaving_;
    name = server_name();
  }
  if (!leaving) watch_->fail(name + " " + how);
  const std::lock_guard lock(mutex_);
  lost_ = true;
  changed_.notify_all();
}

}  // namespace anyaccel::comm
