// The job's store: keys and values over TCP, who is let in, and what nonsense on its port does: nothing.
#include "comm/store/store.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <random>
#include <thread>

#include "anyaccel/error.h"
#include "base/hmac.h"
#include "comm/store/handshake.h"
#include "comm/store/store_client.h"
#include "comm/store/store_connect.h"
#include "comm/store/store_server.h"
#include "free_port.h"

namespace anyaccel::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

std::string hex(const Digest& digest) {
  std::string text;
  for (const uint8_t byte : digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

// FIPS 180-4's examples and RFC 4231's test cases 1, 2 and 6.
TEST(Hmac, KnownAnswers) {
  EXPECT_EQ(hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(hmac_sha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

StoreServer::Options server_options(int port, const std::string& token = "token") {
  StoreServer::Options options;
  options.address = "127.0.0.1";
  options.port = port;
  options.token = token;
  options.size = 2;
  options.join_timeout = seconds(60);
  return options;
}

std::unique_ptr<StoreClient> connect(int port, const std::string& token = "token", milliseconds timeout = seconds(30)) {
  StoreClient::Options options;
  options.address = "127.0.0.1";
  options.port = port;
  options.token = token;
  options.timeout = timeout;
  return std::make_unique<StoreClient>(options, std::make_shared<JobWatch>());
}

// A connection without manners.
FileDescriptor raw_connection(int port) {
  std::string why;
  for (int attempt = 0; attempt < 100; ++attempt) {
    FileDescriptor socket =
        connect_to(resolve("127.0.0.1", port).at(0), std::chrono::steady_clock::now() + seconds(30), why);
    if (socket) return socket;
    std::this_thread::sleep_for(milliseconds(10));
  }
  ADD_FAILURE() << why;
  return {};
}

void send_raw(const FileDescriptor& socket, std::string_view bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t count = ::send(socket.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EAGAIN) {
      pollfd entry{socket.get(), POLLOUT, 0};
      ::poll(&entry, 1, 1000);
      continue;
    }
    if (count <= 0) return;  // disconnected, as it deserves
    sent += static_cast<size_t>(count);
  }
}

// Receives until the other side closes; false when it does not within half a minute.
bool read_to_end(const FileDescriptor& socket, std::string& bytes) {
  char buffer[4096];
  while (true) {
    pollfd entry{socket.get(), POLLIN, 0};
    if (::poll(&entry, 1, 30000) <= 0) return false;
    const ssize_t count = ::recv(socket.get(), buffer, sizeof(buffer), 0);
    if (count <= 0) return true;
    bytes.append(buffer, static_cast<size_t>(count));
  }
}

void expect_alive(int port) {
  const auto client = connect(port);
  client->set("alive", "yes");
  EXPECT_EQ(client->get("alive", seconds(30)), "yes");
}

class AnyStore : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam()) {
      const int port = free_port();
      server_ = std::make_unique<StoreServer>(server_options(port));
      first_ = connect(port);
      second_ = connect(port);
    } else {
      first_ = second_ = make_local_store();
    }
  }
  std::unique_ptr<StoreServer> server_;
  std::shared_ptr<Store> first_;
  std::shared_ptr<Store> second_;
};

TEST_P(AnyStore, KeysAndValues) {
  const std::string binary("a\0b\xff", 4);
  first_->set("key", binary);
  EXPECT_EQ(second_->get("key", seconds(30)), binary);
  first_->set("key", "");
  EXPECT_EQ(second_->get("key", seconds(30)), "");
  const std::string large(1 << 20, 'x');
  second_->set("large", large);
  EXPECT_EQ(first_->get("large", seconds(30)), large);
}

TEST_P(AnyStore, GetWaitsUntilTheKeyIsSet) {
  std::string seen;
  std::thread waiter([&] { seen = second_->get("late", seconds(60)); });
  std::this_thread::sleep_for(milliseconds(20));
  first_->set("late", "came");
  waiter.join();
  EXPECT_EQ(seen, "came");
}

TEST_P(AnyStore, GetGivesUpAndNamesTheKey) {
  try {
    first_->get("nobody sets this", milliseconds(30));
    FAIL();
  } catch (const CommunicationError& error) {
    EXPECT_HAS(std::string(error.what()), "nobody sets this");
    EXPECT_HAS(std::string(error.what()), "30 ms");
    EXPECT_EQ(error.code(), AA_DEADLINE_EXCEEDED);
  }
  first_->set("nobody sets this", "after all");  // and the answer to the old request disturbs nobody
  EXPECT_EQ(first_->get("nobody sets this", seconds(30)), "after all");
}

TEST_P(AnyStore, CountersAddUp) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) (t % 2 ? first_ : second_)->add("count", 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(first_->add("count", -200), 0);
}

