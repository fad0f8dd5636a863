// Records durations of collectives, by operation and message size (the comms log). ANYACCEL_COMMS_LOG=1 enables it;
// rank 0 prints a table when it leaves the job.
//
// Sizes and bandwidths are those of nccl-tests (PERFORMANCE.md there): the size of an operation is the whole buffer of
// one rank (all_gather: the output; reduce_scatter: the input); algorithm bandwidth is size over time, bus bandwidth
// multiplies that by a factor that makes it comparable with hardware bandwidth. A latency is the duration of one call
// on this rank, including waiting for slower peers; for operations that a stream runs, from the time the stream reached
// them.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace anyaccel::comm {

enum class CommOp : uint8_t {
  AllReduce,
  InferenceAllReduce,
  InferenceGatherColumns,
  Reduce,
  Broadcast,
  AllGather,
  ReduceScatter,
  Gather,
  Scatter,
  AllToAll,
  Send,
  Recv,
  Barrier,
};
constexpr size_t comm_op_count = 13;
const char* comm_op_name(CommOp op) noexcept;
// Bus bandwidth over algorithm bandwidth for n ranks; 0 for a barrier, which moves nothing.
double bus_factor(CommOp op, int size) noexcept;

class CommsLog {
 public:
  // One line of the table. Times in microseconds, bandwidths in GB/s (1e9 bytes).
  struct Line {
    CommOp op = CommOp::AllReduce;
    size_t bytes = 0;
    int size = 1;  // ranks of the group
    int64_t count = 0;
    double total_us = 0;
    double mean_us = 0;
    double trimmed_mean_us = 0;  // of the latest calls (at most 4096), without the lowest and highest tenth
    double min_us = 0;
    double max_us = 0;
    double algorithm_gbps = 0;  // computed from the trimmed mean, as is the next
    double bus_gbps = 0;
  };

  // Thread-safe.
  void record(CommOp op, size_t bytes, int size, std::chrono::nanoseconds duration);
  // Sorted by op, group size and bytes.
  std::vector<Line> lines() const;

  // Serializes the lines as text for another process, and parses it; InvalidArgument for a text that is not from
  // to_text().
  static std::string to_text(const std::vector<Line>& lines);
  static std::vector<Line> from_text(std::string_view text);
  // Formats the table. others: the known lines of the other ranks; if there are any, a column has the time on the rank
  // that waited least: any time above that was spent waiting for stragglers.
  static std::string table(const std::vector<Line>& lines, const std::vector<std::vector<Line>>& others);

 private:
  struct Key {
    CommOp op;
    int size;
    size_t bytes;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  struct Record {
    int64_t count = 0;
    int64_t total_ns = 0;
    int64_t min_ns = 0;
    int64_t max_ns = 0;
    std::vector<int64_t> latest_ns;  // a ring once it is full
  };

  mutable std::mutex mutex_;
  std::map<Key, Record> records_;
};

// Returns a log if ANYACCEL_COMMS_LOG is 1; null if it is 0, empty or not set; else throws InvalidArgument.
std::shared_ptr<CommsLog> comms_log_from_environment();

}  // namespace anyaccel::comm
