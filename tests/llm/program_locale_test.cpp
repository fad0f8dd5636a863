// Programs may choose a locale: files have the same numbers and names in it, and are read all the same.
#include "program_locale.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "anyaccel/llm/make_model.h"
#include "base/block_encode.h"
#include "comm/comms_log.h"
#include "llm/test_directory.h"

namespace anyaccel::llm {
namespace {

TEST(ProgramLocale, TheCommsLogOfAnotherRankIsRead) {
  const test::ProgramLocale locale("de_DE");
  if (!locale.is_set()) GTEST_SKIP() << "no locale can be made here";
  comm::CommsLog::Line line;
  line.bytes = 1234567;
  line.count = 7654321;
  line.mean_us = 1.25;
  line.total_us = 1234567.5;
  const auto read = comm::CommsLog::from_text(comm::CommsLog::to_text({line}));
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].bytes, line.bytes);
  EXPECT_EQ(read[0].count, line.count);
  EXPECT_EQ(read[0].mean_us, line.mean_us);
  EXPECT_EQ(read[0].total_us, line.total_us);
}

TEST(ProgramLocale, AMadeModelIsTheSame) {
  const auto tokenizer_of = [](const std::filesystem::path& directory) {
    make_model(known_model_shapes().front(), directory.string());
    std::ifstream file(directory / "tokenizer.json");
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const testing::TestDirectory one, other;
  const std::string expected = tokenizer_of(one.path() / "model");
  const test::ProgramLocale locale("de_DE");
  if (!locale.is_set()) GTEST_SKIP() << "no locale can be made here";
  EXPECT_EQ(tokenizer_of(other.path() / "model"), expected);
}

TEST(ProgramLocale, NamesOfFormatsAreFoundInTurkish) {
  const test::ProgramLocale locale("tr_TR");
  if (!locale.is_set()) GTEST_SKIP() << "no locale can be made here";
  ASSERT_NE(find_block_format(std::string_view("iq4_nl")), nullptr);
}

}  // namespace
}  // namespace anyaccel::llm