TEST_P(AnyStore, RemoveAndPrefixes) {
  const auto a = make_prefixed_store(first_, "a/");
  const auto b = make_prefixed_store(a, "b/");
  b->set("key", "1");
  EXPECT_EQ(second_->get("a/b/key", seconds(30)), "1");
  EXPECT_EQ(b->add("n", 5), 5);
  b->remove("key");
  b->remove("n");
  EXPECT_THROW(second_->get("a/b/key", milliseconds(20)), CommunicationError);
  EXPECT_EQ(b->add("n", 1), 1);
}

INSTANTIATE_TEST_SUITE_P(Both, AnyStore, ::testing::Values(false, true),
                         [](const auto& instance) { return instance.param ? "Tcp" : "Local"; });

TEST(Store, ClientsWaitForTheServer) {
  const int port = free_port();
  std::thread late([&] {
    std::this_thread::sleep_for(milliseconds(150));
    const StoreServer server(server_options(port));
    std::this_thread::sleep_for(milliseconds(400));
  });
  EXPECT_NO_THROW(connect(port));
  late.join();
}

TEST(Store, NobodyThere) {
  const int port = free_port();
  try {
    connect(port, "token", milliseconds(100));
    FAIL();
  } catch (const CommunicationError& error) {
    EXPECT_HAS(std::string(error.what()), "127.0.0.1:" + std::to_string(port));
    EXPECT_HAS(std::string(error.what()), "0.1 s");
    EXPECT_HAS(std::string(error.what()), "Rank 0");
  }
}

TEST(Store, PortInUse) {
  const int port = free_port();
  const StoreServer first(server_options(port));
  try {
    const StoreServer second(server_options(port));
    FAIL();
  } catch (const CommunicationError& error) {
    EXPECT_HAS(std::string(error.what()), "port " + std::to_string(port));
    EXPECT_HAS(std::string(error.what()), "MASTER_PORT");
  }
}

TEST(Store, NotAnAddressOfThisHost) {
  StoreServer::Options options = server_options(free_port());
  options.address = "192.0.2.1";  // reserved for documentation (RFC 5737)
  try {
    const StoreServer server(std::move(options));
    FAIL();
  } catch (const CommunicationError& error) {
    EXPECT_HAS(std::string(error.what()), "MASTER_ADDR=192.0.2.1");
  }
  EXPECT_THROW(resolve("no-such-host.invalid", 1), InvalidArgument);
}

// It listens on the address that was named, and on no other.
TEST(Store, ListensOnItsAddressOnly) {
  const int port = free_port();
  const StoreServer server(server_options(port));
  std::string why;
  SocketAddress other = resolve("127.0.0.2", port).at(0);  // this host as well, another address
  EXPECT_FALSE(connect_to(other, std::chrono::steady_clock::now() + seconds(5), why));
  EXPECT_TRUE(raw_connection(port));
}

TEST(Store, TokensMustAgree) {
  struct Case {
    std::string server, client, message;
  };
  for (const Case& c : {Case{"right", "wrong", "is not the job's"}, Case{"right", "", "is not set in this process"},
                        Case{"", "mine", "not in that of rank 0"}}) {
    const int port = free_port();
    const StoreServer server(server_options(port, c.server));
    try {
      connect(port, c.client);
      ADD_FAILURE() << c.message;
    } catch (const CommunicationError& error) {
      EXPECT_HAS(std::string(error.what()), "ANYACCEL_JOB_TOKEN");
      EXPECT_HAS(std::string(error.what()), c.message);
      EXPECT_EQ(error.code(), AA_PERMISSION_DENIED);
    }
    EXPECT_NO_THROW(connect(port, c.server));
  }
}

