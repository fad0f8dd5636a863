// Implements StoreServer: connections and requests. Tracking of joined and missing ranks is in
// store_server_members.cpp.
#include "comm/store/store_server.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "anyaccel/log.h"
#include "base/files/open_files.h"
#include "base/process/start_thread.h"
#include "comm/store/handshake.h"

namespace anyaccel::comm {

namespace {

constexpr size_t max_strangers = 128;            // connections that have not authenticated yet
constexpr size_t max_unread = size_t{64} << 20;  // bytes that a client may leave unread before it is disconnected

}  // namespace

StoreServer::StoreServer(Options options)
    : options_(std::move(options)),
      listeners_(listen_on(options_.address, options_.port)),
      wake_(make_wake()),
      members_(static_cast<size_t>(options_.size)),
      failure_(options_.failure),
      join_deadline_(Clock::now() + options_.join_timeout),
      next_beat_(Clock::now() + options_.times.beat),
      thread_(start_thread("the job's store", [this] { serve(); })) {}

StoreServer::~StoreServer() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake(wake_);
  thread_.join();
}

bool StoreServer::wait_until_all_left(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [this] { return all_left_; });
}

void StoreServer::serve() noexcept {
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (stop_) return;
    }
    try {
      poll_once();
    } catch (const std::exception& error) {
      log_error(std::string("the job's store: ") + error.what());
    }
  }
}

void StoreServer::poll_once() {
  std::vector<pollfd> entries;
  entries.push_back({wake_.get(), POLLIN, 0});
  for (const FileDescriptor& listener : listeners_) entries.push_back({listener.get(), POLLIN, 0});
  const size_t first = entries.size();
  for (const Connection& connection : connections_) {
    entries.push_back(
        {connection.socket.get(), static_cast<short>(connection.out.empty() ? POLLIN : POLLIN | POLLOUT), 0});
  }
  const auto until_beat = std::chrono::ceil<std::chrono::milliseconds>(next_beat_ - Clock::now());
  ::poll(entries.data(), entries.size(), static_cast<int>(std::max<int64_t>(until_beat.count(), 0)));

  uint64_t woken = 0;
  if ((entries[0].revents & POLLIN) && ::read(wake_.get(), &woken, sizeof(woken)) < 0) woken = 0;
  // Before anything is accepted: entries and connections correspond.
  size_t i = first;
  for (Connection& connection : connections_) {
    const short events = entries[i++].revents;
    if (events & (POLLIN | POLLHUP | POLLERR)) receive(connection);
  }
  for (size_t listener = 1; listener < first; ++listener) {
    if (entries[listener].revents & POLLIN) accept_all(entries[listener].fd);
  }
  look_at_clocks();
  for (Connection& connection : connections_) flush(connection);
  connections_.remove_if([](const Connection& connection) { return !connection.socket; });
}

void StoreServer::accept_all(int listener) {
  while (true) {
    SocketAddress from;
    from.length = sizeof(from.storage);
    FileDescriptor socket(
        ::accept4(listener, reinterpret_cast<sockaddr*>(&from.storage), &from.length, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      // Out of file descriptors: poll would report the waiting connection again and again at once.
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS) {
        if (!std::exchange(full_, true)) {
          log_warning("the job's store cannot accept a connection: " + system_error_text(errno));
        }
        ::usleep(10000);
      }
      return;
    }
    const auto stranger = [](const Connection& c) { return c.socket && c.stage != Stage::Open; };
    if (static_cast<size_t>(std::count_if(connections_.begin(), connections_.end(), stranger)) >= max_strangers) {
      drop(*std::find_if(connections_.begin(), connections_.end(), stranger));  // the oldest
    }
    send_at_once(socket.get());
    Connection& connection = connections_.emplace_back();
    connection.socket = std::move(socket);
    connection.peer = from.text();
    connection.nonce = wire::random_nonce();
    connection.since = Clock::now();
    send(connection, wire::greeting(!options_.token.empty(), connection.nonce));
  }
}

