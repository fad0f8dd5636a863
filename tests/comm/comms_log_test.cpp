// The comms log: what is counted, the bandwidths, and the table.
#include "comm/comms_log.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "anyaccel/error.h"

namespace anyaccel::comm {
namespace {

using std::chrono::microseconds;

TEST(CommsLog, EachCallCountsForItself) {
  CommsLog log;
  for (const int us : {10, 20, 30, 40}) log.record(CommOp::AllReduce, 1000, 4, microseconds(us));
  log.record(CommOp::AllReduce, 2000, 4, microseconds(5));
  log.record(CommOp::AllReduce, 1000, 2, microseconds(7));
  log.record(CommOp::Barrier, 0, 4, microseconds(1));
  const std::vector<CommsLog::Line> lines = log.lines();
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0].size, 2);
  const CommsLog::Line& line = lines[1];
  EXPECT_EQ(line.op, CommOp::AllReduce);
  EXPECT_EQ(line.bytes, 1000u);
  EXPECT_EQ(line.count, 4);
  EXPECT_DOUBLE_EQ(line.total_us, 100);
  EXPECT_DOUBLE_EQ(line.mean_us, 25);
  EXPECT_DOUBLE_EQ(line.min_us, 10);
  EXPECT_DOUBLE_EQ(line.max_us, 40);
  EXPECT_DOUBLE_EQ(line.algorithm_gbps, 1000 / 25e3);  // bytes over nanoseconds
  EXPECT_DOUBLE_EQ(line.bus_gbps, line.algorithm_gbps * 1.5);
  EXPECT_EQ(lines[2].count, 1);
  EXPECT_EQ(lines[3].op, CommOp::Barrier);
  EXPECT_EQ(lines[3].bus_gbps, 0);
}

TEST(CommsLog, TheTrimmedMeanLeavesOutliersOut) {
  CommsLog log;
  for (int i = 0; i < 18; ++i) log.record(CommOp::Broadcast, 8, 2, microseconds(10));
  log.record(CommOp::Broadcast, 8, 2, microseconds(100000));
  log.record(CommOp::Broadcast, 8, 2, microseconds(0));
  const CommsLog::Line line = log.lines().at(0);
  EXPECT_DOUBLE_EQ(line.trimmed_mean_us, 10);
  EXPECT_GT(line.mean_us, 5000);
}

// More calls than are kept: the counts are of all, the trimmed mean of the latest.
TEST(CommsLog, ManyCalls) {
  CommsLog log;
  for (int i = 0; i < 5000; ++i) log.record(CommOp::Send, 8, 2, microseconds(i < 900 ? 1000 : 2));
  const CommsLog::Line line = log.lines().at(0);
  EXPECT_EQ(line.count, 5000);
  EXPECT_DOUBLE_EQ(line.trimmed_mean_us, 2);
  EXPECT_DOUBLE_EQ(line.max_us, 1000);
  EXPECT_DOUBLE_EQ(line.total_us, 900 * 1000 + 4100 * 2);
}

// PERFORMANCE.md of nccl-tests.
TEST(CommsLog, BusFactors) {
  EXPECT_DOUBLE_EQ(bus_factor(CommOp::AllReduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(CommOp::InferenceAllReduce, 2), 1);
  for (const CommOp op :
       {CommOp::AllGather, CommOp::ReduceScatter, CommOp::AllToAll, CommOp::Gather, CommOp::Scatter}) {
    EXPECT_DOUBLE_EQ(bus_factor(op, 4), 0.75) << comm_op_name(op);
  }
  for (const CommOp op : {CommOp::Broadcast, CommOp::Reduce, CommOp::Send, CommOp::Recv}) {
    EXPECT_DOUBLE_EQ(bus_factor(op, 4), 1) << comm_op_name(op);
  }
  EXPECT_DOUBLE_EQ(bus_factor(CommOp::AllReduce, 1), 0);
}

TEST(CommsLog, LinesCrossProcesses) {
  CommsLog log;
  log.record(CommOp::AllToAll, size_t{5} << 30, 8, microseconds(12345));
  log.record(CommOp::Recv, 3, 2, std::chrono::nanoseconds(1));
  const std::vector<CommsLog::Line> lines = log.lines();
  const std::vector<CommsLog::Line> back = CommsLog::from_text(CommsLog::to_text(lines));
  ASSERT_EQ(back.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(back[i].op, lines[i].op);
    EXPECT_EQ(back[i].bytes, lines[i].bytes);
    EXPECT_EQ(back[i].count, lines[i].count);
    EXPECT_EQ(back[i].mean_us, lines[i].mean_us);
    EXPECT_EQ(back[i].bus_gbps, lines[i].bus_gbps);
  }
  EXPECT_TRUE(CommsLog::from_text("").empty());
  EXPECT_THROW(CommsLog::from_text("all_reduce 3\n"), InvalidArgument);
  EXPECT_THROW(CommsLog::from_text("99 1 1 1 1 1 1 1 1 1 1\n"), InvalidArgument);
}

TEST(CommsLog, TheTable) {
  CommsLog log;
  log.record(CommOp::AllReduce, 2048, 2, microseconds(30));
  CommsLog::Line faster = log.lines().at(0);
  faster.mean_us = 12;  // a rank that came last and so did not wait
  const std::string alone = CommsLog::table(log.lines(), {});
  EXPECT_NE(alone.find("all_reduce"), std::string::npos);
  EXPECT_NE(alone.find("2.0 KiB"), std::string::npos);
  EXPECT_EQ(alone.find("least rank us"), std::string::npos);
  const std::string with = CommsLog::table(log.lines(), {{faster}});
  EXPECT_NE(with.find("least rank us"), std::string::npos);
  EXPECT_NE(with.find("12.00"), std::string::npos);
}

TEST(CommsLog, TheVariable) {
  ::unsetenv("ANYACCEL_COMMS_LOG");
  EXPECT_EQ(comms_log_from_environment(), nullptr);
  ::setenv("ANYACCEL_COMMS_LOG", "0", 1);
  EXPECT_EQ(comms_log_from_environment(), nullptr);
  ::setenv("ANYACCEL_COMMS_LOG", "1", 1);
  EXPECT_NE(comms_log_from_environment(), nullptr);
  ::setenv("ANYACCEL_COMMS_LOG", "loud", 1);
  EXPECT_THROW(comms_log_from_environment(), InvalidArgument);
  ::unsetenv("ANYACCEL_COMMS_LOG");
}

}  // namespace
}  // namespace anyaccel::comm
