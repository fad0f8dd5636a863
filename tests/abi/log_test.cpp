// The log: levels, the shape of lines, threads.
#include "anyaccel/log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "runtime/driver/host_services.h"

namespace anyaccel {
namespace {

class Log : public ::testing::Test {
 protected:
  ~Log() override { set_log_level(before_); }

  template <class Body>
  std::string written(Body body) {
    ::testing::internal::CaptureStderr();
    body();
    return ::testing::internal::GetCapturedStderr();
  }

  LogLevel before_ = log_level();
};

TEST_F(Log, WritesFromTheLevelOn) {
  set_log_level(LogLevel::warning);
  EXPECT_EQ(written([] {
              log_debug("a");
              log_info("b");
              log_warning("c");
              log_error("d");
            }),
            "anyaccel: warning: c\nanyaccel: error: d\n");
  EXPECT_FALSE(log_enabled(LogLevel::info));
  EXPECT_TRUE(log_enabled(LogLevel::error));
}

TEST_F(Log, OffWritesNothing) {
  set_log_level(LogLevel::off);
  EXPECT_EQ(written([] {
              log_error("x");
              log(LogLevel::off, "x");
            }),
            "");
}

TEST_F(Log, LongerMessagesAreIndented) {
  set_log_level(LogLevel::debug);
  EXPECT_EQ(written([] { log_debug("first\nsecond\n\n"); }), "anyaccel: debug: first\n  second\n");
}

TEST_F(Log, DriversWriteThroughTheHost) {
  set_log_level(LogLevel::warning);
  const std::string text = "from a driver";
  EXPECT_EQ(written([&] {
              host_services()->log(host_services(), AA_LOG_INFO, text.data(), text.size());
              host_services()->log(host_services(), AA_LOG_WARNING, text.data(), 4);
              host_services()->log(host_services(), 1000, text.data(), text.size());
            }),
            "anyaccel: warning: from\nanyaccel: error: from a driver\n");
}

TEST_F(Log, LinesOfThreadsDoNotMix) {
  set_log_level(LogLevel::warning);
  const std::string output = written([] {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([t] {
        for (int i = 0; i < 100; ++i) log_warning(std::string(100, static_cast<char>('a' + t)));
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  EXPECT_EQ(std::count(output.begin(), output.end(), '\n'), 400);
  const std::string head = "anyaccel: warning: ";
  for (size_t at = 0; at < output.size(); at += head.size() + 101) {
    ASSERT_EQ(output.substr(at, head.size()), head);
    const std::string body = output.substr(at + head.size(), 100);
    ASSERT_EQ(body, std::string(100, body[0]));
  }
}

// The variable is read once, so each value needs a process of its own.
void log_all_with(const char* value) {
  setenv("ANYACCEL_LOG", value, 1);
  log_debug("one");
  log_info("two");
  log_warning("three");
  log_error("four");
  std::exit(0);
}

TEST(LogDeathTest, VariableChoosesTheLevel) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto success = ::testing::ExitedWithCode(0);
  EXPECT_EXIT(log_all_with("debug"), success, "^anyaccel: debug: one\n.*two\n.*three\nanyaccel: error: four\n$");
  EXPECT_EXIT(log_all_with(""), success, "^anyaccel: warning: three\nanyaccel: error: four\n$");
  EXPECT_EXIT(log_all_with("error"), success, "^anyaccel: error: four\n$");
  EXPECT_EXIT(log_all_with("off"), success, "^$");
  EXPECT_EXIT(log_all_with("loud"), success,
              "^anyaccel: warning: ANYACCEL_LOG=loud is not one of debug, info, warning, error, off; using warning\n"
              "anyaccel: warning: three\n");
}

}  // namespace
}  // namespace anyaccel