void StoreServer::receive(Connection& connection) {
  constexpr size_t most = 65536;
  const auto bytes = std::make_unique_for_overwrite<char[]>(most);
  while (connection.socket) {
    const ssize_t count = ::recv(connection.socket.get(), bytes.get(), most, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (count <= 0) {
      drop(connection);
      return;
    }
    if (connection.stage == Stage::Closing) continue;
    connection.in.append(bytes.get(), static_cast<size_t>(count));
    try {
      if (connection.stage == Stage::Greeted) handshake(connection);
      if (connection.stage != Stage::Open) continue;
      connection.since = Clock::now();
      size_t used = 0;
      while (connection.socket) {
        const wire::Frame frame = wire::first_frame(std::string_view(connection.in).substr(used));
        if (frame.size == 0) break;
        handle(connection, frame);
        used += frame.size;
      }
      connection.in.erase(0, used);
    } catch (const wire::Malformed& error) {
      complain(connection, std::string("sent ") + error.what());
      drop(connection);
    }
  }
}

void StoreServer::handshake(Connection& connection) {
  constexpr size_t needed = wire::greeting_size + wire::proof_size;
  const std::string_view in = connection.in;
  const std::string_view start = in.substr(0, std::min(in.size(), wire::magic.size()));
  if (start != wire::magic.substr(0, start.size())) {
    complain(connection, "does not speak the protocol of the job's store");
    drop(connection);
    return;
  }
  if (in.size() < needed) return;
  const std::string_view nonce = in.substr(wire::magic.size() + 1, wire::nonce_size);
  const std::string expected = wire::proof(options_.token, "client", connection.nonce, nonce);
  const bool accepted = wire::proofs_equal(in.substr(wire::greeting_size, wire::proof_size), expected);
  send(connection, (accepted ? '\1' : '\0') + wire::proof(options_.token, "server", connection.nonce, nonce));
  if (accepted) {
    connection.stage = Stage::Open;
    connection.in.erase(0, needed);
  } else {
    complain(connection, "does not know the job's token (ANYACCEL_JOB_TOKEN)");
    connection.stage = Stage::Closing;  // until it has read the rejection and closes, or its time limit has passed
  }
}

void StoreServer::handle(Connection& connection, const wire::Frame& frame) {
  using wire::Kind;
  wire::Reader reader(frame.contents);
  const auto done = [&] { send(connection, wire::Writer(Kind::Done, frame.number).frame()); };
  switch (frame.kind) {
    case Kind::Set: {
      const std::string key = reader.text();
      std::string& value = values_[key] = reader.text();
      done();
      for (Connection& other : connections_) {
        for (auto entry = other.waiting.begin(); entry != other.waiting.end();) {
          if (entry->second != key) {
            ++entry;
            continue;
          }
          send(other, wire::Writer(Kind::Text, entry->first).text(value).frame());
          entry = other.waiting.erase(entry);
        }
      }
      break;
    }
    case Kind::Get: {
      const std::string key = reader.text();
      if (const auto found = values_.find(key); found != values_.end()) {
        send(connection, wire::Writer(Kind::Text, frame.number).text(found->second).frame());
      } else {
        connection.waiting[frame.number] = key;
      }
      break;
    }
    case Kind::Cancel: connection.waiting.erase(frame.number); break;
    case Kind::Add: {
      const std::string key = reader.text();
      const int64_t amount = reader.i64();
      send(connection, wire::Writer(Kind::Number, frame.number).i64(counters_[key] += amount).frame());
      break;
    }
    case Kind::Remove: {
      const std::string key = reader.text();
      values_.erase(key);
      counters_.erase(key);
      done();
      break;
    }
    case Kind::Join: join(connection, frame.number, reader.info()); break;
    case Kind::Goodbye:
      if (connection.rank >= 0) {
        members_[static_cast<size_t>(connection.rank)].presence = Presence::Left;
        for (Connection& other : connections_) {
          if (other.rank >= 0 && &other != &connection) {
            send(other, wire::Writer(Kind::Left).i64(connection.rank).frame());
          }
        }
      }
      done();
      note_presence();
      break;
    case Kind::Fail: {
      const std::string reason = reader.text();
      if (connection.rank >= 0) fail(member_name(connection.rank) + " failed: " + reason);
      break;
    }
    case Kind::Ended: {
      const int64_t rank = reader.i64();
      ended(rank, reader.text());
      done();
      break;
    }
    case Kind::Beat: break;
    default: throw wire::Malformed("an unknown message");
  }
  reader.end();
}

void StoreServer::flush(Connection& connection) {
  while (connection.socket && !connection.out.empty()) {
    const ssize_t count =
        ::send(connection.socket.get(), connection.out.data(), connection.out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) && connection.out.size() <= max_unread) return;
    if (count <= 0) {
      drop(connection);
      return;
    }
    connection.out.erase(0, static_cast<size_t>(count));
  }
}

// Closes it. The entry is removed at the end of the round, because callers may be iterating over the list.
void StoreServer::drop(Connection& connection) {
  connection.socket = FileDescriptor();
  connection.waiting.clear();
  connection.out.clear();
  const int rank = std::exchange(connection.rank, -1);
  if (rank >= 0 && members_[static_cast<size_t>(rank)].presence == Presence::Here) lose({rank}, "ended");
}

void StoreServer::complain(const Connection& connection, const std::string& why) {
  if (std::exchange(complained_, true)) return;
  log_warning("the job's store at " + options_.address + ":" + std::to_string(options_.port) +
              " disconnected something at " + connection.peer + " that " + why +
              ". The job continues; further ones are not reported.");
}

}  // namespace anyaccel::comm
