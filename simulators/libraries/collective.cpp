// Runs collectives. 16-bit numbers are added in fp32, in rank order, and rounded once.
#include "simulators/libraries/collective.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <type_traits>

#include "simulators/libraries/product.h"

namespace sim_library {
namespace {

template <typename T>
T combined(T a, T b, int reduction) {
  switch (reduction) {
    case kProduct: return static_cast<T>(a * b);
    case kMax: return std::max(a, b);
    case kMin: return std::min(a, b);
    default: return static_cast<T>(a + b);
  }
}

// Element i of every rank's buffer, reduced.
template <typename T>
void reduce_as(const Rendezvous& at, std::size_t count, int reduction, char* out) {
  // Integers wrap around as they do on the device.
  using Sum = typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::type_identity<T>>::type;
  for (std::size_t i = 0; i < count; ++i) {
    T result{};
    for (int rank = 0; rank < at.ranks(); ++rank) {
      T value;
      std::memcpy(&value, at.buffer(rank) + i * sizeof(T), sizeof(T));
      if (rank == 0) {
        result = value;
      } else if (reduction == kMax || reduction == kMin) {
        result = combined(result, value, reduction);
      } else {
        result = static_cast<T>(combined(static_cast<Sum>(result), static_cast<Sum>(value), reduction));
      }
    }
    if (reduction == kAverage) result = static_cast<T>(result / static_cast<T>(at.ranks()));
    std::memcpy(out + i * sizeof(T), &result, sizeof(T));
  }
}

void reduce_small(const Rendezvous& at, std::size_t count, int type, int reduction, char* out) {
  const int as = type == kHalf ? static_cast<int>(kF16) : static_cast<int>(kBf16);
  for (std::size_t i = 0; i < count; ++i) {
    float result = load_number(at.buffer(0) + i * 2, as);
    for (int rank = 1; rank < at.ranks(); ++rank) {
      result = combined(result, load_number(at.buffer(rank) + i * 2, as), reduction);
    }
    if (reduction == kAverage) result /= static_cast<float>(at.ranks());
    store_number(out + i * 2, as, result);
  }
}

void reduce(const Rendezvous& at, std::size_t count, int type, int reduction, char* out) {
  switch (type) {
    case kInt8: return reduce_as<std::int8_t>(at, count, reduction, out);
    case kUint8: return reduce_as<std::uint8_t>(at, count, reduction, out);
    case kInt16: return reduce_as<std::int16_t>(at, count, reduction, out);
    case kUint16: return reduce_as<std::uint16_t>(at, count, reduction, out);
    case kInt32: return reduce_as<std::int32_t>(at, count, reduction, out);
    case kUint32: return reduce_as<std::uint32_t>(at, count, reduction, out);
    case kInt64: return reduce_as<std::int64_t>(at, count, reduction, out);
    case kUint64: return reduce_as<std::uint64_t>(at, count, reduction, out);
    case kFloat: return reduce_as<float>(at, count, reduction, out);
    case kDouble: return reduce_as<double>(at, count, reduction, out);
    default: return reduce_small(at, count, type, reduction, out);
  }
}

std::string text_of(const OperationHeader& header) {
  return std::string(header.name) + " of " + std::to_string(header.count) + " elements, type " +
         std::to_string(header.type) + ", reduction " + std::to_string(header.reduction) + ", root " +
         std::to_string(header.root);
}

Outcome broken(const Rendezvous& at) {
  // Whoever waits in vain has done nothing wrong himself if the other has died or aborted.
  return {at.text(), at.text().find("has waited") != std::string::npos ? "hang" : ""};
}

// All ranks are here, and about to do the same.
Outcome agree(Channel& channel, const Collective& collective) {
  Rendezvous& at = *channel.rendezvous;
  const char* name = name_of(collective.kind);
  OperationHeader& mine = at.header(at.rank());
  mine = {};
  std::strncpy(mine.name, name, sizeof mine.name - 1);
  mine.count = collective.count;
  mine.sequence = ++channel.operations;
  mine.type = collective.type;
  mine.reduction = collective.reduction;
  mine.root = collective.root;
  if (!at.barrier(name)) return broken(at);
  for (int rank = 0; rank < at.ranks(); ++rank) {
    const OperationHeader& other = at.header(rank);
    if (std::memcmp(&other, &mine, sizeof mine) == 0) continue;
    return {"operation " + std::to_string(mine.sequence) + ": rank " + std::to_string(at.rank()) + " does " +
                text_of(mine) + ", rank " + std::to_string(rank) + " does " + text_of(other),
            "collective-mismatch"};
  }
  return {};
}

}  // namespace

std::size_t nccl_type_bytes(int type) {
  static constexpr std::size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1, 2, 2};
  return type >= 0 && static_cast<std::size_t>(type) < std::size(sizes) ? sizes[type] : 0;
}
bool nccl_reducible(int type) { return nccl_type_bytes(type) != 0 && type != kE4m3 && type != kE5m2; }

