// Implements CommsLog: its records, and the table of their statistics.
#include "comm/comms_log.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <locale>
#include <sstream>

#include "anyaccel/error.h"

namespace anyaccel::comm {

namespace {

constexpr size_t kept_latencies = 4096;

constexpr std::array<const char*, comm_op_count> op_names = {"all_reduce",
                                                             "inference_all_reduce",
                                                             "inference_gather_columns",
                                                             "reduce",
                                                             "broadcast",
                                                             "all_gather",
                                                             "reduce_scatter",
                                                             "gather",
                                                             "scatter",
                                                             "all_to_all",
                                                             "send",
                                                             "recv",
                                                             "barrier"};

// Returns "2.0 KiB".
std::string size_text(size_t bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(units)) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
  return text;
}

double trimmed_mean(std::vector<int64_t> values) {
  std::sort(values.begin(), values.end());
  const size_t cut = values.size() / 10;
  double sum = 0;
  for (size_t i = cut; i < values.size() - cut; ++i) sum += static_cast<double>(values[i]);
  return sum / static_cast<double>(values.size() - 2 * cut);
}

}  // namespace

const char* comm_op_name(CommOp op) noexcept { return op_names[static_cast<size_t>(op)]; }

double bus_factor(CommOp op, int size) noexcept {
  const double n = size;
  switch (op) {
    case CommOp::AllReduce:
    case CommOp::InferenceAllReduce: return 2 * (n - 1) / n;
    case CommOp::InferenceGatherColumns:
    case CommOp::AllGather:
    case CommOp::ReduceScatter:
    case CommOp::Gather:
    case CommOp::Scatter:
    case CommOp::AllToAll: return (n - 1) / n;
    case CommOp::Reduce:
    case CommOp::Broadcast:
    case CommOp::Send:
    case CommOp::Recv: return 1;
    case CommOp::Barrier: return 0;
  }
  return 0;
}

void CommsLog::record(CommOp op, size_t bytes, int size, std::chrono::nanoseconds duration) {
  const int64_t ns = duration.count();
  const std::lock_guard lock(mutex_);
  Record& record = records_[Key{op, size, bytes}];
  record.min_ns = record.count == 0 ? ns : std::min(record.min_ns, ns);
  record.max_ns = std::max(record.max_ns, ns);
  record.total_ns += ns;
  if (record.latest_ns.size() < kept_latencies) {
    record.latest_ns.push_back(ns);
  } else {
    record.latest_ns[static_cast<size_t>(record.count) % kept_latencies] = ns;
  }
  ++record.count;
}

std::vector<CommsLog::Line> CommsLog::lines() const {
  const std::lock_guard lock(mutex_);
  std::vector<Line> result;
  for (const auto& [key, record] : records_) {
    Line line;
    line.op = key.op;
    line.bytes = key.bytes;
    line.size = key.size;
    line.count = record.count;
    line.total_us = static_cast<double>(record.total_ns) / 1e3;
    line.mean_us = line.total_us / static_cast<double>(record.count);
    const double trimmed_ns = trimmed_mean(record.latest_ns);
    line.trimmed_mean_us = trimmed_ns / 1e3;
    line.min_us = static_cast<double>(record.min_ns) / 1e3;
    line.max_us = static_cast<double>(record.max_ns) / 1e3;
    if (key.op != CommOp::Barrier && trimmed_ns > 0) {
      line.algorithm_gbps = static_cast<double>(key.bytes) / trimmed_ns;  // bytes/ns = GB/s
      line.bus_gbps = line.algorithm_gbps * bus_factor(key.op, key.size);
    }
    result.push_back(line);
  }
  return result;
}

std::string CommsLog::to_text(const std::vector<Line>& lines) {
  std::string text;
  for (const Line& line : lines) {
    text += std::to_string(static_cast<int>(line.op)) + ' ' + std::to_string(line.bytes) + ' ' +
            std::to_string(line.size) + ' ' + std::to_string(line.count);
    for (const double number : {line.total_us, line.mean_us, line.trimmed_mean_us, line.min_us, line.max_us,
                                line.algorithm_gbps, line.bus_gbps}) {
      char digits[32];
      const auto [end, error] = std::to_chars(digits, digits + sizeof digits, number);
      text.append(1, ' ').append(digits, end);
    }
    text += '\n';
  }
  return text;
}

std::vector<CommsLog::Line> CommsLog::from_text(std::string_view text) {
  std::vector<Line> result;
  std::istringstream stream{std::string(text)};
  for (std::string row; std::getline(stream, row);) {
    std::istringstream fields(row);
    fields.imbue(std::locale::classic());
    Line line;
    int op = 0;
    fields >> op >> line.bytes >> line.size >> line.count >> line.total_us >> line.mean_us >> line.trimmed_mean_us >>
        line.min_us >> line.max_us >> line.algorithm_gbps >> line.bus_gbps;
    if (!fields || op < 0 || op >= static_cast<int>(comm_op_count)) {
      throw InvalidArgument("\"" + row + "\" is not a line of a comms log");
    }
    line.op = static_cast<CommOp>(op);
    result.push_back(line);
  }
  return result;
}

std::string CommsLog::table(const std::vector<Line>& lines, const std::vector<std::vector<Line>>& others) {
  char row[256];
  std::snprintf(row, sizeof(row), "%-20s %10s %5s %9s %12s %11s %11s %11s %10s %10s%s\n", "operation", "size", "ranks",
                "count", "total ms", "mean us", "trimmed us", "min us", "alg GB/s", "bus GB/s",
                others.empty() ? "" : "  least rank us");
  std::string text = row;
  for (const Line& line : lines) {
    std::snprintf(row, sizeof(row), "%-20s %10s %5d %9lld %12.3f %11.2f %11.2f %11.2f %10.3f %10.3f",
                  comm_op_name(line.op), size_text(line.bytes).c_str(), line.size, static_cast<long long>(line.count),
                  line.total_us / 1e3, line.mean_us, line.trimmed_mean_us, line.min_us, line.algorithm_gbps,
                  line.bus_gbps);
    text += row;
    if (!others.empty()) {
      double least = line.mean_us;
      for (const auto& rank : others) {
        for (const Line& other : rank) {
          if (other.op == line.op && other.bytes == line.bytes && other.size == line.size) {
            least = std::min(least, other.mean_us);
          }
        }
      }
      std::snprintf(row, sizeof(row), "  %13.2f", least);
      text += row;
    }
    text += '\n';
  }
  return text;
}

std::shared_ptr<CommsLog> comms_log_from_environment() {
  const char* value = std::getenv("ANYACCEL_COMMS_LOG");
  const std::string text = value ? value : "";
  if (text.empty() || text == "0") return nullptr;
  if (text == "1") return std::make_shared<CommsLog>();
  throw InvalidArgument("ANYACCEL_COMMS_LOG=" + text + ": 1 prints the comms log at exit, 0 does not");
}

}  // namespace anyaccel::comm
