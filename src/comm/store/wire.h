// Defines the protocol between the store's server and its clients.
//
// A connection opens with a greeting of fixed size, by which both sides prove that they know the job's token:
//   server: magic, whether it has a token, nonce          (greeting_size bytes)
//   client: the same, then HMAC(token, "client" + both nonces, the server's first)
//   server: accepted (1) or refused (0), then HMAC(token, "server" + both nonces)
// Then frames in both directions: length of what follows the length (4 bytes), kind (1), request number (4), contents.
// Numbers are little-endian. A text is its length (4 bytes) and its bytes.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace anyaccel::comm::wire {

constexpr std::string_view magic = "AASTORE2";  // the digit is the version
constexpr size_t nonce_size = 16;
constexpr size_t greeting_size = magic.size() + 1 + nonce_size;
constexpr size_t proof_size = 32;
constexpr size_t verdict_size = 1 + proof_size;
constexpr size_t frame_header_size = 9;
constexpr size_t max_value = size_t{1} << 20;
constexpr size_t max_frame = max_value + 65536;

enum class Kind : uint8_t {
  // Sent by clients. Requests with an answer have a request number, which the answer repeats.
  Set = 1,  // key, value                     -> Done
  Get,      // key                            -> Text, when it is set
  Cancel,   // number of a Get that is not waited for any more
  Add,      // key, amount                    -> Number
  Remove,   // key                            -> Done
  Join,     // a JoinInfo                     -> Members, when all have come
  Goodbye,  // leaves the job in order        -> Done
  Fail,     // text: this rank has failed
  Ended,    // rank, text: its process has ended ("with exit code 0"), says who started it  -> Done
  // Sent by the server.
  Done = 64,
  Text,
  Number,
  Members,  // count, then as many JoinInfo
  Failed,   // text: the job failed
  Left,     // number: a rank said goodbye
  // The heartbeat, sent by both sides every second.
  Beat = 128,
};

// A process that joins.
struct JoinInfo {
  int rank = 0;
  int size = 1;
  int local_rank = -1;  // from its environment; -1: not set
  int local_size = -1;
  int64_t pid = 0;
  bool device_library = false;  // its accelerator has its own collectives
  std::string host_id;          // equal for processes that share memory and network
  std::string host_name;        // for messages
  std::string backend;          // the backend that it requests
};

// Thrown for bytes that are not a valid message.
class Malformed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Writer {
 public:
  explicit Writer(Kind kind, uint32_t number = 0) {
    u32(0);
    bytes_.push_back(static_cast<char>(kind));
    u32(number);
  }
  Writer& u32(uint32_t value) { return little(value, 4); }
  Writer& i64(int64_t value) { return little(static_cast<uint64_t>(value), 8); }
  Writer& text(std::string_view value) {
    u32(static_cast<uint32_t>(value.size()));
    bytes_.append(value);
    return *this;
  }
  Writer& info(const JoinInfo& info) {
    return i64(info.rank)
        .i64(info.size)
        .i64(info.local_rank)
        .i64(info.local_size)
        .i64(info.pid)
        .i64(info.device_library)
        .text(info.host_id)
        .text(info.host_name)
        .text(info.backend);
  }
  // Returns the whole frame.
  std::string frame() {
    const auto length = static_cast<uint32_t>(bytes_.size() - 4);
    for (size_t i = 0; i < 4; ++i) bytes_[i] = static_cast<char>(length >> (8 * i) & 0xff);
    return std::move(bytes_);
  }

 private:
  Writer& little(uint64_t value, int count) {
    for (int i = 0; i < count; ++i) bytes_.push_back(static_cast<char>(value >> (8 * i) & 0xff));
    return *this;
  }
  std::string bytes_;
};

// Reads a frame's contents; throws Malformed past its end.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  uint32_t u32() { return static_cast<uint32_t>(little(4)); }
  int64_t i64() { return static_cast<int64_t>(little(8)); }
  std::string text() { return std::string(take(u32())); }
  JoinInfo info() {
    JoinInfo result;
    result.rank = small();
    result.size = small();
    result.local_rank = small();
    result.local_size = small();
    result.pid = i64();
    result.device_library = i64() != 0;
    result.host_id = text();
    result.host_name = text();
    result.backend = text();
    return result;
  }
  void end() const {
    if (!bytes_.empty()) throw Malformed("a message has more bytes than its kind");
  }

 private:
  int small() {
    const int64_t value = i64();
    if (value < -1 || value > INT32_MAX) throw Malformed("a number is out of range");
    return static_cast<int>(value);
  }
  std::string_view take(size_t count) {
    if (count > bytes_.size()) throw Malformed("a message ends too early");
    const std::string_view result = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return result;
  }
  uint64_t little(size_t count) {
    const std::string_view raw = take(count);
    uint64_t value = 0;
    for (size_t i = 0; i < count; ++i) value |= static_cast<uint64_t>(static_cast<uint8_t>(raw[i])) << (8 * i);
    return value;
  }
  std::string_view bytes_;
};

// The first whole frame of `buffer`.
struct Frame {
  Kind kind = Kind::Beat;
  uint32_t number = 0;
  std::string_view contents;
  size_t size = 0;  // of the frame with its header; 0: more bytes are needed
};
inline Frame first_frame(std::string_view buffer) {
  Frame frame;
  if (buffer.size() < frame_header_size) return frame;
  Reader reader(buffer.substr(0, 4));
  const size_t length = reader.u32();
  if (length < frame_header_size - 4 || length > max_frame) {
    throw Malformed("a message of " + std::to_string(length) + " bytes");
  }
  if (buffer.size() < length + 4) return frame;
  frame.kind = static_cast<Kind>(static_cast<uint8_t>(buffer[4]));
  frame.number = Reader(buffer.substr(5, 4)).u32();
  frame.contents = buffer.substr(frame_header_size, length + 4 - frame_header_size);
  frame.size = length + 4;
  return frame;
}

}  // namespace anyaccel::comm::wire