// A server that took the port and does not know the token cannot pass for rank 0, whatever it says.
TEST(Store, AServerThatDoesNotKnowTheTokenIsFound) {
  const int port = free_port();
  std::vector<FileDescriptor> listening = listen_on("127.0.0.1", port);
  std::thread impostor([&] {
    pollfd entry{listening[0].get(), POLLIN, 0};
    ::poll(&entry, 1, 30000);
    const FileDescriptor socket(::accept(listening[0].get(), nullptr, nullptr));
    send_raw(socket, wire::greeting(true, wire::random_nonce()));
    std::string ignored(wire::greeting_size + wire::proof_size, '\0');
    for (size_t at = 0; at < ignored.size();) {
      const ssize_t count = ::recv(socket.get(), ignored.data() + at, ignored.size() - at, 0);
      if (count <= 0) break;
      at += static_cast<size_t>(count);
    }
    send_raw(socket, "\1" + std::string(wire::proof_size, 'x'));
    std::string rest;
    read_to_end(socket, rest);
  });
  try {
    connect(port);
    ADD_FAILURE();
  } catch (const CommunicationError& error) {
    EXPECT_HAS(std::string(error.what()), "does not know the job's token");
  }
  impostor.join();
}

TEST(Store, AnotherProgramOnThePort) {
  const int port = free_port();
  std::vector<FileDescriptor> listening = listen_on("127.0.0.1", port);
  std::thread other([&] {
    pollfd entry{listening[0].get(), POLLIN, 0};
    ::poll(&entry, 1, 30000);
    const FileDescriptor socket(::accept(listening[0].get(), nullptr, nullptr));
    send_raw(socket, "220 mail.example ESMTP ready, good morning\r\n");
    std::string rest;
    read_to_end(socket, rest);
  });
  try {
    connect(port);
    ADD_FAILURE();
  } catch (const CommunicationError& error) {
    EXPECT_HAS(std::string(error.what()), "is not the store of a job");
    EXPECT_HAS(std::string(error.what()), "MASTER_PORT");
  }
  other.join();
}

TEST(Store, SomethingThatNeverAnswers) {
  const int port = free_port();
  const std::vector<FileDescriptor> listening = listen_on("127.0.0.1", port);
  try {
    connect(port, "token", milliseconds(200));
    FAIL();
  } catch (const CommunicationError& error) {
    EXPECT_HAS(std::string(error.what()), "says nothing");
  }
}

