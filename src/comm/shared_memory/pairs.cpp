// Implements messages between two members.
#include "comm/shared_memory/pairs.h"

#include <algorithm>
#include <cstring>

#include "base/copy_bytes.h"

namespace anyaccel::comm::shm {
namespace {

constexpr size_t kPadding = 16;
// A large message is published in pieces, so that the receiver can read the first ones while the next are written.
constexpr size_t kPiece = kRingBytes / 4;

size_t padded(size_t bytes) { return (bytes + kPadding - 1) / kPadding * kPadding; }

std::string amount_text(const Amount& amount) {
  if (amount.dtype == DType::None) return std::to_string(amount.bytes) + " bytes";
  return std::to_string(amount.bytes / dtype_size(amount.dtype)) + ' ' + std::string(dtype_name(amount.dtype));
}

std::string described(const char* what, const Amount& amount, const char* where, const std::string& peer, int tag) {
  return std::string(what) + " of " + amount_text(amount) + ' ' + where + ' ' + peer + " (tag " + std::to_string(tag) +
         ')';
}

}  // namespace

void Pairs::send(const void* data, Amount amount, int peer, int tag) {
  group_.throw_if_failed();
  group_.set_activity(described("send", amount, "to", group_.name_of(peer), tag));
  const MessageHeader header{amount.bytes, tag, amount.dtype};
  write(&header, sizeof(header), peer);
  write(data, amount.bytes, peer);
  group_.clear_activity();
}

void Pairs::write(const void* data, size_t bytes, int peer) {
  const auto* from = static_cast<const char*>(data);
  std::atomic<uint64_t>& sent = group_.mine(peer).sent.value;
  const std::atomic<uint64_t>& taken = group_.of(peer).taken.value;
  char* const ring = group_.ring_to(peer);
  size_t left = padded(bytes);
  while (left > 0) {
    const uint64_t head = sent.load(std::memory_order_relaxed);
    const auto room = [&] { return kRingBytes - (head - taken.load(std::memory_order_acquire)); };
    size_t piece = std::min({room(), left, kPiece});
    if (piece == 0) {
      if (!keep_arrived())
        group_.wait([&] { return room() != 0 || anything_arrived(); }, SharedMemoryGroup::kOnlyPeer, peer);
      continue;
    }
    const size_t at = head % kRingBytes;
    piece = std::min(piece, kRingBytes - at);
    const size_t useful = std::min(piece, bytes);  // the rest is padding
    if (useful > 0) copy_bytes(ring + at, from, useful);
    from += useful;
    bytes -= useful;
    left -= piece;
    sent.store(head + piece, std::memory_order_release);
    group_.wake_sleepers();
  }
}

void Pairs::recv(void* data, Amount amount, int peer, int tag) {
  const size_t bytes = amount.bytes;
  group_.throw_if_failed();
  group_.set_activity(described("recv", amount, "from", group_.name_of(peer), tag));
  Kept& kept = incoming_[static_cast<size_t>(peer)];
  const auto wanted = std::find_if(kept.begin(), kept.end(), [&](const Message& m) { return m.tag == tag; });
  if (wanted != kept.end()) {
    check_amount(amount, {wanted->bytes, wanted->dtype}, peer, tag);
    while (!wanted->complete()) {
      wait_for_bytes(peer, 1);
      keep_more(peer);
    }
    if (bytes > 0) copy_bytes(data, wanted->data.get(), bytes);
    kept.erase(wanted);
    group_.clear_activity();
    return;
  }
  while (true) {
    while (!kept.empty() && !kept.back().complete()) {
      wait_for_bytes(peer, 1);
      keep_more(peer);
    }
    wait_for_bytes(peer, sizeof(MessageHeader));
    MessageHeader header{};
    std::memcpy(&header,
                group_.ring_from(peer) + group_.mine(peer).taken.value.load(std::memory_order_relaxed) % kRingBytes,
                sizeof(header));
    if (header.tag == tag) break;
    keep_header(peer);
  }
  MessageHeader header{};
  read(&header, sizeof(header), peer);
  check_amount(amount, {header.bytes, header.dtype}, peer, tag);
  read(data, bytes, peer);
  read(nullptr, padded(bytes) - bytes, peer);
  group_.clear_activity();
}

size_t Pairs::available(int peer) const noexcept {
  return group_.of(peer).sent.value.load(std::memory_order_acquire) -
         group_.mine(peer).taken.value.load(std::memory_order_relaxed);
}

void Pairs::wait_for_bytes(int peer, size_t bytes) {
  group_.wait([&] { return available(peer) >= bytes; }, SharedMemoryGroup::kOnlyPeer, peer);
}

size_t Pairs::read_some(void* data, size_t bytes, int peer) {
  std::atomic<uint64_t>& taken = group_.mine(peer).taken.value;
  const uint64_t tail = taken.load(std::memory_order_relaxed);
  const size_t at = tail % kRingBytes;
  const size_t piece = std::min({available(peer), bytes, kRingBytes - at, kPiece});
  if (piece == 0) return 0;
  if (data) copy_bytes(data, group_.ring_from(peer) + at, piece);
  taken.store(tail + piece, std::memory_order_release);
  group_.wake_sleepers();
  return piece;
}

void Pairs::read(void* data, size_t bytes, int peer) {
  auto* to = static_cast<char*>(data);
  while (bytes > 0) {
    wait_for_bytes(peer, 1);
    const size_t piece = read_some(to, bytes, peer);
    if (to) to += piece;
    bytes -= piece;
  }
}

void Pairs::keep_header(int peer) {
  MessageHeader header{};
  read(&header, sizeof(header), peer);
  Message message{.tag = header.tag, .dtype = header.dtype, .bytes = header.bytes, .have = 0, .data = nullptr};
  message.data.reset(new char[padded(header.bytes)]);
  incoming_[static_cast<size_t>(peer)].push_back(std::move(message));
}

void Pairs::keep_more(int peer) {
  Message& message = incoming_[static_cast<size_t>(peer)].back();
  const size_t whole = padded(message.bytes);
  message.have += read_some(message.data.get() + message.have, whole - message.have, peer);
}

bool Pairs::anything_arrived() const noexcept {
  for (int peer = 0; peer < group_.size(); ++peer) {
    if (available(peer) > 0) return true;
  }
  return false;
}

bool Pairs::keep_arrived() {
  bool any = false;
  for (int peer = 0; peer < group_.size(); ++peer) {
    Kept& kept = incoming_[static_cast<size_t>(peer)];
    while (available(peer) > 0) {
      any = true;
      if (kept.empty() || kept.back().complete()) {
        keep_header(peer);
      } else {
        keep_more(peer);
      }
    }
  }
  return any;
}

void Pairs::check_amount(const Amount& expected, const Amount& sent, int peer, int tag) {
  if (expected.bytes == sent.bytes && expected.dtype == sent.dtype) return;
  group_.fail(described("recv", expected, "from", group_.name_of(peer), tag) + ": it sent " + amount_text(sent),
              AA_INVALID_ARGUMENT);
}

}  // namespace anyaccel::comm::shm
