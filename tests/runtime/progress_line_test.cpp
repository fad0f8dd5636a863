// Checks the line that shows the progress of long work: its figures, its bar, and its length.
#include "base/text/progress_line.h"

#include <gtest/gtest.h>

#include "anyaccel/format_bytes.h"

namespace anyaccel {
namespace {

constexpr uint64_t GB = 1'000'000'000;

TEST(ProgressLine, ShowsBytesRateAndTimeLeft) {
  EXPECT_EQ(progress_line("loading", ProgressUnit::Bytes, GB / 2, 2 * GB, 1.0, 79),
            "loading [=====>              ] 500.0 MB of 2.0 GB, 500.0 MB/s, 3 s left");
  EXPECT_EQ(progress_line("loading", ProgressUnit::Bytes, 2 * GB, 2 * GB, 4.0, 79),
            "loading [====================] 2.0 GB of 2.0 GB, 500.0 MB/s, 0 s left");
}

// No number but that of the largest unit is printed as 1000.
TEST(ProgressLine, BytesAtTheEndsOfUnits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(999.6), "1.0 KB");
  EXPECT_EQ(format_bytes(999'949), "999.9 KB");
  EXPECT_EQ(format_bytes(999'960), "1.0 MB");
  EXPECT_EQ(format_bytes(2e18), "2000.0 PB");
}

TEST(ProgressLine, ShowsCountsWithoutARate) {
  EXPECT_EQ(progress_line("reading", ProgressUnit::Count, 30, 120, 60, 79),
            "reading [=====>              ] 30 of 120, 3 min 0 s left");
  EXPECT_EQ(progress_line("reading", ProgressUnit::Count, 1, 120, 60, 79),
            "reading [>                   ] 1 of 120, 1 h 59 min left");
}

TEST(ProgressLine, ShowsNoTimeBeforeItCanBeKnown) {
  EXPECT_EQ(progress_line("loading", ProgressUnit::Bytes, 0, GB, 0.0, 79),
            "loading [>                   ] 0 B of 1.0 GB");
  EXPECT_EQ(progress_line("loading", ProgressUnit::Bytes, 0, GB, 9.0, 79),
            "loading [>                   ] 0 B of 1.0 GB");
  EXPECT_EQ(progress_line("loading", ProgressUnit::Bytes, 0, 0, 9.0, 79), "loading [====================] 0 B of 0 B");
}

TEST(ProgressLine, FitsTheTerminal) {
  const std::string without_bar = "loading 500.0 MB of 2.0 GB, 500.0 MB/s, 3 s left";
  for (size_t columns = 0; columns <= 79; ++columns) {
    const std::string line = progress_line("loading", ProgressUnit::Bytes, GB / 2, 2 * GB, 1.0, columns);
    EXPECT_LE(line.size(), columns);
    if (columns >= without_bar.size() && columns < 70) {
      EXPECT_EQ(line, without_bar);
    }
  }
}

}  // namespace
}  // namespace anyaccel