// Bytes of chance before the proof, and, worse, after it.
TEST(Store, NonsenseIsDropped) {
  const int port = free_port();
  StoreServer::Options options = server_options(port);
  options.times.handshake = milliseconds(100);
  options.times.beat = milliseconds(20);
  const StoreServer server(std::move(options));
  std::mt19937 random(7);
  const auto noise = [&](size_t size) {
    std::string bytes(size, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    return bytes;
  };
  for (int round = 0; round < 60; ++round) {
    const FileDescriptor socket = raw_connection(port);
    std::string bytes = noise(random() % 3000);
    if (round % 3 == 1) bytes = std::string(wire::magic) + bytes;
    if (round % 3 == 2) bytes = wire::greeting(true, noise(wire::nonce_size)) + bytes;
    send_raw(socket, bytes);
    if (round % 2 == 0) ::shutdown(socket.get(), SHUT_WR);
    std::string answer;
    EXPECT_TRUE(read_to_end(socket, answer)) << "the server keeps a connection that makes no sense, round " << round;
  }
  for (int round = 0; round < 60; ++round) {  // knows the token, and then speaks nonsense
    const FileDescriptor socket = raw_connection(port);
    std::string greeting(wire::greeting_size, '\0');
    for (size_t at = 0; at < greeting.size();) {
      pollfd entry{socket.get(), POLLIN, 0};
      ASSERT_GT(::poll(&entry, 1, 30000), 0);
      const ssize_t count = ::recv(socket.get(), greeting.data() + at, greeting.size() - at, 0);
      ASSERT_GT(count, 0);
      at += static_cast<size_t>(count);
    }
    const std::string nonce = noise(wire::nonce_size);
    std::string bytes =
        wire::greeting(true, nonce) +
        wire::proof("token", "client", std::string_view(greeting).substr(wire::magic.size() + 1), nonce);
    if (round % 2 == 0) {
      bytes += noise(1 + random() % 2000);
    } else {  // frames of a sensible length
      const std::string contents = noise(random() % 64);
      std::string frame;
      const auto length = static_cast<uint32_t>(contents.size() + 5);
      for (int i = 0; i < 4; ++i) frame.push_back(static_cast<char>(length >> (8 * i) & 0xff));
      frame.push_back(static_cast<char>(random() % 12));
      bytes += frame + noise(4) + contents;
    }
    send_raw(socket, bytes);
    ::shutdown(socket.get(), SHUT_WR);
    std::string answer;
    EXPECT_TRUE(read_to_end(socket, answer)) << round;
  }
  expect_alive(port);
}

// Clients that send nothing, or one byte now and then, do not slow down others and are disconnected.
TEST(Store, SlowAndSilentConnectionsAreClosed) {
  const int port = free_port();
  StoreServer::Options options = server_options(port);
  options.times.handshake = milliseconds(300);
  options.times.beat = milliseconds(50);
  const StoreServer server(std::move(options));
  const FileDescriptor silent = raw_connection(port);
  const FileDescriptor slow = raw_connection(port);
  std::vector<FileDescriptor> crowd;
  for (int i = 0; i < 200; ++i) crowd.push_back(raw_connection(port));
  expect_alive(port);
  const std::string start = wire::greeting(true, std::string(wire::nonce_size, 'n'));
  for (size_t i = 0; i < 20; ++i) {
    send_raw(slow, start.substr(i, 1));
    std::this_thread::sleep_for(milliseconds(30));
  }
  std::string bytes;
  EXPECT_TRUE(read_to_end(silent, bytes));
  EXPECT_TRUE(read_to_end(slow, bytes));
  expect_alive(port);
}

TEST(Store, TheServersEndIsNoticed) {
  const int port = free_port();
  auto server = std::make_unique<StoreServer>(server_options(port));
  StoreClient::Options options;
  options.address = "127.0.0.1";
  options.port = port;
  options.token = "token";
  options.timeout = seconds(30);
  const auto watch = std::make_shared<JobWatch>();
  StoreClient client(options, watch);
  std::thread ends([&] {
    std::this_thread::sleep_for(milliseconds(30));
    server.reset();
  });
  try {
    client.get("never", seconds(60));
    ADD_FAILURE();
  } catch (const CommunicationError& error) {
    EXPECT_HAS(std::string(error.what()), "serves the job's store");
    EXPECT_HAS(std::string(error.what()), "ended");
  }
  ends.join();
  EXPECT_TRUE(watch->failed());
  EXPECT_THROW(client.set("a", "b"), CommunicationError);
}

// Rank 0's process serves the store: once it knows of a failure, it may end before anybody else is told.
TEST(Store, RankZeroLearnsOfAFailureLast) {
  for (int round = 0; round < 10; ++round) {
    const int port = free_port();
    StoreServer::Options options = server_options(port);
    options.size = 100;  // so that telling all of them takes a while
    options.times.beat = seconds(60);
    const StoreServer server(options);
    std::vector<FileDescriptor> ranks;
    for (int rank = 0; rank < options.size; ++rank) {
      ranks.push_back(connect_to_store("127.0.0.1", port, "token", seconds(30)));
      wire::JoinInfo self;
      self.rank = rank;
      self.size = options.size;
      send_raw(ranks.back(), wire::Writer(wire::Kind::Join, 1).info(self).frame());
    }
    const auto received = [&](size_t rank, std::string& bytes) {
      char buffer[4096];
      const ssize_t count = ::recv(ranks[rank].get(), buffer, sizeof(buffer), MSG_DONTWAIT);
      if (count > 0) bytes.append(buffer, static_cast<size_t>(count));
      return wire::first_frame(bytes).size != 0;
    };
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      for (std::string members; !received(rank, members);) std::this_thread::yield();
    }
    send_raw(ranks[1], wire::Writer(wire::Kind::Fail).text("the cause").frame());
    std::string first, last;
    while (!received(0, first)) std::this_thread::yield();
    // Loopback delivers in the order of the sends.
    ASSERT_TRUE(received(ranks.size() - 1, last)) << "round " << round;
    EXPECT_HAS(last, "the cause");
  }
}

TEST(Store, AValueThatIsTooLong) {
  const int port = free_port();
  const StoreServer server(server_options(port));
  EXPECT_THROW(connect(port)->set("key", std::string(wire::max_value + 1, 'x')), InvalidArgument);
  expect_alive(port);
}

}  // namespace
}  // namespace anyaccel::comm