const char* name_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_reduce: return "all-reduce";
    case CollectiveKind::reduce: return "reduce";
    case CollectiveKind::broadcast: return "broadcast";
    case CollectiveKind::all_gather: return "all-gather";
    case CollectiveKind::reduce_scatter: return "reduce-scatter";
  }
  return "";
}

Outcome run_collective(Channel& channel, const Collective& collective, const char* send, char* receive) {
  const std::lock_guard lock(channel.mutex);
  Rendezvous& at = *channel.rendezvous;
  const char* name = name_of(collective.kind);
  if (Outcome outcome = agree(channel, collective); !outcome.text.empty()) return outcome;
  const std::size_t size = nccl_type_bytes(collective.type);
  const std::size_t step = Rendezvous::kBufferBytes / size;
  const int rank = at.rank();
  // reduce_scatter is one reduction after the other, each to another rank.
  const bool scatters = collective.kind == CollectiveKind::reduce_scatter;
  for (int part = 0; part < (scatters ? at.ranks() : 1); ++part) {
    for (std::size_t begin = 0; begin < collective.count; begin += step) {
      const std::size_t count = std::min(step, collective.count - begin);
      const std::size_t from = (static_cast<std::size_t>(part) * (scatters ? collective.count : 0) + begin) * size;
      const bool sends = collective.kind != CollectiveKind::broadcast || rank == collective.root;
      if (sends) std::memcpy(at.buffer(rank), send + from, count * size);
      if (!at.barrier(name)) return broken(at);
      switch (collective.kind) {
        case CollectiveKind::all_reduce:
          reduce(at, count, collective.type, collective.reduction, receive + begin * size);
          break;
        case CollectiveKind::reduce:
          if (rank != collective.root) break;
          reduce(at, count, collective.type, collective.reduction, receive + begin * size);
          break;
        case CollectiveKind::reduce_scatter:
          if (rank != part) break;
          reduce(at, count, collective.type, collective.reduction, receive + begin * size);
          break;
        case CollectiveKind::broadcast:
          std::memcpy(receive + begin * size, at.buffer(collective.root), count * size);
          break;
        case CollectiveKind::all_gather:
          for (int other = 0; other < at.ranks(); ++other) {
            std::memcpy(receive + (static_cast<std::size_t>(other) * collective.count + begin) * size, at.buffer(other),
                        count * size);
          }
          break;
      }
      if (!at.barrier(name)) return broken(at);
    }
  }
  return {};
}

Outcome run_transfers(Channel& channel, std::vector<Transfer> transfers) {
  const std::lock_guard lock(channel.mutex);
  Rendezvous& at = *channel.rendezvous;
  std::vector<std::size_t> done(transfers.size());
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  auto began = static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
  for (;;) {
    bool moved = false, left = false;
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      Transfer& transfer = transfers[i];
      if (done[i] == transfer.size) continue;
      // Transfers between the same two ranks go one after the other.
      const bool blocked = std::any_of(
          transfers.begin(), transfers.begin() + static_cast<std::ptrdiff_t>(i), [&](const Transfer& earlier) {
            const auto k = static_cast<std::size_t>(&earlier - transfers.data());
            return earlier.send == transfer.send && earlier.peer == transfer.peer && done[k] != earlier.size;
          });
      left = true;
      if (blocked) continue;
      std::size_t count = std::min(Rendezvous::kMailBytes, transfer.size - done[i]);
      if (transfer.send) {
        if (!at.fill(transfer.peer, transfer.bytes + done[i], count)) continue;
      } else {
        count = transfer.size - done[i];
        const std::size_t place = count;
        if (!at.empty(transfer.peer, transfer.bytes + done[i], &count)) continue;
        if (count > place) {
          return {"a receive: rank " + std::to_string(transfer.peer) + " sends more than is received",
                  "collective-mismatch"};
        }
      }
      done[i] += count;
      moved = true;
    }
    if (!left) return {};
    if (!moved && !at.wait_for_mail("sends and receives", began)) return broken(at);
  }
}

}  // namespace sim_library
