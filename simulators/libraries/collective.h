// Runs the collectives of a simulated communicator, piece by piece through the buffers of a rendezvous.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "simulators/libraries/rendezvous.h"

namespace sim_library {

// The numbers are those of ncclDataType_t and ncclRedOp_t; other vendors' faces translate theirs.
enum NcclType : int {
  kInt8,
  kUint8,
  kInt32,
  kUint32,
  kInt64,
  kUint64,
  kHalf,
  kFloat,
  kDouble,
  kBfloat16,
  kE4m3,
  kE5m2,
  kInt16,  // of other vendors, as the next
  kUint16
};
enum NcclReduction : int { kSum, kProduct, kMax, kMin, kAverage };
std::size_t nccl_type_bytes(int type);  // 0: unknown
bool nccl_reducible(int type);

enum class CollectiveKind { all_reduce, reduce, broadcast, all_gather, reduce_scatter };
const char* name_of(CollectiveKind kind);

struct Collective {
  CollectiveKind kind;
  std::uint64_t count;  // elements: of a rank's part for all_gather and reduce_scatter
  int type, reduction, root;
};

// One side of a send or a receive.
struct Transfer {
  bool send;
  int peer;
  char* bytes;
  std::size_t size;
};

// Empty, or what went wrong; `violation` is then the kind of the violation, or empty when the program is not to blame.
struct Outcome {
  std::string text, violation;
};

// A rank's end of the communicator; one operation runs at a time.
struct Channel {
  std::unique_ptr<Rendezvous> rendezvous;
  std::mutex mutex;
  std::uint64_t operations = 0;
};
// `send` or `receive` may be null where the operation does not use it.
Outcome run_collective(Channel& channel, const Collective& collective, const char* send, char* receive);
Outcome run_transfers(Channel& channel, std::vector<Transfer> transfers);

}  // namespace sim_library
