// The figures of anyaccel bench: medians, spreads, and ratios to ceilings that were measured in turns with the runs.
#include <gtest/gtest.h>

#include <vector>

#include "cli/bench/bench.h"

namespace anyaccel::cli::bench {
namespace {

using Values = std::vector<double>;

Result summary(const Values& values, double ceiling, bool smaller_is_better) {
  Result result;
  result.ceiling = ceiling;
  summarize(result, values, smaller_is_better);
  return result;
}

Result turns(const Values& values, const Values& ceilings, bool smaller_is_better) {
  Result result;
  summarize_turns(result, values, ceilings, smaller_is_better);
  return result;
}

TEST(BenchSummary, Medians) {
  EXPECT_EQ(summary({7}, 0, false).value, 7);
  EXPECT_EQ(summary({9, 1}, 0, false).value, 5);
  EXPECT_EQ(summary({9, 1, 2}, 0, false).value, 2);
  EXPECT_EQ(summary({9, 1, 2, 4}, 0, false).value, 3);
  EXPECT_EQ(summary({8, 100, 1, 2, 4}, 0, false).value, 4);
  EXPECT_EQ(summary({8, 100, 1, 2, 4}, 0, true).value, 4);
}

TEST(BenchSummary, RunsAndSpread) {
  const Result result = summary({6, 3, 4, 8}, 0, false);
  EXPECT_EQ(result.runs, 4);
  EXPECT_EQ(result.spread, 1);  // (8 - 3) / 5
  EXPECT_EQ(summary({7}, 0, false).spread, 0);
  EXPECT_EQ(summary({-1, 0, 1}, 0, false).spread, 0);  // of a median of 0
}

TEST(BenchSummary, RatioToOneCeiling) {
  EXPECT_EQ(summary({4, 2, 8}, 16, false).ratio, 0.25);
  EXPECT_EQ(summary({4, 2, 8}, 1, true).ratio, 0.25);
  EXPECT_EQ(summary({4, 2, 8}, 0, false).ratio, 0);
  EXPECT_EQ(summary({4, 2, 8}, 0, true).ratio, 0);
  EXPECT_EQ(summary({0, 0, 8}, 2, true).ratio, 0);
}

TEST(BenchSummary, ACeilingForEachRun) {
  // The ratios are 1/2, 3/4 and 1/4, whose median is that of no ratio of medians.
  const Result result = turns({5, 6, 8}, {10, 8, 32}, false);
  EXPECT_EQ(result.value, 6);
  EXPECT_EQ(result.ceiling, 10);
  EXPECT_EQ(result.ratio, 0.5);
  EXPECT_EQ(result.runs, 3);
  EXPECT_EQ(result.spread, 0.5);
  EXPECT_EQ(turns({5, 6}, {10, 8}, false).ratio, 0.625);
  EXPECT_EQ(turns({10, 8, 32}, {5, 6, 8}, true).ratio, 0.5);
}

TEST(BenchSummary, ACeilingAroundEachRun) {
  // The means of those before and after are 10, 16 and 22.
  const Result result = turns({5, 4, 11}, {8, 12, 20, 24}, false);
  EXPECT_EQ(result.value, 5);
  EXPECT_EQ(result.ceiling, 16);
  EXPECT_EQ(result.ratio, 0.5);
  const Result times = turns({20, 64, 44}, {8, 12, 20, 24}, true);
  EXPECT_EQ(times.value, 44);
  EXPECT_EQ(times.ceiling, 16);
  EXPECT_EQ(times.ratio, 0.5);
  EXPECT_EQ(turns({5}, {8, 12}, false).ratio, 0.5);
}

TEST(BenchSummary, CeilingsThatCouldNotBeMeasured) {
  for (const Values& none : {Values{0, 0, 0}, Values{0, 0, 0, 0}}) {
    const Result result = turns({5, 6, 7}, none, false);
    EXPECT_EQ(result.value, 6);
    EXPECT_EQ(result.ceiling, 0);
    EXPECT_EQ(result.ratio, 0);
    EXPECT_EQ(result.runs, 3);
  }
  // What was measured counts, and a run whose ceiling was not has no ratio.
  const Result one = turns({5, 6, 7}, {10, 0, 0}, false);
  EXPECT_EQ(one.value, 6);
  EXPECT_EQ(one.ceiling, 10);
  EXPECT_EQ(one.ratio, 0.5);
  const Result around = turns({5, 6, 9}, {10, 0, 10, 20}, false);
  EXPECT_EQ(around.ceiling, 10);
  EXPECT_EQ(around.ratio, 0.6);  // 9 / 15
  // No run has both.
  const Result apart = turns({5, 6}, {10, 0, 10}, false);
  EXPECT_EQ(apart.value, 5.5);
  EXPECT_EQ(apart.ceiling, 0);
  EXPECT_EQ(apart.ratio, 0);
}

TEST(BenchSummary, TimesOfZeroHaveNoRatio) {
  const Result result = turns({0, 4, 0}, {1, 1, 1}, true);
  EXPECT_EQ(result.value, 0);
  EXPECT_EQ(result.ceiling, 1);
  EXPECT_EQ(result.ratio, 0.25);
}

TEST(BenchSummary, RatesFromTimes) {
  EXPECT_EQ(scaled({1, 2, 0}, 3), (Values{3, 6, 0}));
  EXPECT_EQ(over(12, {3, 0, 4}), (Values{4, 0, 3}));
}

}  // namespace
}  // namespace anyaccel::cli::bench
